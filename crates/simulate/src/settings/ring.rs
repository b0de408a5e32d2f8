//! What the arguments of `primus simulate ring` mean.

use std::sync::Arc;

use primus_core::ServerId;
use primus_core::election::ring::{Rules, Winner};
use primus_lab::experiment::{Contest, tuned_ring};
use primus_terminal::failure::Failure;

use super::{Cast, Events, RING_MAX, Simulation};
use crate::args::{RingArgs, WhichWins};

pub(super) fn simulation(args: &RingArgs) -> Result<Simulation, Failure> {
    let cast = Cast::ring(&args.ids, RING_MAX)?;
    let events = Events { start: &args.start, crash: &args.crash, partition: &args.partition };
    let happenings = events.read(&cast)?;
    let delay = args.conditions.delay()?;
    let members: Arc<[ServerId]> = cast.ids().collect();
    let rules = Arc::new(tuned_ring(Rules::new(winner(args.winner), members.len()), members.len(), delay));
    let experiment = args.conditions.experiment(Contest::Ring { members, rules }, happenings, delay)?;
    Ok(Simulation { experiment, cast, seeds: args.conditions.seeds.read()? })
}

const fn winner(which: WhichWins) -> Winner {
    match which {
        WhichWins::Lowest => Winner::Lowest,
        WhichWins::Highest => Winner::Highest,
    }
}
