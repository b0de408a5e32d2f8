//! What can happen to two farms.

use std::fmt;

use super::Farm;

/// Something that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Beat(Farm),
    Agree(Farm),
    Call(usize),
    Abroad(usize),
    WorkerMessage(usize),
    Greeting(usize),
    Synced(usize),
    Missed(Farm, usize),
    Done(usize),
    Calm(Farm),
    Flood(Farm),
    Lend(usize),
    Recall(usize),
    LeaderDies(Farm, bool),
    Dies(usize, bool),
    Restarts(usize),
    Cut(Farm, usize),
    Mend(Farm, usize),
    Lose(Way),
    Pass,
}

/// From whom to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Between(Farm),
    Down(usize),
    Up(usize),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beat(farm) => write!(f, "farm {farm} is heard"),
            Self::Agree(farm) => write!(f, "farm {farm} agrees"),
            Self::Call(worker) => write!(f, "worker {worker} hears its own leader"),
            Self::Abroad(worker) => write!(f, "worker {worker} hears the other leader"),
            Self::WorkerMessage(worker) => write!(f, "worker {worker} is heard at home"),
            Self::Greeting(worker) => write!(f, "worker {worker} introduces itself abroad"),
            Self::Synced(worker) => write!(f, "worker {worker} has written"),
            Self::Missed(farm, worker) => write!(f, "farm {farm} misses worker {worker}"),
            Self::Done(worker) => write!(f, "worker {worker} is done"),
            Self::Calm(farm) => write!(f, "farm {farm} has nothing to do"),
            Self::Flood(farm) => write!(f, "farm {farm} has too much to do"),
            Self::Lend(worker) => write!(f, "an operator lends worker {worker}"),
            Self::Recall(worker) => write!(f, "an operator wants worker {worker} back"),
            Self::LeaderDies(farm, false) => write!(f, "the leader of farm {farm} dies"),
            Self::LeaderDies(farm, true) => write!(f, "the leader of farm {farm} dies, but was heard"),
            Self::Dies(worker, true) => write!(f, "worker {worker} dies"),
            Self::Dies(worker, false) => write!(f, "worker {worker} dies before it has written"),
            Self::Restarts(worker) => write!(f, "worker {worker} starts again"),
            Self::Cut(farm, worker) => write!(f, "worker {worker} and farm {farm} are cut off"),
            Self::Mend(farm, worker) => write!(f, "worker {worker} and farm {farm} reach each other"),
            Self::Lose(Way::Between(farm)) => write!(f, "what farm {farm} has said is lost"),
            Self::Lose(Way::Down(worker)) => write!(f, "what worker {worker} was told is lost"),
            Self::Lose(Way::Up(worker)) => write!(f, "what worker {worker} has said is lost"),
            Self::Pass => f.write_str("a tick passes"),
        }
    }
}
