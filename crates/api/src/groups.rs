//! `/v1/groups`: further elections, and who leads each, as far as this server knows; and leases, and who holds each, as the
//! leader knows.

use std::collections::BTreeSet;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::Request;
use axum::response::Response;
use primus_core::ServerId;
use primus_core::lease::Lessor;
use primus_core::ledger::{GroupRules, Groups, Holding};
use primus_node::elections::{Elected, ElectedGroups};
use primus_shapes::described;
use primus_shapes::path::escaped;
use primus_shapes::schema::Time;
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::orders::Asked;
use crate::pages::{self, Page, no_cursor};
use crate::problem::Problem;
use crate::values::{text_of, time_text};
use crate::words::{Authority, LeaseRank, NameOrId, Reason};

/// Ten thousand groups fit.
const ANSWER_LEN_MAX: usize = 16 << 20;
const QUORUM: &str = "quorum";
const NONE: &str = "none";

described! {
    /// A further election, or a lease.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub(crate) struct GroupFacts {
        /// The group's name.
        group: String,
        /// What makes its leader the leader: quorum for a lease, none where servers elect without one.
        authority: &'static str as Authority,
        /// The first holder's name of a lease; the server's id where servers elect; null if there is none.
        leader: Option<Value> as Option<NameOrId>,
        /// The leader's term, where there are terms.
        term: Option<u64>,
        /// The election that the leader won, where there are only rounds.
        round: Option<u64>,
        /// Since when it leads.
        since: Option<String> as Option<Time>,
        /// Why leadership of the group changed, where servers elect.
        reason: Option<&'static str> as Option<Reason>,
        /// Who would like to lead: names of a lease, ids of servers.
        candidates: Vec<Value> as Vec<NameOrId>,
        /// Who holds the lease.
        #[serde(skip_serializing_if = "Option::is_none")]
        holders: Option<Vec<HolderFacts>>,
        /// Who comes first among the candidates of a lease.
        #[serde(skip_serializing_if = "Option::is_none")]
        rank: Option<&'static str> as Option<LeaseRank>,
        /// How many can hold the lease at once.
        #[serde(skip_serializing_if = "Option::is_none")]
        holders_max: Option<u16>,
    }
}

described! {
    /// A holder of a lease.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    struct HolderFacts {
        /// The holder's name.
        name: String,
        /// Its term: each grant has a greater one.
        term: u64,
        /// Since when it holds the lease.
        since: String as Time,
    }
}

/// Where the list goes on: behind this group that servers elect in, or behind this lease. Leases come last.
#[derive(Debug, Clone, PartialEq, Eq)]
enum After {
    Elected(String),
    Leased(String),
}

impl After {
    fn parse(text: &str) -> Result<Self, Problem> {
        match text.split_once('/') {
            Some((NONE, name)) => Ok(Self::Elected(name.to_owned())),
            Some((QUORUM, name)) => Ok(Self::Leased(name.to_owned())),
            _ => Err(no_cursor(text)),
        }
    }
}

/// The leader knows who holds what; of what servers elect among themselves, each knows its own.
pub(crate) async fn list(
    State(context): State<Context>,
    mut asked: Asked,
    request: Request<Body>,
) -> Result<Response, Problem> {
    let page = Page::new(pages::limit(&mut asked)?);
    let after = asked.text("after").map(|after| After::parse(&after)).transpose()?;
    asked.done()?;
    let (page, after) = match after {
        Some(After::Leased(after)) => (page, after),
        after => (elected(&context.handle.elected.borrow(), after, page), String::new()),
    };
    // A page that is full says by itself whether something comes behind it, unless leases do.
    Ok(with_leases(&context, request, page, after).await.finish())
}

async fn with_leases(context: &Context, request: Request<Body>, page: Page, after: String) -> Page {
    match context.elsewhere(&request).await {
        Some(leader) => {
            let asked = leases_behind(request, page.room().max(1), &after);
            leased_there(context.pass_on(asked, leader).await, page).await
        }
        None => {
            let own = page.clone();
            let look = move |groups: &Groups, lessor: &Lessor| leased(groups, lessor, page, &after);
            context.handle.farm.look_at_leases(look).await.unwrap_or(own)
        }
    }
}

/// The same question to the leader, about leases only.
fn leases_behind(mut request: Request<Body>, limit: usize, after: &str) -> Request<Body> {
    let after = escaped(after);
    let uri = format!("{}?limit={limit}&after={QUORUM}/{after}", request.uri().path());
    *request.uri_mut() = uri.parse().expect("an escaped text is part of an address");
    request
}

/// What the leader says of leases; nothing if it says nothing.
async fn leased_there(answer: Response, mut page: Page) -> Page {
    let body = to_bytes(answer.into_body(), ANSWER_LEN_MAX).await.unwrap_or_default();
    let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
    for item in answer["items"].as_array().into_iter().flatten() {
        let name = item["group"].as_str().unwrap_or_default();
        if !page.push(format!("{QUORUM}/{name}"), item) {
            return page;
        }
    }
    if answer["next"].is_string() {
        page.cut();
    }
    page
}

/// The groups behind this one that somebody holds, or would like to.
fn leased(groups: &Groups, lessor: &Lessor, page: Page, after: &str) -> Page {
    let held = groups.held();
    let names: BTreeSet<&str> =
        held.keys().map(String::as_str).chain(lessor.wanted().map(|(name, ..)| name)).collect();
    let wanted = |name: &str| lessor.rules_of(name);
    let facts = |name: &str| {
        let group = held.get(name);
        let rules = group.map(|group| group.rules).or_else(|| wanted(name))?;
        let holders = group.into_iter().flat_map(|group| group.holders.values()).collect();
        Some((format!("{QUORUM}/{name}"), lease(name, rules, holders, lessor.candidates(name))))
    };
    page.fill(names.into_iter().filter(|name| *name > after).filter_map(facts))
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
fn elected(groups: &ElectedGroups, after: Option<After>, page: Page) -> Page {
    let after = if let Some(After::Elected(after)) = after { Some(after) } else { None };
    let rest = groups.iter().filter(|(name, _)| after.as_ref().is_none_or(|after| *name > after));
    page.fill(rest.map(|(name, group)| (format!("{NONE}/{name}"), without_quorum(name, group))))
}

fn without_quorum(name: &str, group: &Elected) -> GroupFacts {
    let server = |id: ServerId| Value::from(id.0);
    GroupFacts {
        group: name.to_owned(),
        authority: NONE,
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
