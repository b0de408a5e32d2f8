//! `/v1/farms`: this farm and its neighbours.

use axum::extract::State;
use axum::response::Response;
use primus_core::farm::foreman::Foreman;
use primus_core::ledger::Ledger;
use primus_core::loan::Lending;
use primus_core::loan::lending::{Neighbour, Situation};
use primus_shapes::described;
use serde::Serialize;

use crate::context::Context;
use crate::orders::Asked;
use crate::pages::{self, Page, no_cursor};
use crate::problem::Problem;
use crate::values::now_ms;

/// Where neighbours are listed.
const SEE_FARMS: &str = "primus farms lists the neighbours";

described! {
    /// A farm.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub(crate) struct FarmFacts {
        /// The farm's name.
        farm: String,
        /// True if it is the farm that is asked.
        own: bool,
        /// True if its leader has been heard lately; of one that has not, nothing else is known.
        heard: bool,
        /// True if it has too much to do; known of the own farm only.
        saturated: Option<bool>,
        /// How many slots of its own workers are free.
        idle: Option<u64>,
        /// How many of its tasks wait.
        queued: Option<u64>,
        /// How many workers the own farm has lent to it; in the own farm's item, all that are lent.
        lent: usize,
        /// How many workers the own farm has borrowed from it; in the own farm's item, all that are borrowed.
        borrowed: usize,
    }
}

/// This farm and its neighbours.
pub(crate) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let page = Page::new(pages::limit(&mut asked)?);
    let after = asked.text("after");
    asked.done()?;
    let farm = context.farm.clone();
    let look = move |foreman: &Foreman, lending: &Lending| {
        farms(&farm, foreman.ledger(), foreman.situation(now_ms()).as_ref(), lending)
    };
    let farms = context.handle.farm.look_at_loans(look).await?;
    // The last farm of the page before: which ones there are is configured.
    let passed = match after {
        Some(after) => 1 + farms.iter().position(|farm| farm.farm == after).ok_or_else(|| no_cursor(&after))?,
        None => 0,
    };
    Ok(page.fill(farms.into_iter().skip(passed).map(|farm| (farm.farm.clone(), farm))).finish())
}

/// The farm that is asked, and its neighbours.
fn farms(farm: &str, ledger: &Ledger, situation: Option<&Situation>, lending: &Lending) -> Vec<FarmFacts> {
    let loans = ledger.loans();
    let own = FarmFacts {
        farm: farm.to_owned(),
        own: true,
        heard: true,
        saturated: Some(lending.is_saturated()),
        idle: situation.map(|situation| situation.idle.iter().map(|(_, slots)| u64::from(*slots)).sum()),
        queued: situation.map(|situation| situation.queued),
        lent: loans.lent().len(),
        borrowed: loans.borrowed().len(),
    };
    let other = |(name, known): (&str, Option<&Neighbour>)| FarmFacts {
        farm: name.to_owned(),
        own: false,
        heard: known.is_some(),
        saturated: None,
        idle: known.map(|known| known.beat.idle.into()),
        queued: known.map(|known| known.beat.queued),
        lent: loans.lent().values().filter(|lent| lent.to == name).count(),
        borrowed: loans.borrowed().values().filter(|borrowed| borrowed.from == name).count(),
    };
    std::iter::once(own).chain(lending.neighbours().map(other)).collect()
}

pub(crate) fn no_neighbour(name: &str) -> Problem {
    Problem::usage(format!("neighbour '{name}' does not exist"), SEE_FARMS)
}

#[cfg(test)]
mod tests {
    use primus_core::loan::Beat;

    use super::*;
    use crate::loans::scene::{beat, ledger, lending};

    #[test]
    fn farms_are_known_as_far_as_they_are_heard() {
        let ledger = ledger(Vec::new());
        let found = |beats: &[Beat]| farms("north", &ledger, Some(&Situation::default()), &lending(&ledger, beats));
        let unheard = &found(&[])[1];
        assert_eq!((unheard.heard, unheard.idle, unheard.lent, unheard.borrowed), (false, None, 1, 1));
        let heard = found(&[beat(&[1], false)]);
        assert_eq!((heard[1].heard, heard[1].idle, heard[1].queued), (true, Some(3), Some(7)));
        assert_eq!((heard[0].farm.as_str(), heard[0].own, heard[0].idle), ("north", true, Some(0)));
    }
}
