//! What a server can be told in one word: how far away the others are, who should lead, what its load is.

use std::path::PathBuf;

use primus_core::machine::Delay;
use primus_core::{detector, rank};
use primus_node::load;
use primus_server::Plan;

/// How far away the servers are from each other: a preset for all times of a [`ServerBuilder`](crate::ServerBuilder).
///
/// Between servers that live, links are measured, and times grow with them; a preset says where they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// One host, or one rack: a frozen leader is replaced after about 0.1 s, a lease lasts 1 s.
    #[default]
    Local,
    /// One site with busy hosts: about 0.3 s, and 2 s.
    Lan,
    /// Several sites: about 1 s, and 5 s.
    Wan,
}

/// Who should lead a farm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rank {
    /// The least loaded server. A leader stays while it is not much more loaded than another server.
    #[default]
    Load,
    /// The server with the greatest number, whenever it lives.
    Id,
    /// The server with the greatest address, whenever it lives.
    Address,
}

/// What the load of a server or a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LoadSource {
    /// The use of the whole host.
    #[default]
    System,
    /// The use of the control group that this process is in: a container, a service.
    Cgroup,
    /// The use of this process alone.
    Process,
    /// A file that holds a score from 0 to 100.
    File(PathBuf),
}

impl Network {
    pub(crate) const fn apply(self, plan: &mut Plan) {
        let (heartbeat_ms, floor_ms, ceiling_ms, lease_ms) = match self {
            Self::Local => return,
            Self::Lan => (50, 250, 2_000, 2_000),
            Self::Wan => (200, 1_000, 10_000, 5_000),
        };
        plan.election.silence = detector::Rules {
            heartbeat_us: heartbeat_ms * 1000,
            floor_us: floor_ms * 1000,
            ceiling_us: ceiling_ms * 1000,
            ..plan.election.silence
        };
        plan.lease_us = lease_ms * 1000;
        plan.election.answers = Some(Delay::exactly_ms(heartbeat_ms * 2));
        plan.election.startup = Delay::between_ms(heartbeat_ms * 3, heartbeat_ms * 6);
    }
}

impl Rank {
    pub(crate) const fn rank_by(self) -> rank::RankBy {
        match self {
            Self::Load => rank::RankBy::Load,
            Self::Id => rank::RankBy::Id,
            Self::Address => rank::RankBy::Address,
        }
    }
}

impl LoadSource {
    pub(crate) fn source(self) -> load::Source {
        match self {
            Self::System => load::Source::System,
            Self::Cgroup => load::Source::Cgroup,
            Self::Process => load::Source::Process,
            Self::File(file) => load::Source::File(file),
        }
    }
}
