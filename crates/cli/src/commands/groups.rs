//! `primus groups`: further elections, and who leads each.

use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};

use super::lists;
use crate::args::ListArgs;
use crate::output::groups;

/// Shows what the first server says that answers.
pub(super) fn run(args: &ListArgs, format: Format) -> Result<Verdict, Failure> {
    let look = |_: &mut _| Ok(args.place.client()?.latest_list("/v1/groups")?);
    lists::show(args, format, "group", look, groups::text)
}
