//! Known bugs, planted on purpose so that the laboratory can show that it finds them.
//!
//! Without the feature `planted-bugs` a [`Planted`] holds nothing and the compiler removes every trace of it.

/// A mistake that real implementations have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// "172.18.0.9" beats "172.18.0.10".
    AddressesAsText,
    /// Equal scores: each waits for the other, nobody leads.
    TieElectsNobody,
    /// A node that lost waits for its winner for ever.
    LoserWithoutTimer,
    /// The score is read again for every message of one round.
    ScoreChangesInRound,
    /// A winner that nobody can reach is asked again and again.
    UnreachableWinnerNeverSkipped,
    /// Ring: a token that died with its holder is missed by nobody.
    LostTokenNotReplaced,
    /// Ring: every larger id that passes makes a node send its own again (rule 3 as written).
    OwnIdSentAgain,
    /// Disk: a server promises what is not on its disk yet.
    AcknowledgedBeforeSync,
    /// Log: a server takes what a deposed leader appends.
    OldTermAppend,
    /// Replica: a vote is given again to whoever asks later in the same term.
    VotesTwice,
    /// Replica: an entry of an older term counts as committed once a majority has it (Raft, figure 8).
    CommitsByCountingOldTerms,
    /// Farm: attempts are numbered without the term, so that two leaders give out the same names.
    BareAttempts,
    /// Farm: a new leader hands out older tasks before the workers have said what they have.
    DispatchBeforeReports,
    /// Farm: a task that must not start twice is handed out before the log says so.
    OnceWithoutCommit,
    /// Lease: a new leader gives a group away before what its predecessor promised is over.
    SuccessorDoesNotWait,
    /// Lease: a holder counts from the moment at which it was answered, not from the one at which it asked.
    LeaseFromAnswer,
    /// Loan: a leader takes the terms of another farm for terms of its own.
    BareTerms,
    /// Loan: a lender takes a worker for its own again because its time is over.
    TakesBackByTimer,
    /// Loan: a worker follows a call abroad that is older than its last one.
    LateRedirect,
    /// Worker: a worker that goes to another farm goes on beginning tasks until that is written down.
    RoomClosedTooLate,
    /// Farm: what clients want in one turn goes into the log in another order than they wanted it.
    ProposalsReordered,
    /// Farm: a look is answered before what it must see is applied.
    LookBeforeApplied,
    /// Loan: an operator's order counts only what is agreed on, not what is on its way there.
    LendsUnpledged,
    /// Farm: of a whole state that came from the leader only half is taken: jobs and loans, but no keys.
    HalfRestored,
    /// Founding: a server founds as soon as it has heard the others, before it knows that they have agreed.
    OnePhaseFounding,
    /// Founding: a server that has agreed agrees with other servers, too, or founds alone, and without hearing all anew.
    AgreesAgainUnheard,
    /// Founding: a server says what is not on its disk yet, and acts on it.
    FoundingSaidBeforeDurable,
    /// Farm: a leader believes a worker that claims a task of another one.
    BelievedAboutAnother,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 28] = [
        Self::AddressesAsText,
        Self::TieElectsNobody,
        Self::LoserWithoutTimer,
        Self::ScoreChangesInRound,
        Self::UnreachableWinnerNeverSkipped,
        Self::LostTokenNotReplaced,
        Self::OwnIdSentAgain,
        Self::AcknowledgedBeforeSync,
        Self::OldTermAppend,
        Self::VotesTwice,
        Self::CommitsByCountingOldTerms,
        Self::BareAttempts,
        Self::DispatchBeforeReports,
        Self::OnceWithoutCommit,
        Self::SuccessorDoesNotWait,
        Self::LeaseFromAnswer,
        Self::BareTerms,
        Self::TakesBackByTimer,
        Self::LateRedirect,
        Self::RoomClosedTooLate,
        Self::ProposalsReordered,
        Self::LookBeforeApplied,
        Self::LendsUnpledged,
        Self::HalfRestored,
        Self::OnePhaseFounding,
        Self::AgreesAgainUnheard,
        Self::FoundingSaidBeforeDurable,
        Self::BelievedAboutAnother,
    ];
}

/// Which bug is planted, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Planted {
    #[cfg(feature = "planted-bugs")]
    bug: Option<Bug>,
}

impl Planted {
    /// No bug.
    pub const NONE: Self = Self {
        #[cfg(feature = "planted-bugs")]
        bug: None,
    };

    /// This bug; only tests can say so.
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub const fn the(bug: Bug) -> Self {
        Self { bug: Some(bug) }
    }

    /// Is this the planted bug?
    #[cfg(feature = "planted-bugs")]
    #[must_use]
    pub fn is(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Is this the planted bug? Without the feature, never.
    #[cfg(not(feature = "planted-bugs"))]
    #[must_use]
    pub const fn is(self, _bug: Bug) -> bool {
        false
    }
}
