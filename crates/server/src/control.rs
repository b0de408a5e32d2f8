//! Election and replica as one machine: an election names who should lead, and a quorum ratifies it.
//!
//! Whoever misses the leader forgets it and asks the election. The winner campaigns, again and again while the others may
//! not have noticed yet, and leads only with a majority's votes in a new term. A winner that cannot win gives way, so that
//! the next one is named. Whatever the election thought, the term that the replicas agree on is the truth.

mod ahead;
mod campaign;
mod change;
mod elect;
mod gave_way;
mod loads;
mod outlook;
mod pace;
mod room;
mod scratch;
mod succession;
mod words;

use std::collections::BTreeSet;

use primus_core::ServerId;
use primus_core::Term;
use primus_core::bounds::ABSURD;
use primus_core::detector::{self, Detector, Verdict};
use primus_core::election::{self, Election, MessageKind};
use primus_core::handover;
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox, Output, Token};
use primus_replica::bounds::{self, Extent, Objection};
use primus_replica::consensus::Consensus;
use primus_replica::message;
use primus_replica::message::{Kind, Record};
use primus_replica::replica::{self, Replica, Role, Tick};

use ahead::Ahead;
use campaign::{Campaign, Candidacy, Move};
use change::Change;
use elect::Held;
use gave_way::Yielded;
use loads::Loads;
pub use outlook::{Outlook, Way};
use pace::Pace;
use scratch::Scratch;
use succession::Succession;
pub use words::{Command, Confirmed, Message, Notice, Reason, Timer};

use crate::record;
use crate::room::Room;
use crate::transfer::Hearing;

/// A server's control part.
///
/// `E` is the election, `R` the replicated log: the Raft engine, or a model of it that can be explored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Control<E: Election, R: Consensus = Replica> {
    id: ServerId,
    times: Times,
    election: E,
    replica: R,
    detector: Detector,
    now: Moment,
    /// How long messages take.
    pace: Pace,
    leader: Option<ServerId>,
    term: Term,
    change: Change,
    loads: Loads,
    campaign: Campaign,
    hearing: Hearing,
    succession: Succession,
    /// How much more of the log there is room for.
    room: Room,
    /// Whom the election takes for dead, until a word of theirs arrives.
    suspected: BTreeSet<ServerId>,
    /// Does a leader speak of more than this server has?
    ahead: Ahead,
    yielded: Yielded,
    /// An election that an operator wants is under way.
    held: Option<Held>,
    scratch: Scratch<E, R>,
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Times {
    /// How long a leader may be silent.
    pub silence: detector::Rules,
    /// When a loaded leader hands over, if it does at all.
    pub handover: Option<handover::Rules>,
    /// How soon votes are asked for again, at first.
    pub retry: Delay,
    /// How long there may be no leader before this server holds another election.
    pub leaderless: Delay,
    /// How much longer that is when this server has just started.
    pub startup_us: u64,
    /// Are round trips measured, so that all these times fit slow links, too?
    pub are_links_measured: bool,
    /// For how many ticks a leader stays before it gives way to a better-ranked one.
    pub tenure_ticks: u32,
}

impl Times {
    /// Whoever jumps in waits this long for each live server that ranks better.
    const JUMP_IN_STEP: Delay = Delay::exactly_ms(2);
}

impl<E: Election, R: Consensus> Control<E, R> {
    /// A server that has just started.
    pub fn new(election: E, replica: R, times: Times) -> Self {
        Self {
            id: election.id(),
            times,
            election,
            replica,
            detector: Detector::new(times.silence),
            now: Moment::START,
            pace: Pace::new(times.are_links_measured),
            leader: None,
            term: Term(0),
            change: Change::new(Reason::Start),
            loads: Loads::default(),
            campaign: Campaign::default(),
            hearing: Hearing::default(),
            succession: Succession::new(times.handover),
            room: Room::default(),
            suspected: BTreeSet::new(),
            ahead: Ahead::default(),
            yielded: Yielded::default(),
            held: None,
            scratch: Scratch::default(),
        }
    }

    fn advance(&mut self, now: Moment) {
        self.now = now;
        self.detector.advance(now);
        self.pace.advance(now);
        self.succession.advance(now);
    }

    /// The replica, to look at.
    pub const fn replica(&self) -> &R {
        &self.replica
    }

    /// Who leads, as far as this server knows.
    pub const fn leader(&self) -> Option<ServerId> {
        self.leader
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Boot => {
                self.tell_replica(replica::Command::Boot, out);
                out.set(Timer::Leaderless, self.times.leaderless.longer_by(self.times.startup_us));
                self.tell_election(election::Command::Boot, out);
            }
            Command::Gone(peer) => {
                self.hearing.on_lost(peer);
                self.suspect(peer, Reason::LinkLost, out);
            }
            Command::Load(load) => self.on_load(load, out),
            Command::Propose(entries) => self.tell_replica(replica::Command::Propose(entries), out),
            Command::Write(entries, brings_content) => self.write(entries, brings_content, out),
            Command::Room(room) => self.room = room,
            Command::Read(number) if self.replica.is_readable() => {
                self.tell_replica(replica::Command::Read(number), out);
            }
            Command::Read(number) => out.notify(Notice::Unreadable(number)),
            Command::Transfer(to, reason) => self.transfer(to, reason, out),
            Command::Leave => self.transfer(None, Reason::Left, out),
            Command::Elect(asked) => self.elect(asked, out),
            Command::Guarded(is_guarded) => self.succession.is_guarded = is_guarded,
            Command::Measure => self.measure_again(out),
            Command::Compact(index, data) => self.tell_replica(replica::Command::Compact(index, data), out),
        }
    }

    fn tell_peers(&self, message: &Message<E::Message>, out: &mut Outbox<Self>) {
        self.replica.peers().into_iter().for_each(|peer| out.send(peer, message.clone()));
    }

    fn on_tick(&mut self, out: &mut Outbox<Self>) {
        self.step_replica(Input::Timer(Tick), out);
        self.hearing.on_tick(self.replica.peers());
        self.ahead.on_tick();
        self.succession.on_tick();
        if self.leader == Some(self.id) {
            self.write_fact(out);
            if !self.yielded.is_unwritten() {
                self.consider_others(out);
            }
        }
    }

    /// Why a message is refused before anything hears of it, the engine least of all.
    fn objection(&self, message: &Message<E::Message>) -> Option<Objection> {
        match message {
            Message::Election(message) if !self.election.is_credible(message) => Some(Objection::Strange(ABSURD)),
            Message::Replica(message) => {
                let (role, _, term) = self.replica.view();
                let own = Extent { term: term.0, last: self.replica.extent().0, leads: role == Role::Leader };
                bounds::objection(message, own)
            }
            Message::Election(_) | Message::Loads(..) | Message::Change(_) | Message::Confirmed(_) => None,
            Message::Probe(_) | Message::Echo(_) => None,
        }
    }

    fn on_objection(&mut self, from: ServerId, objection: Objection, out: &mut Outbox<Self>) {
        match objection {
            Objection::Strange(what) => out.notify(Notice::Strange(from, what)),
            Objection::Beyond(index) if self.ahead.on_beyond(from) => {
                let last = self.replica.extent().0;
                out.notify(Notice::Forgotten { leader: from, index, last });
            }
            Objection::Beyond(_) => out.notify(Notice::Strange(from, "what this server has not acknowledged")),
        }
    }

    fn on_message(&mut self, from: ServerId, message: Message<E::Message>, out: &mut Outbox<Self>) {
        if self.is_too_much(&message) {
            return out.ignore("more of the log than the farm can take");
        }
        if let Some(objection) = self.objection(&message) {
            return self.on_objection(from, objection, out);
        }
        self.hearing.on_message(from);
        // A link that was never lost brings nobody back by itself: whoever was frozen or cut off is there again when it is
        // heard. Not in the middle of an election, where a word may be late.
        if self.leader.is_some() && self.suspected.remove(&from) {
            self.tell_election(election::Command::Trust(from), out);
        }
        if self.leader == Some(from) {
            let look = self.detector.heard();
            look.into_iter().for_each(|delay| out.set(Timer::Silence, delay));
        }
        match message {
            Message::Election(message) => self.on_election_message(from, message, out),
            Message::Replica(message) => self.on_replica_message(from, message, out),
            Message::Loads(loads, missing) => self.on_loads(from, loads, missing, out),
            Message::Confirmed(confirmed) => self.on_confirmed(from, confirmed, out),
            // Whoever takes over says it, too, and by then nobody leads any more.
            Message::Change(reason) if self.leader.is_none_or(|leader| leader == from) => {
                self.change.reason = reason;
            }
            Message::Change(_) => out.ignore("a change that no leader announced"),
            Message::Probe(sent_us) => out.send(from, Message::Echo(sent_us)),
            Message::Echo(sent_us) => self.on_echo(from, sent_us, out),
        }
    }

    fn on_election_message(&mut self, from: ServerId, message: E::Message, out: &mut Outbox<Self>) {
        let is_question = E::kind_of(&message) == MessageKind::Election;
        self.step_election(Input::Message { from, message }, out);
        if !is_question || self.leader.is_some() {
            return;
        }
        // Whoever asks may go by an old load of ours: then it would wait for an answer that does not come.
        if let Some(score) = self.loads.known.get(&self.id).filter(|_| self.succession.handover.is_some()) {
            out.send(from, Message::Loads(vec![(self.id, *score)], Vec::new()));
        }
        // Somebody else has noticed by now, and would vote.
        if self.campaign.is_under_way() && !self.replica.is_voting() {
            self.tell_replica(replica::Command::Campaign, out);
        }
    }

    /// Whoever knows less than this server cannot win its vote. Rather than wait until that one gives way, it runs itself,
    /// after those who rank better and may know as much.
    fn on_replica_message(&mut self, from: ServerId, message: message::Message, out: &mut Outbox<Self>) {
        let asks_for_vote = matches!(message.kind, Kind::RequestVote | Kind::RequestPreVote);
        let knows_less = (message.log_term, message.index) < self.replica.freshness();
        let is_rival = message.kind == Kind::RequestVote && Term(message.term) == self.replica.view().2;
        let is_told_to_run = message.kind == Kind::TimeoutNow;
        if matches!(message.kind, Kind::Heartbeat | Kind::Append | Kind::Snapshot) {
            self.ahead.on_leader();
        }
        self.step_replica(Input::Message { from, message }, out);
        if is_told_to_run && self.replica.is_voting() {
            // The old leader's word may reach others only after this server's question, or even when it leads already. On the
            // same link nothing is overtaken.
            self.tell_peers(&Message::Change(self.change.reason), out);
        }
        if is_rival && self.campaign.is_under_way() && self.replica.is_voting() {
            self.on_rival(from, knows_less, out);
        }
        if asks_for_vote && knows_less && self.leader.is_none() && self.campaign.candidacy == Candidacy::Named {
            self.campaign.candidacy = Candidacy::JumpIn;
            let others = match self.yielded.binds(self.id) {
                true => self.replica.peers().len(),
                // The one that asks is mostly the best, and now known to know less.
                false => {
                    let is_best = self.election.better() == Some(from);
                    self.election.better_count().saturating_sub(usize::from(is_best))
                }
            };
            let steps = u64::try_from(others).unwrap_or(u64::MAX);
            out.set(Timer::JumpIn, self.stretched(Times::JUMP_IN_STEP, 1).times(steps));
        }
    }

    /// Two ask for votes in one term, and perhaps nobody wins it. One of them asks again soon, the other gives it time.
    fn on_rival(&mut self, rival: ServerId, knows_less: bool, out: &mut Outbox<Self>) {
        let delay = self.campaign.on_rival(rival > self.id && !knows_less, self.term, self.pace.slower_us());
        out.set(Timer::Retry, delay);
    }

    fn on_jump_in(&mut self, out: &mut Outbox<Self>) {
        if self.leader.is_none() && !self.campaign.is_under_way() {
            self.run(out);
        }
    }

    /// A leader that is missed is forgotten at once, so that this server votes for another; then the election decides.
    fn suspect(&mut self, peer: ServerId, reason: Reason, out: &mut Outbox<Self>) {
        out.notify(Notice::Suspected(peer, reason));
        self.suspected.insert(peer);
        self.adapt(out);
        self.loads.known.remove(&peer);
        if self.leader == Some(peer) {
            self.change.reason = reason;
            self.tell_replica(replica::Command::ForgetLeader, out);
            // The election may have had another one in mind; what counts is whom the quorum made the leader.
            self.tell_election(election::Command::Ratified(peer), out);
        }
        self.tell_election(election::Command::Suspect(peer), out);
    }

    /// Whatever went wrong in the last election, there will be another one; one that is under way goes on.
    fn on_leaderless(&mut self, out: &mut Outbox<Self>) {
        if self.leader.is_none() {
            out.set(Timer::Leaderless, self.stretched(self.times.leaderless, 4));
            self.tell_election(election::Command::Start, out);
        }
    }

    fn on_silence(&mut self, out: &mut Outbox<Self>) {
        let Some(leader) = self.leader.filter(|leader| *leader != self.id) else {
            return out.ignore("silence of nobody");
        };
        match self.detector.look() {
            Verdict::Silent => self.suspect(leader, Reason::Silence, out),
            Verdict::Wait(delay) => out.set(Timer::Silence, delay),
        }
    }

    /// This server was named: it asks for votes until it leads, somebody else does, or it must give way.
    fn run(&mut self, out: &mut Outbox<Self>) {
        let (role, leader, _) = self.replica.view();
        if role == Role::Leader || leader.is_some_and(|leader| leader != self.id) && self.leader.is_some() {
            return self.campaign.stop();
        }
        if self.declines() {
            return self.tell_election(election::Command::Resign, out);
        }
        let (is_voting, slower_us) = (self.replica.is_voting(), self.pace.slower_us());
        match self.campaign.think(is_voting, self.term, self.times.retry, slower_us) {
            Move::Ask(delay) => {
                out.set(Timer::Retry, delay);
                self.tell_replica(replica::Command::Campaign, out);
            }
            Move::Wait(delay) => out.set(Timer::Retry, delay),
            Move::GiveWay => {
                self.campaign.candidacy = Candidacy::Named;
                self.tell_election(election::Command::Resign, out);
            }
        }
    }

    fn tell_election(&mut self, command: election::Command, out: &mut Outbox<Self>) {
        self.step_election(Input::Command(command), out);
    }

    fn tell_replica(&mut self, command: replica::Command, out: &mut Outbox<Self>) {
        self.step_replica(Input::Command(command), out);
    }

    fn step_election(&mut self, input: Input<E>, out: &mut Outbox<Self>) {
        let mut outbox = std::mem::replace(&mut self.scratch.election, Outbox::new());
        self.election.step(self.now, input, &mut outbox);
        for output in outbox.drain() {
            match output {
                Output::Send { to, message } => out.send(to, Message::Election(message)),
                Output::Set { timer, delay } => out.set(Timer::Election(timer), delay),
                Output::Cancel(timer) => out.cancel(Timer::Election(timer)),
                Output::Notify(notice) => self.on_election_notice(notice, out),
                Output::Ignore(reason) => out.ignore(reason),
            }
        }
        self.scratch.election = outbox;
    }

    /// The election's word counts nothing by itself, but whoever follows an election wants to read it.
    fn on_election_notice(&mut self, notice: election::Notice, out: &mut Outbox<Self>) {
        out.notify(Notice::Election(notice));
        match notice {
            election::Notice::Lead => {
                self.on_named(self.id, out);
                self.run(out);
            }
            election::Notice::Follow(winner) => self.on_named(winner, out),
            election::Notice::Undefined | election::Notice::Complete => {}
        }
    }

    fn step_replica(&mut self, input: Input<R>, out: &mut Outbox<Self>) {
        let mut outbox = std::mem::replace(&mut self.scratch.replica, Outbox::new());
        self.replica.step(self.now, input, &mut outbox);
        let outputs: Vec<_> = outbox.drain().collect();
        self.scratch.replica = outbox;
        for output in outputs {
            match output {
                Output::Send { to, message } => out.send(to, Message::Replica(message)),
                Output::SendAfter { token, to, message } => out.send_after(token, to, Message::Replica(message)),
                Output::Persist { token, records } => out.persist(token, records),
                Output::Set { timer: Tick, delay } => out.set(Timer::Tick, delay),
                Output::Cancel(Tick) => out.cancel(Timer::Tick),
                Output::Notify(notice) => self.on_replica_notice(notice, out),
                Output::Ignore(reason) => out.ignore(reason),
            }
        }
    }

    fn on_replica_notice(&mut self, notice: replica::Notice, out: &mut Outbox<Self>) {
        match notice {
            replica::Notice::Changed(_, leader, term) => self.on_changed(leader, term, out),
            replica::Notice::Committed(entries) => {
                let leads_in = self.leads_in();
                self.yielded.on_committed(&entries, leads_in);
                out.notify(Notice::Committed(entries));
            }
            replica::Notice::Readable(number, index) => out.notify(Notice::Readable(number, index)),
            replica::Notice::Restored(snapshot) => {
                self.yielded = Yielded::new(record::gave_way(&snapshot.data));
                out.notify(Notice::Restored(snapshot));
            }
            replica::Notice::Refused(_, data) if self.is_own_refusal(&data) => {}
            replica::Notice::Refused(refusal, data) => out.notify(Notice::Refused(refusal, data)),
        }
    }
}

impl<E: Election, R: Consensus> Machine for Control<E, R> {
    type Peer = ServerId;
    type Message = Message<E::Message>;
    type Command = Command;
    type Timer = Timer;
    type Record = Record;
    type Token = Token;
    type Barrier = Token;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        self.advance(now);
        if self.pace.is_due() {
            self.send_probes(out);
        }
        match input {
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::Timer(Timer::Tick) => self.on_tick(out),
            Input::Timer(Timer::Silence) => self.on_silence(out),
            Input::Timer(Timer::Retry) => self.run(out),
            Input::Timer(Timer::JumpIn) => self.on_jump_in(out),
            Input::Timer(Timer::Leaderless) => self.on_leaderless(out),
            Input::Timer(Timer::Transfer) => self.on_transfer_time(out),
            Input::Timer(Timer::Held) => self.on_held_time(out),
            Input::Timer(Timer::Election(timer)) => self.step_election(Input::Timer(timer), out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(peer) => {
                self.pace.on_link(peer);
                self.suspected.remove(&peer);
                self.tell_election(election::Command::Trust(peer), out);
            }
            Input::LinkDown(peer) => {
                self.hearing.on_lost(peer);
                self.tell_replica(replica::Command::Unreachable(peer), out);
            }
            Input::Persisted(token) => self.step_replica(Input::Persisted(token), out),
        }
    }
}
