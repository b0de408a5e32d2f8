//! The farm of a server: what is agreed on about keys, tasks, leases and loans, and what the leader does with it.
//!
//! Three machines meet here and nowhere else: the foreman, which hands out tasks, the lending side, which lends and borrows
//! workers, and the log, which says what is agreed on. Leases ([`crate::leases`]) stand beside it. What one of them says to another takes its
//! turn in a queue, so nothing is overtaken. The owner tells what arrives, and at the end of its turn ([`Command::Turn`]) gets
//! one batch for the log.
//!
//! A question waits here under a [`Ticket`]. One that comes before this server is ready to lead waits until it is; one that
//! wants to look says which part of the log it must see ([`Command::Look`]).

mod neighbourhood;
mod proposals;
mod questions;
mod waiters;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primus_core::farm::foreman::{self, Foreman};
use primus_core::ledger::loans::home_of;
use primus_core::ledger::roll::{Done, Node, Revocation};
use primus_core::ledger::{Effect, Entry, Ledger, Limits, Timekeeper};
use primus_core::loan::{Lending, WorkerMessage, lending};
use primus_core::machine::{Input, Machine, Moment, Never, Outbox, Output};
use primus_core::planted::{Bug, Planted};
use primus_core::{ServerId, Term, WorkerId, farm};

use self::neighbourhood::Neighbourhood;
use self::proposals::Proposals;
use self::questions::Questions;
pub use self::words::{Answer, Awaited, Command, Message, Notice, Peer, Refusal, Ticket, Timer};
use crate::record::{Assembly, Content, State};
use crate::register::Register;
use crate::room::Disks;

/// The farm of one server.
#[derive(Debug)]
pub struct Farm {
    id: ServerId,
    now: Moment,
    foreman: Foreman,
    lending: Lending,
    neighbourhood: Neighbourhood,
    /// What they have to say to each other, and to others: used again and again, so that stepping allocates nothing.
    inner: VecDeque<Inner>,
    outboxes: Outboxes,
    register: Register,
    /// How many bytes of content there may be.
    state_max: u64,
    disks: Disks,
    applied: Applied,
    proposals: Proposals,
    /// Who leads, as far as this server knows, and in which term this server does.
    leader: Option<ServerId>,
    leads: Option<Term>,
    /// The timers of the foreman that run.
    timers: BTreeSet<foreman::Timer>,
    links: BTreeMap<WorkerId, String>,
    questions: Questions,
    loans: Loans,
    time: Time,
    planted: Planted,
}

/// What a farm goes by.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How tasks are handed out.
    pub work: foreman::Rules,
    /// How workers are lent and borrowed.
    pub lending: lending::Rules,
    /// The other farms that the configuration names; the roll may name more.
    pub neighbours: Vec<String>,
    /// How much the ledger keeps.
    pub limits: Limits,
    /// How many bytes of keys, jobs and results there may be: beyond that nothing new is taken.
    pub state_max: u64,
    /// How many servers the cluster has.
    pub servers: usize,
    /// A known bug, to see whether tests find it.
    pub planted: Planted,
}

/// One machine of the farm, and what it is to hear.
#[derive(Debug)]
enum Inner {
    Foreman(Input<Foreman>),
    Lending(Input<Lending>),
}

#[derive(Debug, Default)]
struct Outboxes {
    foreman: Outbox<Foreman>,
    lending: Outbox<Lending>,
}

/// What came from the log.
#[derive(Debug, Default)]
struct Applied {
    assembly: Assembly,
    /// How far it is applied here.
    index: u64,
    /// Whose batch is being applied.
    batch: Option<(u64, u64)>,
}

/// What the lending side needs of the others.
#[derive(Debug, Default)]
struct Loans {
    is_on: bool,
    /// What it says to workers: they hear it at the end of the turn, after what they have to do.
    words: Vec<(String, WorkerMessage)>,
}

/// What time it is for the ledger, and how much it shall keep.
#[derive(Debug)]
struct Time {
    keeper: Timekeeper,
    limits: Limits,
    asked: Option<Limits>,
}

impl Farm {
    /// The farm of this server, in this process. Nothing is agreed on yet.
    #[must_use]
    pub fn new(id: ServerId, origin: u64, rules: Rules) -> Self {
        let keeper = Timekeeper::new(id, rules.servers);
        Self {
            id,
            now: Moment::START,
            foreman: Foreman::new(rules.work, Ledger::new(Limits::default())),
            lending: Lending::new(rules.lending, rules.neighbours.clone()),
            neighbourhood: Neighbourhood::new(rules.neighbours),
            inner: VecDeque::new(),
            outboxes: Outboxes::default(),
            register: Register::default(),
            state_max: rules.state_max,
            disks: Disks::Free,
            applied: Applied::default(),
            proposals: Proposals::new(origin, rules.planted),
            planted: rules.planted,
            leader: None,
            leads: None,
            timers: BTreeSet::new(),
            links: BTreeMap::new(),
            questions: Questions::default(),
            loans: Loans::default(),
            time: Time { keeper, limits: rules.limits, asked: None },
        }
    }

    /// What is agreed on.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        self.foreman.ledger()
    }

    /// Keys and values that are agreed on.
    #[must_use]
    pub const fn register(&self) -> &Register {
        &self.register
    }

    /// How many bytes of content are agreed on, about.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.register.len_bytes() as u64 + self.ledger().len_bytes()
    }

    /// Is there as much content as there may be?
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len_bytes() >= self.state_max
    }

    /// All that is agreed on, as it is now.
    #[must_use]
    pub fn state(&self) -> State {
        State { register: self.register.clone(), ledger: self.ledger().clone() }
    }

    /// The one that hands out tasks, to look at.
    #[must_use]
    pub const fn foreman(&self) -> &Foreman {
        &self.foreman
    }

    /// The one that lends and borrows workers, to look at.
    #[must_use]
    pub const fn lending(&self) -> &Lending {
        &self.lending
    }

    /// The whole agreed state, up to this place in the log, came from elsewhere.
    pub fn restore(&mut self, now: Moment, index: u64, state: State) {
        self.now = now;
        self.time.keeper.on_applied(state.ledger.newest_ms(), self.now_ms());
        if !self.planted.is(Bug::HalfRestored) {
            self.register = state.register;
        }
        self.foreman.restore(state.ledger);
        self.know_neighbours();
        self.applied = Applied { index, ..Applied::default() };
    }

    /// Does this server lead, and is it ready to?
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.leads.is_some()
    }

    /// Why this server does not answer, if it does not lead.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        Refusal::of(self.id, self.leader)
    }

    /// What time it is for the ledger; false if it may be later.
    #[must_use]
    pub fn time_ms(&self) -> (u64, bool) {
        (self.time.keeper.time_ms(self.now_ms()), self.time.keeper.is_sure())
    }

    const fn now_ms(&self) -> u64 {
        self.now.0 / 1000
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Committed(index, record) => self.on_committed(index, &record, out),
            Command::Leader(leader) => self.on_leader(leader, out),
            Command::Lead(term) => self.on_lead(term, out),
            Command::Clock(server, shows_ms) => self.on_clock(server, shows_ms, out),
            Command::Want(term, entries) => {
                if self.leads == Some(term) {
                    self.proposals.want(entries);
                }
            }
            Command::Link(worker, name) => self.on_link(worker, name, out),
            Command::Room(disks) => {
                self.disks = disks;
                self.proposals.set_room(disks != Disks::Stuck);
            }
            Command::Forget(tickets) => self.forget(&tickets),
            Command::Turn(shows_ms) => self.end_turn(shows_ms, out),
            Command::Enter(..) | Command::Await(..) | Command::Look(..) | Command::Lend(..) => {
                self.on_question(Input::Command(command), out);
            }
        }
    }

    fn on_worker(&mut self, from: WorkerId, message: Message, out: &mut Outbox<Self>) {
        let Some(name) = self.links.get(&from) else {
            return out.ignore("what was on its way when the link was dropped");
        };
        match message {
            Message::Work(farm::Message::Hello(hello)) if hello.name != *name => {
                out.notify(Notice::Close(from));
                self.on_link_down(from, out);
            }
            Message::Work(message) => self.step_inner(Inner::Foreman(Input::Message { from, message }), out),
            // A guest has nothing to tell but its own farm.
            Message::Placement(word) if self.loans.is_on && home_of(name).is_none() => {
                self.tell_office(lending::Command::Said(name.clone(), word), out);
            }
            _ => out.ignore("what no worker says here"),
        }
    }

    fn on_link(&mut self, worker: WorkerId, name: String, out: &mut Outbox<Self>) {
        self.links.insert(worker, name);
        if let Some(term) = self.leads {
            out.send(Peer::Worker(worker), Message::Leads(term));
        }
    }

    fn on_link_down(&mut self, worker: WorkerId, out: &mut Outbox<Self>) {
        if self.links.remove(&worker).is_some() {
            self.step_inner(Inner::Foreman(Input::LinkDown(worker)), out);
        }
    }

    fn say_to_workers(&self, message: &Message, out: &mut Outbox<Self>) {
        self.links.keys().for_each(|worker| out.send(Peer::Worker(*worker), message.clone()));
    }
}

/// Who leads.
impl Farm {
    /// Another server leads, or nobody, or this one is not ready yet: what it knew as a leader is void.
    fn on_leader(&mut self, leader: Option<ServerId>, out: &mut Outbox<Self>) {
        self.leader = leader;
        if self.leads.take().is_some() {
            self.tell_foreman(foreman::Command::Follow, out);
            self.say_to_workers(&Message::Follows, out);
        }
        self.stop_lending(out);
        // What runs beside this server does not depend on who leads.
        for timer in self.timers.extract_if(.., |timer| !matches!(timer, foreman::Timer::Beside(_))) {
            out.cancel(Timer::Work(timer));
        }
        self.time.keeper.follow();
        self.time.asked = None;
        let unknown = self.proposals.clear();
        unknown.into_iter().for_each(|ticket| out.notify(Notice::Answer(ticket, Err(Refusal::Unknown))));
        let refusal = self.refusal();
        let later = std::mem::take(&mut self.questions.later).into_keys().map(|(_, ticket)| ticket);
        for ticket in self.questions.waiters.take_all().into_iter().chain(later) {
            out.notify(Notice::Answer(ticket, Err(refusal)));
        }
        self.ask_again(out);
    }

    fn stop_lending(&mut self, out: &mut Outbox<Self>) {
        self.loans.words.clear();
        if std::mem::take(&mut self.loans.is_on) {
            self.tell_office(lending::Command::Follow, out);
            out.cancel(Timer::Loan(lending::Timer::Look));
            out.notify(Notice::Lending(false));
        }
    }

    fn on_lead(&mut self, term: Term, out: &mut Outbox<Self>) {
        self.leads = Some(term);
        self.time.keeper.lead(self.now_ms());
        // Workers serve it before it asks them who they are.
        self.say_to_workers(&Message::Leads(term), out);
        self.tell_foreman(foreman::Command::Lead(term), out);
        out.notify(Notice::Held(term, self.ledger().groups().clone()));
        // A farm that has no neighbours any more may still have lent to one, or borrowed.
        let loans = self.ledger().loans().clone();
        self.loans.is_on = self.lending.neighbours().next().is_some() || !loans.is_empty();
        if self.loans.is_on {
            out.notify(Notice::Lending(true));
            self.tell_office(lending::Command::Lead(term, loans), out);
        }
        self.keep_limits();
        self.ask_again(out);
    }
}

/// The log.
impl Farm {
    fn on_committed(&mut self, index: u64, record: &[u8], out: &mut Outbox<Self>) {
        if let Content::Register(proposal) = Content::of(record) {
            self.register.apply(index, proposal);
        } else if let Some(filed) = self.applied.assembly.take(record) {
            self.time.keeper.on_applied(filed.batch.time_ms, self.now_ms());
            self.applied.batch = Some((filed.origin, filed.number));
            self.tell_foreman(foreman::Command::Apply(filed.batch), out);
        }
        self.applied.index = index;
        self.let_look(out);
    }

    fn on_applied(&mut self, effects: Vec<Effect>, out: &mut Outbox<Self>) {
        for ticket in self.questions.waiters.on_effects(&effects, self.foreman.ledger()) {
            out.notify(Notice::Answer(ticket, Ok(Answer::Ended)));
        }
        self.tell_of_leases(&effects, out);
        self.pass_on_to_office(&effects, out);
        self.see_to_the_roll(&effects, out);
        let ticket =
            self.applied.batch.take().and_then(|(origin, number)| self.proposals.on_applied(origin, number));
        if let Some(ticket) = ticket {
            out.notify(Notice::Answer(ticket, Ok(Answer::Entered(effects))));
        }
    }

    fn tell_of_leases(&self, effects: &[Effect], out: &mut Outbox<Self>) {
        let is_about_leases = |effect: &&Effect| matches!(effect, Effect::Granted { .. } | Effect::Released { .. });
        let effects: Vec<Effect> = effects.iter().filter(is_about_leases).cloned().collect();
        if let Some(term) = self.leads.filter(|_| !effects.is_empty()) {
            out.notify(Notice::Leases(term, effects));
        }
    }

    /// Links of workers that are trusted no more are closed, on every server; what they had runs elsewhere.
    fn see_to_the_roll(&mut self, effects: &[Effect], out: &mut Outbox<Self>) {
        let mut has_changed = false;
        for effect in effects {
            let Effect::Roll(Ok(done)) = effect else { continue };
            has_changed = true;
            match done {
                Done::Forgotten(name) => {
                    self.close_links_of(name, out);
                    out.notify(Notice::Forgotten(name.clone()));
                }
                Done::Revoked(Revocation::Node(Node::Worker(name))) => self.close_links_of(name, out),
                _ => {}
            }
        }
        if has_changed {
            self.see_to_neighbours(out);
            out.notify(Notice::Roll);
        }
    }

    fn close_links_of(&mut self, name: &str, out: &mut Outbox<Self>) {
        for (link, _) in self.links.extract_if(.., |_, other| other == name) {
            out.notify(Notice::Close(link));
            self.inner.push_back(Inner::Foreman(Input::LinkDown(link)));
        }
    }

    fn pass_on_to_office(&mut self, effects: &[Effect], out: &mut Outbox<Self>) {
        if !self.loans.is_on {
            return;
        }
        let is_about_loans = |effect: &&Effect| {
            matches!(effect, Effect::Lent(_) | Effect::Recalled(_) | Effect::LoanEnded { .. })
                || matches!(effect, Effect::Borrowed(_) | Effect::GivenBack(..))
        };
        let told: Vec<Effect> = effects.iter().filter(is_about_loans).cloned().collect();
        // Who is missing may have changed.
        let has_changed = |effect: &Effect| matches!(effect, Effect::Left(_) | Effect::Workers);
        let loans = self.foreman.ledger().loans();
        if !told.is_empty() || !loans.is_empty() && effects.iter().any(has_changed) {
            self.inner.push_back(Inner::Lending(Input::Command(lending::Command::Agreed(loans.clone()))));
        }
        if !told.is_empty() {
            out.notify(Notice::Loans(told));
        }
    }

    /// What this turn came to leaves in one go.
    fn end_turn(&mut self, shows_ms: u64, out: &mut Outbox<Self>) {
        if let Some(term) = self.leads.filter(|_| self.proposals.is_due()) {
            self.time.keeper.on_clock(self.id, shows_ms, self.now_ms());
            let time_ms = self.time.keeper.time_ms(self.now_ms());
            // The next batch is not earlier, whatever the clocks say by then.
            self.time.keeper.on_applied(time_ms, self.now_ms());
            let records = self.proposals.take(time_ms);
            if !records.is_empty() {
                out.notify(Notice::Append(term, records));
            }
        }
        for (name, word) in std::mem::take(&mut self.loans.words) {
            let link = self.links.iter().find(|(_, other)| **other == name).map(|(link, _)| *link);
            link.into_iter().for_each(|link| out.send(Peer::Worker(link), Message::Placement(word.clone())));
        }
    }

    fn on_clock(&mut self, server: ServerId, shows_ms: u64, out: &mut Outbox<Self>) {
        self.time.keeper.on_clock(server, shows_ms, self.now_ms());
        self.time.keeper.take_notices().into_iter().for_each(|notice| out.notify(Notice::Clock(notice)));
        self.keep_limits();
    }

    /// How much the ledger keeps is agreed on, too.
    fn keep_limits(&mut self) {
        let wanted = self.time.keeper.limits(self.time.limits, self.now_ms());
        let is_known = self.ledger().limits() == wanted;
        if self.leads.is_some() && !is_known && self.time.asked != Some(wanted) {
            self.proposals.want([Entry::Limit(wanted)]);
            self.time.asked = Some(wanted);
        } else if is_known {
            self.time.asked = None;
        }
    }
}

/// The machines inside.
impl Farm {
    fn tell_foreman(&mut self, command: foreman::Command, out: &mut Outbox<Self>) {
        self.step_inner(Inner::Foreman(Input::Command(command)), out);
    }

    fn tell_office(&mut self, command: lending::Command, out: &mut Outbox<Self>) {
        self.step_inner(Inner::Lending(Input::Command(command)), out);
    }

    /// Lets one of them take a step, and then those that it has something to say to.
    fn step_inner(&mut self, first: Inner, out: &mut Outbox<Self>) {
        self.inner.push_back(first);
        while let Some(next) = self.inner.pop_front() {
            match next {
                Inner::Foreman(input) => {
                    let mut outbox = std::mem::take(&mut self.outboxes.foreman);
                    self.foreman.step(self.now, input, &mut outbox);
                    outbox.drain().for_each(|output| self.on_foreman(output, out));
                    self.outboxes.foreman = outbox;
                }
                Inner::Lending(input) => {
                    let mut outbox = std::mem::take(&mut self.outboxes.lending);
                    self.lending.step(self.now, input, &mut outbox);
                    outbox.drain().for_each(|output| self.on_office(output, out));
                    self.outboxes.lending = outbox;
                }
            }
        }
    }

    fn on_foreman(&mut self, output: Output<Foreman>, out: &mut Outbox<Self>) {
        match output {
            Output::Send { to, message } => out.send(Peer::Worker(to), Message::Work(message)),
            Output::Set { timer, delay } => {
                self.timers.insert(timer);
                out.set(Timer::Work(timer), delay);
            }
            Output::Cancel(timer) => {
                self.timers.remove(&timer);
                out.cancel(Timer::Work(timer));
            }
            Output::Notify(foreman::Notice::Propose(entries)) => self.proposals.want(entries),
            Output::Notify(foreman::Notice::Applied(effects)) => self.on_applied(effects, out),
            Output::Notify(foreman::Notice::Arrived(worker, loan, slots)) if self.loans.is_on => {
                let arrived = lending::Command::Arrived(worker, loan, slots);
                self.inner.push_back(Inner::Lending(Input::Command(arrived)));
            }
            Output::Notify(foreman::Notice::Arrived(..)) => {
                out.ignore("a worker of a farm that is not a neighbour");
            }
            Output::Notify(foreman::Notice::Beside(tasks)) => out.notify(Notice::Beside(tasks)),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }

    fn on_office(&mut self, output: Output<Lending>, out: &mut Outbox<Self>) {
        match output {
            Output::Send { to, message } => out.send(Peer::Neighbour(to), Message::Loan(message)),
            Output::Set { timer, delay } => out.set(Timer::Loan(timer), delay),
            Output::Cancel(timer) => out.cancel(Timer::Loan(timer)),
            Output::Notify(lending::Notice::Propose(entries)) => self.proposals.want_loans(entries),
            // As long as it is not settled how things are, it is not told.
            Output::Notify(lending::Notice::LookAround) => {
                let situation = self.foreman.situation(self.time.keeper.time_ms(self.now_ms()));
                let tell = |situation| Inner::Lending(Input::Command(lending::Command::Situation(situation)));
                self.inner.extend(situation.map(tell));
            }
            Output::Notify(lending::Notice::Tell(worker, word)) => self.loans.words.push((worker, word)),
            Output::Notify(lending::Notice::Happened(happening)) => out.notify(Notice::Happened(happening)),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }
}

impl Machine for Farm {
    type Peer = Peer;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        self.now = now;
        match input {
            Input::Message { from: Peer::Worker(from), message } => self.on_worker(from, message, out),
            Input::Message { from: Peer::Neighbour(from), message: Message::Loan(message) } => {
                self.step_inner(Inner::Lending(Input::Message { from, message }), out);
            }
            Input::Message { .. } => out.ignore("what no neighbour says"),
            Input::Timer(Timer::Work(timer)) => {
                self.timers.remove(&timer);
                self.step_inner(Inner::Foreman(Input::Timer(timer)), out);
            }
            Input::Timer(Timer::Loan(timer)) => self.step_inner(Inner::Lending(Input::Timer(timer)), out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkDown(Peer::Worker(worker)) => self.on_link_down(worker, out),
            Input::LinkUp(_) | Input::LinkDown(_) => out.ignore("a link that no farm watches"),
        }
    }
}
