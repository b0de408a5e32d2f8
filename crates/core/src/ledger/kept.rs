//! Results as the ledger keeps them: in few bytes, because there may be a hundred thousand, and most of them say little.
//!
//! A result is written down as a string of bytes in which a number takes as many as it needs, and what most results do not have
//! takes one. The results of neighbouring tasks stand behind one another on one shelf: a task's result is found by looking
//! through a few, and a map of single ones would take more room for itself than for them. In which order tasks ended is written
//! down in the same way, as what changes from one to the next.

use crate::Term;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use super::job::JobId;
use super::task::{Attempt, Outcome, Tail, TaskId, Verdict};

/// How many neighbours share a shelf.
const SHELF_LEN: u64 = 32;

/// All results that are kept, and all tasks that have ended as long as that is of interest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Results {
    shelves: BTreeMap<(JobId, u64), Shelf>,
    /// How many bytes all results have together.
    len: u64,
    order: Order,
}

impl Results {
    /// A task ended at this time, and this is its result; what was cancelled has none.
    pub(super) fn add(&mut self, time_ms: u64, task: TaskId, outcome: Option<&Outcome>) {
        self.order.push(Ended { time_ms, task });
        let Some(outcome) = outcome else { return };
        self.remove(task);
        let shelf = self.shelves.entry(shelf_of(task)).or_default();
        self.len += shelf.add(place_of(task), &written(outcome));
    }

    /// A task's result, if it is kept.
    pub(super) fn get(&self, task: TaskId) -> Option<Outcome> {
        read(self.shelves.get(&shelf_of(task))?.get(place_of(task))?)
    }

    /// How many tasks have ended.
    pub(super) const fn count(&self) -> usize {
        self.order.count
    }

    /// How many bytes all results have together.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Is there a result of this job?
    pub(super) fn has_any_of(&self, job: JobId) -> bool {
        self.shelves.range((job, 0)..=(job, u64::MAX)).next().is_some()
    }

    /// When the first one ended that has not been forgotten.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.order.first.map(|ended| ended.time_ms)
    }

    /// When the last one ended.
    pub(super) fn newest_ms(&self) -> Option<u64> {
        self.order.last.map(|ended| ended.time_ms)
    }

    /// Forgets the task that ended first. Which one was that?
    pub(super) fn forget_oldest(&mut self) -> Option<TaskId> {
        let task = self.order.pop()?.task;
        self.remove(task);
        Some(task)
    }

    /// These are to run again, so they have not ended.
    pub(super) fn take_out(&mut self, tasks: &BTreeSet<TaskId>) {
        if tasks.is_empty() {
            return;
        }
        let mut order = Order::default();
        while let Some(ended) = self.order.pop() {
            if !tasks.contains(&ended.task) {
                order.push(ended);
            }
        }
        self.order = order;
        tasks.iter().for_each(|task| self.remove(*task));
    }

    fn remove(&mut self, task: TaskId) {
        let Some(shelf) = self.shelves.get_mut(&shelf_of(task)) else { return };
        self.len = self.len.saturating_sub(shelf.remove(place_of(task)));
        if shelf.0.is_empty() {
            self.shelves.remove(&shelf_of(task));
        }
    }
}

const fn shelf_of(task: TaskId) -> (JobId, u64) {
    (task.job, task.index / SHELF_LEN)
}

fn place_of(task: TaskId) -> u8 {
    u8::try_from(task.index % SHELF_LEN).expect("a shelf has few places")
}

/// Results of neighbours, in the order in which they came: a place, a length, and as many bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Shelf(Vec<u8>);

impl Shelf {
    /// How many bytes did it grow by?
    fn add(&mut self, place: u8, result: &[u8]) -> u64 {
        let mut head = Vec::with_capacity(4);
        head.push(place);
        put_number(&mut head, result.len() as u64);
        let len = head.len() + result.len();
        if self.0.capacity() - self.0.len() < len {
            // Doubling would leave a quarter of all shelves empty, on average.
            self.0.reserve_exact(len.max(self.0.len() / 8));
        }
        self.0.extend_from_slice(&head);
        self.0.extend_from_slice(result);
        len as u64
    }

    fn get(&self, place: u8) -> Option<&[u8]> {
        self.find(place).map(|(_, result)| result)
    }

    /// How many bytes did it shrink by?
    fn remove(&mut self, place: u8) -> u64 {
        let Some((range, _)) = self.find(place) else { return 0 };
        let len = range.len() as u64;
        self.0.drain(range);
        if self.0.len() < self.0.capacity() / 2 {
            self.0.shrink_to_fit();
        }
        len
    }

    /// Where the result of a place stands, and its bytes.
    fn find(&self, place: u8) -> Option<(Range<usize>, &[u8])> {
        let mut rest = Reading(&self.0);
        loop {
            let start = self.0.len() - rest.0.len();
            let is_it = rest.byte()? == place;
            let result = rest.bytes()?;
            if is_it {
                return Some((start..self.0.len() - rest.0.len(), result));
            }
        }
    }
}

/// That a task ended, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Ended {
    time_ms: u64,
    task: TaskId,
}

/// The tasks in the order in which they ended: the first and the last, and what changes from each to the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Order {
    first: Option<Ended>,
    last: Option<Ended>,
    steps: VecDeque<u8>,
    count: usize,
}

impl Order {
    fn push(&mut self, ended: Ended) {
        self.count += 1;
        match self.last.replace(ended) {
            None => self.first = Some(ended),
            Some(before) => {
                let steps = before.fields().into_iter().zip(ended.fields());
                steps.for_each(|(from, to)| put_step(&mut self.steps, to.wrapping_sub(from)));
            }
        }
    }

    fn pop(&mut self) -> Option<Ended> {
        let first = self.first.take()?;
        self.count = self.count.saturating_sub(1);
        self.first = self.next_after(first);
        if self.first.is_none() {
            *self = Self::default();
        }
        Some(first)
    }

    fn next_after(&mut self, before: Ended) -> Option<Ended> {
        let [time_ms, job, index] = before.fields();
        let mut next = |from: u64| Some(from.wrapping_add(take_step(&mut self.steps)?));
        Some(Ended { time_ms: next(time_ms)?, task: TaskId { job: JobId(next(job)?), index: next(index)? } })
    }
}

impl Ended {
    const fn fields(self) -> [u64; 3] {
        [self.time_ms, self.task.job.0, self.task.index]
    }
}

/// A small step takes a byte, whether it goes up or down.
fn put_step(steps: &mut VecDeque<u8>, step: u64) {
    let is_down = step >> 63;
    put_number(steps, (step << 1) ^ is_down.wrapping_neg());
}

fn take_step(steps: &mut VecDeque<u8>) -> Option<u64> {
    let folded = number(|| steps.pop_front())?;
    Some((folded >> 1) ^ (folded & 1).wrapping_neg())
}

/// How attempts end, as bytes.
const EXITED: u8 = 0;
const SIGNALLED: u8 = 1;
const TIMED_OUT: u8 = 2;
const REFUSED: u8 = 3;
const LOST: u8 = 4;

fn written(outcome: &Outcome) -> Vec<u8> {
    let Outcome { attempt, worker, verdict, started_us, took_us, stdout, stderr } = outcome;
    let mut bytes = Vec::with_capacity(64);
    for number in [attempt.term.0, attempt.sequence, *started_us, *took_us] {
        put_number(&mut bytes, number);
    }
    put_bytes(&mut bytes, worker.as_bytes());
    match verdict {
        Verdict::Exited(code) => bytes.extend([EXITED, *code]),
        Verdict::Signalled(signal) => bytes.extend([SIGNALLED, *signal]),
        Verdict::TimedOut => bytes.push(TIMED_OUT),
        Verdict::Refused(reason) => {
            bytes.push(REFUSED);
            put_bytes(&mut bytes, reason.as_bytes());
        }
        Verdict::Lost => bytes.push(LOST),
    }
    for tail in [stdout, stderr] {
        put_number(&mut bytes, tail.total);
        put_bytes(&mut bytes, &tail.bytes);
    }
    bytes
}

fn read(bytes: &[u8]) -> Option<Outcome> {
    let mut rest = Reading(bytes);
    let attempt = Attempt { term: Term(rest.number()?), sequence: rest.number()? };
    let (started_us, took_us) = (rest.number()?, rest.number()?);
    let worker = rest.text()?;
    let verdict = match rest.byte()? {
        EXITED => Verdict::Exited(rest.byte()?),
        SIGNALLED => Verdict::Signalled(rest.byte()?),
        TIMED_OUT => Verdict::TimedOut,
        REFUSED => Verdict::Refused(rest.text()?),
        LOST => Verdict::Lost,
        _ => return None,
    };
    let (stdout, stderr) = (rest.tail()?, rest.tail()?);
    Some(Outcome { attempt, worker, verdict, started_us, took_us, stdout, stderr })
}

/// What is left to be read.
struct Reading<'a>(&'a [u8]);

impl<'a> Reading<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        number(|| self.byte())
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    fn tail(&mut self) -> Option<Tail> {
        Some(Tail { total: self.number()?, bytes: self.bytes()?.to_vec() })
    }
}

/// Seven bits to a byte, the least first; the eighth says whether more follow.
fn put_number(bytes: &mut impl Extend<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    bytes.extend([number as u8]);
}

fn number(mut next: impl FnMut() -> Option<u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn put_bytes(bytes: &mut Vec<u8>, more: &[u8]) {
    put_number(bytes, more.len() as u64);
    bytes.extend_from_slice(more);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(sequence: u64, verdict: Verdict, printed: &str) -> Outcome {
        Outcome {
            attempt: Attempt { term: Term(2), sequence },
            worker: "worker-1".into(),
            verdict,
            started_us: 1_700_000_000_000_000,
            took_us: 5000,
            stdout: Tail { total: printed.len() as u64, bytes: printed.into() },
            stderr: Tail::default(),
        }
    }

    const fn task(job: u64, index: u64) -> TaskId {
        TaskId { job: JobId(job), index }
    }

    #[test]
    fn a_result_comes_out_as_it_went_in() {
        let refused = Verdict::Refused("ü".repeat(300));
        let verdicts = [Verdict::Exited(0), Verdict::Exited(255), Verdict::TimedOut, Verdict::Lost, refused];
        let long = "x".repeat(4096);
        let mut results = Results::default();
        for (index, verdict) in (1..).zip(verdicts.into_iter().chain([Verdict::Signalled(9)])) {
            for printed in ["", "hello", &long] {
                let outcome = outcome(u64::MAX - index, verdict.clone(), printed);
                results.add(index, task(7, index), Some(&outcome));
                assert_eq!(results.get(task(7, index)), Some(outcome));
            }
        }
        assert_eq!(results.get(task(7, 7)), None);
        assert_eq!(results.get(task(8, 1)), None);
    }

    #[test]
    fn results_are_forgotten_in_the_order_in_which_they_came() {
        let mut results = Results::default();
        // Up, down, far away, and at the ends of what there is.
        let order = [(1, 40), (1, 2), (3, 1), (2, u64::MAX), (u64::MAX, 1), (1, 41)];
        for (time_ms, (job, index)) in [9, 12, 5, u64::MAX, 0, 7].into_iter().zip(order) {
            results.add(time_ms, task(job, index), Some(&outcome(time_ms, Verdict::Exited(0), "")));
        }
        results.add(8, task(5, 5), None);
        results.take_out(&BTreeSet::from([task(3, 1)]));
        let mut forgotten = Vec::new();
        while let Some(time_ms) = results.oldest_ms() {
            forgotten.extend(results.forget_oldest().map(|task| (time_ms, task.job.0, task.index)));
        }
        let expected = [(9, 1, 40), (12, 1, 2), (u64::MAX, 2, u64::MAX), (0, u64::MAX, 1), (7, 1, 41), (8, 5, 5)];
        assert_eq!(forgotten, expected);
        assert_eq!(results, Results::default());
    }

    #[test]
    fn a_result_takes_little_room() {
        let mut results = Results::default();
        let count = 10_000;
        // No task ends right after its neighbour.
        for number in 0..count {
            let index = 1 + number * 7919 % count;
            results.add(number / 10, task(1, index), Some(&outcome(index, Verdict::Exited(0), "")));
        }
        let shelves: usize = results.shelves.values().map(|shelf| shelf.0.capacity()).sum();
        let bytes = (shelves + results.order.steps.capacity()) as u64 / count;
        assert!(bytes <= 48, "{bytes} bytes for each result");
        assert!(results.len() <= shelves as u64);
    }

    #[test]
    fn bytes_that_make_no_sense_are_no_result() {
        let bytes = written(&outcome(1, Verdict::Refused("no".into()), "hello"));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None, "{end}");
        }
        assert_eq!(Shelf(alloc::vec![0xff; 40]).get(0), None);
        assert_eq!(number(|| Some(0xff)), None);
    }
}
