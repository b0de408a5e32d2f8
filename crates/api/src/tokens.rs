//! `/v1/tokens`: with what others may join the farm.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::response::Response;
use primus_core::ledger::roll::{
    Change, Denial, Done, Fingerprint, List, NewToken, Role, TTL_MS_MAX, Token, TokenId,
};
use primus_core::names::is_name;
use primus_identity::hash::AuthorityHash;
use primus_identity::token::{JoinToken, PLACES_MAX, Place, Secret};
use primus_node::handle::Unable;
use primus_shapes::described;
use serde::Serialize;

use crate::context::{Context, Knowledge};
use crate::orders::{Asked, Order};
use crate::pages::{self, Page, no_cursor};
use crate::problem::Problem;
use crate::values::{now_ms, time_text};
use crate::words::{TokenRole, TokenState};

/// For how long a token is good unless a request says otherwise: an hour.
pub(crate) const TTL_MS: u64 = 3_600_000;
const HINT: &str = "send {\"role\":\"worker\"}";
/// Who makes tokens, as long as all who may ask at all may do the same.
const BY: &str = "api";

described! {
    /// A join token, without its secret.
    #[derive(Debug, PartialEq, Eq, Serialize)]
    pub(crate) struct TokenFacts {
        /// The token's number.
        id: u64,
        /// What it is good for.
        role: &'static str as TokenRole,
        /// Whether it is still good.
        state: &'static str as TokenState,
        /// The only worker that may join with it; null if any may.
        name: Option<String>,
        /// How many may join with it altogether.
        uses: u32,
        /// How many may still join with it.
        left: u32,
        /// When it was made.
        since: String,
        /// Until when it is good.
        until: String,
        /// Who made it.
        by: String,
    }
}

described! {
    /// A new join token.
    #[derive(Serialize)]
    pub(crate) struct NewTokenAnswer {
        /// The token's number.
        id: u64,
        /// What it is good for.
        role: &'static str as TokenRole,
        /// Until when it is good.
        until: String,
        /// The token itself. The farm keeps only a hash of its secret, so it is shown this once.
        token: String,
    }
}

described! {
    /// A token that is void from now on.
    #[derive(Serialize)]
    pub(crate) struct RevokeTokenAnswer {
        /// The token's number.
        id: u64,
    }
}

pub(crate) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let page = Page::new(pages::limit(&mut asked)?);
    // The last token of the page before.
    let after = asked.text("after");
    asked.done()?;
    let wrong = |text: &String| text.parse::<u64>().map_err(|_| no_cursor(text));
    let after = after.as_ref().map(wrong).transpose()?.unwrap_or(0);
    let now_ms = now_ms();
    let tokens = context.handle.farm.look(move |foreman| {
        let tokens = foreman.ledger().roll().tokens().iter().filter(|(id, _)| id.0 > after);
        tokens.map(|(id, token)| facts(*id, token, now_ms)).collect::<Vec<_>>()
    });
    Ok(page.fill(tokens.await?.into_iter().map(|token| (token.id, token))).finish())
}

fn facts(id: TokenId, token: &Token, now_ms: u64) -> TokenFacts {
    let state = match () {
        () if token.until_ms <= now_ms => "expired",
        () if token.uses_left() == 0 => "used_up",
        () => "good",
    };
    TokenFacts {
        id: id.0,
        role: token.role.word(),
        state,
        name: token.name.clone(),
        uses: token.uses,
        left: token.uses_left(),
        since: time_text(token.since_ms),
        until: time_text(token.until_ms),
        by: token.by.clone(),
    }
}

/// Makes a token, and says it once.
pub(crate) async fn create(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<NewTokenAnswer>, Problem> {
    let new = read_order(request).await?;
    let authority = authority_of(&context).await?;
    let secret = Secret::fresh().map_err(|error| Problem::unavailable("busy", error.to_string(), "see its log"))?;
    let new = NewToken { secret: Fingerprint(*secret.hash().bytes()), ..new };
    let role = new.role;
    let Done::TokenCreated { token, until_ms } = change(&context, Change::CreateToken(new)).await? else {
        return Err(Unable::Unknown.into());
    };
    let (id, role, until) = (token.0, role.word(), time_text(until_ms));
    Ok(Json(NewTokenAnswer { id, role, until, token: text_of(role, authority, id, secret, places(&context))? }))
}

/// The token as a joiner needs it.
fn text_of(
    role: &str,
    authority: Fingerprint,
    id: u64,
    secret: Secret,
    places: Vec<Place>,
) -> Result<String, Problem> {
    let (role, authority) = (role.parse(), AuthorityHash::from_bytes(authority.0).short());
    let role = role.map_err(|_| Problem::from(Unable::Unknown))?;
    Ok(JoinToken { role, authority, id, secret, places }.reveal())
}

/// What is asked for, as yet without a secret.
async fn read_order(request: Request<Body>) -> Result<NewToken, Problem> {
    let mut order = Order::must(request, HINT).await?;
    let (role, name) = (order.text("role")?, order.text("name")?);
    let (ttl_ms, uses) = (order.number("ttl_ms")?.unwrap_or(TTL_MS), order.number("uses")?.unwrap_or(1));
    let role = order.given("role", role)?;
    order.done()?;
    let unknown = || {
        Problem::usage(format!("the role is {role:?}"), "choose server, worker, viewer, client, operator or admin")
    };
    let role = Role::of(&role).ok_or_else(unknown)?;
    if !(1..=TTL_MS_MAX).contains(&ttl_ms) {
        return Err(Problem::usage(
            format!("ttl_ms is {ttl_ms}"),
            "a token is good for 1 ms to 30 d: 1 to 2592000000",
        ));
    }
    let uses = u32::try_from(uses).ok().filter(|uses| *uses > 0);
    let uses =
        uses.ok_or_else(|| Problem::usage("this number of uses is not possible", "a token has 1 to 10000 uses"))?;
    match &name {
        Some(name) if !is_name(name) => return Err(Problem::usage(format!("the name is {name:?}"), NAMES)),
        Some(_) if role != Role::Worker || uses != 1 => {
            return Err(Problem::usage(
                "a name is for one worker",
                "leave name out, or ask for role worker and one use",
            ));
        }
        _ => {}
    }
    Ok(NewToken { role, secret: Fingerprint([0; 32]), ttl_ms, uses, name, by: BY.to_owned() })
}

pub(crate) const NAMES: &str = "a name is 1 to 40 letters, digits, '-', '_' and '.', a letter or a digit first";

/// The authority that a joiner must meet.
pub(crate) async fn authority_of(context: &Context) -> Result<Fingerprint, Problem> {
    let newest =
        context.handle.farm.look(|foreman| foreman.ledger().roll().authorities().first().map(|known| known.hash));
    newest.await?.ok_or_else(|| {
        let message = "this farm has no authority: it was founded without TLS";
        Problem::not_now("no_authority", message, "its links need no tokens and no certificates")
    })
}

/// Where a joiner asks: at the servers of this cluster.
fn places(context: &Knowledge) -> Vec<Place> {
    context.servers.values().take(PLACES_MAX).map(|server| server.address.clone()).collect()
}

pub(crate) async fn revoke(
    State(context): State<Context>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Json<RevokeTokenAnswer>, Problem> {
    Order::nothing(request).await?;
    let wrong = || Problem::usage(format!("{id:?} is not a token"), "a token is named by its number, such as 3");
    let id: u64 = id.parse().map_err(|_| wrong())?;
    change(&context, Change::RevokeToken(TokenId(id))).await?;
    Ok(Json(RevokeTokenAnswer { id }))
}

/// Changes who is who.
pub(crate) async fn change(context: &Context, change: Change) -> Result<Done, Problem> {
    context.handle.farm.change_roll(change).await?.map_err(|denial| denied(&denial))
}

fn denied(denial: &Denial) -> Problem {
    let message = denial.to_string();
    match denial {
        Denial::NoSuchToken => {
            Problem::not_found("the token does not exist", "primus token list shows those that do")
        }
        Denial::NoSuchWorker(_) => Problem::not_found(message, "primus workers lists them"),
        Denial::NoSuchNeighbour(_) => {
            Problem::not_found(message, "primus neighbours list shows those that are trusted")
        }
        Denial::Rotating => Problem::not_now("rotating", message, "end the rotation first: primus cert finish"),
        Denial::NoRotation => Problem::not_now("no_rotation", message, "primus cert rotate adds another one"),
        Denial::Full(List::Tokens | List::Uses) => {
            Problem::not_now("roll_full", message, "primus token revoke makes room")
        }
        Denial::Full(List::Neighbours) => {
            Problem::not_now("roll_full", message, "primus neighbours forget makes room")
        }
        Denial::Full(List::Workers) => Problem::not_now("roll_full", message, "primus workers forget makes room"),
        Denial::Full(List::Revocations) => {
            Problem::not_now("roll_full", message, "primus cert rotate, then primus cert finish")
        }
        _ => Problem::usage(message, "see GET /v1/openapi.json"),
    }
}

#[cfg(test)]
mod tests {
    use primus_core::ledger::roll::Use;

    use super::*;

    #[test]
    fn a_token_says_whether_it_is_still_good_and_never_its_secret() {
        let mut ledger = primus_core::ledger::Ledger::default();
        let new = NewToken {
            role: Role::Worker,
            secret: Fingerprint([0xEE; 32]),
            ttl_ms: 1000,
            uses: 1,
            name: Some("w1".to_owned()),
            by: "api".to_owned(),
        };
        let entries = vec![primus_core::ledger::Entry::Roll(Change::CreateToken(new))];
        ledger.apply(primus_core::ledger::Batch { time_ms: 0, entries });
        let (id, token) = ledger.roll().tokens().first_key_value().unwrap();
        let state = |token: &Token, now_ms| facts(*id, token, now_ms).state;
        assert_eq!((state(token, 0), state(token, 1000)), ("good", "expired"));
        let key = Fingerprint([1; 32]);
        let mut used = token.clone();
        used.used.insert([1; 16], Use { serial: 1, name: "w1".to_owned(), key });
        assert_eq!((state(&used, 0), facts(*id, &used, 0).left), ("used_up", 0));
        let shown = serde_json::to_string(&facts(*id, token, 0)).unwrap();
        assert!(!shown.contains("ee") && !shown.contains("238"), "{shown}");
    }

    #[test]
    fn every_role_makes_a_token_that_a_joiner_can_read() {
        for role in Role::ALL {
            let secret = Secret::from_bytes([7; 16]);
            let place: Place = "10.0.0.1:7460".parse().unwrap();
            let text = text_of(role.word(), Fingerprint([9; 32]), 3, secret, vec![place]).unwrap();
            let read = JoinToken::parse(&text).unwrap();
            assert_eq!((read.role.word(), read.id, read.places.len()), (role.word(), 3, 1));
            assert!(read.authority.matches(&AuthorityHash::from_bytes([9; 32])));
        }
    }

    #[test]
    fn every_refusal_has_its_status() {
        for (denial, expected) in [
            (Denial::NoSuchToken, "the token does not exist"),
            (Denial::NoSuchWorker("w9".into()), "worker 'w9' does not exist"),
            (Denial::NoRotation, "there is one authority only"),
            (Denial::Full(List::Tokens), "there are 1000 join tokens already"),
        ] {
            assert_eq!(denied(&denial).to_string(), expected);
        }
    }
}
