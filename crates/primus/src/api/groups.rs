//! `/v1/groups`: further elections, and who leads each, as far as this server knows; and leases, and who holds each, as the
//! leader knows.

use std::collections::BTreeSet;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use primus_core::ServerId;
use primus_core::lease::Lessor;
use primus_core::ledger::{GroupRules, Groups, Holding};
use primus_node::elections::{Elected, ElectedGroups};
use serde::Serialize;
use serde_json::{Value, json};

use super::answers::{text_of, time_text};
use super::routes::Context;

/// Ten thousand groups fit.
const ANSWER_LEN_MAX: usize = 16 << 20;
const QUORUM: &str = "quorum";

/// A group. Leader and candidates are numbers where they are servers.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct GroupFacts {
    group: String,
    /// What makes its leader the leader.
    authority: &'static str,
    leader: Option<Value>,
    /// The leader's term, where there are terms.
    term: Option<u64>,
    /// The election that it won, where there are only rounds.
    round: Option<u64>,
    since: Option<String>,
    reason: Option<&'static str>,
    candidates: Vec<Value>,
    /// Who holds it, where it is a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    holders: Option<Vec<HolderFacts>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holders_max: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct HolderFacts {
    name: String,
    term: u64,
    since: String,
}

/// The leader knows who holds what; of what servers elect among themselves, each knows its own.
pub(super) async fn list(State(context): State<Context>, request: Request<Body>) -> Json<Value> {
    let mut items: Vec<Value> =
        elected(&context.handle.elected.borrow()).iter().map(|facts| json!(facts)).collect();
    match context.elsewhere(request.headers()).await {
        Some(api) => items.extend(leased_there(context.pass_on(request, api).await).await),
        None => {
            let leased = context.handle.farm.look_at_leases(leased).await.unwrap_or_default();
            items.extend(leased.iter().map(|facts| json!(facts)));
        }
    }
    Json(json!({ "items": items, "next": null }))
}

/// What the leader says of leases; nothing if it says nothing.
async fn leased_there(answer: Response) -> Vec<Value> {
    let body = to_bytes(answer.into_body(), ANSWER_LEN_MAX).await.unwrap_or_default();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    let items = answer["items"].as_array().cloned().unwrap_or_default();
    items.into_iter().filter(|item| item["authority"] == QUORUM).collect()
}

/// The groups that somebody holds, or would like to.
fn leased(groups: &Groups, lessor: &Lessor) -> Vec<GroupFacts> {
    let held = groups.held();
    let names: BTreeSet<&str> =
        held.keys().map(String::as_str).chain(lessor.wanted().map(|(name, ..)| name)).collect();
    let wanted = |name: &str| lessor.rules_of(name);
    let facts = |name: &str| {
        let group = held.get(name);
        let rules = group.map(|group| group.rules).or_else(|| wanted(name))?;
        let holders = group.into_iter().flat_map(|group| group.holders.values()).collect();
        Some(lease(name, rules, holders, lessor.candidates(name)))
    };
    names.into_iter().filter_map(facts).collect()
}

fn lease(name: &str, rules: GroupRules, holders: Vec<&Holding>, candidates: Vec<&str>) -> GroupFacts {
    let first = holders.first();
    let facts = |holding: &&Holding| {
        let Holding { name, token, since_ms, .. } = holding;
        HolderFacts { name: name.clone(), term: *token, since: time_text(*since_ms) }
    };
    GroupFacts {
        group: name.to_owned(),
        authority: QUORUM,
        leader: first.map(|holding| Value::from(holding.name.clone())),
        term: first.map(|holding| holding.token),
        round: None,
        since: first.map(|holding| time_text(holding.since_ms)),
        reason: None,
        candidates: candidates.into_iter().map(Value::from).collect(),
        holders: Some(holders.iter().map(facts).collect()),
        rank: Some(rules.rank.name()),
        holders_max: Some(rules.holders),
    }
}

/// The groups that elect among servers.
fn elected(groups: &ElectedGroups) -> Vec<GroupFacts> {
    groups.iter().map(|(name, group)| without_quorum(name, group)).collect()
}

fn without_quorum(name: &str, group: &Elected) -> GroupFacts {
    let server = |id: ServerId| Value::from(id.0);
    GroupFacts {
        group: name.to_owned(),
        authority: "none",
        leader: group.leader.map(server),
        term: None,
        round: Some(group.round.0),
        since: Some(text_of(group.since)),
        reason: Some(group.reason.name()),
        candidates: group.members.iter().copied().map(server).collect(),
        holders: None,
        rank: None,
        holders_max: None,
    }
}
