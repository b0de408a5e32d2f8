//! When each peer was last heard. It changes with every message, so nobody is woken by it: whoever wants to know looks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use primus_core::ServerId;

/// The last word of each peer.
#[derive(Debug)]
pub struct Heard {
    started: Instant,
    /// In microseconds after the start; nothing if it has not been heard.
    last_us: BTreeMap<ServerId, AtomicU64>,
}

impl Heard {
    pub(crate) fn new(peers: impl IntoIterator<Item = ServerId>) -> Self {
        let last_us = peers.into_iter().map(|peer| (peer, AtomicU64::new(0))).collect();
        Self { started: Instant::now(), last_us }
    }

    pub(crate) fn hear(&self, peer: ServerId) {
        if let Some(last_us) = self.last_us.get(&peer) {
            last_us.store(self.now_us().max(1), Ordering::Relaxed);
        }
    }

    /// How long ago this peer was heard; nothing if it was not since the server started.
    #[must_use]
    pub fn ago(&self, peer: ServerId) -> Option<Duration> {
        let last_us = self.last_us.get(&peer)?.load(Ordering::Relaxed);
        (last_us > 0).then(|| Duration::from_micros(self.now_us().saturating_sub(last_us)))
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peer_that_was_heard_has_a_last_word() {
        let heard = Heard::new([ServerId(2), ServerId(3)]);
        heard.hear(ServerId(2));
        heard.hear(ServerId(9));
        assert!(heard.ago(ServerId(2)).is_some_and(|ago| ago < Duration::from_secs(60)));
        assert_eq!((heard.ago(ServerId(3)), heard.ago(ServerId(9))), (None, None));
    }
}
