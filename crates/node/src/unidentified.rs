//! Those who have connected and not said yet who they are. There is a bound on them, and at it the oldest gives way:
//! whoever means it says so at once, so that a crowd of silent ones keeps no peer out.
//!
//! But each is given a little time, however many wait. Without it a crowd that comes as fast as it can would push out every
//! node before the node's answer is read.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

/// How many strangers may be half-way through their hello.
const STRANGERS_MAX: usize = 256;
/// How long each is heard at least: in this time as many can shake hands, a crowd after the other.
const STRANGER_TIME_MIN: Duration = Duration::from_millis(125);
/// How many of them may shake hands. Each needs some memory for it.
const HANDSHAKES_MAX: usize = 64;
/// How long each of those has at least for its next word.
const HANDSHAKE_TIME_MIN: Duration = Duration::from_millis(25);

/// All strangers, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Unidentified {
    max: usize,
    /// How long each may stay at least.
    least: Duration,
    crowd: Mutex<Crowd>,
    /// Those who wait for a place get one in the order in which they came.
    turn: tokio::sync::Mutex<()>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Crowd {
    arrivals: u64,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    _stays: oneshot::Sender<()>,
}

/// A stranger's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    strangers: &'a Unidentified,
    number: u64,
    lost: oneshot::Receiver<()>,
}

impl Unidentified {
    /// Those who are half-way through their hello.
    pub(crate) fn strangers() -> Self {
        Self::new(STRANGERS_MAX, STRANGER_TIME_MIN)
    }

    /// Those of them who shake hands.
    pub(crate) fn handshakes() -> Self {
        Self::new(HANDSHAKES_MAX, HANDSHAKE_TIME_MIN)
    }

    /// Those without a certificate that say why they call, so many at once.
    pub(crate) fn joiners(max: usize) -> Self {
        Self::new(max, STRANGER_TIME_MIN)
    }

    fn new(max: usize, least: Duration) -> Self {
        Self { max, least, crowd: Mutex::default(), turn: tokio::sync::Mutex::default(), left: Notify::new() }
    }

    /// Lets one more in, as soon as it may.
    pub(crate) async fn enter(&self) -> Place<'_> {
        let _turn = self.turn.lock().await;
        self.room().await;
        let (stays, lost) = oneshot::channel();
        let mut crowd = self.crowd();
        crowd.arrivals += 1;
        let number = crowd.arrivals;
        crowd.waiting.insert(number, Waiting { since: Instant::now(), _stays: stays });
        if crowd.waiting.len() > self.max {
            // Its sender goes, and that is what it hears.
            crowd.waiting.pop_first();
        }
        drop(crowd);
        Place { strangers: self, number, lost }
    }

    /// Waits until somebody may enter: there is room, or the oldest has had its time.
    pub(crate) async fn room(&self) {
        // Those who came before take their places first.
        yield_now().await;
        while let Some(until) = self.full_until() {
            tokio::select! {
                () = self.left.notified() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Nothing if there is room.
    fn full_until(&self) -> Option<Instant> {
        let crowd = self.crowd();
        let (_, oldest) = crowd.waiting.first_key_value().filter(|_| crowd.waiting.len() >= self.max)?;
        let until = oldest.since + self.least;
        (until > Instant::now()).then_some(until)
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd> {
        self.crowd.lock().expect("nobody panics while holding this")
    }
}

impl Place<'_> {
    /// Waits until somebody else needs this place.
    pub(crate) async fn lost(&mut self) {
        _ = (&mut self.lost).await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.strangers.crowd().waiting.remove(&self.number);
        self.strangers.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn is_lost(place: &mut Place<'_>) -> bool {
        timeout(Duration::ZERO, place.lost()).await.is_ok()
    }

    #[tokio::test]
    async fn the_oldest_gives_way() {
        let strangers = Unidentified::new(2, Duration::ZERO);
        let (mut first, mut second) = (strangers.enter().await, strangers.enter().await);
        assert!(!is_lost(&mut first).await);
        let mut third = strangers.enter().await;
        assert!(is_lost(&mut first).await);
        drop(third);
        third = strangers.enter().await;
        assert!(!is_lost(&mut second).await && !is_lost(&mut third).await);
    }

    #[tokio::test]
    async fn who_has_just_come_is_not_pushed_out() {
        let strangers = Unidentified::new(2, Duration::from_secs(3600));
        let (mut first, second) = (strangers.enter().await, strangers.enter().await);
        assert!(timeout(Duration::from_millis(1), strangers.enter()).await.is_err());
        assert!(timeout(Duration::from_millis(1), strangers.room()).await.is_err());
        assert!(!is_lost(&mut first).await);
        let (_third, ()) = tokio::join!(strangers.enter(), async { drop(second) });
        assert!(!is_lost(&mut first).await);
    }
}
