//! What is agreed on, as far as control has to do with it: it passes everything on to the farm, and says when the log is cut.

use primus_replica::message::{Entry, Record, Snapshot};
use primus_server::record::{Content, State};

use super::{EndError, Running};
use crate::farm::ToFarm;

impl Running {
    /// A new leader has applied everything that was agreed on before once it has applied an entry of its own term.
    pub(super) fn start_leading(&mut self) {
        if let Some(term) = self.relay.start_leading() {
            self.others.tell_farm(ToFarm::Lead(term));
            self.reads.take_early().into_iter().for_each(|read| self.on_read(read));
        }
    }

    /// Those who read learn how far the farm must be; so it is told by then.
    pub(super) fn answer_reads(&mut self) {
        let Some(ready) = self.reads.take_ready(self.relay.applied()) else { return };
        self.others.hurry();
        ready.into_iter().for_each(|read| read.answer(Ok(self.relay.told())));
    }

    /// These are agreed on.
    pub(super) fn apply_all(&mut self, entries: Vec<Entry>) {
        entries.into_iter().for_each(|entry| self.apply(entry));
    }

    fn apply(&mut self, entry: Entry) {
        let index = entry.index;
        self.shown.state.applied = index;
        match self.relay.on_committed(&entry) {
            Content::Register(proposal) => {
                self.answer_write(index, proposal);
                self.others.pass_on(index, entry.data, false);
            }
            Content::Ledger { .. } => self.others.pass_on(index, entry.data, true),
            Content::Fact | Content::Nothing => {}
        }
        self.start_leading();
        self.answer_reads();
        if self.relay.take_cut() {
            self.others.tell_farm(ToFarm::Snapshot(index, self.server.gave_way().clone()));
        }
    }

    pub(super) fn restore(&mut self, snapshot: &Snapshot) {
        let weight = self.others.weigh(snapshot.data.len());
        self.others.tell_farm(ToFarm::Restored(snapshot.index, snapshot.data.clone(), weight));
        self.shown.state.applied = snapshot.index;
        self.relay.on_restored(snapshot);
        self.answer_reads();
    }
}

/// The state that the last snapshot on disk holds, and its place in the log.
pub(super) fn restored(records: &[Record]) -> Result<(u64, State), EndError> {
    let snapshot = records.iter().rev().find_map(|record| match record {
        Record::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    let Some(snapshot) = snapshot else { return Ok((0, State::default())) };
    let state = State::from_bytes(&snapshot.data).ok_or(EndError::Unreadable(snapshot.index))?;
    Ok((snapshot.index, state))
}
