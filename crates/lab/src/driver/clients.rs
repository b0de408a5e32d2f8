//! Who wants something of the farms of a run: clients that write keys, read, look and submit; others that ask again and again
//! until they have what they want; and operators who lend and recall workers.

use std::collections::BTreeMap;

use primus_core::ledger::loans::name_here;
use primus_core::ledger::{Batch, Effect, Entry, Expansion, JobId, Spec};
use primus_core::loan::lending::LendOrder;
use primus_core::machine::{Delay, Input};
use primus_server::control::Command;
use primus_server::farm::{self, Answer, Refusal, Ticket};
use primus_server::record::{self, Draft};
use primus_server::register::{Change, Proposal};

use super::host::{FarmPlace, Known, Process, Read, WorkerHost, key_of};
use super::plan::{ClientsPlan, End};
use super::{Audience, Event, Run};
use crate::checks::State;
use crate::lending::{Books, Outcome};
use crate::node::NodeId;
use crate::tasks::{job, sleep};
use crate::timeline::play;

/// Whoever writes keys.
const CLIENTS: u64 = 7;
const WISHES_EVERY_US: u64 = 100_000;
/// How long a task waits before it is looked again whether somebody leads.
const UNTIL_LED: Delay = Delay { min_us: 10_000, max_us: 10_000 };
/// How often a client reads, of a million times that it is there.
const READS_PPM: u32 = 600_000;
/// How long all is quiet before one farm is flooded. Every new leader has lent nothing for as long as that.
const QUIET_US: u64 = 2_000_000;
/// How much every slot of the flooded farm gets: it takes three seconds.
const FLOOD_PER_SLOT: u64 = 15;
/// How long an operator lends somebody for.
const OPERATOR_LOAN_MS: u64 = 2_000;

/// What clients have done and heard.
#[derive(Debug, Default)]
pub(super) struct Clients {
    farms: BTreeMap<FarmPlace, Caller>,
    last_key: u64,
    last_pair: u64,
    /// Jobs that were submitted one right after the other: which pair a question belongs to, and which place in it.
    asked: BTreeMap<Ticket, (FarmPlace, u64, usize)>,
    pairs: BTreeMap<u64, [Option<JobId>; 2]>,
}

/// The clients of one farm.
#[derive(Debug, Default)]
struct Caller {
    known: Known,
    /// Keys after this one were written when the faults were over.
    last_in_trouble: Option<u64>,
    /// Where the first of those is in the log.
    wanted: Option<u64>,
}

/// What an operator wants of a farm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Lend,
    Recall,
}

impl<O: Audience> Run<'_, O> {
    /// Clients ask whoever leads, now and then, and see whether all is well again.
    pub(super) fn on_clients(&mut self) {
        let Some(ClientsPlan { every_us, pairs_ppm }) = self.plan.clients else { return };
        self.time.at(self.time.now_us + every_us, Event::Clients);
        if self.is_calm() {
            let last_key = self.clients.last_key;
            for farm in 0..self.farms.len() {
                self.clients.farms.entry(farm).or_default().last_in_trouble.get_or_insert(last_key);
            }
            if (0..self.farms.len()).all(|farm| self.is_healed(farm)) {
                self.tally.healed_us.get_or_insert(self.time.now_us - self.plan.faults_end_us);
            }
        }
        for farm in 0..self.farms.len() {
            let Some(leader) = self.leader_to_ask(farm) else { continue };
            if self.time.chance.happens(READS_PPM) {
                let (known, since) = (self.known(farm), self.checks.acknowledged(farm));
                self.read(leader, Read::Client(known, since));
            }
            self.write_key(leader);
            if self.time.chance.happens(pairs_ppm) {
                self.submit_pair(farm, leader);
            }
        }
    }

    fn known(&self, farm: FarmPlace) -> Known {
        self.clients.farms.get(&farm).map_or_else(Known::default, |caller| caller.known)
    }

    /// Control acknowledges it when it is agreed on. A client that looks after that must see it.
    fn write_key(&mut self, leader: NodeId) {
        self.clients.last_key += 1;
        let number = self.clients.last_key;
        let key = key_of(number);
        let value = number.to_string();
        let changes = vec![Change::Put(&key, value.as_bytes())];
        let record = record::of_register(&Proposal { origin: CLIENTS, number, changes });
        let Some(process) = self.process(leader) else { return };
        process.writes.insert(record.clone(), number);
        self.step_control(leader, Input::Command(Command::Write(vec![record], true)));
    }

    /// A client submits two jobs, one right after the other.
    fn submit_pair(&mut self, farm: FarmPlace, leader: NodeId) {
        self.clients.last_pair += 1;
        let pair = self.clients.last_pair;
        for place in 0..2 {
            let draft = Draft::new(&[submit(1, false, None, &format!("pair {pair}"))]);
            let ticket = self.ask_farm_for(leader, |ticket| farm::Command::Enter(ticket, draft));
            self.clients.asked.insert(ticket, (farm, pair, place));
        }
    }

    /// A client's write, at this place of the log, will last.
    pub(super) fn acknowledge(&mut self, farm: FarmPlace, key: u64, index: u64) {
        self.checks.on_acknowledged(farm, index);
        self.tally.acknowledged += 1;
        self.tally.on_write(self.time.now_us);
        let caller = self.clients.farms.entry(farm).or_default();
        caller.known.key = caller.known.key.max(key);
        if caller.last_in_trouble.is_some_and(|last| key > last) {
            caller.wanted.get_or_insert(index);
        }
    }

    pub(super) fn on_farm_answer(&mut self, id: NodeId, ticket: Ticket, answer: Result<Answer, Refusal>) {
        let Some(process) = self.process(id) else { return };
        if let Some(known) = process.looks.remove(&ticket) {
            if answer == Ok(Answer::Look) {
                let missing = process.misses(known);
                self.tally.looks += 1;
                self.checks.on_look(id.server(), missing);
            }
            return;
        }
        let Some((farm, pair, place)) = self.clients.asked.remove(&ticket) else { return };
        let Ok(Answer::Entered(effects)) = answer else { return };
        let [Effect::Submitted { job, .. }] = effects.as_slice() else { return };
        let caller = self.clients.farms.entry(farm).or_default();
        caller.known.job = caller.known.job.max(*job);
        self.tally.submitted += 1;
        let jobs = self.clients.pairs.entry(pair).or_default();
        jobs[place] = Some(*job);
        if let [Some(first), Some(second)] = *jobs {
            self.clients.pairs.remove(&pair);
            self.checks.on_both(first, second);
        }
    }

    /// Clients ask whoever believes to lead, again and again, until they have what they want.
    pub(super) fn on_wishes(&mut self) {
        self.time.at(self.time.now_us + WISHES_EVERY_US, Event::Wishes);
        for farm in 0..self.farms.len() {
            if self.farms[farm].wishes.is_empty() {
                continue;
            }
            if let Some(leader) = self.leader_to_ask(farm) {
                let draft = Draft::new(&self.farms[farm].wishes);
                self.ask_farm_for(leader, |ticket| farm::Command::Enter(ticket, draft));
            }
        }
    }

    /// A batch is agreed on.
    pub(super) fn on_batch(&mut self, farm: FarmPlace, batch: &Batch) {
        self.farms[farm].wishes.retain(|wish| !batch.entries.contains(wish));
        let names: Vec<&str> = self.farms.iter().map(|host| host.name.as_str()).collect();
        let effects = self.checks.on_batch(farm, &names, batch, self.time.now_us);
        effects.iter().for_each(|effect| self.on_truth(farm, effect));
    }

    /// What is agreed on is compared with where workers are.
    fn on_truth(&mut self, farm: FarmPlace, effect: &Effect) {
        let Effect::LoanEnded { loan, lent, ending } = effect else { return };
        let host = self.workers.values().find(|host| host.home == farm && host.name == lent.worker);
        let placement = host.and_then(WorkerHost::placement);
        let Some(borrower) = self.farm_named(&lent.to) else { return };
        let there = (borrower, name_here(&lent.worker, &self.farms[farm].name));
        self.checks.on_loan_ended(((farm, *loan), lent), *ending, placement, (there, self.time.now_us));
    }

    /// An operator lends somebody who is there, or wants somebody back.
    pub(super) fn on_order(&mut self, farm: FarmPlace, order: Order) {
        match order {
            Order::Lend => self.lend(farm),
            Order::Recall => {
                if let Some(loan) = self.checks.truth(farm).loans().lent().keys().next().copied() {
                    self.checks.stay.excuse((farm, loan));
                    self.farms[farm].wishes.push(Entry::Recall(loan));
                }
            }
        }
    }

    /// The leader is told to lend one worker, and another one right after that. The lending side decides whether a worker goes.
    fn lend(&mut self, farm: FarmPlace) {
        let to = self.time.chance.pick(&self.neighbours(farm));
        let order = LendOrder { to: self.farms[to].name.clone(), count: 1, for_ms: OPERATOR_LOAN_MS };
        let Some(leader) = self.leader_to_ask(farm) else { return };
        for _ in 0..2 {
            self.ask_farm_for(leader, |ticket| farm::Command::Lend(ticket, order.clone()));
        }
    }
}

/// The end of a run.
impl<O: Audience> Run<'_, O> {
    fn states(&self, farm: FarmPlace) -> Vec<State> {
        let servers = self.farms[farm].server_ids.iter();
        let live = servers.filter_map(|id| Some((id.server(), self.servers[id].process.as_deref()?)));
        let state = |(id, process): (_, &Process)| State {
            id,
            leader: process.control.machine.leader(),
            applied: process.relay.applied(),
        };
        live.map(state).collect()
    }

    fn is_healed(&self, farm: FarmPlace) -> bool {
        let wanted = self.clients.farms.get(&farm).and_then(|caller| caller.wanted);
        crate::checks::is_healed(&self.states(farm), wanted)
    }

    /// Everything has ended, everybody knows, and nobody keeps anything; twice, if one farm is flooded in between.
    pub(super) fn is_at_rest(&mut self) -> bool {
        if self.time.now_us < self.plan.faults_end_us + WISHES_EVERY_US * 2 {
            return false;
        }
        if !self.is_quiet() {
            self.quiet_since_us = None;
            return false;
        }
        let since_us = *self.quiet_since_us.get_or_insert(self.time.now_us);
        let must_flood = matches!(self.plan.end, End::AtRest { flood: true, .. });
        if self.flooded.is_some() || !must_flood {
            return true;
        }
        if since_us + QUIET_US < self.time.now_us {
            self.flood();
        }
        false
    }

    fn is_quiet(&self) -> bool {
        let knows_all = |host: &super::ServerHost| {
            let known = host.process.as_ref().map(|process| (process.relay.applied(), process.told.is_empty()));
            known.is_some_and(|(applied, is_told)| is_told && applied >= self.checks.committed(host.farm))
        };
        let is_granted = self.farms.iter().all(|farm| farm.wishes.is_empty());
        is_granted && self.checks.is_at_rest() && self.kept() == 0 && self.servers.values().all(knows_all)
    }

    /// Now one farm gets much more than it can do, and the others have nothing to do.
    fn flood(&mut self) {
        let farm = self.any_farm();
        let alive = |host: &&WorkerHost| host.process.is_some();
        let own = self.workers.values().filter(alive).filter(|host| host.home == farm);
        let slots: u64 = own.map(|host| u64::from(host.slots)).sum();
        let number_of = |other| self.workers.values().filter(alive).filter(|host| host.home == other).count();
        let reserve = self.plan.server.lending.rules.reserve as usize;
        let can_help = (0..self.farms.len()).any(|other| other != farm && number_of(other) > reserve);
        self.flooded = Some(farm);
        self.checks.on_flood(farm, can_help);
        self.quiet_since_us = None;
        self.farms[farm].wishes.push(submit(slots * FLOOD_PER_SLOT, false, Some("flood"), ""));
    }

    pub(super) fn judge_end(&mut self) {
        for farm in 0..self.farms.len() {
            self.check_who_knows_most(farm);
            if self.plan.clients.is_some() {
                let wanted = self.clients.farms.get(&farm).and_then(|caller| caller.wanted);
                let states = self.states(farm);
                self.checks.on_end_of_cluster(farm, &states, wanted);
            }
        }
        match self.plan.end {
            End::AtRest { flood, .. } => {
                let kept = self.kept();
                self.checks.on_end_of_tasks(kept, (flood, self.flooded.is_some()));
            }
            End::At(_) => {
                let guards = &self.guards;
                let candidates = |group: &str| guards.values().filter(|host| host.is_candidate(group)).count();
                self.checks.on_end_of_leases(self.time.now_us, candidates);
            }
            End::Healed { .. } => {}
        }
    }

    /// In the end the farm that knows most of the log has everything that was acknowledged.
    fn check_who_knows_most(&mut self, farm: FarmPlace) {
        let states = self.states(farm);
        let Some(most) = states.iter().map(|state| state.applied).max() else { return };
        let known = self.known(farm);
        for state in states.iter().filter(|state| state.applied == most) {
            let id = NodeId::from(state.id);
            self.let_farm_catch_up(id);
            let missing = self.process(id).and_then(|process| process.misses(known));
            self.checks.on_look(state.id, missing);
        }
    }
}

/// A day of load.
impl<O: Audience> Run<'_, O> {
    /// Lets a day pass, and closes its books.
    pub(crate) fn live(mut self, books: Books) -> Outcome {
        self.books = Some(books);
        (0..self.farms.len()).for_each(|farm| self.expect_task(farm));
        self.begin();
        play(&mut self);
        self.time.now_us = self.time.now_us.min(self.day_end_us());
        for worker in self.workers.keys().copied().collect::<Vec<_>>() {
            self.stop_all(worker);
        }
        let loans = self.checks.seen("loans");
        self.books.take().expect("it has just been used").close(loans)
    }

    const fn day_end_us(&self) -> u64 {
        match self.plan.end {
            End::At(end_us) => end_us,
            End::Healed { .. } | End::AtRest { .. } => u64::MAX,
        }
    }

    fn expect_task(&mut self, farm: FarmPlace) {
        let next = self.books.as_mut().and_then(|books| books.next_task(farm));
        next.into_iter().for_each(|(at_us, takes_us)| self.time.at(at_us, Event::Submit(farm, takes_us)));
    }

    /// A task comes. Before there is a leader, it waits.
    pub(super) fn on_submit(&mut self, farm: FarmPlace, takes_us: u64) {
        match self.leader_to_ask(farm) {
            Some(leader) => {
                let spec = job(sleep(takes_us.to_be_bytes().to_vec()), Expansion::One);
                let draft = Draft::new(&[Entry::Submit { spec, key: None }]);
                self.ask_farm_for(leader, |ticket| farm::Command::Enter(ticket, draft));
                self.expect_task(farm);
            }
            None => self.time.after(UNTIL_LED, Event::Submit(farm, takes_us)),
        }
    }
}

/// A job of so many tasks.
pub(crate) fn submit(tasks: u64, is_once: bool, key: Option<&str>, name: &str) -> Entry {
    let job = job(sleep(Vec::new()), Expansion::Array { first: 1, last: tasks });
    let spec = Spec { name: name.to_owned(), is_once, ..job };
    Entry::Submit { spec, key: key.map(str::to_owned) }
}
