//! Judges what clients of the register saw: is there an order of all operations that explains it?
//!
//! Every key is a register of its own, and every write carries a value that no other write carries. Then no search is
//! needed (Gibbons and Korach, "Testing shared memories", 1997): a write and the reads that return it stand side by side
//! in every possible order, so it is enough to look at pairs of values. One value comes before another where an operation
//! on the first ended before one on the second began; two values that come before each other have no order. A longer
//! circle always contains such a pair.
//!
//! A lost write needs no rule of its own: a read that begins after an acknowledged write, and returns something older, is
//! such a pair.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

/// Something that a client did, in microseconds on a clock that all clients share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// On which register.
    pub key: String,
    /// When the client began.
    pub start_us: u64,
    /// When it had the answer, or gave up.
    pub end_us: u64,
    /// What it did.
    pub action: Action,
}

/// What a client did. A read without an answer says nothing, and does not appear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It wrote a value that nobody else writes.
    Put(String, Outcome),
    /// It read this value, or that there is none.
    Get(Option<String>),
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It was acknowledged.
    Ok,
    /// It surely did not happen, and never will.
    Failed,
    /// It may have happened, may still happen, or never.
    Unknown,
}

/// Why no order of the operations explains what clients saw.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Violation {
    /// The history itself cannot be judged.
    #[error("{key}: {value} was written twice, so nobody can tell which write a read saw")]
    Repeated {
        /// On which register.
        key: String,
        /// The value.
        value: String,
    },
    /// A value out of nowhere.
    #[error("{key}: {value} was read at {read_us} us, but no write that may have happened wrote it")]
    NeverWritten {
        /// On which register.
        key: String,
        /// The value.
        value: String,
        /// When the read ended.
        read_us: u64,
    },
    /// A value out of the future.
    #[error("{key}: {value} was read by {read_us} us, but its write began only at {put_us} us")]
    ReadBeforePut {
        /// On which register.
        key: String,
        /// The value.
        value: String,
        /// When the read ended.
        read_us: u64,
        /// When the write began.
        put_us: u64,
    },
    /// A stale read, a lost write, or a value that came back.
    #[error("{key}: {one} comes before {other} and also after it")]
    NoOrder {
        /// On which register.
        key: String,
        /// A value.
        one: Box<Span>,
        /// Another one, which no order separates from it.
        other: Box<Span>,
    },
}

/// When a value was there, as far as clients can tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The value; none before the first write.
    pub value: Option<String>,
    /// The first operation on it ended here, so that it was there by then; none for what was there from the beginning.
    pub first_end_us: Option<u64>,
    /// The last operation on it began here, so that it was there still; none if nobody looked.
    pub last_start_us: Option<u64>,
}

/// Looks for an order that explains all operations on each key.
///
/// # Errors
/// If there is none for some key.
pub fn check(operations: &[Operation]) -> Result<(), Violation> {
    let mut by_key: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        by_key.entry(&operation.key).or_default().push(operation);
    }
    by_key.into_iter().try_for_each(|(key, operations)| check_key(key, &operations))
}

fn check_key(key: &str, operations: &[&Operation]) -> Result<(), Violation> {
    let spans = spans(key, operations)?;
    for (place, one) in spans.iter().enumerate() {
        if let Some(other) = spans[place + 1..].iter().find(|other| one.precedes(other) && other.precedes(one)) {
            let (one, other) = (Box::new(one.clone()), Box::new(other.clone()));
            return Err(Violation::NoOrder { key: key.to_string(), one, other });
        }
    }
    Ok(())
}

/// When each value was there. A write of unknown outcome that nobody read explains nothing, and is left out.
fn spans(key: &str, operations: &[&Operation]) -> Result<Vec<Span>, Violation> {
    let puts = puts(key, operations)?;
    let mut spans: BTreeMap<Option<&str>, Span> = BTreeMap::new();
    spans.insert(None, Span { value: None, first_end_us: None, last_start_us: None });
    for (value, (put, outcome)) in &puts {
        if *outcome == Outcome::Ok {
            spans.insert(Some(value), Span::of_put(value, put.start_us, put.end_us));
        }
    }
    for operation in operations {
        let Action::Get(value) = &operation.action else { continue };
        if let Some(value) = value {
            let put = find_put(key, value, operation.end_us, &puts)?;
            // It was read, so it happened, some time after it began.
            spans.entry(Some(value)).or_insert_with(|| Span::of_put(value, put.start_us, u64::MAX));
        }
        spans.get_mut(&value.as_deref()).expect("it was just inserted").include(operation);
    }
    Ok(spans.into_values().collect())
}

type Puts<'a> = BTreeMap<&'a str, (&'a Operation, Outcome)>;

/// All writes that may have happened, and those that did not.
fn puts<'a>(key: &str, operations: &[&'a Operation]) -> Result<Puts<'a>, Violation> {
    let mut puts = Puts::new();
    for operation in operations {
        let Action::Put(value, outcome) = &operation.action else { continue };
        if puts.insert(value, (*operation, *outcome)).is_some() {
            return Err(Violation::Repeated { key: key.to_string(), value: value.clone() });
        }
    }
    Ok(puts)
}

/// The write that a read saw, if it can have seen it.
fn find_put<'a>(key: &str, value: &str, read_us: u64, puts: &Puts<'a>) -> Result<&'a Operation, Violation> {
    let (key, value_read) = (key.to_string(), value.to_string());
    match puts.get(value) {
        None | Some((_, Outcome::Failed)) => Err(Violation::NeverWritten { key, value: value_read, read_us }),
        Some((put, _)) if read_us < put.start_us => {
            Err(Violation::ReadBeforePut { key, value: value_read, read_us, put_us: put.start_us })
        }
        Some((put, _)) => Ok(*put),
    }
}

impl Span {
    fn of_put(value: &str, start_us: u64, end_us: u64) -> Self {
        Self { value: Some(value.to_string()), first_end_us: Some(end_us), last_start_us: Some(start_us) }
    }

    fn include(&mut self, read: &Operation) {
        self.first_end_us = self.first_end_us.map(|end| end.min(read.end_us));
        self.last_start_us = self.last_start_us.max(Some(read.start_us));
    }

    /// Must this value have been there before the other one? None sorts first: what is there from the beginning was
    /// there before everything.
    fn precedes(&self, other: &Self) -> bool {
        self.first_end_us < other.last_start_us
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.first_end_us.unwrap_or(0), self.last_start_us.unwrap_or(0));
        match &self.value {
            Some(value) => write!(f, "{value}")?,
            None => f.write_str("no value")?,
        }
        match from <= to {
            true => write!(f, " (there from {from} us at the latest to {to} us at the earliest)"),
            false => write!(f, " (there at some time from {to} to {from} us)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `put a 1..5 ok`, `get a 2..3`, `get - 0..1`: one operation per line, all on one key.
    fn history(text: &str) -> Vec<Operation> {
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(operation).collect()
    }

    fn operation(line: &str) -> Operation {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[2].split_once("..").unwrap();
        let outcome = match words.get(3) {
            Some(&"failed") => Outcome::Failed,
            Some(&"unknown") => Outcome::Unknown,
            _ => Outcome::Ok,
        };
        let action = match words[0] {
            "put" => Action::Put(words[1].to_string(), outcome),
            _ => Action::Get(Some(words[1].to_string()).filter(|value| value != "-")),
        };
        Operation { key: "k".to_string(), start_us: start.parse().unwrap(), end_us: end.parse().unwrap(), action }
    }

    fn verdict(text: &str) -> Result<(), Violation> {
        check(&history(text))
    }

    fn has_no_order(text: &str) {
        assert!(matches!(verdict(text), Err(Violation::NoOrder { .. })), "{text}: {:?}", verdict(text));
    }

    #[test]
    fn operations_one_after_the_other_pass() {
        verdict("get - 0..1\nput a 2..3\nget a 4..5\nput b 6..7\nget b 8..9").unwrap();
        verdict("").unwrap();
    }

    #[test]
    fn a_read_beside_a_write_may_see_either_value() {
        verdict("put a 0..1\nput b 2..9\nget a 3..4\nget b 5..6").unwrap();
        verdict("put a 0..1\nput b 2..9\nget b 3..4\nget b 10..11").unwrap();
        verdict("put a 0..1\nput b 2..9\nget a 3..4\nget b 3..4").unwrap();
    }

    #[test]
    fn a_stale_read_after_an_acknowledged_write_is_found() {
        has_no_order("put a 0..1\nput b 2..3\nget a 4..5");
        has_no_order("put a 0..1\nget - 2..3");
    }

    #[test]
    fn a_lost_write_is_found_even_if_others_follow() {
        has_no_order("put a 0..1\nput b 2..3\nget a 4..5\nput c 6..7\nget c 8..9");
        let lost = verdict("put a 0..1\nget - 2..3").unwrap_err().to_string();
        assert_eq!(
            lost,
            "k: no value (there from 0 us at the latest to 2 us at the earliest) comes before \
             a (there at some time from 0 to 1 us) and also after it"
        );
    }

    #[test]
    fn a_value_that_was_never_written_is_found() {
        assert!(matches!(verdict("put a 0..1\nget x 2..3"), Err(Violation::NeverWritten { .. })));
        assert!(matches!(verdict("put a 0..1 failed\nget a 2..3"), Err(Violation::NeverWritten { .. })));
        assert!(matches!(verdict("get a 0..1\nput a 2..3"), Err(Violation::ReadBeforePut { .. })));
        assert!(matches!(verdict("get a 0..1\nput a 2..3 unknown"), Err(Violation::ReadBeforePut { .. })));
    }

    #[test]
    fn reads_that_go_back_in_time_are_found() {
        has_no_order("put a 0..1\nput b 2..9\nget b 3..4\nget a 5..6");
        has_no_order("put a 0..1\nput b 2..3 unknown\nget b 4..5\nget a 6..7");
        has_no_order("put a 0..20\nput b 0..20\nget a 1..2\nget b 3..4\nget a 5..6");
    }

    #[test]
    fn an_unknown_write_may_happen_late_or_never() {
        verdict("put a 0..1\nput b 2..3 unknown\nget a 4..5").unwrap();
        verdict("put a 0..1\nput b 2..3 unknown\nget a 4..5\nget b 6..7").unwrap();
        verdict("put a 0..1 unknown\nput b 2..3\nget b 4..5\nget a 6..7").unwrap();
    }

    #[test]
    fn keys_are_judged_apart() {
        let mut both = history("put a 0..1\nput b 2..3\nget a 4..5");
        both[0].key = "other".to_string();
        assert!(matches!(check(&both), Err(Violation::NeverWritten { key, .. }) if key == "k"));
        both[2].key = "other".to_string();
        check(&both).unwrap();
    }

    #[test]
    fn a_value_that_was_written_twice_cannot_be_judged() {
        assert!(matches!(verdict("put a 0..1\nput a 2..3"), Err(Violation::Repeated { .. })));
    }

    /// The slow twin: tries all orders of all operations, with and without each write of unknown outcome.
    fn has_order(left: &[Operation], now: Option<&str>) -> bool {
        let must_happen = |operation: &Operation| match operation.action {
            Action::Put(_, outcome) => outcome == Outcome::Ok,
            Action::Get(_) => true,
        };
        let deadline = |operation: &Operation| match operation.action {
            Action::Put(_, Outcome::Unknown) => u64::MAX,
            _ => operation.end_us,
        };
        if !left.iter().any(must_happen) {
            return true;
        }
        let is_next = |place: usize| {
            let others = left.iter().enumerate().filter(|(other, _)| *other != place);
            !others.map(|(_, other)| deadline(other)).any(|end| end < left[place].start_us)
        };
        (0..left.len()).filter(|place| is_next(*place)).any(|place| {
            let mut rest = left.to_vec();
            match rest.remove(place).action {
                Action::Put(value, _) => has_order(&rest, Some(&value)),
                Action::Get(value) => value.as_deref() == now && has_order(&rest, now),
            }
        })
    }

    fn twin(operations: &[Operation]) -> bool {
        let happened = |operation: &&Operation| !matches!(operation.action, Action::Put(_, Outcome::Failed));
        has_order(&operations.iter().filter(happened).cloned().collect::<Vec<_>>(), None)
    }

    /// Values are named after the place of their write, so that none is written twice and most reads find one.
    fn any_history() -> impl Strategy<Value = Vec<Operation>> {
        prop::collection::vec((0u8..8, 0u64..8, 0u64..6, 0usize..6), 0..=5).prop_map(|drawn| {
            let operations = drawn.into_iter().enumerate().map(|(place, (kind, start_us, length, read))| {
                let action = match kind {
                    0..3 => Action::Put(place.to_string(), Outcome::Ok),
                    3 => Action::Put(place.to_string(), Outcome::Unknown),
                    4 if read == 0 => Action::Put(place.to_string(), Outcome::Failed),
                    _ => Action::Get((read < 5).then(|| read.to_string())),
                };
                Operation { key: "k".to_string(), start_us, end_us: start_us + length, action }
            });
            operations.collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn the_verdict_is_that_of_the_slow_twin(operations in any_history()) {
            prop_assert_eq!(check(&operations).is_ok(), twin(&operations), "{:?}", check(&operations));
        }
    }
}
