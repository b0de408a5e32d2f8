//! `/v1/status`: servers, workers and tasks at a glance.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use primus_core::ServerId;
use primus_core::farm::foreman::Foreman;
use primus_node::handle::View;
use primus_replica::Role;
use primus_server::peers::State as PeerState;
use primus_shapes::described;
use primus_shapes::schema::{Percent, Time};
use serde::Serialize;

use crate::context::{Context, Places};
use crate::leader::LeaderAnswer;
use crate::values::{score, text_of};
use crate::words::{LinkState, ServerRole};
use crate::workers::{WorkerFacts, workers};

described! {
    /// Servers, workers and tasks at a glance.
    #[derive(Serialize)]
    pub(crate) struct StatusAnswer {
        #[serde(flatten)]
        leader: LeaderAnswer,
        /// The server that answers.
        server: u64,
        /// All servers.
        servers: Vec<ServerAnswer>,
        /// All workers that are here or registered.
        workers: Vec<WorkerFacts>,
        /// How many tasks wait.
        queued: u64,
        /// How many tasks run.
        running: u64,
        /// How often the server that answers has suspected another one.
        suspicions: u64,
        /// How long the server that answers would wait for a silent leader.
        silence_ms: f64,
        /// The longest turn of that server's control loop.
        longest_turn_ms: f64,
    }
}

/// The workers, and what they have to do.
#[derive(Default)]
struct Crew {
    workers: Vec<WorkerFacts>,
    queued: u64,
    running: u64,
}

described! {
    /// A server, as another one sees it.
    #[derive(Serialize)]
    struct ServerAnswer {
        /// The server's id.
        id: u64,
        /// Where it listens for servers and workers.
        address: String,
        /// Where its HTTP API listens.
        api: String,
        /// Its role; null where it is not known, because the server is not up.
        role: Option<&'static str> as Option<ServerRole>,
        /// True if it can be reached.
        alive: bool,
        /// What its state is, as seen by the server that answers.
        state: &'static str as LinkState,
        /// Since when it has been in that state.
        since: String as Time,
        /// How long ago it was heard.
        heard_ms: Option<f64>,
        /// Why it is not up.
        why: Option<String>,
        /// The leader that it gave way to, and for which it does not stand in elections.
        gave_way_to: Option<u64>,
        /// How loaded it is: 0 to 100, lower is better.
        score: Option<f64> as Option<Percent>,
        /// The processor's part of that, 0 to 100.
        cpu: Option<f64> as Option<Percent>,
        /// The memory's part of that, 0 to 100.
        memory: Option<f64> as Option<Percent>,
        /// How many tasks run beside it and count in its score.
        tasks: Option<u32>,
        /// True if its disk has no room for new work.
        disk_full: Option<bool>,
        /// How much of the log it has applied.
        applied: Option<u64>,
        /// How many records of the log it has not applied yet.
        lag: Option<u64>,
        /// How long a message to it and back takes, as measured by the server that answers.
        round_trip_ms: Option<f64>,
        /// How long its messages are delayed on purpose (primus chaos delay).
        delay_ms: Option<u64>,
    }
}

/// The leader knows most: how far everybody is. A follower without one tells what it knows.
pub(crate) async fn read(State(context): State<Context>, request: Request<Body>) -> Response {
    if let Some(leader) = context.elsewhere(&request).await {
        let answer = context.pass_on(request, leader).await;
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
    Crew { workers: workers(foreman, farm), queued: foreman.waiting(), running: foreman.under_way() }
}

impl StatusAnswer {
    fn new(context: &Context, view: &View, crew: Crew) -> Self {
        let servers = context.servers.iter().map(|(id, places)| ServerAnswer::new(context, view, *id, places));
        Self {
            leader: LeaderAnswer::new(context, view),
            server: view.id.0,
            servers: servers.collect(),
            workers: crew.workers,
            queued: crew.queued,
            running: crew.running,
            suspicions: view.suspicions,
            silence_ms: view.silence_us as f64 / 1000.0,
            longest_turn_ms: view.longest_turn.as_secs_f64() * 1000.0,
        }
    }
}

impl ServerAnswer {
    /// What a server that is not up said of its load counts no more; how much of the log it has stays true.
    fn new(context: &Context, view: &View, id: ServerId, places: &Places) -> Self {
        let is_self = id == view.id;
        let peer = view.peers.get(&id).cloned().unwrap_or_default();
        let state = if is_self { PeerState::Up } else { peer.state };
        let is_up = state == PeerState::Up;
        let load = if is_self { Some(view.load) } else { peer.load.filter(|_| is_up) };
        // A leader that has not heard a peer yet begins to count at nothing.
        let matched = peer.matched.filter(|matched| is_up || *matched > 0);
        let applied = if is_self { Some(view.applied) } else { matched };
        let heard = if is_self { Some(Duration::ZERO) } else { context.handle.heard.ago(id) };
        Self {
            id: id.0,
            address: places.address.to_string(),
            api: places.api.to_string(),
            role: is_up.then(|| role_of(view, is_self, view.leader == Some(id))),
            alive: is_self || peer.is_up,
            state: state.name(),
            since: text_of(if is_self { context.started } else { peer.since }),
            heard_ms: heard.map(|ago| ago.as_micros() as f64 / 1000.0),
            why: peer.why.filter(|_| !is_up).map(|why| why.to_string()),
            gave_way_to: view.gave_way.get(&id).map(|to| to.0),
            score: load.map(|load| score(load.score)),
            cpu: load.and_then(|load| load.cpu).map(score),
            memory: load.and_then(|load| load.memory).map(score),
            tasks: load.map(|load| load.tasks),
            disk_full: load.map(|load| load.is_disk_full),
            applied,
            lag: applied.map(|applied| view.last.saturating_sub(applied)),
            round_trip_ms: peer.round_trip_us.map(|us| us as f64 / 1000.0),
            delay_ms: peer.delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

fn role_of(view: &View, is_self: bool, leads: bool) -> &'static str {
    match (leads, is_self, view.role) {
        (true, ..) => "leader",
        (false, true, Role::Candidate) => "candidate",
        _ => "follower",
    }
}
