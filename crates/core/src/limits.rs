//! How long may be what people send and a farm keeps. Every edge checks these, the HTTP API as well as the library, so they
//! are here once. What has a name of its own says its limits beside its rules: [`names`](crate::names) of farms and workers,
//! [`groups`](crate::ledger::groups).

/// The longest key, in bytes.
pub const KEY_LEN_MAX: usize = 1024;
/// The longest value, in bytes.
pub const VALUE_LEN_MAX: usize = 256 << 10;
/// The longest key under which a job is submitted at most once, in bytes.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = 200;
