//! How long a request waits for something to end.

use std::time::Duration;

use primus_node::farm::Awaited;
use tokio::time::timeout;

use crate::context::Context;
use crate::limits::WAIT_TIME_MAX;
use crate::orders::Asked;
use crate::problem::Problem;

/// How long somebody wants to wait.
pub(crate) struct Patience {
    timeout_ms: Option<u64>,
}

impl Patience {
    pub(crate) fn new(mut asked: Asked) -> Result<Self, Problem> {
        let timeout_ms = asked.number("timeout_ms")?;
        asked.done()?;
        Ok(Self { timeout_ms })
    }

    /// Waits until this has ended, or for as long as somebody wants to wait.
    pub(crate) async fn wait(&self, context: &Context, awaited: Awaited) -> Result<(), Problem> {
        let wanted = self.timeout_ms.map_or(WAIT_TIME_MAX, Duration::from_millis);
        let ended = timeout(wanted.min(WAIT_TIME_MAX), context.handle.farm.ended(vec![awaited])).await;
        Ok(ended.unwrap_or(Ok(()))?)
    }
}
