//! `primus bench`: the benches are a crate of their own. Their candidates for leases ask as `primus lead` does.

use primus_bench::BenchArgs;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Place, Verdict};

use super::lead::Asker;

/// Measures and prints.
pub(super) fn run(args: &BenchArgs, format: Format) -> Result<Verdict, Failure> {
    primus_bench::run(args, format, |api| Asker::find(&Place { api: Some(api.to_owned()), farm: None }))
}
