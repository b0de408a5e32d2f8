//! Results as the ledger keeps them: in few bytes, because there may be a hundred thousand, and most of them say little.
//!
//! A result is written down by postcard: a number takes as many bytes as it needs, and what most results do not have takes one. The
//! results of neighbouring tasks stand behind one another on one shelf: a task's result is found by looking
//! through a few, and a map of single ones would take more room for itself than for them. In which order tasks ended is kept
//! beside them (`order.rs`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

use serde::{Deserialize, Serialize};

use super::job::JobId;
use super::order::{Order, Stretch};
use super::task::{Outcome, TaskId};

/// How many neighbours share a shelf.
const SHELF_LEN: u64 = 32;

/// What a shelf takes beside the results on it.
const SHELF_BYTES: u64 = 48;

/// All results that are kept, and all tasks that have ended as long as that is of interest.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub(super) struct Results {
    shelves: BTreeMap<(JobId, u64), Shelf>,
    /// How many bytes all results have together.
    len: u64,
    order: Order,
}

impl Results {
    /// A task ended at this time, and this is its result.
    pub(super) fn add(&mut self, time_ms: u64, task: TaskId, outcome: &Outcome) {
        self.add_without(Stretch { time_ms, job: task.job, first: task.index, last: task.index });
        self.remove(task);
        let shelf = self.shelves.entry(shelf_of(task)).or_default();
        self.len += shelf.add(place_of(task), &written(outcome));
    }

    /// These ended, and have no results: they were cancelled.
    pub(super) fn add_without(&mut self, stretch: Stretch) {
        self.order.push(stretch);
    }

    /// A task's result, if it is kept.
    pub(super) fn get(&self, task: TaskId) -> Option<Outcome> {
        read(self.shelves.get(&shelf_of(task))?.get(place_of(task))?)
    }

    /// How many tasks have ended.
    pub(super) const fn count(&self) -> u64 {
        self.order.count()
    }

    /// How many bytes all results have together.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// How many bytes all of this takes, about.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len + SHELF_BYTES * self.shelves.len() as u64 + self.order.len_bytes()
    }

    /// The same, by looking at every result.
    #[cfg(test)]
    pub(super) fn weigh(&self) -> u64 {
        let shelves = self.shelves.values().map(|shelf| SHELF_BYTES + shelf.0.len() as u64);
        shelves.sum::<u64>() + self.order.len_bytes()
    }

    /// Is there a result of this job?
    pub(super) fn has_any_of(&self, job: JobId) -> bool {
        self.shelves.range((job, 0)..=(job, u64::MAX)).next().is_some()
    }

    /// When the first one ended that has not been forgotten.
    pub(super) fn oldest_ms(&self) -> Option<u64> {
        self.order.first().map(|stretch| stretch.time_ms)
    }

    /// When the last one ended.
    pub(super) fn newest_ms(&self) -> Option<u64> {
        self.order.last().map(|stretch| stretch.time_ms)
    }

    /// Forgets tasks that ended first, as many as this at most. Which ones were they? One that has a result goes alone, because
    /// how many must go depends on its length.
    pub(super) fn forget_oldest(&mut self, most: u64) -> Option<Stretch> {
        let oldest = self.order.first()?;
        let stretch = self.order.pop(most.min(self.without_result(oldest)))?;
        self.remove(TaskId { job: stretch.job, index: stretch.first });
        Some(stretch)
    }

    /// How many tasks at the beginning of a stretch certainly have no result.
    fn without_result(&self, stretch: Stretch) -> u64 {
        let task = |index| TaskId { job: stretch.job, index };
        let mut shelves = self.shelves.range(shelf_of(task(stretch.first))..=shelf_of(task(stretch.last)));
        shelves.next().map_or(stretch.len(), |((_, shelf), _)| (shelf * SHELF_LEN).saturating_sub(stretch.first))
    }

    /// Those of these tasks that are meant are to run again, so they have not ended.
    pub(super) fn take_out(&mut self, job: JobId, ends: &RangeInclusive<u64>, is_meant: impl Fn(u64) -> bool) {
        let is_taken = |index: u64| ends.contains(&index) && is_meant(index);
        let mut order = Order::default();
        while let Some(stretch) = self.order.pop(u64::MAX) {
            if stretch.job == job {
                left_of(stretch, is_taken, |left| order.push(left));
            } else {
                order.push(stretch);
            }
        }
        self.order = order;
        let range = (job, ends.start() / SHELF_LEN)..=(job, ends.end() / SHELF_LEN);
        let len = &mut self.len;
        let emptied = self.shelves.extract_if(range, |(_, shelf), results| {
            *len = len.saturating_sub(results.remove_those(|place| is_taken(shelf * SHELF_LEN + u64::from(place))));
            results.0.is_empty()
        });
        emptied.for_each(drop);
    }

    fn remove(&mut self, task: TaskId) {
        let Some(shelf) = self.shelves.get_mut(&shelf_of(task)) else { return };
        self.len = self.len.saturating_sub(shelf.remove(place_of(task)));
        if shelf.0.is_empty() {
            self.shelves.remove(&shelf_of(task));
        }
    }
}

/// What is left of a stretch, as stretches, without those that are taken.
fn left_of(stretch: Stretch, is_taken: impl Fn(u64) -> bool, mut each: impl FnMut(Stretch)) {
    let mut begin = stretch.first;
    for index in stretch.first..=stretch.last {
        if is_taken(index) {
            if begin < index {
                each(Stretch { first: begin, last: index - 1, ..stretch });
            }
            begin = index.saturating_add(1);
        }
    }
    if begin <= stretch.last && !is_taken(stretch.last) {
        each(Stretch { first: begin, ..stretch });
    }
}

const fn shelf_of(task: TaskId) -> (JobId, u64) {
    (task.job, task.index / SHELF_LEN)
}

fn place_of(task: TaskId) -> u8 {
    u8::try_from(task.index % SHELF_LEN).expect("a shelf has few places")
}

/// Results of neighbours, in the order in which they came: a place, a length, and as many bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
struct Shelf(Vec<u8>);

impl Shelf {
    /// How many bytes did it grow by?
    fn add(&mut self, place: u8, result: &[u8]) -> u64 {
        let head = postcard::to_extend(&(place, result.len()), Vec::with_capacity(4));
        let head = head.expect("two numbers can always be written");
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
        self.all().find(|(other, ..)| *other == place).map(|(_, result, _)| result)
    }

    /// How many bytes did it shrink by?
    fn remove(&mut self, place: u8) -> u64 {
        let Some((.., range)) = self.all().find(|(other, ..)| *other == place) else { return 0 };
        let len = range.len() as u64;
        self.0.drain(range);
        if self.0.len() < self.0.capacity() / 2 {
            self.0.shrink_to_fit();
        }
        len
    }

    /// Removes the results of these places. How many bytes did it shrink by?
    fn remove_those(&mut self, is_meant: impl Fn(u8) -> bool) -> u64 {
        let places: Vec<u8> = self.all().map(|(place, ..)| place).filter(|place| is_meant(*place)).collect();
        places.into_iter().map(|place| self.remove(place)).sum()
    }

    /// Each place, the bytes of its result, and where all of that stands.
    fn all(&self) -> impl Iterator<Item = (u8, &[u8], Range<usize>)> {
        let mut rest = self.0.as_slice();
        core::iter::from_fn(move || {
            let start = self.0.len() - rest.len();
            let ((place, result), others) = postcard::take_from_bytes(rest).ok()?;
            rest = others;
            Some((place, result, start..self.0.len() - rest.len()))
        })
    }
}

/// The order of the fields is that of all releases, whose shelves are on disk.
fn written(outcome: &Outcome) -> Vec<u8> {
    let Outcome { attempt, worker, verdict, started_us, took_us, stdout, stderr } = outcome;
    let fields = (attempt, started_us, took_us, worker, verdict, stdout, stderr);
    postcard::to_extend(&fields, Vec::with_capacity(64)).expect("a result can always be written")
}

fn read(bytes: &[u8]) -> Option<Outcome> {
    let (attempt, started_us, took_us, worker, verdict, stdout, stderr) = postcard::from_bytes(bytes).ok()?;
    Some(Outcome { attempt, worker, verdict, started_us, took_us, stdout, stderr })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Term;
    use crate::ledger::task::{Attempt, Tail, Verdict};

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
                results.add(index, task(7, index), &outcome);
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
            results.add(time_ms, task(job, index), &outcome(time_ms, Verdict::Exited(0), ""));
        }
        results.add_without(Stretch { time_ms: 8, job: JobId(5), first: 5, last: 7 });
        results.take_out(JobId(3), &(1..=1), |_| true);
        results.take_out(JobId(5), &(6..=7), |index| index == 6);
        let mut forgotten = Vec::new();
        while let Some(time_ms) = results.oldest_ms() {
            forgotten.extend(
                results.forget_oldest(9).map(|stretch| (time_ms, stretch.job.0, stretch.first, stretch.last)),
            );
        }
        let expected = [(9, 1, 40), (12, 1, 2), (u64::MAX, 2, u64::MAX), (0, u64::MAX, 1), (7, 1, 41), (8, 5, 5)];
        let expected = expected.map(|(time_ms, job, index)| (time_ms, job, index, index));
        assert_eq!(forgotten, [&expected[..], &[(8, 5, 7, 7)]].concat());
        assert_eq!(results, Results::default());
    }

    #[test]
    fn a_result_takes_little_room() {
        let mut results = Results::default();
        let count = 10_000;
        // No task ends right after its neighbour.
        for number in 0..count {
            let index = 1 + number * 7919 % count;
            results.add(number / 10, task(1, index), &outcome(index, Verdict::Exited(0), ""));
        }
        let shelves: usize = results.shelves.values().map(|shelf| shelf.0.capacity()).sum();
        let bytes = (shelves + results.order.len_bytes() as usize) as u64 / count;
        assert!(bytes <= 48, "{bytes} bytes for each result");
        assert!(results.len() <= shelves as u64);
    }

    /// Shelves are on disk.
    #[test]
    fn results_are_written_as_they_always_were() {
        let mut shelf = Shelf::default();
        shelf.add(5, &written(&outcome(300, Verdict::Signalled(9), "hi")));
        let started = [0x80, 0x80, 0xf9, 0xc0, 0xc1, 0xc4, 0x82, 0x03];
        let attempt = [5, 30, 2, 0xac, 0x02];
        let bytes = [&attempt[..], &started, &[0x88, 0x27, 8], b"worker-1", &[1, 9, 2, 2], b"hi", &[0, 0]].concat();
        assert_eq!(shelf.0, bytes);
    }

    #[test]
    fn bytes_that_make_no_sense_are_no_result() {
        let bytes = written(&outcome(1, Verdict::Refused("no".into()), "hello"));
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None, "{end}");
        }
        assert_eq!(Shelf(alloc::vec![0xff; 40]).get(0), None);
    }
}
