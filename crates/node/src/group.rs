//! Groups: what only one of many may do at a time, or only so many of them.
//!
//! [`Group::guard`] runs a future while this process holds the group's lease, and drops it before another one may begin.
//! Between two looks at the clock nobody can stop a future: it is dropped where it awaits something. So whoever computes for
//! long without awaiting asks [`Turn::remaining`], or gives [`Turn::term`] to whatever it writes to, which then refuses
//! everything older. Renewing is no part of your future's work: a thread of the server does it.

mod keeper;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use primus_core::lease::{Candidacy, Objection};
use primus_core::ledger::groups::{
    GROUP_NAME_LEN_MAX, GroupName, HOLDER_NAME_LEN_MAX, HOLDERS_MAX, is_holder_count, is_holder_name,
};
use primus_core::ledger::{GroupRank, GroupRules};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use self::keeper::{Keeper, LeaseState};
use crate::clock::now_us;
use crate::handle::Handle;

/// A future is dropped this part of a lease before the lease ends: dropping takes time, too.
const MARGIN_PARTS: u64 = 8;
/// The timers of a process stand still while its host sleeps, but leases do not: so the clock is looked at this often.
const LOOK: Duration = Duration::from_millis(250);

/// A way to take part in a group, from [`Handle::group`].
#[derive(Debug, Clone)]
#[must_use = "a group does nothing until something is guarded"]
pub struct Group {
    handle: Handle,
    candidacy: Candidacy,
}

/// Why something cannot be guarded, or is not any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unguarded {
    /// This is no name.
    #[error(
        "{0:?} is not a name: a group has up to {GROUP_NAME_LEN_MAX} letters, digits and . _ - /, and a candidate {HOLDER_NAME_LEN_MAX} bytes"
    )]
    Name(String),
    /// So many cannot hold it at once.
    #[error("1 to {HOLDERS_MAX} can hold a group at once, not {0}")]
    Holders(u16),
    /// The leader does not want this candidate.
    #[error("{0}")]
    Refused(Objection),
    /// The server through which it was guarded ends.
    #[error("the server through which this was guarded has ended")]
    Ended,
}

/// One time of holding a group.
#[derive(Debug, Clone)]
pub struct Turn {
    term: u64,
    margin_us: u64,
    state: watch::Receiver<LeaseState>,
}

impl Handle {
    /// A group by its name, for one holder at a time; the least loaded host comes first.
    pub fn group(&self, name: impl Into<String>) -> Group {
        let rules = GroupRules { rank: GroupRank::Load, holders: 1 };
        let id = self.id().0;
        let own_name = format!("server {id}:{}", std::process::id());
        let candidacy = Candidacy { group: name.into(), rules, name: own_name, id };
        Group { handle: self.clone(), candidacy }
    }
}

impl Group {
    /// Who comes first. All candidates must say the same.
    pub const fn rank(mut self, rank: GroupRank) -> Self {
        self.candidacy.rules.rank = rank;
        self
    }

    /// How many may hold it at once. All candidates must say the same.
    pub const fn holders(mut self, holders: u16) -> Self {
        self.candidacy.rules.holders = holders;
        self
    }

    /// What people call this candidate; where names are compared, the first in the alphabet comes first.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.candidacy.name = name.into();
        self
    }

    /// Waits for this candidate's turn and runs the future then, until it ends by itself; what it gives is given back. If the
    /// lease ends before, or the farm wants the group back, the future is dropped, and another one is made when it is this
    /// candidate's turn again. Dropping what this returns drops the future and gives the group back.
    ///
    /// # Errors
    /// If names or numbers make no sense, the leader refuses the candidate, or the server is about to end.
    pub async fn guard<T, F: Future<Output = T>>(self, mut work: impl FnMut(Turn) -> F) -> Result<T, Unguarded> {
        // Declared first, so it is dropped last: nothing is given back before the future is gone.
        let mut seat = self.join()?;
        loop {
            let turn = seat.granted().await?;
            if let Some(done) = while_held(&turn, work(turn.clone())).await {
                return Ok(done);
            }
            seat.end();
        }
    }

    fn join(self) -> Result<Seat, Unguarded> {
        self.check()?;
        let (tell, ends) = mpsc::unbounded_channel();
        let (state, seen) = watch::channel(LeaseState::Waits { last_term: 0 });
        let margin_us = self.handle.asker.lease_us / MARGIN_PARTS;
        let asker = Arc::clone(&self.handle.asker);
        asker.run(Keeper::new(self.handle, self.candidacy, state, ends).run());
        Ok(Seat { tell, state: seen, last_term: 0, margin_us })
    }

    fn check(&self) -> Result<(), Unguarded> {
        let Candidacy { group, rules, name, .. } = &self.candidacy;
        // A name that is far too long is not repeated in full.
        let shown = |name: &str| name.chars().take(HOLDER_NAME_LEN_MAX).collect();
        if GroupName::parse(group).is_err() {
            return Err(Unguarded::Name(shown(group)));
        }
        if !is_holder_name(name) {
            return Err(Unguarded::Name(shown(name)));
        }
        if is_holder_count(rules.holders) { Ok(()) } else { Err(Unguarded::Holders(rules.holders)) }
    }
}

/// A candidate's place. Dropping it gives back what it holds.
struct Seat {
    /// Tells the keeper that what ran under this term has ended.
    tell: mpsc::UnboundedSender<u64>,
    state: watch::Receiver<LeaseState>,
    last_term: u64,
    margin_us: u64,
}

impl Seat {
    async fn granted(&mut self) -> Result<Turn, Unguarded> {
        loop {
            match self.next_state().await? {
                LeaseState::Holds { term, .. } => {
                    self.last_term = term;
                    return Ok(Turn { term, margin_us: self.margin_us, state: self.state.clone() });
                }
                // It was over before anything ran. Only this seat can say so: the keeper does not know what has begun.
                LeaseState::Waits { last_term } => {
                    self.last_term = last_term;
                    self.end();
                }
                LeaseState::Refused(objection) => return Err(Unguarded::Refused(objection)),
            }
        }
    }

    /// How it stands, once there is a turn that this seat has not heard of.
    async fn next_state(&mut self) -> Result<LeaseState, Unguarded> {
        let known = self.last_term;
        let is_news = |state: &LeaseState| match state {
            LeaseState::Holds { term, .. } | LeaseState::Waits { last_term: term } => *term > known,
            LeaseState::Refused(_) => true,
        };
        self.state.wait_for(is_news).await.map(|state| state.clone()).map_err(|_| Unguarded::Ended)
    }

    fn end(&self) {
        // A keeper that is gone has nothing to give back.
        _ = self.tell.send(self.last_term);
    }
}

impl Turn {
    /// The token under which the group is held. It grows from turn to turn, in all groups of the farm.
    #[must_use]
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// How long the future may go on at least, as far as is known; nothing when it is about to be dropped.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match *self.state.borrow() {
            LeaseState::Holds { term, until_us } if term == self.term => {
                Duration::from_micros(until_us.saturating_sub(now_us()).saturating_sub(self.margin_us))
            }
            _ => Duration::ZERO,
        }
    }

    async fn over(&self) {
        let mut state = self.state.clone();
        loop {
            let rest = self.remaining();
            let news = timeout(rest.min(LOOK), state.changed()).await;
            if self.remaining().is_zero() || matches!(news, Ok(Err(_))) {
                return;
            }
        }
    }
}

/// What the future gives, if it ends while the group is held. The clock is looked at before every step of it: whoever was
/// frozen for long does not take another one.
async fn while_held<F: Future>(turn: &Turn, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    let mut over = pin!(turn.over());
    let step = |context: &mut Context<'_>| {
        if turn.remaining().is_zero() || over.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    };
    poll_fn(step).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_that_is_over_before_it_began_is_given_back() {
        let (tell, mut ends) = mpsc::unbounded_channel();
        let (state, seen) = watch::channel(LeaseState::Waits { last_term: 0 });
        let mut seat = Seat { tell, state: seen, last_term: 0, margin_us: 0 };
        state.send_replace(LeaseState::Holds { term: 5, until_us: u64::MAX });
        state.send_replace(LeaseState::Waits { last_term: 5 });
        tokio::select! {
            biased;
            _ = seat.granted() => panic!("there is no turn"),
            ended = ends.recv() => assert_eq!(ended, Some(5)),
        }
        state.send_replace(LeaseState::Holds { term: 7, until_us: u64::MAX });
        assert_eq!(seat.granted().await.map(|turn| turn.term()), Ok(7));
        assert!(ends.is_empty(), "each turn ends once");
    }
}
