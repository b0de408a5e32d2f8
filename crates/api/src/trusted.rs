//! `/v1/neighbours`: other farms that are trusted to name their own nodes.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::response::Response;
use primus_core::ledger::roll::{Change, Fingerprint, Neighbour, SERVERS_MAX};
use primus_core::names::is_name;
use primus_core::place::PlaceError;
use primus_core::{Place, ServerId};
use primus_identity::authority::AuthorityCertificate;
use primus_identity::hash::AuthorityHash;
use primus_node::neighbours::{Neighbour as Known, NotFetched, Origin, fetch};
use primus_shapes::described;
use serde::Serialize;

use crate::context::{Context, Knowledge};
use crate::orders::{Asked, Order};
use crate::pages::{self, Page};
use crate::problem::Problem;
use crate::tokens::{NAMES, change};

const HINT: &str = "send {\"name\":\"south\",\"authority\":\"sha256:…\",\"servers\":[\"1=10.0.1.1:7460\"]}";

described! {
    /// A farm that is trusted, or this one.
    #[derive(Debug, PartialEq, Eq, Serialize)]
    pub(crate) struct NeighbourFacts {
        /// The farm's name.
        name: String,
        /// `itself` for the farm that is asked, `trusted` after `primus neighbours trust`, `file` if the leader's configuration
        /// names it.
        origin: &'static str,
        /// SHA-256 of its authority's certificate; nothing if links are not encrypted.
        authority: Option<String>,
        /// True if that certificate is known here; else one of its servers has to show it.
        certified: bool,
        /// Where its servers are, each `ID=HOST:PORT`.
        servers: Vec<String>,
    }
}

described! {
    /// A farm that is trusted no more.
    #[derive(Serialize)]
    pub(crate) struct ForgetNeighbourAnswer {
        /// The farm's name.
        name: String,
        /// True if the configuration of the leader still names it: then it stays a neighbour.
        configured: bool,
    }
}

pub(crate) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let page = Page::new(pages::limit(&mut asked)?);
    let after = asked.text("after").unwrap_or_default();
    asked.done()?;
    // What was acknowledged is to be seen.
    context.handle.farm.look(|_| ()).await?;
    let known = context.handle.farm.neighbourhood();
    let mut farms: Vec<NeighbourFacts> = known.farms.iter().map(|(name, farm)| facts(name.clone(), farm)).collect();
    farms.push(itself(&context, known.own.map(|own| own.to_string())));
    farms.retain(|farm| farm.name > after);
    farms.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(page.fill(farms.into_iter().map(|farm| (farm.name.clone(), farm))).finish())
}

fn facts(name: String, known: &Known) -> NeighbourFacts {
    let origin = match known.origin {
        Origin::File => "file",
        Origin::Roll => "trusted",
    };
    NeighbourFacts {
        name,
        origin,
        authority: known.hash.map(|hash| hash.to_string()),
        certified: known.certificate.is_some(),
        servers: known.servers.iter().map(|(id, place)| format!("{id}={place}")).collect(),
    }
}

/// What the other farm has to be told. After a rotation the roll knows a newer authority than the founding.
fn itself(context: &Knowledge, founded: Option<String>) -> NeighbourFacts {
    let newest = context.handle.farm.roll().authorities().first().map(|newest| newest.hash.to_string());
    let authority = newest.or(founded);
    NeighbourFacts {
        name: context.farm.clone(),
        origin: "itself",
        certified: authority.is_some(),
        authority,
        servers: context.servers.iter().map(|(id, places)| format!("{id}={}", places.address)).collect(),
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
    let neighbour = certified(&context, neighbour).await?;
    let (name, hash) = (neighbour.name.clone(), neighbour.hash);
    let answer = NeighbourFacts {
        name,
        origin: "trusted",
        authority: Some(hash.to_string()),
        certified: !neighbour.certificate.is_empty(),
        servers: neighbour.servers.iter().map(|(id, place)| format!("{id}={place}")).collect(),
    };
    change(&context, Change::TrustNeighbour(neighbour)).await?;
    Ok(Json(answer))
}

/// The same with the certificate of its authority, which one of its servers shows. Where links are plain there is none.
async fn certified(context: &Knowledge, neighbour: Neighbour) -> Result<Neighbour, Problem> {
    let is_plain = context.handle.farm.neighbourhood().own.is_none();
    if is_plain || !neighbour.certificate.is_empty() {
        return Ok(neighbour);
    }
    let hash = AuthorityHash::from_bytes(neighbour.hash.0);
    let servers = neighbour.servers.iter().filter_map(|(id, text)| Some((*id, text.parse().ok()?))).collect();
    let authority = fetch(&neighbour.name, hash, &servers).await.map_err(|error| not_fetched(&error))?;
    Ok(Neighbour { certificate: authority.der().to_vec(), ..neighbour })
}

fn not_fetched(error: &NotFetched) -> Problem {
    match error {
        NotFetched::Unreachable { .. } => Problem::not_now(
            "not_reached",
            error.to_string(),
            "start it, correct --servers, or give its authority's certificate with --certificate",
        ),
        NotFetched::OtherServer { .. } => Problem::forbidden(error.to_string(), "correct the name or --servers"),
        NotFetched::OtherAuthority { .. } | NotFetched::NotShown { .. } => Problem::forbidden(
            error.to_string(),
            "nothing was stored; compare the hash with primus neighbours list there",
        ),
    }
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
    let servers = numbered(&servers)?;
    let certificate = certificate.map(|text| checked(&name, hash, text)).transpose()?.unwrap_or_default();
    let servers = servers.into_iter().map(|(id, place)| (id, place.to_string())).collect();
    Ok(Neighbour { name, certificate, hash: Fingerprint(*hash.bytes()), servers })
}

/// Servers by their numbers, as `1=HOST:PORT`.
fn numbered(servers: &[String]) -> Result<BTreeMap<ServerId, Place>, Problem> {
    const EXAMPLE: &str = "write each server as ID=HOST:PORT, such as 1=10.0.1.1:7460";
    let mut places = BTreeMap::new();
    for text in servers {
        let parts = text.split_once('=').and_then(|(id, place)| Some((id.parse().ok()?, place)));
        let (id, place) = parts
            .filter(|(id, _)| *id > 0)
            .ok_or_else(|| Problem::usage(format!("a server is named {text:?}"), EXAMPLE))?;
        let wrong = |error: PlaceError| Problem::usage(format!("{place}: {error}"), EXAMPLE);
        let place = place.parse().map_err(wrong)?;
        if places.insert(ServerId(id), place).is_some() {
            return Err(Problem::usage(format!("server {id} is named twice"), EXAMPLE));
        }
    }
    Ok(places)
}

const HASH: &str = "primus neighbours list says it, on the other farm";

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
    let is_known =
        |origin| context.handle.farm.neighbourhood().farms.get(&name).is_some_and(|known| known.origin == origin);
    if is_known(Origin::File) {
        let message = format!("farm '{name}' is a neighbour because the configuration says so");
        return Err(Problem::usage(message, "take it out of [[neighbours]], and restart the servers"));
    }
    change(&context, Change::ForgetNeighbour(name.clone())).await?;
    context.handle.farm.look(|_| ()).await?;
    let configured = is_known(Origin::File);
    Ok(Json(ForgetNeighbourAnswer { name, configured }))
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
        let place = "1=10.0.1.1:7460";
        let der = south.certificate().der().len();
        assert_eq!(judge("south", &hash, place, Some(&south.certificate().pem())), Ok(der));
        assert_eq!(judge("south", &hash, place, None), Ok(0), "it is fetched");
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
            (judge("south", &hash, "1=10.0.1.1", None), "has no port"),
            (judge("south", &hash, "10.0.1.1:7460", None), "a server is named"),
            (judge("south", &hash, "0=10.0.1.1:7460", None), "a server is named"),
        ] {
            let message = found.unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }
}
