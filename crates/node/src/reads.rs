//! Reads under way: each waits until the log has said how far the register must be to answer it, and then for the register.

use std::collections::BTreeMap;

use bytes::Bytes;
use primus_server::register::{Listing, Page, Register};

use crate::handle::{Reply, Unable};

/// How many reads may wait for a new leader to be ready.
const EARLY_MAX: usize = 1024;

/// How far the log is applied: here, and what the farm was last told of it.
#[derive(Clone, Copy)]
pub(crate) struct Applied {
    pub(crate) index: u64,
    pub(crate) told: u64,
}

/// A read under way.
pub(crate) enum Read {
    Get(String, Reply<Option<(Bytes, u64)>>),
    List(Listing, Reply<Page>),
    /// Nothing is read here, but elsewhere, when this is answered.
    Confirm(Reply<u64>),
}

/// All of them.
#[derive(Default)]
pub(crate) struct Reads {
    last: u64,
    /// Those that the log was asked for, by number.
    asked: BTreeMap<u64, Read>,
    /// Those that wait until a new leader knows everything that its predecessors acknowledged.
    early: Vec<Read>,
    /// Those that wait for the register to reach an index.
    late: BTreeMap<u64, Vec<Read>>,
}

impl Reads {
    /// Gives a read the number under which the log is to be asked.
    pub(crate) fn ask(&mut self, read: Read) -> u64 {
        self.last += 1;
        self.asked.insert(self.last, read);
        self.last
    }

    /// The register must have applied this much.
    pub(crate) fn on_readable(&mut self, number: u64, index: u64, applied: Applied, register: &Register) {
        if let Some(read) = self.asked.remove(&number) {
            self.late.entry(index).or_default().push(read);
            self.answer(applied, register);
        }
    }

    /// The log cannot say yet, or not here: it waits if this server leads and will be ready soon.
    pub(crate) fn on_unreadable(&mut self, number: u64, leads: bool, unable: Unable) {
        let Some(read) = self.asked.remove(&number) else { return };
        if leads && self.early.len() < EARLY_MAX {
            self.early.push(read);
        } else {
            read.refuse(unable);
        }
    }

    /// Those that came too early.
    pub(crate) fn take_early(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.early)
    }

    /// Answers what the register is ready for.
    pub(crate) fn answer(&mut self, applied: Applied, register: &Register) {
        while let Some(first) = self.late.first_entry().filter(|first| *first.key() <= applied.index) {
            first.remove().into_iter().for_each(|read| read.answer(applied, register));
        }
    }

    /// Nobody here can say how far the register must be.
    pub(crate) fn refuse(&mut self, unable: Unable) {
        let asked = std::mem::take(&mut self.asked).into_values();
        asked.chain(self.take_early()).for_each(|read| read.refuse(unable));
    }
}

impl Read {
    fn answer(self, applied: Applied, register: &Register) {
        match self {
            Self::Get(key, reply) => _ = reply.send(Ok(register.get(&key))),
            Self::List(listing, reply) => _ = reply.send(Ok(register.page(&listing))),
            Self::Confirm(reply) => _ = reply.send(Ok(applied.told)),
        }
    }

    fn refuse(self, unable: Unable) {
        match self {
            Self::Get(_, reply) => _ = reply.send(Err(unable)),
            Self::List(_, reply) => _ = reply.send(Err(unable)),
            Self::Confirm(reply) => _ = reply.send(Err(unable)),
        }
    }
}
