//! What must be true of all farms that lend each other workers, one property per file; and what must be seen sometimes, lest
//! everything hold for want of cases.
//!
//! A `Checks` keeps the truth of every farm, with everything that must be true of a single one ([`crate::farm::checks`]), and
//! hears of every worker that goes, comes home and begins with something. It notes the first violation; the run ends there.

mod allegiance;
mod conservation;
mod deaths;
mod endings;
mod help;
mod homecoming;
mod stay;

use std::collections::{BTreeMap, BTreeSet};

use primus_core::ledger::{Batch, Effect, Ending, Held, Ledger, Lent, LoanId, Why};
use primus_core::loan::Allegiance;
use primus_core::loan::office::Rules;

use super::Faults;
use super::host::{FarmId, Member, WorkerHost};
use crate::farm;
use crate::farm::checks::Witness;
use crate::node::NodeId;

/// A property of farms that lend each other workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// A worker takes tasks of one farm at a time, of the one that it works for.
    Allegiance,
    /// Every worker is at home, lent, or gone: counted once, by its owner; nobody has borrowed what was not lent, and nobody has lent
    /// more than it may.
    Conservation,
    /// A lender takes a worker for its own again only when it is back, and one that is away is lent.
    Homecoming,
    /// Nobody is taken for dead whom either farm sees.
    Deaths,
    /// Every task and every loan comes to its end.
    Endings,
    /// A worker changes its place once per stay time at most.
    Stay,
    /// A farm that has too much to do gets help if somebody has too little.
    Help,
    /// What must be true of every single farm.
    Farm(farm::checks::Property),
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What should have been true.
    pub property: Property,
    /// What was found.
    pub what: String,
}

/// What was seen in a run, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sightings {
    /// Workers were lent.
    pub loans: u64,
    /// They arrived.
    pub arrivals: u64,
    /// Tasks began on borrowed workers.
    pub borrowed_starts: u64,
    /// Workers came home.
    pub homecomings: u64,
    /// Workers were taken for dead.
    pub deaths: u64,
    /// One that was taken for dead was away, and alive.
    pub false_deaths: u64,
    /// The lender's leader changed while somebody was lent.
    pub lender_changes: u64,
    /// The borrower's did.
    pub borrower_changes: u64,
    /// A worker died on its way.
    pub died_in_transit: u64,
    /// A worker died away from home.
    pub died_away: u64,
    /// A loan that was overdue ended because the worker came home.
    pub overdue_homecomings: u64,
    /// A result was told to a farm that the worker did not work for any more.
    pub told_after_going_home: u64,
    /// Attempts were stopped, because their worker was to go home.
    pub stops: u64,
    /// The time of a loan was over while the worker was away.
    pub leases_over: u64,
    /// Somebody was wanted back.
    pub recalls: u64,
    /// A neighbour lent nothing.
    pub refusals: u64,
    /// A neighbour did not answer.
    pub unanswered: u64,
    /// Two farms did not reach each other.
    pub partitions: u64,
    /// A worker stood still for so long that it gave up its leaders.
    pub pauses: u64,
}

/// Names a loan among all farms.
pub(super) type LoanName = (FarmId, LoanId);

/// Everything that is known about a run, for all properties.
#[derive(Debug)]
pub(super) struct Checks {
    farms: Vec<farm::checks::Checks>,
    conservation: conservation::Watch,
    stay: stay::Watch,
    /// Loans that ended because the worker was taken for dead.
    dead: BTreeSet<LoanName>,
    overdue: BTreeSet<LoanName>,
    /// Since when each farm has had what it has borrowed, by the names there.
    borrowed_since_us: BTreeMap<(FarmId, String, LoanId), u64>,
    /// The farm that is flooded and has got no help yet.
    waiting_for_help: Option<FarmId>,
    pub(super) seen: Sightings,
    violation: Option<Violation>,
}

/// What a property says: nothing, or what is wrong.
type Judgement = Result<(), String>;

impl Checks {
    pub(super) fn new(farms: usize, rules: &Rules, faults: Faults) -> Self {
        Self {
            farms: (0..farms).map(|_| farm::checks::Checks::default()).collect(),
            conservation: conservation::Watch::new(rules.lent_max),
            stay: stay::Watch::new(rules.stay_ms * 1000, faults),
            dead: BTreeSet::new(),
            overdue: BTreeSet::new(),
            borrowed_since_us: BTreeMap::new(),
            waiting_for_help: None,
            seen: Sightings::default(),
            violation: None,
        }
    }

    fn note(&mut self, property: Property, judgement: Judgement) {
        if let Err(what) = judgement {
            self.violation.get_or_insert(Violation { property, what });
        }
    }

    /// What a farm agrees on.
    pub(super) fn truth(&self, farm: FarmId) -> &Ledger {
        self.farms[farm].truth()
    }

    /// This is committed. Says what came of it.
    pub(super) fn on_commit(&mut self, farm: FarmId, names: &[&str], batch: &Batch, now_us: u64) -> Vec<Effect> {
        let effects = self.farms[farm].on_commit(batch);
        for effect in &effects {
            self.see(farm, effect, now_us);
            let judgement = self.conservation.on_effect(farm, names, effect, self.farms[farm].truth());
            self.note(Property::Conservation, judgement);
        }
        let judgement = conservation::check(self.farms[farm].truth());
        self.note(Property::Conservation, judgement);
        effects
    }

    fn see(&mut self, farm: FarmId, effect: &Effect, now_us: u64) {
        match effect {
            Effect::Lent(_) => self.seen.loans += 1,
            Effect::Recalled(_) => self.seen.recalls += 1,
            Effect::Borrowed(worker) => {
                self.seen.arrivals += 1;
                self.waiting_for_help.take_if(|waiting| *waiting == farm);
                let loan = self.farms[farm].truth().loans().borrowed().get(worker).map(|borrowed| borrowed.loan);
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
    pub(super) fn on_loan_ended(
        &mut self,
        (loan, lent): (LoanName, &Lent),
        ending: Ending,
        allegiance: Option<&Allegiance>,
        (there, now_us): ((FarmId, String), u64),
    ) {
        let is_away = allegiance.is_some_and(|it| it.farm().is_some() && it.epoch() == loan.1);
        if ending == Ending::Home {
            self.seen.homecomings += 1;
            self.seen.overdue_homecomings += u64::from(self.overdue.contains(&loan));
            return self.note(Property::Homecoming, homecoming::on_back(lent, loan.1, allegiance));
        }
        self.dead.insert(loan);
        self.seen.deaths += 1;
        self.seen.false_deaths += u64::from(is_away);
        let (farm, name) = there;
        let since_us = self.borrowed_since_us.get(&(farm, name, loan.1)).copied();
        self.note(Property::Deaths, deaths::check(lent, since_us, now_us));
    }

    /// Somebody leads a farm anew.
    pub(super) fn on_leader(&mut self, farm: FarmId) {
        let loans = self.truth(farm).loans();
        let (lent, borrowed) = (loans.lent().len(), loans.borrowed().len());
        self.seen.lender_changes += u64::from(lent > 0);
        self.seen.borrower_changes += u64::from(borrowed > 0);
    }

    pub(super) fn on_overdue(&mut self, farm: FarmId, loan: LoanId) {
        self.overdue.insert((farm, loan));
    }

    /// An operator wants somebody back.
    pub(super) fn on_recall_by_operator(&mut self, farm: FarmId, loan: LoanId) {
        self.stay.excuse((farm, loan));
    }

    /// A server has applied everything that is committed.
    pub(super) fn on_apply(&mut self, farm: FarmId, server: NodeId, ledger: &Ledger) {
        self.farms[farm].on_apply(server, ledger);
    }

    /// A leader that knows this much hands an attempt out; these workers, which it knows, have something.
    pub(super) fn on_handout(
        &mut self,
        (farm, server): (FarmId, NodeId),
        held: Held,
        ledger: &Ledger,
        witnesses: &[Witness],
    ) {
        self.farms[farm].on_handout(server, held, ledger, witnesses);
    }

    /// A worker begins with an attempt. Does it work for this farm, and for which other does it still run something?
    pub(super) fn on_start(&mut self, member: Member, held: Held, is_allowed: bool, elsewhere: Option<&str>) {
        self.farms[member.farm].on_start(member.worker, held);
        self.note(Property::Allegiance, allegiance::check(member, held, is_allowed, elsewhere));
    }

    /// A worker of this name goes to another farm.
    pub(super) fn on_go(&mut self, worker: NodeId, loan: LoanName, name: &str, now_us: u64) {
        let lent = self.farms[loan.0].truth().loans().lent().get(&loan.1);
        let judgement = homecoming::on_go(name, loan, lent, self.dead.contains(&loan));
        let is_ordered = lent.is_some_and(|lent| lent.why == Why::Operator);
        self.note(Property::Homecoming, judgement);
        let judgement = self.stay.on_go(worker, loan, is_ordered, now_us);
        self.note(Property::Stay, judgement);
    }

    pub(super) fn on_come_home(&mut self, worker: NodeId, now_us: u64) {
        let judgement = self.stay.on_come_home(worker, now_us);
        self.note(Property::Stay, judgement);
    }

    pub(super) fn on_worker_crash(&mut self, worker: NodeId) {
        self.stay.on_crash(worker);
    }

    /// Does this farm have this worker, as agreed on there?
    pub(super) fn is_borrowed(&self, farm: FarmId, host: &WorkerHost, home: &str) -> bool {
        self.truth(farm).loans().borrowed().contains_key(&host.name_in(farm, home))
    }

    /// A farm is about to be flooded. Has anybody workers to spare?
    pub(super) fn on_flood(&mut self, farm: FarmId, can_help: bool) {
        self.waiting_for_help = Some(farm).filter(|_| can_help);
    }

    /// Is nothing left to be done, and everybody at home?
    pub(super) fn is_at_rest(&self) -> bool {
        self.farms.iter().all(|farm| endings::is_at_rest(farm.truth()))
    }

    /// The run is over. Have the results that workers keep been taken, and was there a rest after which a farm was flooded?
    pub(super) fn on_end(&mut self, kept: usize, has_rested: bool) {
        self.farms.iter_mut().for_each(|farm| farm.on_end(kept));
        for (farm, checks) in self.farms.iter().enumerate() {
            if self.violation.is_none()
                && let Err(what) = endings::check(farm, checks.truth())
            {
                self.violation = Some(Violation { property: Property::Endings, what });
            }
        }
        if self.violation.is_none() && self.farms.iter().all(|farm| !farm.is_violated()) {
            let judgement = help::check(has_rested, self.waiting_for_help);
            self.note(Property::Help, judgement);
        }
    }

    pub(super) fn is_violated(&self) -> bool {
        self.violation.is_some() || self.farms.iter().any(farm::checks::Checks::is_violated)
    }

    /// How many tasks there were, and of how many nobody knows how they ended.
    pub(super) fn tasks_and_lost(&self) -> (u64, u64) {
        let counts = self.farms.iter().map(|farm| farm.truth().counts());
        counts.fold((0, 0), |(tasks, lost), counts| {
            let ended = counts.done + counts.failed + counts.lost + counts.cancelled;
            (tasks + counts.waiting + counts.started + ended, lost + counts.lost)
        })
    }

    pub(super) fn verdict(self) -> (Sightings, Option<Violation>) {
        let of_farms = self.farms.into_iter().find_map(farm::checks::Checks::verdict);
        let of_farms = of_farms
            .map(|violation| Violation { property: Property::Farm(violation.property), what: violation.what });
        (self.seen, self.violation.or(of_farms))
    }
}

impl Property {
    /// The property's name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allegiance => "allegiance",
            Self::Conservation => "conservation",
            Self::Homecoming => "homecoming",
            Self::Deaths => "deaths",
            Self::Endings => "endings",
            Self::Stay => "stay",
            Self::Help => "help",
            Self::Farm(property) => property.name(),
        }
    }
}
