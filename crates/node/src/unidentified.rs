//! Those who have connected and not said yet who they are. There is a bound on them, and at it the oldest gives way:
//! whoever means it says so at once, so that a crowd of silent ones keeps no peer out.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::oneshot;

/// All strangers, in the order of their arrival.
#[derive(Debug)]
pub(crate) struct Unidentified {
    max: usize,
    crowd: Mutex<Crowd>,
}

#[derive(Debug, Default)]
struct Crowd {
    arrivals: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A stranger's place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    strangers: &'a Unidentified,
    number: u64,
    lost: oneshot::Receiver<()>,
}

impl Unidentified {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, crowd: Mutex::default() }
    }

    /// Lets one more in.
    pub(crate) fn enter(&self) -> Place<'_> {
        let (sender, lost) = oneshot::channel();
        let mut crowd = self.crowd();
        crowd.arrivals += 1;
        let number = crowd.arrivals;
        crowd.waiting.insert(number, sender);
        if crowd.waiting.len() > self.max {
            // Its sender goes, and that is what it hears.
            crowd.waiting.pop_first();
        }
        drop(crowd);
        Place { strangers: self, number, lost }
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
        let strangers = Unidentified::new(2);
        let (mut first, mut second) = (strangers.enter(), strangers.enter());
        assert!(!is_lost(&mut first).await);
        let mut third = strangers.enter();
        assert!(is_lost(&mut first).await);
        drop(third);
        third = strangers.enter();
        assert!(!is_lost(&mut second).await && !is_lost(&mut third).await);
    }
}
