//! What must be true of every run, one property per file. Sights are counted, so that no property holds because nothing happens.
//!
//! The five of the Raft paper (figure 3), the step of its proof that a wrong append breaks first, and what clients see; what
//! must be true of tasks and workers, of loans between farms, and of leases. A `Checks` hears of every leadership, append,
//! commit, start, loan and grant as it happens, keeps the truth of every farm, and notes the first violation; the run ends there.

mod agreement;
mod allegiance;
mod attempts;
mod authors;
mod commits_stay;
mod conservation;
mod counts;
mod deaths;
mod durability;
mod election_safety;
mod endings;
mod few_terms;
mod gave_way;
mod handouts;
mod held_again;
mod help;
mod holders;
mod homecoming;
mod leader_completeness;
mod liveness;
mod log_matching;
mod once;
mod order;
mod property;
mod report;
mod reruns;
mod state_machine_safety;
mod stay;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use primus_core::ledger::{Batch, Effect, Ending, Held, JobId, Ledger, Lent, LoanId, TaskId, Why};
use primus_core::loan::Placement;
use primus_core::loan::lending::Happening;
use primus_core::{ServerId, SessionId, Term};
use primus_replica::log::Log;
use primus_replica::message::{Entry, Snapshot};
use primus_server::Reason;
use primus_server::record::Assembly;

pub(crate) use self::liveness::{State, is_healed};
pub use self::property::Property;
pub(crate) use self::report::Tally;
pub use self::report::{Failover, Messages, Report, Violation};
pub(crate) use self::reruns::Witness;
pub(crate) use self::tokens::Interval;
use crate::driver::host::{FarmPlace, Member};
use crate::driver::plan::Plan;
use crate::node::NodeId;

/// Names a loan among all farms.
pub(crate) type LoanName = (FarmPlace, LoanId);

/// What a property says: nothing, or what is wrong.
type Judgement = Result<(), String>;

/// Everything that is known about a run, for all properties.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    farms: Vec<FarmChecks>,
    order: order::Watch,
    conservation: conservation::Watch,
    pub(crate) stay: stay::Watch,
    pub(crate) leases: tokens::Leases,
    /// Loans that ended because the worker was taken for dead, and those that were overdue.
    dead: BTreeSet<LoanName>,
    overdue: BTreeSet<LoanName>,
    /// Since when each farm has had what it has borrowed, by the names there.
    borrowed_since_us: BTreeMap<(FarmPlace, String, LoanId), u64>,
    /// The farm that is flooded and has got no help yet.
    waiting_for_help: Option<FarmPlace>,
    /// What stands in this run.
    has_tasks: bool,
    seen: BTreeMap<&'static str, u64>,
    violation: Option<Violation>,
    panicked: bool,
}

/// What is known about one farm.
#[derive(Debug, Default)]
struct FarmChecks {
    election_safety: election_safety::Watch,
    log_matching: log_matching::Watch,
    commits_stay: commits_stay::Watch,
    durability: durability::Watch,
    few_terms: few_terms::Watch,
    committed: Vec<Committed>,
    /// What farms wrote down, by place in the log.
    states: BTreeMap<u64, u64>,
    /// What is agreed on, from records that may be pieces, and the place of the last of them.
    truth: Ledger,
    assembly: Assembly,
    assembled: u64,
    /// How often somebody wanted a task again that had ended.
    wanted: BTreeMap<TaskId, u64>,
    endings: endings::Watch,
    attempts: attempts::Watch,
    authors: authors::Watch,
    once: once::Watch,
}

/// An entry that is committed; its place is its index less one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Committed {
    term: u64,
    data: Bytes,
    /// The term of the server that was the first to know: it was committed in that one or in an earlier one.
    known_in: Term,
}

impl Checks {
    pub(crate) fn new(plan: &Plan) -> Self {
        let lending = &plan.server.lending.rules;
        let delay = plan.network.delay;
        // On a local network messages are a few milliseconds apart at most, which changes nothing.
        let overtaking = plan.one_way_us > 0 && delay.max_us > delay.min_us;
        let farm = || FarmChecks { few_terms: few_terms::Watch::new(overtaking), ..FarmChecks::default() };
        Self {
            farms: plan.farms.iter().map(|_| farm()).collect(),
            conservation: conservation::Watch::new(lending.lent_max),
            stay: stay::Watch::new(lending.stay_ms * 1000, plan.is_calm),
            leases: tokens::Leases::new(plan.groups.clone(), plan.server.lease_us),
            has_tasks: plan.is_judged && plan.farms.iter().any(|farm| !farm.workers.is_empty()),
            ..Self::default()
        }
    }

    fn note(&mut self, property: Property, judgement: Judgement) {
        if let Err(what) = judgement {
            self.violation.get_or_insert(Violation { property, what });
        }
    }

    /// The first of them that does not hold counts.
    fn note_all<const N: usize>(&mut self, judgements: [(Property, Judgement); N]) {
        judgements.into_iter().for_each(|(property, judgement)| self.note(property, judgement));
    }

    /// This was seen once more.
    pub(crate) fn saw(&mut self, what: &'static str) {
        self.saw_times(what, 1);
    }

    /// How often that was seen.
    pub(crate) fn seen(&self, what: &str) -> u64 {
        self.seen.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn saw_times(&mut self, what: &'static str, times: u64) {
        *self.seen.entry(what).or_default() += times;
    }

    pub(crate) const fn is_violated(&self) -> bool {
        self.violation.is_some()
    }

    /// A machine broke an assertion of its own.
    pub(crate) fn on_panic(&mut self, at: Option<NodeId>, words: &str) {
        let at = at.map_or_else(|| "a host".to_owned(), |at| format!("host {at}"));
        self.note(Property::Assertions, Err(format!("{at} broke off: {words}")));
        self.panicked = true;
    }
}

/// The logs of servers.
impl Checks {
    /// A server begins to lead.
    pub(crate) fn on_lead(&mut self, farm: FarmPlace, id: ServerId, term: Term, log: &Log) {
        let host = &mut self.farms[farm];
        let judgements = [
            (Property::ElectionSafety, host.election_safety.on_lead(id, term)),
            (Property::FewTerms, host.few_terms.on_lead(term)),
            (Property::LeaderCompleteness, leader_completeness::on_lead(id, term, log, &host.committed)),
        ];
        self.note_all(judgements);
    }

    /// The leader of this term is killed, and nothing else goes wrong.
    pub(crate) fn on_kill(&mut self, farm: FarmPlace, term: Term) {
        self.farms[farm].few_terms.on_kill(term);
    }

    /// A server has appended these entries to its log.
    pub(crate) fn on_append<'a>(
        &mut self,
        farm: FarmPlace,
        id: ServerId,
        term: Term,
        entries: impl Iterator<Item = &'a Entry> + Clone,
        log: &Log,
    ) {
        let host = &mut self.farms[farm];
        let matching = host.log_matching.on_append(id, entries.clone(), log);
        let stay = host.commits_stay.on_append(id, term, entries, &host.committed);
        self.note_all([(Property::LogMatching, matching), (Property::CommitsStay, stay)]);
    }

    /// A server starts with this log and this state.
    pub(crate) fn on_start(&mut self, farm: FarmPlace, id: ServerId, log: &Log, snapshot: Option<&Snapshot>) {
        let entries: Vec<Entry> = log.entries().collect();
        self.farms[farm].commits_stay.on_start(id, log);
        self.on_append(farm, id, Term(0), entries.iter(), log);
        if let Some(snapshot) = snapshot {
            self.on_restore(farm, id, snapshot);
        }
    }

    /// A server in this term applies an entry after this one. Is it the first to know that it is committed?
    pub(crate) fn on_apply(
        &mut self,
        farm: FarmPlace,
        id: ServerId,
        (term, before): (Term, u64),
        entry: &Entry,
    ) -> bool {
        let host = &mut self.farms[farm];
        let known = host.committed.len();
        let judgement = state_machine_safety::on_apply(id, (term, before), entry, &mut host.committed);
        let is_new = host.committed.len() > known;
        let stay = if is_new { host.commits_stay.on_commit(&host.committed) } else { Ok(()) };
        self.note_all([(Property::StateMachineSafety, judgement), (Property::CommitsStay, stay)]);
        is_new
    }

    /// An entry is newly known to be committed: this server leads in a term of its own.
    pub(crate) fn on_commit(&mut self, farm: FarmPlace, leader: ServerId, term: Term, log: &Log) {
        let committed = &self.farms[farm].committed;
        self.note(Property::LeaderCompleteness, leader_completeness::on_commit(leader, term, log, committed));
    }

    /// A server takes over a whole state.
    pub(crate) fn on_restore(&mut self, farm: FarmPlace, id: ServerId, snapshot: &Snapshot) {
        let host = &mut self.farms[farm];
        host.commits_stay.on_restore(id, snapshot.index);
        let safety = state_machine_safety::on_restore(id, snapshot, &host.committed, &host.states);
        let gave_way = gave_way::on_restore(id, snapshot, &host.committed);
        self.note_all([(Property::StateMachineSafety, safety), (Property::GaveWay, gave_way)]);
    }

    /// A leader that has applied everything up to here, and leads because of the second reason, hands over to that one because
    /// of the first.
    pub(crate) fn on_handover(
        &mut self,
        farm: FarmPlace,
        to: ServerId,
        reason: Reason,
        leads_because: Reason,
        applied: u64,
    ) {
        let judgement = gave_way::on_handover(to, reason, leads_because, applied, &self.farms[farm].committed);
        self.note(Property::GaveWay, judgement);
    }

    /// A farm writes its state down, with everything up to here.
    pub(crate) fn on_state(&mut self, farm: FarmPlace, id: ServerId, index: u64, data: &Bytes) {
        let judgement = state_machine_safety::on_state(id, index, data, &mut self.farms[farm].states);
        self.note(Property::StateMachineSafety, judgement);
    }

    /// How much is known to be committed.
    pub(crate) fn committed(&self, farm: FarmPlace) -> u64 {
        self.farms[farm].committed.len() as u64
    }
}

/// Clients.
impl Checks {
    /// A client submitted two jobs, one right after the other, and both have a number.
    pub(crate) fn on_both(&mut self, first: JobId, second: JobId) {
        let judgement = self.order.on_both(first, second);
        self.note(Property::Order, judgement);
    }

    /// A client looks at a farm, and misses something that was acknowledged before it asked, or nothing.
    pub(crate) fn on_look(&mut self, id: ServerId, missing: Option<&str>) {
        self.note(Property::Durability, durability::on_look(id, missing));
    }

    /// A client is told that its write, at this place, will last.
    pub(crate) fn on_acknowledged(&mut self, farm: FarmPlace, index: u64) {
        self.farms[farm].durability.on_acknowledged(index);
    }

    /// Up to where a client has been told that writes will last.
    pub(crate) fn acknowledged(&self, farm: FarmPlace) -> u64 {
        self.farms[farm].durability.acknowledged()
    }

    /// A read that began when writes up to `since` had been acknowledged sees everything up to `index`.
    pub(crate) fn on_read(&mut self, id: ServerId, since: u64, index: u64) {
        self.note(Property::Durability, durability::on_read(id, since, index));
    }

    /// The run is over; these are the live servers.
    pub(crate) fn on_end_of_cluster(&mut self, farm: FarmPlace, states: &[State], wanted: Option<u64>) {
        if self.violation.is_none() {
            self.note(Property::Durability, self.farms[farm].durability.on_end(states));
            self.note(Property::Liveness, liveness::on_end(states, wanted));
        }
    }
}

/// Tasks.
impl Checks {
    /// What a farm agrees on.
    pub(crate) fn truth(&self, farm: FarmPlace) -> &Ledger {
        &self.farms[farm].truth
    }

    /// The batch that ends with this record of the log, if one does.
    pub(crate) fn assemble(&mut self, farm: FarmPlace, record: &[u8]) -> Option<Batch> {
        let host = &mut self.farms[farm];
        host.assembled = host.committed.len() as u64;
        host.assembly.take(record).map(|filed| filed.batch)
    }

    /// This is committed. Says what came of it.
    pub(crate) fn on_batch(&mut self, farm: FarmPlace, names: &[&str], batch: &Batch, now_us: u64) -> Vec<Effect> {
        let host = &mut self.farms[farm];
        let effects = host.truth.apply(batch.clone());
        for effect in &effects {
            self.on_effect(farm, names, effect, now_us);
        }
        if self.has_tasks {
            let truth = &self.farms[farm].truth;
            let (counts, conservation) = (counts::check(truth), conservation::check(truth));
            self.note_all([(Property::Counts, counts), (Property::Conservation, conservation)]);
        }
        effects
    }

    fn on_effect(&mut self, farm: FarmPlace, names: &[&str], effect: &Effect, now_us: u64) {
        let host = &mut self.farms[farm];
        if let Effect::Wanted(tasks) = effect {
            tasks.iter().for_each(|task| *host.wanted.entry(task).or_default() += 1);
        }
        let endings = host.endings.on_effect(effect, &host.wanted);
        let authors = match effect {
            Effect::Finished(held) => host.authors.on_finished(*held, &host.truth),
            _ => Ok(()),
        };
        let conservation = self.conservation.on_effect(farm, names, effect, &host.truth);
        self.note_all([
            (Property::Endings, endings),
            (Property::Conservation, conservation),
            (Property::Authors, authors),
        ]);
        self.see_effect(farm, effect, now_us);
    }

    /// The farm of a server has applied everything up to here.
    pub(crate) fn on_farm_applied(&mut self, farm: FarmPlace, server: NodeId, index: u64, ledger: &Ledger) {
        let host = &self.farms[farm];
        if self.has_tasks && index == host.assembled {
            let judgement = agreement::check(server, ledger, &host.truth);
            self.note(Property::Agreement, judgement);
        }
    }

    /// A leader that knows this much hands an attempt out; these workers, which it knows, have something.
    pub(crate) fn on_handout(
        &mut self,
        (farm, server): (FarmPlace, NodeId),
        held: Held,
        ledger: &Ledger,
        witnesses: &[Witness],
    ) {
        self.note(Property::Handouts, handouts::on_handout(server, held, ledger));
        let judgement = self.farms[farm].attempts.on_handout(server, held);
        self.note(Property::Attempts, judgement);
        // Whoever cancels a task and wants it again may have it twice for a moment.
        if !self.is_wanted_again(farm, held.task) {
            self.note(Property::Reruns, reruns::on_handout(server, held, ledger, witnesses));
        }
    }

    /// What a worker of this name could claim that a leader of this term has given to others.
    pub(crate) fn claims(&self, farm: FarmPlace, worker: &str, term: Term) -> Vec<Held> {
        let host = &self.farms[farm];
        host.authors.of_others(worker, term.0, &host.truth).collect()
    }

    /// A worker begins with an attempt. Does it work for this farm, and for which other does it still run something?
    pub(crate) fn on_start_of_task(
        &mut self,
        (member, name): (Member, &str),
        held: Held,
        is_allowed: bool,
        elsewhere: Option<&str>,
    ) {
        let host = &mut self.farms[member.farm];
        host.authors.on_start(name, held);
        let is_once = host.truth.job(held.task.job).is_some_and(|job| job.spec.is_once);
        let once = host.once.on_start(member.worker, held, is_once, &host.wanted);
        let allegiance = allegiance::check(member, held, is_allowed, elsewhere);
        self.note_all([(Property::Once, once), (Property::Allegiance, allegiance)]);
    }

    /// An attempt begins while another one at the same task runs, its result is kept somewhere, or it has ended already. That
    /// may be if a worker was out of reach; whoever cancels a task and wants it again may have it twice, too.
    pub(crate) fn on_double_start(&mut self, member: Member, held: Held, may_be: bool) {
        if !may_be && !self.is_wanted_again(member.farm, held.task) {
            let what = format!("worker {} starts {held}, which runs or has run already", member.worker);
            self.note(Property::Reruns, Err(what));
        }
    }

    /// Has somebody wanted this task again after it had ended?
    pub(crate) fn is_wanted_again(&self, farm: FarmPlace, task: TaskId) -> bool {
        self.farms[farm].wanted.contains_key(&task)
    }

    /// Is nothing left to be done, and everybody at home?
    pub(crate) fn is_at_rest(&self) -> bool {
        self.farms.iter().all(|farm| endings::is_at_rest(&farm.truth))
    }

    /// The run is over. Have the results that workers keep been taken; should there have been a flood, and was there one?
    pub(crate) fn on_end_of_tasks(&mut self, kept: usize, (must_flood, has_rested): (bool, bool)) {
        for farm in 0..self.farms.len() {
            if self.violation.is_none() {
                let truth = &self.farms[farm].truth;
                let judgement = endings::on_end(truth, kept).and_then(|()| endings::of_loans(farm, truth));
                self.note(Property::Endings, judgement);
            }
        }
        if self.violation.is_none() && must_flood {
            let judgement = help::check(has_rested, self.waiting_for_help);
            self.note(Property::Help, judgement);
        }
    }
}

/// Loans.
impl Checks {
    fn see_effect(&mut self, farm: FarmPlace, effect: &Effect, now_us: u64) {
        match effect {
            Effect::Lent(_) => self.saw("loans"),
            Effect::Recalled(_) => self.saw("recalls"),
            Effect::Borrowed(worker) => {
                self.saw("arrivals");
                self.waiting_for_help.take_if(|waiting| *waiting == farm);
                let loan = self.truth(farm).loans().borrowed().get(worker).map(|borrowed| borrowed.loan);
                let since = loan.map(|loan| ((farm, worker.clone(), loan), now_us));
                self.borrowed_since_us.extend(since);
            }
            Effect::GivenBack(worker, borrowed) => {
                self.borrowed_since_us.remove(&(farm, worker.clone(), borrowed.loan));
            }
            _ => {}
        }
    }

    /// A loan has ended at its lender; this is what its worker thinks of itself, if it lives.
    pub(crate) fn on_loan_ended(
        &mut self,
        (loan, lent): (LoanName, &Lent),
        ending: Ending,
        placement: Option<&Placement>,
        (there, now_us): ((FarmPlace, String), u64),
    ) {
        let is_away = placement.is_some_and(|it| it.farm().is_some() && it.epoch() == loan.1);
        if ending == Ending::Home {
            self.saw("homecomings");
            self.saw_times("overdue_homecomings", self.overdue.contains(&loan).into());
            return self.note(Property::Homecoming, homecoming::on_back(lent, loan.1, placement));
        }
        self.dead.insert(loan);
        self.saw("deaths");
        self.saw_times("false_deaths", is_away.into());
        let (farm, name) = there;
        let since_us = self.borrowed_since_us.get(&(farm, name, loan.1)).copied();
        self.note(Property::Deaths, deaths::check(lent, since_us, now_us));
    }

    /// Somebody leads a farm anew.
    pub(crate) fn on_leader(&mut self, farm: FarmPlace) {
        let loans = self.truth(farm).loans();
        let (lent, borrowed) = (!loans.lent().is_empty(), !loans.borrowed().is_empty());
        self.saw("leaders");
        self.saw_times("lender_changes", lent.into());
        self.saw_times("borrower_changes", borrowed.into());
    }

    pub(crate) fn on_office_happening(&mut self, farm: FarmPlace, happening: &Happening) {
        match happening {
            Happening::Refused(..) => self.saw("refusals"),
            Happening::NoAnswer(_) => self.saw("unanswered"),
            Happening::Overdue(loan) => _ = self.overdue.insert((farm, *loan)),
            _ => {}
        }
    }

    /// A worker of this name goes to another farm.
    pub(crate) fn on_go(&mut self, worker: NodeId, loan: LoanName, name: &str, now_us: u64) {
        let lent = self.farms[loan.0].truth.loans().lent().get(&loan.1);
        let homecoming = homecoming::on_go(name, loan, lent, self.dead.contains(&loan));
        let is_ordered = lent.is_some_and(|lent| lent.why == Why::Operator);
        let stay = self.stay.on_go(worker, loan, is_ordered, now_us);
        self.note_all([(Property::Homecoming, homecoming), (Property::Stay, stay)]);
    }

    pub(crate) fn on_come_home(&mut self, worker: NodeId, now_us: u64) {
        let judgement = self.stay.on_come_home(worker, now_us);
        self.note(Property::Stay, judgement);
    }

    /// A farm is about to be flooded. Has anybody workers to spare?
    pub(crate) fn on_flood(&mut self, farm: FarmPlace, can_help: bool) {
        self.waiting_for_help = Some(farm).filter(|_| can_help);
    }
}

/// Leases.
impl Checks {
    /// A guard was told that it holds a group.
    pub(crate) fn on_granted(&mut self, interval: Interval) {
        let now_us = interval.from_us;
        let tokens = tokens::check(&self.leases, &interval);
        self.note(Property::Tokens, tokens);
        let (is_release, is_expiry) = self.leases.add(interval);
        self.saw("grants");
        self.saw_times("releases", is_release.into());
        self.saw_times("expiries", is_expiry.into());
        let place = self.leases.intervals.len() - 1;
        self.note(Property::Holders, holders::check(&self.leases, place, now_us));
    }

    /// It was told that it may go on until then. An end that has passed is no end any more: this is stricter than companions
    /// are, who raise nobody from the dead.
    pub(crate) fn on_renewed(&mut self, token: u64, end_us: u64, term: Term, now_us: u64) {
        if let Some(place) = self.leases.renew(token, end_us, term) {
            self.note(Property::Holders, holders::check(&self.leases, place, now_us));
        }
    }

    /// A guard that stood still goes on.
    pub(crate) fn on_guard_resumes(&mut self, session: SessionId, now_us: u64) {
        let is_late = self.leases.has_expired(session, now_us);
        self.saw_times("late_wakes", is_late.into());
    }

    /// A leader of this term has agreed on something that it proposed itself.
    pub(crate) fn on_commit_in_term(&mut self, term: Term, now_us: u64) {
        let is_early = self.leases.has_older(term, now_us);
        self.saw_times("early_commits", is_early.into());
    }

    /// The run is over, and nothing went wrong for a while. So many want a group.
    pub(crate) fn on_end_of_leases(&mut self, now_us: u64, candidates: impl Fn(&str) -> usize) {
        if self.violation.is_none() {
            let judgement = held_again::check(&self.leases, now_us, candidates);
            self.note(Property::HeldAgain, judgement);
        }
    }
}

/// The verdict.
impl Checks {
    /// How many tasks there were, and of how many nobody knows how they ended.
    fn tasks_and_lost(&self) -> (u64, u64) {
        let counts = self.farms.iter().map(|farm| farm.truth.counts());
        counts.fold((0, 0), |(tasks, lost), counts| {
            let ended = counts.done + counts.failed + counts.lost + counts.cancelled;
            (tasks + counts.waiting + counts.started + ended, lost + counts.lost)
        })
    }

    /// Nobody knows whether a run that broke off would have healed.
    fn applies(&self, property: Property) -> bool {
        let violated = self.violation.as_ref().map(|violation| violation.property);
        let is_it = violated == Some(property);
        match property {
            Property::Liveness | Property::HeldAgain | Property::Help if violated.is_some() => is_it,
            Property::Assertions => is_it,
            Property::FewTerms => self.farms.iter().any(|farm| farm.few_terms.applies()),
            Property::Order => self.order.applies() || is_it,
            Property::Holders | Property::Tokens | Property::HeldAgain => !self.leases.groups.is_empty(),
            _ if property.is_about_loans() => self.has_tasks && self.farms.len() > 1,
            _ if property.is_about_tasks() => self.has_tasks,
            _ => true,
        }
    }

    pub(crate) fn verdict(self, seed: u64, table: BTreeMap<ServerId, Option<ServerId>>, tally: Tally) -> Report {
        let all = Property::ALL.into_iter().filter(|property| self.applies(*property));
        let violated = self.violation.as_ref().map(|violation| violation.property);
        let properties = all.map(|property| (property, violated != Some(property))).collect();
        let (tasks, lost) = self.tasks_and_lost();
        Report { seed, violation: self.violation, properties, table, seen: self.seen, tasks, lost, tally }
    }
}
