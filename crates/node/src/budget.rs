//! How many bytes may wait in a queue. Each thing that is added takes its weight from the queue's budget. The weight waits
//! with it, and goes back to the budget when it is dropped.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a queue may hold, in bytes.
#[derive(Debug, Clone)]
pub struct Budget {
    free: Arc<Semaphore>,
    max: u32,
}

/// What something takes of a budget while it waits; nothing by default.
#[derive(Debug, Default)]
pub struct Weight {
    _taken: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// So many bytes.
    #[must_use]
    pub fn new(max: u32) -> Self {
        Self { free: Arc::new(Semaphore::new(max as usize)), max }
    }

    /// The weight of this many bytes; nothing if there is no room for them. What is longer than the whole budget has room
    /// when nothing else waits.
    #[must_use]
    pub fn take(&self, len: usize) -> Option<Weight> {
        let taken = Arc::clone(&self.free).try_acquire_many_owned(self.share_of(len)).ok()?;
        Some(Weight { _taken: Some(taken) })
    }

    /// The weight of this many bytes, which wait in any case.
    #[must_use]
    pub fn add(&self, len: usize) -> Weight {
        let free = u32::try_from(self.free.available_permits()).unwrap_or(self.max);
        Weight { _taken: Arc::clone(&self.free).try_acquire_many_owned(self.share_of(len).min(free)).ok() }
    }

    fn share_of(&self, len: usize) -> u32 {
        u32::try_from(len).unwrap_or(self.max).clamp(1, self.max)
    }

    /// Is there no room at all?
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// Waits until there is some.
    pub async fn freed(&self) {
        // Nobody closes it.
        _ = self.free.acquire().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_waits_is_bounded_and_room_comes_back() {
        let budget = Budget::new(100);
        let first = budget.take(60);
        assert!(first.is_some() && budget.take(41).is_none() && !budget.is_spent());
        let second = budget.take(40);
        assert!(second.is_some() && budget.is_spent());
        drop(first);
        budget.freed().await;
        assert!(budget.take(1000).is_none(), "something else waits");
        drop(second);
        assert!(budget.take(1000).is_some(), "nothing else waits");
    }

    #[test]
    fn what_cannot_be_refused_takes_what_there_is() {
        let budget = Budget::new(100);
        let (first, second) = (budget.add(90), budget.add(90));
        assert!(budget.is_spent());
        let third = budget.add(1);
        drop((first, second, third));
        assert!(budget.take(100).is_some());
    }
}
