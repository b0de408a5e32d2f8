//! Questions under way: how much of the log must be applied to know of everything that was acknowledged before?
//!
//! The log says how far that is, once a majority has said that this server leads; whoever asks then looks at what is applied
//! that far. Nothing is read here.

use std::collections::BTreeMap;

use crate::handle::{Reply, Unable};

/// How many of them may wait for a new leader to be ready.
const EARLY_MAX: usize = 1024;

/// How far the log is: here, and what the farm was last told of it.
#[derive(Clone, Copy)]
pub(crate) struct Applied {
    pub(crate) index: u64,
    pub(crate) told: u64,
}

/// Where the answer goes: how far the farm must be.
pub(crate) type Read = Reply<u64>;

/// All of them.
#[derive(Default)]
pub(crate) struct Reads {
    last: u64,
    /// Those that the log was asked for, by number.
    asked: BTreeMap<u64, Read>,
    /// Those that wait until a new leader knows everything that its predecessors acknowledged.
    early: Vec<Read>,
    /// Those that wait until so much of the log is known here.
    late: BTreeMap<u64, Vec<Read>>,
}

impl Reads {
    /// Gives a read the number under which the log is to be asked.
    pub(crate) fn ask(&mut self, read: Read) -> u64 {
        self.last += 1;
        self.asked.insert(self.last, read);
        self.last
    }

    /// This much must be known.
    pub(crate) fn on_readable(&mut self, number: u64, index: u64, applied: Applied) {
        if let Some(read) = self.asked.remove(&number) {
            self.late.entry(index).or_default().push(read);
            self.answer(applied);
        }
    }

    /// The log cannot say yet, or not here: it waits if this server leads and will be ready soon.
    pub(crate) fn on_unreadable(&mut self, number: u64, leads: bool, unable: Unable) {
        let Some(read) = self.asked.remove(&number) else { return };
        if leads && self.early.len() < EARLY_MAX {
            self.early.push(read);
        } else {
            _ = read.send(Err(unable));
        }
    }

    /// Those that came too early.
    pub(crate) fn take_early(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.early)
    }

    /// Answers what can be answered.
    pub(crate) fn answer(&mut self, applied: Applied) {
        while let Some(first) = self.late.first_entry().filter(|first| *first.key() <= applied.index) {
            first.remove().into_iter().for_each(|read| _ = read.send(Ok(applied.told)));
        }
    }

    /// Nobody here can say.
    pub(crate) fn refuse(&mut self, unable: Unable) {
        let asked = std::mem::take(&mut self.asked).into_values();
        asked.chain(self.take_early()).for_each(|read| _ = read.send(Err(unable)));
    }
}
