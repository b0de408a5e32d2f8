//! What people call the hosts of a run: `server 2`, and `server 2 of south` where there is more than one farm.

use primus_lab::node::NodeId;
use primus_lab::setup::{Host, HostKind};

/// The names of all farms of a run.
#[derive(Debug, Clone)]
pub(crate) struct Names(pub(crate) Vec<String>);

impl Names {
    /// `worker w2 of south`.
    pub(crate) fn host(&self, id: NodeId) -> String {
        let Host { farm, kind, number } = Host::of(id);
        let name = match kind {
            HostKind::Server => format!("server {number}"),
            HostKind::Worker => format!("worker w{number}"),
            HostKind::Guard => format!("guard {number}"),
        };
        if self.0.len() > 1 { format!("{name} of {}", self.farm(farm)) } else { name }
    }

    /// The farm of this host.
    pub(crate) fn farm_of(&self, id: NodeId) -> &str {
        self.farm(Host::of(id).farm)
    }

    fn farm(&self, place: usize) -> &str {
        self.0.get(place).map_or("a farm", String::as_str)
    }
}
