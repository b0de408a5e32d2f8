//! One state of an exploration of loans, and all that can happen to it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use primus_core::ledger::loans::{home_of, name_here};
use primus_core::ledger::{Batch, Effect, Ending, Entry, Ledger, Lend, LoanId, Loans, Why};
use primus_core::loan::lending::{self, LOOK_MS, Lending, Rules, Situation};
use primus_core::loan::placement::Place;
use primus_core::loan::{Content, Message, WorkerMessage};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::{FarmId, ServerId, Term};

use super::Chance::{self, Crash, Cut, Delay, Flood, Loss, Order};
use super::action::{Action, Way};
use super::members::Member;
use super::{
    ARRIVAL, BORROWER, BORROWER_CHANGE, DEATH, FALSE_DEATH, Farm, HOMECOMING, LENDER, LENDER_CHANGE, RECALL,
};
use crate::frame::{Budget, Course};
use crate::host;

/// So many looks of a lending side are a tick: it says once how things are.
const LOOKS: u64 = 10;
pub(super) const TICK_MS: u64 = LOOKS * LOOK_MS;
/// Loans last for so many ticks, and what runs may take one more.
const LOAN_TICKS: u64 = 2;
/// Within so many ticks everything must have come to its end.
const REST_TICKS: u64 = 40;
const NAMES: [&str; 2] = [host::HOME, host::ABROAD];
/// Terms of two farms have nothing to do with each other.
const TERMS: [u64; 2] = [7, 3];
/// How each farm calls the other one.
const NEIGHBOUR: ServerId = ServerId(1);

/// One state of an exploration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scene {
    /// In ticks.
    now: u64,
    farms: [Host; 2],
    pub(super) members: Vec<Member>,
    /// Whom each loan was about,
    lent: BTreeMap<LoanId, String>,
    /// and those whose worker was taken for dead.
    dead: BTreeSet<LoanId>,
    pub(super) course: Course<Chance>,
}

/// A farm: whoever leads it, what is agreed on, and whether there is anything to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Host {
    lending: Arc<Lending>,
    ledger: Arc<Ledger>,
    term: u64,
    is_flooded: bool,
    /// What its leader would like to be agreed on, in order.
    proposed: VecDeque<Vec<Entry>>,
    /// What is on its way to the other one.
    said: VecDeque<Arc<Message>>,
}

impl Scene {
    /// Everybody is at home, both leaders have heard of each other, and the second farm has too much to do.
    pub(super) fn open(model: &super::Loans, course: Course<Chance>) -> Self {
        let rules = Rules {
            saturated_at: 1,
            saturated_ms: 0,
            calm_below: 1,
            calm_ms: 0,
            tasks_per_worker: 1,
            loan_ms: LOAN_TICKS * TICK_MS,
            recall_ms: TICK_MS,
            stay_ms: 0,
            planted: model.planted,
            ..Rules::default()
        };
        let mut scene = Self {
            now: 0,
            farms: [LENDER, BORROWER].map(|farm| Host::new(farm, rules)),
            members: (0..model.workers).map(|worker| Member::new(worker, model.planted)).collect(),
            lent: BTreeMap::new(),
            dead: BTreeSet::new(),
            course: Course::default(),
        };
        [LENDER, BORROWER].into_iter().for_each(|farm| scene.lead(farm));
        for worker in 0..model.workers {
            scene.start(worker);
            scene.reach_home(worker);
        }
        scene.settle();
        scene.farms[BORROWER].is_flooded = true;
        Self { course, ..scene }
    }

    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// Whoever works for another farm is lent to it, or was taken for dead.
    pub(super) fn is_whoever_is_away_lent(&self) -> bool {
        let lent = self.loans(LENDER).lent();
        let away = self.members.iter().filter_map(|member| Some((member, member.host.away_under()?)));
        away.into_iter().all(|(member, loan)| {
            self.dead.contains(&loan) || lent.get(&loan).is_some_and(|lent| lent.worker == member.name())
        })
    }

    /// No loan is borrowed that the lender has not made, and none by another worker.
    pub(super) fn is_whoever_is_borrowed_lent(&self) -> bool {
        let mut borrowed = self.loans(BORROWER).borrowed().iter();
        borrowed
            .all(|(name, borrowed)| self.lent.get(&borrowed.loan).is_some_and(|worker| guest_name(worker) == *name))
    }

    /// If everything arrives from now on, and there is nothing to do: does every loan end, and is everybody at home?
    pub(super) fn comes_to_rest(&self) -> bool {
        if self.has_deliveries() {
            return true;
        }
        let mut scene = self.clone();
        scene.heal();
        for _ in 0..REST_TICKS {
            scene.settle();
            if scene.is_at_rest() {
                return true;
            }
            scene.act(Action::Pass);
        }
        false
    }

    fn heal(&mut self) {
        self.course = Course::new(Budget::from([(Delay, u8::MAX)]), &[]);
        self.farms.iter_mut().for_each(|host| host.is_flooded = false);
        for worker in 0..self.members.len() {
            [LENDER, BORROWER].into_iter().for_each(|farm| self.mend(farm, worker));
        }
    }

    fn is_at_rest(&self) -> bool {
        [LENDER, BORROWER].into_iter().all(|farm| self.loans(farm).is_empty())
            && self.members.iter().all(|member| member.host.place().is_none_or(|place| *place == Place::Home))
    }

    /// Everything arrives, and what runs ends.
    fn settle(&mut self) {
        let mut actions = Vec::new();
        loop {
            self.deliveries(&mut actions);
            self.endings(&mut actions);
            let Some(action) = actions.first() else { return };
            self.act(*action);
            actions.clear();
        }
    }

    fn has_deliveries(&self) -> bool {
        let mut actions = Vec::new();
        self.deliveries(&mut actions);
        !actions.is_empty()
    }

    /// What happens by itself before the next tick.
    pub(super) fn deliveries(&self, actions: &mut Vec<Action>) {
        let said = [LENDER, BORROWER].into_iter().filter(|farm| !self.farms[*farm].said.is_empty());
        actions.extend(said.map(Action::Beat));
        let proposed = [LENDER, BORROWER].into_iter().filter(|farm| !self.farms[*farm].proposed.is_empty());
        actions.extend(proposed.map(Action::Agree));
        (0..self.members.len()).for_each(|worker| self.deliveries_of(worker, actions));
    }

    /// Lest there be too many states with two workers, farms agree and the second worker hears, says and does what it has to,
    /// before anything else happens; unless who was to see to it dies first, or that is lost.
    pub(super) fn urgent(&self, actions: &mut Vec<Action>) {
        if self.members.len() < 2 {
            return;
        }
        if let Some(farm) = [LENDER, BORROWER].into_iter().find(|farm| !self.farms[*farm].proposed.is_empty()) {
            actions.push(Action::Agree(farm));
            return self.death_of_leader(farm, actions);
        }
        for worker in 1..self.members.len() {
            self.deliveries_of(worker, actions);
            if !actions.is_empty() {
                actions.truncate(1);
                self.deaths_of(worker, actions);
                return self.losses_of(worker, actions);
            }
        }
    }

    fn deliveries_of(&self, worker: usize, actions: &mut Vec<Action>) {
        self.members[worker].deliveries(worker, actions);
        let missing = [LENDER, BORROWER].into_iter().filter(|farm| self.is_missed(*farm, worker));
        actions.extend(missing.map(|farm| Action::Missed(farm, worker)));
    }

    /// What a worker runs may end at any time; that makes a difference only while it is to go home, or away.
    fn endings(&self, actions: &mut Vec<Action>) {
        let is_leaving = |member: &Member| !member.host.is_away() && self.loans(LENDER).is_lent(member.name());
        let busy = self.members.iter().enumerate().filter(|(_, member)| member.is_busy());
        let ending = busy.filter(|(_, member)| member.is_returning() || is_leaving(member));
        actions.extend(ending.map(|(worker, _)| Action::Done(worker)));
    }

    /// A farm has a worker that is not there.
    fn is_missed(&self, farm: Farm, worker: usize) -> bool {
        let member = &self.members[worker];
        let is_there =
            member.links[farm] && if farm == LENDER { member.host.is_alive() } else { member.host.is_away() };
        self.is_registered(farm, worker) && !is_there
    }

    /// What happens only if the exploration wants it, within its budget.
    pub(super) fn choices(&self, actions: &mut Vec<Action>) {
        self.endings(actions);
        for farm in [LENDER, BORROWER] {
            if self.farms[farm].is_flooded {
                actions.push(Action::Calm(farm));
            } else if farm == LENDER {
                self.course.offer(Flood, actions, [Action::Flood(farm)]);
            }
            self.death_of_leader(farm, actions);
        }
        (0..self.members.len()).for_each(|worker| self.choices_for(worker, actions));
        let said = [LENDER, BORROWER].into_iter().filter(|farm| !self.farms[*farm].said.is_empty());
        self.course.offer(Loss, actions, said.map(|farm| Action::Lose(Way::Between(farm))));
    }

    fn choices_for(&self, worker: usize, actions: &mut Vec<Action>) {
        let member = &self.members[worker];
        if !member.host.is_alive() {
            actions.push(Action::Restarts(worker));
        }
        self.deaths_of(worker, actions);
        self.losses_of(worker, actions);
        for farm in [LENDER, BORROWER] {
            let may_cut =
                self.course.may(Cut) && member.host.is_alive() && (farm == LENDER || member.host.is_away());
            match member.links[farm] {
                false => actions.push(Action::Mend(farm, worker)),
                true if may_cut => actions.push(Action::Cut(farm, worker)),
                true => {}
            }
        }
        let lent = self.loans(LENDER).loan_of(member.name());
        let order = match lent.and_then(|loan| self.loans(LENDER).lent().get(&loan)) {
            None => Some(Action::Lend(worker)),
            Some(lent) => (!lent.is_recalled).then_some(Action::Recall(worker)),
        };
        self.course.offer(Order, actions, order);
    }

    fn death_of_leader(&self, farm: Farm, actions: &mut Vec<Action>) {
        self.course.offer(Crash, actions, [Action::LeaderDies(farm, false)]);
        let is_heard = !self.farms[farm].proposed.is_empty();
        self.course.offer(Crash, actions, is_heard.then_some(Action::LeaderDies(farm, true)));
    }

    fn deaths_of(&self, worker: usize, actions: &mut Vec<Action>) {
        let member = &self.members[worker];
        self.course.offer(Crash, actions, member.host.is_alive().then_some(Action::Dies(worker, true)));
        self.course.offer(Crash, actions, member.host.writes(true).then_some(Action::Dies(worker, false)));
    }

    fn losses_of(&self, worker: usize, actions: &mut Vec<Action>) {
        let member = &self.members[worker];
        self.course.offer(Loss, actions, (!member.down.is_empty()).then_some(Action::Lose(Way::Down(worker))));
        self.course.offer(Loss, actions, (!member.up.is_empty()).then_some(Action::Lose(Way::Up(worker))));
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Beat(farm) => self.hear(farm),
            Action::Agree(farm) => self.agree_on_next(farm),
            Action::Call(worker) => self.on_call(worker),
            Action::Abroad(worker) => self.on_abroad(worker),
            Action::WorkerMessage(worker) => self.on_word(worker),
            Action::Greeting(worker) => self.on_greeting(worker),
            Action::Synced(worker) => self.on_synced(worker),
            Action::Missed(farm, worker) => self.leave(farm, worker),
            Action::Done(worker) => [LENDER, BORROWER].into_iter().for_each(|farm| self.end(farm, worker)),
            Action::Calm(farm) => self.farms[farm].is_flooded = false,
            Action::Flood(farm) => {
                self.course.spend(Flood);
                self.farms[farm].is_flooded = true;
            }
            Action::Lend(worker) => self.order(worker),
            Action::Recall(worker) => self.recall(worker),
            Action::LeaderDies(farm, is_heard) => self.replace_leader(farm, is_heard),
            Action::Dies(worker, is_synced) => {
                self.course.spend(Crash);
                self.members[worker].die(is_synced);
            }
            Action::Restarts(worker) => {
                self.start(worker);
                self.reach_home(worker);
            }
            Action::Cut(farm, worker) => self.cut(farm, worker),
            Action::Mend(farm, worker) => self.mend(farm, worker),
            Action::Lose(way) => self.lose(way),
            Action::Pass => self.pass_time(),
        }
    }

    fn lose(&mut self, way: Way) {
        self.course.spend(Loss);
        match way {
            Way::Between(farm) => self.farms[farm].said.clear(),
            Way::Down(worker) => self.members[worker].down.clear(),
            Way::Up(worker) => self.members[worker].up.clear(),
        }
    }

    fn order(&mut self, worker: usize) {
        self.course.spend(Order);
        let (worker, to) = (self.members[worker].name().to_owned(), NAMES[BORROWER].to_owned());
        let lend = Lend { worker, to, for_ms: LOAN_TICKS * TICK_MS, why: Why::Operator };
        self.agree(LENDER, vec![Entry::Lend(lend)]);
    }

    fn recall(&mut self, worker: usize) {
        self.course.spend(Order);
        let loan = self.loans(LENDER).loan_of(self.members[worker].name());
        self.agree(LENDER, loan.into_iter().map(Entry::Recall).collect());
    }

    /// Timers that are due run out first; then both leaders look around.
    fn pass_time(&mut self) {
        if self.has_deliveries() {
            self.course.spend(Delay);
        }
        self.now += 1;
        (0..self.members.len()).for_each(|worker| self.pass_time_of(worker));
        for farm in [LENDER, BORROWER] {
            (0..LOOKS).for_each(|_| self.step_office(farm, Input::Timer(lending::Timer::Look)));
        }
    }

    fn lead(&mut self, farm: Farm) {
        let (term, loans) = (self.farms[farm].term, self.loans(farm).clone());
        self.step_office(farm, Input::Command(lending::Command::Lead(Term(term), loans)));
    }

    /// What is under way from and to the dead leader is lost, and everybody who has a link to its successor says so. What it had
    /// proposed is agreed on after all, if a majority has heard of it, or it never is.
    fn replace_leader(&mut self, farm: Farm, is_heard: bool) {
        self.course.spend(Crash);
        let proposed = std::mem::take(&mut self.farms[farm].proposed);
        if self.members.iter().any(|member| member.host.is_away()) {
            self.course.pass(if farm == LENDER { LENDER_CHANGE } else { BORROWER_CHANGE });
        }
        self.farms.iter_mut().for_each(|host| host.said.clear());
        (0..self.members.len()).for_each(|worker| self.part(farm, worker));
        self.farms[farm].term += 1;
        self.step_office(farm, Input::Command(lending::Command::Follow));
        proposed.into_iter().filter(|_| is_heard).for_each(|entries| self.apply(farm, entries));
        self.lead(farm);
        for worker in 0..self.members.len() {
            self.members[worker].forget(farm);
            self.reach(farm, worker);
        }
    }

    fn cut(&mut self, farm: Farm, worker: usize) {
        self.course.spend(Cut);
        self.members[worker].links[farm] = false;
        self.members[worker].forget(farm);
        self.part(farm, worker);
    }

    fn mend(&mut self, farm: Farm, worker: usize) {
        if !self.members[worker].links[farm] {
            self.members[worker].links[farm] = true;
            self.reach(farm, worker);
        }
    }

    fn reach(&mut self, farm: Farm, worker: usize) {
        match farm {
            LENDER => self.reach_home(worker),
            _ => self.members[worker].greet(),
        }
    }

    /// A worker that has found its own leader registers, if that is news, and says where it is.
    pub(super) fn reach_home(&mut self, worker: usize) {
        let member = &self.members[worker];
        if !member.host.is_alive() || !member.links[LENDER] {
            return;
        }
        let is_news = !self.is_registered(LENDER, worker) || self.loans(LENDER).is_missing(member.name());
        if is_news {
            let join = Entry::Join { worker: member.name().to_owned(), slots: 1 };
            self.agree(LENDER, vec![join]);
        }
        self.meet(LENDER, worker);
    }

    /// Whoever leads a farm, by its term.
    pub(super) const fn leader(&self, farm: Farm) -> ServerId {
        ServerId(self.farms[farm].term)
    }

    /// A worker introduces itself abroad: it may work there, or it is only heard and the lending side decides.
    fn on_greeting(&mut self, worker: usize) {
        let Some(loan) = self.members[worker].greeting.take() else { return };
        self.meet(BORROWER, worker);
        let name = self.name_in(BORROWER, worker);
        let is_in = self.loans(BORROWER).borrowed().get(&name).is_some_and(|borrowed| borrowed.loan == loan);
        if is_in {
            return self.join_abroad(worker);
        }
        if self.is_registered(BORROWER, worker) {
            self.leave(BORROWER, worker);
        }
        self.step_office(BORROWER, Input::Command(lending::Command::Arrived(name, loan, 1)));
    }

    fn join_abroad(&mut self, worker: usize) {
        let name = self.name_in(BORROWER, worker);
        self.agree(BORROWER, vec![Entry::Join { worker: name, slots: 1 }]);
        if self.farms[BORROWER].is_flooded {
            self.occupy(BORROWER, worker);
        }
    }

    fn leave(&mut self, farm: Farm, worker: usize) {
        let worker = self.name_in(farm, worker);
        self.agree(farm, vec![Entry::Leave { worker }]);
    }

    fn on_word(&mut self, worker: usize) {
        let Some(word) = self.members[worker].up.pop_front() else { return };
        let name = self.members[worker].name().to_owned();
        self.step_office(LENDER, Input::Command(lending::Command::Said(name, word)));
    }

    fn hear(&mut self, from: Farm) {
        let Some(message) = self.farms[from].said.pop_front() else { return };
        let message = Arc::unwrap_or_clone(message);
        self.step_office(1 - from, Input::Message { from: FarmId(NEIGHBOUR.0), message });
    }

    fn step_office(&mut self, farm: Farm, input: Input<Lending>) {
        let mut out = Outbox::new();
        Arc::make_mut(&mut self.farms[farm].lending).step(Moment::START, input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { message, .. } => self.farms[farm].say(message),
                Output::Notify(notice) => self.on_notice(farm, notice),
                _ => {}
            }
        }
    }

    fn on_notice(&mut self, farm: Farm, notice: lending::Notice) {
        match notice {
            lending::Notice::Propose(entries) => self.farms[farm].propose(entries),
            lending::Notice::LookAround => {
                let situation = self.situation(farm);
                self.step_office(farm, Input::Command(lending::Command::Situation(situation)));
            }
            lending::Notice::Tell(name, word) => self.tell(farm, &name, word),
            lending::Notice::Happened(_) => {}
        }
    }

    fn agree_on_next(&mut self, farm: Farm) {
        let next = self.farms[farm].proposed.pop_front();
        next.into_iter().for_each(|entries| self.agree(farm, entries));
    }

    fn tell(&mut self, farm: Farm, name: &str, word: WorkerMessage) {
        let worker = (0..self.members.len()).find(|worker| self.name_in(farm, *worker) == name);
        let Some(member) = worker.map(|worker| &mut self.members[worker]) else { return };
        if farm == LENDER { member.call(word) } else { member.call_from_abroad(word) }
    }

    /// This is in the log, and the lending side hears of it.
    fn agree(&mut self, farm: Farm, entries: Vec<Entry>) {
        self.apply(farm, entries);
        let loans = self.loans(farm).clone();
        self.step_office(farm, Input::Command(lending::Command::Agreed(loans)));
    }

    fn apply(&mut self, farm: Farm, entries: Vec<Entry>) {
        let batch = Batch { time_ms: self.now_ms(), entries };
        let effects = Arc::make_mut(&mut self.farms[farm].ledger).apply(batch);
        effects.into_iter().for_each(|effect| self.on_effect(effect));
    }

    fn on_effect(&mut self, effect: Effect) {
        match effect {
            Effect::Lent(loan) => {
                let lent = self.loans(LENDER).lent().get(&loan).map(|lent| (loan, lent.worker.clone()));
                self.lent.extend(lent);
            }
            Effect::Recalled(_) => self.course.pass(RECALL),
            // The foreman asks it who it is, now that it may work here.
            Effect::Borrowed(name) => {
                self.course.pass(ARRIVAL);
                let guest = (0..self.members.len()).find(|worker| self.name_in(BORROWER, *worker) == name);
                guest.into_iter().for_each(|worker| self.members[worker].greet());
            }
            Effect::LoanEnded { ending: Ending::Home, .. } => self.course.pass(HOMECOMING),
            Effect::LoanEnded { loan, ending: Ending::Dead, lent } => {
                self.dead.insert(loan);
                self.course.pass(DEATH);
                let mut away = self.members.iter().filter(|member| member.name() == lent.worker);
                if away.any(|member| member.host.away_under() == Some(loan)) {
                    self.course.pass(FALSE_DEATH);
                }
            }
            _ => {}
        }
    }

    /// What a foreman would say. Whoever has room and something waits for has something to do.
    fn situation(&mut self, farm: Farm) -> Situation {
        let is_flooded = self.farms[farm].is_flooded;
        let open: Vec<usize> = (0..self.members.len()).filter(|worker| self.is_open(farm, *worker)).collect();
        for worker in open.iter().filter(|_| farm == LENDER) {
            if is_flooded { self.occupy(LENDER, *worker) } else { self.end(LENDER, *worker) }
        }
        let own = open.iter().filter(|_| farm == LENDER && !is_flooded);
        let guests = self.farms[farm].ledger.workers().keys().filter(|name| home_of(name).is_some());
        Situation {
            now_ms: self.now_ms(),
            queued: if is_flooded { self.members.len() as u64 } else { 0 },
            free: if is_flooded { 0 } else { u32::try_from(open.len()).unwrap_or(u32::MAX) },
            idle: own.map(|worker| (self.members[*worker].name().to_owned(), 1)).collect(),
            guests: guests.cloned().collect(),
        }
    }

    /// May a worker be given something here?
    fn is_open(&self, farm: Farm, worker: usize) -> bool {
        let member = &self.members[worker];
        let is_here = match farm {
            LENDER => member.host.is_alive() && !self.loans(LENDER).is_lent(member.name()),
            _ => member.host.can_return(),
        };
        self.is_registered(farm, worker) && member.links[farm] && is_here
    }

    fn is_registered(&self, farm: Farm, worker: usize) -> bool {
        self.farms[farm].ledger.workers().contains_key(&self.name_in(farm, worker))
    }

    fn loans(&self, farm: Farm) -> &Loans {
        self.farms[farm].ledger.loans()
    }

    fn name_in(&self, farm: Farm, worker: usize) -> String {
        let name = self.members[worker].name();
        if farm == LENDER { name.to_owned() } else { guest_name(name) }
    }

    const fn now_ms(&self) -> u64 {
        self.now * TICK_MS
    }
}

fn guest_name(worker: &str) -> String {
    name_here(worker, NAMES[LENDER])
}

impl Host {
    fn new(farm: Farm, rules: Rules) -> Self {
        Self {
            lending: Arc::new(Lending::new(rules, vec![NAMES[1 - farm].to_owned()])),
            ledger: Arc::default(),
            term: TERMS[farm],
            is_flooded: false,
            proposed: VecDeque::new(),
            said: VecDeque::new(),
        }
    }

    /// What is proposed again and again is agreed on once: the second time it comes to nothing.
    fn propose(&mut self, entries: Vec<Entry>) {
        if !self.proposed.contains(&entries) {
            self.proposed.push_back(entries);
        }
    }

    /// A newer beat says all that an older one did.
    fn say(&mut self, message: Message) {
        let is_beat = |message: &Message| matches!(message.content, Content::Beat(_));
        if is_beat(&message) && self.said.back().is_some_and(|last| is_beat(last)) {
            self.said.pop_back();
        }
        self.said.push_back(Arc::new(message));
    }
}
