//! `/v1/groups`: further elections, and who leads each, as far as this server knows.

use axum::Json;
use axum::extract::State;
use primus_core::NodeId;
use primus_node::elections::{Elected, ElectedGroups};
use serde::Serialize;
use serde_json::{Value, json};

use super::answers::text_of;
use super::routes::Context;

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
    since: String,
    reason: &'static str,
    candidates: Vec<Value>,
}

pub(super) async fn list(State(context): State<Context>) -> Json<Value> {
    let items = elected(&context.handle.elected.borrow());
    Json(json!({ "items": items, "next": null }))
}

/// The groups that elect among servers.
fn elected(groups: &ElectedGroups) -> Vec<GroupFacts> {
    groups.iter().map(|(name, group)| without_quorum(name, group)).collect()
}

fn without_quorum(name: &str, group: &Elected) -> GroupFacts {
    let server = |id: NodeId| Value::from(id.0);
    GroupFacts {
        group: name.to_owned(),
        authority: "none",
        leader: group.leader.map(server),
        term: None,
        round: Some(group.round.0),
        since: text_of(group.since),
        reason: group.reason.name(),
        candidates: group.members.iter().copied().map(server).collect(),
    }
}
