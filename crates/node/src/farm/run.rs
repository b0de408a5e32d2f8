//! The loop of the farm's thread: the foreman meets the log, workers, clients and a clock.
//!
//! In a turn it takes what has arrived, as far as there is time; then what the foreman wants to write becomes one batch, and
//! what it says to a worker one write. A few batches may be under way; meanwhile the next one grows, so that a busy log gets
//! few large ones and an idle one gets each at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use primus_core::farm::Message;
use primus_core::farm::foreman::{Command, Foreman, Notice, Rules, Timer};
use primus_core::lease::lessor;
use primus_core::ledger::{Effect, Entry, Ledger, Limits, Timekeeper, timekeeper};
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{ServerId, Term, WorkerId};
use primus_server::Plan;
use primus_server::plan::Neighbour;
use primus_server::record::{self, Assembly, Draft};
use primus_wire::work::{FromWorker, Part, ToWorker};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::callers::{Caller, CallerEvent, Callers, Met};
use super::leases::Leases;
use super::offices::Offices;
use super::starts::Starts;
use super::waiters::Waiters;
use super::{Ask, FarmHandle, Told, Wish};
use crate::clock::{now, now_us};
use crate::companion::wall_clock_us;
use crate::cuts::Cuts;
use crate::events::{History, Kind};
use crate::handle::{Reply, Request, Unable};
use crate::links::{Doors, Identity};
use crate::meters::Meters;
use crate::neighbours::Envoy;
use crate::timers::{Timers, drawn};
use crate::watched::{Broken, watch};

/// How many inputs are taken before timers are looked at, at most, and for how long.
const INPUTS_MAX: usize = 1024;
const TURN_MAX: Duration = Duration::from_millis(5);
/// How many batches of the foreman may be under way. While one is, the next one grows: that costs a result a moment, and
/// saves all servers' disks from most of the writes.
const UNDER_WAY_MAX: usize = 1;
/// How many entries a batch of the foreman has at most; a report has up to some eight thousand bytes.
const ENTRIES_MAX: usize = 4096;
/// How many workers, and how many servers of other farms, may wait for an answer, requests for the leader to be ready, and people for outputs.
const CALLERS_MAX: usize = 256;
const ENVOYS_MAX: usize = 64;
const EARLY_MAX: usize = 1024;
const OUTPUTS_MAX: usize = 1024;
/// How many bytes of clients' batches may be under way; one batch may have more.
const ENTERING_LEN_MAX: usize = 256 << 20;
/// A timer that is this late was kept waiting by a pause of this process, and says nothing about others.
const LATE: Duration = Duration::from_millis(100);

/// Why a farm cannot go on with a state.
const UNREADABLE: &str =
    "the ledger in its state cannot be read; another version of primus, or a stranger, has made it";

/// How the control thread talks to the farm.
pub(crate) struct Ends {
    pub(crate) handle: FarmHandle,
    pub(crate) told: mpsc::UnboundedSender<Told>,
    pub(crate) doors: Doors,
    pub(crate) wishes: mpsc::UnboundedReceiver<Wish>,
}

/// Starts the thread. It ends when nobody tells it anything any more.
///
/// # Panics
/// If the system gives no thread.
pub(crate) fn start(
    identity: Identity,
    plan: &Plan,
    (cuts, failures): (watch::Receiver<Cuts>, mpsc::UnboundedSender<Broken>),
    requests: mpsc::UnboundedSender<Request>,
    (history, meters): (Arc<History>, Arc<Meters>),
) -> Ends {
    let rules = Rules { assignment: plan.assignment, weights: plan.weights, ..Rules::default() };
    let limits = plan.limits;
    let (told_sender, told) = mpsc::unbounded_channel();
    let (asks_sender, asks) = mpsc::unbounded_channel();
    let (workers, calls) = mpsc::channel(CALLERS_MAX);
    let (envoys_sender, envoys) = mpsc::channel(ENVOYS_MAX);
    let (wishes, wishes_received) = mpsc::unbounded_channel();
    let inputs = Inputs { told, asks, calls, envoys };
    let starts = Arc::<Starts>::default();
    let noted = Arc::clone(&starts);
    let lease = lessor::Rules { lease_us: plan.lease_us, planted: Planted::NONE };
    let leases = Leases::new(identity.server, lease, requests.clone(), Arc::clone(&meters));
    let offices = Offices::new(identity.clone(), plan, cuts, (Arc::clone(&history), Arc::clone(&meters)));
    let servers = plan.servers.len();
    let running = move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        runtime.block_on(async {
            let (callers, events) = Callers::new();
            let mut farm = Farm::new(
                &identity,
                (rules, limits),
                (leases, offices),
                callers,
                (wishes, failures.clone()),
                history,
                meters,
            );
            farm.starts = noted;
            farm.timekeeper = Timekeeper::new(identity.server, servers);
            // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
            if let Ok(Err(broken)) = tokio::spawn(watch("farm", farm.turn(inputs, events))).await {
                _ = failures.send(broken);
            }
        });
    };
    thread::Builder::new().name("farm".to_owned()).spawn(running).expect("the system gives a thread");
    Ends {
        handle: FarmHandle { requests, asks: asks_sender, starts },
        told: told_sender,
        doors: Doors { workers, envoys: envoys_sender, neighbours: servers_of_neighbours(plan) },
        wishes: wishes_received,
    }
}

fn servers_of_neighbours(plan: &Plan) -> BTreeMap<String, BTreeSet<ServerId>> {
    let servers = |neighbour: &Neighbour| neighbour.servers.keys().copied().collect();
    plan.neighbours.iter().map(|neighbour| (neighbour.name.clone(), servers(neighbour))).collect()
}

struct Inputs {
    told: mpsc::UnboundedReceiver<Told>,
    asks: mpsc::UnboundedReceiver<Ask>,
    calls: mpsc::Receiver<Caller>,
    envoys: mpsc::Receiver<Envoy>,
}

/// The loop's state.
struct Farm {
    id: ServerId,
    origin: u64,
    foreman: Foreman,
    leases: Leases,
    offices: Offices,
    /// What control was told of them.
    is_guarded: bool,
    /// How much the ledger shall keep when this server leads, and what it has been asked to keep.
    limits: Limits,
    limits_asked: Option<Limits>,
    timekeeper: Timekeeper,
    outbox: Outbox<Foreman>,
    timers: Timers<Timer>,
    callers: Callers,
    wishes: mpsc::UnboundedSender<Wish>,
    /// Where it says that it cannot go on.
    failures: mpsc::UnboundedSender<Broken>,
    history: Arc<History>,
    meters: Arc<Meters>,
    assembly: Assembly,
    /// Who leads, as far as this server knows, and in which term this server does.
    leader: Option<ServerId>,
    leads: Option<Term>,
    last_number: u64,
    /// What the foreman wants to write.
    proposed: VecDeque<Entry>,
    /// Its batches that are not applied yet.
    under_way: BTreeSet<u64>,
    /// Records for the log.
    records: Vec<Bytes>,
    /// Clients' batches that are not applied yet, with their lengths.
    entering: BTreeMap<u64, (usize, Reply<Vec<Effect>>)>,
    entering_len: usize,
    /// What was asked before this server was ready to lead.
    early: Vec<Ask>,
    /// What the last batch came to.
    effects: Vec<Effect>,
    waiters: Waiters,
    /// When attempts were handed out.
    starts: Arc<Starts>,
    /// Outputs that workers were asked for.
    outputs: BTreeMap<u64, Wanted>,
}

/// A part of an output that a worker was asked for.
struct Wanted {
    from: WorkerId,
    len_max: usize,
    reply: Reply<Option<Bytes>>,
}

impl Farm {
    fn new(
        identity: &Identity,
        (rules, limits): (Rules, Limits),
        (leases, offices): (Leases, Offices),
        callers: Callers,
        (wishes, failures): (mpsc::UnboundedSender<Wish>, mpsc::UnboundedSender<Broken>),
        history: Arc<History>,
        meters: Arc<Meters>,
    ) -> Self {
        Self {
            id: identity.server,
            origin: identity.incarnation,
            foreman: Foreman::new(rules, Ledger::new(Limits::default())),
            leases,
            offices,
            is_guarded: false,
            limits,
            limits_asked: None,
            timekeeper: Timekeeper::new(identity.server, 1),
            outbox: Outbox::new(),
            timers: Timers::default(),
            callers,
            wishes,
            failures,
            history,
            meters,
            assembly: Assembly::default(),
            leader: None,
            leads: None,
            last_number: 0,
            proposed: VecDeque::new(),
            under_way: BTreeSet::new(),
            records: Vec::new(),
            entering: BTreeMap::new(),
            entering_len: 0,
            early: Vec::new(),
            effects: Vec::new(),
            waiters: Waiters::default(),
            starts: Arc::default(),
            outputs: BTreeMap::new(),
        }
    }

    async fn turn(mut self, mut inputs: Inputs, mut events: mpsc::Receiver<CallerEvent>) {
        loop {
            let due = self.timers.next().into_iter().chain(self.leases.due()).chain(self.offices.due()).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                biased;
                told = inputs.told.recv() => match told {
                    Some(told) => self.on_told(told),
                    None => return,
                },
                Some(event) = events.recv() => self.on_caller(event),
                Some(caller) = inputs.calls.recv() => self.on_call(caller),
                event = self.offices.event() => self.offices.on_event(event),
                Some(envoy) = inputs.envoys.recv() => self.offices.on_envoy(envoy),
                question = self.leases.confirmed() => self.leases.on_confirmed(question),
                Some(ask) = inputs.asks.recv() => self.on_ask(ask),
                () = sleep_until(due) => {}
            }
            let all_taken = self.take_inputs(&mut inputs, &mut events);
            self.fire_timers(all_taken);
            self.flush();
            // The links have this thread, too.
            yield_now().await;
        }
    }

    /// Takes what has arrived, but not for ever. Is that all?
    fn take_inputs(&mut self, inputs: &mut Inputs, events: &mut mpsc::Receiver<CallerEvent>) -> bool {
        let began = Instant::now();
        for _ in 0..INPUTS_MAX {
            if let Ok(told) = inputs.told.try_recv() {
                self.on_told(told);
            } else if let Ok(event) = events.try_recv() {
                self.on_caller(event);
            } else if let Ok(ask) = inputs.asks.try_recv() {
                self.on_ask(ask);
            } else {
                return true;
            }
            if began.elapsed() > TURN_MAX {
                break;
            }
        }
        false
    }

    /// Nobody is judged silent whose words may not have been read yet.
    fn fire_timers(&mut self, all_taken: bool) {
        let now = Instant::now();
        while let Some((due, timer)) = self.timers.take_due(now) {
            match timer {
                Timer::Silence(_) | Timer::Beside(_) | Timer::Settle if !all_taken || now - due > LATE => {
                    self.timers.set(timer, now + LATE / 2);
                }
                timer => self.step(Input::Timer(timer)),
            }
        }
        self.leases.on_time(now);
        if self.offices.on_time(now) {
            self.look_around();
        }
    }

    fn on_told(&mut self, told: Told) {
        match told {
            Told::Committed(record) => self.on_committed(&record),
            Told::Leader(leader) => self.on_leader(leader),
            Told::Lead(term) => self.on_lead(term),
            Told::Snapshot(index, front) => self.snapshot(index, front),
            Told::HandOver(to, reason) => self.leases.hand_over(to, reason),
            Told::Stay => self.leases.stay(),
            Told::Clock(server, shows_ms) => self.on_clock(server, shows_ms),
            Told::Restored(bytes) => self.restore(&bytes),
        }
    }

    /// A farm that cannot read what is agreed on must not go on: the server ends.
    fn restore(&mut self, bytes: &[u8]) {
        match record::ledger(bytes) {
            Some(ledger) => {
                self.timekeeper.on_applied(ledger.newest_ms(), now_us() / 1000);
                self.foreman.restore(ledger);
            }
            None => _ = self.failures.send(Broken::new("farm", UNREADABLE)),
        }
    }

    /// A long ledger takes a while to be written down, so a thread of its own does that with a copy.
    fn snapshot(&self, index: u64, front: Bytes) {
        let (ledger, wishes) = (self.foreman.ledger().clone(), self.wishes.clone());
        let write = move || _ = wishes.send(Wish::Compact(index, record::state(&front, &ledger)));
        thread::Builder::new().name("snapshot".to_owned()).spawn(write).expect("the system gives a thread");
    }

    fn wish(&self, wish: Wish) {
        // Control does not listen any more only when the server is about to end.
        _ = self.wishes.send(wish);
    }

    fn on_committed(&mut self, record: &[u8]) {
        let Some(filed) = self.assembly.take(record) else { return };
        self.timekeeper.on_applied(filed.batch.time_ms, now_us() / 1000);
        self.step(Input::Command(Command::Apply(filed.batch)));
        let effects = std::mem::take(&mut self.effects);
        self.waiters.on_effects(&effects, self.foreman.ledger());
        self.leases.on_effects(&effects);
        self.offices.on_effects(&effects, self.foreman.ledger().loans());
        if filed.origin == self.origin {
            self.under_way.remove(&filed.number);
            if let Some((len, reply)) = self.entering.remove(&filed.number) {
                self.entering_len -= len;
                answer(reply, Ok(effects));
            }
        }
    }

    /// Whoever leads, this server does not, or not yet: what it knew as a leader is void.
    fn on_leader(&mut self, leader: Option<ServerId>) {
        self.leader = leader;
        if self.leads.take().is_some() {
            self.step(Input::Command(Command::Follow));
            self.callers.say_to_all(&ToWorker::Follows);
        }
        self.timekeeper.follow();
        self.limits_asked = None;
        // What runs beside this server does not depend on who leads.
        self.timers.retain(|timer| matches!(timer, Timer::Beside(_)));
        self.proposed.clear();
        self.records.clear();
        self.under_way.clear();
        self.entering_len = 0;
        let entering = std::mem::take(&mut self.entering).into_values();
        entering.for_each(|(_, reply)| answer(reply, Err(Unable::Unknown)));
        let unable = self.unable();
        self.waiters.refuse(unable);
        self.leases.follow(unable);
        self.offices.follow();
        std::mem::take(&mut self.early).into_iter().for_each(|ask| self.on_ask(ask));
    }

    fn on_lead(&mut self, term: Term) {
        self.leads = Some(term);
        self.timekeeper.lead(now_us() / 1000);
        self.starts.begin(term, Instant::now().into_std());
        self.step(Input::Command(Command::Lead(term)));
        self.leases.lead(self.foreman.ledger().groups().clone());
        self.offices.lead(term, self.foreman.ledger().loans());
        self.on_clock(self.id, wall_clock_us() / 1000);
        self.callers.say_to_all(&ToWorker::Leads(term));
        std::mem::take(&mut self.early).into_iter().for_each(|ask| self.on_ask(ask));
    }

    fn unable(&self) -> Unable {
        match self.leader {
            Some(leader) if leader != self.id => Unable::NotLeading(leader),
            Some(_) => Unable::Busy,
            None => Unable::NoLeader,
        }
    }

    fn on_call(&mut self, caller: Caller) {
        match self.callers.meet(caller) {
            Met::New(id, before) => {
                before.into_iter().for_each(|before| self.on_link_down(before));
                if let Some(term) = self.leads {
                    self.callers.say(id, &ToWorker::Leads(term));
                }
            }
            Met::Refused(reason) => self.history.refused(reason),
        }
    }

    fn on_caller(&mut self, event: CallerEvent) {
        match event {
            CallerEvent::Down(id) => self.on_link_down(id),
            CallerEvent::Word(from, word, _weight) => {
                // What was on its way when the link was dropped is not heard any more.
                let Some(name) = self.callers.name(from) else { return };
                match word {
                    FromWorker::Farm(Message::Hello(hello)) if hello.name != name => self.on_link_down(from),
                    FromWorker::Farm(message) => self.step(Input::Message { from, message }),
                    FromWorker::Output(number, bytes) => self.on_output(from, number, bytes),
                    FromWorker::Loan(word) => self.offices.on_said(name, word),
                }
            }
        }
    }

    fn on_link_down(&mut self, id: WorkerId) {
        self.callers.drop_link(id);
        self.step(Input::LinkDown(id));
        for (_, wanted) in self.outputs.extract_if(.., |_, wanted| wanted.from == id) {
            answer(wanted.reply, Err(Unable::NoWorker));
        }
    }

    fn on_ask(&mut self, ask: Ask) {
        match ask {
            Ask::LookHere(look) => look(&self.foreman),
            Ask::Output(worker, part, reply) => self.ask_for_output(&worker, part, reply),
            _ if self.leads.is_none() && self.leader == Some(self.id) && self.early.len() < EARLY_MAX => {
                self.early.push(ask);
            }
            _ if self.leads.is_none() => ask.refuse(self.unable()),
            Ask::Enter(..) if let Some(lack) = self.meters.lack_of_room() => ask.refuse(lack),
            Ask::Enter(..) if self.entering_len > ENTERING_LEN_MAX => ask.refuse(Unable::Busy),
            Ask::Enter(draft, reply) => {
                let len = draft.len();
                let number = self.seal(draft);
                self.entering_len += len;
                self.entering.insert(number, (len, reply));
            }
            Ask::Look(look) => look(Ok(&self.foreman)),
            Ask::Ended(awaited, reply) => self.waiters.add(awaited, reply, self.foreman.ledger()),
            Ask::Poll(session, poll, reply) => self.leases.on_poll(session, poll, reply),
            Ask::LookAtLeases(look) => look(Ok((&self.foreman, self.leases.lessor()))),
            Ask::LookAtLoans(look) => look(Ok((&self.foreman, self.offices.office()))),
            Ask::Vacate(reply) => self.leases.vacate(reply),
            Ask::Stay => self.leases.stay(),
        }
    }

    /// Makes records of a batch, and gives it a number.
    fn seal(&mut self, draft: Draft) -> u64 {
        self.last_number += 1;
        let time_ms = self.now_ms();
        // The next one is not earlier, whatever the clocks say by then.
        self.timekeeper.on_applied(time_ms, now_us() / 1000);
        self.records.extend(draft.seal(self.origin, self.last_number, time_ms));
        self.last_number
    }

    /// What time it is for the ledger.
    fn now_ms(&mut self) -> u64 {
        let now_ms = now_us() / 1000;
        self.timekeeper.on_clock(self.id, wall_clock_us() / 1000, now_ms);
        self.timekeeper.time_ms(now_ms)
    }

    fn ask_for_output(&mut self, worker: &str, part: Part, reply: Reply<Option<Bytes>>) {
        let Some(id) = self.callers.named(worker) else { return answer(reply, Err(Unable::NoWorker)) };
        self.outputs.retain(|_, wanted| !wanted.reply.is_closed());
        if self.outputs.len() >= OUTPUTS_MAX {
            return answer(reply, Err(Unable::Busy));
        }
        self.last_number += 1;
        self.callers.say(id, &ToWorker::Output(self.last_number, part));
        self.outputs.insert(self.last_number, Wanted { from: id, len_max: part.len_max as usize, reply });
    }

    /// Only the worker that was asked answers, and with no more than it was asked for.
    fn on_output(&mut self, from: WorkerId, number: u64, bytes: Option<Bytes>) {
        let is_asked = self.outputs.get(&number).is_some_and(|wanted| wanted.from == from);
        if let Some(Wanted { len_max, reply, .. }) = is_asked.then(|| self.outputs.remove(&number)).flatten() {
            answer(reply, Ok(bytes.map(|bytes| bytes.slice(..bytes.len().min(len_max)))));
        }
    }

    fn step(&mut self, input: Input<Foreman>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.foreman.step(now(), input, &mut outbox);
        for output in outbox.drain() {
            self.carry_out(output);
        }
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Foreman>) {
        match output {
            Output::Send { to, message } => {
                if let Message::Run(_, assignments) = &message {
                    let newest = assignments.iter().map(|assignment| assignment.held.attempt).max();
                    newest.into_iter().for_each(|attempt| self.starts.note(attempt, Instant::now().into_std()));
                }
                if matches!(message, Message::Welcome(_)) {
                    self.callers.welcome(to);
                }
                self.callers.add(to, message);
            }
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(Notice::Propose(entries)) => self.proposed.extend(entries),
            Output::Notify(Notice::Applied(effects)) => self.effects = effects,
            Output::Notify(Notice::Arrived(worker, loan)) => self.offices.on_arrived(worker, loan),
            Output::Notify(Notice::Beside(tasks)) => self.wish(Wish::Tasks(tasks)),
            Output::Ignore(_) => {}
        }
    }

    /// What this turn came to leaves in one go.
    fn flush(&mut self) {
        // On a full disk nothing more is wanted; it waits here, and the next sign of life of a worker looks again.
        let has_room = !self.meters.disk_stuck.get();
        self.proposed.extend(self.leases.proposed.drain(..));
        if has_room && self.under_way.len() < UNDER_WAY_MAX {
            self.proposed.extend(std::mem::take(&mut self.offices.proposed));
        }
        self.tell_of_guards();
        while has_room && !self.proposed.is_empty() && self.under_way.len() < UNDER_WAY_MAX {
            let entries: Vec<Entry> = self.proposed.drain(..self.proposed.len().min(ENTRIES_MAX)).collect();
            let number = self.seal(Draft::new(&entries));
            self.under_way.insert(number);
        }
        if let Some(term) = self.leads
            && !self.records.is_empty()
        {
            let records = std::mem::take(&mut self.records);
            self.wish(Wish::Enter(term, records));
        }
        for lazy in self.callers.flush() {
            self.on_link_down(lazy);
        }
        // A worker hears what it has to do before it hears where to go.
        self.tell_workers_of_loans();
    }
}

impl Farm {
    fn on_clock(&mut self, server: ServerId, shows_ms: u64) {
        let now_ms = now_us() / 1000;
        self.timekeeper.on_clock(server, shows_ms, now_ms);
        for notice in self.timekeeper.take_notices() {
            self.history.add(match notice {
                timekeeper::Notice::Off(ServerId(server), ahead_ms) => Kind::ClockOff { server, ahead_ms },
                timekeeper::Notice::Right(ServerId(server)) => Kind::ClockRight { server },
            });
        }
        let wanted = self.timekeeper.limits(self.limits, now_ms);
        let is_known = self.foreman.ledger().limits() == wanted;
        if self.leads.is_some() && !is_known && self.limits_asked != Some(wanted) {
            self.proposed.push_back(Entry::Limit(wanted));
            self.limits_asked = Some(wanted);
        } else if is_known {
            self.limits_asked = None;
        }
    }
}

impl Farm {
    /// Control must know whether something has to end before another server leads.
    fn tell_of_guards(&mut self) {
        let is_guarded = self.leases.lessor().holds_beside();
        if std::mem::replace(&mut self.is_guarded, is_guarded) != is_guarded {
            self.wish(Wish::Guarded(is_guarded));
        }
        if let Some((to, reason)) = self.leases.take_handover() {
            self.wish(Wish::Transfer(to, reason));
        }
    }
}

impl Farm {
    /// The office wants to know how things are. As long as that is not settled, it is not told.
    fn look_around(&mut self) {
        let now_ms = self.now_ms();
        if let Some(situation) = self.foreman.situation(now_ms) {
            self.offices.on_situation(situation, self.foreman.ledger().loans());
        }
    }

    fn tell_workers_of_loans(&mut self) {
        for (worker, word) in self.offices.take_told() {
            let link = self.callers.named(&worker);
            link.into_iter().for_each(|link| self.callers.say(link, &word));
        }
    }
}

impl Ask {
    fn refuse(self, unable: Unable) {
        match self {
            Self::Enter(_, reply) => answer(reply, Err(unable)),
            Self::Look(look) => look(Err(unable)),
            Self::Ended(_, reply) => answer(reply, Err(unable)),
            Self::Output(_, _, reply) => answer(reply, Err(unable)),
            Self::Poll(_, _, reply) => answer(reply, Err(unable)),
            Self::LookAtLeases(look) => look(Err(unable)),
            Self::LookAtLoans(look) => look(Err(unable)),
            Self::Vacate(reply) => answer(reply, Err(unable)),
            Self::LookHere(_) | Self::Stay => {}
        }
    }
}

fn answer<T>(reply: Reply<T>, answer: Result<T, Unable>) {
    // Whoever asked may have gone away.
    _ = reply.send(answer);
}
