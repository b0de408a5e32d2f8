//! Virtual time, and the one loop that lets it pass: what will happen, when, and all chance of a run.
//!
//! The same seed gives the same run, bit for bit, because everything that happens is an event here, events of one moment keep
//! the order in which they came, and nothing else draws from the chance.

use primus_core::machine::Delay;

use crate::chance::Chance;
use crate::queue::Queue;

/// What will happen in a run.
#[derive(Debug)]
pub(crate) struct Timeline<E> {
    queue: Queue<E>,
    pub(crate) now_us: u64,
    pub(crate) chance: Chance,
}

impl<E> Timeline<E> {
    /// Nothing will happen yet.
    pub(crate) fn new(chance: Chance) -> Self {
        Self { queue: Queue::new(), now_us: 0, chance }
    }

    /// This will happen then.
    pub(crate) fn at(&mut self, at_us: u64, event: E) {
        self.queue.push(at_us, event);
    }

    /// This will happen after a while.
    pub(crate) fn after(&mut self, delay: Delay, event: E) {
        let at_us = self.now_us.saturating_add(self.chance.between(delay.min_us, delay.max_us));
        self.queue.push(at_us, event);
    }

    /// Time passes until the next thing happens.
    fn next(&mut self) -> Option<E> {
        let (at_us, event) = self.queue.pop()?;
        self.now_us = at_us;
        Some(event)
    }
}

/// Whatever lives on a timeline.
pub(crate) trait Scene {
    /// What can happen in it.
    type Event;

    /// Its time.
    fn time(&mut self) -> &mut Timeline<Self::Event>;

    /// This happens, now.
    fn on_event(&mut self, event: Self::Event);

    /// Is there nothing more to see?
    fn is_over(&mut self) -> bool;

    /// Nothing will ever happen again.
    fn on_silence(&mut self) {}
}

/// The loop: one thing after the other, until it is over.
pub(crate) fn play(scene: &mut impl Scene) {
    while !scene.is_over() {
        match scene.time().next() {
            Some(event) => scene.on_event(event),
            None => return scene.on_silence(),
        }
    }
}
