//! What arrives at the farm's thread, and in which order it is taken.

use primus_core::Term;
use primus_core::ledger::Entry;
use tokio::sync::mpsc;

use super::worker_links::{CallingWorker, WorkerEvent};
use super::{FarmRequest, ToFarm};
use crate::budget::Weight;
use crate::neighbours::{Envoy, NeighbourEvent};

/// Where everything arrives.
pub(super) struct Inputs {
    pub(super) told: mpsc::UnboundedReceiver<ToFarm>,
    pub(super) of_workers: mpsc::Receiver<WorkerEvent>,
    pub(super) calls: mpsc::Receiver<CallingWorker>,
    pub(super) of_neighbours: mpsc::Receiver<NeighbourEvent>,
    pub(super) envoys: mpsc::Receiver<Envoy>,
    /// What leases want in the log.
    pub(super) wanted: mpsc::UnboundedReceiver<(Term, Vec<Entry>)>,
    pub(super) asks: mpsc::UnboundedReceiver<(FarmRequest, Weight)>,
}

/// One thing that arrived.
pub(super) enum Arrived {
    Wanted(Term, Vec<Entry>),
    ToFarm(ToFarm),
    Worker(WorkerEvent),
    Call(CallingWorker),
    Neighbour(NeighbourEvent),
    Envoy(Envoy),
    FarmRequest(FarmRequest),
}

impl Inputs {
    /// The next, what must not be late first; nothing when the control thread has ended.
    pub(super) async fn next(&mut self) -> Option<Arrived> {
        tokio::select! {
            biased;
            Some((term, entries)) = self.wanted.recv() => Some(Arrived::Wanted(term, entries)),
            told = self.told.recv() => told.map(Arrived::ToFarm),
            Some(event) = self.of_workers.recv() => Some(Arrived::Worker(event)),
            Some(caller) = self.calls.recv() => Some(Arrived::Call(caller)),
            Some(event) = self.of_neighbours.recv() => Some(Arrived::Neighbour(event)),
            Some(envoy) = self.envoys.recv() => Some(Arrived::Envoy(envoy)),
            Some((ask, _)) = self.asks.recv() => Some(Arrived::FarmRequest(ask)),
        }
    }

    /// The next of what there is much of, if it is there.
    pub(super) fn try_next(&mut self) -> Option<Arrived> {
        let wanted = self.wanted.try_recv().ok().map(|(term, entries)| Arrived::Wanted(term, entries));
        let told = wanted.or_else(|| self.told.try_recv().ok().map(Arrived::ToFarm));
        let worker = told.or_else(|| self.of_workers.try_recv().ok().map(Arrived::Worker));
        worker.or_else(|| self.asks.try_recv().ok().map(|(ask, _)| Arrived::FarmRequest(ask)))
    }

    /// One of each that others may have kept waiting.
    pub(super) fn try_each(&mut self) -> Vec<Arrived> {
        let worker = self.of_workers.try_recv().ok().map(Arrived::Worker);
        let call = self.calls.try_recv().ok().map(Arrived::Call);
        let neighbour = self.of_neighbours.try_recv().ok().map(Arrived::Neighbour);
        let envoy = self.envoys.try_recv().ok().map(Arrived::Envoy);
        let ask = self.asks.try_recv().ok().map(|(ask, _)| Arrived::FarmRequest(ask));
        [worker, call, neighbour, envoy, ask].into_iter().flatten().collect()
    }
}
