//! How what goes wrong is done to the processes of a run of leases.

use primus_core::lease::{Guard, Lessor, guard, lessor};
use primus_core::machine::{Delay, Input};

use super::faults::Stroke;
use super::host::GuardHost;
use super::run::{Event, Run};
use crate::node::NodeId;
use crate::observer::Observer;
use crate::simulate::Happening;

/// How long after its freezing a server is still heard of.
const SOON: Delay = Delay { min_us: 1_000, max_us: 50_000 };

impl<O: Observer<Lessor> + Observer<Guard>> Run<'_, O> {
    pub(super) fn on_stroke(&mut self, stroke: Stroke, until_us: u64) {
        // Whoever leads is hit; if nobody does, anybody.
        let server = self.chance.pick(&self.server_ids);
        let leader = self.log.leader().unwrap_or(server);
        let guard = self.chance.pick(&self.guard_ids);
        match stroke {
            Stroke::LeaderCrashes => self.crash_until(leader, until_us),
            Stroke::LeaderFreezes => self.freeze(leader, until_us),
            Stroke::LeaderIsolated => self.isolate(leader, until_us),
            Stroke::LeaderWakesAlone => {
                self.freeze(leader, self.now_us.midpoint(until_us));
                self.after(SOON, Event::Isolate(leader, until_us));
            }
            Stroke::LeaderDeposed => self.depose(leader),
            Stroke::LeaderTransfers => self.transfer(leader, until_us),
            Stroke::LogStalls => self.stalled_until_us = until_us,
            Stroke::ServerCrashes => self.crash_until(server, until_us),
            Stroke::ServerFreezes => self.freeze(server, until_us),
            Stroke::GuardCrashes => self.crash_until(guard, until_us),
            Stroke::GuardFreezes => self.freeze(guard, until_us),
            Stroke::GuardCutOff => {
                self.cut_off.insert(guard);
                self.queue.push(until_us, Event::Rejoin(guard));
            }
            Stroke::GuardLeaves => self.leave(guard, until_us),
            Stroke::CommandEnds => self.end_something(guard),
        }
    }

    pub(super) fn isolate(&mut self, server: NodeId, until_us: u64) {
        self.isolated.insert(server);
        self.queue.push(until_us, Event::Rejoin(server));
    }

    fn depose(&mut self, leader: NodeId) {
        let others: Vec<NodeId> = self.able().into_iter().filter(|other| *other != leader).collect();
        if self.has_majority() && !others.is_empty() {
            let next = self.chance.pick(&others);
            self.campaign(next);
        }
    }

    fn transfer(&mut self, leader: NodeId, until_us: u64) {
        let others: Vec<NodeId> = self.server_ids.iter().copied().filter(|other| *other != leader).collect();
        let heir = self.chance.pick(&others);
        if self.server(leader).leads.is_some() && !self.frozen.contains_key(&leader) {
            self.server(leader).heir = Some(heir);
            self.queue.push(until_us, Event::Impatience(leader));
            self.step_lessor(leader, Input::Command(lessor::Command::Vacate(true)));
        }
    }

    /// What is held beside this server has ended: now the other one may lead.
    pub(super) fn on_vacant(&mut self, leader: NodeId) {
        let Some(heir) = self.server(leader).heir.take() else { return };
        self.checks.seen.vacancies += 1;
        if self.is_able(heir) && self.has_majority() && self.servers[&leader].leads == Some(self.log.term) {
            self.campaign(heir);
        } else {
            self.step_lessor(leader, Input::Command(lessor::Command::Vacate(false)));
        }
    }

    /// It took too long: the other one leads all the same, or the transfer is given up.
    pub(super) fn on_impatience(&mut self, leader: NodeId) {
        let Some(heir) = self.server(leader).heir.take() else { return };
        if self.is_able(heir) && self.has_majority() && self.chance.happens(500_000) {
            self.campaign(heir);
        }
        self.step_lessor(leader, Input::Command(lessor::Command::Vacate(false)));
    }

    fn leave(&mut self, id: NodeId, until_us: u64) {
        let host = self.guard(id);
        let wanted: Vec<String> = host.wants.iter().map(|candidacy| candidacy.group.clone()).collect();
        let group = self.chance.pick(&wanted.iter().collect::<Vec<_>>()).clone();
        if self.guard(id).guard.is_none() || self.frozen.contains_key(&id) {
            return;
        }
        self.guard(id).has_left.insert(group.clone());
        self.queue.push(until_us, Event::WantAgain { guard: id, group: group.clone() });
        self.step_guard(id, Input::Command(guard::Command::Leave(group)));
    }

    pub(super) fn on_want_again(&mut self, id: NodeId, group: &str) {
        let host = self.guard(id);
        if host.guard.is_some() && host.has_left.remove(group) {
            let candidacy = host.wants.iter().find(|candidacy| candidacy.group == group).cloned();
            self.step_guard(id, Input::Command(guard::Command::Want(candidacy.into_iter().collect())));
        }
    }

    fn end_something(&mut self, id: NodeId) {
        if let Some((group, token)) = self.guard(id).runs.first_key_value() {
            let event = Event::Ends { guard: id, group: group.clone(), token: *token };
            self.queue.push(self.now_us, event);
        }
    }

    /// Some guards never come back, but not the first.
    fn crash_until(&mut self, id: NodeId, until_us: u64) {
        self.crash(id);
        let may_stay_away = self.guards.contains_key(&id) && id != self.guard_ids[0];
        if !(may_stay_away && self.chance.happens(100_000)) {
            self.queue.push(until_us, Event::Restart(id));
        }
    }

    fn crash(&mut self, id: NodeId) {
        self.observe(&Happening::Crash(id));
        self.frozen.remove(&id);
        if let Some(host) = self.guards.get_mut(&id) {
            if let Some(session) = host.session() {
                self.checks.on_crash(session, self.now_us);
            }
            host.forget();
            return;
        }
        self.log.on_crash(id);
        self.server(id).forget();
    }

    pub(super) fn restart(&mut self, id: NodeId) {
        self.observe(&Happening::Restart(id));
        match (self.guards.get(&id), self.servers.get(&id)) {
            (Some(host), _) if host.guard.is_none() => self.start_guard(id),
            (_, Some(host)) if host.lessor.is_none() => self.start_server(id),
            _ => {}
        }
    }

    fn freeze(&mut self, id: NodeId, until_us: u64) {
        self.observe(&Happening::Pause(id));
        self.frozen.entry(id).or_default();
        self.queue.push(until_us, Event::Resume(id));
    }

    /// Whatever waited comes in any order.
    pub(super) fn resume(&mut self, id: NodeId) {
        let Some(mut backlog) = self.frozen.remove(&id) else { return };
        self.observe(&Happening::Resume(id));
        if let Some(session) = self.guards.get(&id).and_then(GuardHost::session) {
            self.checks.on_resume(session, self.now_us);
        }
        self.chance.shuffle(&mut backlog);
        backlog.into_iter().for_each(|event| self.on_event(event));
    }
}
