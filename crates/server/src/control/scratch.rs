//! Room for the outputs of the machines inside, kept so that stepping allocates nothing. Between two steps it is empty, so
//! it is no part of a server's state: a copy has room of its own, and any two are equal.

use std::hash::{Hash, Hasher};

use primus_core::machine::{Machine, Outbox};

/// An outbox that does not count.
#[derive(Debug)]
pub(super) struct Scratch<M: Machine>(pub(super) Outbox<M>);

impl<M: Machine> Default for Scratch<M> {
    fn default() -> Self {
        Self(Outbox::new())
    }
}

impl<M: Machine> Clone for Scratch<M> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<M: Machine> PartialEq for Scratch<M> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<M: Machine> Eq for Scratch<M> {}

impl<M: Machine> Hash for Scratch<M> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
