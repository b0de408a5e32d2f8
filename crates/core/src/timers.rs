//! The timers of a machine, as a driver keeps them: by name, and by the moment at which they run out. What a moment is, the
//! driver says.

use alloc::collections::{BTreeMap, BTreeSet};

/// The timers that run, earliest first.
#[derive(Debug)]
pub struct Timers<T, M> {
    due: BTreeSet<(M, T)>,
    by_name: BTreeMap<T, M>,
}

impl<T, M> Default for Timers<T, M> {
    fn default() -> Self {
        Self { due: BTreeSet::new(), by_name: BTreeMap::new() }
    }
}

impl<T: Copy + Ord, M: Copy + Ord> Timers<T, M> {
    /// Sets a timer, anew if it runs already.
    pub fn set(&mut self, timer: T, due: M) {
        self.cancel(timer);
        self.due.insert((due, timer));
        self.by_name.insert(timer, due);
    }

    /// Stops a timer, if it runs.
    pub fn cancel(&mut self, timer: T) {
        if let Some(due) = self.by_name.remove(&timer) {
            self.due.remove(&(due, timer));
        }
    }

    /// The moment at which the next timer runs out.
    #[must_use]
    pub fn next(&self) -> Option<M> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The next timer that is due, and since when.
    pub fn take_due(&mut self, now: M) -> Option<(M, T)> {
        let (due, timer) = self.due.first().copied().filter(|(due, _)| *due <= now)?;
        self.cancel(timer);
        Some((due, timer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_is_set_again_runs_out_once_and_later() {
        let mut timers = Timers::default();
        timers.set("look", 3);
        timers.set("beat", 2);
        timers.set("look", 5);
        assert_eq!((timers.next(), timers.take_due(1)), (Some(2), None));
        assert_eq!((timers.take_due(9), timers.take_due(9)), (Some((2, "beat")), Some((5, "look"))));
        assert_eq!((timers.take_due(9), timers.next()), (None, None));
    }

    #[test]
    fn a_timer_that_was_cancelled_does_not_run_out() {
        let mut timers = Timers::default();
        timers.set("look", 3);
        timers.cancel("look");
        timers.cancel("beat");
        assert_eq!(timers.take_due(9), None);
    }
}
