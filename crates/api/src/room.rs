//! How many bytes of bodies a server keeps at once: what has arrived, until it has been dealt with.
//!
//! The budget has parts, so that what is long never keeps out what is short, and neither keeps out leases. A body pays for
//! what it has, not for what it may become.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::problem::Problem;

/// A part of the budget, with a permit for every byte.
#[derive(Debug)]
pub(crate) struct Share {
    bytes: Semaphore,
    /// How long a body waits for room, in all, before it is refused. All that wait hold something that others wait for, so it is
    /// not long.
    patience: Duration,
}

/// Questions of sessions.
pub(crate) static SESSIONS: Share = Share::new(8 << 20, Duration::from_secs(1));
/// Values, orders, and jobs of an ordinary size.
pub(crate) static SHORT: Share = Share::new(16 << 20, Duration::from_secs(1));
/// Bodies with an object per line, and jobs with many lines.
pub(crate) static LONG: Share = Share::new(40 << 20, Duration::from_secs(3));

/// The beginning of a body that is read as a whole costs nothing, so that a small request finds room at any time: with as many
/// connections as there may be, that is 16 MiB.
const FREE_LEN: usize = 8 << 10;
/// Only one body at a time may be longer than this.
const GREAT_LEN: usize = 8 << 20;
static GREAT: Semaphore = Semaphore::const_new(1);
/// No body pays for more: the one that is greater leaves room for others.
const CHARGE_MAX: usize = 20 << 20;

impl Share {
    const fn new(len: usize, patience: Duration) -> Self {
        Self { bytes: Semaphore::const_new(len), patience }
    }
}

/// What a body keeps. It is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    share: &'static Share,
    free_len: usize,
    /// How much longer it may wait.
    patience: Duration,
    held: Option<SemaphorePermit<'static>>,
    turn: Option<SemaphorePermit<'static>>,
}

impl Room {
    /// For a body that is kept as a whole.
    pub(crate) const fn of_body(share: &'static Share) -> Self {
        Self { share, free_len: FREE_LEN, patience: share.patience, held: None, turn: None }
    }

    /// For a body of which only what is under way is kept.
    pub(crate) const fn of_lines() -> Self {
        Self { share: &LONG, free_len: 0, patience: LONG.patience, held: None, turn: None }
    }

    /// Holds room for this many bytes, no more and no less. Waits until others have gone, if it may.
    pub(crate) async fn hold(&mut self, len: usize) -> Result<(), Problem> {
        if len > GREAT_LEN && self.turn.is_none() {
            self.turn = Some(self.take(&GREAT, 1).await?);
        }
        let charge = len.saturating_sub(self.free_len).min(CHARGE_MAX);
        let held = self.held.as_ref().map_or(0, SemaphorePermit::num_permits);
        if charge <= held {
            drop(self.split(held - charge));
            return Ok(());
        }
        let more = self.take(&self.share.bytes, charge - held).await?;
        match &mut self.held {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        Ok(())
    }

    /// A part of the room that is held, for bytes that go their own way. A body that gets so far may wait again.
    pub(crate) fn part(&mut self, len: usize) -> Option<SemaphorePermit<'static>> {
        self.patience = self.share.patience;
        self.split(len)
    }

    fn split(&mut self, len: usize) -> Option<SemaphorePermit<'static>> {
        let held = self.held.as_mut()?;
        held.split(len.min(held.num_permits()))
    }

    async fn take(
        &mut self,
        permits: &'static Semaphore,
        count: usize,
    ) -> Result<SemaphorePermit<'static>, Problem> {
        let (count, since) = (u32::try_from(count).expect("a body is shorter than 4 GiB"), Instant::now());
        let taken = timeout(self.patience, permits.acquire_many(count)).await;
        self.patience = self.patience.saturating_sub(since.elapsed());
        taken.ok().and_then(Result::ok).ok_or_else(no_room)
    }
}

fn no_room() -> Problem {
    let message = "other requests whose bodies arrive at this server take up all the memory for bodies";
    Problem::busy(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    static SMALL: Share = Share::new(100, Duration::ZERO);

    #[test]
    fn a_body_pays_for_what_it_has_and_gives_it_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let left = || SMALL.bytes.available_permits();
            let mut room = Room { share: &SMALL, free_len: 10, patience: Duration::ZERO, held: None, turn: None };
            room.hold(10).await.unwrap();
            assert_eq!(left(), 100);
            room.hold(70).await.unwrap();
            assert_eq!(left(), 40);
            room.hold(30).await.unwrap();
            assert_eq!(left(), 80);
            let part = room.part(5);
            room.hold(25).await.unwrap();
            assert_eq!(left(), 80, "the part is still held");
            let mut other = Room { share: &SMALL, free_len: 0, patience: Duration::ZERO, held: None, turn: None };
            assert!(other.hold(81).await.is_err());
            other.hold(80).await.unwrap();
            assert!(room.hold(26).await.is_err());
            drop((part, room, other));
            assert_eq!(left(), 100);
        });
    }
}
