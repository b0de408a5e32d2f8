//! The routes, one small handler each.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Request};
use axum::middleware::{Next, from_fn, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use primus_core::ServerId;
use primus_core::election::Algorithm;
use primus_core::farm::foreman::Foreman;
use primus_core::load::Score;
use primus_core::loan::office::Rules as Lending;
use primus_core::rank::RankBy;
use primus_node::cuts::{Cuts, DELAY_MAX};
use primus_node::handle::{Handle, PeerView, Reply, Request as Ask, Unable};
use primus_server::Reason;
use primus_server::peers::Why;
use primus_server::register::Change;
use primus_shapes::HERE;
use serde_json::json;
use tokio::sync::oneshot;

use super::answers::{Crew, LeaderAnswer, Problem, SEE_ROUTES, StatusAnswer, in_one_body};
use super::doors::{self, Doors};
use super::orders::Order;
use super::proxy::{ANSWER_TIME, PASSED_ON, Proxy};
use super::table::{Row, Table};
use super::{
    bodies, elections, events, explain, facts, groups, import, jobs, kv, loans, metrics, output, phases, sessions,
    tasks, workers,
};

/// The longest value, and the longest key.
pub(super) const VALUE_LEN_MAX: usize = 256 * 1024;
pub(super) const KEY_LEN_MAX: usize = 1024;
/// How long another server may take to lead once the old leader has stepped down.
const TRANSFER_TIME: Duration = Duration::from_secs(2);
/// How long after the last leader was lost a request waits for the next one: a failover takes less.
pub(super) const LEADERLESS_TIME: Duration = Duration::from_millis(200);
/// And this many round trips.
const LEADERLESS_TRIPS: u32 = 4;

/// And how long it waits before it asks the same leader again.
pub(super) const ASKING_AGAIN: Duration = Duration::from_millis(2);
/// How long many jobs in one body may take that are passed on.
const BULK_TIME: Duration = Duration::from_secs(3600);

/// Every handler of every request gets a copy, so that is a pointer.
pub(crate) type Context = Arc<Knowledge>;

/// What handlers need to know.
#[derive(Debug)]
pub(crate) struct Knowledge {
    pub(crate) farm: String,
    pub(crate) servers: Arc<BTreeMap<ServerId, Places>>,
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
    pub(crate) lending: Lending,
    pub(crate) neighbours: Arc<BTreeSet<String>>,
    /// When this server started.
    pub(crate) started: SystemTime,
    /// May links be cut and loads be overridden?
    pub(crate) has_chaos: bool,
}

/// Where a server listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) address: SocketAddr,
    pub(crate) api: SocketAddr,
}

impl Knowledge {
    /// Everything that a server of this farm serves, behind its doors.
    pub(crate) fn router(self: Context, doors: Arc<Doors>) -> Router {
        let Table { rows, router } = own_routes();
        let tasks = task_routes();
        let index = [Row::index()].into_iter().chain(rows).chain(tasks.rows).collect::<Vec<_>>();
        let index = json!({ "items": index, "next": null });
        router
            .route(Row::INDEX, get(async move || Json(index.clone())))
            .merge(tasks.router.layer(from_fn_with_state(Arc::clone(&self), at_the_leader)))
            .fallback(|| async { Problem::not_found("there is nothing at this path", SEE_ROUTES) })
            .layer(from_fn(refuse_long_bodies))
            .layer(map_response(in_one_body))
            .layer(from_fn(phases::follow))
            .layer(from_fn_with_state(doors, doors::guard))
            .with_state(self)
    }

    /// The leader's API, if another server leads and the request did not come through one already. Between two leaders it
    /// waits a moment for the next one.
    pub(super) async fn elsewhere(&self, headers: &HeaderMap) -> Option<SocketAddr> {
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
    pub(super) fn elsewhere_now(&self, headers: &HeaderMap) -> Option<SocketAddr> {
        let view = self.handle.view.borrow();
        let leader = view.leader.filter(|leader| *leader != view.id)?;
        let may_pass_on = !headers.contains_key(PASSED_ON) && !headers.contains_key(HERE);
        self.servers.get(&leader).filter(|_| may_pass_on).map(|places| places.api)
    }

    /// The leader's answer, unless another server leads before it comes: a frozen leader keeps its connections and says
    /// nothing.
    pub(super) async fn pass_on(&self, request: Request<Body>, api: SocketAddr) -> Response {
        self.pass_on_within(ANSWER_TIME, request, api).await
    }

    /// The same, for a request whose answer may come later.
    pub(super) async fn pass_on_within(&self, time: Duration, request: Request<Body>, api: SocketAddr) -> Response {
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

    pub(super) async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Ask) -> Result<T, Problem> {
        let (reply, answer) = oneshot::channel();
        self.handle.ask(request(reply));
        heard(answer).await
    }

    /// Asks for what has no answer.
    fn tell(&self, request: Ask) -> Result<(), Problem> {
        if self.handle.ask(request) { Ok(()) } else { Err(Unable::Busy.into()) }
    }

    /// Writes, at once or as soon as this server leads; for another server's sake nothing waits.
    pub(super) async fn change(&self, change: Change<'_>, may_wait: bool) -> Result<u64, Unable> {
        let (reply, answer) = oneshot::channel();
        self.handle.change([vec![change]], may_wait, reply);
        // If the server ended meanwhile, others may still commit what it proposed.
        answer.await.map_err(|_| Unable::Unknown)?
    }
}

/// What every server answers.
fn own_routes() -> Table {
    Table::default()
        .get(doors::LIVEZ, "this process lives", async || "alive\n")
        .get("/readyz", "a server leads, as far as this one knows", readyz)
        .get("/metrics", "what this server counts, for Prometheus", metrics::metrics)
        .get("/v1/leader", "which server leads", leader)
        .get("/v1/status", "servers, workers and tasks at a glance", status)
        .get(
            "/v1/events",
            "what this server has seen, as server-sent events; ?after=N&follow=false&limit=N&steps=true",
            events::events,
        )
        .get("/v1/groups", "further elections, and leases; ?limit=N&after=NEXT", groups::list)
        .post("/v1/elections", "hold an election, of the cluster or of a group; ?group=NAME", elections::elect)
        .get("/v1/leader/explain", "why this server leads", explain::leader)
        .post("/v1/leader/resign", "let another server lead", resign)
        .post("/v1/leader/transfer", "let this server lead: {\"to\":2}", transfer)
        .get("/v1/kv", "keys and values; ?prefix=TEXT&limit=N&after=KEY", kv::list)
        .post("/v1/kv", "write many, a line each: {\"key\":\"colour\",\"value\":\"blue\"}", import::import)
        .get("/v1/kv/{*key}", "a value", kv::read)
        .put("/v1/kv/{*key}", "write a value: the body as it is", kv::write)
        .delete("/v1/kv/{*key}", "delete a value", kv::forget)
        .post("/v1/chaos/cut", "cut links: {\"peers\":[1,2]}; only under primus up", cut)
        .post("/v1/chaos/delay", "delay links: {\"peers\":[1,2],\"delay_ms\":75}; only under primus up", delay)
        .post("/v1/chaos/load", "set a score: {\"score\":85}; only under primus up", load)
}

/// What only the leader can answer, because it is about tasks and those who run them.
fn task_routes() -> Table {
    Table::default()
        .get("/v1/jobs", "jobs, the newest first; ?limit=N&after=JOB", jobs::list)
        .post("/v1/jobs", "submit a job: {\"command\":[\"echo\",\"hello\"]}", jobs::submit)
        .get("/v1/jobs/{id}", "a job", jobs::one)
        .get("/v1/jobs/{id}/wait", "a job, when it has ended; ?timeout_ms=N", jobs::wait)
        .post("/v1/jobs/{id}/cancel", "cancel a job", jobs::cancel)
        .post("/v1/jobs/{id}/retry", "run a job again: {\"failed_only\":true}", jobs::retry)
        .get("/v1/tasks", "tasks; ?job=N&state=failed&limit=N&after=TASK&fields=NAMES", tasks::list)
        .get("/v1/tasks/{id}", "a task", tasks::one)
        .get("/v1/tasks/{id}/explain", "why a task is as it is", tasks::explain)
        .get("/v1/tasks/{id}/output", "what a task printed; ?stream=stderr&offset=N&follow=true", output::output)
        .get("/v1/tasks/{id}/wait", "a task, when it has ended; ?timeout_ms=N", tasks::wait)
        .post("/v1/tasks/{id}/cancel", "cancel a task", tasks::cancel)
        .post("/v1/tasks/{id}/retry", "run a task again", tasks::retry)
        .post("/v1/sessions/{id}", "ask for leases, as primus lead does", sessions::ask)
        .get("/v1/workers", "the workers; ?limit=N&after=NAME", workers::list)
        .post("/v1/workers/{name}/drain", "give a worker nothing new: {\"draining\":true}", workers::drain)
        .get("/v1/farms", "this farm and its neighbours; ?limit=N&after=NAME", loans::neighbourhood)
        .get("/v1/loans", "workers away from home; ?limit=N&after=NEXT", loans::list)
        .post("/v1/loans", "lend workers: {\"to\":\"south\",\"count\":2}", loans::lend)
        .post("/v1/loans/recall", "call lent workers home", loans::recall_some)
        .get("/v1/loans/{id}", "a loan", loans::one)
        .get("/v1/loans/{id}/explain", "a loan in words", loans::explain)
        .post("/v1/loans/{id}/recall", "end a loan", loans::recall_one)
}

pub(super) async fn heard<T>(answer: oneshot::Receiver<Result<T, Unable>>) -> Result<T, Problem> {
    // If the server ended meanwhile, others may still commit what it proposed.
    Ok(answer.await.map_err(|_| Unable::Unknown)??)
}

/// Answers here if this server leads, else passes the request on.
async fn at_the_leader(State(context): State<Context>, request: Request<Body>, next: Next) -> Response {
    let Some(api) = context.elsewhere(request.headers()).await else { return next.run(request).await };
    let path = request.uri().path();
    let time = match () {
        () if jobs::is_bulk(request.headers()) => BULK_TIME,
        () if path.ends_with("/wait") || path.ends_with("/output") => jobs::WAIT_TIME_MAX + ANSWER_TIME,
        () => ANSWER_TIME,
    };
    context.pass_on_within(time, request, api).await
}

/// Refuses a body that is too long for anything, before it is read or passed on.
async fn refuse_long_bodies(request: Request<Body>, next: Next) -> Response {
    // Many values or jobs in one body are read piece by piece, each with its own limit.
    if request.method() == Method::POST && ["/v1/kv", "/v1/jobs"].contains(&request.uri().path()) {
        return next.run(request).await;
    }
    let is_session = request.uri().path().starts_with("/v1/sessions/");
    let len_max = if is_session { sessions::QUESTION_LEN_MAX } else { VALUE_LEN_MAX };
    match bodies::check_length(&request, len_max) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn readyz(State(context): State<Context>) -> Response {
    let (has_leader, refusal) = {
        let view = context.handle.view.borrow();
        let refused = |peer: &PeerView| matches!(&peer.why, Some(Why::Refused(_)));
        let refusal = view.peers.values().find(|peer| refused(peer)).and_then(|peer| peer.why.clone());
        (view.leader.is_some(), refusal)
    };
    match (has_leader, refusal) {
        (true, _) => "ready\n".into_response(),
        (false, Some(why)) => {
            let message = format!("no server leads as far as this one knows, and it is refused: {why}");
            Problem::unavailable("refused", message, "waiting does not help; do what the message says")
                .into_response()
        }
        (false, None) => Problem::unavailable("no_leader", "no server leads at the moment", "wait").into_response(),
    }
}

async fn leader(State(context): State<Context>) -> Json<LeaderAnswer> {
    let view = context.handle.view.borrow().clone();
    Json(LeaderAnswer::new(&context, &view))
}

/// The leader knows most: how far everybody is. A follower without one tells what it knows.
async fn status(State(context): State<Context>, request: Request<Body>) -> Response {
    if let Some(api) = context.elsewhere(request.headers()).await {
        let answer = context.pass_on(request, api).await;
        if answer.status().is_success() {
            return answer;
        }
    }
    let view = context.handle.view.borrow().clone();
    let farm = context.farm.clone();
    let crew = context.handle.farm.look_here(move |foreman| crew(foreman, &farm)).await.unwrap_or_default();
    Json(StatusAnswer::new(&context, &view, crew)).into_response()
}

fn crew(foreman: &Foreman, farm: &str) -> Crew {
    Crew { workers: facts::workers(foreman, farm), queued: foreman.waiting(), running: foreman.under_way() }
}

async fn resign(State(context): State<Context>, request: Request<Body>) -> Response {
    if let Some(api) = context.elsewhere(request.headers()).await {
        return context.proxy.pass_on(request, api, ANSWER_TIME).await;
    }
    hand_over(&context, None, Reason::Resigned).await
}

async fn transfer(State(context): State<Context>, request: Request<Body>) -> Response {
    if let Some(api) = context.elsewhere(request.headers()).await {
        return context.proxy.pass_on(request, api, ANSWER_TIME).await;
    }
    match wanted_leader(&context, request).await {
        Ok(to) => hand_over(&context, Some(to), Reason::Operator).await,
        Err(problem) => problem.into_response(),
    }
}

async fn wanted_leader(context: &Context, request: Request<Body>) -> Result<ServerId, Problem> {
    let mut order = Order::must(request, "send {\"to\":2}").await?;
    let to = order.number("to")?;
    let to = ServerId(order.given("to", to)?);
    order.done()?;
    match context.servers.contains_key(&to) {
        true => Ok(to),
        false => Err(Problem::not_found(format!("there is no server {to}"), "see /v1/status")),
    }
}

/// Waits until somebody else leads; a transfer that comes to nothing leaves the old leader in place.
async fn hand_over(context: &Context, to: Option<ServerId>, reason: Reason) -> Response {
    let mut view = context.handle.view.clone();
    let me = view.borrow().id;
    if to == Some(me) && view.borrow().leader == Some(me) {
        return leader(State(Arc::clone(context))).await.into_response();
    }
    if view.borrow().leader != Some(me) {
        return Problem::from(Unable::NoLeader).into_response();
    }
    // What is guarded beside the leader ends first, so that it can go on beside the next one at once.
    if let Err(unable) = context.handle.farm.vacate().await {
        return Problem::from(unable).into_response();
    }
    if let Err(problem) = context.ask(|reply| Ask::Transfer(to, reason, reply)).await {
        context.handle.farm.stay();
        return problem.into_response();
    }
    let changed = view.wait_for(|view| view.leader.is_some_and(|leader| leader != me));
    if tokio::time::timeout(TRANSFER_TIME, changed).await.is_ok() {
        return leader(State(Arc::clone(context))).await.into_response();
    }
    let message = "no other server has begun to lead";
    Problem::unavailable("not_transferred", message, "see /v1/status").into_response()
}

/// Peers are not talked to, nor are the servers of farms; on the links of workers nothing passes, or they are closed.
async fn cut(State(context): State<Context>, request: Request<Body>) -> Result<Json<serde_json::Value>, Problem> {
    let mut order = chaos(&context, request, "send {\"peers\":[1,2]}").await?;
    let peers: Option<BTreeSet<u64>> = order.numbers("peers")?;
    let peers: BTreeSet<ServerId> = order.given("peers", peers)?.into_iter().map(ServerId).collect();
    let [held, closed, farms] = ["held", "closed", "farms"].map(|name| order.texts::<BTreeSet<String>>(name));
    let (held, closed, farms) =
        (held?.unwrap_or_default(), closed?.unwrap_or_default(), farms?.unwrap_or_default());
    order.done()?;
    if let Some(stranger) = peers.iter().find(|peer| !context.servers.contains_key(peer)) {
        return Err(Problem::usage(format!("there is no server {stranger}"), "see /v1/status"));
    }
    if let Some(stranger) = farms.difference(&context.neighbours).next() {
        return Err(loans::no_neighbour(stranger));
    }
    context.tell(Ask::Cut(Cuts { peers, held, closed, farms, ..Cuts::default() }))?;
    Ok(Json(json!({ "cut": true })))
}

/// What these peers say is delayed by so many milliseconds, each way; by 0, not any more.
async fn delay(State(context): State<Context>, request: Request<Body>) -> Result<Json<serde_json::Value>, Problem> {
    let mut order = chaos(&context, request, "send {\"peers\":[1,2],\"delay_ms\":75}").await?;
    let peers: Option<BTreeSet<u64>> = order.numbers("peers")?;
    let peers: BTreeSet<ServerId> = order.given("peers", peers)?.into_iter().map(ServerId).collect();
    let ms = order.within("delay_ms", 0.0, DELAY_MAX.as_secs_f64() * 1000.0)?;
    let delay = Duration::from_secs_f64(order.given("delay_ms", ms)? / 1000.0);
    order.done()?;
    if let Some(stranger) = peers.iter().find(|peer| !context.servers.contains_key(peer)) {
        return Err(Problem::usage(format!("there is no server {stranger}"), "see /v1/status"));
    }
    context.tell(Ask::Delay(peers.into_iter().map(|peer| (peer, delay)).collect()))?;
    Ok(Json(json!({ "delay": true })))
}

async fn load(State(context): State<Context>, request: Request<Body>) -> Result<Json<serde_json::Value>, Problem> {
    let mut order = chaos(&context, request, "send {\"score\":85}, or {\"score\":null} to measure again").await?;
    let score = order.within("score", 0.0, 100.0)?;
    order.done()?;
    context.tell(Ask::OverrideLoad(score.map(Score::from_percent)))?;
    Ok(Json(json!({ "score": score })))
}

/// What a request for chaos says, where chaos is allowed.
async fn chaos(context: &Context, request: Request<Body>, hint: &'static str) -> Result<Order, Problem> {
    if !context.has_chaos {
        return Err(Problem::forbidden("this server was not started by primus up", "chaos works only there"));
    }
    Order::must(request, hint).await
}
