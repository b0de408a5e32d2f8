//! Repeatability: the same inputs give the same run, bit for bit, and so the same winner.

use std::hash::{DefaultHasher, Hash, Hasher};

use primus_core::machine::{Input, Machine, Output};
use primus_core::trace;

use crate::node::NodeId;
use crate::simulate::{Happening, Observer};

/// Sums a whole run up in one number: every step, every happening, every loss, with its time.
#[derive(Debug, Clone, Default)]
pub struct Fingerprint {
    hasher: DefaultHasher,
}

impl Fingerprint {
    /// Two runs with the same number were the same.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.hasher.finish()
    }
}

impl<M: Machine> Observer<M> for Fingerprint {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<M>, outputs: &[Output<M>]) {
        (at_us, trace::Step { node, input, outputs }.to_string()).hash(&mut self.hasher);
    }

    fn on_happening(&mut self, at_us: u64, happening: &Happening) {
        (at_us, format!("{happening:?}")).hash(&mut self.hasher);
    }

    fn on_loss(&mut self, at_us: u64, from: NodeId, to: NodeId, message: &M::Message) {
        (at_us, from, to, message.to_string()).hash(&mut self.hasher);
    }
}
