//! `primus chaos`: what can go wrong, on demand, in a farm that `primus up` runs for this user.

use primus_client::farms::Farm;
use primus_local::chaos;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};

use crate::args::{Chaos, ChaosArgs};

/// Does it.
pub(super) fn run(args: &ChaosArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let none = || Failure::unreachable("no farm runs here that primus up has started", "start one: primus up");
    let farm = Farm::find(args.farm.as_deref())?.ok_or_else(none)?;
    let done = match &args.what {
        Chaos::Kill { target } => chaos::kill(&farm, target),
        Chaos::Freeze { target } => chaos::freeze(&farm, target),
        Chaos::Thaw { target } => chaos::thaw(&farm, target),
        Chaos::Restart { target } => chaos::restart(&farm, target),
        Chaos::Partition { groups, close, from_farm } => {
            chaos::partition(&farm, groups.as_deref(), *close, from_farm)
        }
        Chaos::Delay { servers, time } => chaos::delay(&farm, servers, time),
        Chaos::Heal => chaos::heal(&farm),
        Chaos::Load { target, score } => chaos::load(&farm, target, score),
    }?;
    format.show(|| format!("{}\n", done.text()), &done)?;
    Ok(Verdict::Held)
}
