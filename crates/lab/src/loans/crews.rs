//! The workers of a run: what each runs and keeps, and where it goes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use primus_core::farm::worker as work;
use primus_core::ids;
use primus_core::ledger::{Held, LoanId, Outcome, Report, Tail, Verdict};
use primus_core::load::Weights;
use primus_core::loan::allegiance::{self, Place};
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output, Token};
use primus_server::worker::{
    Command, FarmAddress, Happening, Message, Notice, Peer, Record, Rules, Timer, Worker, Write,
};

use super::Audience;
use super::host::{Duty, FarmId, Member, Words, WorkerHost};
use super::links::NOTICE;
use super::run::{Event, FLOOD_TASK_US, Run};
use crate::node::NodeId;

const SYNC: Delay = Delay { min_us: 50, max_us: 10_000 };
/// How long the epoch takes on a slow disk.
const SLOW_SYNC: Delay = Delay { min_us: 10_000, max_us: 4_000_000 };
/// How long a task takes: most are short.
const SHORT: Delay = Delay { min_us: 1_000, max_us: 80_000 };
const LONG: Delay = Delay { min_us: 80_000, max_us: 1_500_000 };
const LONG_PPM: u32 = 150_000;

impl<O: Audience> Run<'_, O> {
    pub(super) fn worker(&mut self, id: NodeId) -> &mut WorkerHost {
        self.workers.get_mut(&id).expect("a worker of this run")
    }

    fn duty(&mut self, member: Member) -> Option<&mut Duty> {
        self.worker(member.worker).duties.get_mut(&member.farm)
    }

    /// Where a farm is. Nobody dials here, so any address will do.
    pub(super) fn address(&self, farm: FarmId) -> FarmAddress {
        let host = &self.farms[farm];
        let servers = host.server_ids.iter().map(|id| (id.server(), SocketAddr::from(([127, 0, 0, 1], 1))));
        FarmAddress { name: host.name.to_owned(), servers: servers.collect() }
    }

    fn farm_named(&self, name: &str) -> FarmId {
        self.farms.iter().position(|host| host.name == name).expect("only neighbours borrow")
    }

    /// It is at home; for other farms it only has results to tell, if any.
    pub(super) fn start_worker(&mut self, id: NodeId) {
        let planted = self.rules.planted;
        let farm = self.farms[self.workers[&id].home].name.to_owned();
        let host = self.worker(id);
        host.incarnation += 1;
        let home = host.home;
        let (name, slots, weights) = (host.name.clone(), host.slots, Weights::DEFAULT);
        let rules = Rules { farm, name, slots, beside: None, weights, planted };
        let records = host.disks.entry(home).or_default().records.clone();
        host.worker = Some(Worker::new(rules, host.epoch, records));
        let others = host.disks.iter().filter(|(farm, _)| **farm != home);
        let others: Vec<(FarmId, Vec<work::Record>)> =
            others.map(|(farm, disk)| (*farm, disk.records.clone())).collect();
        let visited = others.into_iter().map(|(farm, records)| (self.address(farm), records)).collect();
        self.begin_duty(Member { worker: id, farm: home }, ids::FarmId::OWN);
        self.step_worker(id, Input::Command(Command::Start(visited)));
    }

    fn begin_duty(&mut self, member: Member, id: ids::FarmId) {
        let number = self.number();
        let host = self.worker(member.worker);
        let is_over = host.current() != member.farm;
        host.duties.insert(member.farm, Duty { number, id, link: None, running: BTreeSet::new(), is_over });
    }

    /// A turn of a worker in which one thing happens.
    pub(super) fn step_worker(&mut self, id: NodeId, input: Input<Worker>) {
        self.take_step(id, input);
        self.take_step(id, Input::Command(Command::Turn));
    }

    fn take_step(&mut self, id: NodeId, input: Input<Worker>) {
        let host = self.workers.get_mut(&id).expect("a worker of this run");
        let Some(worker) = &mut host.worker else { return };
        self.steps += 1;
        let mut outbox = Outbox::new();
        worker.step(Moment(self.now_us), input.clone(), &mut outbox);
        self.observer.on_step(self.now_us, id, &input, outbox.as_slice());
        if matches!(input, Input::Timer(Timer::Placement(allegiance::Timer::Deadline))) {
            let is_stopped = |output: &&Output<Worker>| matches!(output, Output::Notify(Notice::Kill(..)));
            self.checks.seen.stops += outbox.as_slice().iter().filter(is_stopped).count() as u64;
        }
        for output in outbox.drain() {
            self.carry_out(id, output);
        }
    }

    /// One worker at the farm that it calls so.
    fn member(&self, worker: NodeId, farm: ids::FarmId) -> Option<Member> {
        let mut duties = self.workers[&worker].duties.iter();
        duties.find(|(_, duty)| duty.id == farm).map(|(farm, _)| Member { worker, farm: *farm })
    }

    fn carry_out(&mut self, id: NodeId, output: Output<Worker>) {
        match output {
            Output::Send { to, message } => self.say(id, to, message),
            Output::Persist { token: Write::Results(farm, token), records } => {
                self.persist(id, farm, (token, records));
            }
            Output::Persist { token: Write::Epoch(token), records } => self.persist_epoch(id, token, &records),
            Output::Set { timer, delay } => {
                let number = self.number();
                let host = self.worker(id);
                host.timers.insert(timer, number);
                let delay = host.clock.real(delay);
                self.after(delay, Event::WorkerTimer { worker: id, timer, number });
            }
            Output::Cancel(timer) => _ = self.worker(id).timers.remove(&timer),
            Output::Notify(notice) => self.on_worker_notice(id, notice),
            Output::Ignore(_) => {}
        }
    }

    fn say(&mut self, id: NodeId, to: Peer, message: Message) {
        let Some(member) = self.member(id, to.farm) else { return };
        match message {
            Message::Work(message) => self.send_to_server(member, to.server.into(), Words::Work(message)),
            Message::Placement(word) => self.send_to_server(member, to.server.into(), Words::Loan(word)),
            Message::Leads(_) | Message::Follows | Message::Call(..) => {}
        }
    }

    fn persist(&mut self, id: NodeId, farm: ids::FarmId, (token, records): (Token, Vec<Record>)) {
        let Some(member) = self.member(id, farm) else { return };
        let of_result = |record| match record {
            Record::Result(record) => Some(record),
            Record::Epoch(_) => None,
        };
        let records = records.into_iter().filter_map(of_result).collect();
        let host = self.worker(id);
        host.disks.entry(member.farm).or_default().unsynced.push((token, records));
        let duty = host.duties[&member.farm].number;
        self.after(SYNC, Event::Synced { member, duty, token });
    }

    pub(super) fn on_synced(&mut self, member: Member, number: u64, token: Token) {
        let host = self.worker(member.worker);
        let Some(duty) = host.duties.get(&member.farm).filter(|duty| duty.number == number) else { return };
        let farm = duty.id;
        host.disks.entry(member.farm).or_default().sync(token);
        self.step_worker(member.worker, Input::Persisted(Write::Results(farm, token)));
    }

    fn persist_epoch(&mut self, id: NodeId, token: Token, records: &[Record]) {
        let epoch_of = |record: &Record| match record {
            Record::Epoch(epoch) => Some((token, *epoch)),
            Record::Result(_) => None,
        };
        let host = self.worker(id);
        host.unsynced.extend(records.iter().filter_map(epoch_of));
        let incarnation = host.incarnation;
        let is_slow = !self.is_calm() && self.chance.happens(self.network.slow_disk_ppm);
        self.after(if is_slow { SLOW_SYNC } else { SYNC }, Event::EpochSynced { worker: id, incarnation, token });
    }

    pub(super) fn on_epoch_synced(&mut self, id: NodeId, incarnation: u32, token: Token) {
        let host = self.worker(id);
        if host.incarnation != incarnation || host.worker.is_none() {
            return;
        }
        let count = host.unsynced.iter().take_while(|(written, _)| *written <= token).count();
        if let Some((_, epoch)) = host.unsynced.drain(..count).next_back() {
            host.epoch = epoch;
        }
        self.step_worker(id, Input::Persisted(Write::Epoch(token)));
    }

    pub(super) fn on_opened(&mut self, id: NodeId, incarnation: u32, farm: FarmId) {
        let name = self.farms[farm].name.to_owned();
        let host = self.worker(id);
        if host.incarnation == incarnation {
            let records = host.disks.entry(farm).or_default().records.clone();
            self.step_worker(id, Input::Command(Command::Opened(name, Ok(records))));
        }
    }

    pub(super) fn on_worker_timer(&mut self, id: NodeId, timer: Timer, number: u64) {
        if self.worker(id).timers.get(&timer) == Some(&number) {
            self.worker(id).timers.remove(&timer);
            let is_lease = timer == Timer::Placement(allegiance::Timer::Lease);
            self.checks.seen.leases_over += u64::from(is_lease);
            self.step_worker(id, Input::Timer(timer));
        }
    }
}

/// What workers want.
impl<O: Audience> Run<'_, O> {
    fn on_worker_notice(&mut self, id: NodeId, notice: Notice) {
        match notice {
            Notice::Start(farm, assignment) => {
                self.member(id, farm).into_iter().for_each(|member| self.start(member, assignment.held));
            }
            Notice::Kill(farm, held) => {
                let duty = self.member(id, farm).and_then(|member| self.duty(member));
                duty.into_iter().for_each(|duty| _ = duty.running.remove(&held));
            }
            Notice::Open(address) => {
                let (farm, incarnation) = (self.farm_named(&address.name), self.worker(id).incarnation);
                self.after(SYNC, Event::Opened { worker: id, incarnation, farm });
            }
            Notice::Begin { farm, address, .. } => {
                let place = self.farm_named(&address.name);
                self.begin_duty(Member { worker: id, farm: place }, farm);
            }
            Notice::Part(farm) => self.member(id, farm).into_iter().for_each(|member| self.end_duty(member)),
            Notice::DropLinks => self.drop_links(id),
            Notice::Happened(Happening::Lent(farm, loan)) => self.on_lent(id, &farm, loan),
            Notice::Happened(Happening::Home(_)) => self.on_home(id),
            Notice::Close(_) | Notice::Renew | Notice::Happened(_) => {}
        }
    }

    fn start(&mut self, member: Member, held: Held) {
        self.starts += 1;
        let host = &self.workers[&member.worker];
        let elsewhere = host.duties.iter().find(|(farm, duty)| **farm != member.farm && !duty.running.is_empty());
        let elsewhere = elsewhere.map(|(farm, _)| self.farms[*farm].name);
        let farm = self.farms[member.farm].name;
        let is_guest = host.home != member.farm;
        let is_allowed = host.placement().is_some_and(|placement| match placement.place() {
            // One that is about to go begins nothing: its leader has lent it because nothing ran.
            Place::Going { .. } => false,
            Place::Home | Place::Staying { .. } => !is_guest,
            Place::Away { farm: there, .. } | Place::Returning { farm: there } => is_guest && there == farm,
        });
        self.checks.on_start(member, held, is_allowed, elsewhere);
        self.checks.seen.borrowed_starts += u64::from(is_guest);
        let lasts = match self.flooded {
            Some(_) => Delay { min_us: FLOOD_TASK_US, max_us: FLOOD_TASK_US },
            None if self.chance.happens(LONG_PPM) => LONG,
            None => SHORT,
        };
        if let Some(duty) = self.duty(member) {
            duty.running.insert(held);
            let duty = duty.number;
            self.after(lasts, Event::Done { member, duty, held });
        }
    }

    pub(super) fn on_done(&mut self, member: Member, number: u64, held: Held) {
        let worker = self.workers[&member.worker].name.clone();
        let Some(duty) = self.duty(member).filter(|duty| duty.number == number) else { return };
        if !duty.running.remove(&held) {
            return;
        }
        let farm = duty.id;
        let outcome = Outcome {
            attempt: held.attempt,
            worker,
            verdict: Verdict::Exited(0),
            started_us: 0,
            took_us: SHORT.max_us,
            stdout: Tail::default(),
            stderr: Tail::default(),
        };
        let report = Report { task: held.task, outcome };
        self.step_worker(member.worker, Input::Command(Command::Ended(farm, report)));
    }

    /// The farm has recorded everything.
    fn end_duty(&mut self, member: Member) {
        self.break_link(member, NOTICE);
        let host = self.worker(member.worker);
        host.duties.remove(&member.farm);
        // What its disk was given last is there before anybody else uses it.
        host.disks.entry(member.farm).or_default().sync(Token(u64::MAX));
    }

    fn drop_links(&mut self, worker: NodeId) {
        self.checks.seen.pauses += 1;
        let farms: Vec<FarmId> = self.workers[&worker].duties.keys().copied().collect();
        farms.into_iter().for_each(|farm| self.break_link(Member { worker, farm }, NOTICE));
    }

    /// It works for another farm; perhaps it has results from there still.
    fn on_lent(&mut self, id: NodeId, farm: &str, loan: LoanId) {
        let farm = self.farm_named(farm);
        let home = self.workers[&id].home;
        self.worker(id).away = Some(farm);
        self.checks.on_go(id, (home, loan), &self.workers[&id].name, self.now_us);
        self.duty(Member { worker: id, farm }).into_iter().for_each(|duty| duty.is_over = false);
    }

    fn on_home(&mut self, id: NodeId) {
        self.checks.on_come_home(id, self.now_us);
        if let Some(farm) = self.worker(id).away.take() {
            self.duty(Member { worker: id, farm }).into_iter().for_each(|duty| duty.is_over = true);
        }
    }
}
