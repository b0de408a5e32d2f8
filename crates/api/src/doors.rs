//! The doors of the API: what every request must show before anything else looks at it, and before its body is read.
//!
//! A web page that somebody happens to visit can send requests to any address of this host. It cannot choose three fields:
//! the name under which it believes to reach us (`Host`), where it comes from (`Origin`, `Sec-Fetch-Site`), and, without
//! asking first, a kind of body other than a form's or plain text (`Content-Type`). Other users of this host can choose them
//! all, but do not have the secret (`Authorization`). What is refused here tells nothing about the farm.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use primus_core::Place;
use primus_shapes::token::Token;

use crate::context::Places;
use crate::headers::SITE;
use crate::problem::Problem;
use crate::proxy::Through;

/// The one route that tells nothing, so that whatever looks after processes needs no secret.
pub(crate) const LIVEZ: &str = "/livez";
/// What bodies may be. A page must ask before it sends one of these, and is refused.
const KINDS: [&str; 3] = ["application/json", "application/x-ndjson", "application/jsonl"];
/// What a server asks of every request.
#[derive(Debug)]
pub(crate) struct Doors {
    /// Where the APIs of the farm are.
    apis: BTreeSet<Place>,
    /// The addresses and names under which clients reach this server.
    addresses: BTreeSet<IpAddr>,
    names: BTreeSet<String>,
    token: Option<Token>,
}

/// Lets a request in, or refuses it. One that came through another server has passed that server's doors.
pub(crate) async fn guard(State(doors): State<Arc<Doors>>, request: Request<Body>, next: Next) -> Response {
    if let Some(through) = request.extensions().get::<Through>().cloned() {
        through.gate.travel(1).await;
        return next.run(request).await;
    }
    match doors.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

impl Doors {
    /// For a server that listens here and is reached, like the others, at these places. `names`: further names and addresses of this host.
    pub(crate) fn new(
        listens: SocketAddr,
        places: impl Iterator<Item = Places>,
        names: &[String],
        token: Option<Token>,
    ) -> Self {
        let places: Vec<Places> = places.collect();
        let all = || places.iter().flat_map(|places| [&places.address, &places.api]);
        let listed = all().filter_map(|place| Some(place.number()?.ip()));
        let called = all().filter_map(|place| place.name().map(plain));
        let (named, names): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| name.parse::<IpAddr>().is_ok());
        let addresses = listed.chain(named.iter().filter_map(|name| name.parse().ok())).chain([listens.ip()]);
        Self {
            apis: places.iter().map(|places| places.api.clone()).chain([listens.into()]).collect(),
            addresses: addresses.filter(|address| !address.is_unspecified()).collect(),
            names: names
                .into_iter()
                .map(|name| plain(name).to_ascii_lowercase())
                .chain(called.map(str::to_owned))
                .collect(),
            token,
        }
    }

    /// Is this an address of this host or of a server? Many clients may be behind it.
    pub(crate) fn is_near(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || self.addresses.contains(&address)
    }

    fn admit(&self, request: &Request<Body>) -> Result<(), Problem> {
        let host = self.host(request)?;
        self.check_origin(&host, request.headers())?;
        let path = request.uri().path();
        if path != LIVEZ {
            self.check_token(request.headers())?;
        }
        check_kind(request)
    }

    /// The name by which somebody believes to reach this server, if it is one of ours. A page whose own name leads to this
    /// host would otherwise be taken for ours by its browser.
    fn host(&self, request: &Request<Body>) -> Result<String, Problem> {
        let mut fields = request.headers().get_all(HOST).iter();
        let (host, second) = (fields.next(), fields.next());
        let host = host.filter(|_| second.is_none()).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let is_right = |authority: &str| self.is_own(host_of(authority));
        let target = request.uri().authority().is_none_or(|authority| is_right(authority.as_str()));
        match is_right(host) && target {
            true => Ok(host.to_ascii_lowercase()),
            false => Err(Problem::misdirected()),
        }
    }

    fn is_own(&self, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || self.addresses.contains(&address),
            Err(_) => {
                let name = plain(host).to_ascii_lowercase();
                name == "localhost" || self.names.contains(&name)
            }
        }
    }

    /// Only pages of our own may ask. Clients that are not browsers send none of these fields.
    fn check_origin(&self, host: &str, headers: &HeaderMap) -> Result<(), Problem> {
        let is_own = |origin: &str| {
            let place = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            let is_api = |place: &str| place.parse().is_ok_and(|place: Place| self.apis.contains(&place));
            place.is_some_and(|place| place.eq_ignore_ascii_case(host) || is_api(place))
        };
        let is_near = |site: &str| ["same-origin", "none"].contains(&site);
        let origins = headers.get_all(ORIGIN).iter().all(|origin| origin.to_str().is_ok_and(is_own));
        let sites = headers.get_all(SITE).iter().all(|site| site.to_str().is_ok_and(is_near));
        match origins && sites {
            true => Ok(()),
            false => {
                Err(Problem::forbidden("this request comes from another site", "only pages of this server may ask"))
            }
        }
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        if token.accepts(given) { Ok(()) } else { Err(Problem::unauthorized()) }
    }
}

/// A name without the dot that stands for the root of all names.
fn plain(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The host of `host:port`.
fn host_of(authority: &str) -> &str {
    let end = authority.rfind(']').map_or(0, |place| place + 1);
    authority[end..].rfind(':').map_or(authority, |place| &authority[..end + place])
}

fn check_kind(request: &Request<Body>) -> Result<(), Problem> {
    let headers = request.headers();
    let kind = headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    if kind.is_none() && request.body().is_end_stream() {
        return Ok(());
    }
    let essence = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    match KINDS.iter().any(|kind| kind.eq_ignore_ascii_case(essence)) {
        true => Ok(()),
        false => Err(Problem::wrong_kind()),
    }
}

#[cfg(test)]
mod tests {
    use super::Places;
    use super::*;

    fn doors() -> Doors {
        let places = |last: u8| Places {
            address: SocketAddr::from(([10, 0, 0, last], 7460)).into(),
            api: SocketAddr::from(([10, 0, 0, last], 7461)).into(),
        };
        let names = ["Farm.example".to_owned(), "fd00::7".to_owned()];
        let token = String::from("0123456789abcdef0123456789abcdef").try_into().unwrap();
        Doors::new(SocketAddr::from(([0, 0, 0, 0], 7461)), [1, 2].map(places).into_iter(), &names, Some(token))
    }

    /// A request with these fields, one per line, and a body.
    fn request(fields: &str, body: &'static str) -> Request<Body> {
        let mut request = Request::post("/v1/jobs");
        for (name, value) in fields.lines().filter_map(|line| line.split_once(": ")) {
            request = request.header(name, value);
        }
        request.body(Body::from(body)).unwrap()
    }

    fn answer(fields: &str, body: &'static str) -> u16 {
        match doors().admit(&request(fields, body)) {
            Ok(()) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    const SECRET: &str = "authorization: Bearer 0123456789abcdef0123456789abcdef";

    #[test]
    fn only_own_names_are_answered() {
        for (host, expected) in [
            ("127.0.0.1:7461", 200),
            ("127.9.9.9", 200),
            ("[::1]:7461", 200),
            ("[::1]", 200),
            ("localhost", 200),
            ("LocalHost.:80", 200),
            ("10.0.0.2:7461", 200),
            ("10.0.0.2", 200),
            ("[fd00::7]:7461", 200),
            ("farm.example:7461", 200),
            ("10.0.0.3:7461", 421),
            ("0.0.0.0:7461", 421),
            ("evil.example:7461", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example:7461", 421),
            ("2130706433", 421),
            ("evil.example@127.0.0.1", 421),
            ("127.0.0.1, evil.example", 421),
            ("", 421),
        ] {
            assert_eq!(answer(&format!("host: {host}\n{SECRET}"), ""), expected, "{host}");
        }
        assert_eq!(answer(SECRET, ""), 421);
        assert_eq!(answer(&format!("host: localhost\nhost: localhost\n{SECRET}"), ""), 421);
        let mut absolute = request(&format!("host: localhost\n{SECRET}"), "");
        *absolute.uri_mut() = "http://evil.example/v1/jobs".parse().unwrap();
        assert!(doors().admit(&absolute).is_err());
    }

    #[test]
    fn pages_of_others_are_refused() {
        for (fields, expected) in [
            ("origin: http://127.0.0.1:7461", 200),
            ("origin: http://10.0.0.2:7461", 200),
            ("sec-fetch-site: same-origin", 200),
            ("sec-fetch-site: none", 200),
            ("origin: https://evil.example", 403),
            ("origin: http://127.0.0.1:3000", 403),
            ("origin: http://127.0.0.1:7461.evil.example", 403),
            ("origin: http://10.0.0.3:7461", 403),
            ("origin: file://", 403),
            ("origin: null", 403),
            ("origin: ", 403),
            ("origin: http://127.0.0.1:7461\norigin: https://evil.example", 403),
            ("sec-fetch-site: cross-site", 403),
            ("sec-fetch-site: same-site", 403),
            ("sec-fetch-site: ", 403),
        ] {
            assert_eq!(answer(&format!("host: 127.0.0.1:7461\n{SECRET}\n{fields}"), ""), expected, "{fields}");
        }
    }

    #[test]
    fn bodies_are_json_and_requests_have_the_secret() {
        let job = r#"{"command":["touch","x"]}"#;
        for (fields, body, expected) in [
            ("content-type: application/json", job, 200),
            ("content-type: Application/JSON; charset=utf-8", job, 200),
            ("content-type: application/x-ndjson", job, 200),
            ("content-type: application/jsonl", job, 200),
            ("", "", 200),
            ("", job, 415),
            ("content-type: text/plain", job, 415),
            ("content-type: text/plain;charset=UTF-8", "", 415),
            ("content-type: application/x-www-form-urlencoded", job, 415),
            ("content-type: multipart/form-data; boundary=application/json", job, 415),
            ("content-type: application/jsonp", job, 415),
        ] {
            assert_eq!(answer(&format!("host: localhost\n{SECRET}\n{fields}"), body), expected, "{fields}");
            assert_eq!(answer(&format!("host: localhost\n{fields}"), body), 401, "{fields}");
        }
        let wrong = "authorization: Bearer 0123456789abcdef0123456789abcdee";
        assert_eq!(answer(&format!("host: localhost\n{wrong}"), ""), 401);
    }

    #[test]
    fn a_port_is_what_follows_the_host() {
        for (authority, expected) in [("a:1", "a"), ("a", "a"), ("[::1]:2", "[::1]"), ("[::1]", "[::1]"), ("", "")]
        {
            assert_eq!(host_of(authority), expected);
        }
    }
}
