//! Who can take over from a leader, and why somebody cannot.
//!
//! The engine takes no proposals while leadership is handed over. A server that is silent would not answer, and one that
//! is far behind would have to be told too much first, so both are refused before anything is stopped.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_core::machine::Delay;
use primus_replica::Consensus;
use primus_replica::replica::Role;

use crate::gave_way::GaveWay;

/// How long whoever should take over may take on a local network; until then nothing can be written.
pub(crate) const TRANSFER: Delay = Delay::exactly_ms(20);
/// Everybody answers at least every third of a leader's ticks; who has not done so for this many is dead, frozen or cut off.
const SILENT_TICKS: u32 = 6;
/// Whoever has been silent for this many is missing, as people are told: short pauses are no news to them.
const MISSING_TICKS: u32 = 40;
/// How many entries whoever should take over may still miss.
const MISSING_MAX: u64 = 1000;

/// Why nobody took over.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error, serde::Serialize, serde::Deserialize,
)]
pub enum Obstacle {
    /// This server does not lead.
    #[error("this server does not lead")]
    NotLeading,
    /// There is nobody else who could.
    #[error("no other server could take over")]
    Nobody,
    /// It has said nothing for a while.
    #[error("server {0} is dead, frozen or cut off")]
    Silent(ServerId),
    /// It misses this many entries.
    #[error("server {0} is not caught up, it misses {1} entries")]
    Behind(ServerId, u64),
    /// It was told to, and did not.
    #[error("server {0} did not take over in time")]
    NoAnswer(ServerId),
}

/// For how many ticks each peer has been silent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Hearing {
    silent_ticks: BTreeMap<ServerId, u32>,
    /// How many ticks a round trip takes, on links that are slower than a local network.
    slower_ticks: u32,
}

impl Hearing {
    pub(crate) fn on_message(&mut self, from: ServerId) {
        self.silent_ticks.insert(from, 0);
    }

    /// Its link is lost: until it is heard again it counts as silent.
    pub(crate) fn on_lost(&mut self, peer: ServerId) {
        self.silent_ticks.insert(peer, u32::MAX);
    }

    /// A round trip takes this many ticks longer than on a local network.
    pub(crate) fn slower(&mut self, ticks: u64) {
        self.slower_ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
    }

    /// This server leads from now on, and so hears everybody. What it did not hear before says little.
    pub(crate) fn on_lead(&mut self) {
        self.silent_ticks.values_mut().for_each(|ticks| *ticks = (*ticks).min(SILENT_TICKS));
    }

    pub(crate) fn on_tick(&mut self, peers: Vec<ServerId>) {
        for peer in peers {
            // Who was never heard counts as silent.
            let ticks = self.silent_ticks.entry(peer).or_insert(u32::MAX);
            *ticks = ticks.saturating_add(1);
        }
    }

    /// Who can take over: the one that is wanted, or whoever is nearest to having everything. One that gave way does so only
    /// if no other can.
    pub(crate) fn successor(
        &self,
        replica: &impl Consensus,
        to: Option<ServerId>,
        gave_way: &GaveWay,
    ) -> Result<ServerId, Obstacle> {
        if replica.view().0 != Role::Leader {
            return Err(Obstacle::NotLeading);
        }
        let wanted = replica.peers().into_iter().filter(|peer| to.is_none_or(|to| to == *peer));
        let rated = wanted.map(|peer| (self.obstacle(replica, peer), peer));
        let best = rated.min_by_key(|(obstacle, peer)| {
            (*obstacle, gave_way.contains(*peer), Reverse(replica.matched(*peer)), Reverse(*peer))
        });
        match best {
            Some((None, peer)) => Ok(peer),
            Some((Some(obstacle), _)) => Err(obstacle),
            None => Err(Obstacle::Nobody),
        }
    }

    fn obstacle(&self, replica: &impl Consensus, peer: ServerId) -> Option<Obstacle> {
        let (last, _) = replica.extent();
        self.judge(peer, last.saturating_sub(replica.matched(peer).unwrap_or(0)))
    }

    /// Has it said nothing for a while?
    pub(crate) fn is_silent(&self, peer: ServerId) -> bool {
        let ticks_max = SILENT_TICKS.saturating_add(self.slower_ticks);
        self.silent_ticks.get(&peer).is_none_or(|ticks| *ticks >= ticks_max)
    }

    /// Has it said nothing for so long that people should know?
    pub(crate) fn is_missing(&self, peer: ServerId) -> bool {
        self.silent_ticks.get(&peer).is_some_and(|ticks| *ticks >= MISSING_TICKS)
    }

    fn judge(&self, peer: ServerId, missing: u64) -> Option<Obstacle> {
        let is_behind = missing > MISSING_MAX;
        match (self.is_silent(peer), is_behind) {
            (true, _) => Some(Obstacle::Silent(peer)),
            (false, true) => Some(Obstacle::Behind(peer, missing)),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_not_heard_for_some_ticks_cannot_take_over() {
        let (mut hearing, peer) = (Hearing::default(), ServerId(2));
        hearing.on_tick(vec![peer]);
        assert_eq!(hearing.judge(peer, 0), Some(Obstacle::Silent(peer)), "nobody has heard it yet");
        hearing.on_message(peer);
        (1..SILENT_TICKS).for_each(|_| hearing.on_tick(vec![peer]));
        assert_eq!(hearing.judge(peer, 0), None);
        hearing.on_tick(vec![peer]);
        assert_eq!(hearing.judge(peer, 0), Some(Obstacle::Silent(peer)));
        hearing.on_message(peer);
        hearing.on_lost(peer);
        assert_eq!(hearing.judge(peer, 0), Some(Obstacle::Silent(peer)));
    }

    #[test]
    fn only_a_leader_that_hears_nothing_for_long_misses_somebody() {
        let (mut hearing, peer) = (Hearing::default(), ServerId(2));
        (0..100).for_each(|_| hearing.on_tick(vec![peer]));
        hearing.on_lead();
        assert!(hearing.is_silent(peer) && !hearing.is_missing(peer), "followers do not hear each other");
        (SILENT_TICKS..MISSING_TICKS).for_each(|_| hearing.on_tick(vec![peer]));
        assert!(hearing.is_missing(peer));
        hearing.on_message(peer);
        assert!(!hearing.is_missing(peer));
    }

    #[test]
    fn whoever_misses_too_much_cannot_take_over() {
        let (mut hearing, peer) = (Hearing::default(), ServerId(2));
        hearing.on_message(peer);
        assert_eq!(hearing.judge(peer, MISSING_MAX), None);
        assert_eq!(hearing.judge(peer, MISSING_MAX + 1), Some(Obstacle::Behind(peer, MISSING_MAX + 1)));
    }
}
