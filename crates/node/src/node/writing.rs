//! What a turn has for the disk, and what waits for it.

use primus_core::ServerId;
use primus_core::machine::Token;
use primus_replica::message::Record;

use super::carry_out::ControlWords;
use crate::disk::Disk;

/// So many records go to the disk before the turn is over.
const RECORDS_MAX: usize = 256;
/// How many messages may wait for the disk. Those that are lost are asked for again.
const WAITING_MAX: usize = 16 * 1024;

/// A message, to whom it goes, and what must be on the disk before.
type Waiting = (Token, ServerId, ControlWords);

/// The disk, and what is on its way there.
pub(super) struct Writing {
    pub(super) disk: Disk,
    /// What this turn has for the disk, so that it shares one fsync.
    records: Vec<Record>,
    token: Option<Token>,
    waiting: Vec<Waiting>,
}

impl Writing {
    pub(super) const fn new(disk: Disk) -> Self {
        Self { disk, records: Vec::new(), token: None, waiting: Vec::new() }
    }

    pub(super) fn add(&mut self, token: Token, records: Vec<Record>) {
        self.records.extend(records);
        self.token = self.token.max(Some(token));
        if self.records.len() >= RECORDS_MAX {
            self.flush();
        }
    }

    /// Hands everything of this turn to the disk at once. Was there anything?
    pub(super) fn flush(&mut self) -> bool {
        let token = self.token.take();
        token.into_iter().for_each(|token| self.disk.write(token, std::mem::take(&mut self.records)));
        token.is_some()
    }

    /// What waits already need not wait twice: a full disk keeps everything waiting for long.
    pub(super) fn wait(&mut self, message: Waiting) {
        if self.waiting.len() < WAITING_MAX && self.waiting.last() != Some(&message) {
            self.waiting.push(message);
        }
    }

    /// So much is on the disk. What has waited for it?
    pub(super) fn take_ready(&mut self, token: Token) -> Vec<Waiting> {
        let (ready, waiting) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(after, ..)| *after <= token);
        self.waiting = waiting;
        ready
    }
}
