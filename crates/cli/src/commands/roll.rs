//! `primus token`, `primus cert`, `primus neighbours`, `primus workers forget`: who is who.

use std::fs;
use std::path::Path;
use std::time::Duration;

use primus_client::Patience;
use primus_client::http::{Request, escaped};
use primus_terminal::amounts::{length, number, quoted};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Place, Verdict};
use serde_json::{Value, json};

use super::lists;
use crate::args::{
    CertArgs, CertWhat, CreateArgs, NeighboursArgs, NeighboursWhat, TokenArgs, TokenWhat, TrustArgs,
};
use crate::output::roll;

/// How long a leader may take to write a change down.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// As many may join with one token as with all.
const USES_MAX: u64 = 10_000;
/// The longest file that can be a certificate.
const CERTIFICATE_LEN_MAX: u64 = 8192;

pub(super) fn token(args: &TokenArgs, format: Format) -> Result<Verdict, Failure> {
    match &args.what {
        TokenWhat::Create(args) => create(args, format),
        TokenWhat::List(args) => lists::all(args, format, "/v1/tokens", "id", roll::tokens),
        TokenWhat::Revoke { id, place } => {
            let id = number("ID", id, 1, u64::MAX)?;
            change(place, format, &format!("/v1/tokens/{id}/revoke"), &json!({}), |_| roll::token_revoked(id))
        }
    }
}

/// Makes a token, once: a second one would be good, too.
fn create(args: &CreateArgs, format: Format) -> Result<Verdict, Failure> {
    let uses = number("--uses", &args.uses, 1, USES_MAX)?;
    let ttl_ms = u64::try_from(length("--ttl", &args.ttl)?.as_millis()).unwrap_or(u64::MAX);
    if ttl_ms == 0 {
        return Err(Failure::usage(format!("--ttl is {}", quoted(&args.ttl)), "give it a millisecond at least"));
    }
    let body = json!({ "role": args.role, "ttl_ms": ttl_ms, "uses": uses, "name": args.name });
    let name = args.name.as_deref();
    change(&args.place, format, "/v1/tokens", &body, |answer| roll::token_created(answer, name))
}

pub(super) fn cert(args: &CertArgs, format: Format) -> Result<Verdict, Failure> {
    match &args.what {
        CertWhat::Show(place) => {
            format.refuse_to_draw()?;
            let answer = place.caller()?.get("/v1/certs")?;
            format.show(|| roll::certs(&answer), &answer)?;
            Ok(Verdict::Held)
        }
        CertWhat::Rotate(place) => change(place, format, "/v1/certs/rotate", &json!({}), roll::rotated),
        CertWhat::Finish(place) => change(place, format, "/v1/certs/finish", &json!({}), roll::finished),
        CertWhat::Revoke { what, place } => {
            change(place, format, "/v1/certs/revoke", &revocation(what)?, roll::revoked)
        }
    }
}

/// A number is a certificate, and a name a worker; for a worker whose name is a number there is `worker/7`.
fn revocation(what: &str) -> Result<Value, Failure> {
    match what.split_once('/') {
        Some(("worker", name)) => Ok(json!({ "worker": name })),
        Some(("server", id)) => Ok(json!({ "server": number("server/NUMBER", id, 1, u64::MAX)? })),
        Some(_) => {
            let message = format!("{} is not a certificate, a worker or a server", quoted(what));
            Err(Failure::usage(message, "name 7, w1, worker/w1 or server/2"))
        }
        None => {
            Ok(what.parse().map_or_else(|_| json!({ "worker": what }), |serial: u64| json!({ "serial": serial })))
        }
    }
}

pub(super) fn neighbours(args: &NeighboursArgs, format: Format) -> Result<Verdict, Failure> {
    match &args.what {
        NeighboursWhat::Trust(args) => trust(args, format),
        NeighboursWhat::List(args) => lists::all(args, format, "/v1/neighbours", "name", roll::neighbours),
        NeighboursWhat::Forget { name, place } => {
            let path = format!("/v1/neighbours/{}/forget", escaped(name));
            change(place, format, &path, &json!({}), roll::neighbour_forgotten)
        }
    }
}

fn trust(args: &TrustArgs, format: Format) -> Result<Verdict, Failure> {
    let certificate = args.certificate.as_deref().map(read).transpose()?;
    let body = json!({
        "name": args.name,
        "authority": args.authority,
        "servers": args.servers,
        "certificate": certificate,
    });
    change(&args.place, format, "/v1/neighbours", &body, roll::trusted)
}

fn read(file: &Path) -> Result<String, Failure> {
    let wrong = |reason: &str| {
        let message = format!("--certificate: {} cannot be used: {reason}", file.display());
        Failure::usage(message, "give the file with the certificate of the other farm's authority")
    };
    let about = fs::metadata(file).map_err(|error| wrong(&error.to_string()))?;
    if about.len() > CERTIFICATE_LEN_MAX {
        return Err(wrong("it is too long"));
    }
    fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))
}

/// Frees the name of a worker.
pub(super) fn forget_worker(name: &str, place: &Place, format: Format) -> Result<Verdict, Failure> {
    let path = format!("/v1/workers/{}/forget", escaped(name));
    change(place, format, &path, &json!({}), |_| roll::worker_forgotten(name))
}

/// Asks for a change, once: who is told that the outcome is unknown looks first.
fn change(
    place: &Place,
    format: Format,
    path: &str,
    body: &Value,
    text: impl FnOnce(&Value) -> String,
) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let body = body.to_string();
    let request = Request::post(path, body.as_bytes());
    let answer = place.client()?.write(request, Patience::Once(ANSWER_TIME))?;
    format.show(|| text(&answer), &answer)?;
    Ok(Verdict::Held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_revoked_is_a_number_a_worker_or_a_server() {
        for (text, expected) in [
            ("7", json!({ "serial": 7 })),
            ("w1", json!({ "worker": "w1" })),
            ("worker/7", json!({ "worker": "7" })),
            ("server/2", json!({ "server": 2 })),
        ] {
            assert_eq!(revocation(text).ok(), Some(expected), "{text}");
        }
        for wrong in ["server/", "server/w1", "host/2"] {
            assert!(revocation(wrong).is_err(), "{wrong}");
        }
    }
}
