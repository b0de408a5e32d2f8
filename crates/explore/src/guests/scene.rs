//! One state of an exploration of a guest, and all that can happen to it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use primus_core::farm::foreman::{self, Foreman};
use primus_core::farm::worker::{self, Worker};
use primus_core::farm::{Message, assign};
use primus_core::ledger::{
    Batch, Borrow, CommandLine, Effect, Entry, Expansion, Held, JobId, Ledger, LoanId, Spec, State, TaskId, Why,
    Work,
};
use primus_core::loan::placement;
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output};
use primus_core::{ServerId, Term, WorkerId};
use primus_lab::tasks::{job, report};
use primus_server::worker::Timer;

use super::Chance::{self, Call, Crash, Cut, Doubt};
use super::action::{Action, Member};
use super::guest::Guest;
use super::{
    ENDINGS, Guests, LEADER_DIED, NONE_HANDED_OUT_LATE, ONCE_IS_ONCE, ONE_RESULT, RECORDED_HAS_BEGUN, RUNS_AGAIN,
};
use crate::frame::{Course, Setting};
use crate::host::HOME;

/// As long as a worker may have work in advance, so that it gets one task more than it can run.
pub(super) const TASK_US: u64 = 15_000;
const BEAT: Delay = Delay::exactly_ms(500);
/// The guest and the own worker, as the borrower's leader knows them. The guest comes first.
const GUEST: WorkerId = WorkerId(11);
const OWN: WorkerId = WorkerId(12);
const FIRST_TERM: u64 = 3;
/// Within so many steps everything must have come to its end.
const STEPS_MAX: usize = 300;

/// One state of an exploration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scene {
    tasks: u64,
    is_once: bool,
    term: u64,
    foreman: Arc<Foreman>,
    /// Those of its timers that have to do with the guest.
    timers: BTreeSet<foreman::Timer>,
    /// What the leader would like to be agreed on, in order.
    proposed: VecDeque<Vec<Entry>>,
    own: Option<Arc<Worker>>,
    /// What the own worker hears before anything else happens.
    to_own: VecDeque<Message>,
    pub(super) guest: Guest,
    /// The lender's last loan, and whether it is over as far as the lender is concerned.
    pub(super) loan: LoanId,
    is_recalled: bool,
    /// Was the guest given up for its silence, and has not shown since that it is alive?
    is_doubted: bool,
    begun: BTreeSet<Held>,
    pub(super) stopped: BTreeSet<TaskId>,
    ended: BTreeSet<TaskId>,
    pub(super) course: Course<Chance>,
}

impl Setting for Guests {
    type Scene = Scene;
    type Action = Action;
    type Chance = Chance;

    /// The guest has arrived, and its first task is on its way to it.
    fn open(&self, course: Course<Chance>) -> Scene {
        let rules = rules(self);
        let mut scene = Scene {
            tasks: self.tasks,
            is_once: self.is_once,
            term: FIRST_TERM,
            foreman: Arc::new(Foreman::new(rules, Ledger::default())),
            timers: BTreeSet::new(),
            proposed: VecDeque::new(),
            own: None,
            to_own: VecDeque::new(),
            guest: Guest::new(self.planted),
            loan: LoanId(0),
            is_recalled: false,
            is_doubted: false,
            begun: BTreeSet::new(),
            stopped: BTreeSet::new(),
            ended: BTreeSet::new(),
            course: Course::default(),
        };
        scene.command(foreman::Command::Lead(Term(FIRST_TERM)));
        scene.start_guest();
        scene.call_abroad();
        if self.has_own {
            scene.hire();
        }
        scene.settle();
        scene.agree(vec![Entry::Submit { spec: spec(self), key: None }]);
        Scene { course, ..scene }
    }

    fn events(&self, scene: &Scene, actions: &mut Vec<Action>) {
        scene.deliveries(actions);
        scene.timeouts(actions);
    }

    fn choices(&self, scene: &Scene, actions: &mut Vec<Action>) {
        scene.endings(actions);
        scene.wishes(actions);
        scene.course.offer(Crash, actions, [Action::LeaderDies(false)]);
        scene.course.offer(Crash, actions, (!scene.proposed.is_empty()).then_some(Action::LeaderDies(true)));
        let is_alive = scene.guest.host.is_alive();
        let is_writing = scene.guest.host.writes(true) || scene.guest.host.writes(false);
        scene.course.offer(Crash, actions, is_alive.then_some(Action::Dies(true)));
        scene.course.offer(Crash, actions, is_writing.then_some(Action::Dies(false)));
        scene.course.offer(Cut, actions, scene.guest.link.is_whole().then_some(Action::Cut));
        let is_heard = scene.timers.contains(&foreman::Timer::Silence(GUEST)) && scene.guest.link.is_whole();
        scene.course.offer(Doubt, actions, is_heard.then_some(Action::Silence));
    }

    fn act(&self, scene: &mut Scene, action: Action) {
        scene.act(action);
    }

    fn course(scene: &Scene) -> &Course<Chance> {
        &scene.course
    }

    fn judge(&self, scene: &Scene) -> Option<&'static str> {
        (!scene.comes_to_rest()).then_some(ENDINGS)
    }
}

impl Scene {
    pub(super) fn has_begun(&self, held: Held) -> bool {
        self.begun.contains(&held)
    }

    /// The leader, by its term.
    pub(super) const fn leader(&self) -> ServerId {
        ServerId(self.term)
    }

    pub(super) const fn term(&self) -> Term {
        Term(self.term)
    }

    /// If everybody is reached from now on, and the guest is wanted back: does every task end, and has the guest told everything?
    fn comes_to_rest(&self) -> bool {
        let mut under_way = Vec::new();
        self.deliveries(&mut under_way);
        if !under_way.is_empty() {
            return true;
        }
        let mut scene = Self { course: Course::default(), ..self.clone() };
        if scene.own.is_none() {
            scene.hire();
        }
        scene.finish();
        scene.is_at_rest()
    }

    fn is_at_rest(&self) -> bool {
        let state = |index| self.foreman.ledger().state(TaskId { job: JobId(1), index });
        let is_over = |index| match state(index) {
            Some(State::Done) => true,
            Some(State::Lost) => self.is_once,
            _ => false,
        };
        let has_nothing = |worker: &Worker| worker.has().next().is_none();
        (1..=self.tasks).all(is_over)
            && self.guest.host.is_at_home()
            && !self.guest.host.serves_abroad()
            && self.own.iter().all(|own| has_nothing(own))
    }

    fn settle(&mut self) {
        let mut actions = Vec::new();
        for _ in 0..STEPS_MAX {
            self.deliveries(&mut actions);
            let Some(action) = actions.first() else { return };
            self.act(*action);
            actions.clear();
        }
    }

    /// Everything arrives and what runs ends, one after the other, because some things can be said for ever; then the guest is called
    /// home, and only then time passes.
    fn finish(&mut self) {
        for turn in 0..STEPS_MAX {
            let mut actions = Vec::new();
            self.deliveries(&mut actions);
            self.endings(&mut actions);
            if actions.is_empty() {
                actions.extend(self.guest.host.can_return().then_some(Action::Recall));
                self.timeouts(&mut actions);
                actions.truncate(1);
            }
            if actions.is_empty() || self.is_at_rest() {
                return;
            }
            self.act(actions[turn % actions.len()]);
        }
    }

    /// What happens by itself.
    fn deliveries(&self, actions: &mut Vec<Action>) {
        let guest = &self.guest;
        actions.extend((!guest.link.to_leader.is_empty() && guest.link.is_known).then_some(Action::Heard));
        actions.extend((!guest.link.to_guest.is_empty()).then_some(Action::Told));
        actions.extend((!self.proposed.is_empty()).then_some(Action::Agree));
        actions.extend(guest.host.writes(false).then_some(Action::Synced));
        actions.extend(guest.host.writes(true).then_some(Action::EpochSynced));
        actions.extend(guest.link.can_leader_notice().then_some(Action::LeaderNotices));
        actions.extend(guest.link.can_guest_notice().then_some(Action::GuestNotices));
        actions.extend((guest.host.serves_abroad() && !guest.link.is_open).then_some(Action::Dial));
        actions.extend((!guest.host.is_alive()).then_some(Action::Restarts));
        actions.extend((self.is_doubted && guest.link.is_whole()).then_some(Action::Beat));
    }

    /// Timers that are set. In any kind of time they run out whenever they like.
    fn timeouts(&self, actions: &mut Vec<Action>) {
        actions.extend(self.timers.contains(&foreman::Timer::Grace(GUEST)).then_some(Action::Grace));
        actions.extend(self.timers.contains(&foreman::Timer::Settle).then_some(Action::Settle));
        let gathering = self.guest.timer(worker::Timer::Gather).filter(|timer| self.guest.host.has_timer(*timer));
        actions.extend(gathering.map(|_| Action::Gather));
        let is_returning = self.guest.host.has_timer(Timer::Placement(placement::Timer::Deadline));
        actions.extend(is_returning.then_some(Action::Deadline));
    }

    fn endings(&self, actions: &mut Vec<Action>) {
        actions.extend(self.guest.runs().map(|_| Action::Done(Member::Guest)));
        let own = self.own.as_ref().and_then(|own| own.running().next());
        actions.extend(own.map(|_| Action::Done(Member::Own)));
    }

    fn wishes(&self, actions: &mut Vec<Action>) {
        let ledger = self.foreman.ledger();
        let (can_return, name) = (self.guest.host.can_return(), Guest::name());
        actions.extend(can_return.then_some(Action::Recall));
        let is_registered = ledger.workers().contains_key(&name);
        let is_told =
            self.guest.link.to_guest.iter().any(|words| matches!(words, primus_server::worker::Message::Call(..)));
        let can_release = can_return && is_registered && self.guest.link.is_whole() && !is_told;
        actions.extend(can_release.then_some(Action::Release));
        // That takes longer than words do.
        let is_quiet = self.guest.link.is_quiet() && self.proposed.is_empty();
        let is_missing = ledger.loans().borrowed().contains_key(&name) && !is_registered;
        actions.extend((is_missing && is_quiet).then_some(Action::GiveBack));
        self.course.offer(Call, actions, self.guest.host.is_at_home().then_some(Action::Call));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Heard => self.on_heard(),
            Action::Told => self.on_told(),
            Action::Agree => {
                let next = self.proposed.pop_front();
                next.into_iter().for_each(|entries| self.agree(entries));
            }
            Action::Synced => self.sync_guest(false),
            Action::EpochSynced => self.sync_guest(true),
            Action::Done(Member::Guest) => self.end_guests_task(),
            Action::Done(Member::Own) => self.end_own_task(),
            Action::Dial => self.dial(),
            Action::LeaderNotices => self.leader_notices(),
            Action::GuestNotices => self.guest_notices(),
            Action::Grace => self.fire_leaders(foreman::Timer::Grace(GUEST)),
            Action::Silence => {
                self.course.spend(Doubt);
                self.is_doubted = true;
                self.fire_leaders(foreman::Timer::Silence(GUEST));
            }
            Action::Settle => self.fire_leaders(foreman::Timer::Settle),
            Action::Beat => {
                self.is_doubted = false;
                self.guest.timer(worker::Timer::Beat).into_iter().for_each(|timer| self.fire_guests(timer));
            }
            Action::Gather => {
                self.guest.timer(worker::Timer::Gather).into_iter().for_each(|timer| self.fire_guests(timer));
            }
            Action::Deadline => self.pass_deadline(),
            wish_or_fault => self.act_on_wish(wish_or_fault),
        }
        self.serve_own();
    }

    fn act_on_wish(&mut self, action: Action) {
        match action {
            Action::Recall => {
                self.is_recalled = true;
                self.call_home();
            }
            Action::Release => self.release_guest(),
            Action::GiveBack => self.give_back(),
            Action::Call => {
                self.course.spend(Call);
                self.is_recalled = false;
                self.call_abroad();
            }
            Action::LeaderDies(is_heard) => self.replace_leader(is_heard),
            Action::Dies(is_synced) => {
                self.course.spend(Crash);
                self.is_doubted = false;
                self.guest.die(is_synced);
            }
            Action::Restarts => self.start_guest(),
            Action::Cut => {
                self.course.spend(Cut);
                self.guest.link.cut();
            }
            _ => {}
        }
    }

    fn on_heard(&mut self) {
        let Some(message) = self.guest.link.to_leader.pop_front() else { return };
        self.step_foreman(Input::Message { from: GUEST, message });
    }

    pub(super) fn leader_notices(&mut self) {
        self.guest.link.is_known = false;
        self.step_foreman(Input::LinkDown(GUEST));
    }

    fn fire_leaders(&mut self, timer: foreman::Timer) {
        self.timers.remove(&timer);
        self.step_foreman(Input::Timer(timer));
    }

    fn give_back(&mut self) {
        let worker = Guest::name();
        let loan = self.foreman.ledger().loans().borrowed().get(&worker).map(|borrowed| borrowed.loan);
        loan.into_iter().for_each(|loan| self.propose(vec![Entry::GiveBack { worker: worker.clone(), loan }]));
    }

    /// What was under way from and to the dead leader is lost. What it had proposed is agreed on after all, if a majority has heard
    /// of it, or it never is.
    fn replace_leader(&mut self, is_heard: bool) {
        self.course.spend(Crash);
        if self.guest.runs().is_some() {
            self.course.pass(LEADER_DIED);
        }
        let before = self.leader();
        let proposed = std::mem::take(&mut self.proposed);
        self.timers.clear();
        self.is_doubted = false;
        self.guest.link.lose_leader();
        self.command(foreman::Command::Follow);
        self.step_foreman(Input::LinkDown(GUEST));
        self.step_foreman(Input::LinkDown(OWN));
        proposed.into_iter().filter(|_| is_heard).for_each(|entries| self.agree(entries));
        self.term += 1;
        self.command(foreman::Command::Lead(Term(self.term)));
        self.step_own(Input::LinkDown(before));
        self.step_own(Input::Command(worker::Command::Serve(self.leader())));
    }

    fn agree(&mut self, entries: Vec<Entry>) {
        self.command(foreman::Command::Apply(Batch { time_ms: 0, entries }));
    }

    fn command(&mut self, command: foreman::Command) {
        self.step_foreman(Input::Command(command));
    }

    /// What is proposed twice is agreed on once: the second time it would come to nothing.
    fn propose(&mut self, entries: Vec<Entry>) {
        if !self.proposed.contains(&entries) {
            self.proposed.push_back(entries);
        }
    }

    fn step_foreman(&mut self, input: Input<Foreman>) {
        let mut out = Outbox::new();
        Arc::make_mut(&mut self.foreman).step(Moment::START, input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { to, message } => self.send(to, message),
                Output::Set { timer, .. } if is_about_guest(timer) => _ = self.timers.insert(timer),
                Output::Cancel(timer) => _ = self.timers.remove(&timer),
                Output::Notify(notice) => self.on_notice(notice),
                _ => {}
            }
        }
    }

    fn send(&mut self, to: WorkerId, message: Message) {
        if let Message::Run(_, assignments) = &message {
            let is_late = assignments.iter().any(|assignment| self.ended.contains(&assignment.held.task));
            self.course.must(NONE_HANDED_OUT_LATE, !is_late);
        }
        match to {
            OWN => self.to_own.push_back(message),
            _ => self.guest.link.tell_guest(primus_server::worker::Message::Work(message)),
        }
    }

    fn on_notice(&mut self, notice: foreman::Notice) {
        match notice {
            foreman::Notice::Propose(entries) => self.propose(entries),
            foreman::Notice::Applied(effects) => effects.iter().for_each(|effect| self.on_effect(effect)),
            foreman::Notice::Arrived(worker, loan, slots) if loan == self.loan && !self.is_recalled => {
                let (from, why) = (HOME.to_owned(), Why::Operator);
                let join = Entry::Join { worker: worker.clone(), slots };
                self.propose(vec![Entry::Borrow(Borrow { worker, from, loan, for_ms: 0, why }), join]);
            }
            foreman::Notice::Arrived(..) | foreman::Notice::Beside(_) => {}
        }
    }

    /// What is lost need not have begun.
    fn on_effect(&mut self, effect: &Effect) {
        let Effect::Finished(held) = effect else { return };
        let is_done = self.foreman.ledger().state(held.task) == Some(State::Done);
        self.course.must(RECORDED_HAS_BEGUN, !is_done || self.has_begun(*held));
        let is_first = self.ended.insert(held.task);
        self.course.must(ONE_RESULT, is_first);
    }

    pub(super) fn on_start(&mut self, held: Held) {
        let is_first = self.begun.iter().all(|begun| begun.task != held.task);
        self.course.must(ONCE_IS_ONCE, is_first || !self.is_once);
        if self.stopped.contains(&held.task) {
            self.course.pass(RUNS_AGAIN);
        }
        self.begun.insert(held);
    }

    /// A worker of the borrower's own is here from now on.
    fn hire(&mut self) {
        self.own = Some(Arc::new(Worker::new("own".to_owned(), 1, BEAT, [])));
        self.step_own(Input::Command(worker::Command::Serve(self.leader())));
        self.serve_own();
    }

    fn serve_own(&mut self) {
        while let Some(message) = self.to_own.pop_front() {
            self.step_own(Input::Message { from: self.leader(), message });
        }
    }

    /// Its disk is as fast as it is.
    fn step_own(&mut self, input: Input<Worker>) {
        let Some(own) = &mut self.own else { return };
        let mut out = Outbox::new();
        Arc::make_mut(own).step(Moment::START, input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { message, .. } => self.step_foreman(Input::Message { from: OWN, message }),
                Output::Persist { token, .. } => self.step_own(Input::Persisted(token)),
                Output::Set { timer: worker::Timer::Gather, .. } => {
                    self.step_own(Input::Timer(worker::Timer::Gather));
                }
                Output::Notify(worker::Notice::Start(assignment)) => self.on_start(assignment.held),
                _ => {}
            }
        }
    }

    fn end_own_task(&mut self) {
        let running = self.own.as_ref().and_then(|own| own.running().next());
        let ended = running.map(|held| worker::Command::Ended(report(held, "own".to_owned(), 0, TASK_US)));
        ended.into_iter().for_each(|ended| self.step_own(Input::Command(ended)));
    }
}

/// The own worker is always there.
fn is_about_guest(timer: foreman::Timer) -> bool {
    !matches!(timer, foreman::Timer::Grace(OWN) | foreman::Timer::Silence(OWN))
}

fn rules(model: &Guests) -> foreman::Rules {
    let assignment = assign::Rule::Balanced;
    foreman::Rules { assignment, ahead_us: TASK_US, planted: model.planted, ..foreman::Rules::default() }
}

fn spec(model: &Guests) -> Spec {
    let job = job(Work::Command(CommandLine::default()), Expansion::Array { first: 1, last: model.tasks });
    Spec { is_once: model.is_once, ..job }
}
