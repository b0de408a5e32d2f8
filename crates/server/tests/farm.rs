//! The farm of one server, with a log that commits when it is told to: questions, proposals, workers and who leads.

use std::collections::VecDeque;

use bytes::Bytes;
use primus_core::farm::{self, Hello, foreman};
use primus_core::ledger::roll::{Change, Done, Fingerprint, Neighbour, Node, Revocation};
use primus_core::ledger::{
    Effect, Entry, Expansion, Held, JobId, Limits, Outcome, Report, Spec, Tail, Target, Verdict, Work,
};
use primus_core::loan::lending;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::{Bug, Planted};
use primus_core::{FarmId, ServerId, Term, WorkerId};
use primus_server::farm::{Answer, Awaited, Command, Farm, Message, Notice, Peer, Refusal, Rules, Ticket};
use primus_server::gave_way::GaveWay;
use primus_server::record::{Draft, State};

const ME: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
const W1: WorkerId = WorkerId(1);
/// When the story begins, in milliseconds since 1970.
const WALL_MS: u64 = 1_794_800_000_000;

fn rules() -> Rules {
    Rules {
        work: foreman::Rules::default(),
        lending: lending::Rules::default(),
        neighbours: Vec::new(),
        limits: Limits::default(),
        state_max: 1 << 30,
        servers: 3,
        planted: Planted::NONE,
    }
}

/// A farm, and what it has said.
struct Stage {
    farm: Farm,
    now_us: u64,
    /// Records that the log has not committed yet, and how long it is.
    entering: VecDeque<Bytes>,
    index: u64,
    said: Vec<(Peer, Message)>,
    notices: Vec<Notice>,
}

impl Stage {
    fn new() -> Self {
        let farm = Farm::new(ME, 77, rules());
        Self { farm, now_us: 1, entering: VecDeque::new(), index: 0, said: Vec::new(), notices: Vec::new() }
    }

    /// One that leads.
    fn leading() -> Self {
        let mut stage = Self::new();
        stage.command(Command::Leader(Some(ME)));
        stage.command(Command::Lead(Term(1)));
        stage.turn();
        stage.commit_all();
        stage.notices.clear();
        stage
    }

    fn step(&mut self, input: Input<Farm>) {
        let mut out = Outbox::new();
        self.now_us += 1000;
        self.farm.step(Moment(self.now_us), input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { to, message } => self.said.push((to, message)),
                Output::Notify(Notice::Append(_, records)) => self.entering.extend(records),
                Output::Notify(notice) => self.notices.push(notice),
                Output::Set { .. } | Output::Cancel(_) | Output::Ignore(_) => {}
            }
        }
    }

    fn command(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    fn hear(&mut self, from: WorkerId, message: farm::Message) {
        self.step(Input::Message { from: Peer::Worker(from), message: Message::Work(message) });
    }

    fn turn(&mut self) {
        self.command(Command::Turn(WALL_MS + self.now_us / 1000));
    }

    fn commit(&mut self) {
        let record = self.entering.pop_front().expect("something is on its way");
        self.index += 1;
        self.command(Command::Committed(self.index, record));
    }

    /// Until nothing more is wanted.
    fn commit_all(&mut self) {
        while !self.entering.is_empty() {
            self.commit();
            self.turn();
        }
    }

    fn link(&mut self, worker: WorkerId, name: &str) {
        self.command(Command::Link(worker, name.to_owned()));
        let hello = Hello {
            name: name.to_owned(),
            term: Term(0),
            slots: 1,
            loan: None,
            held: Vec::new(),
            ended: Vec::new(),
        };
        self.hear(worker, farm::Message::Hello(hello));
        self.turn();
        self.commit_all();
    }

    fn answers(&mut self) -> Vec<(u64, Result<Answer, Refusal>)> {
        let answers = self.notices.extract_if(.., |notice| matches!(notice, Notice::Answer(..)));
        let answer = |notice| match notice {
            Notice::Answer(ticket, answer) => Some((ticket.0, answer)),
            _ => None,
        };
        answers.filter_map(answer).collect()
    }

    /// The tasks that workers were told to run.
    fn run(&self) -> Vec<Held> {
        let held = |(_, message): &(Peer, Message)| match message {
            Message::Work(farm::Message::Run(_, assignments)) => {
                assignments.iter().map(|assignment| assignment.held).collect()
            }
            _ => Vec::new(),
        };
        self.said.iter().flat_map(held).collect()
    }
}

fn submit() -> Draft {
    let work = Work::Kind { name: "noop".to_owned(), input: Vec::new() };
    let (expansion, retries, timeout_ms, is_once, priority, cpus) = (Expansion::One, 0, None, false, 0, 1);
    let spec = Spec { name: String::new(), work, expansion, retries, timeout_ms, is_once, priority, cpus };
    Draft::new(&[Entry::Submit { spec, key: None }])
}

fn ended(held: Held) -> farm::Message {
    let outcome = Outcome {
        attempt: held.attempt,
        worker: "w1".to_owned(),
        verdict: Verdict::Exited(0),
        started_us: 0,
        took_us: 1_000_000,
        stdout: Tail::default(),
        stderr: Tail::default(),
    };
    farm::Message::Ended(vec![Report { task: held.task, outcome }])
}

#[test]
fn a_task_goes_from_a_client_to_a_worker_and_back() {
    let mut stage = Stage::leading();
    stage.link(W1, "w1");
    assert_eq!(stage.said[0], (Peer::Worker(W1), Message::Leads(Term(1))), "a worker hears at once who leads");
    stage.command(Command::Enter(Ticket(1), submit()));
    assert!(stage.entering.is_empty(), "what a turn comes to leaves at its end");
    stage.turn();
    assert_eq!(stage.answers(), [], "nothing is acknowledged before it is agreed on");
    stage.commit();
    let effects = vec![Effect::Submitted { job: JobId(1), is_new: true }];
    assert_eq!(stage.answers(), [(1, Ok(Answer::Entered(effects)))]);
    stage.command(Command::Await(Ticket(2), stage.index, vec![Awaited::from(Target::Job(JobId(1)))]));
    let held = stage.run()[0];
    stage.hear(W1, ended(held));
    stage.turn();
    assert_eq!(stage.answers(), []);
    stage.commit();
    assert_eq!(stage.answers(), [(2, Ok(Answer::Ended))]);
}

#[test]
fn a_question_that_comes_too_early_waits_until_this_server_is_ready() {
    let mut stage = Stage::new();
    stage.command(Command::Enter(Ticket(1), submit()));
    assert_eq!(stage.answers(), [(1, Err(Refusal::NoLeader))]);
    stage.command(Command::Leader(Some(ME)));
    stage.command(Command::Enter(Ticket(2), submit()));
    stage.command(Command::Look(Ticket(3), 0));
    assert_eq!(stage.answers(), []);
    stage.command(Command::Lead(Term(1)));
    assert_eq!(stage.answers(), [(3, Ok(Answer::Look))]);
    stage.turn();
    stage.commit_all();
    assert!(matches!(stage.answers()[..], [(2, Ok(Answer::Entered(_)))]));
}

#[test]
fn a_look_waits_for_the_part_of_the_log_that_it_must_see() {
    let mut stage = Stage::leading();
    stage.command(Command::Enter(Ticket(1), submit()));
    stage.turn();
    let index = stage.index + 1;
    stage.command(Command::Look(Ticket(2), index));
    // Of a job that is not known here yet nobody can say that it has ended.
    stage.command(Command::Await(Ticket(3), index, vec![Awaited::Jobs(JobId(1), JobId(1))]));
    assert_eq!(stage.answers(), []);
    stage.commit();
    assert!(matches!(stage.answers()[..], [(1, Ok(Answer::Entered(_))), (2, Ok(Answer::Look))]));
}

#[test]
fn a_deposed_leader_answers_nobody_and_wants_nothing() {
    let mut stage = Stage::leading();
    stage.link(W1, "w1");
    stage.command(Command::Enter(Ticket(1), submit()));
    stage.turn();
    stage.command(Command::Look(Ticket(2), 99));
    stage.command(Command::Enter(Ticket(3), submit()));
    stage.command(Command::Leader(Some(OTHER)));
    let elsewhere = Err(Refusal::NotLeading(OTHER));
    let unknown = Err(Refusal::Unknown);
    assert_eq!(stage.answers(), [(1, unknown.clone()), (3, unknown), (2, elsewhere.clone())]);
    assert_eq!(stage.said.last(), Some(&(Peer::Worker(W1), Message::Follows)));
    stage.command(Command::Await(Ticket(4), 0, Vec::new()));
    assert_eq!(stage.answers(), [(4, elsewhere)]);
    let before = stage.entering.len();
    stage.turn();
    assert_eq!(stage.entering.len(), before);
    // What is in the log counts all the same, and nobody here hands it out.
    stage.commit();
    assert_eq!((stage.farm.ledger().job(JobId(1)).is_some(), stage.run().len()), (true, 0));
}

#[test]
fn a_state_from_elsewhere_does_not_move_the_time_of_the_ledger() {
    const DAY_US: u64 = 24 * 3600 * 1_000_000;
    let mut before = Stage::leading();
    before.command(Command::Enter(Ticket(1), submit()));
    before.turn();
    before.commit_all();
    let state = before.farm.state();
    let newest_ms = state.ledger.newest_ms();
    assert!(newest_ms > 0);
    // The host has been up for days; that says nothing about how old the state is.
    let mut stage = Stage::new();
    stage.now_us = 10 * DAY_US;
    stage.farm.restore(Moment(stage.now_us), 7, state);
    stage.index = 7;
    stage.command(Command::Leader(Some(ME)));
    stage.command(Command::Lead(Term(2)));
    stage.command(Command::Enter(Ticket(2), submit()));
    stage.command(Command::Turn(newest_ms + 1000));
    stage.commit_all();
    let late_ms = stage.farm.ledger().newest_ms() - newest_ms;
    assert!(late_ms < 60_000, "the time of the ledger jumped by {late_ms} ms");
}

#[test]
fn a_worker_speaks_for_itself() {
    let mut stage = Stage::leading();
    stage.link(W1, "w1");
    stage.link(WorkerId(2), "w2");
    stage.notices.clear();
    let hello =
        Hello { name: "w1".to_owned(), term: Term(1), slots: 1, loan: None, held: Vec::new(), ended: Vec::new() };
    stage.hear(WorkerId(2), farm::Message::Hello(hello));
    assert_eq!(stage.notices, [Notice::Close(WorkerId(2))]);
    stage.command(Command::Enter(Ticket(1), submit()));
    stage.turn();
    stage.commit_all();
    assert_eq!(stage.said.iter().filter(|(to, _)| *to == Peer::Worker(W1)).count(), 3, "leads, welcome, run");
}

#[test]
fn links_of_a_worker_that_is_trusted_no_more_are_closed_on_every_server() {
    let bind = Change::BindWorker { name: "w1".to_owned(), key: Fingerprint([1; 32]) };
    let revoke = Change::Revoke(Revocation::Node(Node::Worker("w1".to_owned())));
    for leads in [true, false] {
        let mut stage = if leads { Stage::leading() } else { Stage::new() };
        stage.command(Command::Link(W1, "w1".to_owned()));
        stage.command(Command::Link(WorkerId(2), "w2".to_owned()));
        for (number, change, closed) in [
            (1, bind.clone(), vec![]),
            (2, revoke.clone(), vec![Notice::Close(W1)]),
            (3, Change::ForgetWorker("w1".to_owned()), vec![Notice::Forgotten("w1".to_owned())]),
        ] {
            stage.notices.clear();
            for record in Draft::new(&[Entry::Roll(change)]).seal(5, number, WALL_MS) {
                stage.index += 1;
                stage.command(Command::Committed(stage.index, record));
            }
            let expected: Vec<Notice> = closed.into_iter().chain([Notice::Roll]).collect();
            assert_eq!(stage.notices, expected, "change {number}, leads: {leads}");
        }
        assert!(stage.farm.ledger().roll().workers().is_empty());
    }
}

#[test]
fn who_is_who_survives_a_state_that_came_from_elsewhere() {
    let mut stage = Stage::leading();
    let change = Change::BindWorker { name: "w1".to_owned(), key: Fingerprint([1; 32]) };
    stage.command(Command::Enter(Ticket(1), Draft::new(&[Entry::Roll(change)])));
    stage.turn();
    stage.commit_all();
    let [(1, Ok(Answer::Entered(effects)))] = &stage.answers()[..] else { panic!("it is answered") };
    assert_eq!(effects[..], [Effect::Roll(Ok(Done::Bound("w1".to_owned())))]);
    let bytes = stage.farm.state().to_bytes(&GaveWay::default());
    let mut other = Farm::new(OTHER, 78, rules());
    other.restore(Moment(1), stage.index, State::from_bytes(&bytes).expect("it can be read"));
    assert_eq!(other.ledger().roll(), stage.farm.ledger().roll());
    assert!(!other.ledger().roll().workers().is_empty());
}

#[test]
fn what_ends_something_is_taken_although_there_is_too_much() {
    let mut stage = Stage::leading();
    stage.command(Command::Enter(Ticket(1), submit()));
    stage.turn();
    stage.commit_all();
    let rules = Rules { state_max: stage.farm.len_bytes(), ..rules() };
    let state = stage.farm.state();
    let mut full = Stage { farm: Farm::new(ME, 78, rules), ..Stage::new() };
    full.farm.restore(Moment(1), 1, state);
    full.command(Command::Leader(Some(ME)));
    full.command(Command::Lead(Term(2)));
    full.turn();
    full.commit_all();
    full.notices.clear();
    full.command(Command::Enter(Ticket(1), submit()));
    full.command(Command::Enter(Ticket(2), Draft::new(&[Entry::Cancel(Target::Job(JobId(1)))])));
    full.turn();
    full.commit_all();
    let max = full.farm.len_bytes().max(1);
    let [(1, Err(Refusal::StateFull(told))), (2, Ok(Answer::Entered(_)))] = &full.answers()[..] else {
        panic!("{:?}", full.notices)
    };
    assert!(*told <= max, "{told} {max}");
}

/// One that leads, with this bug.
fn planted(bug: Planted) -> Stage {
    let mut stage = Stage { farm: Farm::new(ME, 77, Rules { planted: bug, ..rules() }), ..Stage::new() };
    stage.command(Command::Leader(Some(ME)));
    stage.command(Command::Lead(Term(1)));
    stage.turn();
    stage.commit_all();
    stage.notices.clear();
    stage
}

#[test]
fn what_clients_want_in_one_turn_takes_place_in_their_order() {
    let is_cancelled = |bug| {
        let mut stage = planted(bug);
        stage.command(Command::Enter(Ticket(1), submit()));
        stage.command(Command::Enter(Ticket(2), Draft::new(&[Entry::Cancel(Target::Job(JobId(1)))])));
        stage.turn();
        stage.commit_all();
        stage.farm.ledger().counts().cancelled == 1
    };
    assert!(is_cancelled(Planted::NONE));
    assert!(!is_cancelled(Planted::the(Bug::ProposalsReordered)), "the bug is found");
}

#[test]
fn who_looks_sees_what_was_acknowledged_before() {
    let seen = |bug| {
        let mut stage = planted(bug);
        stage.command(Command::Enter(Ticket(1), submit()));
        stage.turn();
        // It is in the log, at the next place, and this server has not come to it yet.
        stage.command(Command::Look(Ticket(2), stage.index + 1));
        let early = stage.answers();
        stage.commit_all();
        (early, stage.answers().into_iter().map(|(ticket, _)| ticket).collect::<Vec<_>>())
    };
    assert_eq!(seen(Planted::NONE), (vec![], vec![1, 2]));
    let (early, _) = seen(Planted::the(Bug::LookBeforeApplied));
    assert_eq!(early, [(2, Ok(Answer::Look))], "the bug is found");
}

/// Trusts a farm, or no more.
fn change_roll(stage: &mut Stage, change: Change) {
    stage.command(Command::Enter(Ticket(0), Draft::new(&[Entry::Roll(change)])));
    stage.turn();
    stage.commit_all();
}

#[test]
fn a_farm_that_the_roll_trusts_is_a_neighbour_at_once_and_until_it_is_forgotten() {
    let mut stage = Stage::leading();
    let number = |stage: &Stage| stage.farm.lending().number_of("south");
    let lending = |stage: &mut Stage| {
        let notices = std::mem::take(&mut stage.notices);
        notices.into_iter().filter(|notice| matches!(notice, Notice::Lending(_))).collect::<Vec<_>>()
    };
    let south = Neighbour {
        name: "south".to_owned(),
        certificate: Vec::new(),
        hash: Fingerprint([1; 32]),
        servers: [(ME, "10.0.1.1:7460".to_owned())].into(),
    };
    change_roll(&mut stage, Change::TrustNeighbour(south.clone()));
    assert_eq!((number(&stage), lending(&mut stage)), (Some(FarmId(1)), vec![Notice::Lending(true)]));
    change_roll(&mut stage, Change::ForgetNeighbour("south".to_owned()));
    assert_eq!((number(&stage), lending(&mut stage)), (None, vec![Notice::Lending(false)]));
    change_roll(&mut stage, Change::TrustNeighbour(south));
    assert_eq!(number(&stage), Some(FarmId(2)), "no number comes back");
    let mut other = Stage::new();
    other.farm.restore(Moment(1), 9, stage.farm.state());
    assert_eq!(number(&other), Some(FarmId(1)), "a server that gets the whole state knows it, too");
}
