//! The results that a worker keeps until they are recorded: gathered for the disk, then being written, then on it.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{Record, Timer, Worker};
use crate::ledger::{Held, Report};
use crate::machine::{Delay, Outbox, Token};

/// So many results are written without waiting for more.
const GATHERED_MAX: usize = 1024;

/// How long results may be gathered, while the worker has more to do, before the disk gets them.
const GATHER: Delay = Delay::exactly_ms(5);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Results {
    /// Those that the disk has not been given yet: it gets several at once while there is more to do anyway.
    gathered: Vec<Report>,
    /// Are they to be written when their timer says so?
    is_gathering: bool,
    /// Those that are not on disk yet. Nobody is told of them: what is told must not be forgotten.
    unwritten: VecDeque<(Token, Report)>,
    /// Those that are on disk, and not known to be recorded.
    ended: BTreeMap<Held, Report>,
    /// What is recorded, though the disk does not know that yet: it learns it with the next results. Until then a restart
    /// would only tell a leader something twice.
    recorded: Vec<Held>,
    last_token: u64,
}

impl Results {
    /// What a disk holds.
    pub(super) fn new(records: impl IntoIterator<Item = Record>) -> Self {
        let mut ended = BTreeMap::new();
        for record in records {
            match record {
                Record::Ended(report) => _ = ended.insert(report.held(), report),
                Record::Forgotten(held) => _ = ended.remove(&held),
            }
        }
        let (gathered, unwritten, recorded) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { gathered, is_gathering: false, unwritten, ended, recorded, last_token: 0 }
    }

    /// Those that are on disk.
    pub(super) fn written(&self) -> impl Iterator<Item = &Report> {
        self.ended.values()
    }

    /// Those that are not on disk yet.
    pub(super) fn untold(&self) -> impl Iterator<Item = Held> + '_ {
        self.unwritten.iter().map(|(_, report)| report).chain(&self.gathered).map(Report::held)
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = Held> + '_ {
        self.ended.keys().copied().chain(self.untold())
    }

    pub(super) fn has(&self, held: Held) -> bool {
        self.ended.contains_key(&held) || self.untold().any(|untold| untold == held)
    }

    pub(super) fn gather(&mut self, report: Report) {
        self.gathered.push(report);
    }

    /// Gives the disk what was gathered: at once if the worker has nothing left to begin, because then somebody may wait for it.
    pub(super) fn write_soon(&mut self, has_more_to_do: bool, out: &mut Outbox<Worker>) {
        if self.gathered.is_empty() {
            return;
        }
        if !has_more_to_do || self.gathered.len() >= GATHERED_MAX {
            self.write(out);
        } else if !core::mem::replace(&mut self.is_gathering, true) {
            out.set(Timer::Gather, GATHER);
        }
    }

    pub(super) fn on_gather_time(&mut self, out: &mut Outbox<Worker>) {
        self.is_gathering = false;
        self.write(out);
    }

    /// Tells the disk from time to time what is recorded, although no results come.
    pub(super) fn on_beat(&mut self, out: &mut Outbox<Worker>) {
        if self.gathered.is_empty() {
            self.write(out);
        }
    }

    fn write(&mut self, out: &mut Outbox<Worker>) {
        self.last_token += 1;
        let token = Token(self.last_token);
        let recorded = core::mem::take(&mut self.recorded).into_iter().map(Record::Forgotten);
        let ended = self.gathered.iter().cloned().map(Record::Ended);
        let records: Vec<Record> = recorded.chain(ended).collect();
        self.unwritten.extend(self.gathered.drain(..).map(|report| (token, report)));
        if !records.is_empty() {
            out.persist(token, records);
        }
        if core::mem::take(&mut self.is_gathering) {
            out.cancel(Timer::Gather);
        }
    }

    /// Those that are on disk from now on.
    pub(super) fn on_persisted(&mut self, token: Token) -> Vec<Report> {
        let count = self.unwritten.iter().take_while(|(written, _)| *written <= token).count();
        let reports: Vec<Report> = self.unwritten.drain(..count).map(|(_, report)| report).collect();
        self.ended.extend(reports.iter().map(|report| (report.held(), report.clone())));
        reports
    }

    /// It is recorded, or will never be.
    pub(super) fn forget(&mut self, held: Held) {
        self.gathered.retain(|report| report.held() != held);
        let before = self.unwritten.len();
        self.unwritten.retain(|(_, report)| report.held() != held);
        if self.ended.remove(&held).is_some() || self.unwritten.len() < before {
            self.recorded.push(held);
        }
    }
}
