//! What handlers know: the server, the farm, and the way to the leader.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::{IntoResponse, Response};
use primus_core::election::Algorithm;
use primus_core::loan::lending::Rules as LendingRules;
use primus_core::rank::RankBy;
use primus_core::{Place, ServerId};
use primus_node::handle::{Handle, Reply, Request as ControlRequest, Unable};
use primus_node::leader_search::Patience;
use primus_server::register::Change;
use primus_shapes::HERE;
use tokio::sync::oneshot;

use crate::limits::ANSWER_TIME;
use crate::problem::Problem;
use crate::proxy::{Proxy, Through};

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
    /// When this farm borrows and lends.
    pub(crate) lending: LendingRules,
    /// When this server started.
    pub(crate) started: SystemTime,
    /// May links be cut and loads be overridden?
    pub(crate) has_chaos: bool,
}

/// Where others reach a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// For links of servers and workers.
    pub address: Place,
    /// For the HTTP API.
    pub api: Place,
}

impl Knowledge {
    /// The leader, if another server leads and may be asked. Between two leaders it waits a moment for the next one.
    pub(crate) fn elsewhere<'a, B>(
        &'a self,
        request: &Request<B>,
    ) -> impl Future<Output = Option<ServerId>> + Send + use<'a, B> {
        let may_pass_on = may_pass_on(request);
        async move {
            let leader = self.handle.search(Patience::MOMENT).leader().await?;
            (may_pass_on && leader != self.handle.id()).then_some(leader)
        }
    }

    /// The leader's answer, unless another server leads before it comes.
    pub(crate) async fn pass_on(&self, request: Request<Body>, leader: ServerId) -> Response {
        self.pass_on_within(ANSWER_TIME, request, leader).await
    }

    /// The same, for a request whose answer may come later.
    pub(crate) async fn pass_on_within(
        &self,
        time: Duration,
        request: Request<Body>,
        leader: ServerId,
    ) -> Response {
        let is_read = request.method() == Method::GET;
        let deposed = || Problem::from(if is_read { Unable::NoLeader } else { Unable::Unknown }).into_response();
        let answer = self.proxy.pass_on(request, leader, time);
        self.handle.unless_deposed(leader, answer).await.unwrap_or_else(deposed)
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

/// May another server be asked instead? Not if one has asked this one, nor if this one alone shall answer.
pub(crate) fn may_pass_on<B>(request: &Request<B>) -> bool {
    Through::of(request).is_none() && !request.headers().contains_key(HERE)
}

pub(crate) async fn heard<T>(answer: oneshot::Receiver<Result<T, Unable>>) -> Result<T, Problem> {
    // If the server ended meanwhile, others may still commit what it proposed.
    Ok(answer.await.map_err(|_| Unable::Unknown)??)
}
