//! `primus groups`: further elections, and who leads each.

use super::{Verdict, refuse_to_draw, show};
use crate::args::{Format, Place};
use crate::client::{Client, strange_answer};
use crate::output::failure::Failure;
use crate::output::groups;

/// Shows what the first server says that answers.
pub(super) fn run(place: &Place, format: Format) -> Result<Verdict, Failure> {
    refuse_to_draw(format)?;
    let answer = Client::find(place)?.latest_list("/v1/groups")?;
    let items = answer["items"].as_array().ok_or_else(strange_answer)?;
    show(format, || groups::text(items), &answer)?;
    Ok(Verdict::Held)
}
