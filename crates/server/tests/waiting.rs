//! What waits in a farm has a bound: whoever asks for more is refused, and the rest goes on.

use std::collections::VecDeque;

use bytes::Bytes;
use primus_core::farm::foreman;
use primus_core::ledger::{CommandLine, Entry, Expansion, JobId, Limits, Spec, Target, Work};
use primus_core::loan::lending::{self, LendOrder};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{ServerId, Term};
use primus_server::farm::{Answer, Awaited, Command, Farm, Notice, Refusal, Rules, Ticket};
use primus_server::record::Draft;
use primus_server::room::Disks;

const ME: ServerId = ServerId(1);
const MIB: usize = 1 << 20;
/// How many questions may come too early, and how many bytes they may bring.
const EARLY_MAX: u64 = 1024;
const EARLY_LEN_MAX: usize = 64 * MIB;
/// How many may wait for the log, or for the end of something.
const WAITING_MAX: u64 = 100_000;
/// How many bytes of clients' batches may be in the log.
const ENTERING_LEN_MAX: usize = 64 * MIB;

struct Stage {
    farm: Farm,
    entering: VecDeque<Bytes>,
    index: u64,
    answers: Vec<(u64, Result<Answer, Refusal>)>,
}

impl Stage {
    fn new() -> Self {
        let rules = Rules {
            work: foreman::Rules::default(),
            lending: lending::Rules::default(),
            neighbours: Vec::new(),
            limits: Limits::default(),
            state_max: 1 << 30,
            servers: 3,
            planted: Planted::NONE,
        };
        Self { farm: Farm::new(ME, 77, rules), entering: VecDeque::new(), index: 0, answers: Vec::new() }
    }

    /// One that leads and is not ready yet.
    fn elected() -> Self {
        let mut stage = Self::new();
        stage.command(Command::Leader(Some(ME)));
        stage
    }

    fn leading() -> Self {
        let mut stage = Self::elected();
        stage.command(Command::Lead(Term(1)));
        stage.settle();
        stage
    }

    fn command(&mut self, command: Command) {
        let mut out = Outbox::new();
        self.farm.step(Moment(1000), Input::Command(command), &mut out);
        for output in out.drain() {
            match output {
                Output::Notify(Notice::Append(_, records)) => self.entering.extend(records),
                Output::Notify(Notice::Answer(Ticket(ticket), answer)) => self.answers.push((ticket, answer)),
                _ => {}
            }
        }
    }

    /// Until everything is agreed on that the farm wants.
    fn settle(&mut self) {
        loop {
            self.command(Command::Turn(1_794_800_000_000));
            let Some(record) = self.entering.pop_front() else { return };
            self.index += 1;
            self.command(Command::Committed(self.index, record));
        }
    }

    fn take_answers(&mut self) -> Vec<(u64, Result<Answer, Refusal>)> {
        std::mem::take(&mut self.answers)
    }
}

/// So many bytes, in one word: that is quickly written down.
fn job(len: usize) -> Draft {
    let work = Work::Command(CommandLine { arguments: vec!["x".repeat(len)], ..CommandLine::default() });
    let (expansion, retries, timeout_ms, is_once, priority, cpus) = (Expansion::One, 0, None, false, 0, 1);
    let spec = Spec { name: String::new(), work, expansion, retries, timeout_ms, is_once, priority, cpus };
    Draft::new(&[Entry::Submit { spec, key: None }])
}

#[test]
fn questions_that_come_too_early_have_a_bound_and_the_rest_is_refused_at_once() {
    let mut stage = Stage::elected();
    (1..=EARLY_MAX).for_each(|ticket| stage.command(Command::Look(Ticket(ticket), 0)));
    assert_eq!(stage.answers, []);
    stage.command(Command::Look(Ticket(0), 0));
    assert_eq!(stage.take_answers(), [(0, Err(Refusal::Busy))]);
    stage.command(Command::Lead(Term(1)));
    let all: Vec<_> = (1..=EARLY_MAX).map(|ticket| (ticket, Ok(Answer::Look))).collect();
    assert_eq!(stage.take_answers(), all);
}

#[test]
fn what_they_bring_has_one_too() {
    let mut stage = Stage::elected();
    let most = (EARLY_LEN_MAX / MIB) as u64;
    (1..=most).for_each(|ticket| stage.command(Command::Enter(Ticket(ticket), job(MIB))));
    assert_eq!(stage.answers, []);
    stage.command(Command::Enter(Ticket(0), job(MIB)));
    assert_eq!(stage.take_answers(), [(0, Err(Refusal::Busy))]);
    // Whoever leads then, there is room again.
    stage.command(Command::Leader(None));
    assert_eq!(stage.take_answers().len() as u64, most);
    stage.command(Command::Leader(Some(ME)));
    stage.command(Command::Enter(Ticket(1), job(MIB)));
    assert_eq!(stage.answers, []);
}

#[test]
fn those_who_wait_for_the_log_have_a_bound() {
    let mut stage = Stage::leading();
    let later = stage.index + 1;
    (1..=WAITING_MAX).for_each(|ticket| stage.command(Command::Look(Ticket(ticket), later)));
    assert_eq!(stage.answers, []);
    stage.command(Command::Look(Ticket(0), later));
    stage.command(Command::Await(Ticket(0), later, Vec::new()));
    assert_eq!(stage.take_answers(), [(0, Err(Refusal::Busy)), (0, Err(Refusal::Busy))]);
}

#[test]
fn those_who_wait_for_the_end_of_something_have_a_bound_and_others_can_look() {
    let mut stage = Stage::leading();
    stage.command(Command::Enter(Ticket(1), job(0)));
    stage.settle();
    stage.answers.clear();
    let (index, one) = (stage.index, Awaited::Jobs(JobId(1), JobId(1)));
    (1..=WAITING_MAX).for_each(|ticket| stage.command(Command::Await(Ticket(ticket), index, vec![one])));
    assert_eq!(stage.answers, []);
    stage.command(Command::Await(Ticket(0), index, vec![one]));
    stage.command(Command::Look(Ticket(0), index));
    assert_eq!(stage.take_answers(), [(0, Err(Refusal::Busy)), (0, Ok(Answer::Look))]);
    stage.command(Command::Enter(Ticket(0), Draft::new(&[Entry::Cancel(Target::Job(JobId(1)))])));
    stage.settle();
    assert_eq!(stage.take_answers().len() as u64, WAITING_MAX + 1, "all of them hear of its end");
}

#[test]
fn batches_that_are_not_agreed_on_yet_have_a_bound() {
    let mut stage = Stage::leading();
    // A batch is taken as long as there is less than the bound before it.
    let most = (ENTERING_LEN_MAX / MIB) as u64;
    (1..=most).for_each(|ticket| stage.command(Command::Enter(Ticket(ticket), job(MIB))));
    assert_eq!(stage.answers, []);
    stage.command(Command::Enter(Ticket(0), job(MIB)));
    assert_eq!(stage.take_answers(), [(0, Err(Refusal::Busy))]);
    stage.settle();
    assert_eq!(stage.take_answers().len() as u64, most);
    stage.command(Command::Enter(Ticket(0), job(MIB)));
    assert_eq!(stage.answers, [], "there is room again");
}

#[test]
fn full_disks_take_nothing_of_clients_and_one_that_is_stuck_nothing_at_all() {
    let mut stage = Stage::leading();
    let order = || LendOrder { to: "east".to_owned(), count: 1, for_ms: 1000 };
    for (disks, refusal) in [
        (Disks::OwnFull, Refusal::DiskFull),
        (Disks::MostFull, Refusal::DisksFull),
        (Disks::Stuck, Refusal::DiskFull),
    ] {
        stage.command(Command::Room(disks));
        stage.command(Command::Enter(Ticket(1), job(0)));
        stage.command(Command::Lend(Ticket(2), order()));
        stage.command(Command::Look(Ticket(3), stage.index));
        let expected = [(1, Err(refusal)), (2, Err(refusal)), (3, Ok(Answer::Look))];
        assert_eq!(stage.take_answers(), expected, "{disks:?}");
        stage.command(Command::Want(Term(1), vec![Entry::Cancel(Target::Job(JobId(9)))]));
        stage.command(Command::Turn(1_794_800_000_000));
        assert_eq!(stage.entering.is_empty(), disks == Disks::Stuck, "{disks:?}");
        stage.settle();
    }
    stage.command(Command::Room(Disks::Free));
    stage.command(Command::Enter(Ticket(1), job(0)));
    stage.settle();
    assert!(matches!(stage.take_answers()[..], [(1, Ok(Answer::Entered(_)))]));
    // Who does not lead says who does, whatever the disks say.
    stage.command(Command::Room(Disks::OwnFull));
    stage.command(Command::Leader(Some(ServerId(2))));
    stage.command(Command::Enter(Ticket(1), job(0)));
    assert_eq!(stage.take_answers(), [(1, Err(Refusal::NotLeading(ServerId(2))))]);
}
