//! What the arguments of `primus simulate day` mean.

use primus_core::loan::lending::{LOOK_MS, Rules};
use primus_lab::lending::{Day, Load};
use primus_terminal::amounts::quoted;
use primus_terminal::failure::Failure;

use super::{amount, seed, time_us};
use crate::args::{DayArgs, Shape};

const FARMS_MAX: u64 = 100;
const WORKERS_MAX: u64 = 1_000;
const SLOTS_MAX: u64 = 1_000;
/// With more, the queues would grow for ever, whoever lends.
const BUSY_MAX: u64 = 99;
const TURN_US: u64 = 600_000_000;
/// How often lending sides may look around in a day, and hear of each other.
const LOOKS_MAX: u64 = 200_000_000;
/// How many tasks a day may have.
const TASKS_MAX: u64 = 100_000_000;
/// Of so many looks of a lending side one says to all neighbours how things are.
const LOOKS_PER_BEAT: u64 = 10;

/// A day to try, and the seed of its tasks.
#[derive(Debug, PartialEq)]
pub(crate) struct DaySimulation {
    pub(crate) day: Day,
    pub(crate) seed: u64,
}

impl DaySimulation {
    /// What these arguments ask for, if farms lend by these rules.
    pub(crate) fn new(args: &DayArgs, rules: Rules) -> Result<Self, Failure> {
        let default = Day::default();
        let amount = |flag, typed: &Option<String>, default, (min, max)| {
            Ok::<_, Failure>(amount(flag, typed.as_deref(), min, max)?.unwrap_or(default))
        };
        let farms = amount("--farms", &args.farms, default.farms as u64, (2, FARMS_MAX))?;
        let slots = amount("--slots", &args.slots, u64::from(default.slots), (1, SLOTS_MAX))?;
        let day = Day {
            farms: usize::try_from(farms).unwrap_or(usize::MAX),
            workers: amount("--workers", &args.workers, default.workers, (1, WORKERS_MAX))?,
            slots: u16::try_from(slots).unwrap_or(u16::MAX),
            load: load(args)?,
            busy_percent: amount("--busy", &args.busy, default.busy_percent, (1, BUSY_MAX))?,
            task_us: lasts_us("--task", args.task.as_deref(), default.task_us)?,
            day_us: lasts_us("--day", args.day.as_deref(), default.day_us)?,
            rules,
        };
        check_size(&day)?;
        Ok(Self { day, seed: seed(args.seed.as_deref())? })
    }
}

fn load(args: &DayArgs) -> Result<Load, Failure> {
    if args.turn.is_some() && args.load != Shape::Bursts {
        return Err(Failure::usage("--turn says how long a burst lasts, and there are none", "add --load bursts"));
    }
    Ok(match args.load {
        Shape::Curve => Load::Curve,
        Shape::Bursts => Load::Bursts { turn_us: lasts_us("--turn", args.turn.as_deref(), TURN_US)? },
        Shape::One => Load::One,
        Shape::Even => Load::Even,
    })
}

/// Nothing lasts for no time.
fn lasts_us(flag: &str, typed: Option<&str>, default: u64) -> Result<u64, Failure> {
    match (time_us(flag, typed)?, typed) {
        (Some(0), Some(text)) => {
            Err(Failure::usage(format!("{flag} is {}", quoted(text)), "write it like 250ms or 2s, up to 24h"))
        }
        (time_us, _) => Ok(time_us.unwrap_or(default)),
    }
}

/// Would it take longer than anybody waits?
fn check_size(day: &Day) -> Result<(), Failure> {
    let farms = day.farms as u64;
    let looks = day.day_us / (LOOK_MS * 1000) * farms * (1 + farms.div_ceil(LOOKS_PER_BEAT));
    let slots = farms * day.workers * u64::from(day.slots);
    let tasks = u128::from(slots * day.busy_percent) * u128::from(day.day_us) / u128::from(100 * day.task_us);
    if looks > LOOKS_MAX {
        return Err(Failure::usage("so many farms are too many for such a long day", "give a shorter --day"));
    }
    if tasks > u128::from(TASKS_MAX) {
        let message = format!("the day would have {tasks} tasks, and {TASKS_MAX} are the most");
        return Err(Failure::usage(message, "give a shorter --day, or a longer --task"));
    }
    Ok(())
}
