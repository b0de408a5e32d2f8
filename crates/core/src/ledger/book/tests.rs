//! What entries come to, one by one.

use super::*;
use crate::Term;
use crate::ledger::{Expansion, Tail, Tasks, Work};

fn spec(expansion: Expansion) -> Spec {
    Spec {
        name: String::new(),
        work: Work::Kind { name: "noop".into(), input: Vec::new() },
        expansion,
        retries: 0,
        timeout_ms: None,
        is_once: false,
        priority: 0,
        cpus: 1,
    }
}

fn outcome(sequence: u64, code: u8) -> Outcome {
    Outcome {
        attempt: Attempt { term: Term(1), sequence },
        worker: "w1".into(),
        verdict: Verdict::Exited(code),
        started_us: 0,
        took_us: 0,
        stdout: Default::default(),
        stderr: Default::default(),
    }
}

fn apply(ledger: &mut Ledger, time_ms: u64, entry: Entry) -> Vec<Effect> {
    ledger.apply(Batch { time_ms, entries: alloc::vec![entry] })
}

fn submit(ledger: &mut Ledger, spec: Spec, key: Option<&str>) -> Effect {
    apply(ledger, 0, Entry::Submit { spec, key: key.map(String::from) }).remove(0)
}

fn finish(ledger: &mut Ledger, job: u64, index: u64, sequence: u64, code: u8) -> Effect {
    let task = TaskId { job: JobId(job), index };
    apply(ledger, 0, Entry::Finish(Report { task, outcome: outcome(sequence, code) })).remove(0)
}

fn task(job: u64, index: u64) -> TaskId {
    TaskId { job: JobId(job), index }
}

fn held(job: u64, index: u64, sequence: u64) -> Held {
    Held { task: task(job, index), attempt: Attempt { term: Term(1), sequence } }
}

#[test]
fn a_key_makes_one_job_however_often_it_is_submitted() {
    let mut ledger = Ledger::default();
    for (expected, is_new) in [(1, true), (1, false)] {
        let effect = submit(&mut ledger, spec(Expansion::One), Some("once"));
        assert_eq!(effect, Effect::Submitted { job: JobId(expected), is_new });
    }
    assert_eq!(submit(&mut ledger, spec(Expansion::One), None), Effect::Submitted { job: JobId(2), is_new: true });
}

#[test]
fn another_job_under_the_same_key_is_refused_and_changes_nothing() {
    let mut ledger = Ledger::default();
    submit(&mut ledger, spec(Expansion::One), Some("once"));
    let before = ledger.clone();
    let other = spec(Expansion::Array { first: 1, last: 3 });
    assert_eq!(submit(&mut ledger, other, Some("once")), Effect::OtherJob(JobId(1)));
    assert_eq!(ledger, before);
}

#[test]
fn the_first_result_counts() {
    let mut ledger = Ledger::default();
    submit(&mut ledger, spec(Expansion::Array { first: 1, last: 3 }), None);
    assert_eq!(finish(&mut ledger, 1, 2, 7, 0), Effect::Finished(held(1, 2, 7)));
    assert_eq!(finish(&mut ledger, 1, 2, 8, 1), Effect::Refused(held(1, 2, 8)));
    assert_eq!(ledger.outcome(task(1, 2)).map(|outcome| outcome.attempt.sequence), Some(7));
    assert_eq!((ledger.counts().waiting, ledger.counts().done), (2, 1));
    for (job, index) in [(1, 0), (1, 4), (9, 1)] {
        let effect = finish(&mut ledger, job, index, 9, 0);
        assert_eq!(effect, Effect::Refused(held(job, index, 9)), "{job}.{index} does not exist");
    }
}

#[test]
fn a_failure_is_tried_again_as_often_as_was_asked() {
    let mut ledger = Ledger::default();
    submit(&mut ledger, Spec { retries: 2, ..spec(Expansion::One) }, None);
    assert_eq!(finish(&mut ledger, 1, 1, 1, 3), Effect::Again(held(1, 1, 1)));
    assert_eq!(finish(&mut ledger, 1, 1, 2, 3), Effect::Again(held(1, 1, 2)));
    assert_eq!(finish(&mut ledger, 1, 1, 3, 3), Effect::Finished(held(1, 1, 3)));
    assert_eq!(ledger.state(task(1, 1)), Some(State::Failed));
    assert_eq!(apply(&mut ledger, 0, Entry::Retry(Target::Job(JobId(1)))), [Effect::Wanted(task(1, 1).into())]);
    assert_eq!(finish(&mut ledger, 1, 1, 4, 0), Effect::Finished(held(1, 1, 4)));
}

#[test]
fn a_failure_that_is_reported_twice_counts_once() {
    let mut ledger = Ledger::default();
    submit(&mut ledger, Spec { retries: 1, ..spec(Expansion::One) }, None);
    assert_eq!(finish(&mut ledger, 1, 1, 1, 3), Effect::Again(held(1, 1, 1)));
    assert_eq!(finish(&mut ledger, 1, 1, 1, 3), Effect::Refused(held(1, 1, 1)));
    assert_eq!(finish(&mut ledger, 1, 1, 2, 3), Effect::Finished(held(1, 1, 2)));
    apply(&mut ledger, 0, Entry::Retry(Target::Task(task(1, 1))));
    for sequence in [1, 2] {
        assert_eq!(finish(&mut ledger, 1, 1, sequence, 3), Effect::Refused(held(1, 1, sequence)));
    }
    assert_eq!(finish(&mut ledger, 1, 1, 3, 0), Effect::Finished(held(1, 1, 3)));
}

#[test]
fn a_worker_that_gets_nothing_new_stays_so_when_it_comes_back() {
    let mut ledger = Ledger::default();
    let join = || Entry::Join { worker: "w1".into(), slots: 1 };
    let leave = || Entry::Leave { worker: "w1".into() };
    assert_eq!(apply(&mut ledger, 0, join()), [Effect::Workers]);
    assert_eq!(apply(&mut ledger, 0, leave()), [Effect::Left("w1".into())]);
    assert!(ledger.workers().is_empty());
    apply(&mut ledger, 0, join());
    apply(&mut ledger, 0, Entry::Drain { worker: "w1".into(), is_draining: true });
    apply(&mut ledger, 0, leave());
    assert_eq!(apply(&mut ledger, 0, join()), [Effect::Nothing]);
    assert!(ledger.workers()["w1"].is_draining);
}

#[test]
fn a_task_that_must_not_start_twice_starts_once() {
    let mut ledger = Ledger::default();
    submit(&mut ledger, Spec { is_once: true, ..spec(Expansion::One) }, None);
    let start =
        |sequence| Start { task: task(1, 1), worker: "w1".into(), attempt: Attempt { term: Term(1), sequence } };
    assert_eq!(apply(&mut ledger, 0, Entry::Start(start(1))), [Effect::MayStart(start(1))]);
    assert_eq!(apply(&mut ledger, 0, Entry::Start(start(2))), [Effect::Nothing]);
    assert_eq!(finish(&mut ledger, 1, 1, 2, 0), Effect::Refused(held(1, 1, 2)), "an attempt that never was");
    assert_eq!(finish(&mut ledger, 1, 1, 1, 1), Effect::Finished(held(1, 1, 1)));
    assert_eq!(ledger.state(task(1, 1)), Some(State::Failed));
    assert_eq!(ledger.starts().count(), 0);
}

#[test]
fn what_is_cancelled_has_no_result() {
    let mut ledger = Ledger::default();
    submit(&mut ledger, spec(Expansion::Array { first: 1, last: 3 }), None);
    finish(&mut ledger, 1, 1, 1, 0);
    let effects = apply(&mut ledger, 0, Entry::Cancel(Target::Job(JobId(1))));
    assert_eq!(effects, [Effect::Cancelled(Tasks::all(JobId(1), 2, 3))]);
    assert_eq!(finish(&mut ledger, 1, 2, 2, 0), Effect::Refused(held(1, 2, 2)));
    assert_eq!((ledger.counts().done, ledger.counts().cancelled), (1, 2));
}

#[test]
fn a_job_of_more_tasks_than_are_kept_is_known_to_be_cancelled() {
    let mut ledger = Ledger::new(Limits { results: 2, ..Limits::default() });
    submit(&mut ledger, spec(Expansion::One), None);
    finish(&mut ledger, 1, 1, 1, 0);
    submit(&mut ledger, spec(Expansion::Array { first: 1, last: 5 }), None);
    assert_eq!(
        apply(&mut ledger, 0, Entry::Cancel(Target::Job(JobId(2)))),
        [Effect::Cancelled(Tasks::all(JobId(2), 1, 5))]
    );
    assert_eq!((ledger.counts().cancelled, ledger.job(JobId(1))), (5, None), "the older one went");
    submit(&mut ledger, spec(Expansion::One), None);
    finish(&mut ledger, 3, 1, 1, 0);
    assert_eq!(ledger.job(JobId(2)), None, "it goes when it is its turn");
}

#[test]
fn old_results_go_and_their_jobs_with_them() {
    let mut ledger = Ledger::new(Limits { results: 2, age_ms: 1000, waiting: 10, ..Limits::default() });
    submit(&mut ledger, spec(Expansion::Array { first: 1, last: 3 }), Some("key"));
    (1..=3).for_each(|index| _ = finish(&mut ledger, 1, index, index, 0));
    assert_eq!(ledger.outcome(task(1, 1)), None, "only two are kept");
    assert_eq!(ledger.state(task(1, 1)), Some(State::Done), "but that it ended is known");
    apply(&mut ledger, 1000, Entry::Leave { worker: "nobody".into() });
    assert_eq!((ledger.jobs(JobId(0)).count(), ledger.counts()), (0, Counts::default()));
    assert_eq!(
        submit(&mut ledger, spec(Expansion::One), Some("key")),
        Effect::Submitted { job: JobId(2), is_new: true }
    );
}

#[test]
fn long_results_push_the_oldest_out() {
    let mut ledger = Ledger::new(Limits { results_len: 10_000, ..Limits::default() });
    submit(&mut ledger, spec(Expansion::Array { first: 1, last: 5 }), None);
    let long = |index: u64| {
        let stdout = Tail { total: 4000, bytes: alloc::vec![b'x'; 4000] };
        Report { task: task(1, index), outcome: Outcome { stdout, ..outcome(index, 0) } }
    };
    (1..=4).for_each(|index| _ = apply(&mut ledger, 0, Entry::Finish(long(index))));
    let kept = |ledger: &Ledger| (1..=5).filter(|index| ledger.outcome(task(1, *index)).is_some()).count();
    assert_eq!((kept(&ledger), ledger.outcome(task(1, 2))), (2, None), "only two fit");
    assert_eq!(ledger.state(task(1, 2)), Some(State::Done), "but that it ended is known");
    apply(&mut ledger, 0, Entry::Limit(Limits { results_len: 1, ..Limits::default() }));
    assert_eq!(kept(&ledger), 0);
    finish(&mut ledger, 1, 5, 5, 0);
    assert_eq!((ledger.jobs(JobId(0)).count(), ledger.counts()), (0, Counts::default()));
}

#[test]
fn what_failed_is_retried_without_what_was_cancelled() {
    let mut ledger = Ledger::default();
    submit(&mut ledger, spec(Expansion::Array { first: 1, last: 4 }), None);
    [(1, 0), (2, 1), (4, 1)].iter().for_each(|(index, code)| _ = finish(&mut ledger, 1, *index, *index, *code));
    apply(&mut ledger, 0, Entry::Cancel(Target::Job(JobId(1))));
    let again = apply(&mut ledger, 0, Entry::RetryFailed(JobId(1)));
    assert_eq!(again, [Effect::Wanted(task(1, 2).into()), Effect::Wanted(task(1, 4).into())]);
    assert_eq!(ledger.state(task(1, 3)), Some(State::Cancelled));
    assert_eq!(apply(&mut ledger, 0, Entry::Retry(Target::Job(JobId(1)))), [Effect::Wanted(task(1, 3).into())]);
    assert_eq!(ledger.outcome(task(1, 2)), None, "it has not ended any more");
}

#[test]
fn limits_count_from_the_moment_at_which_the_log_names_them() {
    let mut ledger = Ledger::default();
    submit(&mut ledger, spec(Expansion::Array { first: 1, last: 3 }), None);
    (1..=3).for_each(|index| _ = finish(&mut ledger, 1, index, index, 0));
    assert!(ledger.outcome(task(1, 1)).is_some());
    let limits = Limits { results: 1, waiting: 2, ..Limits::default() };
    apply(&mut ledger, 0, Entry::Limit(limits));
    assert_eq!(ledger.outcome(task(1, 2)), None, "only one is kept");
    assert!(ledger.outcome(task(1, 3)).is_some());
    assert_eq!(submit(&mut ledger, spec(Expansion::Array { first: 1, last: 3 }), None), Effect::Full);
}

#[test]
fn too_much_is_refused_without_allocating_it() {
    let mut ledger = Ledger::default();
    assert_eq!(
        submit(&mut ledger, spec(Expansion::Array { first: 1, last: 1_000_000_000_000 }), None),
        Effect::Full
    );
    assert_eq!(submit(&mut ledger, spec(Expansion::Array { first: 0, last: u64::MAX }), None), Effect::Full);
    assert_eq!(ledger, Ledger::default());
}
