//! `/v1/chaos`: cutting and delaying links and setting scores, where that is allowed.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use primus_core::ServerId;
use primus_core::load::Score;
use primus_node::handle::Request as ControlRequest;
use primus_node::link_faults::{DELAY_MAX, LinkFaults};
use primus_shapes::described;
use primus_shapes::schema::Percent;
use serde::Serialize;

use crate::context::Context;
use crate::farms::no_neighbour;
use crate::orders::Order;
use crate::problem::Problem;

described! {
    /// Links that are cut.
    #[derive(Serialize)]
    pub(crate) struct CutAnswer {
        /// Always true.
        cut: bool,
    }
}

described! {
    /// Links that are slow.
    #[derive(Serialize)]
    pub(crate) struct DelayAnswer {
        /// Always true.
        delay: bool,
    }
}

described! {
    /// A score that was set.
    #[derive(Serialize)]
    pub(crate) struct LoadAnswer {
        /// The score from now on; null if it is measured again.
        score: Option<f64> as Option<Percent>,
    }
}

/// Peers are not talked to, nor are the servers of farms; on the links of workers nothing passes, or they are closed.
pub(crate) async fn cut(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<CutAnswer>, Problem> {
    let mut order = chaos(&context, request, "send {\"peers\":[1,2]}").await?;
    let peers: Option<BTreeSet<u64>> = order.numbers("peers")?;
    let peers: BTreeSet<ServerId> = order.given("peers", peers)?.into_iter().map(ServerId).collect();
    let [held, closed, farms] = ["held", "closed", "farms"].map(|name| order.texts::<BTreeSet<String>>(name));
    let (held, closed, farms) =
        (held?.unwrap_or_default(), closed?.unwrap_or_default(), farms?.unwrap_or_default());
    order.done()?;
    if let Some(stranger) = peers.iter().find(|peer| !context.servers.contains_key(peer)) {
        return Err(Problem::usage(format!("server {stranger} does not exist"), "see /v1/status"));
    }
    let known = context.handle.farm.neighbourhood();
    if let Some(stranger) = farms.iter().find(|farm| !known.farms.contains_key(*farm)) {
        return Err(no_neighbour(stranger));
    }
    context.tell(ControlRequest::Cut(LinkFaults { peers, held, closed, farms, ..LinkFaults::default() }))?;
    Ok(Json(CutAnswer { cut: true }))
}

/// What these peers say is delayed by so many milliseconds, each way; by 0, not any more.
pub(crate) async fn delay(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<DelayAnswer>, Problem> {
    let mut order = chaos(&context, request, "send {\"peers\":[1,2],\"delay_ms\":75}").await?;
    let peers: Option<BTreeSet<u64>> = order.numbers("peers")?;
    let peers: BTreeSet<ServerId> = order.given("peers", peers)?.into_iter().map(ServerId).collect();
    let ms = order.within("delay_ms", 0.0, DELAY_MAX.as_secs_f64() * 1000.0)?;
    let delay = Duration::from_secs_f64(order.given("delay_ms", ms)? / 1000.0);
    order.done()?;
    if let Some(stranger) = peers.iter().find(|peer| !context.servers.contains_key(peer)) {
        return Err(Problem::usage(format!("server {stranger} does not exist"), "see /v1/status"));
    }
    context.tell(ControlRequest::Delay(peers.into_iter().map(|peer| (peer, delay)).collect()))?;
    Ok(Json(DelayAnswer { delay: true }))
}

pub(crate) async fn load(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<LoadAnswer>, Problem> {
    let mut order = chaos(&context, request, "send {\"score\":85}, or {\"score\":null} to measure again").await?;
    let score = order.within("score", 0.0, 100.0)?;
    order.done()?;
    context.tell(ControlRequest::OverrideLoad(score.map(Score::from_percent)))?;
    Ok(Json(LoadAnswer { score }))
}

/// What a request for chaos says, where chaos is allowed.
async fn chaos(context: &Context, request: Request<Body>, hint: &'static str) -> Result<Order, Problem> {
    if !context.has_chaos {
        return Err(Problem::forbidden("this server was not started by primus up", "chaos works only there"));
    }
    Order::must(request, hint).await
}
