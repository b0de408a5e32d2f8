//! The workers of a run and their links: what they run, what they keep, and to whom they talk.

use primus_core::farm::Message;
use primus_core::farm::foreman::Foreman;
use primus_core::farm::worker::{Command, Notice, Timer, Worker};
use primus_core::ledger::{Held, Outcome, Report, State, Tail, Verdict};
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output, Token};

use super::host::{Link, WorkerHost};
use super::run::{Event, Run, worker_name};
use crate::node::NodeId;
use crate::observer::Observer;

const TRAVEL: Delay = Delay { min_us: 50, max_us: 2_000 };
const SYNC: Delay = Delay { min_us: 50, max_us: 10_000 };
const BEAT: Delay = Delay::exactly_ms(250);
/// How long a task takes: most are short.
const SHORT: Delay = Delay { min_us: 200, max_us: 50_000 };
const LONG: Delay = Delay { min_us: 50_000, max_us: 1_500_000 };
const LONG_PPM: u32 = 200_000;
const FAILURE_PPM: u32 = 150_000;
/// How often a companion kills what runs, while things go wrong.
const ABANDONED_PPM: u32 = 30_000;
/// How often a worker looks whether it serves the right leader.
const LOOK: Delay = Delay { min_us: 5_000, max_us: 60_000 };
/// How soon the death of a process is noticed at the other end of a link.
pub(super) const NOTICE: Delay = Delay { min_us: 50, max_us: 3_000 };
/// And how soon that nothing comes through any more.
pub(super) const STALL: Delay = Delay { min_us: 1_000, max_us: 2_000_000 };
/// How often a worker that looks for the leader finds one that is deposed and does not know it.
const MISLED_PPM: u32 = 150_000;

impl<O: Observer<Foreman> + Observer<Worker>> Run<'_, O> {
    pub(super) fn worker(&mut self, id: NodeId) -> &mut WorkerHost {
        self.workers.get_mut(&id).expect("a worker of this farm")
    }

    pub(super) fn start_worker(&mut self, id: NodeId) {
        // The first has room for everything that is ever submitted.
        let slots = 2 - u16::try_from(id.0 % 2).unwrap_or(0) + u16::from(id == self.worker_ids[0]);
        let records = self.worker(id).disk.clone();
        let host = self.worker(id);
        host.incarnation += 1;
        host.process = Some(Worker::new(worker_name(id), slots, BEAT, records));
    }

    fn step_worker(&mut self, id: NodeId, input: Input<Worker>) {
        let Some(process) = self.workers.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        let mut outbox = Outbox::new();
        process.step(Moment(self.now_us), input.clone(), &mut outbox);
        self.observe_worker(id, &input, outbox.as_slice());
        for output in outbox.drain() {
            self.carry_out(id, output);
        }
    }

    fn carry_out(&mut self, id: NodeId, output: Output<Worker>) {
        match output {
            Output::Send { to, message } => self.send_to_server(id, to.into(), message),
            Output::Persist { token, records } => {
                let host = self.worker(id);
                host.unsynced.push((token, records));
                let incarnation = host.incarnation;
                self.after(SYNC, Event::Synced { at: id, incarnation, token });
            }
            Output::Set { timer, delay } => {
                let number = self.number();
                self.worker(id).timers.insert(timer, number);
                self.after(delay, Event::WorkerTimer { at: id, timer, number });
            }
            Output::Cancel(timer) => _ = self.worker(id).timers.remove(&timer),
            Output::Notify(Notice::Start(assignment)) => self.start(id, assignment.held),
            Output::Notify(Notice::Kill(held)) => _ = self.worker(id).running.remove(&held),
            Output::Ignore(_) => {}
        }
    }

    fn start(&mut self, id: NodeId, held: Held) {
        self.starts += 1;
        if self.is_double(held) {
            self.double_starts += 1;
            self.checks.on_double_start(id, held, self.may_rerun);
        }
        self.checks.on_start(id, held);
        let host = self.worker(id);
        host.running.insert(held);
        let incarnation = host.incarnation;
        let lasts = if self.chance.happens(LONG_PPM) { LONG } else { SHORT };
        self.after(lasts, Event::Done { at: id, incarnation, held });
    }

    /// Has another attempt at this task ended, or is it under way, or its result kept?
    fn is_double(&self, held: Held) -> bool {
        let truth = self.checks.truth();
        let is_other = |other: Held| other.task == held.task && other != held && truth.is_wanted(other);
        let mut live = self.workers.values().filter_map(|host| host.process.as_ref()).flat_map(Worker::has_begun);
        let has_result = matches!(truth.state(held.task), Some(State::Done | State::Failed | State::Lost));
        !self.checks.is_wanted_again(held.task) && (has_result || live.any(is_other))
    }

    pub(super) fn on_done(&mut self, id: NodeId, incarnation: u32, held: Held) {
        let host = self.worker(id);
        if host.incarnation != incarnation || !host.running.remove(&held) {
            return;
        }
        if self.may_rerun && !self.is_calm() && self.chance.happens(ABANDONED_PPM) {
            return self.step_worker(id, Input::Command(Command::Abandoned(held)));
        }
        let code = u8::from(self.chance.happens(FAILURE_PPM));
        let outcome = Outcome {
            attempt: held.attempt,
            worker: worker_name(id),
            verdict: Verdict::Exited(code),
            started_us: 0,
            took_us: SHORT.max_us,
            stdout: Tail::default(),
            stderr: Tail::default(),
        };
        self.step_worker(id, Input::Command(Command::Ended(Report { task: held.task, outcome })));
    }

    pub(super) fn on_synced(&mut self, id: NodeId, incarnation: u32, token: Token) {
        let host = self.worker(id);
        if host.incarnation == incarnation && host.process.is_some() {
            host.sync(token);
            self.step_worker(id, Input::Persisted(token));
        }
    }

    pub(super) fn on_worker_timer(&mut self, id: NodeId, timer: Timer, number: u64) {
        if self.worker(id).timers.get(&timer) == Some(&number) {
            self.worker(id).timers.remove(&timer);
            self.step_worker(id, Input::Timer(timer));
        }
    }

    pub(super) fn send_to_worker(&mut self, server: NodeId, worker: NodeId, message: Message) {
        if let Message::Run(_, assignments) = &message {
            assignments.iter().for_each(|assignment| self.on_handout(server, assignment.held));
        }
        let travel_us = self.chance.between(TRAVEL.min_us, TRAVEL.max_us);
        let now_us = self.now_us;
        // What a server says on a link that is gone reaches nobody.
        let Some(link) = self.worker(worker).link.as_mut().filter(|link| link.server == server) else { return };
        link.to_worker_us = link.to_worker_us.max(now_us + travel_us);
        let (at_us, link) = (link.to_worker_us, link.number);
        self.queue.push(at_us, Event::ToWorker { worker, link, message });
    }

    fn send_to_server(&mut self, worker: NodeId, server: NodeId, message: Message) {
        let travel_us = self.chance.between(TRAVEL.min_us, TRAVEL.max_us);
        let now_us = self.now_us;
        let Some(link) = self.worker(worker).link.as_mut().filter(|link| link.server == server) else { return };
        link.to_server_us = link.to_server_us.max(now_us + travel_us);
        let (at_us, link) = (link.to_server_us, link.number);
        self.queue.push(at_us, Event::ToServer { server, worker, link, message });
    }

    pub(super) fn deliver_to_worker(&mut self, worker: NodeId, link: u64, message: Message) {
        let found = self.worker(worker).link.filter(|found| found.number == link && !found.is_broken);
        if let Some(found) = found {
            self.step_worker(worker, Input::Message { from: found.server.server(), message });
        }
    }

    pub(super) fn deliver_to_server(&mut self, server: NodeId, worker: NodeId, link: u64, message: Message) {
        let found = self.worker(worker).link.filter(|found| found.number == link && !found.is_broken);
        if found.is_some() && self.server(server).links.get(&worker) == Some(&link) {
            self.step_server(server, Input::Message { from: worker.worker(), message });
        }
    }

    /// Nothing passes any more; both ends will notice.
    pub(super) fn break_link(&mut self, worker: NodeId, notice: Delay) {
        let Some(link) = self.worker(worker).link.as_mut().filter(|link| !link.is_broken) else { return };
        link.is_broken = true;
        let Link { number: link, server, .. } = *link;
        self.after(notice, Event::ServerSees { server, worker, link });
        self.after(notice, Event::WorkerSees { worker, link });
    }

    pub(super) fn on_server_sees(&mut self, server: NodeId, worker: NodeId, link: u64) {
        let links = &mut self.server(server).links;
        if links.get(&worker) == Some(&link) {
            links.remove(&worker);
            self.step_server(server, Input::LinkDown(worker.worker()));
        }
    }

    pub(super) fn on_worker_sees(&mut self, worker: NodeId, number: u64) {
        let Some(link) = self.worker(worker).link.filter(|link| link.number == number) else { return };
        self.worker(worker).link = None;
        self.step_worker(worker, Input::LinkDown(link.server.server()));
    }

    /// A worker without a link looks for the leader; one that serves a leader that is deposed may hear of it.
    pub(super) fn on_look(&mut self, worker: NodeId) {
        self.after(LOOK, Event::Look { worker });
        if self.worker(worker).process.is_none() || self.frozen.contains_key(&worker) {
            return;
        }
        if let Some(link) = self.worker(worker).link {
            let is_right = self.log.leader() == Some(link.server) || self.log.leader().is_none();
            if is_right || link.is_broken || self.chance.happens(500_000) {
                return;
            }
            self.break_link(worker, NOTICE);
            self.on_worker_sees(worker, link.number);
        }
        if let Some(server) = self.leader_for(worker) {
            self.connect(worker, server);
        }
    }

    fn leader_for(&mut self, worker: NodeId) -> Option<NodeId> {
        let believes = |id: &NodeId| self.servers[id].leads.is_some();
        let believers: Vec<NodeId> = self.server_ids.iter().copied().filter(believes).collect();
        let is_misled = !self.is_calm() && !believers.is_empty() && self.chance.happens(MISLED_PPM);
        let leader = if is_misled { Some(self.chance.pick(&believers)) } else { self.log.leader() }?;
        let is_there = self.servers[&leader].process.is_some() && !self.frozen.contains_key(&leader);
        (is_there && !self.cut.contains(&(worker, leader))).then_some(leader)
    }

    /// A new link. Its server has heard of the end of the one before it at the latest now.
    fn connect(&mut self, worker: NodeId, server: NodeId) {
        if let Some(before) = self.server(server).links.get(&worker).copied() {
            self.on_server_sees(server, worker, before);
        }
        let number = self.number();
        self.server(server).links.insert(worker, number);
        let (to_worker_us, to_server_us) = (self.now_us, self.now_us);
        self.worker(worker).link = Some(Link { number, server, is_broken: false, to_worker_us, to_server_us });
        self.step_worker(worker, Input::Command(Command::Serve(server.server())));
    }
}
