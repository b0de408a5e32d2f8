//! Fixed rank: within one round a node shows one and the same standing, whatever its load does meanwhile.

use std::collections::BTreeMap;

use primus_core::election::bully::Bully;
use primus_core::machine::{Input, Output};
use primus_core::rank::Standing;
use primus_core::{Machine, Round};

use super::Evidence;
use crate::node::NodeId;
use crate::simulate::{Happening, Observer};

/// Applies where ranks can change.
#[must_use]
pub fn holds(evidence: &Evidence<'_>) -> Option<bool> {
    evidence.changed_ranks.map(|changed| changed == 0)
}

/// Watches what the nodes say of themselves.
#[derive(Debug, Default)]
pub struct Watch {
    shown: BTreeMap<NodeId, (Round, Standing)>,
    /// How often a node showed another standing in the same round.
    pub changed: u64,
}

impl Observer<Bully> for Watch {
    fn on_step(&mut self, _: u64, node: NodeId, _: &Input<Bully>, outputs: &[Output<Bully>]) {
        for output in outputs {
            if let Output::Send { message, .. } = output {
                let now = (message.round, message.standing);
                let before = self.shown.insert(node, now);
                self.changed +=
                    u64::from(before.is_some_and(|(round, standing)| round == now.0 && standing != now.1));
            }
        }
    }

    fn on_happening(&mut self, _: u64, happening: &Happening) {
        // A node that starts again counts its rounds from the beginning.
        if let Happening::Restart(node) = happening {
            self.shown.remove(node);
        }
    }

    fn on_loss(&mut self, _: u64, _: NodeId, _: NodeId, _: &<Bully as Machine>::Message) {}
}
