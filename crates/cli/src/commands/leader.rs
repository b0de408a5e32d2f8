//! `primus leader`: who leads, in which term, since when and why.

use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};

use primus_terminal::Place;

/// Asks all servers and prints the latest answer.
pub(super) fn run(place: &Place, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let (leader, view) = place.client()?.leader()?;
    format.show(|| format!("{}\n", leader.sentence()), &view)?;
    Ok(if leader.leader.is_some() { Verdict::Held } else { Verdict::NoLeader })
}
