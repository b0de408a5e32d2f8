//! Small objects that requests carry. They are read field by field ([`crate::orders`]), so they are described here.

use primus_core::ledger::loans::LOANS_MAX;
use primus_core::ledger::roll::{SERVERS_MAX, TTL_MS_MAX, USES_MAX};
use primus_node::link_faults::DELAY_MAX;
use primus_shapes::schema::{Described, Schemas};
use serde_json::{Value, json};

use crate::limits::LOAN_TIME_MAX;
use crate::tokens::TTL_MS;
use crate::words::TokenRole;

/// Builds an object of these fields; those that are `required` must be there.
fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

fn milliseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Nothing at all.
pub(super) fn nothing(_: &mut Schemas) -> Value {
    object(&[], json!({}))
}

/// The next leader.
pub(super) fn transfer(_: &mut Schemas) -> Value {
    let to = json!({ "type": "integer", "minimum": 1, "description": "The server that leads next." });
    object(&["to"], json!({ "to": to }))
}

/// Which tasks run again.
pub(super) fn retry(_: &mut Schemas) -> Value {
    let about = "True if only tasks run again that failed or were lost.";
    object(&[], json!({ "failed_only": { "type": "boolean", "default": false, "description": about } }))
}

/// Whether a worker gets nothing new.
pub(super) fn drain(_: &mut Schemas) -> Value {
    let about = "True if the worker gets nothing new, false if it gets tasks again.";
    object(&["draining"], json!({ "draining": { "type": "boolean", "description": about } }))
}

/// How many workers to lend, to whom, and for how long.
pub(super) fn lend(_: &mut Schemas) -> Value {
    let count =
        json!({ "type": "integer", "minimum": 1, "maximum": LOANS_MAX, "description": "How many workers." });
    let about = "For how long; as lending.loan says unless another length is given.";
    let longest = milliseconds(LOAN_TIME_MAX);
    let for_ms = json!({ "type": "integer", "minimum": 1, "maximum": longest, "description": about });
    let to = json!({ "type": "string", "description": "The neighbour." });
    object(&["to", "count"], json!({ "to": to, "count": count, "for_ms": for_ms }))
}

/// Which loans end: one of these fields.
pub(super) fn recall(_: &mut Schemas) -> Value {
    let loan = json!({ "type": "integer", "minimum": 1, "description": "This loan." });
    let worker = json!({ "type": "string", "description": "The loan of this worker." });
    let farm = json!({ "type": "string", "description": "All loans to this farm." });
    let all = json!({ "type": "boolean", "enum": [true], "description": "All loans." });
    json!({ "oneOf": [
        object(&["loan"], json!({ "loan": loan })),
        object(&["worker"], json!({ "worker": worker })),
        object(&["farm"], json!({ "farm": farm })),
        object(&["all"], json!({ "all": all })),
    ] })
}

fn servers(about: &str) -> Value {
    json!({ "type": "array", "items": { "type": "integer", "minimum": 1 }, "description": about })
}

fn names(about: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": about })
}

/// Which links are cut.
pub(super) fn cut(_: &mut Schemas) -> Value {
    object(
        &["peers"],
        json!({
            "peers": servers("The servers to which this one does not talk; an empty list joins them again."),
            "held": names("Workers on whose links nothing passes."),
            "closed": names("Workers whose links are closed."),
            "farms": names("Neighbours to which this server does not talk."),
        }),
    )
}

/// Which links are slow.
pub(super) fn delay(_: &mut Schemas) -> Value {
    let longest = milliseconds(DELAY_MAX);
    let about = "How long messages are delayed, each way; 0 ends it.";
    let delay_ms = json!({ "type": "number", "minimum": 0, "maximum": longest, "description": about });
    let peers = servers("The servers whose messages are delayed.");
    object(&["peers", "delay_ms"], json!({ "peers": peers, "delay_ms": delay_ms }))
}

/// How loaded this server claims to be.
pub(super) fn load(_: &mut Schemas) -> Value {
    let about = "The score from now on; null if it is measured again.";
    object(
        &[],
        json!({ "score": { "type": ["number", "null"], "minimum": 0, "maximum": 100, "description": about } }),
    )
}

/// What a join token is good for.
pub(super) fn token(schemas: &mut Schemas) -> Value {
    let mut role = TokenRole::schema(schemas);
    role["description"] = "What it is good for.".into();
    let ttl = json!({ "type": "integer", "minimum": 1, "maximum": TTL_MS_MAX, "default": TTL_MS,
        "description": "For how long it is good." });
    let uses = json!({ "type": "integer", "minimum": 1, "maximum": USES_MAX, "default": 1,
        "description": "How many may join with it." });
    let name = json!({ "type": "string", "description": "The only worker that may join with it." });
    object(&["role"], json!({ "role": role, "ttl_ms": ttl, "uses": uses, "name": name }))
}

/// What is revoked: one of these fields.
pub(super) fn revoke(_: &mut Schemas) -> Value {
    let serial = json!({ "type": "integer", "minimum": 0, "description": "The certificate of this number." });
    let worker = json!({ "type": "string", "description": "All certificates that this worker has now." });
    let server =
        json!({ "type": "integer", "minimum": 1, "description": "All certificates that this server has now." });
    json!({ "oneOf": [
        object(&["serial"], json!({ "serial": serial })),
        object(&["worker"], json!({ "worker": worker })),
        object(&["server"], json!({ "server": server })),
    ] })
}

/// A farm to be trusted.
pub(super) fn trust(_: &mut Schemas) -> Value {
    let name = json!({ "type": "string", "description": "The farm's name." });
    let authority = json!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$",
        "description": "SHA-256 of its authority's certificate." });
    let servers = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": SERVERS_MAX,
        "description": "Where its servers are, each ID=HOST:PORT." });
    let certificate = json!({ "type": "string", "description": "Its authority's certificate, as PEM." });
    object(
        &["name", "authority", "servers"],
        json!({ "name": name, "authority": authority, "servers": servers, "certificate": certificate }),
    )
}

/// A text.
pub(super) fn text(_: &mut Schemas) -> Value {
    json!({ "type": "string" })
}

/// Bytes.
pub(super) fn bytes(_: &mut Schemas) -> Value {
    json!({ "type": "string", "contentMediaType": "application/octet-stream" })
}

/// Any object: the document itself.
pub(super) fn any(_: &mut Schemas) -> Value {
    json!({ "type": "object", "additionalProperties": true })
}
