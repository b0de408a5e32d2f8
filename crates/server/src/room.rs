//! How much room a server has, and what is refused for want of it.
//!
//! The owner measures it: on the disks, in the farm's state, and in the queue of what the farm has to apply. What follows from
//! that is decided here, in the same words for control and farm.

use crate::farm::Refusal;

/// What the disks of a farm have room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Disks {
    /// Everything.
    #[default]
    Free,
    /// Nothing new: this server's own is full.
    OwnFull,
    /// Nothing new: those of so many servers are full that a majority cannot write.
    MostFull,
    /// Nothing at all: a write waits for room on this server's own.
    Stuck,
}

impl Disks {
    /// Why a leader takes nothing new of clients, if that is so.
    #[must_use]
    pub const fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Free => None,
            Self::OwnFull | Self::Stuck => Some(Refusal::DiskFull),
            Self::MostFull => Some(Refusal::DisksFull),
        }
    }
}

/// How much room there is for more of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Room {
    /// On the disks.
    pub disks: Disks,
    /// In the farm's state: how many bytes of content there may be, if there are as many.
    pub full_at: Option<u64>,
    /// Has the farm so much of the log to apply that no more may be added?
    pub is_behind: bool,
}

impl Room {
    /// Why a leader does not take this write of a client. What brings no new content gives room back, so a state that is full
    /// does not keep it out.
    #[must_use]
    pub fn refusal(self, brings_content: bool) -> Option<Refusal> {
        let full = self.full_at.filter(|_| brings_content).map(Refusal::StateFull);
        self.disks.refusal().or(full).or(self.is_behind.then_some(Refusal::Busy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_the_disks_come_first() {
        let full = Room { disks: Disks::OwnFull, full_at: Some(7), is_behind: true };
        assert_eq!(full.refusal(true), Some(Refusal::DiskFull));
        assert_eq!(full.refusal(false), Some(Refusal::DiskFull));
        let most = Room { disks: Disks::MostFull, ..Room::default() };
        assert_eq!(most.refusal(false), Some(Refusal::DisksFull));
        assert_eq!(Disks::Stuck.refusal(), Some(Refusal::DiskFull));
        assert_eq!(Room::default().refusal(true), None);
    }

    #[test]
    fn a_full_state_takes_only_what_gives_room_back() {
        let full = Room { full_at: Some(7), ..Room::default() };
        assert_eq!((full.refusal(true), full.refusal(false)), (Some(Refusal::StateFull(7)), None));
        let behind = Room { is_behind: true, ..full };
        assert_eq!(
            (behind.refusal(true), behind.refusal(false)),
            (Some(Refusal::StateFull(7)), Some(Refusal::Busy))
        );
    }
}
