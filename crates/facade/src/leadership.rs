//! Who leads, as one server sees it.

use primus_core::ServerId;
use primus_node::handle;
use tokio::sync::watch;

/// Who leads a farm, and every change of that: from [`Server::leadership`](crate::Server::leadership).
#[derive(Debug, Clone)]
pub struct Leadership(pub(crate) watch::Receiver<handle::Leadership>);

/// Who leads, in which term, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The server that leads; none between two leaders.
    pub id: Option<ServerId>,
    /// The number of this leadership. It grows from leader to leader: what you write to elsewhere can refuse older ones.
    pub term: u64,
    /// The reason of the last change: `start`, `link_lost`, `silence`, `load`, `rank`, `operator`, `resigned` or `lost_quorum`.
    pub reason: &'static str,
    /// True if it is the server that was asked.
    pub is_me: bool,
}

impl Leadership {
    /// Who leads now.
    #[must_use]
    pub fn now(&self) -> Leader {
        Leader::of(*self.0.borrow())
    }

    /// Waits for the next change. Nothing once the server has ended.
    pub async fn changed(&mut self) -> Option<Leader> {
        self.0.changed().await.ok()?;
        Some(Leader::of(*self.0.borrow_and_update()))
    }

    /// Waits until this is true of who leads; it may be true already. Nothing once the server has ended.
    pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&Leader) -> bool) -> Option<Leader> {
        let leader = self.0.wait_for(|now| is_wanted(&Leader::of(*now))).await.ok()?;
        Some(Leader::of(*leader))
    }
}

impl Leader {
    const fn of(now: handle::Leadership) -> Self {
        let handle::Leadership { leader, term, reason, is_me } = now;
        Self { id: leader, term: term.0, reason: reason.name(), is_me }
    }
}
