//! Whoever wants to see a run as it goes on: narrators, diagrams, checks.

use primus_core::Machine;
use primus_core::machine::{Input, Output};

use crate::node::NodeId;
use crate::simulate::Happening;

/// Sees a run as it goes on.
pub trait Observer<M: Machine> {
    /// A node took a step.
    fn on_step(&mut self, _at_us: u64, _node: NodeId, _input: &Input<M>, _outputs: &[Output<M>]) {}
    /// Something happened to a node or a link.
    fn on_happening(&mut self, _at_us: u64, _happening: &Happening) {}
    /// A message was lost on its way.
    fn on_loss(&mut self, _at_us: u64, _from: NodeId, _to: NodeId, _message: &M::Message) {}
}

/// Sees nothing.
impl<M: Machine> Observer<M> for () {}

/// Two observers see the same run.
impl<M: Machine, A: Observer<M>, B: Observer<M>> Observer<M> for (A, B) {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<M>, outputs: &[Output<M>]) {
        self.0.on_step(at_us, node, input, outputs);
        self.1.on_step(at_us, node, input, outputs);
    }

    fn on_happening(&mut self, at_us: u64, happening: &Happening) {
        self.0.on_happening(at_us, happening);
        self.1.on_happening(at_us, happening);
    }

    fn on_loss(&mut self, at_us: u64, from: NodeId, to: NodeId, message: &M::Message) {
        self.0.on_loss(at_us, from, to, message);
        self.1.on_loss(at_us, from, to, message);
    }
}

impl<M: Machine, O: Observer<M>> Observer<M> for &mut O {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<M>, outputs: &[Output<M>]) {
        (**self).on_step(at_us, node, input, outputs);
    }

    fn on_happening(&mut self, at_us: u64, happening: &Happening) {
        (**self).on_happening(at_us, happening);
    }

    fn on_loss(&mut self, at_us: u64, from: NodeId, to: NodeId, message: &M::Message) {
        (**self).on_loss(at_us, from, to, message);
    }
}
