//! How loaded all servers are, and whom the leader misses: what the leader knows, and tells the others.

use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_core::election::{self, Election};
use primus_core::load::Load;
use primus_core::machine::Outbox;
use primus_replica::consensus::Consensus;

use super::{Control, Message};

/// What is known of all servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Loads {
    /// Their loads, as far as they are known.
    pub(super) known: BTreeMap<ServerId, Load>,
    /// Whom the leader misses, as it said last.
    missing: Vec<ServerId>,
}

impl<E: Election, R: Consensus> Control<E, R> {
    /// The loads of all servers, as far as they are known here.
    pub const fn loads(&self) -> &BTreeMap<ServerId, Load> {
        &self.loads.known
    }

    /// Has nothing been heard of this peer for long? A follower goes by what the leader says.
    #[must_use]
    pub fn is_missing(&self, peer: ServerId) -> bool {
        match self.leader {
            Some(leader) if leader == self.id => self.hearing.is_missing(peer),
            _ => self.loads.missing.contains(&peer),
        }
    }

    /// A star, not a mesh: as many messages as servers, not as many as pairs.
    pub(super) fn on_load(&mut self, load: Load, out: &mut Outbox<Self>) {
        self.loads.known.insert(self.id, load);
        self.tell_election(election::Command::Score(load.score), out);
        match self.leader {
            Some(leader) if leader == self.id => {
                let table: Vec<_> = self.loads.known.iter().map(|(id, load)| (*id, *load)).collect();
                let missing = self.replica.peers().into_iter().filter(|peer| self.hearing.is_missing(*peer));
                self.tell_peers(&Message::Loads(table, missing.collect()), out);
            }
            Some(leader) => out.send(leader, Message::Loads(vec![(self.id, load)], Vec::new())),
            None => {}
        }
    }

    pub(super) fn on_loads(
        &mut self,
        from: ServerId,
        loads: Vec<(ServerId, Load)>,
        missing: Vec<ServerId>,
        out: &mut Outbox<Self>,
    ) {
        // Of others only the leader speaks, and only of servers that there are.
        let peers = self.replica.peers();
        if self.leader == Some(from) {
            let missing = missing.into_iter().filter(|peer| peers.contains(peer));
            self.loads.missing = missing.take(peers.len()).collect();
        }
        let is_credible = |id: &ServerId| peers.contains(id) && (*id == from || self.leader == Some(from));
        let news: Vec<_> = loads.into_iter().filter(|(id, _)| is_credible(id)).collect();
        for (id, load) in news {
            self.loads.known.insert(id, load);
            self.tell_election(election::Command::PeerScore(id, load.score), out);
        }
    }
}
