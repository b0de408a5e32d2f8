//! Leases beside a farm: what is granted goes through the log, and what is renewed does not.

use std::collections::VecDeque;

use bytes::Bytes;
use primus_core::farm::foreman;
use primus_core::lease::{self, Answer, Candidacy, Claim, Poll, lessor};
use primus_core::ledger::{Entry, GroupRank, GroupRules, Limits};
use primus_core::load::Score;
use primus_core::loan::lending;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{ServerId, SessionId, Term};
use primus_server::Reason;
use primus_server::farm::{self, Farm, Refusal, Ticket};
use primus_server::leases::{Command, Leases, Notice};

const ME: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
const SESSION: SessionId = SessionId(5);
const LEASE_US: u64 = 2_000_000;

/// A server's leases and its farm, whose log commits when it is told to.
struct Stage {
    leases: Leases,
    farm: Farm,
    now_us: u64,
    index: u64,
    entering: VecDeque<Bytes>,
    /// What the leases want in the log, and the farm has not heard yet.
    wanted: VecDeque<(Term, Vec<Entry>)>,
    answers: Vec<Answer>,
    notices: Vec<Notice>,
}

impl Stage {
    fn new() -> Self {
        let rules = farm::Rules {
            work: foreman::Rules::default(),
            lending: lending::Rules::default(),
            neighbours: Vec::new(),
            limits: Limits::default(),
            state_max: 1 << 30,
            servers: 3,
            planted: Planted::NONE,
        };
        Self {
            leases: Leases::new(ME, lessor::Rules { lease_us: LEASE_US, planted: Planted::NONE }),
            farm: Farm::new(ME, 77, rules),
            now_us: 1,
            index: 0,
            entering: VecDeque::new(),
            wanted: VecDeque::new(),
            answers: Vec::new(),
            notices: Vec::new(),
        }
    }

    fn leading() -> Self {
        let mut stage = Self::new();
        stage.command(Command::Leader(Some(ME), Term(1)));
        stage.tell_farm(farm::Command::Leader(Some(ME)));
        stage.tell_farm(farm::Command::Lead(Term(1)));
        stage.agree();
        stage.notices.clear();
        stage
    }

    fn command(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    fn step(&mut self, input: Input<Leases>) {
        let mut out = Outbox::new();
        self.now_us += 1000;
        self.leases.step(Moment(self.now_us), input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { to: SESSION, message: lease::Message::Answer(answer) } => self.answers.push(answer),
                Output::Notify(Notice::Want(term, entries)) => self.wanted.push_back((term, entries)),
                // A majority is always there.
                Output::Notify(Notice::Confirm(question)) => self.command(Command::Confirmed(question)),
                Output::Notify(notice) => self.notices.push(notice),
                _ => {}
            }
        }
    }

    fn tell_farm(&mut self, command: farm::Command) {
        let mut out = Outbox::new();
        self.now_us += 1000;
        self.farm.step(Moment(self.now_us), Input::Command(command), &mut out);
        for output in out.drain() {
            match output {
                Output::Notify(farm::Notice::Append(_, records)) => self.entering.extend(records),
                Output::Notify(farm::Notice::Held(term, groups)) => self.command(Command::Lead(term, groups)),
                Output::Notify(farm::Notice::Leases(term, effects)) => {
                    self.command(Command::Applied(term, effects));
                }
                _ => {}
            }
        }
    }

    /// The farm gets to it, and everything is agreed on.
    fn agree(&mut self) {
        loop {
            while let Some((term, entries)) = self.wanted.pop_front() {
                self.tell_farm(farm::Command::Want(term, entries));
            }
            self.tell_farm(farm::Command::Turn(1_794_800_000_000 + self.now_us / 1000));
            let Some(record) = self.entering.pop_front() else { return };
            self.index += 1;
            self.tell_farm(farm::Command::Committed(self.index, record));
        }
    }

    fn poll(&mut self, number: u64, wants: Option<Vec<Candidacy>>, holds: Vec<Claim>, ended: Vec<Claim>) {
        let poll = Poll { number, wants, holds, ended, score: Score::default(), at: ME, wait_us: 0 };
        self.step(Input::Message { from: SESSION, message: lease::Message::Poll(poll) });
    }

    /// The session holds a group.
    fn granted(&mut self) -> Claim {
        self.poll(1, Some(vec![candidacy()]), Vec::new(), Vec::new());
        self.agree();
        let held = self.farm.ledger().groups().held().values();
        let token = held.flat_map(|group| group.holders.values()).next().expect("it is held").token;
        Claim { group: "g".to_owned(), token }
    }
}

fn candidacy() -> Candidacy {
    let rules = GroupRules { rank: GroupRank::Leader, holders: 1 };
    Candidacy { group: "g".to_owned(), rules, name: "a".to_owned(), id: 0 }
}

#[test]
fn leadership_is_handed_over_when_nothing_is_guarded() {
    let mut stage = Stage::leading();
    let claim = stage.granted();
    assert_eq!(stage.notices, [Notice::Guarded(true)]);
    stage.notices.clear();
    stage.command(Command::HandOver(OTHER, Reason::Load));
    stage.command(Command::Vacate(Ticket(9)));
    assert_eq!(stage.notices, [], "it has to end first");
    stage.poll(2, Some(Vec::new()), Vec::new(), vec![claim]);
    stage.agree();
    let expected =
        [Notice::Vacant(Ticket(9), Ok(())), Notice::Guarded(false), Notice::Transfer(OTHER, Reason::Load)];
    assert_eq!(stage.notices, expected);
}

#[test]
fn a_lease_is_renewed_while_the_farm_is_busy() {
    let mut stage = Stage::leading();
    let claim = stage.granted();
    stage.answers.clear();
    for number in 2..12 {
        // Half a lease goes by, and the farm hears of nothing.
        stage.now_us += LEASE_US / 2;
        stage.step(Input::Timer(lessor::Tick));
        stage.poll(number, None, vec![claim.clone()], Vec::new());
        stage.step(Input::Timer(lessor::Tick));
        let last = stage.answers.last().expect("it is answered");
        assert_eq!((last.number, last.promises.len()), (number, 1), "{:?}", stage.answers);
    }
    assert_eq!(stage.wanted, [], "nothing of that goes into the log");
}

#[test]
fn what_the_farm_said_in_an_older_term_is_not_heard() {
    let mut stage = Stage::new();
    stage.command(Command::Leader(Some(ME), Term(3)));
    stage.poll(1, Some(vec![candidacy()]), Vec::new(), Vec::new());
    stage.command(Command::Lead(Term(2), stage.farm.ledger().groups().clone()));
    assert_eq!((stage.leases.lessor().err(), stage.wanted.len()), (Some(Refusal::Busy), 0));
    stage.command(Command::Lead(Term(3), stage.farm.ledger().groups().clone()));
    assert_eq!(stage.wanted.len(), 1, "what came early is asked now");
    stage.command(Command::Leader(Some(OTHER), Term(4)));
    stage.poll(2, None, Vec::new(), Vec::new());
    assert_eq!(stage.notices.last(), Some(&Notice::Elsewhere(SESSION, Refusal::NotLeading(OTHER))));
}

#[test]
fn questions_that_come_too_early_have_a_bound_and_the_rest_is_refused_at_once() {
    const EARLY_MAX: u64 = 1024;
    let mut stage = Stage::new();
    stage.command(Command::Leader(Some(ME), Term(1)));
    (1..=EARLY_MAX).for_each(|ticket| stage.command(Command::Vacate(Ticket(ticket))));
    assert_eq!(stage.notices, []);
    stage.command(Command::Vacate(Ticket(0)));
    stage.poll(1, None, Vec::new(), Vec::new());
    let refused = [Notice::Vacant(Ticket(0), Err(Refusal::Busy)), Notice::Elsewhere(SESSION, Refusal::Busy)];
    assert_eq!(stage.notices, refused);
    stage.notices.clear();
    stage.command(Command::Lead(Term(1), stage.farm.ledger().groups().clone()));
    let vacant: Vec<_> = (1..=EARLY_MAX).map(|ticket| Notice::Vacant(Ticket(ticket), Ok(()))).collect();
    assert_eq!(stage.notices, vacant, "nothing is held");
}
