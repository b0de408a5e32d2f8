//! Histories of a ledger, by chance: few names and small numbers, so that most entries concern what others did.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use proptest::prelude::*;

use crate::ledger::job::Lines;
use crate::ledger::roll::{
    Authority, Change, Consume, Fingerprint, Neighbour, NewToken, Node, Revocation, Role, SecretKey, TokenId,
};
use crate::ledger::{
    Attempt, Batch, Borrow, CommandLine, Ending, Entry, Expansion, Grant, GroupRank, GroupRules, JobId, Lend,
    Limits, LoanId, Outcome, Release, Report, Spec, Start, Tail, Target, TaskId, Verdict, Why, Work,
};
use crate::{ServerId, SessionId, Term};

/// Two workers of our own, and two of another farm.
pub(super) const WORKERS: [&str; 4] = ["a", "b", "a@south", "b@south"];

/// Batches, one after the other.
#[derive(Clone)]
pub(super) struct History(pub(super) Vec<Batch>);

/// A line for each entry, because a failure is read by people.
impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for batch in &self.0 {
            write!(f, "\nat {} ms:", batch.time_ms)?;
            for entry in &batch.entries {
                match entry {
                    Entry::Submit { spec, key } => {
                        let (tasks, retries) = (spec.expansion.len(), spec.retries);
                        let once = if spec.is_once { ", once" } else { "" };
                        write!(f, "\n  Submit {tasks} tasks, {retries} retries{once}, key {key:?}")?;
                    }
                    Entry::Finish(report) => {
                        let printed = report.outcome.stdout.bytes.len();
                        write!(f, "\n  Finish {}: {:?}, {printed} bytes", report.held(), report.outcome.verdict)?;
                    }
                    Entry::Start(start) => {
                        write!(f, "\n  Start {} ({}) on {}", start.task, start.attempt, start.worker)?;
                    }
                    other => write!(f, "\n  {other:?}")?,
                }
            }
        }
        Ok(())
    }
}

/// Histories in which results are forgotten, or none is.
pub(super) fn histories(is_forgetful: bool) -> impl Strategy<Value = History> {
    let limits = move || limits(is_forgetful);
    let batch = (0..3_u64, prop::collection::vec(entries(limits()), 0..5));
    (limits(), prop::collection::vec(batch, 1..40)).prop_map(|(limits, batches)| {
        let mut time_ms = 0;
        let first = Batch { time_ms, entries: alloc::vec![Entry::Limit(limits)] };
        let others = batches.into_iter().map(|(passed_ms, entries)| {
            time_ms += passed_ms;
            Batch { time_ms, entries }
        });
        History(core::iter::once(first).chain(others).collect())
    })
}

fn limits(is_forgetful: bool) -> impl Strategy<Value = Limits> {
    let bounds = (0..20_usize, 0..2000_u64, 1..9_u64, 5..25_u64);
    bounds.prop_map(move |(results, results_len, age_ms, waiting)| match is_forgetful {
        true => Limits { results, results_len, age_ms, waiting },
        false => Limits { waiting, ..Limits::default() },
    })
}

fn entries(limits: impl Strategy<Value = Limits>) -> impl Strategy<Value = Entry> {
    prop_oneof![
        30 => of_tasks(),
        1 => limits.prop_map(Entry::Limit),
        4 => of_workers(),
        7 => of_loans(),
        2 => of_groups(),
        6 => of_the_roll().prop_map(Entry::Roll),
    ]
}

fn names() -> impl Strategy<Value = String> {
    prop::sample::select(&WORKERS[..]).prop_map(String::from)
}

fn of_workers() -> impl Strategy<Value = Entry> {
    prop_oneof![
        2 => (names(), 0..3_u16).prop_map(|(worker, slots)| Entry::Join { worker, slots }),
        1 => names().prop_map(|worker| Entry::Leave { worker }),
        1 => (names(), any::<bool>()).prop_map(|(worker, is_draining)| Entry::Drain { worker, is_draining }),
    ]
}

fn of_loans() -> impl Strategy<Value = Entry> {
    let loan = || (1..4_u64).prop_map(LoanId);
    let why = || prop_oneof![Just(Why::Asked), Just(Why::Operator)];
    let ending = prop_oneof![Just(Ending::Home), Just(Ending::Dead)];
    let (farm, for_ms) = (|| String::from("south"), 9);
    let lend = move |(worker, why)| Entry::Lend(Lend { worker, to: farm(), for_ms, why });
    let borrow = move |(worker, loan, why)| Entry::Borrow(Borrow { worker, from: farm(), loan, for_ms, why });
    prop_oneof![
        2 => (names(), why()).prop_map(lend),
        1 => loan().prop_map(Entry::Recall),
        1 => (loan(), ending).prop_map(|(loan, ending)| Entry::EndLoan(loan, ending)),
        2 => (names(), loan(), why()).prop_map(borrow),
        1 => (names(), loan()).prop_map(|(worker, loan)| Entry::GiveBack { worker, loan }),
    ]
}

fn of_tasks() -> impl Strategy<Value = Entry> {
    let task = || (1..5_u64, 0..7_u64).prop_map(|(job, index)| TaskId { job: JobId(job), index });
    let job = || (1..5_u64).prop_map(JobId);
    let target = || prop_oneof![4 => job().prop_map(Target::Job), 1 => task().prop_map(Target::Task)];
    let key = prop::option::of(prop::sample::select(&["k", "l"][..]).prop_map(String::from));
    let report = (task(), attempts(), verdicts(), prop_oneof![3 => Just(0), 1 => 0..300_usize]);
    prop_oneof![
        3 => (specs(), key).prop_map(|(spec, key)| Entry::Submit { spec, key }),
        9 => report.prop_map(|(task, attempt, verdict, len)| Entry::Finish(finished(task, attempt, verdict, len))),
        2 => (task(), attempts()).prop_map(|(task, attempt)| Entry::Start(Start { task, worker: "a".into(), attempt })),
        3 => target().prop_map(Entry::Cancel),
        3 => target().prop_map(Entry::Retry),
        1 => job().prop_map(Entry::RetryFailed),
    ]
}

fn of_groups() -> impl Strategy<Value = Entry> {
    let name = || prop::sample::select(&["g", "h"][..]).prop_map(String::from);
    let session = || (1..4_u64).prop_map(SessionId);
    let rules = (0..3_u16).prop_map(|holders| GroupRules { rank: GroupRank::Load, holders });
    prop_oneof![
        (name(), rules, session()).prop_map(|(group, rules, session)| {
            Entry::Grant(Grant { group, rules, session, name: "holder".into(), lease_us: 1 })
        }),
        (name(), session(), 1..4_u64).prop_map(|(group, session, token)| Entry::Release(Release {
            group,
            session,
            token
        })),
    ]
}

/// Two secrets, two keys, two stores, and tokens that are good for a moment, or long enough.
fn of_the_roll() -> impl Strategy<Value = Change> {
    let mark = || (1..3_u8).prop_map(|mark| Fingerprint([mark; 32]));
    let name = || prop::sample::select(&["a", "b"][..]).prop_map(String::from);
    let token = || (1..4_u64).prop_map(TokenId);
    let role = || prop::sample::select(&[Role::Worker, Role::Worker, Role::Server][..]);
    let new = (role(), mark(), 1..9_u64, 1..3_u32, prop::option::of(name()));
    let new = new.prop_map(|(role, secret, ttl_ms, uses, name)| {
        let name = name.filter(|_| role == Role::Worker);
        let uses = if name.is_some() { 1 } else { uses };
        NewToken { role, secret, ttl_ms, uses, name, by: "ann".into() }
    });
    let joined = (token(), mark(), role(), 1..3_u8, name(), mark());
    let joined = joined.prop_map(|(token, secret, role, store, name, key)| {
        let name = if role == Role::Worker { name } else { String::new() };
        Consume { token, secret, role, store: [store; 16], name, key }
    });
    let node = prop_oneof![name().prop_map(Node::Worker), Just(Node::Server(ServerId(1)))];
    let revoked = prop_oneof![(1..6_u64).prop_map(Revocation::Serial), node.prop_map(Revocation::Node)];
    let authority = (1..4_u8).prop_map(|mark| Authority {
        certificate: alloc::vec![mark; 3],
        hash: Fingerprint([mark; 32]),
        key: SecretKey(alloc::vec![mark; 2]),
        voucher: Vec::new(),
    });
    let neighbour = (name(), mark()).prop_map(|(name, hash)| Neighbour {
        name,
        certificate: Vec::new(),
        hash,
        servers: [(ServerId(1), "h:1".into())].into(),
    });
    let of_tokens = prop_oneof![
        3 => new.prop_map(Change::CreateToken),
        1 => token().prop_map(Change::RevokeToken),
        9 => joined.prop_map(Change::Consume),
        1 => Just(Change::DrawSerial),
    ];
    let of_nodes = prop_oneof![
        (name(), mark()).prop_map(|(name, key)| Change::BindWorker { name, key }),
        name().prop_map(Change::ForgetWorker),
        revoked.prop_map(Change::Revoke),
        neighbour.prop_map(Change::TrustNeighbour),
        name().prop_map(Change::ForgetNeighbour),
        authority.prop_map(Change::AddAuthority),
        Just(Change::FinishRotation),
    ];
    prop_oneof![2 => of_tokens, 1 => of_nodes]
}

fn specs() -> impl Strategy<Value = Spec> {
    let lines = |count: u8| {
        let mut lines = Lines::default();
        (0..count).for_each(|_| assert!(lines.push("a line")));
        Expansion::Lines(lines)
    };
    let expansion = prop_oneof![
        1 => Just(Expansion::One),
        3 => (0..3_u64, 0..8_u64).prop_map(|(first, last)| Expansion::Array { first, last }),
        1 => (0..5_u8).prop_map(lines),
    ];
    let work = prop_oneof![
        Just(Work::Kind { name: "noop".into(), input: alloc::vec![1; 9] }),
        Just(Work::Command(CommandLine { arguments: alloc::vec!["run".into()], ..CommandLine::default() })),
    ];
    (work, expansion, 0..3_u8, any::<bool>(), -1..2_i16).prop_map(
        |(work, expansion, retries, is_once, priority)| Spec {
            name: "name".into(),
            work,
            expansion,
            retries,
            timeout_ms: None,
            is_once,
            priority,
            cpus: 1,
        },
    )
}

fn attempts() -> impl Strategy<Value = Attempt> {
    (1..4_u64).prop_map(|sequence| Attempt { term: Term(1), sequence })
}

fn verdicts() -> impl Strategy<Value = Verdict> {
    prop_oneof![
        4 => Just(Verdict::Exited(0)),
        4 => Just(Verdict::Exited(1)),
        1 => Just(Verdict::Signalled(9)),
        1 => Just(Verdict::TimedOut),
        1 => Just(Verdict::Refused("no".into())),
        1 => Just(Verdict::Lost),
    ]
}

fn finished(task: TaskId, attempt: Attempt, verdict: Verdict, printed: usize) -> Report {
    let stdout = Tail { total: printed as u64, bytes: alloc::vec![b'x'; printed] };
    let (worker, stderr) = ("a".into(), Tail::default());
    Report { task, outcome: Outcome { attempt, worker, verdict, started_us: 0, took_us: 0, stdout, stderr } }
}
