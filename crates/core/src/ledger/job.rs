//! One submission: what to run, how often, and under which conditions.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Range, RangeInclusive};

use serde::{Deserialize, Serialize};

use super::task::{Counts, State};

/// The number of a job; the ledger counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// What is submitted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Spec {
    /// What people call it.
    pub name: String,
    /// What to do.
    pub work: Work,
    /// How many tasks it makes.
    pub expansion: Expansion,
    /// How often a task that failed is tried again.
    pub retries: u8,
    /// How long a task may run.
    pub timeout_ms: Option<u64>,
    /// Must no task start twice, even if that loses one?
    pub is_once: bool,
    /// Greater comes first.
    pub priority: i16,
    /// How many slots a task takes.
    pub cpus: u16,
}

/// What a task does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Work {
    /// Runs a program.
    Command(CommandLine),
    /// Calls what a worker has registered under this name.
    Kind {
        /// Which handler.
        name: String,
        /// What it is given.
        #[serde(with = "super::whole")]
        input: Vec<u8>,
    },
}

/// A program and what it is given. No shell is involved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct CommandLine {
    /// The program, then its arguments. `{}` becomes the task's own argument.
    pub arguments: Vec<String>,
    /// Added to the worker's environment.
    pub environment: Vec<(String, String)>,
    /// Where it runs; the worker's own folder if nothing is said.
    pub directory: Option<String>,
    /// What it reads.
    #[serde(with = "super::whole")]
    pub stdin: Vec<u8>,
    /// How much it gives way to others.
    pub nice: u8,
}

/// How many tasks a job has, and what tells them apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Expansion {
    /// One.
    One,
    /// One for each number, both ends included.
    Array {
        /// The first number.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// One for each line.
    Lines(Lines),
}

/// Many lines in one piece of memory: a line of 40 bytes takes 44.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Lines {
    text: String,
    /// Where each line ends.
    ends: Vec<u32>,
}

/// A job in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "disk::Job")]
pub struct Job {
    /// What was submitted. Shared, because a copy of the ledger is made for every snapshot, and lines are long.
    pub spec: Arc<Spec>,
    /// When, on the leader's clock, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// The name under which it cannot be submitted twice.
    pub key: Option<String>,
    /// What is agreed about each task.
    states: Vec<State>,
    /// How many tasks have no final state.
    open: u64,
    /// How many tasks there are in each state. Found by counting when the rest is read.
    #[serde(skip)]
    counts: Counts,
}

/// The form on disk.
mod disk {
    use alloc::string::String;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use super::{Spec, State};

    #[derive(serde::Deserialize)]
    pub(super) struct Job {
        spec: Arc<Spec>,
        submitted_ms: u64,
        key: Option<String>,
        states: Vec<State>,
        open: u64,
    }

    impl From<Job> for super::Job {
        fn from(job: Job) -> Self {
            let Job { spec, submitted_ms, key, states, open } = job;
            let counts = states.iter().copied().collect();
            Self { spec, submitted_ms, key, states, open, counts }
        }
    }
}

impl Spec {
    /// How many slots a task takes: without any, a worker would get all tasks at once.
    #[must_use]
    pub const fn slots(&self) -> u16 {
        if self.cpus == 0 { 1 } else { self.cpus }
    }
}

impl Expansion {
    /// How many tasks there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::One => 1,
            Self::Array { first, last } => last.checked_sub(*first).map_or(0, |more| more.saturating_add(1)),
            Self::Lines(lines) => lines.ends.len() as u64,
        }
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of the task at this place (from 1): an array from 5 to 9 has the numbers 5 to 9.
    #[must_use]
    pub const fn number(&self, index: u64) -> u64 {
        match self {
            Self::Array { first, .. } => first.saturating_add(index).saturating_sub(1),
            Self::One | Self::Lines(_) => index,
        }
    }

    /// What tells the task at this place (from 1) from the others: its number or its line.
    #[must_use]
    pub fn argument(&self, index: u64) -> String {
        match self {
            Self::One | Self::Array { .. } => self.number(index).to_string(),
            Self::Lines(lines) => lines.get(index).unwrap_or_default().to_string(),
        }
    }
}

impl Lines {
    /// Adds a line; false if there are too many bytes already.
    pub fn push(&mut self, line: &str) -> bool {
        let Ok(end) = u32::try_from(self.text.len() + line.len()) else { return false };
        self.text.push_str(line);
        self.ends.push(end);
        true
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (1..=self.ends.len() as u64).filter_map(|index| self.get(index))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Are there none?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How long they are together.
    #[must_use]
    pub const fn text_len(&self) -> usize {
        self.text.len()
    }

    /// The line at this place, from 1.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<&str> {
        let place = usize::try_from(index.checked_sub(1)?).ok()?;
        let end = *self.ends.get(place)? as usize;
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(start..end)
    }
}

impl CommandLine {
    /// The arguments of one task: every `{}` becomes `argument`.
    #[must_use]
    pub fn arguments_for(&self, argument: &str) -> Vec<String> {
        self.arguments.iter().map(|text| text.replace("{}", argument)).collect()
    }
}

impl Job {
    /// A job none of whose tasks has begun.
    #[must_use]
    pub fn new(spec: Spec, submitted_ms: u64, key: Option<String>) -> Self {
        let open = spec.expansion.len();
        let states = alloc::vec![State::Waiting { failures: 0 }; usize::try_from(open).unwrap_or(0)];
        let counts = Counts { waiting: open, ..Counts::default() };
        Self { spec: Arc::new(spec), submitted_ms, key, states, open, counts }
    }

    /// What is agreed about the task at this place, from 1.
    #[must_use]
    pub fn state(&self, index: u64) -> Option<State> {
        self.states.get(usize::try_from(index.checked_sub(1)?).ok()?).copied()
    }

    /// How many tasks it has.
    pub(super) const fn len(&self) -> u64 {
        self.states.len() as u64
    }

    /// How many tasks have no final state.
    #[must_use]
    pub const fn open(&self) -> u64 {
        self.open
    }

    /// How many tasks there are in each state.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// All states, in order.
    pub fn states(&self) -> impl Iterator<Item = State> + '_ {
        self.states.iter().copied()
    }

    /// The first task that waits, of those between these places.
    pub(crate) fn first_waiting(&self, ends: RangeInclusive<u64>) -> Option<u64> {
        if self.counts.waiting == 0 {
            return None;
        }
        let states = self.states.get(places(&ends, self.states.len()))?;
        let place = states.iter().position(|state| matches!(state, State::Waiting { .. }))?;
        Some(ends.start().max(&1) + place as u64)
    }

    /// Does any task between these places have such a state?
    pub(super) fn has_any(&self, ends: &RangeInclusive<u64>, is_meant: impl Fn(State) -> bool) -> bool {
        let states = self.states.get(places(ends, self.states.len()));
        states.is_some_and(|states| states.iter().any(|state| is_meant(*state)))
    }

    /// Changes what is agreed about those tasks between these places whose state is meant. Says from which one to which one that
    /// happened to all of them, as often as there are such stretches.
    pub(super) fn change(
        &mut self,
        ends: &RangeInclusive<u64>,
        is_meant: impl Fn(State) -> bool,
        next: State,
        mut each: impl FnMut(u64, u64),
    ) {
        let places = places(ends, self.states.len());
        let (mut index, mut begin, mut changed) = (places.start as u64, None, 0);
        for state in self.states.get_mut(places).unwrap_or_default() {
            if is_meant(*state) {
                *self.counts.of(*state) -= 1;
                *state = next;
                changed += 1;
                begin.get_or_insert(index + 1);
            } else if let Some(first) = begin.take() {
                each(first, index);
            }
            index += 1;
        }
        if let Some(first) = begin {
            each(first, index);
        }
        *self.counts.of(next) += changed;
        self.open = self.counts.waiting + self.counts.started;
    }
}

/// Where the tasks between these places stand among so many.
fn places(ends: &RangeInclusive<u64>, len: usize) -> Range<usize> {
    let place = |index: u64| usize::try_from(index).unwrap_or(len).min(len);
    place(ends.start().saturating_sub(1))..place(*ends.end())
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_gets_its_number_or_its_line() {
        let mut lines = Lines::default();
        for line in ["a", "", "long line", "ü"] {
            assert!(lines.push(line));
        }
        let expansion = Expansion::Lines(lines);
        assert_eq!(expansion.len(), 4);
        let all: Vec<String> = (1..=5).map(|index| expansion.argument(index)).collect();
        assert_eq!(all, ["a", "", "long line", "ü", ""]);
        assert_eq!(Expansion::Array { first: 5, last: 9 }.argument(2), "6");
        assert_eq!(Expansion::Array { first: 5, last: 9 }.len(), 5);
        assert_eq!(Expansion::Array { first: 0, last: u64::MAX }.len(), u64::MAX);
        assert_eq!(Expansion::Array { first: 9, last: 5 }.len(), 0);
    }

    #[test]
    fn braces_become_the_argument_and_nothing_else_is_expanded() {
        let command = CommandLine {
            arguments: ["cp", "{}", "$HOME/{}.b"].map(String::from).to_vec(),
            ..CommandLine::default()
        };
        assert_eq!(command.arguments_for("x"), ["cp", "x", "$HOME/x.b"]);
        assert_eq!(command.arguments_for("{}"), ["cp", "{}", "$HOME/{}.b"], "braces of the argument stay");
    }
}
