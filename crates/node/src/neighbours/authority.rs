//! How the certificate of another farm's authority is fetched: one of its servers shows it when hands are shaken. It counts only if
//! its hash is the one that somebody has typed, and if the server is the one that was expected.

use std::collections::BTreeMap;
use std::io;

use primus_core::{Place, ServerId};
use primus_identity::authority::AuthorityCertificate;
use primus_identity::hash::AuthorityHash;
use primus_identity::refusal::Refusal;
use primus_identity::trust::Identified;
use primus_identity::verify::Pin;
use tokio::time::timeout;

use crate::dialling::{Dialler, HELLO_TIME, Pace};
use crate::line::Line;

/// Why the authority of another farm is not known.
#[derive(Debug, thiserror::Error)]
pub enum NotFetched {
    /// Another process may stand between the farms.
    #[error(
        "the server at {place} has another authority than {hash}: somebody may be in between, or farm {farm} was founded \
         anew"
    )]
    OtherAuthority {
        /// The farm that was asked for.
        farm: String,
        /// Where the server is.
        place: String,
        /// The authority that was expected.
        hash: AuthorityHash,
    },
    /// The authority is the one, but its farm has another name, or the server another number.
    #[error("the server at {place} is server {found} of farm {there}, not server {server} of farm {farm}")]
    OtherServer {
        /// The farm that was asked for.
        farm: String,
        /// The number that was expected.
        server: ServerId,
        /// Where the server is.
        place: String,
        /// The number that it has.
        found: String,
        /// The farm that it belongs to.
        there: String,
    },
    /// It cannot show anything.
    #[error("the server at {place} cannot show the authority of farm {farm}: {refusal}")]
    NotShown {
        /// The farm that was asked for.
        farm: String,
        /// Where the server is.
        place: String,
        /// What the handshake came to.
        refusal: Refusal,
    },
    /// No server answers.
    #[error("no server of farm {farm} answers: {reasons}")]
    Unreachable {
        /// The farm that was asked for.
        farm: String,
        /// Of each server, why it does not.
        reasons: String,
    },
}

impl NotFetched {
    /// True if a server has answered, and is not the one that was meant.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        !matches!(self, Self::Unreachable { .. })
    }
}

/// Fetches the certificate with this hash from one of these servers of this farm. The first one that answers decides.
///
/// # Errors
/// If no server answers, or the first one that does is not the one that was meant.
pub async fn fetch(
    farm: &str,
    hash: AuthorityHash,
    servers: &BTreeMap<ServerId, Place>,
) -> Result<AuthorityCertificate, NotFetched> {
    let mut reasons = Vec::new();
    for (server, place) in servers {
        match visit(place, hash).await {
            Ok((who, authority)) if who.server_of(farm) == Ok(*server) => return Ok(authority),
            Ok((who, _)) => {
                let found = who.name.server_id().map(|id| id.to_string()).unwrap_or_default();
                let (farm, place, there) = (farm.to_owned(), place.to_string(), who.name.farm().to_owned());
                return Err(NotFetched::OtherServer { farm, server: *server, place, found, there });
            }
            Err(error) => match Refusal::of_io(&error) {
                Some(refusal) => return Err(not_shown(farm, place, hash, refusal)),
                None => reasons.push(format!("{place}: {error}")),
            },
        }
    }
    Err(NotFetched::Unreachable { farm: farm.to_owned(), reasons: reasons.join("; ") })
}

fn not_shown(farm: &str, place: &Place, hash: AuthorityHash, refusal: Refusal) -> NotFetched {
    let (farm, place) = (farm.to_owned(), place.to_string());
    match refusal {
        Refusal::OtherAuthority => NotFetched::OtherAuthority { farm, place, hash },
        Refusal::Protocol => NotFetched::NotShown { farm, place, refusal: Refusal::Plain },
        refusal => NotFetched::NotShown { farm, place, refusal },
    }
}

/// Shakes hands as one who has no name yet, to see the authority. Nothing is said.
async fn visit(place: &Place, hash: AuthorityHash) -> io::Result<(Identified, AuthorityCertificate)> {
    let tcp = Dialler::new(place.clone(), None, Pace::CALLERS).connect().await?;
    let (line, authority) = timeout(HELLO_TIME, Line::dial_inviter(tcp, Pin::Whole(hash))).await??;
    let who = line.who().cloned().ok_or_else(|| io::Error::other(Refusal::NoCertificate))?;
    Ok((who, authority))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use primus_identity::UnixTime;
    use primus_identity::authority::Authority;
    use primus_identity::name::Name;
    use tokio::net::TcpListener;

    use super::*;
    use crate::credentials::{Security, Tls};

    /// Server 2 of the farm of this authority.
    async fn server(authority: &Authority) -> Place {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let place = listener.local_addr().expect("it is bound").into();
        let name = Name::server(authority.certificate().farm(), ServerId(2)).expect("it is a name");
        let Security::Tls(own) = Tls::of(authority, &name) else { panic!("it has a certificate") };
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                // A caller without a name is turned away after the handshake.
                _ = Line::accept(tcp, &own).await;
            }
        });
        place
    }

    #[tokio::test]
    async fn an_authority_is_fetched_from_the_server_that_was_meant_and_from_no_other() {
        let [south, other, west] =
            ["south", "south", "west"].map(|farm| Authority::create(farm, UnixTime::now()).unwrap());
        let hash = south.certificate().hash();
        let nowhere: Place = "127.0.0.1:1".parse().unwrap();
        let there = server(&south).await;
        let places = |id, place: &Place| [(ServerId(1), nowhere.clone()), (ServerId(id), place.clone())].into();
        let fetched = fetch("south", hash, &places(2, &there)).await.unwrap();
        assert_eq!((fetched.hash(), fetched.der()), (hash, south.certificate().der()));
        for (farm, hash, servers, words) in [
            ("south", other.certificate().hash(), places(2, &there), "somebody may be in between"),
            ("south", hash, places(3, &there), "is server 2 of farm south, not server 3 of farm south"),
            ("west", hash, places(2, &there), "is server 2 of farm south, not server 2 of farm west"),
            ("south", hash, places(2, &server(&other).await), "another authority"),
            ("west", west.certificate().hash(), places(2, &nowhere), "no server of farm west answers"),
        ] {
            let refused = fetch(farm, hash, &servers).await.unwrap_err();
            assert!(refused.to_string().contains(words), "{refused}");
            assert_eq!(refused.is_refusal(), !words.starts_with("no server"), "{refused}");
        }
    }
}
