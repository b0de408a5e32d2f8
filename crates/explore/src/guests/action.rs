//! What can happen to a guest.

use crate::frame::actions;

actions! {
    /// Something that happens.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    Action {
        Heard "the guest is heard";
        Told "the guest hears the leader";
        Agree "the farm agrees";
        Synced "the guest's results are on its disk";
        EpochSynced "the guest's epoch is on its disk";
        Done(member: Member) "the {member} has ended something";
        Dial "the guest opens a link";
        LeaderNotices "the leader notices that the link is gone";
        GuestNotices "the guest notices that the link is gone";
        Grace "the guest has not come back in time";
        Silence "the guest is silent for too long";
        Settle "the leader waits for reports no longer";
        Beat "the guest beats";
        Gather "the guest writes what it has gathered";
        Deadline "the deadline passes";
        Recall "the guest is wanted at home";
        Release "the borrower lets the guest go";
        GiveBack "the borrower gives the guest back";
        Call "the guest is lent again";
        LeaderDies(is_heard: bool) "the leader dies{}", if *is_heard { ", but was heard" } else { "" };
        Dies(is_synced: bool) "the guest dies{}", if *is_synced { "" } else { " before it has written" };
        Restarts "the guest starts again";
        Cut "the link breaks";
    }
}

actions! {
    /// A member of the borrowing farm.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    Member {
        Guest "guest";
        Own "own worker";
    }
}
