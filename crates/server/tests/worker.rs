//! One worker with its own farm and another one: whom it serves, what it begins, where it goes, and what it keeps.

use std::collections::BTreeSet;

use primus_core::farm::{self, Assignment, worker};
use primus_core::ledger::{Attempt, Held, JobId, LoanId, Outcome, Report, Tail, TaskId, Verdict, Work};
use primus_core::load::Weights;
use primus_core::loan::WorkerMessage;
use primus_core::loan::placement::{self, Place};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::{Bug, Planted};
use primus_core::{FarmId, ServerId, Term};
use primus_server::Worker;
use primus_server::worker::{
    Command, FarmAddress, Happening, Message, Notice, Peer, Record, Rules, Servers, Timer, Write,
};

const HOME: FarmId = FarmId::OWN;
/// The first other farm that it has to do with.
const SOUTH: FarmId = FarmId(1);
const S1: ServerId = ServerId(1);
const S2: ServerId = ServerId(2);
const LOAN: LoanId = LoanId(7);
const SECOND_US: u64 = 1_000_000;

/// A worker, and what it has said and wanted.
struct Stage {
    worker: Worker,
    now_us: u64,
    said: Vec<(Peer, Message)>,
    notices: Vec<Notice>,
    /// Writes that are under way.
    writes: Vec<(Write, Vec<Record>)>,
    timers: BTreeSet<Timer>,
}

impl Stage {
    fn new(planted: Planted) -> Self {
        Self::starting(planted, Vec::new())
    }

    fn starting(planted: Planted, visited: Vec<(FarmAddress, Vec<worker::Record>)>) -> Self {
        let rules = Rules {
            farm: "north".to_owned(),
            name: "w1".to_owned(),
            slots: 2,
            beside: None,
            weights: Weights::DEFAULT,
            planted,
        };
        let (said, notices, writes, timers) = (Vec::new(), Vec::new(), Vec::new(), BTreeSet::new());
        let worker = Worker::new(rules, LoanId(0), []);
        let mut stage = Self { worker, now_us: 5 * SECOND_US, said, notices, writes, timers };
        stage.command(Command::Start(visited));
        stage
    }

    /// One that the leader of its own farm has welcomed.
    fn welcome() -> Self {
        Self::welcome_with(Planted::NONE)
    }

    fn welcome_with(planted: Planted) -> Self {
        let mut stage = Self::new(planted);
        stage.link(HOME, S1, Term(1));
        stage.clear();
        stage
    }

    fn clear(&mut self) {
        self.said.clear();
        self.notices.clear();
    }

    fn step(&mut self, input: Input<Worker>) {
        let mut out = Outbox::new();
        self.now_us += 1000;
        self.worker.step(Moment(self.now_us), input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { to, message } => self.said.push((to, message)),
                Output::Notify(notice) => self.notices.push(notice),
                Output::Persist { token, records } => self.writes.push((token, records)),
                Output::Set { timer, .. } => _ = self.timers.insert(timer),
                Output::Cancel(timer) => _ = self.timers.remove(&timer),
                Output::Ignore(_) => {}
            }
        }
    }

    fn command(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    fn turn(&mut self) {
        self.command(Command::Turn);
    }

    fn hear(&mut self, farm: FarmId, server: ServerId, message: Message) {
        self.step(Input::Message { from: Peer { farm, server }, message });
    }

    fn fire(&mut self, timer: Timer) {
        assert!(self.timers.remove(&timer), "{timer} does not run");
        self.step(Input::Timer(timer));
    }

    /// A server links, leads and welcomes it.
    fn link(&mut self, farm: FarmId, server: ServerId, term: Term) {
        self.step(Input::LinkUp(Peer { farm, server }));
        self.lead(farm, server, term);
        self.turn();
    }

    fn lead(&mut self, farm: FarmId, server: ServerId, term: Term) {
        self.hear(farm, server, Message::Leads(term));
        self.hear(farm, server, Message::Work(farm::Message::Welcome(term)));
    }

    fn run(&mut self, farm: FarmId, numbers: impl IntoIterator<Item = u64>) {
        let (server, term) = self.worker.work(farm).and_then(worker::Worker::serves).expect("it is welcome");
        let assignments = numbers.into_iter().map(|number| assignment(held(number))).collect();
        self.hear(farm, server, Message::Work(farm::Message::Run(term, assignments)));
    }

    /// The leader of its own farm lends it to the other one.
    fn redirect(&mut self) {
        let redirect =
            WorkerMessage::Redirect { loan: LOAN, farm: "south".to_owned(), for_ms: 60_000, within_ms: 1000 };
        self.hear(HOME, S1, Message::Call(redirect, south().servers));
        self.turn();
    }

    /// The disk has done everything.
    fn sync(&mut self) {
        for (write, _) in std::mem::take(&mut self.writes) {
            self.step(Input::Persisted(write));
        }
    }

    /// It goes to the other farm, whose leader welcomes it.
    fn go(&mut self) {
        self.redirect();
        self.sync();
        self.command(Command::Opened("south".to_owned(), Ok(Vec::new())));
        self.turn();
        self.link(SOUTH, S2, Term(9));
    }

    fn started(&self) -> Vec<(FarmId, Held)> {
        let start = |notice: &Notice| match notice {
            Notice::Start(farm, assignment) => Some((*farm, assignment.held)),
            _ => None,
        };
        self.notices.iter().filter_map(start).collect()
    }

    /// What this server was told.
    fn told(&self, farm: FarmId, server: ServerId) -> Vec<&Message> {
        let peer = Peer { farm, server };
        self.said.iter().filter(|(to, _)| *to == peer).map(|(_, message)| message).collect()
    }

    fn has_told(&self, farm: FarmId, server: ServerId, message: &Message) -> bool {
        self.told(farm, server).contains(&message)
    }

    fn hellos(&self, farm: FarmId, server: ServerId) -> usize {
        let is_hello = |message: &&Message| matches!(message, Message::Work(farm::Message::Hello(_)));
        self.told(farm, server).into_iter().filter(is_hello).count()
    }
}

fn south() -> FarmAddress {
    let servers = Servers::from([(S2, "127.0.0.1:7460".parse().expect("an address"))]);
    FarmAddress { name: "south".to_owned(), servers }
}

fn held(number: u64) -> Held {
    let attempt = Attempt { term: Term(1), sequence: number };
    Held { task: TaskId { job: JobId(1), index: number }, attempt }
}

fn assignment(held: Held) -> Assignment {
    let work = Work::Kind { name: "noop".to_owned(), input: Vec::new() };
    let (argument, number, timeout_ms, cpus, is_once) = (String::new(), 1, None, 1, false);
    Assignment { held, work, argument, number, timeout_ms, cpus, is_once }
}

fn report(held: Held) -> Report {
    let outcome = Outcome {
        attempt: held.attempt,
        worker: "w1".to_owned(),
        verdict: Verdict::Exited(0),
        started_us: 0,
        took_us: SECOND_US,
        stdout: Tail::default(),
        stderr: Tail::default(),
    };
    Report { task: held.task, outcome }
}

const fn at(is_away: bool) -> Message {
    Message::Placement(WorkerMessage::At { epoch: LOAN, is_away })
}

/// What happens to a task that arrives while it is being written down that the worker goes.
fn start_while_going(planted: Planted) -> (Stage, Vec<(FarmId, Held)>) {
    let mut stage = Stage::welcome_with(planted);
    stage.redirect();
    assert_eq!(stage.notices, [Notice::Open(south())]);
    assert!(matches!(stage.writes[..], [(Write::Epoch(_), _)]), "{:?}", stage.writes);
    stage.run(HOME, [1]);
    stage.turn();
    let started = stage.started();
    (stage, started)
}

#[test]
fn a_task_that_arrives_while_the_worker_is_about_to_go_does_not_start() {
    let (mut stage, started) = start_while_going(Planted::NONE);
    assert_eq!(started, []);
    assert!(stage.has_told(HOME, S1, &Message::Work(farm::Message::Room(false))), "its leader hears that at once");
    stage.sync();
    assert_eq!(stage.started(), []);
    stage.command(Command::Opened("south".to_owned(), Ok(Vec::new())));
    let begin = Notice::Begin { farm: SOUTH, address: south(), name: "w1@north".to_owned() };
    assert!(stage.notices.contains(&begin), "{:?}", stage.notices);
    stage.hear(HOME, S1, Message::Work(farm::Message::GiveBack(Term(1), vec![held(1)])));
    stage.turn();
    assert!(stage.has_told(HOME, S1, &Message::Work(farm::Message::GaveBack(vec![held(1)]))));
    assert!(stage.has_told(HOME, S1, &at(true)));
    assert_eq!((stage.worker.away(), stage.started()), (Some(SOUTH), vec![]));
}

#[test]
fn a_room_that_is_closed_too_late_is_found() {
    let (_, started) = start_while_going(Planted::the(Bug::RoomClosedTooLate));
    assert_eq!(started, [(HOME, held(1))]);
}

#[test]
fn a_worker_that_is_called_back_before_it_has_gone_stays_and_begins() {
    let (mut stage, _) = start_while_going(Planted::NONE);
    stage.hear(HOME, S1, Message::Call(WorkerMessage::Return { loan: LOAN, within_ms: 0 }, Servers::new()));
    stage.turn();
    assert_eq!(stage.started(), [(HOME, held(1))]);
    assert!(!stage.has_told(HOME, S1, &at(false)), "where it is has to be on disk first");
    stage.command(Command::Opened("south".to_owned(), Ok(Vec::new())));
    stage.sync();
    stage.turn();
    assert!(stage.notices.contains(&Notice::Close("south".to_owned())), "{:?}", stage.notices);
    assert!(stage.has_told(HOME, S1, &at(false)));
    assert_eq!(stage.worker.farms().collect::<Vec<_>>(), [(HOME, "north")]);
}

#[test]
fn the_leader_of_the_newest_term_is_served() {
    let mut stage = Stage::welcome();
    stage.step(Input::LinkUp(Peer { farm: HOME, server: S2 }));
    stage.hear(HOME, S2, Message::Leads(Term(2)));
    assert_eq!(stage.notices, [Notice::Happened(Happening::Serves(S2, Term(2)))]);
    stage.clear();
    // One that was deposed does not know it.
    stage.hear(HOME, S1, Message::Leads(Term(1)));
    stage.hear(HOME, S1, Message::Work(farm::Message::Run(Term(1), vec![assignment(held(1))])));
    stage.turn();
    assert_eq!((stage.notices.len(), stage.hellos(HOME, S1)), (0, 0));
    stage.step(Input::LinkDown(Peer { farm: HOME, server: S1 }));
    assert_eq!(stage.notices, [], "the link of another server says nothing about the leader");
    stage.hear(HOME, S2, Message::Follows);
    assert_eq!(stage.notices, [Notice::Happened(Happening::LostLeader(S2))]);
}

#[test]
fn a_lost_link_loses_the_leader() {
    let mut stage = Stage::welcome();
    stage.step(Input::LinkDown(Peer { farm: HOME, server: S1 }));
    assert_eq!(stage.notices, [Notice::Happened(Happening::LostLeader(S1))]);
    stage.clear();
    stage.hear(HOME, S1, Message::Work(farm::Message::Run(Term(1), vec![assignment(held(1))])));
    stage.hear(HOME, S1, Message::Leads(Term(1)));
    stage.turn();
    assert_eq!((&stage.notices[..], &stage.said[..]), (&[][..], &[][..]), "nothing is heard without a link");
    stage.link(HOME, S1, Term(1));
    assert_eq!((stage.notices.len(), stage.hellos(HOME, S1)), (1, 1));
}

#[test]
fn every_farm_hears_how_many_tasks_run_for_all() {
    let mut stage = Stage::welcome();
    stage.go();
    stage.run(SOUTH, [1, 2]);
    stage.turn();
    assert_eq!(stage.started().len(), 2);
    stage.clear();
    for farm in [HOME, SOUTH] {
        stage.fire(Timer::Work(farm, worker::Timer::Tell));
    }
    stage.turn();
    let load = Weights::DEFAULT.load(primus_core::load::Usage::Unknown, 2);
    let beat = Message::Work(farm::Message::Beat(load));
    assert!(stage.has_told(HOME, S1, &beat) && stage.has_told(SOUTH, S2, &beat), "{:?}", stage.said);
}

#[test]
fn a_lent_worker_works_comes_home_and_parts_when_its_results_are_recorded() {
    let mut stage = Stage::welcome();
    stage.go();
    assert!(stage.notices.contains(&Notice::Happened(Happening::Lent("south".to_owned(), LOAN))));
    stage.run(SOUTH, [1]);
    stage.turn();
    assert_eq!(stage.started(), [(SOUTH, held(1))]);
    stage.hear(SOUTH, S2, Message::Call(WorkerMessage::Return { loan: LOAN, within_ms: 500 }, Servers::new()));
    stage.turn();
    assert_eq!(stage.worker.away(), Some(SOUTH), "what runs may end first");
    stage.command(Command::Ended(SOUTH, report(held(1))));
    stage.turn();
    assert!(stage.notices.contains(&Notice::Happened(Happening::Home(LOAN))), "{:?}", stage.notices);
    assert!(
        stage.has_told(HOME, S1, &at(false)) && stage.has_told(HOME, S1, &Message::Work(farm::Message::Room(true)))
    );
    stage.sync();
    stage.turn();
    let ended = Message::Work(farm::Message::Ended(vec![report(held(1))]));
    assert!(stage.has_told(SOUTH, S2, &ended), "it is told after the worker has gone home");
    assert!(!stage.notices.contains(&Notice::Part(SOUTH)));
    stage.hear(SOUTH, S2, Message::Work(farm::Message::Forget(Term(9), vec![held(1)])));
    stage.turn();
    assert_eq!(stage.notices.last(), Some(&Notice::Part(SOUTH)));
    assert!(stage.timers.iter().all(|timer| !matches!(timer, Timer::Work(SOUTH, _))), "{:?}", stage.timers);
}

#[test]
fn a_deadline_ends_what_runs_for_another_farm() {
    let mut stage = Stage::welcome();
    stage.go();
    stage.run(SOUTH, [1]);
    stage.turn();
    stage.hear(HOME, S1, Message::Call(WorkerMessage::Return { loan: LOAN, within_ms: 500 }, Servers::new()));
    stage.turn();
    stage.clear();
    stage.fire(Timer::Placement(placement::Timer::Deadline));
    stage.turn();
    assert_eq!(stage.notices[0], Notice::Kill(SOUTH, held(1)));
    assert!(stage.has_told(SOUTH, S2, &Message::Work(farm::Message::GaveBack(vec![held(1)]))));
    assert!(stage.has_told(HOME, S1, &at(false)));
}

#[test]
fn after_a_pause_nothing_begins_before_a_leader_has_welcomed_it_again() {
    let mut stage = Stage::welcome();
    stage.now_us += SECOND_US + 1;
    // That was on its way while the worker stood still.
    stage.hear(HOME, S1, Message::Work(farm::Message::Run(Term(1), vec![assignment(held(1))])));
    stage.hear(HOME, S1, Message::Leads(Term(1)));
    stage.turn();
    assert_eq!(stage.notices, [Notice::DropLinks, Notice::Happened(Happening::LostLeader(S1))]);
    stage.clear();
    stage.step(Input::LinkDown(Peer { farm: HOME, server: S1 }));
    stage.step(Input::LinkUp(Peer { farm: HOME, server: S1 }));
    stage.hear(HOME, S1, Message::Leads(Term(1)));
    stage.hear(HOME, S1, Message::Work(farm::Message::Run(Term(1), vec![assignment(held(1))])));
    stage.turn();
    assert_eq!((stage.started(), stage.hellos(HOME, S1)), (vec![], 1), "it says hello first");
    stage.hear(HOME, S1, Message::Work(farm::Message::Welcome(Term(1))));
    assert_eq!(stage.started(), [(HOME, held(1))]);
}

#[test]
fn a_worker_that_renews_in_time_has_not_stood_still() {
    let mut stage = Stage::welcome();
    for _ in 0..5 {
        stage.now_us += SECOND_US - 1000;
        stage.fire(Timer::Renew);
    }
    assert_eq!(stage.notices, [const { Notice::Renew }; 5]);
}

#[test]
fn a_worker_whose_folder_for_a_farm_cannot_be_opened_comes_home_at_once() {
    let mut stage = Stage::welcome();
    stage.redirect();
    stage.sync();
    stage.command(Command::Opened("south".to_owned(), Err("it is damaged".to_owned())));
    stage.turn();
    let cannot_go = Happening::CannotGo("south".to_owned(), "it is damaged".to_owned());
    let lent = Happening::Lent("south".to_owned(), LOAN);
    let all = [lent, cannot_go, Happening::Home(LOAN)].map(Notice::Happened);
    assert_eq!(stage.notices[1..], all);
    let placements: Vec<&Message> = stage.told(HOME, S1);
    let placements = placements.into_iter().filter(|message| matches!(message, Message::Placement(_)));
    let expected = [Message::Placement(WorkerMessage::CannotGo { loan: LOAN }), at(true), at(false)];
    assert_eq!(placements.cloned().collect::<Vec<_>>(), expected);
    assert_eq!((stage.worker.away(), stage.worker.placement().place()), (None, &Place::Home));
    stage.run(HOME, [1]);
    assert_eq!(stage.started(), [(HOME, held(1))]);
}

#[test]
fn a_worker_that_cannot_run_tasks_of_a_farm_comes_home_at_once() {
    let mut stage = Stage::welcome();
    stage.redirect();
    stage.sync();
    stage.command(Command::Opened("south".to_owned(), Ok(Vec::new())));
    stage.command(Command::CannotBegin(SOUTH, "no companion".to_owned()));
    stage.turn();
    assert!(stage.has_told(HOME, S1, &Message::Placement(WorkerMessage::CannotGo { loan: LOAN })));
    assert!(stage.has_told(HOME, S1, &at(false)));
    assert_eq!(stage.worker.farms().collect::<Vec<_>>(), [(HOME, "north")]);
}

#[test]
fn a_call_to_a_farm_without_servers_is_declined() {
    let mut stage = Stage::welcome();
    let redirect =
        WorkerMessage::Redirect { loan: LOAN, farm: "south".to_owned(), for_ms: 60_000, within_ms: 1000 };
    stage.hear(HOME, S1, Message::Call(redirect, Servers::new()));
    stage.turn();
    assert!(stage.writes.is_empty());
    assert!(stage.has_told(HOME, S1, &Message::Placement(WorkerMessage::CannotGo { loan: LOAN })));
}

#[test]
fn reports_said_in_a_row_leave_as_one() {
    let mut stage = Stage::welcome();
    stage.run(HOME, [1, 2]);
    stage.clear();
    for number in [1, 2] {
        stage.command(Command::Ended(HOME, report(held(number))));
        stage.sync();
    }
    assert_eq!(stage.said, []);
    stage.turn();
    let ended = Message::Work(farm::Message::Ended(vec![report(held(1)), report(held(2))]));
    assert_eq!(stage.told(HOME, S1), [&ended]);
}

#[test]
fn a_visited_farm_that_lacks_results_gets_them_after_a_restart() {
    let west = FarmAddress { name: "west".to_owned(), servers: Servers::new() };
    let kept = vec![worker::Record::Ended(report(held(1)))];
    let mut stage = Stage::starting(Planted::NONE, vec![(west, Vec::new()), (south(), kept)]);
    let begin = Notice::Begin { farm: SOUTH, address: south(), name: "w1@north".to_owned() };
    assert_eq!(stage.notices, [begin]);
    stage.link(SOUTH, S2, Term(9));
    let hello = stage.told(SOUTH, S2)[0].clone();
    let Message::Work(farm::Message::Hello(hello)) = hello else { panic!("{hello}") };
    assert_eq!((hello.slots, hello.ended), (0, vec![report(held(1))]), "it takes nothing new");
    stage.hear(SOUTH, S2, Message::Work(farm::Message::Forget(Term(9), vec![held(1)])));
    stage.turn();
    assert_eq!(stage.notices.last(), Some(&Notice::Part(SOUTH)));
}

#[test]
fn a_full_disk_of_one_farm_does_not_keep_another_one_waiting() {
    let mut stage = Stage::welcome();
    stage.command(Command::Room(HOME, false));
    stage.run(HOME, [1]);
    assert_eq!(stage.started(), []);
    stage.go();
    stage.run(SOUTH, [2]);
    assert_eq!(stage.started(), [(SOUTH, held(2))]);
}

#[test]
fn a_worker_that_drains_gives_back_what_waits_and_ends_when_its_results_are_recorded() {
    let mut stage = Stage::welcome();
    stage.run(HOME, [1, 2, 3]);
    stage.turn();
    stage.clear();
    stage.command(Command::Drain);
    stage.turn();
    let word = |message| Message::Work(message);
    let said = [word(farm::Message::Room(false)), word(farm::Message::GaveBack(vec![held(3)]))];
    assert_eq!(stage.told(HOME, S1), said.iter().collect::<Vec<_>>(), "first that it takes no more");
    for number in [1, 2] {
        assert!(!stage.worker.is_drained(), "task {number} runs");
        stage.command(Command::Ended(HOME, report(held(number))));
    }
    stage.sync();
    stage.turn();
    assert!(!stage.worker.is_drained(), "its results are not recorded");
    stage.hear(HOME, S1, word(farm::Message::Forget(Term(1), vec![held(1), held(2)])));
    stage.turn();
    assert!(stage.worker.is_drained());
    stage.clear();
    stage.run(HOME, [4]);
    stage.turn();
    assert_eq!(stage.started(), []);
    assert!(stage.has_told(HOME, S1, &word(farm::Message::GaveBack(vec![held(4)]))));
}

#[test]
fn a_worker_that_drains_goes_to_no_other_farm() {
    let mut stage = Stage::welcome();
    stage.command(Command::Drain);
    stage.redirect();
    assert!(stage.writes.is_empty());
    assert!(stage.has_told(HOME, S1, &Message::Placement(WorkerMessage::CannotGo { loan: LOAN })));

    // One that is about to go takes nothing there.
    let mut stage = Stage::welcome();
    stage.redirect();
    stage.command(Command::Drain);
    stage.sync();
    stage.command(Command::Opened("south".to_owned(), Ok(Vec::new())));
    stage.turn();
    stage.link(SOUTH, S2, Term(9));
    stage.run(SOUTH, [1]);
    stage.turn();
    assert_eq!(stage.started(), []);
    assert!(stage.has_told(SOUTH, S2, &Message::Work(farm::Message::GaveBack(vec![held(1)]))));
    assert!(stage.worker.is_drained());
}

#[test]
fn a_worker_that_stops_ends_what_runs_and_gives_it_back_to_every_farm() {
    let mut stage = Stage::welcome();
    stage.go();
    stage.run(SOUTH, [1]);
    stage.turn();
    stage.clear();
    stage.command(Command::Abandon);
    stage.turn();
    assert_eq!(stage.notices, [Notice::Kill(SOUTH, held(1))]);
    assert!(stage.has_told(SOUTH, S2, &Message::Work(farm::Message::GaveBack(vec![held(1)]))));
    for (farm, server) in [(HOME, S1), (SOUTH, S2)] {
        assert!(stage.has_told(farm, server, &Message::Work(farm::Message::Room(false))), "farm {farm}");
    }
    assert!(stage.worker.is_drained(), "nothing is left to record");
}
