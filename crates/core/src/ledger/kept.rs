//! Results as the ledger keeps them: small, because there may be a hundred thousand, and most of them say little.
//!
//! Few tasks print anything and most end well, so all that is rare lies elsewhere; and the same few workers ran all of them,
//! so their names are shared.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;

use super::task::{Attempt, Outcome, Tail, Verdict};

/// A result, kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Kept {
    attempt: Attempt,
    #[cfg_attr(feature = "serde", serde(with = "super::shared"))]
    worker: Arc<str>,
    started_us: u64,
    took_us: u64,
    rest: Rest,
}

/// What tells one result from another.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
enum Rest {
    /// It ended with this code, and printed nothing.
    Exited(u8),
    Other(Box<(Verdict, Tail, Tail)>),
}

impl Kept {
    pub(super) fn new(outcome: Outcome, names: &mut Names) -> Self {
        let Outcome { attempt, worker, verdict, started_us, took_us, stdout, stderr } = outcome;
        let is_silent = stdout == Tail::default() && stderr == Tail::default();
        let rest = match verdict {
            Verdict::Exited(code) if is_silent => Rest::Exited(code),
            verdict => Rest::Other(Box::new((verdict, stdout, stderr))),
        };
        Self { attempt, worker: names.shared(&worker), started_us, took_us, rest }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let (verdict, stdout, stderr) = match &self.rest {
            Rest::Exited(code) => (Verdict::Exited(*code), Tail::default(), Tail::default()),
            Rest::Other(other) => (**other).clone(),
        };
        let Self { attempt, worker, started_us, took_us, .. } = self;
        let worker = String::from(&**worker);
        Outcome { attempt: *attempt, worker, verdict, started_us: *started_us, took_us: *took_us, stdout, stderr }
    }
}

/// The names of workers that results share. It only saves room, so it makes no difference between two ledgers.
#[derive(Debug, Clone, Default)]
pub(super) struct Names(BTreeSet<Arc<str>>);

/// With so many names it is time to look whether all of them are needed.
const NAMES_MAX: usize = 8192;

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        if self.0.len() >= NAMES_MAX {
            self.0.retain(|name| Arc::strong_count(name) > 1);
        }
        let new: Arc<str> = name.into();
        // Where all are needed, one more name is not shared, and nothing else.
        if self.0.len() < NAMES_MAX {
            self.0.insert(Arc::clone(&new));
        }
        new
    }
}

impl PartialEq for Names {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Names {}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(verdict: Verdict, printed: &str) -> Outcome {
        Outcome {
            attempt: Attempt { term: 2, sequence: 3 },
            worker: "w1".into(),
            verdict,
            started_us: 4,
            took_us: 5,
            stdout: Tail { total: printed.len() as u64, bytes: printed.into() },
            stderr: Tail::default(),
        }
    }

    #[test]
    fn a_result_comes_out_as_it_went_in() {
        let mut names = Names::default();
        for (verdict, printed) in [
            (Verdict::Exited(0), ""),
            (Verdict::Exited(3), ""),
            (Verdict::Exited(0), "hello"),
            (Verdict::TimedOut, ""),
            (Verdict::Refused("no".into()), ""),
        ] {
            let outcome = outcome(verdict, printed);
            assert_eq!(Kept::new(outcome.clone(), &mut names).outcome(), outcome);
        }
        assert_eq!(names.0.len(), 1);
    }

    #[test]
    fn a_result_takes_little_room_and_names_that_nobody_needs_go() {
        assert_eq!(size_of::<Kept>(), 64);
        let mut names = Names::default();
        let kept = names.shared("kept");
        (0..3 * NAMES_MAX).for_each(|number| _ = names.shared(&alloc::format!("worker {number}")));
        assert!(names.0.len() <= NAMES_MAX);
        assert!(Arc::ptr_eq(&kept, &names.shared("kept")));
    }
}
