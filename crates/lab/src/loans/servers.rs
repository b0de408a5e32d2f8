//! The servers of a run: their logs, and what their foremen and offices want.

use primus_core::Term;
use primus_core::farm::foreman::{self, Foreman};
use primus_core::ids;
use primus_core::ledger::loans::{home_of, name_here};
use primus_core::ledger::{Batch, Effect, Entry, Held, Ledger};
use primus_core::loan::office::{self, Happening, Office};
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output};

use super::Audience;
use super::host::{FarmId, Member, Process, ServerHost, ServerTimer, Words};
use super::run::{Event, Run};
use crate::farm::checks::Witness;
use crate::node::NodeId;

const COMMIT: Delay = Delay { min_us: 200, max_us: 5_000 };
/// How often servers look whether there is a leader.
const WATCH: Delay = Delay { min_us: 5_000, max_us: 40_000 };
/// How long a deposed leader that reaches the others may go on.
const IGNORANCE: Delay = Delay { min_us: 1_000, max_us: 500_000 };

impl<O: Audience> Run<'_, O> {
    pub(super) fn server(&mut self, id: NodeId) -> &mut ServerHost {
        self.servers.get_mut(&id).expect("a server of this run")
    }

    pub(super) fn start_server(&mut self, id: NodeId) {
        let neighbours = self.neighbours(self.servers[&id].farm);
        let names = neighbours.into_iter().map(|farm| self.farms[farm].name.to_owned()).collect();
        let foreman = Foreman::new(foreman::Rules::default(), Ledger::default());
        let office = Office::new(self.rules, names);
        self.server(id).process = Some(Process { foreman, office });
    }

    /// The other farms, as the configuration of this one names them.
    fn neighbours(&self, farm: FarmId) -> Vec<FarmId> {
        let count = self.farms.len();
        (1..count).map(|step| (farm + step) % count).collect()
    }

    /// Can this server take part in what the log needs a majority for?
    pub(super) fn is_able(&self, id: NodeId) -> bool {
        let is_alive = self.servers.get(&id).is_some_and(|host| host.process.is_some());
        is_alive && !self.frozen.contains_key(&id) && !self.isolated.contains(&id)
    }

    pub(super) fn able(&self, farm: FarmId) -> Vec<NodeId> {
        self.farms[farm].server_ids.iter().copied().filter(|id| self.is_able(*id)).collect()
    }

    /// If nobody can lead who does, somebody else will. Followers hear what is committed.
    pub(super) fn on_watch(&mut self, farm: FarmId) {
        self.after(WATCH, Event::Watch(farm));
        let able = self.able(farm);
        let is_led = self.farms[farm].log.leader().is_some_and(|leader| self.is_able(leader));
        if !is_led && 2 * able.len() > self.farms[farm].server_ids.len() && self.chance.happens(500_000) {
            let leader = self.chance.pick(&able);
            self.elect(leader);
        }
        for server in able {
            if self.servers[&server].leads.is_none() && (self.is_calm() || self.chance.happens(500_000)) {
                self.catch_up(server);
            }
        }
    }

    /// A new leader has applied everything that was ever committed before it is told that it leads.
    pub(super) fn elect(&mut self, leader: NodeId) {
        let farm = self.servers[&leader].farm;
        let log = &mut self.farms[farm].log;
        let (old, old_term) = (log.leader(), log.term);
        let kept = log.elect(leader, &mut self.chance);
        let term = log.term;
        (0..kept).for_each(|_| self.commit(farm));
        if let Some(server) = old.filter(|old| *old != leader) {
            self.after(IGNORANCE, Event::Depose { server, term: old_term });
        }
        self.leaders += 1;
        self.checks.on_leader(farm);
        self.follow(leader);
        self.catch_up(leader);
        self.server(leader).leads = Some(term);
        self.tell_workers(leader, &Words::Leads(Term(term)));
        self.step_foreman(leader, Input::Command(foreman::Command::Lead(Term(term))));
        let Some(process) = &self.servers[&leader].process else { return };
        let loans = process.foreman.ledger().loans().clone();
        self.step_office(leader, Input::Command(office::Command::Lead(Term(term), loans)));
    }

    fn follow(&mut self, server: NodeId) {
        if self.server(server).leads.take().is_some() {
            self.step_foreman(server, Input::Command(foreman::Command::Follow));
            self.step_office(server, Input::Command(office::Command::Follow));
            self.tell_workers(server, &Words::Follows);
        }
    }

    fn tell_workers(&mut self, server: NodeId, words: &Words) {
        let linked: Vec<NodeId> = self.servers[&server].links.keys().copied().collect();
        linked.into_iter().for_each(|worker| self.send_to_worker(server, worker, words.clone()));
    }

    /// A leader hears that there is a newer one, as soon as it hears anything.
    pub(super) fn on_depose(&mut self, server: NodeId, term: u64) {
        if self.server(server).leads != Some(term) {
            return;
        }
        if self.isolated.contains(&server) {
            return self.after(IGNORANCE, Event::Depose { server, term });
        }
        self.follow(server);
        self.catch_up(server);
    }

    pub(super) fn propose(&mut self, server: NodeId, entries: Vec<Entry>) {
        let host = &self.servers[&server];
        let batch = Batch { time_ms: host.clock.now_ms(self.now_us), entries };
        if let Some(term) = host.leads
            && self.farms[host.farm].log.propose(server, term, batch)
        {
            self.after(COMMIT, Event::Commit { leader: server, term });
        }
    }

    pub(super) fn on_commit(&mut self, leader: NodeId, term: u64) {
        let farm = self.servers[&leader].farm;
        if !self.farms[farm].log.is_led_by(leader, term) {
            return;
        }
        if !self.is_able(leader) {
            return self.after(COMMIT, Event::Commit { leader, term });
        }
        self.commit(farm);
        self.catch_up(leader);
    }

    fn commit(&mut self, farm: FarmId) {
        let names: Vec<&str> = self.farms.iter().map(|host| host.name).collect();
        let host = &mut self.farms[farm];
        if let Some(batch) = host.log.commit() {
            host.wishes.retain(|wish| !batch.entries.contains(wish));
            let effects = self.checks.on_commit(farm, &names, batch, self.now_us);
            effects.iter().for_each(|effect| self.on_truth(farm, effect));
        }
    }

    /// What is agreed on is compared with where workers are.
    fn on_truth(&mut self, farm: FarmId, effect: &Effect) {
        let Effect::LoanEnded { loan, lent, ending } = effect else { return };
        let host = self.workers.values().find(|host| host.home == farm && host.name == lent.worker);
        let allegiance = host.and_then(|host| host.placement());
        let borrower = self.farms.iter().position(|host| host.name == lent.to).expect("only neighbours borrow");
        let there = (borrower, name_here(&lent.worker, self.farms[farm].name));
        self.checks.on_loan_ended(((farm, *loan), lent), *ending, allegiance, (there, self.now_us));
    }

    fn catch_up(&mut self, server: NodeId) {
        let farm = self.servers[&server].farm;
        while let Some(batch) = self.farms[farm].log.committed.get(self.servers[&server].applied).cloned() {
            self.server(server).applied += 1;
            self.step_foreman(server, Input::Command(foreman::Command::Apply(batch)));
        }
        if let Some(process) = &self.servers[&server].process {
            self.checks.on_apply(farm, server, process.foreman.ledger());
        }
    }

    pub(super) fn step_foreman(&mut self, id: NodeId, input: Input<Foreman>) {
        let Some(process) = self.servers.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        self.steps += 1;
        let mut outbox = Outbox::new();
        process.foreman.step(Moment(self.now_us), input.clone(), &mut outbox);
        self.observer.on_step(self.now_us, id, &input, outbox.as_slice());
        for output in outbox.drain() {
            match output {
                Output::Send { to, message } => self.send_to_worker(id, to.into(), Words::Work(message)),
                Output::Set { timer, delay } => self.set_server_timer(id, ServerTimer::Foreman(timer), delay),
                Output::Cancel(timer) => _ = self.server(id).timers.remove(&ServerTimer::Foreman(timer)),
                Output::Notify(foreman::Notice::Propose(entries)) => self.propose(id, entries),
                Output::Notify(foreman::Notice::Applied(effects)) => self.on_applied(id, &effects),
                Output::Notify(foreman::Notice::Arrived(worker, loan)) => {
                    self.step_office(id, Input::Command(office::Command::Arrived(worker, loan)));
                }
                Output::Notify(foreman::Notice::Beside(_)) | Output::Ignore(_) => {}
            }
        }
    }

    /// The office hears of everything that may concern loans.
    fn on_applied(&mut self, id: NodeId, effects: &[Effect]) {
        let concerns_loans = |effect: &Effect| {
            matches!(
                effect,
                Effect::Lent(_)
                    | Effect::Recalled(_)
                    | Effect::LoanEnded { .. }
                    | Effect::Borrowed(_)
                    | Effect::GivenBack(..)
                    | Effect::Workers
                    | Effect::Left(_)
            )
        };
        let Some(process) = &self.servers[&id].process else { return };
        if effects.iter().any(concerns_loans) {
            let loans = process.foreman.ledger().loans().clone();
            self.step_office(id, Input::Command(office::Command::Agreed(loans)));
        }
    }

    pub(super) fn step_office(&mut self, id: NodeId, input: Input<Office>) {
        let Some(process) = self.servers.get_mut(&id).and_then(|host| host.process.as_mut()) else { return };
        self.steps += 1;
        let mut outbox = Outbox::new();
        process.office.step(Moment(self.now_us), input.clone(), &mut outbox);
        self.observer.on_step(self.now_us, id, &input, outbox.as_slice());
        for output in outbox.drain() {
            match output {
                Output::Send { to, message } => self.send_to_neighbour(id, to, &message),
                Output::Set { timer, delay } => self.set_server_timer(id, ServerTimer::Office(timer), delay),
                Output::Cancel(timer) => _ = self.server(id).timers.remove(&ServerTimer::Office(timer)),
                Output::Notify(notice) => self.on_office_notice(id, notice),
                Output::Ignore(_) => {}
            }
        }
    }

    fn on_office_notice(&mut self, id: NodeId, notice: office::Notice) {
        match notice {
            office::Notice::Propose(entries) => self.propose(id, entries),
            office::Notice::LookAround => self.look_around(id),
            office::Notice::Tell(name, word) => {
                if let Some(worker) = self.worker_named(self.servers[&id].farm, &name) {
                    self.send_to_worker(id, worker, Words::Loan(word));
                }
            }
            office::Notice::Happened(happening) => self.on_office_happening(id, &happening),
        }
    }

    fn on_office_happening(&mut self, id: NodeId, happening: &Happening) {
        let farm = self.servers[&id].farm;
        let seen = &mut self.checks.seen;
        match happening {
            Happening::Refused(..) => seen.refusals += 1,
            Happening::NoAnswer(_) => seen.unanswered += 1,
            Happening::Overdue(loan) => self.checks.on_overdue(farm, *loan),
            _ => {}
        }
    }

    fn look_around(&mut self, id: NodeId) {
        let host = &self.servers[&id];
        let Some(process) = &host.process else { return };
        if let Some(situation) = process.foreman.situation(host.clock.now_ms(self.now_us)) {
            self.step_office(id, Input::Command(office::Command::Situation(situation)));
        }
    }

    /// Who is called so in this farm.
    fn worker_named(&self, farm: FarmId, name: &str) -> Option<NodeId> {
        let (name, home) = match home_of(name) {
            None => (name, farm),
            Some((name, home)) => (name, self.farms.iter().position(|farm| farm.name == home)?),
        };
        let mut all = self.workers.iter();
        all.find(|(_, host)| host.home == home && host.name == name).map(|(id, _)| *id)
    }

    /// The number of a farm among the neighbours of another, counted from 1, and back.
    pub(super) fn number_among(&self, farm: FarmId, neighbour: FarmId) -> Option<ids::FarmId> {
        let place = self.neighbours(farm).into_iter().position(|other| other == neighbour)?;
        Some(ids::FarmId(place as u64 + 1))
    }

    pub(super) fn neighbour_of(&self, farm: FarmId, number: ids::FarmId) -> Option<FarmId> {
        let place = usize::try_from(number.0).ok()?.checked_sub(1)?;
        self.neighbours(farm).get(place).copied()
    }

    fn set_server_timer(&mut self, id: NodeId, timer: ServerTimer, delay: Delay) {
        let number = self.number();
        let host = self.server(id);
        host.timers.insert(timer, number);
        let delay = host.clock.real(delay);
        self.after(delay, Event::ServerTimer { at: id, timer, number });
    }

    pub(super) fn on_server_timer(&mut self, at: NodeId, timer: ServerTimer, number: u64) {
        if self.server(at).timers.get(&timer) != Some(&number) {
            return;
        }
        self.server(at).timers.remove(&timer);
        match timer {
            ServerTimer::Foreman(timer) => self.step_foreman(at, Input::Timer(timer)),
            ServerTimer::Office(timer) => self.step_office(at, Input::Timer(timer)),
        }
    }

    /// A leader hands something out.
    pub(super) fn on_handout(&mut self, server: NodeId, held: Held) {
        let farm = self.servers[&server].farm;
        let members = self.workers.keys().map(|worker| Member { worker: *worker, farm });
        let witnesses: Vec<Witness> = members.filter_map(|member| self.witness(server, member)).collect();
        if let Some(process) = &self.servers[&server].process {
            self.checks.on_handout((farm, server), held, process.foreman.ledger(), &witnesses);
        }
    }

    fn witness(&self, server: NodeId, member: Member) -> Option<Witness> {
        let Member { worker, farm } = member;
        let host = self.workers.get(&worker).filter(|_| !self.frozen.contains_key(&worker))?;
        let duty = host.duties.get(&farm)?;
        let is_linked = duty.link.is_some_and(|link| link.server == server && !link.is_broken);
        let work = host.worker.as_ref()?.work(duty.id)?;
        let is_welcome = work.serves() == Some((server.server(), self.servers[&server].leads.map(Term)?));
        let name = host.name_in(farm, self.farms[host.home].name);
        let foreman = &self.servers[&server].process.as_ref()?.foreman;
        let is_present = foreman.present().any(|(present, ..)| present == name);
        (is_linked && is_welcome && is_present).then(|| Witness { worker, has: work.has().collect() })
    }
}
