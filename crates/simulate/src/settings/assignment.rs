//! What the arguments of `primus simulate assignment` mean.

use primus_lab::assignment::Comparison;
use primus_terminal::failure::Failure;

use super::{amount, seed, time_us};
use crate::args::AssignmentArgs;

const WORKERS_MAX: u64 = 1_000;
const SLOTS_MAX: u64 = 1_000;
const TASKS_MAX: u64 = 10_000_000;
/// With more, the queue would grow for ever.
const LOAD_MAX: u64 = 99;

/// Rules to compare, and the seed of their tasks.
#[derive(Debug, PartialEq)]
pub(crate) struct AssignmentSimulation {
    pub(crate) comparison: Comparison,
    pub(crate) seed: u64,
}

impl AssignmentSimulation {
    /// What these arguments ask for.
    pub(crate) fn new(args: &AssignmentArgs) -> Result<Self, Failure> {
        let default = Comparison::default();
        let amount = |flag, typed: &Option<String>, default, max| {
            Ok::<_, Failure>(amount(flag, typed.as_deref(), 1, max)?.unwrap_or(default))
        };
        let time_us = |flag, typed: &Option<String>, default| {
            Ok::<_, Failure>(time_us(flag, typed.as_deref())?.unwrap_or(default).max(1))
        };
        let slots = amount("--slots", &args.slots, u64::from(default.slots), SLOTS_MAX)?;
        let comparison = Comparison {
            workers: amount("--workers", &args.workers, default.workers, WORKERS_MAX)?,
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
            tasks: amount("--tasks", &args.tasks, default.tasks, TASKS_MAX)?,
            task_us: time_us("--task", &args.task, default.task_us)?,
            load_percent: amount("--load", &args.load, default.load_percent, LOAD_MAX)?,
            heartbeat_us: time_us("--heartbeat", &args.heartbeat, default.heartbeat_us)?,
        };
        Ok(Self { comparison, seed: seed(args.seed.as_deref())? })
    }
}
