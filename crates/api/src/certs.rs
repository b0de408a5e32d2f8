//! `/v1/certs`: the farm's authorities, and which certificates are trusted no more.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use primus_core::ServerId;
use primus_core::ledger::Roll;
use primus_core::ledger::roll::{Authority, Change, Done, Node, Revocation};
use primus_identity::UnixTime;
use primus_identity::authority::{Authority as Identity, AuthorityCertificate};
use primus_identity::keys::Keys;
use primus_node::credentials::entry_of;
use primus_node::handle::Unable;
use primus_shapes::described;
use serde::Serialize;

use crate::context::Context;
use crate::orders::{Asked, Order};
use crate::problem::Problem;
use crate::tokens::{authority_of, change};
use crate::values::time_text;

described! {
    /// An authority of this farm.
    #[derive(Debug, PartialEq, Eq, Serialize)]
    pub(crate) struct AuthorityFacts {
        /// SHA-256 of its certificate, as tokens and neighbours name it.
        authority: String,
        /// True if it signs certificates; the other one is only trusted until the rotation is finished.
        signs: bool,
        /// Until when it is good; null if its certificate cannot be read.
        until: Option<String>,
    }
}

described! {
    /// What is trusted no more.
    #[derive(Debug, PartialEq, Eq, Serialize)]
    pub(crate) struct RevocationFacts {
        /// A certificate or a node, such as certificate 7 or worker w1.
        what: String,
        /// The greatest number of a certificate that is void; a node may get newer ones.
        up_to: u64,
    }
}

described! {
    /// Authorities and revocations.
    #[derive(Debug, PartialEq, Eq, Serialize)]
    pub(crate) struct CertsAnswer {
        /// The authorities, the one that signs first; none if the farm was founded without TLS.
        authorities: Vec<AuthorityFacts>,
        /// What is revoked, as long as a certificate could still be good.
        revoked: Vec<RevocationFacts>,
    }
}

described! {
    /// A rotation that has begun.
    #[derive(Serialize)]
    pub(crate) struct RotateAnswer {
        /// The authority that signs from now on.
        authority: String,
    }
}

described! {
    /// A rotation that is over.
    #[derive(Serialize)]
    pub(crate) struct FinishAnswer {
        /// How many older authorities are trusted no more.
        dropped: usize,
    }
}

described! {
    /// A revocation.
    #[derive(Serialize)]
    pub(crate) struct RevokeAnswer {
        /// What is trusted no more: links that show it are closed.
        revoked: String,
    }
}

pub(crate) async fn show(State(context): State<Context>, asked: Asked) -> Result<Json<CertsAnswer>, Problem> {
    asked.done()?;
    Ok(Json(context.handle.farm.look(|foreman| facts(foreman.ledger().roll())).await?))
}

fn facts(roll: &Roll) -> CertsAnswer {
    let authority = |(place, known): (usize, &Authority)| AuthorityFacts {
        authority: known.hash.to_string(),
        signs: place == 0,
        until: AuthorityCertificate::from_der(&known.certificate).ok().map(|read| time_of(read.validity().until)),
    };
    let revoked = roll.revocations().map(|(what, up_to)| RevocationFacts { what: what.to_string(), up_to });
    CertsAnswer {
        authorities: roll.authorities().iter().enumerate().map(authority).collect(),
        revoked: revoked.collect(),
    }
}

fn time_of(time: UnixTime) -> String {
    time_text(time.as_secs().saturating_mul(1000))
}

/// Makes another authority; nodes renew their certificates with it. The one before is trusted until the rotation is finished.
pub(crate) async fn rotate(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<RotateAnswer>, Problem> {
    Order::nothing(request).await?;
    authority_of(&context).await?;
    let failed = |error: &dyn std::fmt::Display| Problem::unavailable("busy", error.to_string(), "see its log");
    let made = Identity::create(&context.farm, UnixTime::now()).map_err(|error| failed(&error))?;
    let before = context.handle.farm.look(|foreman| foreman.ledger().roll().authorities().first().cloned()).await?;
    let voucher = before.and_then(|before| voucher(&before, made.certificate())).unwrap_or_default();
    match change(&context, Change::AddAuthority(entry_of(&made, voucher))).await? {
        Done::AuthorityAdded(hash) => Ok(Json(RotateAnswer { authority: hash.to_string() })),
        _ => Err(Unable::Unknown.into()),
    }
}

/// What the authority before signs, so that those who know only that one believe the new one, too.
fn voucher(before: &Authority, new: &AuthorityCertificate) -> Option<Vec<u8>> {
    let certificate = AuthorityCertificate::from_der(&before.certificate).ok()?;
    let before = Identity::new(certificate, Keys::from_der(&before.key.0).ok()?).ok()?;
    before.vouch_for(new).ok().map(|voucher| voucher.to_vec())
}

/// Trusts the newest authority only.
pub(crate) async fn finish(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<FinishAnswer>, Problem> {
    Order::nothing(request).await?;
    authority_of(&context).await?;
    let stragglers = context.handle.stragglers(context.servers.keys().copied());
    if !stragglers.is_empty() {
        let message = format!("{} must show a certificate of the new authority first", stragglers.join(", "));
        return Err(Problem::not_now("rotating", message, "nodes that run renew theirs within seconds"));
    }
    match change(&context, Change::FinishRotation).await? {
        Done::RotationFinished(dropped) => Ok(Json(FinishAnswer { dropped })),
        _ => Err(Unable::Unknown.into()),
    }
}

/// Trusts a certificate, or all that a node has now, no more.
pub(crate) async fn revoke(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<RevokeAnswer>, Problem> {
    let mut order = Order::must(request, HINT).await?;
    let (serial, worker, server) = (order.number("serial")?, order.text("worker")?, order.number("server")?);
    order.done()?;
    let revocation = match (serial, worker, server) {
        (Some(serial), None, None) => Revocation::Serial(serial),
        (None, Some(worker), None) => Revocation::Node(Node::Worker(worker)),
        (None, None, Some(server)) => Revocation::Node(Node::Server(ServerId(server))),
        _ => return Err(Problem::usage("what is revoked is one certificate or one node", HINT)),
    };
    if matches!(&revocation, Revocation::Node(Node::Server(id)) if !context.servers.contains_key(id)) {
        return Err(Problem::not_found(format!("{revocation} does not exist"), "primus status lists the servers"));
    }
    change(&context, Change::Revoke(revocation.clone())).await?;
    Ok(Json(RevokeAnswer { revoked: revocation.to_string() }))
}

const HINT: &str = "send {\"serial\":7}, {\"worker\":\"w1\"} or {\"server\":2}";

#[cfg(test)]
mod tests {
    use primus_core::ledger::{Batch, Entry, Ledger};

    use super::*;

    #[test]
    fn an_authority_is_shown_without_its_key() {
        let made =
            Identity::create("north", UnixTime::since_unix_epoch(std::time::Duration::from_secs(86_400))).unwrap();
        let secret = made.keys().secret_pem();
        let mut ledger = Ledger::default();
        let change = |change| Entry::Roll(change);
        let entries = vec![
            change(Change::AddAuthority(entry_of(&made, Vec::new()))),
            change(Change::Revoke(Revocation::Serial(7))),
            change(Change::Revoke(Revocation::Node(Node::Server(ServerId(2))))),
        ];
        ledger.apply(Batch { time_ms: 0, entries });
        let facts = facts(ledger.roll());
        assert_eq!(facts.authorities[0].until.as_deref(), Some("1980-01-01T00:00:00.000Z"));
        assert!(
            facts.authorities[0].signs && facts.authorities[0].authority == made.certificate().hash().to_string()
        );
        let revoked: Vec<_> = facts.revoked.iter().map(|found| (found.what.as_str(), found.up_to)).collect();
        assert_eq!(revoked, [("certificate 7", 7), ("server 2", 0)]);
        let shown = serde_json::to_string(&facts).unwrap();
        assert!(!shown.contains("PRIVATE") && !secret.lines().any(|line| shown.contains(line)), "{shown}");
    }
}
