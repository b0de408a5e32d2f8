//! Room for the outputs of the machines inside, kept so that stepping allocates nothing. Between two steps it is empty, so
//! it is no part of a server's state: a copy has room of its own, and any two are equal.

use std::hash::{Hash, Hasher};

use primus_core::machine::{Machine, Outbox};

/// Outboxes that do not count.
#[derive(Debug)]
pub(super) struct Scratch<E: Machine, R: Machine> {
    pub(super) election: Outbox<E>,
    pub(super) replica: Outbox<R>,
}

impl<E: Machine, R: Machine> Default for Scratch<E, R> {
    fn default() -> Self {
        Self { election: Outbox::new(), replica: Outbox::new() }
    }
}

impl<E: Machine, R: Machine> Clone for Scratch<E, R> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<E: Machine, R: Machine> PartialEq for Scratch<E, R> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<E: Machine, R: Machine> Eq for Scratch<E, R> {}

impl<E: Machine, R: Machine> Hash for Scratch<E, R> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
