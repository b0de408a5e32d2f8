//! How what goes wrong is done to the processes and links of a run.

use primus_core::farm::foreman::Foreman;
use primus_core::farm::worker::Worker;

use super::faults::{FAULTS_END_US, Stroke};
use super::hands::{NOTICE, STALL};
use super::run::{Event, Run};
use crate::node::NodeId;
use crate::observer::Observer;
use crate::simulate::Happening;

impl<O: Observer<Foreman> + Observer<Worker>> Run<'_, O> {
    pub(super) fn on_stroke(&mut self, stroke: Stroke, until_us: u64) {
        // Whoever leads is hit; if nobody does, anybody.
        let server = self.chance.pick(&self.server_ids);
        let leader = self.log.leader().unwrap_or(server);
        let worker = self.chance.pick(&self.worker_ids);
        match stroke {
            Stroke::LeaderCrashes => self.crash_until(leader, until_us),
            Stroke::LeaderFreezes => self.freeze(leader, until_us),
            Stroke::LeaderIsolated => {
                self.isolated.insert(leader);
                self.queue.push(until_us, Event::Rejoin(leader));
            }
            Stroke::LeaderDeposed => {
                let others: Vec<NodeId> = self.able().into_iter().filter(|other| *other != leader).collect();
                if 2 * self.able().len() > self.server_ids.len() && !others.is_empty() {
                    let next = self.chance.pick(&others);
                    self.elect(next);
                }
            }
            Stroke::ServerCrashes => self.crash_until(server, until_us),
            Stroke::WorkerCrashes => self.crash_until(worker, until_us),
            Stroke::WorkerFreezes => self.freeze(worker, until_us),
            Stroke::WorkerCutOff => {
                self.cut.insert((worker, leader));
                self.queue.push(until_us, Event::Mend(worker, leader));
                if self.worker(worker).link.is_some_and(|link| link.server == leader) {
                    self.break_link(worker, STALL);
                }
            }
            Stroke::LinkBreaks => self.break_link(worker, NOTICE),
            Stroke::AllCrash => {
                let all: Vec<NodeId> = self.server_ids.iter().chain(&self.worker_ids).copied().collect();
                for id in all {
                    let up_us = self.chance.between(self.now_us, until_us);
                    self.crash_until(id, up_us);
                }
            }
        }
    }

    /// Some workers never come back, but not the one that has room for everything.
    fn crash_until(&mut self, id: NodeId, until_us: u64) {
        self.crash(id);
        let may_stay_away = self.workers.contains_key(&id) && id != self.worker_ids[0];
        if !(may_stay_away && self.chance.happens(100_000)) {
            self.queue.push(until_us.min(FAULTS_END_US), Event::Restart(id));
        }
    }

    fn crash(&mut self, id: NodeId) {
        self.observe(&Happening::Crash(id));
        self.frozen.remove(&id);
        if self.workers.contains_key(&id) {
            self.break_link(id, NOTICE);
            self.workers.get_mut(&id).expect("looked up before").forget(&mut self.chance);
            return;
        }
        self.log.on_crash(id);
        for worker in self.worker_ids.clone() {
            if self.worker(worker).link.is_some_and(|link| link.server == id) {
                self.break_link(worker, NOTICE);
            }
        }
        self.server(id).forget();
    }

    pub(super) fn restart(&mut self, id: NodeId) {
        self.observe(&Happening::Restart(id));
        match (self.workers.get(&id), self.servers.get(&id)) {
            (Some(host), _) if host.process.is_none() => self.start_worker(id),
            (_, Some(host)) if host.process.is_none() => self.start_server(id),
            _ => {}
        }
    }

    fn freeze(&mut self, id: NodeId, until_us: u64) {
        self.observe(&Happening::Pause(id));
        self.frozen.entry(id).or_default();
        self.queue.push(until_us, Event::Resume(id));
    }

    pub(super) fn resume(&mut self, id: NodeId) {
        let Some(mut backlog) = self.frozen.remove(&id) else { return };
        self.observe(&Happening::Resume(id));
        backlog.sort_by_key(Event::is_timer);
        backlog.into_iter().for_each(|event| self.queue.push(self.now_us, event));
    }
}
