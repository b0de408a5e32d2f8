//! What control does for want of room: a leader refuses writes, and a follower leaves out what it cannot pass on.

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::election::Election;
use primus_core::machine::Outbox;
use primus_replica::consensus::Consensus;
use primus_replica::replica;

use super::{Control, Message, Notice};

impl<E: Election, R: Consensus> Control<E, R> {
    /// A server that does not lead says who does; that comes from the log.
    pub(super) fn write(&mut self, entries: Vec<Bytes>, brings_content: bool, out: &mut Outbox<Self>) {
        let refusal = self.room.refusal(brings_content).filter(|_| self.leader == Some(self.id));
        match refusal {
            Some(refusal) => out.notify(Notice::NoRoom(refusal, entries)),
            None => self.tell_replica(replica::Command::Propose(entries), out),
        }
    }

    /// A follower whose farm is behind takes nothing more of the log. The leader asks how far it is, and sends it again.
    pub(super) fn is_too_much(&self, message: &Message<E::Message>) -> bool {
        self.room.is_behind && self.leader != Some(self.id) && message.brings_log()
    }

    /// Are so many disks full that a majority cannot write? A server without a link cannot in any case.
    #[must_use]
    pub fn are_disks_full(&self, is_up: impl Fn(ServerId) -> bool) -> bool {
        let is_full = |server: &ServerId| self.loads.known.get(server).is_some_and(|load| load.is_disk_full);
        // In most turns nobody has to be counted.
        if !self.loads.known.values().any(|load| load.is_disk_full) {
            return false;
        }
        let peers = self.replica.peers();
        let with_room = peers.iter().filter(|peer| is_up(**peer) && !is_full(peer)).count();
        let servers = peers.len() + 1;
        with_room + usize::from(!is_full(&self.id)) <= servers / 2
    }
}
