//! The link between a guest and the leader of the farm that has borrowed it.

use std::collections::VecDeque;

use primus_core::ServerId;
use primus_core::farm;
use primus_server::worker::Message;

/// A link, and what each end believes of it. What was said on it arrives in order, or not at all once it is broken.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Link {
    /// Whom the guest has dialled.
    pub(super) leader: Option<ServerId>,
    /// Does the guest take it for open?
    pub(super) is_open: bool,
    /// Does the leader?
    pub(super) is_known: bool,
    is_broken: bool,
    pub(super) to_leader: VecDeque<farm::Message>,
    pub(super) to_guest: VecDeque<Message>,
}

impl Link {
    pub(super) fn to(leader: ServerId) -> Self {
        Self { leader: Some(leader), is_open: true, is_known: true, ..Self::default() }
    }

    pub(super) const fn is_whole(&self) -> bool {
        self.is_open && self.is_known && !self.is_broken
    }

    /// What is said on a link that is gone reaches nobody.
    pub(super) fn tell_leader(&mut self, message: farm::Message) {
        if self.is_whole() {
            self.to_leader.push_back(message);
        }
    }

    pub(super) fn tell_guest(&mut self, message: Message) {
        if self.is_whole() {
            self.to_guest.push_back(message);
        }
    }

    /// All that is on it is lost, and neither end knows.
    pub(super) fn cut(&mut self) {
        self.is_broken = true;
        self.to_leader.clear();
        self.to_guest.clear();
    }

    /// The guest's end is gone. What it has said before still arrives, unless it died.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.to_guest.clear();
    }

    /// The leader's end is gone with the leader.
    pub(super) fn lose_leader(&mut self) {
        self.cut();
        self.is_known = false;
    }

    pub(super) fn can_leader_notice(&self) -> bool {
        self.is_known && (self.is_broken || !self.is_open) && self.to_leader.is_empty()
    }

    pub(super) const fn can_guest_notice(&self) -> bool {
        self.is_open && (self.is_broken || !self.is_known)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.to_leader.is_empty() && self.to_guest.is_empty()
    }
}
