//! The ledger beside a slow twin that takes one task after the other: whatever the log says, both come to the same.

mod history;
mod naive;
mod roll;

use alloc::vec::Vec;
use core::mem;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{TestCaseError, TestRunner};

use self::history::{WORKERS, histories};
use self::naive::Twin;
use super::Ledger;
use crate::ledger::entry::{Batch, Start};
use crate::ledger::roll::{Fingerprint, Node};
use crate::ledger::{Attempt, Counts, Effect, Held, JobId, Outcome, State, TaskId, Tasks};
use crate::{ServerId, Term};

type Checked = Result<(), TestCaseError>;

/// No worker of these histories has it.
const NO_KEY: Fingerprint = Fingerprint([0xFF; 32]);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_ledger_and_its_twin_come_to_the_same(history in histories(true)) {
        let (mut ledger, mut twin) = (Ledger::default(), Twin::default());
        for batch in history.0 {
            let (time_ms, expected) = (batch.time_ms, twin.apply(&batch));
            prop_assert_eq!(one_by_one(ledger.apply(batch)), expected, "effects at {} ms", time_ms);
            check_tasks(&ledger, &twin)?;
            check_order(&ledger, &twin)?;
            check_others(&ledger, &twin)?;
            check_roll(&ledger, &twin)?;
            check_bytes(&ledger)?;
        }
    }

    /// Results are forgotten at the end of a batch, so this is true only as long as none is.
    #[test]
    fn in_which_batches_entries_come_makes_no_difference(history in histories(false)) {
        let (mut ledger, mut other) = (Ledger::default(), Ledger::default());
        for batch in history.0 {
            let singles = batch.entries.iter().cloned();
            let singles = singles.map(|entry| Batch { time_ms: batch.time_ms, entries: alloc::vec![entry] });
            let effects: Vec<Effect> = singles.flat_map(|single| other.apply(single)).collect();
            prop_assert_eq!(ledger.apply(batch), effects);
            prop_assert_eq!(&ledger, &other);
        }
    }
}

/// Two that never do anything come to the same, too.
#[test]
fn everything_happens_in_some_history() {
    let mut runner = TestRunner::deterministic();
    let (mut kinds, mut forgotten) = (Vec::new(), 0);
    for _ in 0..200 {
        let history = histories(true).new_tree(&mut runner).unwrap().current();
        let mut ledger = Ledger::default();
        for batch in history.0 {
            let jobs = ledger.jobs.len();
            let effects = ledger.apply(batch);
            let submitted =
                effects.iter().filter(|effect| matches!(effect, Effect::Submitted { is_new: true, .. }));
            forgotten += jobs + submitted.count() - ledger.jobs.len();
            for kind in effects.iter().map(mem::discriminant) {
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
        }
    }
    assert_eq!(kinds.len(), 20, "all effects that there are");
    assert!(forgotten > 100, "{forgotten} jobs were forgotten");
}

/// Effects that name many tasks, as many that name one.
fn one_by_one(effects: Vec<Effect>) -> Vec<Effect> {
    let each = |tasks: Tasks, effect: fn(Tasks) -> Effect| -> Vec<Effect> {
        assert!(tasks.is_exact(), "so few are always named");
        tasks.iter().map(|task| effect(task.into())).collect()
    };
    let singles = effects.into_iter().flat_map(|effect| match effect {
        Effect::Cancelled(tasks) => each(tasks, Effect::Cancelled),
        Effect::Wanted(tasks) => each(tasks, Effect::Wanted),
        other => alloc::vec![other],
    });
    singles.collect()
}

fn check_tasks(ledger: &Ledger, twin: &Twin) -> Checked {
    let jobs = || ledger.jobs(JobId(0));
    prop_assert_eq!(jobs().map(|(id, _)| id).collect::<Vec<_>>(), twin.jobs.keys().copied().collect::<Vec<_>>());
    for (id, job) in jobs() {
        let known = &twin.jobs[&id];
        prop_assert_eq!((&*job.spec, &job.key, job.submitted_ms), (&known.spec, &known.key, known.submitted_ms));
        prop_assert_eq!(job.counts(), counts(twin, |task| task.job == id), "counts of job {}", id);
        prop_assert_eq!(job.open(), job.counts().waiting + job.counts().started);
    }
    let tasks = jobs().flat_map(|(job, known)| {
        (1..).zip(known.states()).map(move |(index, state)| (TaskId { job, index }, state))
    });
    let expected = twin.tasks.iter().map(|(id, task)| (*id, task.state));
    prop_assert_eq!(tasks.collect::<Vec<(TaskId, State)>>(), expected.collect::<Vec<_>>());
    prop_assert_eq!(ledger.counts(), counts(twin, |_| true));
    for task in twin.tasks.keys().copied() {
        for sequence in 1..4 {
            let held = Held { task, attempt: Attempt { term: Term(1), sequence } };
            prop_assert_eq!(ledger.is_wanted(held), twin.is_wanted(held), "is {} wanted?", held);
        }
    }
    Ok(())
}

fn counts(twin: &Twin, is_meant: impl Fn(TaskId) -> bool) -> Counts {
    twin.tasks.iter().filter(|(id, _)| is_meant(**id)).map(|(_, task)| task.state).collect()
}

/// What is known of tasks beside their states: results, in which order they came, starts, and attempts that failed.
fn check_order(ledger: &Ledger, twin: &Twin) -> Checked {
    let results = twin.tasks.keys().map(|id| ledger.outcome(*id));
    let expected = twin.tasks.values().map(|task| task.outcome.clone());
    prop_assert_eq!(results.collect::<Vec<Option<Outcome>>>(), expected.collect::<Vec<_>>());
    let starts = twin.tasks.values().filter_map(|task| task.start.as_ref());
    prop_assert_eq!(ledger.starts().collect::<Vec<&Start>>(), starts.collect::<Vec<_>>());
    let spent = ledger.spent.iter().map(|(id, spent)| (*id, spent));
    let expected = twin.tasks.iter().map(|(id, task)| (*id, &task.spent)).filter(|(_, spent)| !spent.is_empty());
    prop_assert_eq!(spent.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let (mut left, mut ended) = (ledger.results.clone(), Vec::new());
    while let Some(stretch) = left.forget_oldest(u64::MAX) {
        let task = |index| (stretch.time_ms, TaskId { job: stretch.job, index });
        ended.extend((stretch.first..=stretch.last).map(task));
    }
    prop_assert_eq!(&ended, &twin.ended, "the order in which tasks ended");
    prop_assert_eq!((ledger.results.count(), left.len()), (ended.len() as u64, 0));
    Ok(())
}

/// Workers, groups, loans and limits.
fn check_others(ledger: &Ledger, twin: &Twin) -> Checked {
    prop_assert_eq!(ledger.workers(), &twin.workers);
    prop_assert_eq!(ledger.groups().held(), &twin.groups);
    prop_assert_eq!(ledger.loans().lent(), &twin.lent);
    prop_assert_eq!(ledger.loans().borrowed(), &twin.borrowed);
    prop_assert_eq!(WORKERS.map(|name| ledger.loans().loan_of(name)), WORKERS.map(|name| twin.loan_of(name)));
    prop_assert_eq!(ledger.limits(), twin.limits);
    Ok(())
}

/// Who is who.
fn check_roll(ledger: &Ledger, twin: &Twin) -> Checked {
    let (roll, known) = (ledger.roll(), &twin.roll);
    prop_assert_eq!(roll.authorities(), &known.authorities);
    prop_assert_eq!(roll.neighbours().values().collect::<Vec<_>>(), known.neighbours.iter().collect::<Vec<_>>());
    let keys = roll.workers().iter().map(|(name, binding)| (name.clone(), binding.key));
    prop_assert_eq!(keys.collect::<Vec<_>>(), known.workers.clone());
    let uses = roll.tokens().iter().map(|(id, token)| (*id, token.used.len()));
    prop_assert_eq!(uses.collect::<Vec<_>>(), known.uses());
    for node in [Node::Worker("a".into()), Node::Worker("b".into()), Node::Server(ServerId(1))] {
        for serial in 0..9 {
            prop_assert_eq!(roll.is_revoked(&node, &NO_KEY, serial), known.is_revoked(&node, serial));
        }
    }
    Ok(())
}

/// What is kept up to date is what a walk finds, and a snapshot holds all of it.
fn check_bytes(ledger: &Ledger) -> Checked {
    prop_assert_eq!(ledger.len_bytes(), weigh(ledger));
    let bytes = postcard::to_allocvec(ledger).unwrap();
    let again: Ledger = postcard::from_bytes(&bytes).unwrap();
    prop_assert_eq!(ledger, &again);
    prop_assert_eq!(bytes, postcard::to_allocvec(&again).unwrap());
    Ok(())
}

fn weigh(ledger: &Ledger) -> u64 {
    ledger.jobs.weigh()
        + ledger.keys.weigh()
        + ledger.starts.weigh()
        + ledger.spent.weigh()
        + ledger.workers.weigh()
        + ledger.results.weigh()
}
