//! What can happen to a guest.

use std::fmt;

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Heard,
    Told,
    Agree,
    Synced,
    EpochSynced,
    Done(Member),
    Dial,
    LeaderNotices,
    GuestNotices,
    Grace,
    Silence,
    Settle,
    Beat,
    Gather,
    Deadline,
    Recall,
    Release,
    GiveBack,
    Call,
    LeaderDies(bool),
    Dies(bool),
    Restarts,
    Cut,
}

/// Who works for the borrower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    Guest,
    Own,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Heard => "the guest is heard",
            Self::Told => "the guest hears the leader",
            Self::Agree => "the farm agrees",
            Self::Synced => "the guest's results are on its disk",
            Self::EpochSynced => "the guest's epoch is on its disk",
            Self::Done(Member::Guest) => "the guest has ended something",
            Self::Done(Member::Own) => "the own worker has ended something",
            Self::Dial => "the guest opens a link",
            Self::LeaderNotices => "the leader notices that the link is gone",
            Self::GuestNotices => "the guest notices that the link is gone",
            Self::Grace => "the guest has not come back in time",
            Self::Silence => "the guest is silent for too long",
            Self::Settle => "the leader waits for reports no longer",
            Self::Beat => "the guest beats",
            Self::Gather => "the guest writes what it has gathered",
            Self::Deadline => "the deadline passes",
            Self::Recall => "the guest is wanted at home",
            Self::Release => "the borrower lets the guest go",
            Self::GiveBack => "the borrower gives the guest back",
            Self::Call => "the guest is lent again",
            Self::LeaderDies(false) => "the leader dies",
            Self::LeaderDies(true) => "the leader dies, but was heard",
            Self::Dies(true) => "the guest dies",
            Self::Dies(false) => "the guest dies before it has written",
            Self::Restarts => "the guest starts again",
            Self::Cut => "the link breaks",
        })
    }
}
