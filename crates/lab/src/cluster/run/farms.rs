//! The farms of a run: their turns, what they want of control, and clients that submit and look.

use std::collections::BTreeMap;

use primus_core::ServerId;
use primus_core::ledger::{Effect, Entry, Fan, JobId, Spec, Work};
use primus_core::machine::{Delay, Input};
use primus_replica::message as replica;
use primus_replica::replica::Refusal;
use primus_server::control::Command;
use primus_server::farm::{self, Ticket, Timer};
use primus_server::record::{self, Draft};
use primus_server::register::{Change, Proposal};

use super::{Event, Observer, Run, Server, place};
use crate::cluster::farm::{Came, FarmHost, Known, Wish, key_of};

/// How long a farm's thread, or control's, takes to hear what the other one says.
const HEARING: Delay = Delay { min_us: 5, max_us: 200 };
/// The same while it is busy.
const BUSY: Delay = Delay { min_us: 200, max_us: 30_000 };
const BUSY_PPM: u32 = 100_000;
/// When what control did not take is tried again.
const AGAIN: Delay = Delay { min_us: 1_000, max_us: 1_000 };
/// Who writes keys.
const CLIENTS: u64 = 7;

/// Clients of farms.
#[derive(Debug, Default)]
pub(super) struct Callers {
    last_ticket: u64,
    last_pair: u64,
    /// Jobs that were submitted one right after the other: which pair a question belongs to, and which place in it.
    asked: BTreeMap<Ticket, (u64, usize)>,
    pairs: BTreeMap<u64, [Option<JobId>; 2]>,
    last_read: u64,
    last_key: u64,
    /// What clients have been told: the newest job, and the newest key.
    job: Option<JobId>,
    key: u64,
    /// How many jobs were acknowledged, and how many looks answered.
    pub(super) submitted: u64,
    pub(super) looked: u64,
}

/// Numbers of reads from here on belong to clients of farms.
const READS_FROM: u64 = 1 << 40;

impl Callers {
    fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    fn known(&self) -> Known {
        Known { job: self.job.unwrap_or(JobId(0)), key: self.key }
    }
}

impl<O: Observer<Server>> Run<'_, O> {
    pub(super) fn start_farm(&mut self, id: ServerId) {
        if !self.cluster.whole {
            return;
        }
        let (servers, planted) = (self.ids.len(), self.cluster.planted);
        let snapshot_every = self.pattern.snapshot_every;
        let host = self.host(id);
        let snapshot = host.process.as_ref().and_then(|server| server.replica().log().snapshot().cloned());
        host.farm =
            Some(FarmHost::new(id, host.incarnation, (servers, planted), (snapshot.as_ref(), snapshot_every)));
    }

    /// Lets control tell the farm something; then the farm has a turn before long.
    pub(super) fn tell_farm<T>(&mut self, id: ServerId, tell: impl FnOnce(&mut FarmHost) -> T) -> Option<T> {
        let said = self.host(id).farm.as_mut().map(tell)?;
        self.wake(id, |at, incarnation| Event::Farm { at, incarnation });
        Some(said)
    }

    fn wake(&mut self, id: ServerId, event: impl FnOnce(ServerId, u32) -> Event) {
        let delay = if self.chance.happens(BUSY_PPM) { BUSY } else { HEARING };
        let incarnation = self.host(id).incarnation;
        self.after(delay, event(id, incarnation));
    }

    /// Those who may ask the farm do so.
    pub(super) fn let_look(&mut self, id: ServerId) {
        let ready = self.host(id).farm.as_mut().map(FarmHost::take_ready).unwrap_or_default();
        for known in ready {
            let ticket = self.callers.ticket();
            self.tell_farm(id, |farm| farm.look(ticket, known));
        }
    }

    /// An entry is agreed on.
    pub(super) fn tell_committed(&mut self, id: ServerId, entry: &replica::Entry) {
        let written = self.tell_farm(id, |farm| farm.on_committed(entry)).flatten();
        self.callers.key = self.callers.key.max(written.unwrap_or(0));
        self.let_look(id);
    }

    /// A client submits two jobs, one right after the other, writes a key, or looks at what there is.
    pub(super) fn ask_farm(&mut self, leader: ServerId) {
        if !self.cluster.whole {
            return;
        }
        match self.chance.below(4) {
            0 => self.submit(leader),
            1 => self.write_key(leader),
            _ => {
                self.callers.last_read += 1;
                let (number, known) = (READS_FROM + self.callers.last_read, self.callers.known());
                self.host(leader).farm.iter_mut().for_each(|farm| farm.read(number, known));
                self.step(leader, Input::Command(Command::Read(number)));
            }
        }
    }

    fn submit(&mut self, leader: ServerId) {
        self.callers.last_pair += 1;
        let pair = self.callers.last_pair;
        for number in 0..2 {
            let ticket = self.callers.ticket();
            self.callers.asked.insert(ticket, (pair, number));
            self.tell_farm(leader, |farm| farm.ask(farm::Command::Enter(ticket, Draft::new(&[job(pair)]))));
        }
    }

    /// Control acknowledges it when it is agreed on. A client that looks after that must see it.
    fn write_key(&mut self, leader: ServerId) {
        self.callers.last_key += 1;
        let number = self.callers.last_key;
        let key = key_of(number);
        let changes = vec![Change::Put(&key, b"written")];
        let record = record::of_register(&Proposal { origin: CLIENTS, number, changes });
        self.host(leader).farm.iter_mut().for_each(|farm| farm.write(record.clone(), number));
        self.step(leader, Input::Command(Command::Propose(vec![record])));
    }

    pub(super) fn on_farm(&mut self, at: ServerId, incarnation: u32) {
        let (now_us, place) = (self.clock_us(at), place(at));
        let host = &mut self.hosts[place];
        if host.incarnation == incarnation
            && let Some(farm) = &mut host.farm
        {
            let came = farm.turn(now_us, &mut self.chance);
            self.on_came(at, came);
        }
    }

    pub(super) fn on_farm_timer(&mut self, at: ServerId, timer: Timer, number: u64) {
        let now_us = self.clock_us(at);
        if let Some(came) = self.host(at).farm.as_mut().map(|farm| farm.on_timer(timer, number, now_us)) {
            self.on_came(at, came);
        }
    }

    fn on_came(&mut self, at: ServerId, came: Came) {
        for (timer, delay) in came.timers {
            self.next_number += 1;
            let number = self.next_number;
            let Some(farm) = &mut self.hosts[place(at)].farm else { return };
            match delay {
                None => farm.cancel_timer(timer),
                Some(delay) => {
                    farm.set_timer(timer, number);
                    self.after(delay.skewed(self.skew_ppm(at)), Event::FarmTimer { at, timer, number });
                }
            }
        }
        came.answers.into_iter().for_each(|(ticket, effects)| self.on_answer(ticket, effects.as_deref()));
        for missing in came.looks {
            self.callers.looked += 1;
            self.checks.on_look(at, missing);
        }
        if came.is_behind {
            self.wake(at, |at, incarnation| Event::Farm { at, incarnation });
        }
        if came.has_wishes {
            self.wake(at, |at, incarnation| Event::Wishes { at, incarnation });
        }
    }

    fn on_answer(&mut self, ticket: Ticket, effects: Option<&[Effect]>) {
        let Some((pair, number)) = self.callers.asked.remove(&ticket) else { return };
        let Some([Effect::Submitted { job, .. }]) = effects else { return };
        self.callers.job = self.callers.job.max(Some(*job));
        self.callers.submitted += 1;
        let jobs = self.callers.pairs.entry(pair).or_default();
        jobs[number] = Some(*job);
        if let [Some(first), Some(second)] = *jobs {
            self.callers.pairs.remove(&pair);
            self.checks.on_both(first, second);
        }
    }

    /// Control hears what the farm wants, in order.
    pub(super) fn on_wishes(&mut self, at: ServerId, incarnation: u32) {
        if self.host(at).incarnation != incarnation {
            return;
        }
        while let Some(wish) = self.host(at).farm.as_mut().and_then(FarmHost::next_wish) {
            match wish {
                Wish::Append(term, records) if self.leading[place(at)] == Some(term) => {
                    self.refused = None;
                    self.step(at, Input::Command(Command::Propose(records)));
                    // What is not taken is tried again, and nothing overtakes it.
                    if let Some((Refusal::Busy, records)) = self.refused.take() {
                        self.host(at).farm.iter_mut().for_each(|farm| farm.put_back(term, records.clone()));
                        return self.after(AGAIN, Event::Wishes { at, incarnation });
                    }
                }
                Wish::Append(..) => {}
                Wish::Compact(index, state) => {
                    self.checks.on_state(at, index, &state);
                    self.host(at).farm.iter_mut().for_each(|farm| farm.on_cut(index));
                    self.step(at, Input::Command(Command::Compact(index, state)));
                }
            }
        }
    }

    /// In the end the farm that knows most of the log has everything that was acknowledged.
    pub(super) fn check_farms(&mut self) {
        let most = self.hosts.iter().map(|host| host.owner.applied).max();
        for id in self.ids.clone() {
            let (now_us, known) = (self.clock_us(id), self.callers.known());
            let host = self.host(id);
            let knows_most = Some(host.owner.applied) == most;
            if let Some(farm) = host.farm.as_mut().filter(|_| knows_most) {
                farm.catch_up(now_us);
                let missing = farm.misses(known);
                self.checks.on_look(id, missing);
            }
        }
    }
}

fn job(pair: u64) -> Entry {
    let spec = Spec {
        name: format!("pair {pair}"),
        work: Work::Kind { name: "noop".to_owned(), input: Vec::new() },
        fan: Fan::One,
        retries: 0,
        timeout_ms: None,
        is_once: false,
        priority: 0,
        cpus: 1,
    };
    Entry::Submit { spec, key: None }
}
