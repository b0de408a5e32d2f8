//! The names of fields that requests and answers have here and nowhere else, or that clients may forget.

/// Where a browser says that a request comes from, if it does.
pub(crate) const SITE: &str = "sec-fetch-site";
/// The field under whose value a job exists once.
pub(crate) const KEY: &str = "idempotency-key";
/// Which attempt of a task an output is of.
pub(crate) const ATTEMPT: &str = "x-primus-attempt";
/// Where in the whole output a piece begins.
pub(crate) const OFFSET: &str = "x-primus-offset";
/// Whether nothing comes behind a piece of an output.
pub(crate) const LAST: &str = "x-primus-last";
/// How long a whole output is.
pub(crate) const TOTAL: &str = "x-primus-total";
/// The worker that may have what is missing before a piece, and is not here.
pub(crate) const ELSEWHERE: &str = "x-primus-elsewhere";
