//! `primus workers`: who runs tasks.

use primus_client::{pages, strange_answer};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Place, Verdict};

use crate::output::workers;

/// Lists the workers, as the leader knows them.
pub(super) fn run(place: &Place, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let mut caller = place.caller()?;
    let answer = pages::all("/v1/workers", |page| caller.get(page))?;
    let items = answer["items"].as_array().ok_or_else(strange_answer)?;
    format.show(|| workers::text(items), &answer)?;
    Ok(Verdict::Held)
}
