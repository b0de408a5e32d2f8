//! The leader's side of loans: it asks neighbours for workers when its farm is saturated, lends idle ones to those who ask, and
//! sees to it that everybody comes home.
//!
//! It looks around several times a second and compares what is agreed on, what its neighbours say and what its workers say with
//! what should be; whatever differs is said or proposed again. So a new leader needs nothing but the ledger, and a message that
//! is lost costs a moment. Nothing here is decided by how long something took, except whom to ask next.

mod borrower;
mod lender;
mod words;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use self::borrower::Guest;
pub use self::words::{CannotLend, Command, Happening, LendOrder, Notice, Situation, Timer};
use super::{Beat, Content, LentWorker, Message};
use crate::bounds;
use crate::ledger::{Entry, LoanId, Loans};
use crate::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use crate::planted::{Bug, Planted};
use crate::{FarmId, Fence, Term};

/// How often a lending side looks around.
pub const LOOK_MS: u64 = 50;
const LOOK: Delay = Delay::exactly_ms(LOOK_MS);
/// How often neighbours hear how things are, and everybody what is still to be done, in looks.
const REPEAT: u64 = 10;
/// A neighbour that has said nothing for so many looks is not asked.
const HEARD: u64 = 40;
/// How long a neighbour may take to answer a request, in looks.
const ANSWER: u64 = 10;
/// How long promised workers may take to arrive, in looks.
const ARRIVAL: u64 = 100;
/// For how many looks whoever has not sent somebody is asked after all others.
const DOUBT: u64 = 600;
/// When nobody had anything to lend: how long until all are asked again, in looks.
const PAUSE: u64 = 20;
/// How much later than agreed a worker may come home before it is overdue.
const OVERDUE_MS: u64 = 2000;
/// How long a worker that cannot go to other farms is not lent again: something has to be mended on its host first.
const UNABLE_MS: u64 = 60_000;
/// How long the log may take to say that somebody is lent, in looks.
const PLEDGE: u64 = 40;
/// How many loans that have ended are kept in mind.
const ENDED_MAX: usize = 4096;
/// Of how many loans in one beat it is told that there are no such loans.
const UNKNOWN_MAX: usize = 8;
/// How many own workers may have said that they are away.
const AWAY_MAX: usize = 4096;
/// How many requests of a neighbour are answered at once, and after how many looks one more is.
const REQUESTS_MAX: u32 = 10;
const REQUEST_EVERY: u64 = 20;
/// Of how many leaders of a neighbour the last request is kept in mind.
const LEADERS_MAX: usize = 4;
/// A leader that was deposed knows it after so many looks, and says nothing any more.
const DEPOSED: u64 = 60;
/// Whoever has said nothing for so many looks begins anew to say something.
const QUIET: u64 = 2 * REPEAT;
/// How many workers of others may wait to be let in.
pub(super) const ARRIVALS_MAX: usize = 1024;

/// The lending side of one server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lending {
    rules: Rules,
    /// The other farms, in the order in which they are asked.
    neighbours: BTreeMap<FarmId, String>,
    leadership: Option<Leadership>,
}

/// What a lending side goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rules {
    /// With so many tasks waiting, and no slot free, a farm is saturated,
    pub saturated_at: u64,
    /// if that lasts for so long.
    pub saturated_ms: u64,
    /// With fewer waiting than this it is calm,
    pub calm_below: u64,
    /// if that lasts for so long.
    pub calm_ms: u64,
    /// For so many waiting tasks one worker is asked for.
    pub tasks_per_worker: u64,
    /// For how long.
    pub loan_ms: u64,
    /// How long what runs may take to end when a worker is to go home.
    pub recall_ms: u64,
    /// A worker stays where it is for so long, at least, unless an operator wants it otherwise.
    pub stay_ms: u64,
    /// So many idle workers are kept at home.
    pub reserve: u32,
    /// No more are lent at once.
    pub lent_max: u32,
    /// Who is asked first.
    pub order: Order,
    /// A known bug, to see whether the laboratory finds it.
    pub planted: Planted,
}

/// Which neighbour is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// As the configuration names them.
    Listed,
    /// The one that had the most free slots when it was last heard.
    Idle,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            saturated_at: 10,
            saturated_ms: 200,
            calm_below: 3,
            calm_ms: 1000,
            tasks_per_worker: 10,
            loan_ms: 60_000,
            recall_ms: 10_000,
            stay_ms: 1000,
            reserve: 0,
            lent_max: 1024,
            order: Order::Listed,
            planted: Planted::NONE,
        }
    }
}

/// What only a leader has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Leadership {
    /// Under which this server leads.
    fence: Fence,
    loans: Loans,
    situation: Situation,
    /// How often it has looked around.
    looks: u64,
    /// For how many looks the farm has had too much to do, or next to nothing.
    busy_for: u64,
    calm_for: u64,
    neighbours: BTreeMap<FarmId, Neighbour>,
    asking: Option<Asking>,
    /// Nobody is asked before this look.
    not_before: u64,
    last_request: u64,
    /// Workers of others that would like to be let in.
    arrivals: BTreeMap<String, Arrival>,
    /// Borrowed workers.
    guests: BTreeMap<String, Guest>,
    /// Own workers that have said that they are away: under which loan, and since which look.
    away: BTreeMap<String, (LoanId, u64)>,
    /// Since which look an own worker has been at home again. For all that a new leader knows, they have all just come.
    home_since: BTreeMap<String, u64>,
    /// Own workers that could not go: under which loan, and until which look they are not lent again.
    unable: BTreeMap<String, (LoanId, u64)>,
    /// Workers of which the log is about to say that they are lent.
    pledged: BTreeMap<String, Pledge>,
    /// Loans that have ended lately: not everybody may know it.
    ended: BTreeSet<LoanId>,
    /// Loans that are known to be overdue.
    overdue: BTreeSet<LoanId>,
}

/// Whom a worker is lent to, for which request if that one has asked, and until which look that may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Pledge {
    to: FarmId,
    number: Option<u64>,
    until: u64,
}

/// A worker that would like to be let in: whose it is, under which loan it comes, and with how many slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Arrival {
    from: FarmId,
    loan: LoanId,
    slots: u16,
    /// Since which look its farm has been heard, and says nothing of it.
    strange_since: Option<u64>,
}

/// What is known of a neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Neighbour {
    /// The newest that one of its leaders has named, as far as that is believed.
    newest: Option<Fence>,
    /// The leader of an older term that goes on speaking, though it is not heard.
    insisting: Option<Insisting>,
    /// Two leaders speak at once, and until this look both are heard: nobody can tell which of them is one.
    in_doubt_until: u64,
    /// The look at which its leader was last heard; nothing since this server leads.
    heard: Option<u64>,
    /// What it said last.
    pub beat: Beat,
    /// The newest request of each of its leaders, by their terms: each is answered once, however often it arrives.
    asked: BTreeMap<Term, u64>,
    /// How many requests have been answered, less those that are long ago, and the look of the last one that is.
    requests: (u32, u64),
    /// Loans that it has said it has borrowed.
    arrived: BTreeSet<LoanId>,
    /// Loans that it has promised or speaks of, and until which look they may take to arrive.
    promised: BTreeMap<LoanId, u64>,
    /// The last look at which somebody should have come from it and had not.
    broken: Option<u64>,
}

/// A leader that is not heard because another one has a newer term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Insisting {
    fence: Fence,
    /// Since which look, and the last at which it spoke.
    since: u64,
    last: u64,
}

/// A request that is under way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Asking {
    number: u64,
    count: u32,
    /// Who is asked now, and until which look.
    whom: FarmId,
    until: u64,
    /// Who is asked next.
    others: Vec<FarmId>,
}

impl Lending {
    /// The lending side of a server that follows. The neighbours are numbered from 1, in this order.
    #[must_use]
    pub fn new(rules: Rules, neighbours: Vec<String>) -> Self {
        Self { rules, neighbours: (1..).map(FarmId).zip(neighbours).collect(), leadership: None }
    }

    /// These are the neighbours from now on. A number that was given to one never comes back. A farm that is a neighbour no
    /// more is not heard any longer: its workers are sent home, and those that it has are called back.
    pub fn set_neighbours(&mut self, neighbours: BTreeMap<FarmId, String>) {
        self.neighbours = neighbours;
        if let Some(leadership) = &mut self.leadership {
            leadership.keep_to(&self.neighbours);
        }
    }

    /// Does this server lead, and look after loans?
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.leadership.is_some()
    }

    /// What a farm is called, if it is a neighbour.
    #[must_use]
    pub fn name_of(&self, neighbour: FarmId) -> Option<&str> {
        self.neighbours.get(&neighbour).map(String::as_str)
    }

    /// The number of the neighbour of this name.
    #[must_use]
    pub fn number_of(&self, name: &str) -> Option<FarmId> {
        self.neighbours.iter().find(|(_, neighbour)| *neighbour == name).map(|(number, _)| *number)
    }

    /// The neighbours, with what is known of each, if this server leads. Silent ones are those that have not been heard lately.
    pub fn neighbours(&self) -> impl Iterator<Item = (&str, Option<&Neighbour>)> {
        self.neighbours.iter().map(|(number, name)| {
            let heard = self.leadership.as_ref().and_then(|leadership| leadership.heard(*number));
            (name.as_str(), heard)
        })
    }

    /// Which loans are overdue, as far as this server knows.
    pub fn overdue(&self) -> impl Iterator<Item = LoanId> + '_ {
        self.leadership.iter().flat_map(|leadership| leadership.overdue.iter().copied())
    }

    /// Does the farm have too much to do, for long enough?
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.leadership.as_ref().is_some_and(|leadership| leadership.is_saturated(&self.rules))
    }

    /// One without neighbours has something to do only if there were some once, and somebody of theirs or ours is still away from
    /// home.
    fn lead(&mut self, term: Term, loans: Loans, out: &mut Outbox<Self>) {
        if self.neighbours.is_empty() && loans.is_empty() {
            return;
        }
        self.leadership = Some(Leadership::new(term, loans, self.neighbours.keys()));
        out.set(Timer::Look, LOOK);
        self.beat(out);
    }

    fn follow(&mut self, out: &mut Outbox<Self>) {
        if self.leadership.take().is_some() {
            out.cancel(Timer::Look);
        }
    }

    fn on_situation(&mut self, situation: Situation, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        leadership.look(situation, &self.rules, out);
        let is_time = leadership.looks.is_multiple_of(REPEAT);
        if is_time {
            self.beat(out);
        }
        self.look_after_lent(is_time, out);
        self.look_after_borrowed(is_time, out);
        self.doubt_strangers(out);
        self.look_for_help(out);
    }

    /// Says to all neighbours how things are.
    fn beat(&self, out: &mut Outbox<Self>) {
        self.neighbours.keys().for_each(|number| self.beat_to(*number, out));
    }

    fn beat_to(&self, neighbour: FarmId, out: &mut Outbox<Self>) {
        let (Some(leadership), Some(name)) = (&self.leadership, self.name_of(neighbour)) else { return };
        let lent =
            leadership.loans.lent().iter().filter(|(_, lent)| lent.to == name).map(|(loan, lent)| LentWorker {
                loan: *loan,
                worker: lent.worker.clone(),
                for_ms: lent.for_ms,
                why: lent.why,
                is_recalled: lent.is_recalled,
            });
        let borrowed = leadership.loans.borrowed().values().filter(|borrowed| borrowed.from == name);
        let beat = Beat {
            idle: leadership.situation.idle.iter().map(|(_, slots)| u32::from(*slots)).sum(),
            queued: leadership.situation.queued,
            lent: lent.collect(),
            borrowed: borrowed.map(|borrowed| borrowed.loan).collect(),
        };
        leadership.say(neighbour, Content::Beat(beat), out);
    }

    fn on_message(&mut self, from: FarmId, message: Message, out: &mut Outbox<Self>) {
        let Some(name) = self.name_of(from).map(String::from) else { return out.ignore("what no neighbour says") };
        let Some(leadership) = &mut self.leadership else {
            return out.ignore("what a neighbour says to one that does not lead");
        };
        let (own, said, now) = (leadership.fence, Fence { farm: from, term: message.term }, leadership.looks);
        let Some(neighbour) = leadership.neighbours.get_mut(&from) else { return };
        if !bounds::is_credible(said.term.0, neighbour.term().0) {
            return out.ignore(bounds::ABSURD);
        }
        let is_bare = self.rules.planted.is(Bug::BareTerms);
        if is_bare && said.term < own.term || !is_bare && !neighbour.hears(said, now) {
            return out.ignore("what a deposed leader of a neighbour says");
        }
        neighbour.newest = Some(said);
        match message.content {
            Content::Beat(beat) => self.on_beat(from, &name, beat, out),
            Content::Ask(request) => self.on_ask(said, request, out),
            Content::Offer { number, loans } => self.on_offer(from, &name, number, &loans, out),
            Content::Refusal { number, objection } => self.on_refusal(from, number, objection, out),
        }
    }

    fn on_beat(&mut self, from: FarmId, name: &str, beat: Beat, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let Some(neighbour) = leadership.neighbours.get_mut(&from) else { return };
        neighbour.heard = Some(leadership.looks);
        let is_ours = |loan: &&LoanId| leadership.loans.lent().get(loan).is_some_and(|lent| lent.to == name);
        // What it spoke of before is not new, and what has just ended it may not know yet.
        let is_known = |loan: &LoanId| neighbour.arrived.contains(loan) || leadership.ended.contains(loan);
        let strange = |loan: &&LoanId| !is_ours(loan) && !is_known(loan);
        let unknown: Vec<LoanId> = beat.borrowed.iter().filter(strange).copied().take(UNKNOWN_MAX).collect();
        neighbour.arrived.retain(|loan| beat.borrowed.contains(loan) || is_ours(&loan));
        neighbour.arrived.extend(beat.borrowed.iter().copied());
        let until = leadership.looks + ARRIVAL;
        neighbour
            .expect(beat, until, |loan| leadership.loans.borrowed().values().any(|known| known.is(name, loan)));
        for loan in unknown {
            out.notify(Notice::Happened(Happening::UnknownLoan(name.into(), loan)));
        }
        self.let_in(out);
        self.look_after_borrowed(true, out);
    }

    /// What is agreed on has changed: whoever has to know is told at once.
    fn on_agreed(&mut self, loans: Loans, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let before = core::mem::replace(&mut leadership.loans, loans);
        let is_new = |(loan, _): &(&LoanId, _)| !before.lent().contains_key(loan);
        let lent: Vec<LoanId> = leadership.loans.lent().iter().filter(is_new).map(|(loan, _)| *loan).collect();
        for (loan, ended) in before.lent() {
            if !leadership.loans.lent().contains_key(loan) {
                leadership.home_since.insert(ended.worker.clone(), leadership.looks);
                leadership.away.remove(&ended.worker);
                leadership.overdue.remove(loan);
                leadership.ended.insert(*loan);
            }
        }
        while leadership.ended.len() > ENDED_MAX {
            leadership.ended.pop_first();
        }
        for (number, neighbour) in &mut leadership.neighbours {
            let Some(name) = self.neighbours.get(number) else { continue };
            let has_come = |loan| leadership.loans.borrowed().values().any(|known| known.is(name, loan));
            neighbour.promised.retain(|loan, _| !has_come(*loan));
        }
        if leadership.loans.lent() != before.lent() || leadership.loans.borrowed() != before.borrowed() {
            self.beat(out);
        }
        self.offer(&lent, out);
        self.look_after_lent(true, out);
        if self.neighbours.is_empty()
            && self.leadership.as_ref().is_some_and(|leadership| leadership.loans.is_empty())
        {
            self.follow(out);
        }
    }
}

impl Neighbour {
    /// The newest term that one of its leaders has named.
    #[must_use]
    pub fn term(&self) -> Term {
        self.newest.map_or(Term(0), |newest| newest.term)
    }

    /// Has it said that it has, or had, borrowed this one?
    #[must_use]
    pub fn has_had(&self, loan: LoanId) -> bool {
        self.arrived.contains(&loan)
    }

    /// Is the leader of this term to be heard? One of an older term is not, because it was deposed. But one that was deposed
    /// soon knows it. If it insists, it leads after all, as far as anybody can tell from here, and somebody else has made a
    /// newer term up; then both are heard for a while, and no term counts.
    fn hears(&mut self, said: Fence, now: u64) -> bool {
        if self.newest.is_none_or(|newest| said >= newest) || now < self.in_doubt_until {
            return true;
        }
        let known = self.insisting.filter(|known| known.fence == said && known.last + QUIET >= now);
        let since = known.map_or(now, |known| known.since);
        self.insisting = Some(Insisting { fence: said, since, last: now });
        let insists = since + DEPOSED <= now;
        if insists {
            (self.insisting, self.in_doubt_until) = (None, now + DOUBT);
        }
        insists
    }

    /// Is this request of the leader of this term new?
    fn is_news(&mut self, term: Term, number: u64) -> bool {
        let is_news = self.asked.get(&term).is_none_or(|last| number > *last);
        if is_news {
            self.asked.insert(term, number);
        }
        while self.asked.len() > LEADERS_MAX {
            self.asked.pop_first();
        }
        is_news
    }

    /// May one more request be answered? So many may come at once, and then one now and then.
    fn may_ask(&mut self, now: u64) -> bool {
        let (count, since) = self.requests;
        let earned = now.saturating_sub(since) / REQUEST_EVERY;
        let count = count.saturating_sub(u32::try_from(earned).unwrap_or(u32::MAX));
        let may_ask = count < REQUESTS_MAX;
        self.requests = (count + u32::from(may_ask), since + earned * REQUEST_EVERY);
        may_ask
    }

    /// It says how things are. Whoever it has lent may take until then to arrive; whom it speaks of no more is not expected.
    fn expect(&mut self, beat: Beat, until: u64, has_come: impl Fn(LoanId) -> bool) {
        let before = core::mem::replace(&mut self.beat, beat);
        let was_listed = |loan: LoanId| before.lent.iter().any(|lending| lending.loan == loan);
        let is_listed = |loan: LoanId| self.beat.lent.iter().any(|lending| lending.loan == loan);
        self.promised.retain(|loan, _| is_listed(*loan) || !was_listed(*loan));
        for lending in self.beat.lent.iter().filter(|lending| !lending.is_recalled) {
            if !was_listed(lending.loan) && !has_come(lending.loan) {
                self.promised.entry(lending.loan).or_insert(until);
            }
        }
    }
}

impl Leadership {
    fn new<'a>(term: Term, loans: Loans, neighbours: impl Iterator<Item = &'a FarmId>) -> Self {
        Self {
            fence: Fence { farm: FarmId::OWN, term },
            loans,
            situation: Situation::default(),
            looks: 0,
            busy_for: 0,
            calm_for: 0,
            neighbours: neighbours.map(|number| (*number, Neighbour::default())).collect(),
            asking: None,
            not_before: 0,
            last_request: 0,
            arrivals: BTreeMap::new(),
            guests: BTreeMap::new(),
            away: BTreeMap::new(),
            home_since: BTreeMap::new(),
            unable: BTreeMap::new(),
            pledged: BTreeMap::new(),
            ended: BTreeSet::new(),
            overdue: BTreeSet::new(),
        }
    }

    /// Nothing is expected of farms that are neighbours no more.
    fn keep_to(&mut self, known: &BTreeMap<FarmId, String>) {
        self.neighbours.retain(|number, _| known.contains_key(number));
        known.keys().for_each(|number| _ = self.neighbours.entry(*number).or_default());
        self.arrivals.retain(|_, arrival| known.contains_key(&arrival.from));
        self.asking.take_if(|asking| !known.contains_key(&asking.whom));
        if let Some(asking) = &mut self.asking {
            asking.others.retain(|other| known.contains_key(other));
        }
    }

    fn say(&self, to: FarmId, content: Content, out: &mut Outbox<Lending>) {
        out.send(to, Message { term: self.fence.term, content });
    }

    /// A neighbour that has been heard lately.
    fn heard(&self, neighbour: FarmId) -> Option<&Neighbour> {
        let known = self.neighbours.get(&neighbour)?;
        known.heard.is_some_and(|heard| heard + HEARD >= self.looks).then_some(known)
    }

    fn look(&mut self, situation: Situation, rules: &Rules, out: &mut Outbox<Lending>) {
        self.looks += 1;
        let was_saturated = self.is_saturated(rules);
        let is_busy = situation.queued >= rules.saturated_at && situation.free == 0;
        self.busy_for = if is_busy { self.busy_for + 1 } else { 0 };
        self.calm_for = if situation.queued < rules.calm_below { self.calm_for + 1 } else { 0 };
        if !was_saturated && self.is_saturated(rules) {
            out.notify(Notice::Happened(Happening::Saturated { queued: situation.queued }));
        }
        if self.calm_for == looks(rules.calm_ms) && !self.loans.borrowed().is_empty() {
            out.notify(Notice::Happened(Happening::Calm));
        }
        self.pledged.retain(|_, pledge| pledge.until > self.looks);
        let now = self.looks;
        self.home_since.retain(|_, since| *since + looks(rules.stay_ms) >= now);
        self.unable.retain(|_, (_, until)| *until > now);
        self.situation = situation;
    }

    fn is_saturated(&self, rules: &Rules) -> bool {
        self.busy_for > looks(rules.saturated_ms)
    }

    fn is_calm(&self, rules: &Rules) -> bool {
        self.calm_for > looks(rules.calm_ms)
    }

    /// Has so much time passed since this look that a worker may change its place again?
    const fn has_stayed(&self, since: u64, rules: &Rules) -> bool {
        since + looks(rules.stay_ms) < self.looks
    }
}

impl Machine for Lending {
    type Peer = FarmId;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Look) if self.leadership.is_some() => {
                out.set(Timer::Look, LOOK);
                out.notify(Notice::LookAround);
            }
            Input::Command(Command::Lead(term, loans)) => self.lead(term, loans, out),
            Input::Command(Command::Follow) => self.follow(out),
            Input::Command(Command::Agreed(loans)) => self.on_agreed(loans, out),
            Input::Command(Command::Situation(situation)) => self.on_situation(situation, out),
            Input::Command(Command::Arrived(worker, loan, slots)) => self.on_arrived(worker, (loan, slots), out),
            Input::Command(Command::Said(worker, word)) => self.on_said(worker, &word, out),
            Input::Timer(Timer::Look) | Input::LinkUp(_) | Input::LinkDown(_) => {
                out.ignore("what the lending side does not need");
            }
        }
    }
}

/// A length of time as a number of looks.
const fn looks(length_ms: u64) -> u64 {
    length_ms.div_ceil(LOOK_MS)
}

fn propose(entries: Vec<Entry>, out: &mut Outbox<Lending>) {
    if !entries.is_empty() {
        out.notify(Notice::Propose(entries));
    }
}
