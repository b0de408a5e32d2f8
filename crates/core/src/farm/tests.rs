//! What a foreman and a worker do, step by step, where runs of whole farms would only show that something went wrong.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::foreman::{self, Foreman, Rules, Timer};
use super::worker::{self, Worker};
use super::{Assignment, Hello, Message, SLOTS_MAX};
use crate::ledger::{
    Attempt, Batch, Entry, Expansion, Held, JobId, Ledger, Outcome, Report, Spec, State, Tail, Target, TaskId,
    Verdict, Work,
};
use crate::load::{Load, Score};
use crate::{Delay, Input, Machine, Moment, Outbox, Output, ServerId, Term, Token, WorkerId};

mod belief;

const W1: WorkerId = WorkerId(101);
const W2: WorkerId = WorkerId(102);

/// A machine, and what follows from each input, in words.
struct Bench<M: Machine>(M);

impl<M: Machine> Bench<M> {
    fn step(&mut self, input: Input<M>) -> Vec<String> {
        let mut out = Outbox::new();
        self.0.step(Moment::START, input, &mut out);
        let words = out.drain().map(|output| output.to_string());
        words.filter(|words| !words.starts_with("applied") && !words.contains("silence")).collect()
    }

    fn hears(&mut self, from: M::Peer, message: M::Message) -> Vec<String> {
        self.step(Input::Message { from, message })
    }
}

impl Bench<Foreman> {
    /// Leads in this term; these workers are agreed on, and have one slot each.
    fn leader(term: u64, workers: &[&str]) -> Self {
        let mut bench = Self(Foreman::new(Rules::default(), Ledger::default()));
        for worker in workers {
            bench.apply(Entry::Join { worker: worker.to_string(), slots: 1 });
        }
        bench.lead(term);
        bench
    }

    fn lead(&mut self, term: u64) -> Vec<String> {
        self.step(Input::Command(foreman::Command::Lead(Term(term))))
    }

    fn apply(&mut self, entry: Entry) -> Vec<String> {
        self.apply_all(alloc::vec![entry])
    }

    fn apply_all(&mut self, entries: Vec<Entry>) -> Vec<String> {
        let batch = Batch { time_ms: 0, entries };
        self.step(Input::Command(foreman::Command::Apply(batch)))
    }

    fn submit(&mut self, change: impl Fn(&mut Spec)) -> Vec<String> {
        let mut spec = Spec {
            name: String::new(),
            work: Work::Kind { name: "noop".into(), input: Vec::new() },
            expansion: Expansion::One,
            retries: 0,
            timeout_ms: None,
            is_once: false,
            priority: 0,
            cpus: 1,
        };
        change(&mut spec);
        self.apply(Entry::Submit { spec, key: None })
    }

    fn starts(&mut self, job: u64, worker: &str, sequence: u64) -> Vec<String> {
        let Held { task, attempt } = held(job, 1, sequence);
        self.apply(Entry::Start(crate::ledger::Start { task, worker: worker.into(), attempt }))
    }
}

fn held(job: u64, term: u64, sequence: u64) -> Held {
    Held { task: TaskId { job: JobId(job), index: 1 }, attempt: Attempt { term: Term(term), sequence } }
}

fn report(held: Held) -> Report {
    let outcome = Outcome {
        attempt: held.attempt,
        worker: "w1".into(),
        verdict: Verdict::Exited(0),
        started_us: 0,
        took_us: 1_000_000,
        stdout: Tail::default(),
        stderr: Tail::default(),
    };
    Report { task: held.task, outcome }
}

fn hello(name: &str, held: &[Held]) -> Message {
    Message::Hello(Hello {
        name: name.into(),
        term: Term(0),
        slots: 1,
        loan: None,
        held: held.to_vec(),
        ended: Vec::new(),
    })
}

#[test]
fn a_worker_gets_work_when_the_log_knows_of_it() {
    let mut foreman = Bench::leader(1, &[]);
    foreman.submit(|_| ());
    assert_eq!(
        foreman.hears(W1, hello("w1", &[])),
        ["cancel grace 101", "propose 1", "send 101 welcome to term 1"]
    );
    assert_eq!(foreman.apply(Entry::Join { worker: "w1".into(), slots: 1 }), ["send 101 run 1.1 (1-1)"]);
}

#[test]
fn a_second_hello_that_crosses_a_task_does_not_run_it_twice() {
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.hears(W1, hello("w1", &[]));
    assert_eq!(foreman.submit(|_| ()), ["send 101 run 1.1 (1-1)"]);
    let sent =
        |said: Vec<String>| -> Vec<String> { said.into_iter().filter(|words| words.starts_with("send")).collect() };
    assert_eq!(sent(foreman.hears(W1, hello("w1", &[]))), ["send 101 welcome to term 1"], "the task is on its way");
    assert_eq!(sent(foreman.hears(W2, hello("w2", &[]))), ["send 102 welcome to term 1"], "nobody else gets it");
    assert_eq!(foreman.hears(W1, Message::Ended(alloc::vec![report(held(1, 1, 1))])), ["propose 1"]);
}

#[test]
fn what_a_worker_lost_with_its_link_runs_again() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.submit(|_| ());
    let said = foreman.hears(W2, hello("w1", &[]));
    assert!(said.contains(&"send 102 run 1.1 (1-2)".into()), "{said:?}");
    foreman.step(Input::LinkDown(W2));
    let said = foreman.hears(W2, hello("w1", &[]));
    assert!(said.contains(&"send 102 run 1.1 (1-3)".into()), "also if the new link has the same number: {said:?}");
}

#[test]
fn what_is_not_wanted_is_stopped_before_the_welcome() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.submit(|_| ());
    foreman.apply(Entry::Cancel(Target::Job(JobId(1))));
    let said = foreman.hears(W1, hello("w1", &[held(1, 0, 7)]));
    let sent: Vec<&String> = said.iter().filter(|words| words.starts_with("send")).collect();
    assert_eq!(sent, ["send 101 stop 1.1 (0-7)", "send 101 forget 1.1 (0-7)", "send 101 welcome to term 1"]);
}

#[test]
fn older_tasks_wait_for_all_workers_and_newer_ones_do_not() {
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.submit(|_| ());
    foreman.lead(2);
    foreman.hears(W1, hello("w1", &[]));
    assert_eq!(foreman.submit(|_| ()), ["send 101 run 2.1 (2-1)"]);
    assert_eq!(foreman.step(Input::Timer(Timer::Settle)), ["propose 1"], "that w2 is gone");
    assert_eq!(foreman.apply(Entry::Leave { worker: "w2".into() }), ["cancel settle", "send 101 run 1.1 (2-2)"]);
}

#[test]
fn those_who_are_lost_together_are_not_taken_back_one_by_one() {
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.hears(W2, hello("w2", &[]));
    assert_eq!(foreman.step(Input::Timer(Timer::Silence(W1))), ["propose 1"]);
    assert_eq!(foreman.step(Input::Timer(Timer::Silence(W2))), ["propose 1"]);
    let leave = |worker: &str| Entry::Leave { worker: worker.into() };
    let said = foreman.apply_all(alloc::vec![leave("w1"), leave("w2")]);
    assert!(!said.iter().any(|words| words.starts_with("propose")), "{said:?}");
    assert!(foreman.0.ledger().workers().is_empty());
}

#[test]
fn what_a_lost_worker_had_runs_elsewhere_when_the_log_says_that_it_is_gone() {
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.hears(W1, hello("w1", &[]));
    assert_eq!(foreman.submit(|_| ()), ["send 101 run 1.1 (1-1)"]);
    foreman.hears(W2, hello("w2", &[]));
    assert_eq!(foreman.step(Input::LinkDown(W1)), ["set grace 101"]);
    assert_eq!(foreman.step(Input::Timer(Timer::Grace(W1))), ["propose 1"]);
    let said = foreman.apply(Entry::Leave { worker: "w1".into() });
    assert_eq!(said, ["cancel grace 101", "send 102 run 1.1 (1-2)"]);
    assert_eq!(
        foreman.hears(W1, Message::Ended(alloc::vec![report(held(1, 1, 1))])),
        ["send 101 who are you, in term 1"]
    );
    assert_eq!(foreman.hears(W1, Message::Beat(Load::IDLE)).len(), 0, "asked once");
}

#[test]
fn a_deposed_leader_does_not_listen_to_workers_of_a_newer_one() {
    let mut foreman = Bench::leader(3, &["w1"]);
    let newer =
        Hello { name: "w1".into(), term: Term(4), slots: 1, loan: None, held: Vec::new(), ended: Vec::new() };
    assert_eq!(foreman.hears(W1, Message::Hello(newer)), ["ignore a worker of a newer leader"]);
}

#[test]
fn whoever_called_too_early_is_asked_by_the_new_leader() {
    let mut foreman = Bench(Foreman::new(Rules::default(), Ledger::default()));
    foreman.hears(W1, hello("w1", &[]));
    assert_eq!(foreman.lead(1)[0], "send 101 who are you, in term 1");
}

#[test]
fn millions_that_are_cancelled_and_wanted_again_are_nobody_s_burden() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    let given = foreman.submit(|spec| spec.expansion = Expansion::Array { first: 1, last: 4_000_000 });
    assert_eq!(given, ["send 101 run 1.1 (1-1) 1.2 (1-2)"]);
    let job = Target::Job(JobId(1));
    for round in 0..3 {
        let said = foreman.apply(Entry::Cancel(job));
        let held = alloc::format!("1.1 (1-{}) 1.2 (1-{})", 2 * round + 1, 2 * round + 2);
        assert_eq!(said, [alloc::format!("send 101 stop {held}"), alloc::format!("send 101 forget {held}")]);
        assert_eq!(foreman.0.waiting(), 0);
        let again = alloc::format!("send 101 run 1.1 (1-{}) 1.2 (1-{})", 2 * round + 3, 2 * round + 4);
        assert_eq!(foreman.apply(Entry::Retry(job)), [again]);
        assert_eq!(foreman.0.waiting(), 3_999_999);
    }
    foreman.apply(Entry::Cancel(job));
    assert_eq!(foreman.submit(|_| ()), ["send 101 run 2.1 (1-9)"], "nothing stands before it");
}

#[test]
fn whoever_has_one_of_many_scattered_tasks_stops_when_they_are_cancelled() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    let given = foreman.submit(|spec| spec.expansion = Expansion::Array { first: 1, last: 5000 });
    assert_eq!(given, ["send 101 run 1.1 (1-1) 1.2 (1-2)"]);
    let task = |index| TaskId { job: JobId(1), index };
    let ended = |index| Entry::Finish(Report { task: task(index), ..report(held(1, 9, index)) });
    foreman.apply_all((2..=2499).map(|number| ended(2 * number)).collect());
    // What is wanted again comes first.
    foreman.apply_all([Entry::Cancel, Entry::Retry].map(|change| change(Target::Task(task(4999)))).into());
    let said = foreman.hears(W1, Message::Ended(alloc::vec![report(held(1, 1, 1))]));
    assert_eq!(said, ["propose 1", "send 101 run 1.4999 (1-3)"]);
    let said = foreman.apply(Entry::Cancel(Target::Job(JobId(1))));
    let held = "1.1 (1-1) 1.2 (1-2) 1.4999 (1-3)";
    assert_eq!(said, [alloc::format!("send 101 stop {held}"), alloc::format!("send 101 forget {held}")]);
    assert_eq!(foreman.0.handed_out(), 0);
}

#[test]
fn a_new_leader_passes_over_millions_that_have_ended() {
    let mut foreman = Bench::leader(1, &[]);
    foreman.submit(|spec| spec.expansion = Expansion::Array { first: 1, last: 4_000_000 });
    let task = |index| Target::Task(TaskId { job: JobId(1), index });
    let last = [Entry::Cancel(Target::Job(JobId(1))), Entry::Retry(task(3_999_999))];
    foreman.apply_all(last.into());
    foreman.apply(Entry::Join { worker: "w1".into(), slots: 1 });
    foreman.lead(2);
    let said = foreman.hears(W1, hello("w1", &[]));
    assert!(said.contains(&"send 101 run 1.3999999 (2-1)".into()), "{said:?}");
}

#[test]
fn what_must_not_start_twice_starts_when_the_log_says_so_also_over_a_new_link() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    assert_eq!(foreman.submit(|spec| spec.is_once = true), ["propose 1"]);
    let again = foreman.hears(W1, hello("w1", &[]));
    assert!(!again.contains(&"propose 1".to_string()), "it is on its way: {again:?}");
    assert_eq!(foreman.starts(1, "w1", 1), ["send 101 run 1.1 (1-1)"]);
}

#[test]
fn what_must_not_start_twice_is_lost_if_its_worker_is() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.submit(|spec| spec.is_once = true);
    foreman.step(Input::Timer(Timer::Silence(W1)));
    foreman.apply(Entry::Leave { worker: "w1".into() });
    assert_eq!(foreman.starts(1, "w1", 1), ["propose 1"]);
}

#[test]
fn what_no_worker_has_room_for_lets_the_rest_pass() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    assert_eq!(foreman.submit(|spec| spec.cpus = 2), Vec::<String>::new());
    assert_eq!(foreman.submit(|_| ()), ["send 101 run 2.1 (1-1)"]);
    let large =
        Hello { name: "w2".into(), term: Term(0), slots: 2, loan: None, held: Vec::new(), ended: Vec::new() };
    foreman.hears(W2, Message::Hello(large));
    assert_eq!(foreman.apply(Entry::Join { worker: "w2".into(), slots: 2 }), ["send 102 run 1.1 (1-2)"]);
}

#[test]
fn what_waits_in_advance_goes_to_whoever_runs_dry() {
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.submit(|spec| spec.expansion = Expansion::Array { first: 1, last: 2 });
    let second = Held { task: TaskId { job: JobId(1), index: 2 }, attempt: Attempt { term: Term(1), sequence: 2 } };
    assert_eq!(
        foreman.hears(W2, hello("w2", &[])).last().map(String::as_str),
        Some("send 101 give back 1.2 (1-2)")
    );
    assert_eq!(foreman.hears(W1, Message::GaveBack(alloc::vec![second])), ["send 102 run 1.2 (1-3)"]);
}

#[test]
fn whoever_has_nothing_to_give_back_is_not_asked_again_and_again() {
    let mut foreman = Bench::leader(1, &["w1", "w2"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.submit(|spec| spec.expansion = Expansion::Array { first: 1, last: 2 });
    assert!(foreman.hears(W2, hello("w2", &[])).contains(&"send 101 give back 1.2 (1-2)".into()));
    assert_eq!(foreman.hears(W1, Message::GaveBack(Vec::new())), Vec::<String>::new(), "it has begun with both");
    assert_eq!(foreman.hears(W2, Message::Beat(Load::IDLE)), Vec::<String>::new());
}

#[test]
fn what_waits_at_a_worker_without_room_goes_to_others() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    (0..3).for_each(|_| _ = foreman.submit(|_| ()));
    let asked = foreman.hears(W1, Message::Room(false));
    assert_eq!(asked, ["send 101 give back 1.1 (1-1) 2.1 (1-2)"], "what it runs it keeps");
    let said = foreman.hears(W1, Message::GaveBack(alloc::vec![held(2, 1, 2)]));
    assert_eq!(said, Vec::<String>::new(), "nobody else is there");
    let standing = foreman.0.status(held(2, 1, 2).task);
    assert_eq!(standing, foreman::TaskStatus::DisksFull(alloc::vec!["w1".into()]));
    let said = foreman.hears(W1, Message::Room(true));
    assert_eq!(said, ["send 101 run 2.1 (1-3)"]);
}

#[test]
fn what_was_abandoned_runs_again_but_is_lost_if_it_must_not() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    assert_eq!(foreman.submit(|_| ()), ["send 101 run 1.1 (1-1)"]);
    assert_eq!(foreman.hears(W1, Message::GaveBack(alloc::vec![held(1, 1, 1)])), ["send 101 run 1.1 (1-2)"]);
    foreman.hears(W1, Message::Ended(alloc::vec![report(held(1, 1, 2))]));
    assert_eq!(foreman.submit(|spec| spec.is_once = true), ["propose 1"]);
    assert_eq!(foreman.starts(2, "w1", 3), ["send 101 run 2.1 (1-3)"]);
    assert_eq!(foreman.hears(W1, Message::GaveBack(alloc::vec![held(2, 1, 3)])), ["propose 1"]);
    let lost = Outcome { verdict: Verdict::Lost, ..report(held(2, 1, 3)).outcome };
    foreman.apply(Entry::Finish(Report { task: held(2, 1, 3).task, outcome: lost }));
    assert_eq!(foreman.0.ledger().state(held(2, 1, 3).task), Some(State::Lost));
}

fn worker() -> Bench<Worker> {
    let mut bench = Bench(Worker::new("w1".into(), 1, Delay::exactly_ms(250), []));
    bench.step(Input::Command(worker::Command::Serve(ServerId(1))));
    bench.hears(ServerId(1), Message::Welcome(Term(1)));
    bench
}

fn run(term: u64, held: Held) -> Message {
    let work = Work::Kind { name: "noop".into(), input: Vec::new() };
    let (argument, number, timeout_ms, cpus, is_once) = (String::new(), 1, None, 1, false);
    let assignment = Assignment { held, work, argument, number, timeout_ms, cpus, is_once };
    Message::Run(Term(term), alloc::vec![assignment])
}

/// The same, for what must not start twice.
fn run_once(term: u64, held: Held) -> Message {
    match run(term, held) {
        Message::Run(term, mut assignments) => {
            assignments.iter_mut().for_each(|assignment| assignment.is_once = true);
            Message::Run(term, assignments)
        }
        other => other,
    }
}

#[test]
fn a_result_is_told_when_it_is_on_disk_to_whoever_leads_then() {
    let mut worker = worker();
    assert_eq!(worker.hears(ServerId(1), run(1, held(1, 1, 1))), ["start 1.1 (1-1)"]);
    let ended = worker::Command::Ended(report(held(1, 1, 1)));
    assert_eq!(worker.step(Input::Command(ended)), ["persist 1 ended 1.1"]);
    worker.step(Input::LinkDown(ServerId(1)));
    let mut out = Outbox::new();
    worker.0.step(Moment::START, Input::Command(worker::Command::Serve(ServerId(2))), &mut out);
    let said = Hello {
        name: "w1".into(),
        term: Term(1),
        slots: 1,
        loan: None,
        held: alloc::vec![held(1, 1, 1)],
        ended: Vec::new(),
    };
    assert!(out.as_slice().contains(&Output::Send { to: ServerId(2), message: Message::Hello(said) }));
    assert_eq!(worker.step(Input::Persisted(Token(1))), ["send 2 ended 1.1"]);
}

#[test]
fn results_are_gathered_while_there_is_more_to_do() {
    let mut worker = worker();
    (1..=4).for_each(|job| _ = worker.hears(ServerId(1), run(1, held(job, 1, job))));
    let ended = |job| Input::Command(worker::Command::Ended(report(held(job, 1, job))));
    assert_eq!(worker.step(ended(1)), ["start 2.1 (1-2)", "set gather"]);
    assert_eq!(worker.step(ended(2)), ["start 3.1 (1-3)"]);
    let written = worker.step(Input::Timer(worker::Timer::Gather));
    assert_eq!(written, ["persist 1 ended 1.1 ended 2.1"]);
    assert_eq!(worker.step(ended(3)), ["start 4.1 (1-4)", "persist 2 ended 3.1"], "nothing waits any more");
}

#[test]
fn that_a_result_is_recorded_is_written_with_the_next_result_or_beat() {
    let mut worker = worker();
    let end = |worker: &mut Bench<Worker>, job, token| {
        worker.hears(ServerId(1), run(1, held(job, 1, job)));
        let said = worker.step(Input::Command(worker::Command::Ended(report(held(job, 1, job)))));
        worker.step(Input::Persisted(Token(token)));
        worker.hears(ServerId(1), Message::Forget(Term(1), alloc::vec![held(job, 1, job)]));
        said
    };
    end(&mut worker, 1, 1);
    assert_eq!(end(&mut worker, 2, 2), ["persist 2 forgotten 1.1 (1-1) ended 2.1"]);
    let said = worker.step(Input::Timer(worker::Timer::Beat));
    assert!(said.contains(&"persist 3 forgotten 2.1 (1-2)".to_string()), "{said:?}");
}

#[test]
fn what_was_abandoned_is_given_back_and_makes_room() {
    let mut worker = worker();
    worker.hears(ServerId(1), run(1, held(1, 1, 1)));
    worker.hears(ServerId(1), run(1, held(2, 1, 2)));
    let said = worker.step(Input::Command(worker::Command::Abandoned(held(1, 1, 1))));
    assert_eq!(said, ["send 1 gave back 1.1 (1-1)", "start 2.1 (1-2)"]);
    worker.step(Input::LinkDown(ServerId(1)));
    worker.step(Input::Command(worker::Command::Abandoned(held(2, 1, 2))));
    assert_eq!(worker.0.has().count(), 0, "so no hello names it");
}

#[test]
fn without_room_for_results_nothing_is_begun() {
    let mut worker = worker();
    worker.step(Input::Command(worker::Command::Room(false)));
    assert_eq!(worker.hears(ServerId(1), run(1, held(1, 1, 1))), Vec::<String>::new());
    let has_room = worker.step(Input::Command(worker::Command::Room(true)));
    assert_eq!(has_room, ["send 1 room", "start 1.1 (1-1)"]);
    worker.step(Input::Command(worker::Command::Room(false)));
    worker.step(Input::LinkDown(ServerId(1)));
    let said = worker.step(Input::Command(worker::Command::Serve(ServerId(2))));
    assert_eq!(said[..2], ["send 2 hello of w1", "send 2 no room"], "every leader is told");
}

#[test]
fn whoever_takes_nothing_new_gives_back_what_it_has_not_begun_with() {
    let mut worker = worker();
    (1..=3).for_each(|job| _ = worker.hears(ServerId(1), run(1, held(job, 1, job))));
    let said = worker.step(Input::Command(worker::Command::Open(false)));
    assert_eq!(said, ["send 1 no room", "send 1 gave back 2.1 (1-2) 3.1 (1-3)"]);
    assert_eq!(
        worker.hears(ServerId(1), run(1, held(4, 1, 4))),
        ["send 1 gave back 4.1 (1-4)"],
        "it came too late"
    );
    let ended = worker::Command::Ended(report(held(1, 1, 1)));
    assert_eq!(worker.step(Input::Command(ended)), ["persist 1 ended 1.1"]);
    assert!(worker.0.is_idle());
    worker.step(Input::LinkDown(ServerId(1)));
    let said = worker.step(Input::Command(worker::Command::Serve(ServerId(2))));
    assert_eq!(said[..2], ["send 2 hello of w1", "send 2 no room"], "every leader is told");
    worker.hears(ServerId(2), Message::Welcome(Term(2)));
    assert_eq!(worker.step(Input::Command(worker::Command::Open(true))), ["send 2 room"]);
    assert_eq!(worker.hears(ServerId(2), run(2, held(5, 1, 5))), ["start 5.1 (1-5)"]);
}

#[test]
fn what_must_not_start_twice_is_begun_by_whoever_takes_nothing_new() {
    let mut worker = worker();
    worker.hears(ServerId(1), run(1, held(1, 1, 1)));
    worker.hears(ServerId(1), run_once(1, held(2, 1, 2)));
    assert_eq!(worker.step(Input::Command(worker::Command::Open(false))), ["send 1 no room"]);
    worker.step(Input::Command(worker::Command::Room(false)));
    worker.step(Input::Command(worker::Command::Ended(report(held(1, 1, 1)))));
    assert!(!worker.0.is_idle(), "it is not left behind, though there is no room for its result yet");
    let said = worker.step(Input::Command(worker::Command::Room(true)));
    assert_eq!(said, ["send 1 no room", "start 2.1 (1-2)"], "others are still not taken");
    worker.step(Input::Command(worker::Command::Ended(report(held(2, 1, 2)))));
    assert!(worker.0.is_idle());
}

#[test]
fn without_a_leader_nothing_is_begun() {
    let mut worker = worker();
    worker.hears(ServerId(1), run(1, held(1, 1, 1)));
    assert_eq!(worker.hears(ServerId(1), run(1, held(2, 1, 2))), Vec::<String>::new(), "there is one slot");
    worker.step(Input::LinkDown(ServerId(1)));
    let ended = worker::Command::Ended(report(held(1, 1, 1)));
    assert_eq!(worker.step(Input::Command(ended)), ["persist 1 ended 1.1"]);
    worker.step(Input::Command(worker::Command::Serve(ServerId(2))));
    worker.hears(ServerId(2), Message::Stop(Term(2), alloc::vec![held(2, 1, 2)]));
    assert_eq!(worker.hears(ServerId(2), Message::Welcome(Term(2))), Vec::<String>::new(), "it was refused");
    assert_eq!(worker.hears(ServerId(1), run(1, held(3, 1, 3))), ["ignore what an older leader says"]);
}

#[test]
fn a_worker_with_many_results_tells_them_in_pieces() {
    let count = worker::REPORTS_MAX as u64 + 1;
    let records = (1..=count).map(|job| worker::Record::Ended(report(held(job, 1, job))));
    let mut worker = Worker::new("w1".into(), 1, Delay::exactly_ms(250), records);
    let mut out = Outbox::new();
    worker.step(Moment::START, Input::Command(worker::Command::Serve(ServerId(1))), &mut out);
    let last = held(count, 1, count);
    let said = out
        .drain()
        .filter_map(|output| if let Output::Send { message, .. } = output { Some(message) } else { None });
    let said: Vec<Message> = said.collect();
    let [Message::Hello(hello), Message::Ended(more)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((hello.ended.len(), &hello.held[..]), (worker::REPORTS_MAX, &[last][..]));
    assert_eq!(more[..], [report(last)]);
    let mut foreman = Bench::leader(1, &["w1"]);
    (0..count).for_each(|_| _ = foreman.submit(|_| ()));
    foreman.lead(2);
    foreman.hears(W1, Message::Hello(hello.clone()));
    assert_eq!(foreman.hears(W1, Message::Ended(more.clone())), ["propose 1"]);
}

#[test]
fn what_runs_beside_a_server_counts_until_it_is_not_said_any_more() {
    let mut foreman = Bench(Foreman::new(Rules::default(), Ledger::default()));
    let said = |words: Vec<String>| -> Vec<String> {
        words.into_iter().filter(|words| words.ends_with("run beside")).collect()
    };
    assert_eq!(said(foreman.hears(W1, Message::Beside(3))), ["3 run beside"]);
    assert_eq!(said(foreman.hears(W2, Message::Beside(2))), ["5 run beside"]);
    assert_eq!(said(foreman.hears(W2, Message::Beside(2))), Vec::<String>::new(), "a sign of life");
    assert_eq!(said(foreman.step(Input::LinkDown(W1))), ["2 run beside"]);
    assert_eq!(said(foreman.step(Input::Timer(Timer::Beside(W2)))), ["0 run beside"]);
    assert_eq!(said(foreman.hears(W1, Message::Beside(u32::MAX))).len(), 1);
    assert_eq!(said(foreman.hears(W2, Message::Beside(1))), Vec::<String>::new(), "it cannot be more");
}

#[test]
fn a_worker_says_how_many_tasks_run_when_that_has_settled() {
    let (server, leader) = (ServerId(1), ServerId(2));
    let worker = Worker::new("w1".into(), 4, Delay::exactly_ms(500), []).beside(Some(server));
    let mut worker = Bench(worker);
    let load = |tasks| Input::Command(worker::Command::Load(Load { tasks, ..Score::default().into() }));
    worker.step(Input::Command(worker::Command::Serve(leader)));
    assert_eq!(worker.step(load(2)), ["set tell"]);
    assert_eq!(worker.step(load(3)), Vec::<String>::new(), "that will be told, too");
    let tell = || Input::Timer(worker::Timer::Tell);
    assert_eq!(worker.step(tell()), ["send 2 beat 0.00", "send 1 3 run beside you", "set tell"]);
    assert_eq!(worker.step(tell()), ["send 1 3 run beside you", "set tell"], "a sign of life");
    worker.step(Input::LinkDown(leader));
    assert_eq!(worker.step(Input::LinkUp(server)), ["send 1 3 run beside you", "set tell"]);
    worker.step(load(0));
    assert_eq!(worker.step(tell()), ["send 1 0 run beside you"], "nothing more to say");
    worker.step(load(1));
    worker.step(load(0));
    assert_eq!(worker.step(tell()), Vec::<String>::new(), "it was over before anybody heard of it");
}

#[test]
fn the_lowest_score_does_not_fill_one_worker_while_others_are_free() {
    let rules = Rules { assignment: super::assign::Rule::Score, ..Rules::default() };
    let mut foreman = Bench(Foreman::new(rules, Ledger::default()));
    for (worker, id) in [("w1", W1), ("w2", W2), ("w3", WorkerId(103))] {
        foreman.apply(Entry::Join { worker: worker.into(), slots: 10 });
        foreman.lead(1);
        let Message::Hello(hello) = hello(worker, &[]) else { unreachable!() };
        foreman.hears(id, Message::Hello(Hello { slots: 10, ..hello }));
    }
    foreman.lead(2);
    for (worker, id) in [("w1", W1), ("w2", W2), ("w3", WorkerId(103))] {
        let Message::Hello(hello) = hello(worker, &[]) else { unreachable!() };
        foreman.hears(id, Message::Hello(Hello { slots: 10, ..hello }));
    }
    foreman.submit(|spec| spec.expansion = Expansion::Array { first: 1, last: 24 });
    let mut shares: Vec<u64> = foreman.0.running_per_worker().map(|(_, running)| running).collect();
    shares.sort_unstable();
    assert_eq!((foreman.0.running().len(), shares), (24, alloc::vec![8, 8, 8]));
    assert_eq!(foreman.0.waiting(), 0);
}

/// Ten wait, however many of them are handed out in advance.
#[test]
fn what_is_handed_out_in_advance_waits() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    let waiting = |foreman: &Bench<Foreman>| {
        let situation = foreman.0.situation(0).map(|situation| situation.queued);
        assert_eq!(situation, Some(foreman.0.waiting()));
        (foreman.0.running().len(), foreman.0.waiting())
    };
    foreman.submit(|spec| spec.expansion = Expansion::Array { first: 1, last: 11 });
    assert_eq!(foreman.0.handed_out(), 2, "one runs, and one is there in advance");
    assert_eq!(waiting(&foreman), (1, 10));
    foreman.hears(W1, Message::Ended(alloc::vec![report(held(1, 1, 1))]));
    assert_eq!(waiting(&foreman), (2, 9), "one runs, and of another the result is being written down");
    foreman.apply(Entry::Finish(report(held(1, 1, 1))));
    assert_eq!(waiting(&foreman), (1, 9));
    assert_eq!(foreman.0.running_of(JobId(1)), 1);
}

#[test]
fn a_result_names_the_worker_whose_link_it_came_on_and_is_as_short_as_results_are() {
    let mut foreman = Bench::leader(1, &["w1"]);
    foreman.hears(W1, hello("w1", &[]));
    foreman.submit(|_| ());
    let mut forged = report(held(1, 1, 1));
    forged.outcome.worker = "w9".into();
    forged.outcome.stdout.bytes = alloc::vec![b'x'; 1 << 20];
    (forged.outcome.took_us, forged.outcome.started_us) = (u64::MAX, u64::MAX);
    let mut out = Outbox::new();
    foreman.0.step(
        Moment::START,
        Input::Message { from: W1, message: Message::Ended(alloc::vec![forged]) },
        &mut out,
    );
    let proposed = out.drain().find_map(|output| match output {
        Output::Notify(foreman::Notice::Propose(entries)) => entries.into_iter().next(),
        _ => None,
    });
    let Some(Entry::Finish(Report { outcome, .. })) = proposed else { panic!("{proposed:?}") };
    assert_eq!((outcome.worker.as_str(), outcome.stdout.bytes.len()), ("w1", Tail::LEN_MAX));
    assert_eq!((outcome.took_us, outcome.started_us), (Outcome::TIME_MAX_US, Outcome::TIME_MAX_US));
}

#[test]
fn nobody_has_more_slots_than_a_configuration_can_name() {
    let mut foreman = Bench::leader(1, &[]);
    let greedy = Hello {
        name: "w1".into(),
        term: Term(0),
        slots: u16::MAX,
        loan: None,
        held: Vec::new(),
        ended: Vec::new(),
    };
    foreman.hears(W1, Message::Hello(greedy));
    assert_eq!(foreman.0.connected().map(|(_, slots, ..)| slots).collect::<Vec<_>>(), [u32::from(SLOTS_MAX)]);
}
