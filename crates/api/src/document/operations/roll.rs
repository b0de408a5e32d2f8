//! What is said of the routes about who is who: join tokens, certificates, neighbours.

use super::super::operation::JSON;
use super::super::parameters::{AFTER, LIMIT, path, text};
use super::super::shapes;
use super::{AT_THE_LEADER, Part, WRITES, new};
use crate::certs::{CertsAnswer, FinishAnswer, RevokeAnswer, RotateAnswer};
use crate::tokens::{NewTokenAnswer, RevokeTokenAnswer, TokenFacts};
use crate::trusted::{ForgetNeighbourAnswer, NeighbourFacts};

const TOKEN: &str = r#"{"id":3,"role":"worker","until":"2026-01-02T04:04:05.678Z",
    "token":"primus-worker-00112233445566778899aabbccddeeff-3-00112233445566778899aabbccddeeff@10.0.0.1:7460"}"#;
const TRUST: &str = r#"{"name":"south","servers":["1=10.0.1.1:7460"],
    "authority":"sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"}"#;
const TRUSTED: &str = r#"{"name":"south","origin":"trusted","certified":true,"servers":["1=10.0.1.1:7460"],
    "authority":"sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"}"#;

pub(super) fn all() -> Part {
    [tokens(), certs(), neighbours()].into_iter().flatten().collect()
}

fn tokens() -> Part {
    let id = path("id", "The token's number, such as 3.", text);
    vec![
        (
            ("GET", "/v1/tokens"),
            new()
                .about("The oldest first; those that have expired for a day longer.")
                .asks(&[LIMIT, AFTER])
                .lists::<TokenFacts>("A page of tokens.", r#"{"items":[],"next":null}"#)
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("POST", "/v1/tokens"),
            new()
                .takes_kind(JSON, shapes::token, r#"{"role":"worker","ttl_ms":3600000,"uses":1,"name":"w1"}"#)
                .gives::<NewTokenAnswer>(200, "The token, shown this once.", TOKEN)
                .refuses(&WRITES)
                .refuses(&["no_authority", "roll_full"]),
        ),
        (
            ("POST", "/v1/tokens/{id}/revoke"),
            new()
                .about("Those who have joined with it stay.")
                .asks(&[id])
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<RevokeTokenAnswer>(200, "It is void.", r#"{"id":3}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
    ]
}

fn certs() -> Part {
    vec![
        (
            ("GET", "/v1/certs"),
            new()
                .gives::<CertsAnswer>(200, "Authorities and revocations.", r#"{"authorities":[],"revoked":[]}"#)
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("POST", "/v1/certs/rotate"),
            new()
                .about("Nodes renew their certificates; the authority before is trusted until the rotation is finished.")
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<RotateAnswer>(
                    200,
                    "Another authority signs.",
                    r#"{"authority":"sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"}"#,
                )
                .refuses(&WRITES)
                .refuses(&["no_authority", "rotating"]),
        ),
        (
            ("POST", "/v1/certs/finish"),
            new()
                .about("A node that has not renewed its certificate by then must join again.")
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<FinishAnswer>(200, "The rotation is over.", r#"{"dropped":1}"#)
                .refuses(&WRITES)
                .refuses(&["no_authority", "no_rotation"]),
        ),
        (
            ("POST", "/v1/certs/revoke"),
            new()
                .about("Links that show such a certificate are closed. A node may get a new one.")
                .takes_kind(JSON, shapes::revoke, r#"{"worker":"w1"}"#)
                .gives::<RevokeAnswer>(200, "It is trusted no more.", r#"{"revoked":"worker w1"}"#)
                .refuses(&WRITES)
                .refuses(&["not_found", "roll_full"]),
        ),
    ]
}

fn neighbours() -> Part {
    let name = path("name", "The farm's name.", text);
    vec![
        (
            ("GET", "/v1/neighbours"),
            new()
                .about("In the order of their names, the farm that is asked among them.")
                .asks(&[LIMIT, AFTER])
                .lists::<NeighbourFacts>("A page of farms.", r#"{"items":[],"next":null}"#)
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("POST", "/v1/neighbours"),
            new()
                .about(
                    "It vouches for its own servers and workers, and for no server here. Both farms must trust each other. \
                     Without a certificate one of its servers has to show it.",
                )
                .takes_kind(JSON, shapes::trust, TRUST)
                .gives::<NeighbourFacts>(200, "It is trusted.", TRUSTED)
                .refuses(&WRITES)
                .refuses(&["roll_full", "not_reached"]),
        ),
        (
            ("POST", "/v1/neighbours/{name}/forget"),
            new()
                .asks(&[name])
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<ForgetNeighbourAnswer>(200, "It is trusted no more.", r#"{"name":"south","configured":false}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
    ]
}
