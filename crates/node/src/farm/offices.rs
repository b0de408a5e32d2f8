//! Loans in reality: the office meets other farms, a clock, and those who want to know what happens.

use primus_core::Term;
use std::collections::{BTreeSet, HashMap};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

use primus_core::bounds::ABSURD;
use primus_core::ledger::loans::home_of;
use primus_core::ledger::{Borrowed, Effect, Ending, Entry, Lent, LoanId, Loans, Why};
use primus_core::loan::office::{Command, Happening, Notice, Situation, Timer};
use primus_core::loan::{Office, Word};
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_server::Plan;
use primus_wire::work::ToWorker;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::clock;
use crate::cuts::Cuts;
use crate::events::{Guest, History, Kind, Loan};
use crate::links::Identity;
use crate::meters::Meters;
use crate::neighbours::{Envoy, NeighbourEvent, Neighbours};
use crate::timers::drawn;

/// How often a neighbour may make this server tell of its strange behaviour: it must not push everything else out of the history.
const STRANGE_EVERY: Duration = Duration::from_millis(500);

/// The office of this server, and the farms that it talks to.
pub(super) struct Offices {
    office: Office,
    outbox: Outbox<Office>,
    neighbours: Neighbours,
    events: mpsc::Receiver<NeighbourEvent>,
    is_leading: bool,
    look: Option<Instant>,
    /// Does the office want to know how things are?
    is_curious: bool,
    /// What the office wants to write: it may say the same again while the log is busy.
    pub(super) proposed: BTreeSet<Entry>,
    /// What it says to workers.
    told: Vec<(String, Word)>,
    /// Who should be back by now, and nobody was told yet.
    overdue: Vec<LoanId>,
    /// When something strange of each kind was last told.
    strange_told: HashMap<Discriminant<Kind>, Instant>,
    history: Arc<History>,
    meters: Arc<Meters>,
}

impl Offices {
    pub(super) fn new(
        identity: Identity,
        plan: &Plan,
        cuts: watch::Receiver<Cuts>,
        (history, meters): (Arc<History>, Arc<Meters>),
    ) -> Self {
        let names = plan.neighbours.iter().map(|neighbour| neighbour.name.clone());
        let office = Office::new(plan.lending, names.collect());
        let (neighbours, events) = Neighbours::new(identity, plan.neighbours.clone(), cuts);
        Self {
            office,
            outbox: Outbox::new(),
            neighbours,
            events,
            is_leading: false,
            look: None,
            is_curious: false,
            proposed: BTreeSet::new(),
            told: Vec::new(),
            overdue: Vec::new(),
            strange_told: HashMap::new(),
            history,
            meters,
        }
    }

    pub(super) const fn office(&self) -> &Office {
        &self.office
    }

    /// When it wants to look around again.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.look
    }

    /// What happens next on the links of other farms.
    pub(super) async fn event(&mut self) -> NeighbourEvent {
        self.events.recv().await.expect("a sender is kept")
    }

    pub(super) fn on_event(&mut self, event: NeighbourEvent) {
        match event {
            NeighbourEvent::Up(place, outgoing) => self.neighbours.opened(place, outgoing),
            NeighbourEvent::Down(place) => self.neighbours.closed(place),
            NeighbourEvent::Word(from, _) if self.neighbours.is_cut(from) => {}
            NeighbourEvent::Word(from, message) => self.step(Input::Message { from, message }),
            NeighbourEvent::Refused(reason) => self.history.refused(reason),
        }
    }

    /// A server of another farm calls.
    pub(super) fn on_envoy(&mut self, envoy: Envoy) {
        if let Err(reason) = self.neighbours.meet(envoy) {
            self.history.refused(format!("refused a link: {reason}"));
        }
    }

    pub(super) fn lead(&mut self, term: Term, loans: &Loans) {
        // Whoever has no neighbours any more may still have lent to one, or borrowed.
        self.is_leading = self.neighbours.known().next().is_some() || !loans.is_empty();
        if self.is_leading {
            self.neighbours.lead();
            self.count(loans);
            self.step(Input::Command(Command::Lead(term, loans.clone())));
        }
    }

    pub(super) fn follow(&mut self) {
        if std::mem::take(&mut self.is_leading) {
            self.step(Input::Command(Command::Follow));
            self.neighbours.follow();
            (self.look, self.is_curious) = (None, false);
            self.proposed.clear();
            self.told.clear();
            self.count(&Loans::default());
        }
    }

    /// Is it time to look around? Then the situation is wanted.
    pub(super) fn on_time(&mut self, now: Instant) -> bool {
        if self.look.take_if(|due| *due <= now).is_some() {
            self.step(Input::Timer(Timer::Look));
        }
        std::mem::take(&mut self.is_curious)
    }

    pub(super) fn on_situation(&mut self, situation: Situation, loans: &Loans) {
        self.step(Input::Command(Command::Situation(situation)));
        self.tell_overdue(loans);
    }

    /// A worker of another farm would like to work here.
    pub(super) fn on_arrived(&mut self, worker: String, loan: LoanId) {
        if self.is_leading {
            self.step(Input::Command(Command::Arrived(worker, loan)));
        }
    }

    /// A worker of our own says where it is.
    pub(super) fn on_said(&mut self, worker: &str, word: Word) {
        if self.is_leading && home_of(worker).is_none() {
            self.step(Input::Command(Command::Said(worker.to_owned(), word)));
        }
    }

    /// What a batch of the log came to.
    pub(super) fn on_effects(&mut self, effects: &[Effect], loans: &Loans) {
        if !self.is_leading {
            return;
        }
        effects.iter().for_each(|effect| self.tell_effect(effect, loans));
        let concerns_loans = |effect: &Effect| match effect {
            Effect::Lent(_) | Effect::Recalled(_) | Effect::LoanEnded { .. } => true,
            Effect::Borrowed(_) | Effect::GivenBack(..) => true,
            // Who is missing has changed.
            Effect::Left(_) | Effect::Workers => !loans.is_empty(),
            _ => false,
        };
        if effects.iter().any(concerns_loans) {
            self.count(loans);
            self.step(Input::Command(Command::Agreed(loans.clone())));
            self.tell_overdue(loans);
        }
    }

    /// What has to be said to workers. Whoever is sent to another farm is told where that is.
    pub(super) fn take_told(&mut self) -> Vec<(String, ToWorker)> {
        let told = std::mem::take(&mut self.told);
        let with_addresses = |(worker, word): (String, Word)| {
            let servers = match &word {
                Word::Redirect { farm, .. } => self.neighbours.servers_of(farm),
                _ => <_>::default(),
            };
            (worker, ToWorker::Loan(word, servers))
        };
        told.into_iter().map(with_addresses).collect()
    }

    fn step(&mut self, input: Input<Office>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.office.step(clock::now(), input, &mut outbox);
        outbox.drain().for_each(|output| self.carry_out(output));
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Office>) {
        match output {
            Output::Send { to, message } => self.neighbours.say(to, &message),
            Output::Set { delay, .. } => self.look = Some(Instant::now() + drawn(delay)),
            Output::Cancel(_) => self.look = None,
            Output::Notify(Notice::Propose(entries)) => self.proposed.extend(entries),
            Output::Notify(Notice::LookAround) => self.is_curious = true,
            Output::Notify(Notice::Tell(worker, word)) => self.told.push((worker, word)),
            Output::Notify(Notice::Happened(happening)) => self.tell_happening(happening),
            Output::Ignore(ABSURD) => self.history.refused(format!("what a neighbour says: {ABSURD}")),
            Output::Ignore(_) => {}
        }
    }
}

/// What people see.
impl Offices {
    fn count(&self, loans: &Loans) {
        self.meters.lent.set(loans.lent().len());
        self.meters.borrowed.set(loans.borrowed().len());
    }

    fn tell_effect(&self, effect: &Effect, loans: &Loans) {
        let lent = |loan: &LoanId| loans.lent().get(loan).map(|lent| loan_of(*loan, lent));
        // What has ended in the same batch is told when it ends.
        let told = match effect {
            Effect::Lent(loan) => lent(loan).map(|loan| ("lent", Kind::Lent(loan))),
            Effect::Recalled(loan) => lent(loan).map(|loan| ("recalled", Kind::Recalled(loan))),
            Effect::LoanEnded { loan, lent, ending: Ending::Home } => {
                Some(("home", Kind::LoanHome(loan_of(*loan, lent))))
            }
            Effect::LoanEnded { loan, lent, ending: Ending::Dead } => {
                Some(("dead", Kind::LoanDead(loan_of(*loan, lent))))
            }
            Effect::Borrowed(worker) => {
                let borrowed = loans.borrowed().get(worker);
                borrowed.map(|borrowed| ("borrowed", Kind::Borrowed(guest_of(worker, borrowed))))
            }
            Effect::GivenBack(worker, borrowed) => {
                Some(("given_back", Kind::GivenBack(guest_of(worker, borrowed))))
            }
            _ => None,
        };
        if let Some((step, kind)) = told {
            self.meters.loans.add(step);
            self.history.add(kind);
        }
    }

    fn tell_happening(&mut self, happening: Happening) {
        let (step, kind) = match happening {
            Happening::Saturated { queued } => ("saturated", Kind::Saturated { queued }),
            Happening::Calm => ("calm", Kind::Calm),
            Happening::Asked(farm, count) => ("asked", Kind::LoanAsked { farm, count }),
            Happening::Promised(farm, count) => ("promised", Kind::LoanPromised { farm, count }),
            Happening::Refused(farm, objection) => {
                ("refused", Kind::LoanRefused { farm, reason: objection.name() })
            }
            Happening::NoAnswer(farm) => ("no_answer", Kind::NeighbourSilent { farm }),
            Happening::NotSent(farm, loan) => {
                self.meters.loans.add("not_sent");
                return self.tell_strange(Kind::LoanNotSent { farm, loan: loan.0 });
            }
            Happening::UnknownLoan(farm, loan) => {
                self.meters.loans.add("unknown_loan");
                return self.tell_strange(Kind::LoanUnknown { farm, loan: loan.0 });
            }
            Happening::UnknownWorker(farm, worker) => {
                self.meters.loans.add("unknown_worker");
                return self.tell_strange(Kind::WorkerUnknown { farm, worker });
            }
            Happening::CannotGo(farm, worker) => ("cannot_go", Kind::WorkerCannotGo { farm, worker }),
            Happening::Overdue(loan) => return self.overdue.push(loan),
        };
        self.meters.loans.add(step);
        self.history.add(kind);
    }

    fn tell_overdue(&mut self, loans: &Loans) {
        for loan in std::mem::take(&mut self.overdue) {
            if let Some(lent) = loans.lent().get(&loan) {
                self.meters.loans.add("overdue");
                self.history.add(Kind::Overdue(loan_of(loan, lent)));
            }
        }
    }

    /// Tells what a neighbour does wrong, unless the last such thing was just now.
    fn tell_strange(&mut self, kind: Kind) {
        let told = self.strange_told.get(&discriminant(&kind));
        if told.is_none_or(|told| told.elapsed() >= STRANGE_EVERY) {
            self.strange_told.insert(discriminant(&kind), Instant::now());
            self.history.add(kind);
        }
    }
}

fn loan_of(loan: LoanId, lent: &Lent) -> Loan {
    let Lent { worker, to, for_ms, why, .. } = lent.clone();
    Loan { loan: loan.0, worker, to, for_ms, why: why_name(why) }
}

fn guest_of(worker: &str, borrowed: &Borrowed) -> Guest {
    let Borrowed { from, loan, for_ms, why, .. } = borrowed.clone();
    Guest { loan: loan.0, worker: worker.to_owned(), from, for_ms, why: why_name(why) }
}

const fn why_name(why: Why) -> &'static str {
    match why {
        Why::Asked => "asked",
        Why::Operator => "operator",
    }
}
