//! `/v1/elections`: holds an election, of the cluster or of a group, and says what came of it. Any server can be asked.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use primus_core::ServerId;
use primus_core::load::Score;
use primus_node::elections::Elected;
use primus_node::handle::{Election, Outcome, Request as ControlRequest};
use primus_shapes::described;
use primus_shapes::schema::Percent;
use serde::Serialize;
use tokio::time::timeout;

use crate::context::{Context, may_pass_on};
use crate::limits::ANSWER_TIME;
use crate::orders::Asked;
use crate::problem::Problem;
use crate::proxy::Through;
use crate::values;
use crate::words::ElectionOutcome;

/// How long an election may take, with the end of what is guarded beside a leader that hands over. Less than whoever passes
/// the request on waits.
const RESULT_TIME: Duration = Duration::from_secs(9);

described! {
    /// What came of an election.
    #[derive(Debug, PartialEq, Serialize)]
    pub(crate) struct ElectionAnswer {
        /// Always true; earlier versions did not wait for the result.
        started: bool,
        /// What came of it.
        outcome: &'static str as ElectionOutcome,
        /// The group, if it was not an election of the cluster.
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        /// The server that leads now.
        leader: u64,
        /// Its term; null for a group, which has rounds.
        term: Option<u64>,
        /// The round of the group's election.
        #[serde(skip_serializing_if = "Option::is_none")]
        round: Option<u64>,
        /// The server that led before.
        previous: Option<u64>,
        /// The server that was asked first.
        asked: u64,
        /// The server that held the election.
        held_by: u64,
        /// How loaded the servers were.
        scores: Vec<ServerScore>,
    }
}

described! {
    /// How loaded a server was.
    #[derive(Debug, PartialEq, Serialize)]
    struct ServerScore {
        /// The server's id.
        id: u64,
        /// Its score: 0 to 100, lower is better.
        score: f64 as Percent,
    }
}

/// The leader holds it; while no server leads, the one that is asked.
pub(crate) async fn elect(State(context): State<Context>, mut query: Asked, request: Request<Body>) -> Response {
    let group = query.text("group");
    if let Err(problem) = query.done() {
        return problem.into_response();
    }
    if let Some(group) = group {
        return elect_in_group(&context, group, request).await;
    }
    if let Some(leader) = context.elsewhere(&request).await {
        return context.proxy.pass_on(request, leader, ANSWER_TIME).await;
    }
    let asked = asked(&context, &request);
    match timeout(RESULT_TIME, context.ask(|reply| ControlRequest::Elect(asked, reply))).await {
        Ok(Ok(election)) => Json(ElectionAnswer::new(&election)).into_response(),
        Ok(Err(problem)) => problem.into_response(),
        Err(_) => no_result().into_response(),
    }
}

/// The server that was asked first.
fn asked(context: &Context, request: &Request<Body>) -> ServerId {
    Through::of(request).unwrap_or(context.handle.id())
}

fn no_result() -> Problem {
    Problem::unavailable("no_leader", "the election has not ended yet", "primus leader says who leads")
}

/// A member holds it: this server, or one that it asks.
async fn elect_in_group(context: &Context, name: String, request: Request<Body>) -> Response {
    let mut elected = context.handle.elected.clone();
    let Some(before) = elected.borrow().get(&name).cloned() else {
        let what = format!("no group {name} elects among servers");
        return Problem::not_found(what, "primus groups shows those that do, with authority none").into_response();
    };
    let asked = asked(context, &request);
    if !context.handle.elect_in_group(&name) {
        return match member(context, &before).filter(|_| may_pass_on(&request)) {
            Some(member) => context.proxy.pass_on(request, member, ANSWER_TIME).await,
            None => Problem::unavailable("no_leader", "no member of the group can be asked", "see primus status")
                .into_response(),
        };
    }
    let is_over = |now: &Elected| now.leader.is_some() && (before.leader.is_none() || now.round > before.round);
    let result = elected.wait_for(|groups| groups.get(&name).is_some_and(is_over));
    match timeout(RESULT_TIME, result).await {
        Ok(Ok(groups)) => match groups.get(&name) {
            Some(now) => Json(ElectionAnswer::of_group(context, name, asked, &before, now)).into_response(),
            None => no_result().into_response(),
        },
        _ => no_result().into_response(),
    }
}

/// The group's leader, or else a member that is there.
fn member(context: &Context, group: &Elected) -> Option<ServerId> {
    let view = context.handle.view.borrow();
    let is_up = |id: &&ServerId| view.peers.get(id).is_some_and(|peer| peer.is_up);
    group.leader.iter().chain(&group.members).find(is_up).copied()
}

impl ElectionAnswer {
    fn new(election: &Election) -> Self {
        Self {
            started: true,
            outcome: election.outcome.name(),
            group: None,
            leader: election.leader.0,
            term: Some(election.term.0),
            round: None,
            previous: election.previous.map(|previous| previous.0),
            asked: election.asked.0,
            held_by: election.held_by.0,
            scores: scores(election.scores.iter().copied()),
        }
    }

    fn of_group(context: &Context, group: String, asked: ServerId, before: &Elected, now: &Elected) -> Self {
        let view = context.handle.view.borrow();
        let outcome = match before.leader {
            None => Outcome::Elected,
            previous if previous == now.leader => Outcome::Confirmed,
            Some(_) => Outcome::Transferred,
        };
        let score = |id: &ServerId| match view.peers.get(id) {
            Some(peer) => peer.load.map(|load| (*id, load.score)),
            None => Some((*id, view.load.score)),
        };
        Self {
            started: true,
            outcome: outcome.name(),
            group: Some(group),
            leader: now.leader.map_or(0, |leader| leader.0),
            term: None,
            round: Some(now.round.0),
            previous: before.leader.map(|leader| leader.0),
            asked: asked.0,
            held_by: view.id.0,
            scores: scores(now.members.iter().filter_map(score)),
        }
    }
}

fn scores(scores: impl Iterator<Item = (ServerId, Score)>) -> Vec<ServerScore> {
    scores.map(|(id, score)| ServerScore { id: id.0, score: values::score(score) }).collect()
}
