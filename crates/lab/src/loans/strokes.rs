//! How what goes wrong is done to the processes and links of a run.

use primus_core::loan::allegiance::Place;

use super::Audience;
use super::faults::{FAULTS_END_US, Stroke};
use super::host::{FarmId, Member};
use super::links::{NOTICE, STALL};
use super::run::{Event, Run};
use crate::node::NodeId;
use crate::simulate::Happening;

impl<O: Audience> Run<'_, O> {
    pub(super) fn on_stroke(&mut self, stroke: Stroke, until_us: u64) {
        // Whoever leads is hit; if nobody does, anybody.
        let farm = self.any_farm();
        let server = self.chance.pick(&self.farms[farm].server_ids);
        let leader = self.farms[farm].log.leader().unwrap_or(server);
        let worker = self.chance.pick(&self.farms[farm].worker_ids);
        let home = Member { worker, farm };
        let current = Member { worker, farm: self.workers[&worker].current() };
        let crash = |run: &mut Self, worker| run.crash_until(worker, until_us);
        let cut_off = |run: &mut Self, worker| {
            let farm = run.workers[&worker].home;
            run.cut_off(Member { worker, farm }, until_us);
        };
        match stroke {
            Stroke::LeaderCrashes => self.crash_until(leader, until_us),
            Stroke::LeaderFreezes => self.freeze(leader, until_us),
            Stroke::LeaderIsolated => {
                self.isolated.insert(leader);
                self.queue.push(until_us, Event::Rejoin(leader));
            }
            Stroke::LeaderDeposed => self.depose(farm, leader),
            Stroke::ServerCrashes => self.crash_until(server, until_us),
            Stroke::WorkerCrashes => self.crash_until(worker, until_us),
            Stroke::WorkerFreezes => self.freeze(worker, until_us),
            Stroke::TravellerCrashes => self.hit_one_who(Self::is_travelling, crash),
            Stroke::TravellerCutOff => self.hit_one_who(Self::is_travelling, cut_off),
            Stroke::LentCrashes => self.hit_one_who(Self::is_away, crash),
            Stroke::WorkerCutOffFromHome => self.cut_off(home, until_us),
            Stroke::WorkerCutOff => self.cut_off(current, until_us),
            Stroke::LinkBreaks => self.break_link(current, NOTICE),
            Stroke::BothLeadersCrash => self.crash_both_leaders(until_us),
            Stroke::FarmsApart => self.part(farm, until_us),
            Stroke::FarmCrashes => {
                for server in self.farms[farm].server_ids.clone() {
                    let up_us = self.chance.between(self.now_us, until_us);
                    self.crash_until(server, up_us);
                }
            }
        }
    }

    fn any_farm(&mut self) -> FarmId {
        self.chance.below(self.farms.len() as u64) as FarmId
    }

    fn depose(&mut self, farm: FarmId, leader: NodeId) {
        let able = self.able(farm);
        let others: Vec<NodeId> = able.iter().copied().filter(|other| *other != leader).collect();
        if 2 * able.len() > self.farms[farm].server_ids.len() && !others.is_empty() {
            let next = self.chance.pick(&others);
            self.elect(next);
        }
    }

    fn cut_off(&mut self, member: Member, until_us: u64) {
        self.cut.insert(member);
        self.queue.push(until_us, Event::Mend(member));
        self.break_link(member, STALL);
    }

    fn part(&mut self, farm: FarmId, until_us: u64) {
        let other = self.any_farm();
        if other == farm {
            return;
        }
        let (one, other) = (farm.min(other), farm.max(other));
        self.apart.insert((one, other));
        self.checks.seen.partitions += 1;
        self.queue.push(until_us, Event::Reunite(one, other));
        for from in self.farms[one].server_ids.clone() {
            for to in self.farms[other].server_ids.clone() {
                self.break_lane(from, to);
                self.break_lane(to, from);
            }
        }
    }

    /// Has left, or is about to, and has not arrived.
    fn is_travelling(&self, worker: NodeId) -> bool {
        let host = &self.workers[&worker];
        let is_going = host.placement().is_some_and(|it| matches!(it.place(), Place::Going { .. }));
        is_going || host.away.is_some_and(|farm| !self.checks.is_borrowed(farm, host, self.farms[host.home].name))
    }

    fn is_away(&self, worker: NodeId) -> bool {
        self.workers[&worker].away.is_some()
    }

    fn hit_one_who(&mut self, is_meant: fn(&Self, NodeId) -> bool, hit: impl FnOnce(&mut Self, NodeId)) {
        let meant: Vec<NodeId> = self.workers.keys().copied().filter(|worker| is_meant(self, *worker)).collect();
        if !meant.is_empty() {
            let worker = self.chance.pick(&meant);
            hit(self, worker);
        }
    }

    fn crash_both_leaders(&mut self, until_us: u64) {
        let away: Vec<(FarmId, FarmId)> =
            self.workers.values().filter_map(|host| Some((host.home, host.away?))).collect();
        if away.is_empty() {
            return;
        }
        let (lender, borrower) = self.chance.pick(&away);
        for farm in [lender, borrower] {
            if let Some(leader) = self.farms[farm].log.leader() {
                self.crash_until(leader, until_us);
            }
        }
    }

    /// Some workers never come back, but not the first of a farm.
    fn crash_until(&mut self, id: NodeId, until_us: u64) {
        self.crash(id);
        let is_first = self.farms.iter().any(|farm| farm.worker_ids[0] == id);
        let may_stay_away = self.workers.contains_key(&id) && !is_first;
        if !(may_stay_away && self.chance.happens(200_000)) {
            self.queue.push(until_us.min(FAULTS_END_US), Event::Restart(id));
        }
    }

    fn crash(&mut self, id: NodeId) {
        self.observe(&Happening::Crash(id));
        self.frozen.remove(&id);
        if self.workers.contains_key(&id) {
            return self.crash_worker(id);
        }
        let farm = self.servers[&id].farm;
        self.farms[farm].log.on_crash(id);
        for worker in self.workers.keys().copied().collect::<Vec<_>>() {
            let member = Member { worker, farm };
            let duty = self.workers[&worker].duties.get(&farm);
            if duty.and_then(|duty| duty.link).is_some_and(|link| link.server == id) {
                self.break_link(member, NOTICE);
            }
        }
        for other in self.servers.keys().copied().collect::<Vec<_>>() {
            self.break_lane(id, other);
            self.break_lane(other, id);
        }
        self.server(id).forget();
    }

    fn crash_worker(&mut self, worker: NodeId) {
        if self.workers[&worker].worker.is_some() {
            self.checks.seen.died_in_transit += u64::from(self.is_travelling(worker));
            self.checks.seen.died_away += u64::from(self.is_away(worker));
        }
        for farm in self.workers[&worker].duties.keys().copied().collect::<Vec<_>>() {
            self.break_link(Member { worker, farm }, NOTICE);
        }
        self.checks.on_worker_crash(worker);
        self.workers.get_mut(&worker).expect("looked up before").forget(&mut self.chance);
    }

    pub(super) fn restart(&mut self, id: NodeId) {
        self.observe(&Happening::Restart(id));
        match (self.workers.get(&id), self.servers.get(&id)) {
            (Some(host), _) if host.worker.is_none() => self.start_worker(id),
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
