//! What a server counts and times, for people who watch it. Any thread may add, any thread may look.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use primus_server::room::Disks;

/// All that is counted.
#[derive(Debug, Default)]
pub struct Meters {
    /// Messages to peers.
    pub sent: Counter,
    /// Messages from peers.
    pub received: Counter,
    /// Those among them that no server says, and that were not heard.
    pub strange: Counter,
    /// How long writes took until they were durable.
    pub syncs: Histogram,
    /// How long proposals took until they were acknowledged.
    pub commits: Histogram,
    /// Is there no room on the disk for anything new?
    pub disk_full: Flag,
    /// Can nothing be written at all, so that writes wait for room?
    pub disk_stuck: Flag,
    /// Are there too few servers with room on their disks, so that nothing new would be acknowledged?
    pub disks_full: Flag,
    /// How often another server began to lead, by reason.
    pub changes: Tally,
    /// How many hooks ended, by how they did.
    pub hooks: Tally,
    /// How often a candidate showed the token of a lease that had ended.
    pub old_terms: Counter,
    /// How many steps of loans this server has seen as the leader, by what they were.
    pub loans: Tally,
    /// How many bytes of content are agreed on, about.
    pub state_len: Gauge,
    /// Is that as much as there may be?
    pub(crate) state_full: Flag,
    /// How many workers are lent, if this server leads.
    pub lent: Gauge,
    /// How many are borrowed, if this server leads.
    pub borrowed: Gauge,
}

/// How often what happened.
#[derive(Debug, Default)]
pub struct Tally(Mutex<BTreeMap<&'static str, u64>>);

/// A number that grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

/// What is so or not.
#[derive(Debug, Default)]
pub struct Flag(AtomicBool);

/// How many things took how long.
#[derive(Debug, Default)]
pub struct Histogram {
    /// How many took no longer than the bound at the same place, and longer than the bound before.
    counts: [Counter; Histogram::BOUNDS_US.len()],
    /// How many took longer than all bounds.
    beyond: Counter,
    sum_us: Counter,
}

impl Meters {
    /// What the disks have room for.
    pub(crate) fn disks(&self) -> Disks {
        match (self.disk_stuck.get(), self.disk_full.get(), self.disks_full.get()) {
            (true, ..) => Disks::Stuck,
            (_, true, _) => Disks::OwnFull,
            (.., true) => Disks::MostFull,
            _ => Disks::Free,
        }
    }
}

impl Tally {
    pub(crate) fn add(&self, what: &'static str) {
        *self.0.lock().expect("nobody panics while holding this").entry(what).or_default() += 1;
    }

    /// All that has happened.
    #[must_use]
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().expect("nobody panics while holding this").clone()
    }
}

impl Flag {
    pub(crate) fn set(&self, is_so: bool) {
        self.0.store(is_so, Ordering::Relaxed);
    }

    /// Is it so?
    #[must_use]
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    pub(crate) fn set(&self, number: usize) {
        self.0.store(number as u64, Ordering::Relaxed);
    }

    /// How much it is now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// How far it has grown.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Histogram {
    /// The bounds between which is counted.
    pub const BOUNDS_US: [u64; 12] =
        [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000];

    pub(crate) fn add(&self, length: Duration) {
        let us = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let place = Self::BOUNDS_US.iter().position(|bound| us <= *bound);
        place.map_or(&self.beyond, |place| &self.counts[place]).add(1);
        self.sum_us.add(us);
    }

    /// How many took no longer than each bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut sum = 0;
        Self::BOUNDS_US.into_iter().zip(&self.counts).map(move |(bound, count)| {
            sum += count.get();
            (bound, sum)
        })
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.beyond.get() + self.counts.iter().map(Counter::get).sum::<u64>()
    }

    /// How long all took together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_us.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_counted_once_and_under_all_bounds_that_it_keeps() {
        let histogram = Histogram::default();
        for ms in [0, 1, 3, 2_000] {
            histogram.add(Duration::from_millis(ms));
        }
        let at = |bound: u64| histogram.cumulative().find(|(us, _)| *us == bound).map(|(_, count)| count);
        assert_eq!([100, 1_000, 2_500, 5_000, 1_000_000].map(at), [1, 2, 2, 3, 3].map(Some));
        assert_eq!((histogram.count(), histogram.sum()), (4, Duration::from_millis(2_004)));
    }
}
