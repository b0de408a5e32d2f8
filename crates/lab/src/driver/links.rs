//! What is said in a run, and on which ways: between workers and servers, and between the servers of two farms. On these nothing
//! overtakes anything, and what is on its way when one is lost is lost.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::farm::Message as Work;
use primus_core::ids::FarmId;
use primus_core::loan::{self, WorkerMessage};
use primus_core::machine::{Delay, Input};
use primus_core::{WorkerId, farm};
use primus_server::farm::{Command, Message, Peer};
use primus_server::worker::{self, Servers};

use super::host::{FarmPlace, Member};
use super::servers::NOTICE;
use super::{Audience, Event, Run, What};
use crate::checks::Witness;
use crate::node::NodeId;
use crate::tasks::report;

const TRAVEL: Delay = Delay { min_us: 50, max_us: 2_000 };
const LATE: Delay = Delay { min_us: 2_000, max_us: 700_000 };
/// How long it takes until a lost way between two farms is there again.
const REDIAL: Delay = Delay { min_us: 10_000, max_us: 500_000 };
/// How soon a worker calls a server, and again if nobody answers.
const CALL: Delay = Delay { min_us: 200, max_us: 2_000 };
const CALL_AGAIN: Delay = Delay { min_us: 1_000, max_us: 250_000 };
/// How soon it is noticed that nothing comes through any more.
const STALL: Delay = Delay { min_us: 1_000, max_us: 2_000_000 };

/// With which exit code everything ends that an impostor claims.
const FORGED: u8 = 66;

/// All ways.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// From whom to whom nothing arrives, and how often over.
    cut: BTreeMap<(NodeId, NodeId), u32>,
    /// Links of workers.
    links: BTreeMap<WorkerId, Link>,
    /// From a server to one of another farm.
    lanes: BTreeMap<(NodeId, NodeId), Lane>,
}

/// A worker's link to a server.
#[derive(Debug, Clone, Copy)]
struct Link {
    member: Member,
    server: NodeId,
    /// Nothing passes any more, though nobody may have noticed yet.
    is_broken: bool,
    /// When the last message in each direction arrives.
    to_worker_us: u64,
    to_server_us: u64,
}

/// The way from a server to one of another farm.
#[derive(Debug, Clone, Copy, Default)]
struct Lane {
    /// What was said under another number is lost.
    number: u64,
    /// When the last message arrives.
    last_us: u64,
    /// Until when nothing passes.
    down_until_us: u64,
}

impl Ways {
    pub(super) fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        !self.cut.is_empty() && self.cut.contains_key(&(from, to))
    }

    /// Is this the first cut there?
    pub(super) fn cut(&mut self, from: NodeId, to: NodeId) -> bool {
        let count = self.cut.entry((from, to)).or_default();
        *count += 1;
        *count == 1
    }

    /// Was this the last one?
    pub(super) fn mend(&mut self, from: NodeId, to: NodeId) -> bool {
        let Some(count) = self.cut.get_mut(&(from, to)) else { return false };
        *count -= 1;
        let is_open = *count == 0;
        if is_open {
            self.cut.remove(&(from, to));
        }
        is_open
    }
}

/// Workers and servers.
impl<O: Audience> Run<'_, O> {
    pub(super) fn call_soon(&mut self, member: Member, duty: u64, server: NodeId) {
        self.time.after(CALL, Event::To(member.worker, What::Call(member.farm, duty, server)));
    }

    /// A worker keeps a link to every server of a farm that it has to do with.
    pub(super) fn on_call(&mut self, member: Member, number: u64, server: NodeId) {
        let Some(duty) = self.duty(member).filter(|duty| duty.number == number) else { return };
        if duty.links.contains_key(&server) {
            return;
        }
        let is_there = self.servers[&server].process.is_some() && !self.frozen.contains_key(&server);
        let is_cut = self.ways.is_cut(member.worker, server) || self.ways.is_cut(server, member.worker);
        if is_there && !is_cut {
            self.connect(member, server);
        } else {
            self.time.after(CALL_AGAIN, Event::To(member.worker, What::Call(member.farm, number, server)));
        }
    }

    /// A new link. Its server has heard of the end of the one before it at the latest now.
    fn connect(&mut self, member: Member, server: NodeId) {
        let links = self.process(server).map(|process| process.links.clone()).unwrap_or_default();
        if let Some((before, _)) = links.iter().find(|(_, worker)| **worker == member.worker) {
            self.drop_at_server(server, *before);
        }
        let link = WorkerId(self.number());
        let host = &self.workers[&member.worker];
        let name = host.name_in(member.farm, &self.farms[host.home].name);
        let (to_worker_us, to_server_us) = (self.time.now_us, self.time.now_us);
        self.ways.links.insert(link, Link { member, server, is_broken: false, to_worker_us, to_server_us });
        self.process(server).into_iter().for_each(|process| _ = process.links.insert(link, member.worker));
        self.ask_farm(server, Input::Command(Command::Link(link, name)));
        let Some(duty) = self.duty(member) else { return };
        duty.links.insert(server, link);
        let peer = worker::Peer { farm: duty.id, server: server.server() };
        self.step_worker(member.worker, Input::LinkUp(peer));
    }

    pub(super) fn say_to_worker(&mut self, server: NodeId, link: WorkerId, message: Message) {
        if let Message::Work(Work::Run(_, assignments)) = &message {
            assignments.iter().for_each(|assignment| self.on_handout(server, assignment.held));
        }
        let travel_us = self.time.chance.between(TRAVEL.min_us, TRAVEL.max_us);
        let now_us = self.time.now_us;
        let Some(found) = self.ways.links.get_mut(&link) else { return };
        found.to_worker_us = found.to_worker_us.max(now_us + travel_us);
        let (at_us, worker) = (found.to_worker_us, found.member.worker);
        self.time.at(at_us, Event::To(worker, What::ToWorker(link, Box::new(message))));
    }

    pub(super) fn say_to_server(&mut self, id: NodeId, to: worker::Peer, message: worker::Message) {
        let travel_us = self.time.chance.between(TRAVEL.min_us, TRAVEL.max_us);
        let (now_us, server) = (self.time.now_us, NodeId::from(to.server));
        let Some(member) = self.member(id, to.farm) else { return };
        let Some(duty) = self.duty(member) else { return };
        let (is_over, link) = (duty.is_over, duty.links.get(&server).copied());
        if is_over && tells_results(&message) {
            self.checks.saw("told_after_going_home");
        }
        let Some((link, found)) = link.and_then(|link| Some((link, self.ways.links.get_mut(&link)?))) else {
            return;
        };
        found.to_server_us = found.to_server_us.max(now_us + travel_us);
        let at_us = found.to_server_us;
        self.time.at(at_us, Event::To(server, What::ToServer(link, Box::new(message))));
    }

    fn is_open(&self, link: WorkerId) -> bool {
        self.ways.links.get(&link).is_some_and(|link| !link.is_broken)
    }

    pub(super) fn on_word_to_worker(&mut self, worker: NodeId, link: WorkerId, message: Message) {
        if !self.is_open(link) {
            return;
        }
        let Link { member, server, .. } = self.ways.links[&link];
        let message = match message {
            Message::Work(message) => worker::Message::Work(message),
            Message::Placement(word) => {
                let servers = self.servers_named_by(&word);
                worker::Message::Call(word, servers)
            }
            Message::Leads(term) => worker::Message::Leads(term),
            Message::Follows => worker::Message::Follows,
            Message::Loan(_) => return,
        };
        let Some(duty) = self.duty(member).filter(|duty| duty.links.get(&server) == Some(&link)) else { return };
        let from = worker::Peer { farm: duty.id, server: server.server() };
        self.step_worker(worker, Input::Message { from, message });
    }

    /// A worker that is sent to another farm is told where that is.
    fn servers_named_by(&self, word: &WorkerMessage) -> Servers {
        let WorkerMessage::Redirect { farm, .. } = word else { return Servers::new() };
        self.farm_named(farm).map(|farm| self.address(farm).servers).unwrap_or_default()
    }

    pub(super) fn on_word_to_server(&mut self, server: NodeId, link: WorkerId, message: worker::Message) {
        let is_known = self.process(server).is_some_and(|process| process.links.contains_key(&link));
        if !is_known || !self.is_open(link) {
            return;
        }
        let message = match message {
            worker::Message::Work(farm::Message::Hello(hello)) => {
                Message::Work(farm::Message::Hello(self.forge(server, link, hello)))
            }
            worker::Message::Work(message) => Message::Work(message),
            worker::Message::Placement(word) => Message::Placement(word),
            _ => return,
        };
        self.ask_farm(server, Input::Message { from: Peer::Worker(link), message });
    }

    /// An impostor claims what this leader has given to others, and that all of it failed. What older leaders have given it leaves
    /// alone: nobody could tell.
    fn forge(&mut self, server: NodeId, link: WorkerId, mut hello: farm::Hello) -> farm::Hello {
        let Link { member, .. } = self.ways.links[&link];
        let is_impostor = self.plan.has_impostor && self.workers.keys().next_back() == Some(&member.worker);
        let term = self.servers[&server].process.as_ref().map(|process| process.leader.1);
        if let Some(term) = term.filter(|_| is_impostor) {
            let claims = self.checks.claims(member.farm, &hello.name, term);
            self.checks.saw_times("forgeries", u64::from(!claims.is_empty()));
            hello.ended.extend(claims.into_iter().map(|held| report(held, hello.name.clone(), FORGED, 1)));
        }
        hello
    }

    /// Nothing passes any more; both ends will notice.
    pub(super) fn break_link(&mut self, link: WorkerId, notice: Delay) {
        let Some(found) = self.ways.links.get_mut(&link).filter(|found| !found.is_broken) else { return };
        found.is_broken = true;
        let (server, worker) = (found.server, found.member.worker);
        self.time.after(notice, Event::To(server, What::LinkEnds(link)));
        self.time.after(notice, Event::To(worker, What::LinkEnds(link)));
    }

    pub(super) fn break_links_of(&mut self, member: Member, notice: Delay) {
        let links: Vec<WorkerId> =
            self.duty(member).map(|duty| duty.links.values().copied().collect()).unwrap_or_default();
        links.into_iter().for_each(|link| self.break_link(link, notice));
    }

    pub(super) fn break_links_of_server(&mut self, server: NodeId) {
        self.break_links_where(NOTICE, |link| link.server == server);
        for other in self.servers.keys().copied().collect::<BTreeSet<_>>() {
            self.break_lane(server, other);
            self.break_lane(other, server);
        }
    }

    fn break_links_where(&mut self, notice: Delay, is_it: impl Fn(&Link) -> bool) {
        let links = self.ways.links.iter().filter(|(_, link)| is_it(link));
        let links: Vec<WorkerId> = links.map(|(number, _)| *number).collect();
        links.into_iter().for_each(|link| self.break_link(link, notice));
    }

    /// What lies between these two lets nothing through any more.
    pub(super) fn break_between(&mut self, from: NodeId, to: NodeId) {
        if self.workers.contains_key(&from) || self.workers.contains_key(&to) {
            let pair = [from, to];
            return self.break_links_where(STALL, |link| {
                pair.contains(&link.server) && pair.contains(&link.member.worker)
            });
        }
        if self.servers.contains_key(&from) && self.servers.contains_key(&to) {
            self.break_lane(from, to);
        }
    }

    pub(super) fn on_link_ends(&mut self, at: NodeId, link: WorkerId) {
        if self.servers.contains_key(&at) {
            return self.drop_at_server(at, link);
        }
        let Some(Link { member, server, .. }) = self.ways.links.remove(&link) else { return };
        let Some(duty) = self.duty(member).filter(|duty| duty.links.get(&server) == Some(&link)) else { return };
        duty.links.remove(&server);
        let (farm, number) = (duty.id, duty.number);
        self.step_worker(at, Input::LinkDown(worker::Peer { farm, server: server.server() }));
        self.call_soon(member, number, server);
    }

    fn drop_at_server(&mut self, server: NodeId, link: WorkerId) {
        let Some(process) = self.process(server) else { return };
        if process.links.remove(&link).is_some() {
            self.ask_farm(server, Input::LinkDown(Peer::Worker(link)));
        }
    }

    /// A leader hands something out: who of those whom it knows has something?
    fn on_handout(&mut self, server: NodeId, held: primus_core::ledger::Held) {
        let Some(process) = self.servers[&server].process.as_ref() else { return };
        let witnesses: Vec<Witness> =
            process.links.iter().filter_map(|(link, worker)| self.witness(server, *link, *worker)).collect();
        let farm = self.servers[&server].farm;
        self.checks.on_handout((farm, server), held, process.farm.machine.ledger(), &witnesses);
    }

    fn witness(&self, server: NodeId, link: WorkerId, worker: NodeId) -> Option<Witness> {
        let host =
            self.workers.get(&worker).filter(|_| !self.frozen.contains_key(&worker) && self.is_open(link))?;
        let (farm, process) = (self.servers[&server].farm, self.servers[&server].process.as_ref()?);
        let duty = host.duties.get(&farm).filter(|duty| duty.links.get(&server) == Some(&link))?;
        let work = host.process.as_ref()?.machine.work(duty.id)?;
        let name = host.name_in(farm, &self.farms[host.home].name);
        let is_welcome = work
            .serves()
            .is_some_and(|(leader, term)| leader == server.server() && process.leader == (Some(leader), term));
        let is_present = process.farm.machine.foreman().connected().any(|(present, ..)| present == name);
        (is_welcome && is_present).then(|| Witness { worker, has: work.has().collect() })
    }
}

/// Servers of different farms.
impl<O: Audience> Run<'_, O> {
    /// The other farms, as the configuration of this one names them.
    pub(super) fn neighbours(&self, farm: FarmPlace) -> Vec<FarmPlace> {
        let count = if self.plan.are_neighbours { self.farms.len() } else { 0 };
        (1..count).map(|step| (farm + step) % count).collect()
    }

    fn number_among(&self, farm: FarmPlace, neighbour: FarmPlace) -> Option<FarmId> {
        let place = self.neighbours(farm).into_iter().position(|other| other == neighbour)?;
        Some(FarmId(place as u64 + 1))
    }

    /// What a leader says to a neighbour goes to all servers there, and only the one that leads listens.
    pub(super) fn say_to_neighbour(&mut self, from: NodeId, number: FarmId, message: &loan::Message) {
        let place = usize::try_from(number.0).ok().and_then(|number| number.checked_sub(1));
        let neighbours = self.neighbours(self.servers[&from].farm);
        let Some(farm) = place.and_then(|place| neighbours.get(place).copied()) else { return };
        for to in self.farms[farm].server_ids.clone() {
            self.say_between(from, to, message);
        }
    }

    fn say_between(&mut self, from: NodeId, to: NodeId, message: &loan::Message) {
        let (network, is_faulty) = (self.plan.network, self.time.now_us < self.plan.network.faulty_until_us);
        let mut happens = |per_million| is_faulty && self.time.chance.happens(per_million);
        let is_lost = happens(network.loss_ppm);
        let (is_doubled, is_late) = (happens(network.duplication_ppm), happens(network.lateness_ppm));
        if is_lost {
            self.break_lane(from, to);
        }
        let travel = if is_late { LATE } else { TRAVEL };
        let at_us = self.time.now_us + self.time.chance.between(travel.min_us, travel.max_us);
        let lane = self.ways.lanes.entry((from, to)).or_default();
        if lane.down_until_us > self.time.now_us || self.ways.cut.contains_key(&(from, to)) {
            return;
        }
        lane.last_us = lane.last_us.max(at_us);
        let (at_us, lane) = (lane.last_us, lane.number);
        let event = Event::To(to, What::Between(from, lane, Box::new(message.clone())));
        if is_doubled {
            self.time.after(LATE, event.clone());
        }
        self.time.at(at_us, event);
    }

    /// What is on its way there is lost.
    fn break_lane(&mut self, from: NodeId, to: NodeId) {
        if self.servers[&from].farm == self.servers[&to].farm {
            return;
        }
        let down_us = if self.is_calm() { 0 } else { self.time.chance.between(REDIAL.min_us, REDIAL.max_us) };
        let now_us = self.time.now_us;
        let lane = self.ways.lanes.entry((from, to)).or_default();
        (lane.number, lane.last_us, lane.down_until_us) = (lane.number + 1, now_us, now_us + down_us);
    }

    pub(super) fn on_between(&mut self, from: NodeId, to: NodeId, lane: u64, message: loan::Message) {
        let is_there = self.ways.lanes.get(&(from, to)).is_some_and(|found| found.number == lane);
        let (lender, borrower) = (self.servers[&from].farm, self.servers[&to].farm);
        if let Some(number) = self.number_among(borrower, lender).filter(|_| is_there) {
            let from = Peer::Neighbour(number);
            self.ask_farm(to, Input::Message { from, message: Message::Loan(message) });
        }
    }
}

fn tells_results(message: &worker::Message) -> bool {
    match message {
        worker::Message::Work(farm::Message::Hello(hello)) => !hello.ended.is_empty(),
        worker::Message::Work(farm::Message::Ended(reports)) => !reports.is_empty(),
        _ => false,
    }
}
