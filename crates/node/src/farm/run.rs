//! The loop of the farm's thread: the farm meets the log, workers, other farms, clients and a clock.
//!
//! In a turn it takes what has arrived, as far as there is time; then the farm says what that came to: one batch for the log, and
//! one write for each worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use primus_core::bounds::ABSURD;
use primus_core::farm::{self, foreman};
use primus_core::ledger::{Entry, Loans, timekeeper};
use primus_core::loan::Word;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::{ServerId, Term, WorkerId};
use primus_server::Plan;
use primus_server::farm::{Command, Farm, Message, Notice, Peer, Rules, Ticket, Timer};
use primus_server::gave_way::GaveWay;
use primus_server::leases;
use primus_server::plan::Neighbour;
use primus_server::record::State;
use primus_wire::work::{FromWorker, ToWorker};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::callers::{Caller, CallerEvent, Callers, Met};
use super::news::News;
use super::outputs::Outputs;
use super::replies::{Replies, Waiting};
use super::starts::Starts;
use super::{Ask, FarmHandle, Told, UNASKED_LEN_MAX, Wish};
use crate::budget::{Budget, Weight};
use crate::clock::now;
use crate::companion::wall_clock_us;
use crate::cuts::Cuts;
use crate::events::{History, Kind};
use crate::leases::Teller;
use crate::links::{Doors, Identity};
use crate::meters::Meters;
use crate::neighbours::{Envoy, NeighbourEvent, Neighbours};
use crate::requests::Requests;
use crate::timers::{Timers, drawn};
use crate::watched::{Broken, watch};

/// How many inputs are taken before timers are looked at, at most, and for how long.
const INPUTS_MAX: usize = 1024;
const TURN_MAX: Duration = Duration::from_millis(5);
/// How many workers, and how many servers of other farms, may wait for an answer.
const CALLERS_MAX: usize = 256;
const ENVOYS_MAX: usize = 64;
/// A timer that is this late was kept waiting by a pause of this process, and says nothing about others.
const LATE: Duration = Duration::from_millis(100);

/// How the control thread talks to the farm.
pub(crate) struct Ends {
    pub(crate) handle: FarmHandle,
    pub(crate) leases: Teller,
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
    (index, state): (u64, State),
    (cuts, failures): (watch::Receiver<Cuts>, mpsc::UnboundedSender<Broken>),
    requests: Requests,
    (history, meters): (Arc<History>, Arc<Meters>),
) -> Ends {
    let mut farm = Farm::new(identity.server, identity.incarnation, rules(plan));
    farm.restore(now(), index, state);
    let (neighbours, of_neighbours) = Neighbours::new(identity.clone(), plan.neighbours.clone(), cuts);
    let (told_sender, told) = mpsc::unbounded_channel();
    let (asks_sender, asks) = mpsc::unbounded_channel();
    let (workers, calls) = mpsc::channel(CALLERS_MAX);
    let (envoys_sender, envoys) = mpsc::channel(ENVOYS_MAX);
    let (wishes, wishes_received) = mpsc::unbounded_channel();
    let (want, wanted) = mpsc::unbounded_channel();
    let (leases, of_leases) = mpsc::unbounded_channel();
    let ends = crate::leases::Ends {
        requests: requests.clone(),
        wishes: wishes.clone(),
        farm: want,
        failures: failures.clone(),
        meters: Arc::clone(&meters),
    };
    crate::leases::start(plan, ends, of_leases);
    let to_leases = leases.clone();
    let starts = Arc::<Starts>::default();
    let handle = FarmHandle {
        requests,
        leases: leases.clone(),
        asks: asks_sender,
        unasked: Budget::new(UNASKED_LEN_MAX),
        starts: Arc::clone(&starts),
    };
    let running = move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        runtime.block_on(async {
            let (callers, of_workers) = Callers::new();
            let inputs = Inputs { told, of_workers, calls, of_neighbours, envoys, wanted, asks };
            let news = News::new(Arc::clone(&history), Arc::clone(&meters));
            let driver = Driver {
                id: identity.server,
                farm,
                outbox: Outbox::new(),
                timers: Timers::default(),
                callers,
                neighbours,
                replies: Replies::default(),
                outputs: Outputs::default(),
                placements: Vec::new(),
                starts,
                news,
                leases: to_leases,
                wishes,
                history,
                meters,
            };
            // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
            if let Ok(Err(broken)) = tokio::spawn(watch("farm", driver.run(inputs))).await {
                _ = failures.send(broken);
            }
        });
    };
    thread::Builder::new().name("farm".to_owned()).spawn(running).expect("the system gives a thread");
    let doors = Doors { workers, envoys: envoys_sender, neighbours: servers_of_neighbours(plan) };
    Ends { handle, told: told_sender, leases, doors, wishes: wishes_received }
}

fn rules(plan: &Plan) -> Rules {
    Rules {
        work: foreman::Rules { assignment: plan.assignment, weights: plan.weights, ..foreman::Rules::default() },
        lending: plan.lending,
        neighbours: plan.neighbours.iter().map(|neighbour| neighbour.name.clone()).collect(),
        limits: plan.limits,
        state_max: plan.state_max,
        servers: plan.servers.len(),
        planted: plan.planted,
    }
}

fn servers_of_neighbours(plan: &Plan) -> BTreeMap<String, BTreeSet<ServerId>> {
    let servers = |neighbour: &Neighbour| neighbour.servers.keys().copied().collect();
    plan.neighbours.iter().map(|neighbour| (neighbour.name.clone(), servers(neighbour))).collect()
}

/// Where everything arrives.
struct Inputs {
    told: mpsc::UnboundedReceiver<Told>,
    of_workers: mpsc::Receiver<CallerEvent>,
    calls: mpsc::Receiver<Caller>,
    of_neighbours: mpsc::Receiver<NeighbourEvent>,
    envoys: mpsc::Receiver<Envoy>,
    /// What leases want in the log.
    wanted: mpsc::UnboundedReceiver<(Term, Vec<Entry>)>,
    asks: mpsc::UnboundedReceiver<(Ask, Weight)>,
}

/// One thing that arrived.
enum Arrived {
    Wanted(Term, Vec<Entry>),
    Told(Told),
    Worker(CallerEvent),
    Call(Caller),
    Neighbour(NeighbourEvent),
    Envoy(Envoy),
    Ask(Ask),
}

impl Inputs {
    /// The next, what must not be late first; nothing when the control thread has ended.
    async fn next(&mut self) -> Option<Arrived> {
        tokio::select! {
            biased;
            Some((term, entries)) = self.wanted.recv() => Some(Arrived::Wanted(term, entries)),
            told = self.told.recv() => told.map(Arrived::Told),
            Some(event) = self.of_workers.recv() => Some(Arrived::Worker(event)),
            Some(caller) = self.calls.recv() => Some(Arrived::Call(caller)),
            Some(event) = self.of_neighbours.recv() => Some(Arrived::Neighbour(event)),
            Some(envoy) = self.envoys.recv() => Some(Arrived::Envoy(envoy)),
            Some((ask, _)) = self.asks.recv() => Some(Arrived::Ask(ask)),
        }
    }

    /// The next of what there is much of, if it is there.
    fn try_next(&mut self) -> Option<Arrived> {
        let wanted = self.wanted.try_recv().ok().map(|(term, entries)| Arrived::Wanted(term, entries));
        let told = wanted.or_else(|| self.told.try_recv().ok().map(Arrived::Told));
        let worker = told.or_else(|| self.of_workers.try_recv().ok().map(Arrived::Worker));
        worker.or_else(|| self.asks.try_recv().ok().map(|(ask, _)| Arrived::Ask(ask)))
    }

    /// One of each that others may have kept waiting.
    fn try_each(&mut self) -> Vec<Arrived> {
        let worker = self.of_workers.try_recv().ok().map(Arrived::Worker);
        let call = self.calls.try_recv().ok().map(Arrived::Call);
        let neighbour = self.of_neighbours.try_recv().ok().map(Arrived::Neighbour);
        let envoy = self.envoys.try_recv().ok().map(Arrived::Envoy);
        let ask = self.asks.try_recv().ok().map(|(ask, _)| Arrived::Ask(ask));
        [worker, call, neighbour, envoy, ask].into_iter().flatten().collect()
    }
}

/// The farm, and everything that carries out what it wants.
struct Driver {
    id: ServerId,
    farm: Farm,
    outbox: Outbox<Farm>,
    timers: Timers<Timer>,
    callers: Callers,
    neighbours: Neighbours,
    replies: Replies,
    outputs: Outputs,
    /// Where workers are to work: they hear it after what they have to do.
    placements: Vec<(WorkerId, Word)>,
    /// When attempts were handed out.
    starts: Arc<Starts>,
    news: News,
    leases: Teller,
    wishes: mpsc::UnboundedSender<Wish>,
    history: Arc<History>,
    meters: Arc<Meters>,
}

impl Driver {
    async fn run(mut self, mut inputs: Inputs) {
        loop {
            let due = self.timers.next().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                biased;
                arrived = inputs.next() => match arrived {
                    Some(arrived) => self.take(arrived),
                    None => return,
                },
                () = sleep_until(due) => {}
            }
            let all_taken = self.take_more(&mut inputs);
            self.fire_timers(all_taken);
            self.end_turn();
            // The links have this thread, too.
            yield_now().await;
        }
    }

    /// Takes what has arrived, but not for ever. Is that all?
    fn take_more(&mut self, inputs: &mut Inputs) -> bool {
        let began = Instant::now();
        for _ in 0..INPUTS_MAX {
            match inputs.try_next() {
                Some(arrived) => self.take(arrived),
                None => return true,
            }
            if began.elapsed() > TURN_MAX {
                break;
            }
        }
        // However much there is of the log, a question waits for a turn at most. So a look may come before the records that it must
        // see: the farm keeps it until they are applied.
        inputs.try_each().into_iter().for_each(|arrived| self.take(arrived));
        false
    }

    fn take(&mut self, arrived: Arrived) {
        match arrived {
            Arrived::Wanted(term, entries) => self.command(Command::Want(term, entries)),
            Arrived::Told(told) => self.on_told(told),
            Arrived::Worker(event) => self.on_caller(event),
            Arrived::Call(caller) => self.on_call(caller),
            Arrived::Neighbour(event) => self.on_neighbour(event),
            Arrived::Envoy(envoy) => self.on_envoy(envoy),
            Arrived::Ask(ask) => self.on_ask(ask),
        }
    }

    /// Nobody is judged silent whose words may not have been read yet.
    fn fire_timers(&mut self, all_taken: bool) {
        let now = Instant::now();
        while let Some((due, timer)) = self.timers.take_due(now) {
            if timer.is_about_silence() && (!all_taken || now - due > LATE) {
                self.timers.set(timer, now + LATE / 2);
            } else {
                self.step(Input::Timer(timer));
            }
        }
    }

    /// What this turn came to leaves in one go.
    fn end_turn(&mut self) {
        self.command(Command::Room(self.meters.disks()));
        self.command(Command::Turn(wall_clock_us() / 1000));
        self.meters.state_len.set(usize::try_from(self.farm.len_bytes()).unwrap_or(usize::MAX));
        self.meters.state_full.set(self.farm.is_full());
        for lazy in self.callers.flush() {
            self.on_link_down(lazy);
        }
        for (worker, word) in std::mem::take(&mut self.placements) {
            // One that is sent to another farm is told where that is.
            let servers = match &word {
                Word::Redirect { farm, .. } => self.neighbours.servers_of(farm),
                _ => BTreeMap::new(),
            };
            self.callers.say(worker, &ToWorker::Loan(word, servers));
        }
    }

    fn on_told(&mut self, told: Told) {
        match told {
            Told::Committed(records, weight) => {
                // They come at once, and to look at the clock costs as much as a short record.
                let now = now();
                for (index, record) in records {
                    self.step_at(now, Input::Command(Command::Committed(index, record)));
                }
                drop(weight);
            }
            Told::Leader(leader) => self.command(Command::Leader(leader)),
            Told::Lead(term) => self.on_lead(term),
            Told::Snapshot(index, gave_way) => self.snapshot(index, gave_way),
            Told::Clock(server, shows_ms, weight) => {
                self.command(Command::Clock(server, shows_ms));
                drop(weight);
            }
            Told::Restored(index, bytes, weight) => {
                self.restore(index, &bytes);
                drop(weight);
            }
        }
    }

    fn on_lead(&mut self, term: Term) {
        self.starts.begin(term, Instant::now().into_std());
        self.command(Command::Lead(term));
        self.command(Command::Clock(self.id, wall_clock_us() / 1000));
    }

    /// Either all of it can be read, or nobody hears of it: then the server ends.
    fn restore(&mut self, index: u64, bytes: &Bytes) {
        match State::from_bytes(bytes) {
            Some(state) => self.farm.restore(now(), index, state),
            None => self.wish(Wish::Unreadable(index)),
        }
    }

    /// A long state takes a while to be written down, so a thread of its own does that with a copy.
    fn snapshot(&self, index: u64, gave_way: GaveWay) {
        let (state, wishes) = (self.farm.state(), self.wishes.clone());
        let write = move || _ = wishes.send(Wish::Compact(index, state.to_bytes(&gave_way)));
        thread::Builder::new().name("snapshot".to_owned()).spawn(write).expect("the system gives a thread");
    }

    fn on_call(&mut self, caller: Caller) {
        let name = caller.hello.name.clone();
        match self.callers.meet(caller) {
            Met::New(id, before) => {
                before.into_iter().for_each(|before| self.on_link_down(before));
                self.command(Command::Link(id, name));
            }
            Met::Refused(reason) => self.history.refused(reason),
        }
    }

    fn on_caller(&mut self, event: CallerEvent) {
        match event {
            CallerEvent::Down(id) => self.on_link_down(id),
            // Its share of the memory is given back when it has been heard.
            CallerEvent::Word(from, word, _share) => match word {
                FromWorker::Output(number, bytes) => self.outputs.on_answer(from, number, bytes),
                FromWorker::Farm(message) => self.hear(from, Message::Work(message)),
                FromWorker::Loan(word) => self.hear(from, Message::Placement(word)),
            },
        }
    }

    fn hear(&mut self, from: WorkerId, message: Message) {
        self.step(Input::Message { from: Peer::Worker(from), message });
    }

    fn on_link_down(&mut self, id: WorkerId) {
        self.callers.drop_link(id);
        self.outputs.on_link_down(id);
        self.step(Input::LinkDown(Peer::Worker(id)));
    }

    fn on_neighbour(&mut self, event: NeighbourEvent) {
        match event {
            NeighbourEvent::Up(place, outgoing) => self.neighbours.opened(place, outgoing),
            NeighbourEvent::Down(place) => self.neighbours.closed(place),
            NeighbourEvent::Word(from, _) if self.neighbours.is_cut(from) => {}
            NeighbourEvent::Word(from, message) => {
                self.step(Input::Message { from: Peer::Neighbour(from), message: Message::Loan(message) });
            }
            NeighbourEvent::Refused(reason) => self.history.refused(reason),
        }
    }

    /// A server of another farm calls.
    fn on_envoy(&mut self, envoy: Envoy) {
        if let Err(reason) = self.neighbours.meet(envoy) {
            self.history.refused(format!("refused a link: {reason}"));
        }
    }

    fn on_ask(&mut self, ask: Ask) {
        match ask {
            Ask::LookHere(look) => look(&self.farm),
            Ask::Output(worker, part, reply) => self.outputs.ask(&worker, part, reply, &self.callers),
            Ask::Enter(draft, reply) => self.write(Waiting::Entered(reply), |ticket| Command::Enter(ticket, draft)),
            Ask::Lend(order, reply) => self.write(Waiting::Lent(reply), |ticket| Command::Lend(ticket, order)),
            Ask::Look(index, look) => {
                let ticket = self.replies.add(Waiting::Look(look));
                self.command(Command::Look(ticket, index));
            }
            Ask::Ended(index, awaited, reply) => {
                let gone = self.replies.take_gone();
                if !gone.is_empty() {
                    self.command(Command::Forget(gone));
                }
                let ticket = self.replies.add(Waiting::Done(reply));
                self.command(Command::Await(ticket, index, awaited));
            }
        }
    }

    /// The question of a client that wants to write.
    fn write(&mut self, waiting: Waiting, question: impl FnOnce(Ticket) -> Command) {
        // It may be long since the last turn ended.
        self.command(Command::Room(self.meters.disks()));
        let ticket = self.replies.add(waiting);
        self.command(question(ticket));
    }

    fn command(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    fn step(&mut self, input: Input<Farm>) {
        self.step_at(now(), input);
    }

    fn step_at(&mut self, now: Moment, input: Input<Farm>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.farm.step(now, input, &mut outbox);
        for output in outbox.drain() {
            self.carry_out(output);
        }
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Farm>) {
        match output {
            Output::Send { to: Peer::Worker(to), message } => self.say(to, message),
            Output::Send { to: Peer::Neighbour(to), message: Message::Loan(message) } => {
                self.neighbours.say(to, &message);
            }
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.on_notice(notice),
            Output::Ignore(ABSURD) => self.history.refused(format!("what a neighbour says: {ABSURD}")),
            Output::Send { .. } | Output::Ignore(_) => {}
        }
    }

    fn say(&mut self, to: WorkerId, message: Message) {
        match message {
            Message::Leads(term) => self.callers.say(to, &ToWorker::Leads(term)),
            Message::Follows => self.callers.say(to, &ToWorker::Follows),
            Message::Placement(word) => self.placements.push((to, word)),
            Message::Work(message) => {
                if let farm::Message::Run(_, assignments) = &message {
                    let newest = assignments.iter().map(|assignment| assignment.held.attempt).max();
                    newest.into_iter().for_each(|attempt| self.starts.note(attempt, Instant::now().into_std()));
                }
                if matches!(message, farm::Message::Welcome(_)) {
                    self.callers.welcome(to);
                }
                self.callers.add(to, message);
            }
            Message::Loan(_) => {}
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Append(term, records) => self.wish(Wish::Enter(term, records)),
            Notice::Answer(ticket, answer) => self.replies.answer(ticket, answer, &self.farm),
            Notice::Held(term, groups) => self.tell_leases(leases::Command::Lead(term, groups)),
            Notice::Leases(term, effects) => self.tell_leases(leases::Command::Applied(term, effects)),
            Notice::Beside(tasks) => self.wish(Wish::Tasks(tasks)),
            Notice::Close(worker) => {
                self.callers.drop_link(worker);
                self.outputs.on_link_down(worker);
            }
            Notice::Lending(true) => {
                self.neighbours.lead();
                self.news.count(self.farm.ledger().loans());
            }
            Notice::Lending(false) => {
                self.neighbours.follow();
                self.news.count(&Loans::default());
            }
            Notice::Loans(effects) => {
                let loans = self.farm.ledger().loans();
                effects.iter().for_each(|effect| self.news.tell_effect(effect, loans));
                self.news.count(loans);
            }
            Notice::Happened(happening) => self.news.tell_happening(happening, self.farm.ledger().loans()),
            Notice::Clock(timekeeper::Notice::Off(ServerId(server), ahead_ms)) => {
                self.history.add(Kind::ClockOff { server, ahead_ms });
            }
            Notice::Clock(timekeeper::Notice::Right(ServerId(server))) => {
                self.history.add(Kind::ClockRight { server });
            }
        }
    }

    fn wish(&self, wish: Wish) {
        // Control does not listen any more only when the server is about to end.
        _ = self.wishes.send(wish);
    }

    fn tell_leases(&self, command: leases::Command) {
        // As above.
        _ = self.leases.send((crate::leases::Arrived::Told(command), None));
    }
}
