//! Explorations of leases: two servers, one after the other the leader, and two guards that want the same group, for so many
//! ticks of the clock.
//!
//! Time passes in coarse ticks. Between two of them everything arrives that was said and every timer that is due runs out, the
//! guards' in any order; but for what a budget allows to be late, to be overtaken, or to stand still. What is late until a newer
//! question is asked is lost. Each clock may once gain or lose a tick.
//!
//! Left out, to keep the number of states small:
//!
//! - A proposal of the leader is agreed on at once; a proposal of a deposed leader is lost.
//! - Processes do not crash.
//! - After a fixed number of questions a guard is not heard any more. Of overtaken messages only the newest arrives.
//! - The word of a majority that a server leads arrives before anything else, unless that server freezes or another one is
//!   elected first.
//! - When time passes, a lessor's timer and the end of a promise come before anything else.
//! - A deposed leader never hears of it and never leads again.
//!
//! Runs ([`primus_lab::leases`]) try all of that.
//!
//! What must always hold is that the two guards never hold the group at the same time.

mod action;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use primus_core::lease::guard::Leader;
use primus_core::lease::{Candidacy, Guard, Lessor, Message, Poll, guard, lessor};
use primus_core::ledger::{Batch, Entry, GroupRank, GroupRules, Ledger};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{ServerId, SessionId};

use self::Chance::{Delay, Drift, Freeze, Overtaking, Question, Resignation, Wish};
use self::action::{Action, Process};
use crate::frame::{Budget, Course, Milestone, Setting};

/// Whoever waits for the end of a promise waits a little more than a tick longer than it lasts; in whole ticks, two.
const TICK_US: u64 = 45_000;
const LEASE_US: u64 = 2 * TICK_US;
/// No clock is wrong by more ticks than this.
const DRIFT_MAX: i64 = 1;
const GROUP: &str = "cron";
/// A group that nobody holds at first.
const FREE_GROUP: &str = "backup";
const OVERLAP: &str = "two guards never hold the group at once";

/// Two servers and two guards.
#[derive(Debug, Clone)]
pub struct Leases {
    /// How many ticks pass.
    pub ticks: u64,
    /// A bug that is to be found.
    pub planted: Planted,
}

/// What happens only so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chance {
    /// A clock gains or loses a tick.
    Drift,
    /// A holder gives the group up by itself.
    Resignation,
    /// A process stands still, until it goes on at some later moment.
    Freeze,
    /// Time passes, though something was to arrive before.
    Delay,
    /// Something arrives that a newer question has overtaken.
    Overtaking,
    /// The second guard wants a group that nobody holds.
    Wish,
    /// A question of this guard is heard.
    Question(usize),
}

/// One holds the group because the other one has given it up in time.
pub const RELEASE: Milestone = Milestone("a release lets the next one in");
/// One holds the group because the other one's time was over.
pub const EXPIRY: Milestone = Milestone("a time is over");
/// The second leader lets the holder go on.
pub const GOES_ON: Milestone = Milestone("a holder goes on");
/// The second leader commits something while a promise of the first one runs.
pub const EARLY_COMMIT: Milestone = Milestone("a successor commits early");
/// The first leader promises something when the second one leads already.
pub const STALE_PROMISE: Milestone = Milestone("a deposed leader promises");

/// One state of an exploration.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scene {
    /// In ticks.
    now: u64,
    servers: [Server; 2],
    candidates: [Candidate; 2],
    ledger: Arc<Ledger>,
    /// Who can commit.
    leader: usize,
    frozen: Option<Process>,
    course: Course<Chance>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Server {
    lessor: Arc<Lessor>,
    /// How many ticks its clock has gained.
    drift: i64,
    tick_us: Option<u64>,
    /// The newest question that a majority has answered, on its way back.
    confirmed: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Candidate {
    guard: Arc<Guard>,
    drift: i64,
    timers: BTreeMap<guard::Timer, u64>,
    /// The number of the newest question.
    asked: u64,
    polls: Post<Poll>,
    answers: Post<(usize, Message)>,
    /// Who answered last.
    heard: usize,
    held: Option<Interval>,
}

/// What is under way, of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Post<T> {
    newest: Option<Arc<T>>,
    /// What belongs to an older question.
    overtaken: Option<Arc<T>>,
}

/// From some moment until its end by the holder's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Interval {
    until_us: u64,
    /// Who promised it last.
    server: usize,
    /// Was it given up before its end?
    is_given_up: bool,
}

const PROCESSES: [Process; 4] = [Process::Server(0), Process::Server(1), Process::Guard(0), Process::Guard(1)];

impl Setting for Leases {
    type Scene = Scene;
    type Action = Action;
    type Chance = Chance;

    /// The first server leads, the first guard holds the group, and the second one waits for it.
    fn open(&self, course: Course<Chance>) -> Scene {
        let mut scene = Scene {
            now: FIRST_TICK,
            servers: [self.server(0), self.server(1)],
            candidates: [self.candidate(0), self.candidate(1)],
            ledger: Arc::default(),
            leader: 0,
            frozen: None,
            course: Course::new(Budget::from([(Question(0), 1), (Question(1), 1)]), &[]),
        };
        scene.lead(0);
        for place in 0..2 {
            scene.want(place, GROUP);
            scene.act(Action::Poll(place, 0, false));
        }
        scene.act(Action::Confirmed(0));
        scene.act(Action::Answer(0, false));
        assert!(scene.is_held_by(0), "the first guard holds the group before anything goes wrong");
        Scene { course, ..scene }
    }

    fn urgent(&self, scene: &Scene, actions: &mut Vec<Action>) {
        if let Some(server) = scene.being_confirmed() {
            scene.before_confirmation(server, actions);
        }
    }

    fn events(&self, scene: &Scene, actions: &mut Vec<Action>) {
        scene.deliveries(actions);
        if scene.now < self.end()
            && (actions.is_empty() || scene.course.may(Delay) && scene.due_timers().next().is_none())
        {
            scene.ways_to_pass(actions);
        }
    }

    fn choices(&self, scene: &Scene, actions: &mut Vec<Action>) {
        if scene.can_elect() {
            actions.push(Action::Elect);
        }
        match scene.frozen {
            Some(_) => actions.push(Action::Thaw),
            None => scene.course.offer(Freeze, actions, PROCESSES.map(Action::Freeze)),
        }
        let awake = || (0..2).filter(|place| scene.is_awake(Process::Guard(*place)));
        let holders = awake().filter(|place| scene.is_held_by(*place));
        scene.course.offer(Resignation, actions, holders.map(Action::Resign));
        scene.course.offer(Wish, actions, awake().filter(|place| *place == 1).map(|_| Action::Wish));
        if scene.course.may(Overtaking) {
            (0..2).for_each(|place| scene.hearings(place, true, actions));
        }
    }

    fn act(&self, scene: &mut Scene, action: Action) {
        scene.act(action);
    }

    fn course(scene: &Scene) -> &Course<Chance> {
        &scene.course
    }

    fn judge(&self, scene: &Scene) -> Option<&'static str> {
        (0..2).all(|place| scene.is_held_by(place)).then_some(OVERLAP)
    }
}

impl Leases {
    const fn end(&self) -> u64 {
        FIRST_TICK + self.ticks
    }

    fn server(&self, place: usize) -> Server {
        let rules = lessor::Rules { lease_us: LEASE_US, planted: self.planted };
        let lessor = Arc::new(Lessor::new(ServerId(1 + place as u64), rules));
        Server { lessor, drift: 0, tick_us: None, confirmed: None }
    }

    fn candidate(&self, place: usize) -> Candidate {
        let rules = guard::Rules { lease_us: LEASE_US, planted: self.planted };
        Candidate {
            guard: Arc::new(Guard::new(session(place), rules)),
            drift: 0,
            timers: BTreeMap::new(),
            asked: 0,
            polls: Post::default(),
            answers: Post::default(),
            heard: 0,
            held: None,
        }
    }
}

/// Clocks do not begin at nothing, so that one can lose a tick.
const FIRST_TICK: u64 = 1;
const FIRST_SESSION: u64 = 11;

fn session(place: usize) -> SessionId {
    SessionId(FIRST_SESSION + place as u64)
}

impl Scene {
    /// The server that a majority has just told that it leads.
    fn being_confirmed(&self) -> Option<usize> {
        (0..2).find(|place| self.servers[*place].confirmed.is_some() && self.is_awake(Process::Server(*place)))
    }

    fn before_confirmation(&self, server: usize, actions: &mut Vec<Action>) {
        actions.push(Action::Confirmed(server));
        if self.can_elect() {
            actions.push(Action::Elect);
        }
        let freeze = Action::Freeze(Process::Server(server));
        self.course.offer(Freeze, actions, self.frozen.is_none().then_some(freeze));
    }

    /// What happens by itself before the next tick.
    fn deliveries(&self, actions: &mut Vec<Action>) {
        (0..2).for_each(|place| self.hearings(place, false, actions));
        actions.extend(self.due_timers());
    }

    /// The question of a guard, or the answer to it; or what they have overtaken.
    fn hearings(&self, place: usize, is_older: bool, actions: &mut Vec<Action>) {
        let candidate = &self.candidates[place];
        if (is_older || self.course.may(Question(place))) && candidate.polls.has(is_older) {
            let is_listening =
                |place: &usize| self.servers[*place].lessor.is_leading() && self.is_awake(Process::Server(*place));
            let listeners = (0..2).filter(is_listening);
            actions.extend(listeners.map(|server| Action::Poll(place, server, is_older)));
        }
        if candidate.answers.has(is_older) && self.is_awake(Process::Guard(place)) {
            actions.push(Action::Answer(place, is_older));
        }
    }

    fn due_timers(&self) -> impl Iterator<Item = Action> {
        let is_due = |place: usize| {
            self.servers[place].tick_us.is_some_and(|due_us| due_us <= self.local_us(Process::Server(place)))
        };
        let servers = (0..2).filter(move |place| is_due(*place) && self.is_awake(Process::Server(*place)));
        let guards = (0..2).filter(|place| self.is_awake(Process::Guard(*place)));
        let timers = guards.flat_map(move |place| {
            let due = self.candidates[place].timers.iter();
            due.filter(move |(_, due_us)| **due_us <= self.local_us(Process::Guard(place)))
                .map(move |(timer, _)| (place, *timer))
        });
        servers.map(Action::Tick).chain(timers.map(|(place, timer)| Action::Fire(place, timer)))
    }

    fn is_awake(&self, process: Process) -> bool {
        self.frozen != Some(process)
    }

    fn can_elect(&self) -> bool {
        self.leader == 0 && self.is_awake(Process::Server(1))
    }

    fn ways_to_pass(&self, actions: &mut Vec<Action>) {
        actions.push(Action::Pass(None));
        let right = PROCESSES.into_iter().filter(|process| self.drift(*process) == 0);
        let ways = right.flat_map(|process| [(process, -DRIFT_MAX), (process, DRIFT_MAX)]);
        self.course.offer(Drift, actions, ways.map(|way| Action::Pass(Some(way))));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Poll(place, server, is_older) => self.hear_poll(place, server, is_older),
            Action::Answer(place, is_older) => self.hear_answer(place, is_older),
            Action::Confirmed(server) => self.confirm(server),
            Action::Tick(server) => self.tick(server),
            Action::Fire(place, timer) => self.fire(place, timer),
            Action::Elect => {
                self.leader = 1;
                self.lead(1);
            }
            Action::Resign(place) => self.resign(place),
            Action::Wish => {
                self.course.spend(Wish);
                self.want(1, FREE_GROUP);
            }
            Action::Freeze(process) => {
                self.course.spend(Freeze);
                self.frozen = Some(process);
            }
            Action::Thaw => self.frozen = None,
            Action::Pass(drift) => self.pass_time(drift),
        }
    }

    fn drift(&self, process: Process) -> i64 {
        match process {
            Process::Server(place) => self.servers[place].drift,
            Process::Guard(place) => self.candidates[place].drift,
        }
    }

    fn local_us(&self, process: Process) -> u64 {
        self.now.saturating_add_signed(self.drift(process)) * TICK_US
    }

    /// What a guard was promised for longer than until now.
    fn promised(&self, place: usize) -> Option<Interval> {
        self.candidates[place].held.filter(|held| self.local_us(Process::Guard(place)) < held.until_us)
    }

    fn is_held_by(&self, place: usize) -> bool {
        self.promised(place).is_some_and(|held| !held.is_given_up)
    }

    fn pass_time(&mut self, drift: Option<(Process, i64)>) {
        let mut deliveries = Vec::new();
        self.deliveries(&mut deliveries);
        if !deliveries.is_empty() {
            self.course.spend(Delay);
        }
        if drift.is_some() {
            self.course.spend(Drift);
        }
        self.now += 1;
        match drift {
            Some((Process::Server(place), ticks)) => self.servers[place].drift += ticks,
            Some((Process::Guard(place), ticks)) => self.candidates[place].drift += ticks,
            None => {}
        }
        self.end_what_is_over();
    }

    /// Lessors look at what has run out, and guards at what they hold, before anything else happens.
    fn end_what_is_over(&mut self) {
        let is_first = |action: &Action| matches!(action, Action::Tick(_) | Action::Fire(_, guard::Timer::Expiry));
        let due: Vec<Action> = self.due_timers().filter(is_first).collect();
        due.into_iter().for_each(|action| self.act(action));
    }

    fn confirm(&mut self, server: usize) {
        if let Some(question) = self.servers[server].confirmed.take() {
            self.step_lessor(server, Input::Command(lessor::Command::Confirmed(question)));
        }
    }

    fn tick(&mut self, server: usize) {
        self.servers[server].tick_us = None;
        self.step_lessor(server, Input::Timer(lessor::Tick));
    }

    fn fire(&mut self, place: usize, timer: guard::Timer) {
        self.candidates[place].timers.remove(&timer);
        self.step_guard(place, Input::Timer(timer));
    }

    fn lead(&mut self, place: usize) {
        let groups = self.ledger.groups().clone();
        self.step_lessor(place, Input::Command(lessor::Command::Lead(groups)));
    }

    fn want(&mut self, place: usize, group: &str) {
        let rules = GroupRules { rank: GroupRank::Name, holders: 1 };
        let candidacy = Candidacy { group: group.into(), rules, name: format!("c{place}"), id: place as u64 };
        self.step_guard(place, Input::Command(guard::Command::Want(vec![candidacy])));
    }

    fn resign(&mut self, place: usize) {
        self.course.spend(Resignation);
        if let Some(held) = &mut self.candidates[place].held {
            held.is_given_up = true;
        }
        for command in [guard::Command::Leave(GROUP.into()), guard::Command::Ended(GROUP.into())] {
            self.step_guard(place, Input::Command(command));
        }
    }

    fn hear_poll(&mut self, place: usize, server: usize, is_older: bool) {
        let poll = self.candidates[place].polls.take(is_older);
        if is_older {
            self.count_overtaking();
        } else {
            self.course.spend(Question(place));
        }
        if let Some(poll) = poll {
            let (from, message) = (session(place), Message::Poll(poll));
            self.step_lessor(server, Input::Message { from, message });
        }
    }

    fn hear_answer(&mut self, place: usize, is_older: bool) {
        let answer = self.candidates[place].answers.take(is_older);
        if is_older {
            self.count_overtaking();
        }
        if let Some((server, message)) = answer {
            self.candidates[place].heard = server;
            self.step_guard(place, Input::Message { from: Leader, message });
        }
    }

    /// After the last one, what is still under way makes no difference any more.
    fn count_overtaking(&mut self) {
        self.course.spend(Overtaking);
        for candidate in self.candidates.iter_mut().filter(|_| !self.course.may(Overtaking)) {
            (candidate.polls.overtaken, candidate.answers.overtaken) = (None, None);
        }
    }

    /// What the lessor proposes is in the log at once, if this server leads, and the lessor hears of it.
    fn step_lessor(&mut self, place: usize, input: Input<Lessor>) {
        let local_us = self.local_us(Process::Server(place));
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Outbox::new();
            let lessor = Arc::make_mut(&mut self.servers[place].lessor);
            lessor.step(Moment(local_us), input, &mut out);
            for output in out.drain() {
                match output {
                    Output::Send { to, message } => self.send_answer(place, to, message),
                    Output::Set { delay, .. } => self.servers[place].tick_us = Some(local_us + delay.min_us),
                    Output::Cancel(_) => self.servers[place].tick_us = None,
                    Output::Notify(lessor::Notice::Propose(entries)) => inputs.extend(self.commit(place, entries)),
                    Output::Notify(lessor::Notice::Confirm(question)) if place == self.leader => {
                        self.servers[place].confirmed = Some(question);
                    }
                    _ => {}
                }
            }
        }
    }

    fn commit(&mut self, place: usize, entries: Vec<Entry>) -> Option<Input<Lessor>> {
        let is_old = |guard: usize| self.candidates[guard].held.is_some_and(|held| held.server != place);
        if place != self.leader {
            return None;
        }
        if (0..2).any(|guard| self.is_held_by(guard) && is_old(guard)) {
            self.course.pass(EARLY_COMMIT);
        }
        let effects = Arc::make_mut(&mut self.ledger).apply(Batch { time_ms: 0, entries });
        Some(Input::Command(lessor::Command::Applied(effects)))
    }

    fn send_answer(&mut self, server: usize, to: SessionId, message: Message) {
        let place = usize::try_from(to.0 - FIRST_SESSION).expect("there are two of them");
        let Message::Answer(answer) = &message else { return };
        if server != self.leader && !answer.promises.is_empty() {
            self.course.pass(STALE_PROMISE);
        }
        let candidate = &mut self.candidates[place];
        if answer.number == candidate.asked {
            candidate.answers.newest = Some(Arc::new((server, message)));
        } else if self.course.may(Overtaking) {
            candidate.answers.overtaken = Some(Arc::new((server, message)));
        }
    }

    fn step_guard(&mut self, place: usize, input: Input<Guard>) {
        let local_us = self.local_us(Process::Guard(place));
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = Outbox::new();
            let guard = Arc::make_mut(&mut self.candidates[place].guard);
            guard.step(Moment(local_us), input, &mut out);
            for output in out.drain() {
                let candidate = &mut self.candidates[place];
                match output {
                    Output::Send { message: Message::Poll(poll), .. } => self.send_poll(place, poll),
                    Output::Set { timer, delay } => _ = candidate.timers.insert(timer, local_us + delay.min_us),
                    Output::Cancel(timer) => _ = candidate.timers.remove(&timer),
                    Output::Notify(notice) => inputs.extend(self.on_notice(place, notice)),
                    _ => {}
                }
            }
        }
    }

    fn send_poll(&mut self, place: usize, poll: Poll) {
        let keeps_older = self.course.may(Overtaking);
        let candidate = &mut self.candidates[place];
        candidate.asked = poll.number;
        candidate.polls.overtake(keeps_older);
        candidate.answers.overtake(keeps_older);
        candidate.polls.newest = Some(Arc::new(poll));
    }

    /// Whatever is lost is dead at once, and its guard says so. The other group only has to be granted.
    fn on_notice(&mut self, place: usize, notice: guard::Notice) -> Option<Input<Guard>> {
        match notice {
            guard::Notice::Granted(group, _, until_us) if group == GROUP => self.on_granted(place, until_us),
            guard::Notice::Renewed(group, _, until_us) if group == GROUP => self.on_renewed(place, until_us),
            guard::Notice::Lost(group) => {
                if group == GROUP {
                    self.end(place);
                }
                return Some(Input::Command(guard::Command::Ended(group)));
            }
            _ => {}
        }
        None
    }

    fn on_granted(&mut self, place: usize, until_us: u64) {
        match self.candidates[1 - place].held {
            Some(_) if self.promised(1 - place).is_some_and(|held| held.is_given_up) => self.course.pass(RELEASE),
            Some(_) => self.course.pass(EXPIRY),
            None => {}
        }
        let server = self.candidates[place].heard;
        self.candidates[place].held = Some(Interval { until_us, server, is_given_up: false });
    }

    fn on_renewed(&mut self, place: usize, until_us: u64) {
        let server = self.candidates[place].heard;
        let is_given_up = self.candidates[place].held.is_some_and(|held| held.is_given_up);
        self.candidates[place].held = Some(Interval { until_us, server, is_given_up });
        if server == 1 {
            self.course.pass(GOES_ON);
        }
    }

    fn end(&mut self, place: usize) {
        let local_us = self.local_us(Process::Guard(place));
        if let Some(held) = &mut self.candidates[place].held {
            held.until_us = held.until_us.min(local_us);
        }
    }
}

impl<T: Clone> Post<T> {
    const fn has(&self, is_older: bool) -> bool {
        if is_older { self.overtaken.is_some() } else { self.newest.is_some() }
    }

    fn take(&mut self, is_older: bool) -> Option<T> {
        let place = if is_older { &mut self.overtaken } else { &mut self.newest };
        place.take().map(Arc::unwrap_or_clone)
    }

    /// There is a newer question.
    fn overtake(&mut self, keeps_older: bool) {
        let older = self.newest.take();
        self.overtaken = older.or_else(|| self.overtaken.take()).filter(|_| keeps_older);
    }
}

impl<T> Default for Post<T> {
    fn default() -> Self {
        Self { newest: None, overtaken: None }
    }
}
