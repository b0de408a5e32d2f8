//! `primus groups`: further elections, and who leads each.

use primus_client::strange_answer;
use primus_terminal::Place;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};

use crate::output::groups;

/// Shows what the first server says that answers.
pub(super) fn run(place: &Place, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let answer = place.client()?.latest_list("/v1/groups")?;
    let items = answer["items"].as_array().ok_or_else(strange_answer)?;
    format.show(|| groups::text(items), &answer)?;
    Ok(Verdict::Held)
}
