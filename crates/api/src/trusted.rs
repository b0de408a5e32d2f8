//! `/v1/neighbours`: other farms that are trusted to name their own nodes.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::response::Response;
use primus_core::ledger::roll::{Change, Fingerprint, Neighbour, SERVERS_MAX};
use primus_core::names::is_name;
use primus_identity::authority::AuthorityCertificate;
use primus_identity::hash::AuthorityHash;
use primus_identity::token::Place;
use primus_shapes::described;
use serde::Serialize;

use crate::context::Context;
use crate::orders::{Asked, Order};
use crate::pages::{self, Page};
use crate::problem::Problem;
use crate::tokens::{NAMES, change};

const HINT: &str = "send {\"name\":\"south\",\"authority\":\"sha256:…\",\"servers\":[\"10.0.1.1:7460\"]}";

described! {
    /// A farm that is trusted.
    #[derive(Debug, PartialEq, Eq, Serialize)]
    pub(crate) struct NeighbourFacts {
        /// The farm's name.
        name: String,
        /// SHA-256 of its authority's certificate.
        authority: String,
        /// True if that certificate is known here; else the first link to the farm brings it.
        certified: bool,
        /// Where its servers are.
        servers: Vec<String>,
    }
}

described! {
    /// A farm that is trusted no more.
    #[derive(Serialize)]
    pub(crate) struct ForgetNeighbourAnswer {
        /// The farm's name.
        name: String,
    }
}

pub(crate) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let page = Page::new(pages::limit(&mut asked)?);
    let after = asked.text("after").unwrap_or_default();
    asked.done()?;
    let neighbours = context.handle.farm.look(move |foreman| {
        let known = foreman.ledger().roll().neighbours().values().filter(|known| known.name > after);
        known.map(facts).collect::<Vec<_>>()
    });
    Ok(page.fill(neighbours.await?.into_iter().map(|known| (known.name.clone(), known))).finish())
}

fn facts(known: &Neighbour) -> NeighbourFacts {
    NeighbourFacts {
        name: known.name.clone(),
        authority: known.hash.to_string(),
        certified: !known.certificate.is_empty(),
        servers: known.servers.clone(),
    }
}

pub(crate) async fn trust(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<NeighbourFacts>, Problem> {
    let mut order = Order::must(request, HINT).await?;
    let (name, authority, certificate) =
        (order.text("name")?, order.text("authority")?, order.text("certificate")?);
    let servers = order.texts::<Vec<String>>("servers")?;
    let (name, authority) = (order.given("name", name)?, order.given("authority", authority)?);
    let servers = order.given("servers", servers)?;
    order.done()?;
    let neighbour = neighbour(&context.farm, name, &authority, servers, certificate.as_deref())?;
    let answer = facts(&neighbour);
    change(&context, Change::TrustNeighbour(neighbour)).await?;
    Ok(Json(answer))
}

/// The farm that is to be trusted, if all that is said of it fits together.
fn neighbour(
    own: &str,
    name: String,
    authority: &str,
    servers: Vec<String>,
    certificate: Option<&str>,
) -> Result<Neighbour, Problem> {
    if !is_name(&name) {
        return Err(Problem::usage(format!("the name is {name:?}"), NAMES));
    }
    if name == own {
        return Err(Problem::usage(format!("{own} is this farm"), "name another farm"));
    }
    let hash: AuthorityHash = authority.parse().map_err(|error| Problem::usage(format!("{error}"), HASH))?;
    if servers.is_empty() || servers.len() > SERVERS_MAX {
        return Err(Problem::usage(format!("{} servers are named", servers.len()), "name 1 to 16 servers"));
    }
    if let Some(error) = servers.iter().find_map(|place| place.parse::<Place>().err()) {
        return Err(Problem::usage(error.to_string(), HINT));
    }
    let certificate = certificate.map(|text| checked(&name, hash, text)).transpose()?.unwrap_or_default();
    Ok(Neighbour { name, certificate, hash: Fingerprint(*hash.bytes()), servers })
}

const HASH: &str = "primus cert show says it, on the other farm";

/// The certificate of this farm's authority, as DER, if it is the one that was named.
fn checked(farm: &str, hash: AuthorityHash, pem: &str) -> Result<Vec<u8>, Problem> {
    let read = AuthorityCertificate::from_pem(pem).map_err(|error| Problem::usage(error.to_string(), HASH))?;
    if read.hash() != hash {
        let message = format!("the certificate is {}, not {hash}: somebody may be in between", read.hash());
        return Err(Problem::usage(message, HASH));
    }
    if read.farm() != farm {
        return Err(Problem::usage(format!("the certificate is of farm {}, not {farm}", read.farm()), HASH));
    }
    Ok(read.der().to_vec())
}

pub(crate) async fn forget(
    State(context): State<Context>,
    Path(name): Path<String>,
    request: Request<Body>,
) -> Result<Json<ForgetNeighbourAnswer>, Problem> {
    Order::nothing(request).await?;
    change(&context, Change::ForgetNeighbour(name.clone())).await?;
    Ok(Json(ForgetNeighbourAnswer { name }))
}

#[cfg(test)]
mod tests {
    use primus_identity::UnixTime;
    use primus_identity::authority::Authority;

    use super::*;

    #[test]
    fn a_neighbour_is_trusted_only_if_its_certificate_is_the_one_that_was_named() {
        let [south, other] = ["south", "south"].map(|farm| Authority::create(farm, UnixTime::now()).unwrap());
        let west = Authority::create("west", UnixTime::now()).unwrap();
        let hash = south.certificate().hash().to_string();
        let judge = |name: &str, hash: &str, place: &str, certificate: Option<&str>| {
            let found = neighbour("north", name.to_owned(), hash, vec![place.to_owned()], certificate);
            found.map(|found| found.certificate.len()).map_err(|problem| problem.to_string())
        };
        let place = "10.0.1.1:7460";
        let der = south.certificate().der().len();
        assert_eq!(judge("south", &hash, place, Some(&south.certificate().pem())), Ok(der));
        assert_eq!(judge("south", &hash, place, None), Ok(0), "the first link brings it");
        for (found, words) in [
            (judge("south", &hash, place, Some(&other.certificate().pem())), "somebody may be in between"),
            (
                judge("south", &west.certificate().hash().to_string(), place, Some(&west.certificate().pem())),
                "of farm west",
            ),
            (judge("south", &hash, place, Some("nothing")), "not the certificate of a farm's authority"),
            (judge("north", &hash, place, None), "north is this farm"),
            (judge("so/uth", &hash, place, None), "the name is"),
            (judge("south", "sha256:00", place, None), "64 digits"),
            (judge("south", &hash, "10.0.1.1", None), "has no port"),
        ] {
            let message = found.unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }
}
