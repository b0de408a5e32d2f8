//! Where a request goes that only the leader can answer: the one rule of how long it waits between two leaders, when it is
//! tried again, and when it is given up.
//!
//! A request that was certainly not taken may be tried again, and one that changes nothing in any case. One that was sent is
//! given up as soon as another server leads: a frozen leader keeps its links and says nothing.

use std::time::Duration;

use primus_core::ServerId;
use primus_core::retry::Retry;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::handle::{Handle, View};

/// How long after the last leader was lost a request waits for the next one: a failover takes less.
const LEADERLESS_TIME: Duration = Duration::from_millis(200);
/// And this many round trips.
const LEADERLESS_TRIPS: u32 = 4;
/// How long to wait before a request is tried again with the same leader: at first, because leaders change fast, and at most.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// How long a request looks for a leader that takes it.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    again: Duration,
    /// True if the time between two leaders counts from the loss of the last one.
    from_loss: bool,
    pub(crate) answer: Duration,
}

impl Patience {
    /// For people and their programs: a server that has been without a leader for longer is cut off, and says so at once.
    pub const MOMENT: Self = Self { again: LEADERLESS_TIME, from_loss: true, answer: Duration::from_secs(10) };
    /// For a program that holds a server itself, and would only ask again.
    pub const LONG: Self = Self { again: Duration::from_secs(5), from_loss: false, answer: Duration::from_secs(5) };
}

/// One request's search.
#[derive(Debug)]
pub struct Search {
    view: watch::Receiver<View>,
    patience: Patience,
    since: Instant,
    retry: Retry,
    asked: Option<ServerId>,
}

impl Handle {
    /// Looks for the leader, for one request.
    #[must_use]
    pub fn search(&self, patience: Patience) -> Search {
        Search::new(self.view.clone(), patience)
    }

    /// What comes of this, which was asked of that server; nothing if another one leads before.
    pub async fn unless_deposed<T>(&self, asked: ServerId, answer: impl Future<Output = T>) -> Option<T> {
        let mut leadership = self.leadership.clone();
        tokio::select! {
            answer = answer => Some(answer),
            _ = leadership.wait_for(|now| now.leader.is_some_and(|leader| leader != asked)) => None,
        }
    }
}

impl Search {
    fn new(view: watch::Receiver<View>, patience: Patience) -> Self {
        let retry = Retry::new(patience.again, PAUSE, PAUSE_MAX);
        Self { view, patience, since: Instant::now(), retry, asked: None }
    }

    /// Who leads. Between two leaders it waits a moment for the next one.
    pub async fn leader(&mut self) -> Option<ServerId> {
        let rest = self.rest();
        _ = timeout(rest, self.view.wait_for(|view| view.leader.is_some())).await;
        self.leader_now()
    }

    /// The same, without waiting.
    pub fn leader_now(&mut self) -> Option<ServerId> {
        self.asked = self.view.borrow().leader;
        self.asked
    }

    fn rest(&self) -> Duration {
        if !self.patience.from_loss {
            return self.retry.left(self.since.elapsed());
        }
        // One look, not two: a second one would wait for a change that waits until the first one has ended.
        let view = self.view.borrow();
        let time = self.patience.again + view.slowest_round_trip() * LEADERLESS_TRIPS;
        time.saturating_sub(view.since.elapsed().unwrap_or(time))
    }

    /// Whether the request may be tried once more. Waits until another server leads, or for longer each time: a transfer that
    /// comes to nothing is over soon, too, and then nothing changes here.
    pub async fn again(&mut self) -> bool {
        let asked = self.asked;
        let is_cut_off = asked.is_none() && self.rest().is_zero();
        let Some(pause) = self.retry.pause(self.since.elapsed()).filter(|_| !is_cut_off) else { return false };
        _ = timeout(pause, self.view.wait_for(|view| view.leader != asked)).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use primus_core::Term;
    use primus_core::load::Load;
    use primus_replica::Role;
    use primus_server::control::Reason;

    use super::*;

    /// Server 1, which has known this leader, or none, for so long.
    fn view(leader: Option<u64>, ago: Duration) -> View {
        View {
            id: ServerId(1),
            role: Role::Follower,
            leader: leader.map(ServerId),
            term: Term(1),
            since: SystemTime::now() - ago,
            reason: Reason::Start,
            applied: 0,
            last: 0,
            load: Load::default(),
            peers: <_>::default(),
            gave_way: <_>::default(),
            suspicions: 0,
            silence_us: 0,
            longest_turn: Duration::ZERO,
        }
    }

    #[tokio::test]
    async fn a_request_waits_between_two_leaders_but_not_where_there_has_been_none_for_long() {
        let (tell, seen) = watch::channel(view(None, Duration::from_secs(60)));
        let mut moment = Search::new(seen.clone(), Patience::MOMENT);
        assert_eq!((moment.leader().await, moment.again().await), (None, false));
        assert!(Search::new(seen.clone(), Patience::LONG).again().await, "a program waits for longer");
        tell.send_replace(view(None, Duration::ZERO));
        let mut moment = Search::new(seen, Patience::MOMENT);
        let (leader, ()) = tokio::join!(moment.leader(), async {
            tell.send_replace(view(Some(2), Duration::ZERO));
        });
        assert_eq!(leader, Some(ServerId(2)));
        assert!(moment.again().await, "a leader that has not taken it may be handing over");
        tell.send_replace(view(Some(3), Duration::ZERO));
        assert_eq!(moment.leader_now(), Some(ServerId(3)));
        moment.retry = Retry::new(Duration::ZERO, PAUSE, PAUSE_MAX);
        assert!(!moment.again().await, "the time is over");
    }
}
