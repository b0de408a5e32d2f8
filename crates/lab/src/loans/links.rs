//! What is said in a run, and on which ways: between a worker and a server, and between the leaders of two farms.

use primus_core::Term;
use primus_core::farm::Message;
use primus_core::ids;
use primus_core::loan;
use primus_core::loan::{Word, office};
use primus_core::machine::{Delay, Input};
use primus_server::worker::{self, Peer, Servers};

use super::Audience;
use super::faults::Network;
use super::host::{FarmId, Link, Member, Words};
use super::run::{Event, Run};
use crate::node::NodeId;

const TRAVEL: Delay = Delay { min_us: 50, max_us: 2_000 };
const LATE: Delay = Delay { min_us: 2_000, max_us: 700_000 };
/// How long it takes until a lost way between two farms is there again.
const REDIAL: Delay = Delay { min_us: 10_000, max_us: 500_000 };
/// How often a worker looks whether it serves the right leader.
const LOOK: Delay = Delay { min_us: 5_000, max_us: 60_000 };
/// How soon the death of a process is noticed at the other end of a link.
pub(super) const NOTICE: Delay = Delay { min_us: 50, max_us: 3_000 };
/// And how soon that nothing comes through any more.
pub(super) const STALL: Delay = Delay { min_us: 1_000, max_us: 2_000_000 };
/// How often a worker that looks for the leader finds one that is deposed and does not know it.
const MISLED_PPM: u32 = 150_000;

impl<O: Audience> Run<'_, O> {
    fn link(&mut self, member: Member) -> Option<&mut Link> {
        self.worker(member.worker).duties.get_mut(&member.farm)?.link.as_mut()
    }

    pub(super) fn send_to_worker(&mut self, server: NodeId, worker: NodeId, words: Words) {
        if let Words::Work(Message::Run(_, assignments)) = &words {
            assignments.iter().for_each(|assignment| self.on_handout(server, assignment.held));
        }
        let member = Member { worker, farm: self.servers[&server].farm };
        let travel_us = self.chance.between(TRAVEL.min_us, TRAVEL.max_us);
        let now_us = self.now_us;
        // What a server says on a link that is gone reaches nobody.
        let Some(link) = self.link(member).filter(|link| link.server == server) else { return };
        link.to_worker_us = link.to_worker_us.max(now_us + travel_us);
        let (at_us, link) = (link.to_worker_us, link.number);
        self.queue.push(at_us, Event::ToWorker { member, link, words });
    }

    pub(super) fn send_to_server(&mut self, member: Member, server: NodeId, words: Words) {
        let travel_us = self.chance.between(TRAVEL.min_us, TRAVEL.max_us);
        let now_us = self.now_us;
        let is_over = self.workers[&member.worker].duties.get(&member.farm).is_some_and(|duty| duty.is_over);
        self.checks.seen.told_after_going_home += u64::from(is_over && tells_results(&words));
        let Some(link) = self.link(member).filter(|link| link.server == server) else { return };
        link.to_server_us = link.to_server_us.max(now_us + travel_us);
        let (at_us, link) = (link.to_server_us, link.number);
        self.queue.push(at_us, Event::ToServer { server, member, link, words });
    }

    pub(super) fn deliver_to_worker(&mut self, member: Member, link: u64, words: Words) {
        let found = self.link(member).copied().filter(|found| found.number == link && !found.is_broken);
        let Some(found) = found else { return };
        let message = match words {
            Words::Work(message) => worker::Message::Work(message),
            Words::Loan(word) => {
                let servers = self.servers_named_by(&word);
                worker::Message::Call(word, servers)
            }
            Words::Leads(term) => worker::Message::Leads(term),
            Words::Follows => worker::Message::Follows,
        };
        self.tell_worker_of(member, found.server, |from| Input::Message { from, message });
    }

    /// A worker that is sent to another farm is told where that is.
    fn servers_named_by(&self, word: &Word) -> Servers {
        let Word::Redirect { farm, .. } = word else { return Servers::new() };
        let place = self.farms.iter().position(|host| host.name == farm);
        place.map(|farm| self.address(farm).servers).unwrap_or_default()
    }

    fn tell_worker_of(
        &mut self,
        member: Member,
        server: NodeId,
        input: impl FnOnce(Peer) -> Input<worker::Worker>,
    ) {
        let Some(duty) = self.workers[&member.worker].duties.get(&member.farm) else { return };
        let peer = Peer { farm: duty.id, server: server.server() };
        self.step_worker(member.worker, input(peer));
    }

    pub(super) fn deliver_to_server(&mut self, server: NodeId, member: Member, link: u64, words: Words) {
        let found = self.link(member).copied().filter(|found| found.number == link && !found.is_broken);
        if found.is_none() || self.server(server).links.get(&member.worker) != Some(&link) {
            return;
        }
        match words {
            Words::Work(message) => {
                self.step_foreman(server, Input::Message { from: member.worker.worker(), message });
            }
            Words::Loan(word) => {
                let name = self.workers[&member.worker].name.clone();
                self.step_office(server, Input::Command(office::Command::Said(name, word)));
            }
            Words::Leads(_) | Words::Follows => {}
        }
    }

    /// Nothing passes any more; both ends will notice.
    pub(super) fn break_link(&mut self, member: Member, notice: Delay) {
        let Some(link) = self.link(member).filter(|link| !link.is_broken) else { return };
        link.is_broken = true;
        let Link { number: link, server, .. } = *link;
        self.after(notice, Event::ServerSees { server, worker: member.worker, link });
        self.after(notice, Event::WorkerSees { member, link });
    }

    pub(super) fn on_server_sees(&mut self, server: NodeId, worker: NodeId, link: u64) {
        let links = &mut self.server(server).links;
        if links.get(&worker) == Some(&link) {
            links.remove(&worker);
            self.step_foreman(server, Input::LinkDown(worker.worker()));
        }
    }

    pub(super) fn on_worker_sees(&mut self, member: Member, number: u64) {
        let Some(link) = self.link(member).copied().filter(|link| link.number == number) else { return };
        let host = self.worker(member.worker);
        host.duties.get_mut(&member.farm).into_iter().for_each(|duty| duty.link = None);
        self.tell_worker_of(member, link.server, Input::LinkDown);
    }

    /// A worker looks whether it has the right links.
    pub(super) fn on_look(&mut self, worker: NodeId) {
        self.after(LOOK, Event::Look { worker });
        if self.worker(worker).worker.is_none() || self.frozen.contains_key(&worker) {
            return;
        }
        let farms: Vec<FarmId> = self.worker(worker).duties.keys().copied().collect();
        farms.into_iter().for_each(|farm| self.look_for_leader(Member { worker, farm }));
    }

    /// A worker without a link looks for the leader; one that serves a leader that is deposed may hear of it.
    fn look_for_leader(&mut self, member: Member) {
        if let Some(link) = self.link(member).copied() {
            let leader = self.farms[member.farm].log.leader();
            let is_right = leader.is_none_or(|leader| leader == link.server);
            if is_right || link.is_broken || self.chance.happens(500_000) {
                return;
            }
            self.break_link(member, NOTICE);
            self.on_worker_sees(member, link.number);
        }
        if let Some(server) = self.leader_for(member) {
            self.connect(member, server);
        }
    }

    fn leader_for(&mut self, member: Member) -> Option<NodeId> {
        let believes = |id: &NodeId| self.servers[id].leads.is_some();
        let ids = &self.farms[member.farm].server_ids;
        let believers: Vec<NodeId> = ids.iter().copied().filter(believes).collect();
        let is_misled = !self.is_calm() && !believers.is_empty() && self.chance.happens(MISLED_PPM);
        let right = self.farms[member.farm].log.leader();
        let leader = if is_misled { Some(self.chance.pick(&believers)) } else { right }?;
        let is_there = self.servers[&leader].process.is_some() && !self.frozen.contains_key(&leader);
        (is_there && !self.cut.contains(&member)).then_some(leader)
    }

    /// A new link. Its server has heard of the end of the one before it at the latest now.
    fn connect(&mut self, member: Member, server: NodeId) {
        if let Some(before) = self.server(server).links.get(&member.worker).copied() {
            self.on_server_sees(server, member.worker, before);
        }
        let number = self.number();
        self.server(server).links.insert(member.worker, number);
        let (to_worker_us, to_server_us) = (self.now_us, self.now_us);
        let link = Link { number, server, is_broken: false, to_worker_us, to_server_us };
        let host = self.worker(member.worker);
        host.duties.get_mut(&member.farm).into_iter().for_each(|duty| duty.link = Some(link));
        self.tell_worker_of(member, server, Input::LinkUp);
        if let Some(term) = self.servers[&server].leads {
            let message = worker::Message::Leads(Term(term));
            self.tell_worker_of(member, server, |from| Input::Message { from, message });
        }
    }

    /// What a leader says to a neighbour goes to all servers there, and only the one that leads listens.
    pub(super) fn send_to_neighbour(&mut self, from: NodeId, number: ids::FarmId, message: &loan::Message) {
        let Some(farm) = self.neighbour_of(self.servers[&from].farm, number) else { return };
        for to in self.farms[farm].server_ids.clone() {
            self.send_between(from, to, message);
        }
    }

    fn send_between(&mut self, from: NodeId, to: NodeId, message: &loan::Message) {
        let Network { loss_ppm, duplication_ppm, lateness_ppm, .. } = self.network;
        let is_calm = self.is_calm();
        let mut happens = |per_million| !is_calm && self.chance.happens(per_million);
        let (is_lost, is_doubled, is_late) = (happens(loss_ppm), happens(duplication_ppm), happens(lateness_ppm));
        if is_lost {
            self.break_lane(from, to);
        }
        let lane = self.lanes.entry((from, to)).or_default();
        if lane.down_until_us > self.now_us || self.are_apart(from, to) {
            return;
        }
        let travel = if is_late { LATE } else { TRAVEL };
        let at_us = self.now_us + self.chance.between(travel.min_us, travel.max_us);
        let lane = self.lanes.entry((from, to)).or_default();
        lane.last_us = lane.last_us.max(at_us);
        let (at_us, lane) = (lane.last_us, lane.number);
        let event = Event::Between { from, to, lane, message: message.clone() };
        if is_doubled {
            self.after(LATE, event.clone());
        }
        self.queue.push(at_us, event);
    }

    fn are_apart(&self, one: NodeId, other: NodeId) -> bool {
        let (one, other) = (self.servers[&one].farm, self.servers[&other].farm);
        self.apart.contains(&(one.min(other), one.max(other)))
    }

    /// What is on its way there is lost.
    pub(super) fn break_lane(&mut self, from: NodeId, to: NodeId) {
        let down_us = self.chance.between(REDIAL.min_us, REDIAL.max_us);
        let now_us = self.now_us;
        let lane = self.lanes.entry((from, to)).or_default();
        lane.number += 1;
        lane.last_us = now_us;
        lane.down_until_us = if now_us < super::faults::FAULTS_END_US { now_us + down_us } else { 0 };
    }

    pub(super) fn deliver_between(&mut self, from: NodeId, to: NodeId, lane: u64, message: loan::Message) {
        let is_there = self.lanes.get(&(from, to)).is_some_and(|found| found.number == lane);
        let (lender, borrower) = (self.servers[&from].farm, self.servers[&to].farm);
        if let Some(from) = self.number_among(borrower, lender).filter(|_| is_there) {
            self.step_office(to, Input::Message { from, message });
        }
    }
}

fn tells_results(words: &Words) -> bool {
    match words {
        Words::Work(Message::Hello(hello)) => !hello.ended.is_empty(),
        Words::Work(Message::Ended(reports)) => !reports.is_empty(),
        _ => false,
    }
}
