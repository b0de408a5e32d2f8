//! Whole jobs at once against a slow twin that takes one task after the other, and millions of them.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::Term;
use crate::ledger::entry::{Batch, Entry, Report, Start};
use crate::ledger::job::{Expansion, Spec, Work};
use crate::ledger::task::{Attempt, Outcome, Tail, Verdict};

const MILLIONS: u64 = 4_000_000;

/// What happens to a ledger, in small numbers.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Submit {
        tasks: u64,
        is_once: bool,
    },
    Start(TaskId),
    /// The sequence of the attempt, and whether it ended well.
    Finish(TaskId, u64, bool),
    Cancel(Target),
    Retry(Target),
    RetryFailed(JobId),
    Keep(usize),
}

/// One task after the other, each looked for everywhere: slow, and easy to understand.
#[derive(Debug, Default)]
struct Twin {
    states: BTreeMap<TaskId, State>,
    order: VecDeque<(u64, TaskId)>,
    results: BTreeSet<TaskId>,
    once: BTreeSet<JobId>,
    spent: BTreeSet<(TaskId, u64)>,
    starts: BTreeSet<TaskId>,
    last_job: u64,
    kept: usize,
}

/// So long a result is kept.
const AGE_MS: u64 = 6;
/// The sequence of the attempt that a task starts with if it must not start twice.
const ONCE: u64 = 1;

impl Twin {
    /// Which tasks were cancelled or are wanted again.
    fn apply(&mut self, time_ms: u64, deed: Deed) -> Vec<TaskId> {
        let is_bad = |state: State| state.is_final() && state != State::Done;
        let concerned = match deed {
            Deed::Submit { tasks, is_once } => {
                self.submit(tasks, is_once);
                Vec::new()
            }
            Deed::Start(task) => {
                self.start(task);
                Vec::new()
            }
            Deed::Finish(task, sequence, is_success) => {
                self.finish(time_ms, task, sequence, is_success);
                Vec::new()
            }
            Deed::Cancel(target) => self.cancel(time_ms, target),
            Deed::Retry(target) => self.retry(target, is_bad),
            Deed::RetryFailed(job) => self.retry(Target::Job(job), |state| state == State::Failed),
            Deed::Keep(kept) => {
                self.kept = kept;
                Vec::new()
            }
        };
        self.forget(time_ms);
        concerned
    }

    fn submit(&mut self, tasks: u64, is_once: bool) {
        self.last_job += 1;
        let job = JobId(self.last_job);
        self.once.extend(is_once.then_some(job));
        self.states.extend((1..=tasks).map(|index| (TaskId { job, index }, State::Waiting { failures: 0 })));
    }

    fn start(&mut self, task: TaskId) {
        if let Some(state @ State::Waiting { .. }) = self.states.get_mut(&task) {
            *state = State::Started;
            self.starts.insert(task);
        }
    }

    fn finish(&mut self, time_ms: u64, task: TaskId, sequence: u64, is_success: bool) {
        let failures = match self.states.get(&task) {
            Some(State::Waiting { failures }) if !self.spent.contains(&(task, sequence)) => *failures,
            Some(State::Started) if sequence == ONCE => 0,
            _ => return,
        };
        let may_retry = !self.once.contains(&task.job) && failures < 1;
        let next = match is_success {
            true => State::Done,
            false if may_retry => State::Waiting { failures: failures + 1 },
            false => State::Failed,
        };
        self.states.insert(task, next);
        if is_success {
            self.spent.retain(|(other, _)| *other != task);
        } else {
            self.spent.insert((task, sequence));
        }
        if next.is_final() {
            self.starts.remove(&task);
            self.order.push_back((time_ms, task));
            self.results.insert(task);
        }
    }

    fn meant(&self, target: Target, is_meant: impl Fn(State) -> bool) -> Vec<TaskId> {
        let is_there = |task: TaskId| match target {
            Target::Job(job) => task.job == job,
            Target::Task(other) => task == other,
        };
        let states = self.states.iter().filter(|(task, state)| is_there(**task) && is_meant(**state));
        states.map(|(task, _)| *task).collect()
    }

    fn cancel(&mut self, time_ms: u64, target: Target) -> Vec<TaskId> {
        let tasks = self.meant(target, |state| !state.is_final());
        for (number, task) in tasks.iter().enumerate() {
            self.states.insert(*task, State::Cancelled);
            self.starts.remove(task);
            if number >= tasks.len().saturating_sub(self.kept) {
                self.order.push_back((time_ms, *task));
            }
        }
        tasks
    }

    fn retry(&mut self, target: Target, is_meant: impl Fn(State) -> bool) -> Vec<TaskId> {
        let tasks = self.meant(target, is_meant);
        for task in &tasks {
            self.states.insert(*task, State::Waiting { failures: 0 });
            self.order.retain(|(_, other)| other != task);
            self.results.remove(task);
        }
        tasks
    }

    fn forget(&mut self, now_ms: u64) {
        while let Some((time_ms, task)) = self.order.front().copied() {
            if self.order.len() <= self.kept && time_ms + AGE_MS > now_ms {
                return;
            }
            self.order.pop_front();
            self.results.remove(&task);
            self.spent.retain(|(other, _)| *other != task);
            let has_result = self.results.iter().any(|other| other.job == task.job);
            if !has_result && self.meant(Target::Job(task.job), |state| !state.is_final()).is_empty() {
                self.states.retain(|other, _| other.job != task.job);
                self.spent.retain(|(other, _)| other.job != task.job);
            }
        }
    }

    fn limits(&self) -> Limits {
        Limits { results: self.kept, age_ms: AGE_MS, ..Limits::default() }
    }

    /// Is this the same?
    fn check(&self, ledger: &Ledger) {
        let jobs = ledger.jobs(JobId(0));
        let tasks = jobs.flat_map(|(job, what)| {
            (1..).zip(what.states()).map(move |(index, state)| (TaskId { job, index }, state))
        });
        let tasks: BTreeMap<TaskId, State> = tasks.collect();
        assert_eq!(tasks, self.states);
        assert_eq!(ledger.counts(), tasks.values().copied().collect());
        for (_, job) in ledger.jobs(JobId(0)) {
            assert_eq!(job.counts(), job.states().collect());
            assert_eq!(job.open(), job.states().filter(|state| !state.is_final()).count() as u64);
        }
        let results = tasks.keys().filter(|task| ledger.outcome(**task).is_some());
        assert_eq!(results.copied().collect::<BTreeSet<TaskId>>(), self.results);
        assert_eq!(ledger.starts().map(|start| start.task).collect::<BTreeSet<TaskId>>(), self.starts);
        let spent =
            ledger.spent.iter().flat_map(|(task, spent)| spent.iter().map(|attempt| (*task, attempt.sequence)));
        assert_eq!(spent.collect::<BTreeSet<_>>(), self.spent);
        let mut order = ledger.results.clone();
        let mut ended = VecDeque::new();
        while let Some(stretch) = order.forget_oldest(u64::MAX) {
            ended.extend(
                (stretch.first..=stretch.last).map(|index| (stretch.time_ms, TaskId { job: stretch.job, index })),
            );
        }
        assert_eq!(ended, self.order);
    }
}

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

fn entry(deed: Deed, twin: &Twin) -> Entry {
    match deed {
        Deed::Submit { tasks, is_once } => Entry::Submit { spec: spec(tasks, is_once), key: None },
        Deed::Start(task) => {
            let attempt = Attempt { term: Term(1), sequence: ONCE };
            Entry::Start(Start { task, worker: "w1".into(), attempt })
        }
        Deed::Finish(task, sequence, is_success) => Entry::Finish(report(task, sequence, is_success)),
        Deed::Cancel(target) => Entry::Cancel(target),
        Deed::Retry(target) => Entry::Retry(target),
        Deed::RetryFailed(job) => Entry::RetryFailed(job),
        Deed::Keep(results) => Entry::Limit(Limits { results, ..twin.limits() }),
    }
}

fn concerned(effects: &[Effect]) -> Vec<TaskId> {
    let tasks = effects.iter().filter_map(|effect| match effect {
        Effect::Cancelled(tasks) | Effect::Wanted(tasks) => Some(*tasks),
        _ => None,
    });
    tasks.inspect(|tasks| assert!(tasks.is_exact())).flat_map(|tasks| tasks.iter()).collect()
}

fn deeds() -> impl Strategy<Value = Deed> {
    let task = || (1..5_u64, 0..8_u64).prop_map(|(job, index)| TaskId { job: JobId(job), index });
    let job = || (1..5_u64).prop_map(JobId);
    let target = || prop_oneof![4 => job().prop_map(Target::Job), 1 => task().prop_map(Target::Task)];
    prop_oneof![
        2 => (1..8_u64, any::<bool>()).prop_map(|(tasks, is_once)| Deed::Submit { tasks, is_once }),
        2 => task().prop_map(Deed::Start),
        9 => (task(), 1..4_u64, any::<bool>()).prop_map(|(task, sequence, well)| Deed::Finish(task, sequence, well)),
        3 => target().prop_map(Deed::Cancel),
        3 => target().prop_map(Deed::Retry),
        1 => job().prop_map(Deed::RetryFailed),
        1 => (0..20_usize).prop_map(Deed::Keep),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn whole_jobs_change_as_their_tasks_would_one_by_one(
        kept in 0..20_usize,
        deeds in prop::collection::vec((0..3_u64, deeds()), 1..60),
    ) {
        let mut twin = Twin { kept, ..Twin::default() };
        let mut ledger = Ledger::new(twin.limits());
        let mut time_ms = 0;
        for (passed_ms, deed) in deeds {
            time_ms += passed_ms;
            let entries = alloc::vec![entry(deed, &twin)];
            let effects = ledger.apply(Batch { time_ms, entries });
            let expected = twin.apply(time_ms, deed);
            prop_assert_eq!(concerned(&effects), expected);
            twin.check(&ledger);
        }
    }
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
