//! A running server: the loop in which the control machine meets links, a disk and a clock.
//!
//! One thread runs the loop and the links, another one the disk, so that a slow fsync makes nobody late. The loop takes
//! everything that has arrived before it looks at its timers: after a pause of one's own the leader is not judged silent
//! before its messages have been read. `start.rs` puts it together, `carry_out.rs` does what the machine wants.

mod arrivals;
mod carry_out;
mod changes;
mod end;
mod held;
mod log;
mod others;
mod own;
mod peers;
mod shown;
mod start;
mod turn;
mod writes;
mod writing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use primus_core::machine::{Input, Outbox};
use primus_core::{ServerId, Term};
use primus_server::control::{Command, Timer};
use primus_server::peers::Sign;
use primus_server::relay::Relay;
use primus_server::words::Words;
use primus_server::{Plan, Server, groups};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use self::arrivals::{Arrived, Inputs};
use self::changes::Changes;
pub use self::end::EndError;
use self::others::Others;
use self::own::Own;
use self::shown::Shown;
use self::start::serve;
use self::turn::{Turn, Turns};
use self::writes::Writes;
use self::writing::Writing;
use crate::credentials::Security;
use crate::farm::ToControl;
use crate::handle::{Handle, Request};
use crate::links::{LinkEvent, Links, Peer};
use crate::proposal_queue::ProposalQueue;
use crate::questions::Questions;
use crate::reads::{Read, Reads};
use crate::store::{Opened, StoreId};
use crate::timers::Timers;
use crate::watched::watch;

/// How many inputs are taken before timers are looked at, at most.
const INPUTS_MAX: usize = 1024;
/// After this long no further input is taken before timers are looked at.
const TURN_MAX: Duration = Duration::from_millis(5);
/// After a turn of this length others get the thread.
const YIELD_AFTER: Duration = Duration::from_micros(500);

/// What a server is told when it starts.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster's name.
    pub cluster: String,
    /// Who this server is, who the others are, and how they elect.
    pub plan: Plan,
    /// How its links are secured.
    pub security: Security,
}

/// Runs a server until its process ends. `listener` is bound to its address already; `ready` gets a handle.
///
/// # Errors
/// If it cannot go on; see [`EndError`].
pub async fn run(
    config: Config,
    listener: TcpListener,
    opened: Opened,
    ready: oneshot::Sender<Handle>,
) -> Result<(), EndError> {
    watch("control", serve(config, listener, opened, ready)).await?
}

/// The loop's state.
struct Running {
    config: Config,
    started: Instant,
    server: Server,
    outbox: Outbox<Server>,
    /// What the server is to be told next. What it says to one thing is carried out before it hears of another, whatever that
    /// leads to: the order of writes depends on it. Nothing while it is not being told anything.
    inputs: Option<VecDeque<Input<Server>>>,
    links: Arc<Links<Words>>,
    /// Why this server must not go on.
    end: Option<EndError>,
    writing: Writing,
    timers: Timers<Timer>,
    others: Others,
    /// What the farm wants to write.
    proposals: ProposalQueue,
    relay: Relay,
    turns: Turns,
    writes: Writes,
    reads: Reads,
    own: Own,
    changes: Changes,
    shown: Shown,
    /// The thread of questions for the leader, which ends with this.
    questions: Questions,
}

impl Running {
    async fn run(&mut self, mut inputs: Inputs) -> Result<(), EndError> {
        loop {
            if let Some(end) = self.end.take() {
                return Err(end);
            }
            let due =
                [self.timers.next(), self.writes.pending_writes.due(), self.proposals.due(), self.others.due()];
            let due = due.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            let first = tokio::select! {
                biased;
                Some(broken) = inputs.failures.recv() => return Err(broken.into()),
                done = self.writing.disk.done() => Some(Arrived::Synced(done?)),
                Some(event) = inputs.links.recv() => Some(Arrived::Link(event)),
                Some(wish) = inputs.wishes.recv() => Some(Arrived::ToControl(wish)),
                request = inputs.requests.recv() => match request {
                    Some((request, _)) => Some(Arrived::Request(request)),
                    None => return Ok(()),
                },
                () = sleep_until(due) => None,
            };
            // What was said in a long turn must leave before the next one: the links have this thread, too.
            if self.turn(first, &mut inputs)? > YIELD_AFTER {
                yield_now().await;
            }
        }
    }

    fn turn(&mut self, first: Option<Arrived>, inputs: &mut Inputs) -> Result<Duration, EndError> {
        let mut turn = self.turns.begin();
        first.into_iter().for_each(|first| _ = self.take(first, &mut turn));
        let all_taken = self.take_more(inputs, &mut turn)?;
        if self.propose_entering(turn.last()) {
            turn.note("proposing records");
        }
        if self.fire_timers(turn.last(), all_taken) {
            turn.note("a timer");
        }
        self.look_for_room();
        if self.writing.flush() {
            turn.note("giving records to the disk");
        }
        self.others.end_turn(turn.last());
        self.publish();
        let (took, late) = self.turns.end(turn);
        late.into_iter().for_each(|late| self.shown.history.add(late));
        Ok(took)
    }

    /// Takes what has arrived, but not for ever. Is that all?
    fn take_more(&mut self, inputs: &mut Inputs, turn: &mut Turn) -> Result<bool, EndError> {
        for _ in 0..INPUTS_MAX {
            let next = match self.writing.disk.try_done() {
                Some(done) => Some(Arrived::Synced(done?)),
                None => inputs.try_next(),
            };
            let Some(next) = next else { return Ok(true) };
            if self.take(next, turn) > TURN_MAX {
                break;
            }
        }
        Ok(false)
    }

    /// Says for how long the turn has lasted.
    fn take(&mut self, arrived: Arrived, turn: &mut Turn) -> Duration {
        let name = arrived.name();
        match arrived {
            Arrived::Synced(token) => self.on_synced(token),
            Arrived::Link(event) => self.on_link(event),
            Arrived::ToControl(wish) => self.on_wish(wish),
            Arrived::Request(request) => self.on_request(request),
        }
        turn.note(name)
    }

    /// Was there something to propose?
    fn propose_entering(&mut self, now: Instant) -> bool {
        let records = self.proposals.take(now);
        let is_some = !records.is_empty();
        if is_some {
            self.step(Input::Command(Command::Propose(records)));
        }
        is_some
    }

    /// Nobody is judged silent whose words may not have been read yet. Was there anything to do?
    fn fire_timers(&mut self, now: Instant, all_taken: bool) -> bool {
        let mut has_fired = false;
        while let Some((_, timer)) = self.timers.take_due(now) {
            has_fired = true;
            if timer == Timer::Silence && !all_taken {
                self.timers.set(timer, now + Duration::from_millis(1));
            } else {
                self.step(Input::Timer(timer));
            }
        }
        let unable = self.unable();
        self.writes.pending_writes.take_due(now).into_iter().for_each(|write| _ = write.reply.send(Err(unable)));
        has_fired
    }

    fn on_link(&mut self, event: LinkEvent<Words>) {
        match event {
            LinkEvent::Message(from, words, _) => self.on_words(from, words),
            // On its way to the disk before any vote that this peer might ask for.
            LinkEvent::Met(peer, Peer { store, .. }) => self.writing.remember(peer, StoreId(store)),
            LinkEvent::Up(peer) => {
                self.mark(peer, true);
                self.see(peer, Sign::LinkUp);
                self.step(Input::LinkUp(peer));
                self.others.elections.tell(Input::LinkUp(peer));
            }
            LinkEvent::Down(peer) => {
                self.mark(peer, false);
                self.see(peer, Sign::LinkDown);
                self.step(Input::LinkDown(peer));
                self.others.elections.tell(Input::LinkDown(peer));
            }
            LinkEvent::Gone(peer) => {
                self.mark(peer, false);
                self.see(peer, Sign::Gone);
                self.step(Input::Command(Command::Gone(peer)));
                self.others.elections.tell(Input::Command(groups::Command::Gone(peer)));
            }
            LinkEvent::Unresolved(peer, Some(sentence)) => self.see(peer, Sign::Unresolved(sentence)),
            LinkEvent::Unresolved(peer, None) => self.see(peer, Sign::Resolved),
            LinkEvent::Barred(peer, reason) => self.see(peer, Sign::Refused(reason)),
        }
    }

    fn on_words(&mut self, from: ServerId, words: Words) {
        self.shown.meters.received.add(1);
        if let Some(objection) = words.objection() {
            return self.on_strange(from, objection);
        }
        self.hear(from);
        match words {
            Words::Control(message) => {
                if message.brings_log() {
                    self.tell_room();
                }
                self.step(Input::Message { from, message });
            }
            Words::Groups(message) => self.others.elections.tell(Input::Message { from, message }),
            Words::Clock(shows_ms) => self.pass_clock_on(from, shows_ms),
        }
    }

    /// A peer said what no server says; it was not heard.
    fn on_strange(&self, peer: ServerId, what: &str) {
        self.shown.meters.strange.add(1);
        self.shown.history.refused(format!("refused words of server {peer}: {what}"));
    }

    fn mark(&mut self, peer: ServerId, is_up: bool) {
        if let Some(view) = self.shown.state.peers.get_mut(&peer) {
            view.is_up = is_up;
        }
    }

    fn on_request(&mut self, request: Request) {
        match request {
            Request::Propose(proposals, reply) => self.on_proposals(proposals, reply),
            Request::Confirm(read) => self.on_read(read),
            Request::Transfer(to, reason, reply) => self.on_transfer(to, reason, reply),
            Request::Outlook(reply) => {
                let outlook = if self.leads() { Ok(self.server.outlook()) } else { Err(self.unable()) };
                _ = reply.send(outlook);
            }
            Request::Leave(reply) => self.on_leave(reply),
            Request::Elect(asked, reply) => self.on_elect(asked, reply),
            Request::Cut(cuts) => self.links.cut(cuts),
            Request::Delay(delays) => self.on_delay(&delays),
            Request::Load(usage) => {
                self.own.usage = usage;
                self.on_load();
            }
            Request::OverrideLoad(score) => {
                self.own.overridden = score;
                self.on_load();
            }
        }
    }

    fn on_delay(&mut self, delays: &BTreeMap<ServerId, Duration>) {
        self.links.delay(delays);
        let delays = self.links.delays();
        for (peer, view) in &mut self.shown.state.peers {
            view.delay = delays.get(peer).copied();
        }
        self.step(Input::Command(Command::Measure));
    }

    fn on_wish(&mut self, wish: ToControl) {
        match wish {
            // What a leader wanted that has been deposed meanwhile is void, and its farm knows or will know.
            ToControl::Enter(term, records) if self.leads_in(term) => self.proposals.add(records),
            ToControl::Enter(..) => {}
            ToControl::Unreadable(index) => self.end = Some(EndError::Unreadable(index)),
            ToControl::Guarded(is_guarded) => self.step(Input::Command(Command::Guarded(is_guarded))),
            ToControl::Transfer(to, reason) => self.step(Input::Command(Command::Transfer(Some(to), reason))),
            ToControl::Tasks(tasks) => {
                self.own.tasks = tasks;
                self.on_load();
            }
            ToControl::Compact(index, state) => {
                self.step(Input::Command(Command::Compact(index, state)));
                self.relay.on_cut(index);
            }
        }
    }

    fn leads(&self) -> bool {
        self.shown.state.leader == Some(self.config.plan.id)
    }

    fn leads_in(&self, term: Term) -> bool {
        self.leads() && self.shown.state.term == term
    }

    fn on_read(&mut self, read: Read) {
        let number = self.reads.ask(read);
        self.step(Input::Command(Command::Read(number)));
    }
}
