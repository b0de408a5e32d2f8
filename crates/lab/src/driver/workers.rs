//! The workers of a run: what each runs and keeps, and where it goes.

use std::collections::BTreeMap;

use primus_core::farm::{Assignment, worker as work};
use primus_core::ids::FarmId;
use primus_core::ledger::{Held, LoanId, State, Work};
use primus_core::load::Weights;
use primus_core::loan::placement::{self, Place};
use primus_core::machine::{Delay, Input, Output, Token};
use primus_server::Worker;
use primus_server::worker::{Command, FarmAddress, Happening, Notice, Record, Rules, Timer, Write};

use super::host::{Duty, FarmPlace, Member, Stand, WorkerHost};
use super::servers::NOTICE;
use super::{Audience, Event, Run, What};
use crate::node::NodeId;
use crate::tasks::{address, report};

const SYNC: Delay = Delay { min_us: 50, max_us: 10_000 };
/// How long the epoch takes on a slow disk.
const SLOW_SYNC: Delay = Delay { min_us: 10_000, max_us: 4_000_000 };

impl<O: Audience> Run<'_, O> {
    pub(super) fn worker(&mut self, id: NodeId) -> &mut WorkerHost {
        self.workers.get_mut(&id).expect("a worker of this run")
    }

    pub(super) fn duty(&mut self, member: Member) -> Option<&mut Duty> {
        self.workers.get_mut(&member.worker)?.duties.get_mut(&member.farm)
    }

    pub(super) fn address(&self, farm: FarmPlace) -> FarmAddress {
        let host = &self.farms[farm];
        address(&host.name, host.server_ids.iter().map(|id| id.server()))
    }

    pub(super) fn farm_named(&self, name: &str) -> Option<FarmPlace> {
        self.farms.iter().position(|host| host.name == name)
    }

    /// It is at home; for other farms it only has results to tell, if any.
    pub(super) fn start_worker(&mut self, id: NodeId) {
        let planted = self.plan.server.planted;
        let (now_us, home) = (self.time.now_us, self.workers[&id].home);
        let farm = self.farms[home].name.clone();
        let host = self.worker(id);
        host.incarnation += 1;
        host.clock.began_us = now_us;
        let (name, slots, weights) = (host.name.clone(), host.slots, Weights::DEFAULT);
        let rules = Rules { farm, name, slots, beside: None, weights, planted };
        let records = host.results.entry(home).or_default().durable.clone();
        let epoch = host.epoch.durable.last().copied().unwrap_or(LoanId(0));
        host.process = Some(Box::new(Stand::new(Worker::new(rules, epoch, records))));
        let others = host.results.iter().filter(|(farm, _)| **farm != home);
        let others: Vec<(FarmPlace, Vec<work::Record>)> =
            others.map(|(farm, file)| (*farm, file.durable.clone())).collect();
        let visited = others.into_iter().map(|(farm, records)| (self.address(farm), records)).collect();
        self.begin_duty(Member { worker: id, farm: home }, FarmId::OWN);
        self.step_worker(id, Input::Command(Command::Start(visited)));
    }

    /// From now on it has, or looks for, a link to every server of that farm.
    fn begin_duty(&mut self, member: Member, id: FarmId) {
        let number = self.number();
        let host = self.worker(member.worker);
        let is_over = host.current() != member.farm;
        let duty = Duty { number, id, links: BTreeMap::new(), running: BTreeMap::new(), is_over };
        host.duties.insert(member.farm, duty);
        for server in self.farms[member.farm].server_ids.clone() {
            self.call_soon(member, number, server);
        }
    }

    /// A turn of a worker in which one thing happens.
    pub(super) fn step_worker(&mut self, id: NodeId, input: Input<Worker>) {
        self.take_step(id, input);
        self.take_step(id, Input::Command(Command::Turn));
    }

    fn take_step(&mut self, id: NodeId, input: Input<Worker>) {
        let now_us = self.time.now_us;
        let host = self.worker(id);
        let now = host.clock.moment(now_us);
        let Some(process) = &mut host.process else { return };
        let outputs = process.step(now, input.clone());
        self.see(id, &input, &outputs);
        if matches!(input, Input::Timer(Timer::Placement(placement::Timer::Deadline))) {
            let is_stopped = |output: &&Output<Worker>| matches!(output, Output::Notify(Notice::Kill(..)));
            outputs.iter().filter(is_stopped).for_each(|_| self.checks.saw("stops"));
        }
        for output in outputs {
            self.carry_out_worker(id, output);
        }
    }

    /// One worker at the farm that it calls so.
    pub(super) fn member(&self, worker: NodeId, farm: FarmId) -> Option<Member> {
        let mut duties = self.workers[&worker].duties.iter();
        duties.find(|(_, duty)| duty.id == farm).map(|(farm, _)| Member { worker, farm: *farm })
    }

    fn carry_out_worker(&mut self, id: NodeId, output: Output<Worker>) {
        match output {
            Output::Send { to, message } => self.say_to_server(id, to, message),
            Output::Persist { token, records } => self.persist(id, token, records),
            Output::Set { timer, delay } => {
                self.set(id, self.workers[&id].clock, super::Timer::Worker(timer), delay);
            }
            Output::Cancel(timer) => self.cancel(id, super::Timer::Worker(timer)),
            Output::Notify(notice) => self.on_worker_notice(id, notice),
            Output::Ignore(_) => {}
        }
    }

    fn persist(&mut self, id: NodeId, write: Write, records: Vec<Record>) {
        let host = self.worker(id);
        let incarnation = host.incarnation;
        let mut is_slow = false;
        match write {
            Write::Epoch(token) => {
                host.epoch.write(token, records.into_iter().filter_map(epoch_of).collect());
                is_slow = !self.is_calm() && self.time.chance.happens(self.plan.slow_epochs_ppm);
            }
            Write::Results(farm, token) => {
                let Some(member) = self.member(id, farm) else { return };
                let results = self.worker(id).results.entry(member.farm).or_default();
                results.write(token, records.into_iter().filter_map(result_of).collect());
            }
        }
        let synced = Event::To(id, What::Synced(incarnation, super::Write::Of(write)));
        self.time.after(if is_slow { SLOW_SYNC } else { SYNC }, synced);
    }

    pub(super) fn on_worker_synced(&mut self, id: NodeId, incarnation: u32, write: Write) {
        let host = self.worker(id);
        if host.incarnation != incarnation || host.process.is_none() {
            return;
        }
        match write {
            Write::Epoch(token) => host.epoch.sync(token),
            Write::Results(farm, token) => {
                let Some(member) = self.member(id, farm) else { return };
                self.worker(id).results.entry(member.farm).or_default().sync(token);
            }
        }
        self.step_worker(id, Input::Persisted(write));
    }

    pub(super) fn on_opened(&mut self, id: NodeId, incarnation: u32, farm: FarmPlace) {
        let name = self.farms[farm].name.clone();
        let host = self.worker(id);
        if host.incarnation == incarnation && host.process.is_some() {
            let records = host.results.entry(farm).or_default().durable.clone();
            self.step_worker(id, Input::Command(Command::Opened(name, Ok(records))));
        }
    }

    pub(super) fn on_worker_timer(&mut self, id: NodeId, timer: Timer) {
        if timer == Timer::Placement(placement::Timer::Lease) {
            self.checks.saw("leases_over");
        }
        self.step_worker(id, Input::Timer(timer));
    }

    pub(super) fn crash_worker(&mut self, id: NodeId) {
        if self.workers[&id].process.is_some() {
            self.note_death(id);
        }
        for farm in self.workers[&id].duties.keys().copied().collect::<Vec<_>>() {
            self.break_links_of(Member { worker: id, farm }, NOTICE);
        }
        self.checks.stay.on_crash(id);
        let host = self.workers.get_mut(&id).expect("a worker of this run");
        host.forget(&mut self.time.chance);
    }

    fn note_death(&mut self, id: NodeId) {
        if self.is_travelling(id) {
            self.checks.saw("died_in_transit");
        }
        if self.workers[&id].away.is_some() {
            self.checks.saw("died_away");
        }
    }
}

/// What workers want.
impl<O: Audience> Run<'_, O> {
    fn on_worker_notice(&mut self, id: NodeId, notice: Notice) {
        match notice {
            Notice::Start(farm, assignment) => {
                self.member(id, farm).into_iter().for_each(|member| self.start_task(member, &assignment));
            }
            Notice::Kill(farm, held) => {
                self.member(id, farm).into_iter().for_each(|member| _ = self.take_running(member, held, true));
            }
            Notice::Open(address) => {
                let farm = self.farm_named(&address.name).expect("only neighbours borrow");
                let incarnation = self.workers[&id].incarnation;
                self.time.after(SYNC, Event::To(id, What::Opened(incarnation, farm)));
            }
            Notice::Begin { farm, address, .. } => {
                let place = self.farm_named(&address.name).expect("only neighbours borrow");
                self.begin_duty(Member { worker: id, farm: place }, farm);
            }
            Notice::Part(farm) => self.member(id, farm).into_iter().for_each(|member| self.end_duty(member)),
            Notice::DropLinks => self.drop_links(id),
            Notice::Happened(Happening::Lent(farm, loan)) => self.on_lent(id, &farm, loan),
            Notice::Happened(Happening::Home(_)) => self.on_home(id),
            Notice::Close(_) | Notice::Renew | Notice::Happened(_) => {}
        }
    }

    fn start_task(&mut self, member: Member, assignment: &Assignment) {
        let held = assignment.held;
        self.tally.starts += 1;
        self.check_start(member, held);
        let drawn = self.plan.tasks.lasts(self.flooded.is_some(), &mut self.time.chance);
        let lasts = takes(&assignment.work).unwrap_or(drawn);
        let (home, now_us) = (self.workers[&member.worker].home, self.time.now_us);
        self.books.iter_mut().for_each(|books| books.on_start(member.farm, home));
        if let Some(duty) = self.duty(member) {
            duty.running.insert(held, now_us);
            let duty = duty.number;
            self.time.after(lasts, Event::To(member.worker, What::Done(member.farm, duty, held)));
        }
    }

    fn check_start(&mut self, member: Member, held: Held) {
        let host = &self.workers[&member.worker];
        let elsewhere = host.duties.iter().find(|(farm, duty)| **farm != member.farm && !duty.running.is_empty());
        let elsewhere = elsewhere.map(|(farm, _)| self.farms[*farm].name.as_str());
        let farm = &self.farms[member.farm].name;
        let is_guest = host.home != member.farm;
        let is_allowed = host.placement().is_some_and(|placement| match placement.place() {
            // One that is about to go begins nothing: its leader has lent it because nothing ran.
            Place::Going { .. } => false,
            Place::Home | Place::Staying { .. } => !is_guest,
            Place::Away { farm: there, .. } | Place::Returning { farm: there } => is_guest && there == farm,
        });
        let is_double = self.is_double(member.farm, held);
        let name = host.name_in(member.farm, &self.farms[host.home].name);
        self.checks.on_start_of_task((member, &name), held, is_allowed, elsewhere);
        if is_double {
            self.tally.double_starts += 1;
            self.checks.on_double_start(member, held, self.plan.may_rerun);
        }
        if is_guest {
            self.checks.saw("borrowed_starts");
        }
    }

    /// Has another attempt at this task ended, or is it under way, or its result kept?
    fn is_double(&self, farm: FarmPlace, held: Held) -> bool {
        let truth = self.checks.truth(farm);
        let is_other = |other: Held| other.task == held.task && other != held && truth.is_wanted(other);
        let works = self.workers.values().filter_map(|host| {
            let duty = host.duties.get(&farm)?;
            host.process.as_ref()?.machine.work(duty.id)
        });
        let has_result = matches!(truth.state(held.task), Some(State::Done | State::Failed | State::Lost));
        let is_begun = works.flat_map(work::Worker::has_begun).any(is_other);
        !self.checks.is_wanted_again(farm, held.task) && (has_result || is_begun)
    }

    pub(super) fn on_done(&mut self, member: Member, number: u64, held: Held) {
        let worker = self.workers[&member.worker].name.clone();
        let Some(duty) = self.duty(member).filter(|duty| duty.number == number) else { return };
        let farm = duty.id;
        if !self.take_running(member, held, false) {
            return;
        }
        if !self.is_calm() && self.time.chance.happens(self.plan.tasks.abandoned_ppm) {
            return self.step_worker(member.worker, Input::Command(Command::Abandoned(farm, held)));
        }
        let code = u8::from(self.time.chance.happens(self.plan.tasks.failure_ppm));
        let ended = Command::Ended(farm, report(held, worker, code, 1));
        self.step_worker(member.worker, Input::Command(ended));
    }

    /// It does not run any more. Did it?
    fn take_running(&mut self, member: Member, held: Held, is_stopped: bool) -> bool {
        let (now_us, home) = (self.time.now_us, self.workers[&member.worker].home);
        let since_us = self.duty(member).and_then(|duty| duty.running.remove(&held));
        if let (Some(since_us), Some(books)) = (since_us, &mut self.books) {
            books.on_end(home, now_us - since_us, is_stopped);
        }
        since_us.is_some()
    }

    /// What still runs has run until now.
    pub(super) fn stop_all(&mut self, id: NodeId) {
        let duties = self.workers[&id].duties.iter();
        let running: Vec<(Member, Held)> = duties
            .flat_map(|(farm, duty)| duty.running.keys().map(|held| (Member { worker: id, farm: *farm }, *held)))
            .collect();
        running.into_iter().for_each(|(member, held)| _ = self.take_running(member, held, false));
    }

    /// The farm has recorded everything.
    fn end_duty(&mut self, member: Member) {
        self.break_links_of(member, NOTICE);
        let host = self.worker(member.worker);
        host.duties.remove(&member.farm);
        // What its disk was given last is there before anybody else uses it.
        host.results.entry(member.farm).or_default().sync(Token(u64::MAX));
    }

    fn drop_links(&mut self, id: NodeId) {
        self.checks.saw("pauses");
        let farms: Vec<FarmPlace> = self.workers[&id].duties.keys().copied().collect();
        farms.into_iter().for_each(|farm| self.break_links_of(Member { worker: id, farm }, NOTICE));
    }

    /// It works for another farm; perhaps it has results from there still.
    fn on_lent(&mut self, id: NodeId, farm: &str, loan: LoanId) {
        let farm = self.farm_named(farm).expect("only neighbours borrow");
        let home = self.workers[&id].home;
        self.worker(id).away = Some(farm);
        let name = self.workers[&id].name.clone();
        self.checks.on_go(id, (home, loan), &name, self.time.now_us);
        self.books.iter_mut().for_each(|books| books.on_change(id, self.time.now_us));
        self.duty(Member { worker: id, farm }).into_iter().for_each(|duty| duty.is_over = false);
    }

    fn on_home(&mut self, id: NodeId) {
        self.checks.on_come_home(id, self.time.now_us);
        self.books.iter_mut().for_each(|books| books.on_change(id, self.time.now_us));
        if let Some(farm) = self.worker(id).away.take() {
            self.duty(Member { worker: id, farm }).into_iter().for_each(|duty| duty.is_over = true);
        }
    }

    /// Has left, or is about to, and has not arrived.
    pub(super) fn is_travelling(&self, id: NodeId) -> bool {
        let host = &self.workers[&id];
        let is_going = host.placement().is_some_and(|it| matches!(it.place(), Place::Going { .. }));
        let home = &self.farms[host.home].name;
        let is_borrowed =
            |farm: FarmPlace| self.checks.truth(farm).loans().borrowed().contains_key(&host.name_in(farm, home));
        is_going || host.away.is_some_and(|farm| !is_borrowed(farm))
    }

    /// How many results workers keep that no farm has recorded.
    pub(super) fn kept(&self) -> usize {
        let workers = self.workers.values().filter_map(|host| host.process.as_ref());
        let machines = workers.map(|process| &process.machine);
        let work = machines.flat_map(|worker| worker.farms().filter_map(|(farm, _)| worker.work(farm)));
        work.map(work::Worker::unrecorded).sum()
    }
}

/// How long a task takes that says so itself.
fn takes(work: &Work) -> Option<Delay> {
    let Work::Kind { input, .. } = work else { return None };
    let us = u64::from_be_bytes(input.as_slice().try_into().ok()?);
    Some(Delay { min_us: us, max_us: us })
}

fn epoch_of(record: Record) -> Option<LoanId> {
    match record {
        Record::Epoch(epoch) => Some(epoch),
        Record::Result(_) => None,
    }
}

fn result_of(record: Record) -> Option<work::Record> {
    match record {
        Record::Result(record) => Some(record),
        Record::Epoch(_) => None,
    }
}
