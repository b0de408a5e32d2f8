//! Numbers differ: no two servers have received the same one, and none has received one twice.

use std::collections::BTreeSet;

use primus_lab::world::World;

use super::tickets::Tickets;

/// Applies at any moment.
pub(crate) fn holds(world: &World<Tickets>) -> bool {
    let mut seen = BTreeSet::new();
    let mut received = world.alive().flat_map(|(_, server)| &server.received);
    received.all(|number| seen.insert(*number))
}
