//! Parameters that several routes take.

use primus_core::limits::{IDEMPOTENCY_KEY_LEN_MAX, KEY_LEN_MAX};
use serde_json::{Value, json};

use super::operation::Parameter;
use crate::limits::{PAGE, PAGE_MAX, WAIT_TIME_MAX};

pub(super) const fn query(name: &'static str, about: &'static str, schema: fn() -> Value) -> Parameter {
    Parameter { place: "query", name, about, schema }
}

pub(super) const fn path(name: &'static str, about: &'static str, schema: fn() -> Value) -> Parameter {
    Parameter { place: "path", name, about, schema }
}

pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

pub(super) fn number() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

pub(super) fn no() -> Value {
    json!({ "type": "boolean", "default": false })
}

pub(super) fn yes() -> Value {
    json!({ "type": "boolean", "default": true })
}

/// How many items a page has.
pub(super) const LIMIT: Parameter = query(
    "limit",
    "How many items the page has at most.",
    || json!({ "type": "integer", "minimum": 1, "maximum": PAGE_MAX, "default": PAGE }),
);
/// Where a page begins.
pub(super) const AFTER: Parameter = query("after", "Where to read on: the field next of the page before.", text);
/// A job.
pub(super) const JOB: Parameter = path("id", "The job's number, such as 12.", number_text);
/// A job, or several in a row.
pub(super) const JOBS: Parameter =
    path("id", "A job's number, such as 12, or several jobs in a row, such as 12-20.", text);
/// A task.
pub(super) const TASK: Parameter = path("id", "The task, such as 12.7: the seventh task of job 12.", text);
/// A loan.
pub(super) const LOAN: Parameter =
    path("id", "The lender's number of the loan, such as 3; with @LENDER behind it if another farm lends.", text);
/// A key.
pub(super) const KEY: Parameter = path(
    "key",
    "The key. It may contain slashes; other signs than letters, digits and -._~/ are escaped as %XX.",
    || json!({ "type": "string", "minLength": 1, "maxLength": KEY_LEN_MAX }),
);
/// How long a request waits.
pub(super) const TIMEOUT: Parameter = query(
    "timeout_ms",
    "How long to wait; then the answer shows what has not ended.",
    || json!({ "type": "integer", "minimum": 0, "default": longest_ms(), "maximum": longest_ms() }),
);
/// The key under which a job is submitted once.
pub(super) const ONCE: Parameter = Parameter {
    place: "header",
    name: "Idempotency-Key",
    about: "However often a job is submitted under one key, it exists once. With a job per line, the key of line N is KEY/N.",
    schema: || json!({ "type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_LEN_MAX }),
};

fn number_text() -> Value {
    json!({ "type": "string", "pattern": "^[1-9][0-9]*$" })
}

/// The longest wait, in milliseconds.
pub(super) fn longest_ms() -> u64 {
    u64::try_from(WAIT_TIME_MAX.as_millis()).unwrap_or(u64::MAX)
}
