//! The workers of a run: whom each works for, what it runs, and what it keeps.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::farm::worker::{self, Worker};
use primus_core::ledger::{Held, LoanId, Outcome, Report, Tail, Verdict};
use primus_core::loan::allegiance::{self, Allegiance, Record};
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output, Token};

use super::Audience;
use super::host::{Duty, FarmId, Member, Words, WorkerHost};
use super::run::{Event, FLOOD_TASK_US, Run};
use crate::node::NodeId;

const SYNC: Delay = Delay { min_us: 50, max_us: 10_000 };
const BEAT: Delay = Delay::exactly_ms(250);
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

    /// It is at home; for other farms it only has results to tell, if any.
    pub(super) fn start_worker(&mut self, id: NodeId) {
        let planted = self.rules.planted;
        let host = self.worker(id);
        host.incarnation += 1;
        host.allegiance = Some(Allegiance::new(host.epoch, planted));
        let home = host.home;
        let others: Vec<FarmId> = host.disks.keys().copied().filter(|farm| *farm != home).collect();
        self.begin_duty(Member { worker: id, farm: home }, worker::Allegiance::Own);
        for farm in others {
            let member = Member { worker: id, farm };
            self.begin_duty(member, worker::Allegiance::Over);
            if self.duty(member).is_some_and(|duty| duty.machine.unrecorded() == 0) {
                self.worker(id).duties.remove(&farm);
            }
        }
    }

    fn begin_duty(&mut self, member: Member, standing: worker::Allegiance) {
        let number = self.number();
        let home = self.farms[self.workers[&member.worker].home].name;
        let host = self.worker(member.worker);
        let name = host.name_in(member.farm, home);
        let records = host.disks.entry(member.farm).or_default().records.clone();
        let machine = Worker::new(name, host.slots, BEAT, records).standing(standing);
        let is_over = standing == worker::Allegiance::Over;
        let (timers, running) = (BTreeMap::new(), BTreeSet::new());
        host.duties.insert(member.farm, Duty { number, machine, timers, link: None, running, is_over });
    }

    pub(super) fn step_duty(&mut self, member: Member, input: Input<Worker>) {
        let host = self.workers.get_mut(&member.worker).expect("a worker of this run");
        let Some(duty) = host.duties.get_mut(&member.farm) else { return };
        self.steps += 1;
        let mut outbox = Outbox::new();
        duty.machine.step(Moment(self.now_us), input.clone(), &mut outbox);
        self.observer.on_step(self.now_us, member.worker, &input, outbox.as_slice());
        for output in outbox.drain() {
            self.carry_out(member, output);
        }
        self.tell_home(member);
        self.tell_idle(member.worker);
    }

    fn carry_out(&mut self, member: Member, output: Output<Worker>) {
        match output {
            Output::Send { to, message } => self.send_to_server(member, to.into(), Words::Work(message)),
            Output::Persist { token, records } => self.persist(member, token, records),
            Output::Set { timer, delay } => {
                let number = self.number();
                let delay = self.worker(member.worker).clock.real(delay);
                self.duty(member).into_iter().for_each(|duty| _ = duty.timers.insert(timer, number));
                self.after(delay, Event::DutyTimer { member, timer, number });
            }
            Output::Cancel(timer) => {
                self.duty(member).into_iter().for_each(|duty| _ = duty.timers.remove(&timer));
            }
            Output::Notify(worker::Notice::Start(assignment)) => self.start(member, assignment.held),
            Output::Notify(worker::Notice::Kill(held)) => {
                self.duty(member).into_iter().for_each(|duty| _ = duty.running.remove(&held));
            }
            Output::Ignore(_) => {}
        }
    }

    fn persist(&mut self, member: Member, token: Token, records: Vec<worker::Record>) {
        let host = self.worker(member.worker);
        host.disks.entry(member.farm).or_default().unsynced.push((token, records));
        let Some(duty) = host.duties.get(&member.farm).map(|duty| duty.number) else { return };
        self.after(SYNC, Event::Synced { member, duty, token });
    }

    fn start(&mut self, member: Member, held: Held) {
        self.starts += 1;
        let host = &self.workers[&member.worker];
        let elsewhere = host.duties.iter().find(|(farm, duty)| **farm != member.farm && !duty.running.is_empty());
        let elsewhere = elsewhere.map(|(farm, _)| self.farms[*farm].name);
        let farm = self.farms[member.farm].name;
        let is_guest = host.home != member.farm;
        let is_allowed = host.allegiance.as_ref().is_some_and(|allegiance| {
            if is_guest { allegiance.farm() == Some(farm) } else { allegiance.farm().is_none() }
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
        let outcome = Outcome {
            attempt: held.attempt,
            worker,
            verdict: Verdict::Exited(0),
            started_us: 0,
            took_us: SHORT.max_us,
            stdout: Tail::default(),
            stderr: Tail::default(),
        };
        self.step_duty(member, Input::Command(worker::Command::Ended(Report { task: held.task, outcome })));
    }

    pub(super) fn on_synced(&mut self, member: Member, number: u64, token: Token) {
        let host = self.worker(member.worker);
        if host.duties.get(&member.farm).is_some_and(|duty| duty.number == number) {
            host.disks.entry(member.farm).or_default().sync(token);
            self.step_duty(member, Input::Persisted(token));
        }
    }

    pub(super) fn on_duty_timer(&mut self, member: Member, timer: worker::Timer, number: u64) {
        let Some(duty) = self.duty(member) else { return };
        if duty.timers.get(&timer) == Some(&number) {
            duty.timers.remove(&timer);
            self.step_duty(member, Input::Timer(timer));
        }
    }

    pub(super) fn step_allegiance(&mut self, id: NodeId, input: Input<Allegiance>) {
        let host = self.workers.get_mut(&id).expect("a worker of this run");
        let Some(allegiance) = &mut host.allegiance else { return };
        self.steps += 1;
        let mut outbox = Outbox::new();
        allegiance.step(Moment(self.now_us), input.clone(), &mut outbox);
        self.observer.on_step(self.now_us, id, &input, outbox.as_slice());
        for output in outbox.drain() {
            self.obey(id, output);
        }
    }

    fn obey(&mut self, id: NodeId, output: Output<Allegiance>) {
        match output {
            Output::Send { to, message } => {
                let farm = self.workers[&id].home;
                self.send_to_server(Member { worker: id, farm }, to.into(), Words::Loan(message));
            }
            Output::Persist { token, records } => self.persist_epoch(id, token, &records),
            Output::Set { timer, delay } => {
                let number = self.number();
                let host = self.worker(id);
                host.timers.insert(timer, number);
                let delay = host.clock.real(delay);
                self.after(delay, Event::AllegianceTimer { worker: id, timer, number });
            }
            Output::Cancel(timer) => _ = self.worker(id).timers.remove(&timer),
            Output::Notify(notice) => self.on_allegiance_notice(id, notice),
            Output::Ignore(_) => {}
        }
    }

    fn persist_epoch(&mut self, id: NodeId, token: Token, records: &[Record]) {
        let host = self.worker(id);
        host.unsynced.extend(records.iter().map(|record| (token, record.epoch)));
        let incarnation = host.incarnation;
        self.after(SYNC, Event::EpochSynced { worker: id, incarnation, token });
    }

    pub(super) fn on_epoch_synced(&mut self, id: NodeId, incarnation: u32, token: Token) {
        let host = self.worker(id);
        if host.incarnation != incarnation || host.allegiance.is_none() {
            return;
        }
        let count = host.unsynced.iter().take_while(|(written, _)| *written <= token).count();
        if let Some((_, epoch)) = host.unsynced.drain(..count).next_back() {
            host.epoch = epoch;
        }
        self.step_allegiance(id, Input::Persisted(token));
    }

    pub(super) fn on_allegiance_timer(&mut self, id: NodeId, timer: allegiance::Timer, number: u64) {
        if self.worker(id).timers.get(&timer) == Some(&number) {
            self.worker(id).timers.remove(&timer);
            self.checks.seen.leases_over += u64::from(timer == allegiance::Timer::Lease);
            self.step_allegiance(id, Input::Timer(timer));
        }
    }

    fn on_allegiance_notice(&mut self, id: NodeId, notice: allegiance::Notice) {
        let farm = self.workers[&id].current();
        let current = Member { worker: id, farm };
        match notice {
            allegiance::Notice::Go { farm, loan } => self.go(id, &farm, loan),
            allegiance::Notice::Finish => self.step_duty(current, Input::Command(worker::Command::Open(false))),
            allegiance::Notice::Stop => self.stop(current),
            allegiance::Notice::ComeHome => self.come_home(id),
        }
    }

    /// It takes nothing more at home, and works for another farm; perhaps it has results from there still.
    fn go(&mut self, id: NodeId, farm: &str, loan: LoanId) {
        let farm = self.farms.iter().position(|host| host.name == farm).expect("only neighbours borrow");
        let home = self.workers[&id].home;
        self.worker(id).away = Some(farm);
        self.checks.on_go(id, (home, loan), &self.workers[&id].name, self.now_us);
        self.step_duty(Member { worker: id, farm: home }, Input::Command(worker::Command::Room(false)));
        let member = Member { worker: id, farm };
        let standing = worker::Allegiance::Lent(loan);
        match self.duty(member) {
            Some(duty) => {
                duty.is_over = false;
                self.step_duty(member, Input::Command(worker::Command::Open(true)));
                self.step_duty(member, Input::Command(worker::Command::Allegiance(standing)));
            }
            None => self.begin_duty(member, standing),
        }
        self.look_for_leader(member);
    }

    fn stop(&mut self, current: Member) {
        let duty = self.duty(current).into_iter();
        let unfinished: Vec<Held> = duty.flat_map(|duty| duty.machine.unfinished().collect::<Vec<_>>()).collect();
        self.checks.seen.stops += unfinished.len() as u64;
        for held in unfinished {
            self.duty(current).into_iter().for_each(|duty| _ = duty.running.remove(&held));
            self.step_duty(current, Input::Command(worker::Command::Abandoned(held)));
        }
    }

    fn come_home(&mut self, id: NodeId) {
        let host = self.worker(id);
        let (home, away) = (host.home, host.away.take());
        self.checks.on_come_home(id, self.now_us);
        if let Some(farm) = away {
            let member = Member { worker: id, farm };
            self.duty(member).into_iter().for_each(|duty| duty.is_over = true);
            let over = worker::Command::Allegiance(worker::Allegiance::Over);
            self.step_duty(member, Input::Command(over));
        }
        self.step_duty(Member { worker: id, farm: home }, Input::Command(worker::Command::Room(true)));
    }

    /// Its allegiance hears which leader of its own farm has welcomed it.
    fn tell_home(&mut self, member: Member) {
        let host = self.worker(member.worker);
        if host.home != member.farm {
            return;
        }
        let serves = host.duties.get(&member.farm).and_then(|duty| duty.machine.serves()).map(|(leader, _)| leader);
        if host.told_home != serves {
            host.told_home = serves;
            self.step_allegiance(member.worker, Input::Command(allegiance::Command::Home(serves)));
        }
    }

    /// And whether it has anything to do.
    fn tell_idle(&mut self, id: NodeId) {
        let host = self.worker(id);
        let is_idle = host.duties.get(&host.current()).is_none_or(|duty| duty.machine.is_idle());
        if host.told_idle != is_idle {
            host.told_idle = is_idle;
            self.step_allegiance(id, Input::Command(allegiance::Command::Idle(is_idle)));
        }
    }
}
