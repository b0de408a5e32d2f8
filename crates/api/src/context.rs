//! What handlers know: the server, the farm, and the way to the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request};
use axum::response::{IntoResponse, Response};
use primus_core::ServerId;
use primus_core::election::Algorithm;
use primus_core::loan::lending::Rules as LendingRules;
use primus_core::rank::RankBy;
use primus_node::handle::{Handle, Reply, Request as ControlRequest, Unable};
use primus_server::register::Change;
use primus_shapes::HERE;
use tokio::sync::oneshot;

use crate::headers::PASSED_ON;
use crate::limits::ANSWER_TIME;
use crate::problem::Problem;
use crate::proxy::Proxy;

/// How long after the last leader was lost a request waits for the next one: a failover takes less.
pub(crate) const LEADERLESS_TIME: Duration = Duration::from_millis(200);
/// And this many round trips.
const LEADERLESS_TRIPS: u32 = 4;

/// Every handler of every request gets a copy, so that is a pointer.
pub(crate) type Context = Arc<Knowledge>;

/// What handlers need to know.
#[derive(Debug)]
pub(crate) struct Knowledge {
    pub(crate) farm: String,
    pub(crate) servers: BTreeMap<ServerId, Places>,
    pub(crate) handle: Handle,
    pub(crate) proxy: Proxy,
    /// How servers elect, and what they compare.
    pub(crate) algorithm: Algorithm,
    pub(crate) rank: RankBy,
    /// How many tasks may wait, if this server leads.
    pub(crate) queue_max: u64,
    /// How long a lease lasts that this server grants.
    pub(crate) lease_us: u64,
    /// When this farm borrows and lends, and with whom.
    pub(crate) lending: LendingRules,
    pub(crate) neighbours: BTreeSet<String>,
    /// When this server started.
    pub(crate) started: SystemTime,
    /// May links be cut and loads be overridden?
    pub(crate) has_chaos: bool,
}

/// Where a server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    /// For links of servers and workers.
    pub address: SocketAddr,
    /// For the HTTP API.
    pub api: SocketAddr,
}

impl Knowledge {
    /// The leader's API, if another server leads and the request did not come through one already. Between two leaders it
    /// waits a moment for the next one.
    pub(crate) async fn elsewhere(&self, headers: &HeaderMap) -> Option<SocketAddr> {
        let mut view = self.handle.view.clone();
        // One look, not two: a second one would wait for a change that waits until the first one has ended.
        let (since, slowest) = {
            let view = view.borrow();
            (view.since, view.slowest_round_trip())
        };
        // Whoever has been without a leader for longer is cut off, and says so at once.
        let time = LEADERLESS_TIME + slowest * LEADERLESS_TRIPS;
        let rest = time.saturating_sub(since.elapsed().unwrap_or(time));
        _ = tokio::time::timeout(rest, view.wait_for(|view| view.leader.is_some())).await;
        self.elsewhere_now(headers)
    }

    /// The same, without waiting.
    pub(crate) fn elsewhere_now(&self, headers: &HeaderMap) -> Option<SocketAddr> {
        let view = self.handle.view.borrow();
        let leader = view.leader.filter(|leader| *leader != view.id)?;
        let may_pass_on = !headers.contains_key(PASSED_ON) && !headers.contains_key(HERE);
        self.servers.get(&leader).filter(|_| may_pass_on).map(|places| places.api)
    }

    /// The leader's answer, unless another server leads before it comes: a frozen leader keeps its connections and says
    /// nothing.
    pub(crate) async fn pass_on(&self, request: Request<Body>, api: SocketAddr) -> Response {
        self.pass_on_within(ANSWER_TIME, request, api).await
    }

    /// The same, for a request whose answer may come later.
    pub(crate) async fn pass_on_within(&self, time: Duration, request: Request<Body>, api: SocketAddr) -> Response {
        let is_read = request.method() == Method::GET;
        let mut view = self.handle.view.clone();
        let asked = view.borrow().leader;
        let deposed = async { _ = view.wait_for(|view| view.leader.is_some() && view.leader != asked).await };
        tokio::select! {
            answer = self.proxy.pass_on(request, api, time) => answer,
            () = deposed => match is_read {
                true => Problem::from(Unable::NoLeader).into_response(),
                false => Problem::from(Unable::Unknown).into_response(),
            },
        }
    }

    pub(crate) async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> ControlRequest) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.handle.ask(request(reply));
        heard(answer).await
    }

    /// Asks for what has no answer.
    pub(crate) fn tell(&self, request: ControlRequest) -> Result<(), Problem> {
        if self.handle.ask(request) { Ok(()) } else { Err(Unable::Busy.into()) }
    }

    /// Writes, at once or as soon as this server leads; for another server's sake nothing waits.
    pub(crate) async fn change(&self, change: Change<'_>, may_wait: bool) -> Result<u64, Unable> {
        let (reply, answer) = oneshot::channel();
        self.handle.change([vec![change]], may_wait, reply);
        // If the server ended meanwhile, others may still commit what it proposed.
        answer.await.map_err(|_| Unable::Unknown)?
    }
}

pub(crate) async fn heard<T>(answer: oneshot::Receiver<Result<T, Unable>>) -> Result<T, Problem> {
    // If the server ended meanwhile, others may still commit what it proposed.
    Ok(answer.await.map_err(|_| Unable::Unknown)??)
}
