//! What goes wrong in a run, for a while: drawn from the seed within budgets, and done to whoever it is about at that moment.

use primus_core::load::{Load, Score};
use primus_core::machine::Input;
use primus_server::control::{Command, Reason};
use primus_server::room::{Disks, Room};

use super::host::{FarmPlace, Member};
use super::servers::NOTICE;
use super::{Audience, Event, Run, farm};
use crate::chance::Chance;
use crate::faults::{self, Kind, Kinds};
use crate::node::NodeId;
use crate::simulate::Happening;

/// How long after its freezing a server is still heard of.
const SOON_US: u64 = 50_000;
/// By how much a clock jumps at most.
const JUMP_MS_MAX: u64 = 60_000;
/// How many workers and guards of those that crash never come back. The first of a farm always does.
const GONE_PPM: u32 = 150_000;

/// Something that goes wrong, for a while. Whoever leads is hit; if nobody does, anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    LeaderCrashes,
    ServerCrashes,
    /// A farm dies as a whole, its workers aside,
    FarmCrashes,
    /// or with them.
    AllCrash,
    /// The leaders of a lender and of its borrower crash.
    BothLeadersCrash,
    WorkerCrashes,
    /// Somebody on its way to another farm crashes.
    TravellerCrashes,
    /// Somebody who is lent crashes.
    LentCrashes,
    GuardCrashes,
    LeaderFreezes,
    ServerFreezes,
    WorkerFreezes,
    GuardFreezes,
    /// It reaches no other server, but its workers.
    LeaderIsolated,
    /// No other server hears it, but it hears them.
    LeaderUnheard,
    /// It freezes, and when it goes on, it reaches no other server; but it finds what they said before.
    LeaderWakesAlone,
    /// Two sides, one direction or some pairs.
    Partition,
    /// Two sides that only one server can reach.
    Bridge,
    /// Two farms do not reach each other.
    FarmsApart,
    /// A worker does not reach its own farm,
    WorkerCutOffFromHome,
    /// nor the one that it works for.
    WorkerCutOff,
    /// Somebody on its way to another farm does not reach its own.
    TravellerCutOff,
    /// A guard reaches no server.
    GuardCutOff,
    LinkBreaks,
    /// No sync ends.
    DiskStalls,
    /// There is no room for anything new.
    DiskFills,
    /// The time of day is wrong all of a sudden.
    ClockJumps,
    /// An operator lets somebody else lead,
    LeaderTransfers,
    /// the best one,
    LeaderResigns,
    /// or has an election held.
    Election,
    /// A load is measured.
    LoadChanges,
    /// A guard wants a group no more, for a while.
    GuardLeaves,
    /// What runs under a lease ends by itself.
    CommandEnds,
    /// There is room again.
    DiskHasRoom(NodeId),
}

impl Fault {
    const fn kind(self) -> Kind {
        match self {
            Self::LeaderCrashes | Self::ServerCrashes | Self::FarmCrashes | Self::AllCrash => Kind::Crashes,
            Self::BothLeadersCrash | Self::WorkerCrashes | Self::TravellerCrashes => Kind::Crashes,
            Self::LentCrashes | Self::GuardCrashes => Kind::Crashes,
            Self::LeaderFreezes | Self::ServerFreezes | Self::WorkerFreezes | Self::GuardFreezes => Kind::Pauses,
            Self::LinkBreaks => Kind::Loss,
            Self::DiskStalls | Self::DiskFills | Self::DiskHasRoom(_) => Kind::Disks,
            Self::ClockJumps => Kind::Clocks,
            Self::LeaderTransfers | Self::LeaderResigns | Self::Election | Self::LoadChanges => Kind::Commands,
            Self::GuardLeaves | Self::CommandEnds => Kind::Commands,
            _ => Kind::Partitions,
        }
    }
}

/// Draws what goes wrong until then, and for so long at most. A run without a kind has none of it, the others from one up
/// to the budget. The number before a fault says how often it is drawn, compared with others of its kind.
pub(crate) fn draw(
    faults: &[(usize, Fault)],
    kinds: &Kinds,
    budget: u64,
    (end_us, span_us_max): (u64, u64),
    chance: &mut Chance,
) -> Vec<(u64, Event)> {
    let mut events = Vec::new();
    for kind in Kind::ALL {
        let of_kind = faults.iter().filter(|(_, fault)| fault.kind() == kind);
        let faults: Vec<Fault> = of_kind.flat_map(|(share, fault)| std::iter::repeat_n(*fault, *share)).collect();
        if faults.is_empty() || !kinds.is_on(kind, chance) {
            continue;
        }
        for _ in 0..chance.between(1, budget) {
            let from_us = chance.between(0, end_us - 1);
            let span_us = span_us_max.min(end_us - from_us);
            let until_us = from_us + chance.between(1_000.min(span_us), span_us);
            events.push((from_us, Event::Fault(chance.pick(&faults), until_us)));
        }
    }
    events
}

/// What faults do.
impl<O: Audience> Run<'_, O> {
    pub(super) fn any_farm(&mut self) -> FarmPlace {
        usize::try_from(self.time.chance.below(self.farms.len() as u64)).expect("there are few farms")
    }

    pub(super) fn on_fault(&mut self, fault: Fault, until_us: u64) {
        let farm = self.any_farm();
        let server = self.time.chance.pick(&self.farms[farm].server_ids);
        let leader = self.leader_to_ask(farm).unwrap_or(server);
        match fault {
            Fault::LeaderCrashes => self.kill_leader(leader, until_us),
            Fault::ServerCrashes => self.crash_until(server, until_us),
            Fault::FarmCrashes => self.crash_all(self.farms[farm].server_ids.clone(), until_us),
            Fault::AllCrash => {
                let host = &self.farms[farm];
                self.crash_all([host.server_ids.clone(), host.worker_ids.clone()].concat(), until_us);
            }
            Fault::BothLeadersCrash => self.crash_both_leaders(until_us),
            Fault::LeaderFreezes => self.freeze(leader, until_us),
            Fault::ServerFreezes => self.freeze(server, until_us),
            Fault::LeaderWakesAlone => {
                self.freeze(leader, self.time.now_us.midpoint(until_us));
                let at_us = self.time.now_us + self.time.chance.below(SOON_US);
                self.isolate(leader, (at_us, until_us), true);
            }
            Fault::LeaderIsolated => self.isolate(leader, (self.time.now_us, until_us), true),
            Fault::LeaderUnheard => self.isolate(leader, (self.time.now_us, until_us), false),
            Fault::Partition => self.partition(farm, until_us),
            Fault::Bridge => self.bridge(farm, until_us),
            Fault::FarmsApart => self.part(farm, until_us),
            Fault::DiskStalls => self.server(server).stalled_until_us = until_us,
            Fault::DiskFills => self.fill_disk(server, until_us),
            Fault::DiskHasRoom(server) => self.tell_room(server, Disks::Free),
            Fault::ClockJumps => self.jump_until(server, until_us),
            Fault::LeaderTransfers => self.transfer(leader, until_us),
            Fault::LeaderResigns => {
                self.step_control(leader, Input::Command(Command::Transfer(None, Reason::Resigned)));
            }
            Fault::Election => self.step_control(server, Input::Command(Command::Elect(server.server()))),
            Fault::LoadChanges => {
                let score = Score::from_hundredths(self.time.chance.below(10_000) as u32);
                self.step_control(server, Input::Command(Command::Load(score.into())));
            }
            fault => self.on_fault_of_workers(fault, farm, until_us),
        }
    }

    fn on_fault_of_workers(&mut self, fault: Fault, farm: FarmPlace, until_us: u64) {
        let (worker_ids, guard_ids) = (self.farms[farm].worker_ids.clone(), self.farms[farm].guard_ids.clone());
        let worker = (!worker_ids.is_empty()).then(|| self.time.chance.pick(&worker_ids));
        let guard = (!guard_ids.is_empty()).then(|| self.time.chance.pick(&guard_ids));
        let current = worker.map(|worker| Member { worker, farm: self.workers[&worker].current() });
        let travellers: Vec<NodeId> = self.workers.keys().copied().filter(|id| self.is_travelling(*id)).collect();
        let away = self.workers.iter().filter(|(_, host)| host.away.is_some()).map(|(id, _)| *id);
        let away: Vec<NodeId> = away.collect();
        let mut one_of = |ids: &[NodeId]| (!ids.is_empty()).then(|| self.time.chance.pick(ids));
        let (traveller, lent) = (one_of(&travellers), one_of(&away));
        match (fault, worker, guard) {
            (Fault::WorkerCrashes, Some(worker), _) => self.crash_until(worker, until_us),
            (Fault::WorkerFreezes, Some(worker), _) => self.freeze(worker, until_us),
            (Fault::WorkerCutOffFromHome, Some(worker), _) => self.cut_off(self.at_home(worker), until_us),
            (Fault::WorkerCutOff, ..) => current.into_iter().for_each(|member| self.cut_off(member, until_us)),
            (Fault::LinkBreaks, ..) => current.into_iter().for_each(|it| self.break_links_of(it, NOTICE)),
            (Fault::TravellerCrashes, ..) => traveller.into_iter().for_each(|id| self.crash_until(id, until_us)),
            (Fault::LentCrashes, ..) => lent.into_iter().for_each(|id| self.crash_until(id, until_us)),
            (Fault::TravellerCutOff, ..) => {
                traveller.into_iter().for_each(|id| self.cut_off(self.at_home(id), until_us));
            }
            (Fault::GuardCrashes, _, Some(guard)) => self.crash_until(guard, until_us),
            (Fault::GuardFreezes, _, Some(guard)) => self.freeze(guard, until_us),
            (Fault::GuardCutOff, _, Some(guard)) => {
                let servers = self.farms[farm].server_ids.clone();
                servers.into_iter().for_each(|server| self.cut_both(guard, server, (self.time.now_us, until_us)));
            }
            (Fault::GuardLeaves, _, Some(guard)) => self.leave(guard, until_us),
            (Fault::CommandEnds, _, Some(guard)) => self.end_something(guard),
            _ => {}
        }
    }

    fn at_home(&self, worker: NodeId) -> Member {
        Member { worker, farm: self.workers[&worker].home }
    }

    fn kill_leader(&mut self, leader: NodeId, until_us: u64) {
        if self.plan.is_failover
            && let Some(term) = self.process(leader).and_then(|process| process.leading)
        {
            self.tally.on_kill(self.plan.server.election.algorithm, term, self.time.now_us);
            self.checks.on_kill(self.servers[&leader].farm, term);
        }
        self.crash_until(leader, until_us);
    }

    fn crash_both_leaders(&mut self, until_us: u64) {
        let away = self.workers.values().filter_map(|host| Some((host.home, host.away?)));
        let away: Vec<(FarmPlace, FarmPlace)> = away.collect();
        if away.is_empty() {
            return;
        }
        let (lender, borrower) = self.time.chance.pick(&away);
        for farm in [lender, borrower] {
            self.leader_to_ask(farm).into_iter().for_each(|leader| self.crash_until(leader, until_us));
        }
    }

    fn crash_all(&mut self, hosts: Vec<NodeId>, until_us: u64) {
        for id in hosts {
            let up_us = self.time.chance.between(self.time.now_us, until_us);
            self.crash_until(id, up_us);
        }
    }

    pub(super) fn crash_until(&mut self, id: NodeId, until_us: u64) {
        self.on_happening(&Happening::Crash(id));
        let is_first = self
            .farms
            .iter()
            .any(|farm| farm.worker_ids.first() == Some(&id) || farm.guard_ids.first() == Some(&id));
        let may_be_gone = !is_first && !self.servers.contains_key(&id);
        if !(may_be_gone && self.time.chance.happens(GONE_PPM)) {
            self.time.at(until_us, Event::Happening(Happening::Restart(id)));
        }
    }

    fn freeze(&mut self, id: NodeId, until_us: u64) {
        self.on_happening(&Happening::Pause(id));
        self.time.at(until_us, Event::Happening(Happening::Resume(id)));
    }

    /// What the first says does not reach the second meanwhile.
    fn cut_one_way(&mut self, from: NodeId, to: NodeId, (at_us, until_us): (u64, u64)) {
        self.time.at(at_us, Event::Happening(Happening::Cut(from, to)));
        self.time.at(until_us.max(at_us), Event::Happening(Happening::Mend(from, to)));
    }

    fn cut_both(&mut self, one: NodeId, other: NodeId, span: (u64, u64)) {
        self.cut_one_way(one, other, span);
        self.cut_one_way(other, one, span);
    }

    fn isolate(&mut self, server: NodeId, span: (u64, u64), is_deaf: bool) {
        for peer in self.peers(server) {
            self.cut_one_way(server, peer, span);
            if is_deaf {
                self.cut_one_way(peer, server, span);
            }
        }
    }

    fn partition(&mut self, farm: FarmPlace, until_us: u64) {
        for (from, to) in faults::partition(&self.farms[farm].server_ids, &mut self.time.chance) {
            self.cut_one_way(from, to, (self.time.now_us, until_us));
        }
    }

    fn bridge(&mut self, farm: FarmPlace, until_us: u64) {
        let mut servers = self.farms[farm].server_ids.clone();
        self.time.chance.shuffle(&mut servers);
        let (left, right) = servers[1..].split_at((servers.len() - 1) / 2);
        for (one, other) in left.iter().flat_map(|one| right.iter().map(move |other| (*one, *other))) {
            self.cut_both(one, other, (self.time.now_us, until_us));
        }
    }

    fn part(&mut self, farm: FarmPlace, until_us: u64) {
        let other = self.any_farm();
        if other == farm {
            return;
        }
        self.checks.saw("partitions");
        for one in self.farms[farm].server_ids.clone() {
            for other in self.farms[other].server_ids.clone() {
                self.cut_both(one, other, (self.time.now_us, until_us));
            }
        }
    }

    fn cut_off(&mut self, member: Member, until_us: u64) {
        for server in self.farms[member.farm].server_ids.clone() {
            self.cut_both(member.worker, server, (self.time.now_us, until_us));
        }
    }

    fn fill_disk(&mut self, server: NodeId, until_us: u64) {
        self.tell_room(server, Disks::OwnFull);
        self.time.at(until_us, Event::Fault(Fault::DiskHasRoom(server), until_us));
    }

    fn tell_room(&mut self, server: NodeId, disks: Disks) {
        let load = Load { is_disk_full: disks != Disks::Free, ..Load::default() };
        self.step_control(server, Input::Command(Command::Load(load)));
        self.step_control(server, Input::Command(Command::Room(Room { disks, ..Room::default() })));
        self.ask_farm(server, Input::Command(farm::Command::Room(disks)));
    }

    fn jump_until(&mut self, server: NodeId, until_us: u64) {
        let by_ms = self.time.chance.between(0, 2 * JUMP_MS_MAX) as i64 - JUMP_MS_MAX as i64;
        self.jump(server, by_ms);
        self.time.at(until_us, Event::ClockJumpsBack(server, by_ms));
    }

    pub(super) fn jump(&mut self, server: NodeId, by_ms: i64) {
        self.server(server).clock.ahead_ms += by_ms;
    }
}

/// What happens to processes and ways.
impl<O: Audience> Run<'_, O> {
    pub(super) fn on_happening(&mut self, happening: &Happening) {
        if self.changes_nothing(happening) {
            return;
        }
        match happening {
            Happening::Cut(from, to) if !self.ways.cut(*from, *to) => return,
            Happening::Mend(from, to) if !self.ways.mend(*from, *to) => return,
            _ => self.observe(happening),
        }
        match happening {
            Happening::Crash(id) => self.crash(*id),
            Happening::Restart(id) => self.restart(*id),
            Happening::Pause(id) => _ = self.frozen.insert(*id, Vec::new()),
            Happening::Resume(id) => self.resume(*id),
            Happening::Cut(from, to) => self.break_between(*from, *to),
            Happening::Mend(from, to) => {
                if self.servers.contains_key(to)
                    && self.servers.get(from).is_some_and(|host| host.farm == self.servers[to].farm)
                {
                    self.dial_again(*to, *from);
                }
            }
            Happening::Command(..) => unreachable!("servers are commanded otherwise"),
        }
    }

    fn is_alive(&self, id: NodeId) -> bool {
        self.servers.get(&id).is_some_and(|host| host.process.is_some())
            || self.workers.get(&id).is_some_and(|host| host.process.is_some())
            || self.guards.get(&id).is_some_and(|host| host.process.is_some())
    }

    fn changes_nothing(&self, happening: &Happening) -> bool {
        match happening {
            Happening::Restart(id) => self.is_alive(*id),
            Happening::Crash(id) => !self.is_alive(*id),
            Happening::Pause(id) => !self.is_alive(*id) || self.frozen.contains_key(id),
            Happening::Resume(id) => !self.frozen.contains_key(id),
            _ => false,
        }
    }

    fn crash(&mut self, id: NodeId) {
        self.frozen.remove(&id);
        self.timers.retain(|(at, _), _| *at != id);
        if self.workers.contains_key(&id) {
            self.crash_worker(id);
        } else if self.guards.contains_key(&id) {
            self.crash_guard(id);
        } else {
            self.crash_server(id);
        }
    }

    fn restart(&mut self, id: NodeId) {
        if self.workers.contains_key(&id) {
            self.start_worker(id);
        } else if self.guards.contains_key(&id) {
            self.start_guard(id);
        } else {
            self.start_server(id);
        }
    }

    /// Messages first, then timers; what waited for a guard comes in any order.
    fn resume(&mut self, id: NodeId) {
        let mut backlog = self.frozen.remove(&id).unwrap_or_default();
        if let Some(session) = self.guards.get(&id).and_then(super::GuardHost::session) {
            self.checks.on_guard_resumes(session, self.time.now_us);
            self.time.chance.shuffle(&mut backlog);
        } else {
            backlog.sort_by_key(Event::is_timer);
        }
        backlog.into_iter().for_each(|event| self.happen(event));
    }
}
