//! What can happen to two farms.

use super::Farm;
use crate::frame::actions;

actions! {
    /// Something that happens.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    Action {
        Beat(farm: Farm) "farm {farm} is heard";
        Agree(farm: Farm) "farm {farm} agrees";
        Call(worker: usize) "worker {worker} hears its own leader";
        Abroad(worker: usize) "worker {worker} hears the other leader";
        WorkerMessage(worker: usize) "worker {worker} is heard at home";
        Greeting(worker: usize) "worker {worker} introduces itself abroad";
        Synced(worker: usize) "worker {worker} has written";
        Missed(farm: Farm, worker: usize) "farm {farm} misses worker {worker}";
        Done(worker: usize) "worker {worker} is done";
        Calm(farm: Farm) "farm {farm} has nothing to do";
        Flood(farm: Farm) "farm {farm} has too much to do";
        Lend(worker: usize) "an operator lends worker {worker}";
        Recall(worker: usize) "an operator wants worker {worker} back";
        LeaderDies(farm: Farm, is_heard: bool) "the leader of farm {farm} dies{}", but(*is_heard, ", but was heard");
        Dies(worker: usize, is_synced: bool) "worker {worker} dies{}", but(!is_synced, " before it has written");
        Restarts(worker: usize) "worker {worker} starts again";
        Cut(farm: Farm, worker: usize) "worker {worker} and farm {farm} are cut off";
        Mend(farm: Farm, worker: usize) "worker {worker} and farm {farm} reach each other";
        Lose(way: Way) "what {way} is lost";
        Pass "a tick passes";
    }
}

actions! {
    /// From whom to whom something was said.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    Way {
        Between(farm: Farm) "farm {farm} has said";
        Down(worker: usize) "worker {worker} was told";
        Up(worker: usize) "worker {worker} has said";
    }
}

const fn but(is_so: bool, what: &str) -> &str {
    if is_so { what } else { "" }
}
