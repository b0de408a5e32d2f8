//! Links that are cut or slow on purpose, because somebody wants to see what happens then.
//!
//! What servers say to each other is dropped, for the log sends it again. A worker's link is different: on it nothing is ever
//! lost but all that comes after. So either everything on it waits until it is mended, which is what TCP makes of a network that
//! drops packets, or it is closed, and whoever calls is turned away. What leaders of two farms say to each other is dropped, too:
//! they say it again and again.
//!
//! A slow link takes the same time in both directions, for everything: messages, the handshake (a round trip to connect, one
//! to greet), the news that the other end is closed, and the refusal of a port where nobody listens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use primus_core::ServerId;
use tokio::sync::watch;
use tokio::time::sleep;

/// Whom a server does not talk to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkFaults {
    /// Nothing is sent to or taken from these peers. The links stay.
    pub peers: BTreeSet<ServerId>,
    /// On the links of these workers everything waits.
    pub held: BTreeSet<String>,
    /// The links of these workers are closed, and are not opened again.
    pub closed: BTreeSet<String>,
    /// Nothing is said to the servers of these farms, nor heard of them. The links stay, and so do those of their workers.
    pub farms: BTreeSet<String>,
    /// What these peers say arrives this much later. Those that are not named are as fast as the network is.
    pub delays: BTreeMap<ServerId, Duration>,
}

/// No link is slower on purpose.
pub const DELAY_MAX: Duration = Duration::from_secs(5);

impl LinkFaults {
    /// How long a message from or to this peer is held back.
    pub(crate) fn delay(&self, peer: ServerId) -> Duration {
        self.delays.get(&peer).copied().unwrap_or_default()
    }
}

/// The link to a peer for requests, as far as faults concern it. What is said on it is not lost, but waits.
#[derive(Debug, Clone)]
pub struct PeerGate {
    peer: ServerId,
    faults: watch::Receiver<LinkFaults>,
}

impl PeerGate {
    pub(crate) const fn new(peer: ServerId, faults: watch::Receiver<LinkFaults>) -> Self {
        Self { peer, faults }
    }

    /// Does nothing move on it?
    pub(crate) fn is_cut(&self) -> bool {
        self.faults.borrow().peers.contains(&self.peer)
    }

    /// Waits until something may pass.
    pub(crate) async fn flows(&mut self) {
        let Self { peer, faults } = self;
        // Nobody can cut anything any more when the server is about to end.
        _ = faults.wait_for(|faults| !faults.peers.contains(peer)).await;
    }

    /// Waits for as long as this many messages take that travel one after the other, if that link is slow on purpose.
    pub async fn travel(&self, messages: u32) {
        let delay = self.faults.borrow().delay(self.peer);
        if !delay.is_zero() {
            sleep(delay * messages).await;
        }
    }
}

/// A worker's link, as far as cuts concern it.
#[derive(Debug, Clone)]
pub(crate) struct LinkGate {
    worker: String,
    cuts: watch::Receiver<LinkFaults>,
}

impl LinkGate {
    pub(crate) const fn new(worker: String, cuts: watch::Receiver<LinkFaults>) -> Self {
        Self { worker, cuts }
    }

    /// Waits until something may pass.
    pub(crate) async fn flows(&mut self) {
        let Self { worker, cuts } = self;
        // Nobody can cut anything any more when the server is about to end.
        _ = cuts.wait_for(|cuts| !cuts.held.contains(worker)).await;
    }

    /// Waits until it is to be closed.
    pub(crate) async fn is_closed(&mut self) {
        let Self { worker, cuts } = self;
        if cuts.wait_for(|cuts| cuts.closed.contains(worker)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Is it to be closed now?
    pub(crate) fn must_close(&self) -> bool {
        self.cuts.borrow().closed.contains(&self.worker)
    }
}
