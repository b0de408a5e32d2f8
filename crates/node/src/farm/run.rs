//! The loop of the farm's thread: the farm meets the log, workers, other farms, clients and a clock.
//!
//! In a turn it takes what has arrived, as far as there is time; then the farm says what that came to: one batch for the log, and
//! one write for each worker. `carry_out.rs` is what becomes of that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use primus_core::ledger::Roll;
use primus_core::loan::WorkerMessage;
use primus_core::machine::{Input, Outbox};
use primus_core::{ServerId, Term, WorkerId};
use primus_server::farm::{Command, Farm, Message, Peer, Ticket, Timer};
use primus_server::gave_way::GaveWay;
use primus_server::record::State;
use primus_wire::work::{FromWorker, ToWorker};
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::arrivals::{Arrived, Inputs};
use super::fleet::Fleet;
use super::news::News;
use super::outputs::Outputs;
use super::replies::{Replies, Waiting};
use super::starts::Starts;
use super::worker_links::{CallingWorker, Met, WorkerEvent, WorkerLinks};
use super::{FarmRequest, ToControl, ToFarm};
use crate::clock::now;
use crate::companion::wall_clock_us;
use crate::events::History;
use crate::leases::Teller;
use crate::meters::Meters;
use crate::neighbours::{Envoy, NeighbourEvent, Neighbours};
use crate::timers::Timers;

/// How many inputs are taken before timers are looked at, at most, and for how long.
const INPUTS_MAX: usize = 1024;
const TURN_MAX: Duration = Duration::from_millis(5);
/// A timer that is this late was kept waiting by a pause of this process, and says nothing about others.
const LATE: Duration = Duration::from_millis(100);

/// The farm, and everything that carries out what it wants.
pub(super) struct Driver {
    pub(super) id: ServerId,
    pub(super) farm: Farm,
    pub(super) outbox: Outbox<Farm>,
    pub(super) timers: Timers<Timer>,
    pub(super) callers: WorkerLinks,
    pub(super) neighbours: Neighbours,
    pub(super) replies: Replies,
    pub(super) outputs: Outputs,
    /// Where workers are to work: they hear it after what they have to do.
    pub(super) placements: Vec<(WorkerId, WorkerMessage)>,
    /// When attempts were handed out.
    pub(super) starts: Arc<Starts>,
    pub(super) news: News,
    pub(super) leases: Teller,
    /// Who is who, for those who see to links.
    pub(super) roll: watch::Sender<Arc<Roll>>,
    pub(super) fleet: Fleet,
    pub(super) wishes: mpsc::UnboundedSender<ToControl>,
    pub(super) history: Arc<History>,
    pub(super) meters: Arc<Meters>,
}

impl Driver {
    pub(super) async fn run(mut self, mut inputs: Inputs) {
        self.know_neighbours();
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
            Arrived::ToFarm(told) => self.on_told(told),
            Arrived::Worker(event) => self.on_caller(event),
            Arrived::Call(caller) => self.on_call(caller),
            Arrived::Neighbour(event) => self.on_neighbour(event),
            Arrived::Envoy(envoy) => self.on_envoy(envoy),
            Arrived::FarmRequest(ask) => self.on_ask(ask),
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
        self.tell_authorities();
        self.set_clock();
        self.meters.state_len.set(usize::try_from(self.farm.len_bytes()).unwrap_or(usize::MAX));
        self.meters.state_full.set(self.farm.is_full());
        for lazy in self.callers.flush() {
            self.on_link_down(lazy);
        }
        for (worker, word) in std::mem::take(&mut self.placements) {
            // One that is sent to another farm is told where that is, and how to be sure of it.
            let servers = match &word {
                WorkerMessage::Redirect { farm, .. } => {
                    let authority = self.neighbours.authority_of(farm);
                    let authority = authority.map(|authority| ToWorker::Authority(farm.clone(), authority));
                    authority.iter().for_each(|word| self.callers.say(worker, word));
                    self.neighbours.servers_of(farm)
                }
                _ => BTreeMap::new(),
            };
            self.callers.say(worker, &ToWorker::Loan(word, servers));
        }
    }

    fn on_told(&mut self, told: ToFarm) {
        match told {
            ToFarm::Committed(records, weight) => {
                // They come at once, and to look at the clock costs as much as a short record.
                let now = now();
                for (index, record) in records {
                    self.step_at(now, Input::Command(Command::Committed(index, record)));
                }
                drop(weight);
            }
            ToFarm::Leader(leader) => self.command(Command::Leader(leader)),
            ToFarm::Lead(term) => self.on_lead(term),
            ToFarm::Snapshot(index, gave_way) => self.snapshot(index, gave_way),
            ToFarm::Clock(server, shows_ms, weight) => {
                self.command(Command::Clock(server, shows_ms));
                drop(weight);
            }
            ToFarm::Restored(index, bytes, weight) => {
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
            Some(state) => {
                self.farm.restore(now(), index, state);
                self.tell_roll();
            }
            None => self.wish(ToControl::Unreadable(index)),
        }
    }

    /// A long state takes a while to be written down, so a thread of its own does that with a copy.
    fn snapshot(&self, index: u64, gave_way: GaveWay) {
        let (state, wishes) = (self.farm.state(), self.wishes.clone());
        let write = move || _ = wishes.send(ToControl::Compact(index, state.to_bytes(&gave_way)));
        thread::Builder::new().name("snapshot".to_owned()).spawn(write).expect("the system gives a thread");
    }

    fn on_call(&mut self, caller: CallingWorker) {
        let name = caller.hello.name.clone();
        match self.callers.meet(caller) {
            Met::New(id, before) => {
                before.into_iter().for_each(|before| self.on_link_down(before));
                self.note_shown(id);
                self.command(Command::Link(id, name));
            }
            Met::Refused(reason) => self.history.refused(reason),
        }
    }

    fn on_caller(&mut self, event: WorkerEvent) {
        match event {
            WorkerEvent::Down(id) => self.on_link_down(id),
            // Its share of the memory is given back when it has been heard.
            WorkerEvent::WorkerMessage(from, word, _share) => match word {
                FromWorker::Output(number, bytes) => self.outputs.on_answer(from, number, bytes),
                FromWorker::Farm(message) => self.hear(from, Message::Work(message)),
                FromWorker::Loan(word) => self.hear(from, Message::Placement(word)),
                FromWorker::Renew(key) => self.on_renew(from, key),
                FromWorker::Shows(authority) => self.on_shows(from, authority),
            },
        }
    }

    fn hear(&mut self, from: WorkerId, message: Message) {
        self.step(Input::Message { from: Peer::Worker(from), message });
    }

    fn on_link_down(&mut self, id: WorkerId) {
        self.callers.drop_link(id);
        self.outputs.on_link_down(id);
        self.fleet.shown.gone(id);
        self.step(Input::LinkDown(Peer::Worker(id)));
    }

    fn on_neighbour(&mut self, event: NeighbourEvent) {
        match event {
            NeighbourEvent::Up(place, outgoing) => self.neighbours.opened(place, outgoing),
            NeighbourEvent::Down(place) => self.neighbours.closed(place),
            NeighbourEvent::WorkerMessage(from, _) if self.neighbours.is_cut(from) => {}
            NeighbourEvent::WorkerMessage(from, message) => {
                self.step(Input::Message { from: Peer::Neighbour(from), message: Message::Loan(message) });
            }
            NeighbourEvent::Refused(reason) => self.history.refused(reason),
            NeighbourEvent::Fetched(authority) => {
                self.neighbours.on_fetched(&authority);
                self.know_neighbours();
            }
        }
    }

    /// A server of another farm calls.
    fn on_envoy(&mut self, envoy: Envoy) {
        if let Err(reason) = self.neighbours.meet(envoy) {
            self.history.refused(format!("refused a link: {reason}"));
        }
    }

    fn on_ask(&mut self, ask: FarmRequest) {
        match ask {
            FarmRequest::LookHere(look) => look(&self.farm),
            FarmRequest::Output(worker, part, reply) => self.outputs.ask(&worker, part, reply, &self.callers),
            FarmRequest::Enter(draft, reply) => {
                self.write(Waiting::Entered(reply), |ticket| Command::Enter(ticket, draft));
            }
            FarmRequest::Lend(order, reply) => {
                self.write(Waiting::Lent(reply), |ticket| Command::Lend(ticket, order));
            }
            FarmRequest::Look(index, look) => {
                let ticket = self.replies.add(Waiting::Look(look));
                self.command(Command::Look(ticket, index));
            }
            FarmRequest::Ended(index, awaited, reply) => {
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
}
