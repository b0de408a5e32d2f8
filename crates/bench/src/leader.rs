//! The leader of a farm, asked directly, so that no other server passes anything on.

use std::time::Duration;

use primus_client::http::{Request, Session};
use primus_local::TemporaryFarm;
use primus_local::answers::{LeaderTerm, place};
use primus_terminal::Failure;
use serde_json::Value;

use crate::report::silent;

/// A leader and its address.
pub(crate) struct Leader {
    pub(crate) now: LeaderTerm,
    pub(crate) api: String,
}

impl Leader {
    /// The leader of a farm that has settled.
    pub(crate) fn of(farm: &TemporaryFarm) -> Result<Self, Failure> {
        let now = farm.settled()?;
        let server = farm.servers().iter().find(|server| server.id == now.leader);
        Ok(Self { now, api: server.map(|server| place(&server.api).to_owned()).unwrap_or_default() })
    }

    /// A connection to it; each answer may take this long.
    pub(crate) fn session(&self, answer_time: Duration) -> Session {
        Session::new(&self.api, answer_time)
    }
}

/// What the leader answers.
pub(crate) fn ask(session: &mut Session, request: &Request<'_>) -> Result<Value, Failure> {
    session.json(request).map_err(|_| silent("the leader"))
}
