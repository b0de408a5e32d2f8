//! Millions of tasks at once.

use alloc::string::String;
use alloc::vec::Vec;

use super::*;
use crate::Term;
use crate::ledger::entry::{Batch, Entry, Report};
use crate::ledger::job::{Expansion, Spec, Work};
use crate::ledger::task::{Attempt, Outcome, Tail, Verdict};

const MILLIONS: u64 = 4_000_000;

fn spec(tasks: u64, is_once: bool) -> Spec {
    Spec {
        name: String::new(),
        work: Work::Kind { name: "noop".into(), input: Vec::new() },
        expansion: Expansion::Array { first: 1, last: tasks },
        retries: 1,
        timeout_ms: None,
        is_once,
        priority: 0,
        cpus: 1,
    }
}

fn report(task: TaskId, sequence: u64, is_success: bool) -> Report {
    let outcome = Outcome {
        attempt: Attempt { term: Term(1), sequence },
        worker: "w1".into(),
        verdict: Verdict::Exited(u8::from(!is_success)),
        started_us: 0,
        took_us: 0,
        stdout: Tail::default(),
        stderr: Tail::default(),
    };
    Report { task, outcome }
}

fn apply(ledger: &mut Ledger, time_ms: u64, entry: Entry) -> Vec<Effect> {
    ledger.apply(Batch { time_ms, entries: alloc::vec![entry] })
}

const JOB: JobId = JobId(1);

fn of_millions(limits: Limits) -> Ledger {
    let mut ledger = Ledger::new(limits);
    apply(&mut ledger, 0, Entry::Submit { spec: spec(MILLIONS, false), key: None });
    ledger
}

#[test]
fn millions_are_cancelled_retried_and_forgotten_in_one_word() {
    let whole = Tasks::all(JOB, 1, MILLIONS);
    // Whether few results are kept or all: they are one stretch.
    for results in [100_000, 5_000_000] {
        let limits = Limits { results, ..Limits::default() };
        let mut ledger = of_millions(limits);
        for round in 1..=3 {
            assert_eq!(apply(&mut ledger, round, Entry::Cancel(Target::Job(JOB))), [Effect::Cancelled(whole)]);
            assert_eq!(
                (ledger.counts().cancelled, ledger.results.count()),
                (MILLIONS, MILLIONS.min(results as u64))
            );
            assert_eq!(ledger.results.len_bytes(), 0);
            assert_eq!(apply(&mut ledger, round, Entry::Retry(Target::Job(JOB))), [Effect::Wanted(whole)]);
            assert_eq!((ledger.counts().waiting, ledger.results.count()), (MILLIONS, 0));
        }
        apply(&mut ledger, 4, Entry::Cancel(Target::Job(JOB)));
        apply(&mut ledger, 4 + limits.age_ms, Entry::Limit(limits));
        assert_eq!((ledger.jobs(JobId(0)).count(), ledger.counts()), (0, Counts::default()));
        assert_eq!(ledger.results.count(), 0);
    }
}

#[test]
fn what_became_of_millions_is_told_in_few_words_also_if_many_had_ended() {
    let mut ledger = of_millions(Limits { results: 5_000_000, ..Limits::default() });
    let touched = |number: u64| TaskId { job: JOB, index: 2 + number * 400 };
    let entries = (0..9_999).map(|number| Entry::Finish(report(touched(number), number, true))).collect();
    ledger.apply(Batch { time_ms: 1, entries });
    let effects = apply(&mut ledger, 2, Entry::Cancel(Target::Job(JOB)));
    let told: Vec<Tasks> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Cancelled(tasks) => Some(*tasks),
            _ => None,
        })
        .collect();
    assert_eq!(told.len(), TOLD_MAX);
    assert_eq!(told.iter().map(|tasks| tasks.count).sum::<u64>(), MILLIONS - 9_999);
    assert!(told[..TOLD_MAX - 1].iter().all(Tasks::is_exact));
    let rest = told[TOLD_MAX - 1];
    assert_eq!((rest.first, rest.last, rest.is_exact()), (touched(998).index + 1, MILLIONS, false));
    assert_eq!((ledger.counts().cancelled, ledger.counts().done), (MILLIONS - 9_999, 9_999));
    let bytes = ledger.results.len_bytes() / 9_999;
    assert!(bytes < 100, "{bytes} for each of those that had ended, and nothing for the others");
    assert_eq!(apply(&mut ledger, 3, Entry::Retry(Target::Job(JOB))).len(), TOLD_MAX);
    assert_eq!((ledger.counts().waiting, ledger.results.count()), (MILLIONS - 9_999, 9_999));
    assert!(ledger.outcome(touched(9_998)).is_some(), "what ended well stays");
}
