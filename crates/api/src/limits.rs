//! How much a request may ask for, and for how long: the one place for the bounds that clients meet. Those of what is kept
//! (keys, values, names) are in [`primus_core::limits`], because every edge checks them.

use std::time::Duration;

/// How many items a page has unless a request says otherwise.
pub(crate) const PAGE: usize = 100;
/// How many items a page has at most.
pub(crate) const PAGE_MAX: usize = 10_000;
/// How long the items of a page are together, unless one alone is longer.
pub(crate) const PAGE_LEN_MAX: usize = 1 << 20;

/// The longest body of an order, which is a small object.
pub(crate) const ORDER_LEN_MAX: usize = 16 * 1024;
/// The longest question of a session: ten thousand groups with long names fit.
pub(crate) const QUESTION_LEN_MAX: usize = 4 << 20;
/// The longest line of a body with a job per line.
pub(crate) const JOB_LINE_LEN_MAX: usize = 4 << 20;
/// How many lines of an import can be one proposal.
pub(crate) const BATCH_MAX: usize = 10_000;
/// How long such a proposal may be: it must fit into one frame between servers.
pub(crate) const BATCH_LEN_MAX: usize = 512 * 1024;

/// How long one request may wait for something to end, or for more of an output.
pub(crate) const WAIT_TIME_MAX: Duration = Duration::from_secs(30);
/// How long the leader's answer to a request that was passed on may take.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(10);
/// How long many jobs or writes in one body may take that are passed on.
pub(crate) const BULK_TIME: Duration = Duration::from_secs(3600);
/// How long a connection may wait for the next whole request head, its first byte included.
pub(crate) const HEAD_TIME: Duration = Duration::from_secs(5);
/// For how long an operator lends at most.
pub(crate) const LOAN_TIME_MAX: Duration = Duration::from_secs(24 * 3600);
