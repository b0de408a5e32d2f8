//! The candidate's side of leases: it asks, again and again, and knows until when it may go on.
//!
//! What it is promised counts from the moment at which it asked. When that time is over and nothing newer was promised,
//! whatever ran under the lease must be dead already: its owner has been told the end of each promise in advance. Once its
//! owner says that it has ended, the guard gives the group back, so that the next one need not wait.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Answer, Candidacy, Claim, Message, Objection, Poll, Promise};
use crate::load::Score;
use crate::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use crate::planted::{Bug, Planted};
use crate::{ServerId, SessionId};

/// How long it waits before it asks again after a question that came to nothing: at first hardly, because leaders change fast,
/// then twice as long each time, this often.
const RETRY: Delay = Delay::between_ms(1, 2);
const DOUBLINGS_MAX: u32 = 5;
/// While it waits for something, so many questions at most pass before it says again what it wants: if words overtake each
/// other between two leaders, the second may have heard only what was wanted once.
const REPEATED_AFTER: u64 = 8;
/// Of a lease, in percent: what should be left of it when the next answer comes that is not late.
const KEPT_PERCENT: u64 = 45;
/// However little is left, a holder does not ask more often than so many times per lease.
const WAITS_MAX: u64 = 16;
/// A question without an answer is given up after this part of a lease, on top of what the answer may wait.
const PATIENCE_PARTS: u64 = 4;

/// The guard of one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Guard {
    session: SessionId,
    rules: Rules,
    now_us: u64,
    score: Score,
    at: ServerId,
    wants: BTreeMap<String, Candidacy>,
    states: BTreeMap<String, LeaseState>,
    /// Whatever it held under this token, or an older one, is over, whoever may say otherwise. Tokens grow whatever the group,
    /// so one is enough, also for groups that it has left and wants again.
    over: u64,
    /// Must the lessor be told everything?
    is_stranger: bool,
    last_number: u64,
    /// The open question, and when it was asked.
    asked: Option<(u64, u64)>,
    /// How many questions in a row have come to nothing.
    failures: u32,
}

/// What a guard goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// How long a lease lasts, roughly: how often to ask follows from it.
    pub lease_us: u64,
    /// A known bug, to see whether the laboratory finds it.
    pub planted: Planted,
}

/// How it stands with a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LeaseState {
    /// It does not hold it.
    Waits,
    /// It holds it until then, if nothing newer is promised.
    Holds { token: u64, until_us: u64 },
    /// It still holds it, but what runs has been told to end.
    Ends { token: u64, until_us: u64 },
    /// The time is over; what ran is dead, or will be said to be.
    Lost { token: u64 },
    /// What ran has ended; the lessor has to be told.
    Ended { token: u64 },
}

/// The only one that a guard talks with. Which server that is, its owner finds out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Leader;

/// What its owner tells a guard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// It would like to hold these, too.
    Want(Vec<Candidacy>),
    /// And this no more; if it holds it, what runs is told to end.
    Leave(String),
    /// What ran under this group's lease has ended.
    Ended(String),
    /// The host is this loaded.
    Score(Score),
    /// It speaks through this server from now on.
    At(ServerId),
    /// The question came to nothing: whoever was asked does not lead, or is gone.
    Failed(u64),
}

/// What a guard tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// It holds this group, under this token, until then.
    Granted(String, u64, u64),
    /// The same, until then.
    Renewed(String, u64, u64),
    /// It should let go of it, in good order; meanwhile it still holds it.
    Recalled(String),
    /// It does not hold it any more: what runs must be dead by now.
    Lost(String),
    /// It cannot have it.
    Refused(String, Objection),
}

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// Time to ask, or to ask again.
    Ask,
    /// The first promise runs out.
    Expiry,
}

impl Guard {
    /// A guard that wants nothing yet.
    #[must_use]
    pub const fn new(session: SessionId, rules: Rules) -> Self {
        Self {
            session,
            rules,
            now_us: 0,
            score: Score::from_hundredths(0),
            at: ServerId(0),
            wants: BTreeMap::new(),
            states: BTreeMap::new(),
            over: 0,
            is_stranger: true,
            last_number: 0,
            asked: None,
            failures: 0,
        }
    }

    /// Leases last this long where it asks; how often it asks follows from that.
    pub const fn set_lease(&mut self, lease_us: u64) {
        self.rules.lease_us = lease_us;
    }

    /// Whose guard it is.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Does it still have to do with any group? If not, its session may end.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_over = |state: &LeaseState| matches!(state, LeaseState::Waits);
        self.wants.is_empty() && self.states.values().all(is_over)
    }

    /// Until when it holds this group.
    #[must_use]
    pub fn until_us(&self, group: &str) -> Option<u64> {
        match self.states.get(group)? {
            LeaseState::Holds { until_us, .. } | LeaseState::Ends { until_us, .. } => Some(*until_us),
            _ => None,
        }
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Want(candidacies) => self.want(candidacies, out),
            Command::Leave(group) => self.leave(&group, out),
            Command::Ended(group) => self.on_ended(&group, out),
            Command::Score(score) => self.score = score,
            Command::At(server) => self.at = server,
            Command::Failed(number) => self.on_failed(number, out),
        }
    }

    fn want(&mut self, candidacies: Vec<Candidacy>, out: &mut Outbox<Self>) {
        for candidacy in candidacies {
            self.states.entry(candidacy.group.clone()).or_insert(LeaseState::Waits);
            self.wants.insert(candidacy.group.clone(), candidacy);
        }
        self.is_stranger = true;
        self.ask(out);
    }

    fn leave(&mut self, group: &str, out: &mut Outbox<Self>) {
        self.wants.remove(group);
        self.is_stranger = true;
        self.recall(group, out);
        self.ask(out);
    }

    fn recall(&mut self, group: &str, out: &mut Outbox<Self>) {
        let Some(state) = self.states.get_mut(group) else { return };
        if let LeaseState::Holds { token, until_us } = *state {
            *state = LeaseState::Ends { token, until_us };
            out.notify(Notice::Recalled(group.into()));
        }
    }

    fn on_ended(&mut self, group: &str, out: &mut Outbox<Self>) {
        let Some(state) = self.states.get_mut(group) else { return };
        if let LeaseState::Holds { token, .. } | LeaseState::Ends { token, .. } | LeaseState::Lost { token } =
            *state
        {
            *state = LeaseState::Ended { token };
            self.ask(out);
        }
    }

    /// How long an answer may wait for something new. A holder asks in time to be told before its time is over, and sooner if
    /// the last answer was late: the next one may be late, too. Others have more time.
    fn wait_us(&self) -> u64 {
        let lease_us = self.rules.lease_us;
        let ends = self.states.keys().filter_map(|group| self.until_us(group)).min();
        match ends {
            Some(until_us) => {
                let spare_us = until_us.saturating_sub(self.now_us).saturating_sub(KEPT_PERCENT * lease_us / 100);
                spare_us.clamp(lease_us / WAITS_MAX, lease_us / 4)
            }
            None if self.states.values().all(|state| *state == LeaseState::Waits) => lease_us / 2,
            None => lease_us / 4,
        }
    }

    /// Asks at once, whatever was asked before.
    fn ask(&mut self, out: &mut Outbox<Self>) {
        let wait_us = self.wait_us();
        self.last_number += 1;
        let is_waiting = self.states.values().any(|state| *state == LeaseState::Waits);
        let says_all = self.is_stranger || is_waiting && self.last_number.is_multiple_of(REPEATED_AFTER);
        let wants = says_all.then(|| self.wants.values().cloned().collect());
        let holds = if says_all { self.claims(false) } else { Vec::new() };
        let (number, ended) = (self.last_number, self.claims(true));
        let poll = Poll { number, wants, holds, ended, score: self.score, at: self.at, wait_us };
        self.asked = Some((number, self.now_us));
        out.send(Leader, Message::Poll(poll));
        let patience_us = wait_us + self.rules.lease_us / PATIENCE_PARTS;
        out.set(Timer::Ask, Delay { min_us: patience_us, max_us: patience_us });
    }

    fn claims(&self, are_ended: bool) -> Vec<Claim> {
        let claims = self.states.iter().filter_map(|(group, state)| match state {
            LeaseState::Ended { token } if are_ended => Some((group, token)),
            LeaseState::Holds { token, .. } | LeaseState::Ends { token, .. } if !are_ended => Some((group, token)),
            _ => None,
        });
        claims.map(|(group, token)| Claim { group: group.clone(), token: *token }).collect()
    }

    fn on_failed(&mut self, number: u64, out: &mut Outbox<Self>) {
        if self.asked.take_if(|(asked, _)| *asked == number).is_some() {
            self.is_stranger = true;
            out.set(Timer::Ask, RETRY.times(1 << self.failures.min(DOUBLINGS_MAX)));
            self.failures = self.failures.saturating_add(1);
        }
    }

    fn on_answer(&mut self, answer: Answer, out: &mut Outbox<Self>) {
        let Some((_, asked_us)) = self.asked.take_if(|(number, _)| *number == answer.number) else {
            return out.ignore("an answer to an older question");
        };
        if !answer.is_known {
            // One that does not know this session, although it has just been told of it, has no room for it.
            let was_told = core::mem::replace(&mut self.is_stranger, true);
            return if was_told { out.set(Timer::Ask, RETRY.times(1 << DOUBLINGS_MAX)) } else { self.ask(out) };
        }
        (self.is_stranger, self.failures) = (false, 0);
        let from_us = if self.rules.planted.is(Bug::LeaseFromAnswer) { self.now_us } else { asked_us };
        let held: BTreeMap<&str, &Promise> =
            answer.promises.iter().map(|promise| (promise.group.as_str(), promise)).collect();
        // What it is said to hold and has long forgotten goes back, or nobody else would ever get it.
        for group in held.keys().filter(|group| !self.states.contains_key(**group)).collect::<Vec<_>>() {
            self.states.insert((*group).into(), LeaseState::Waits);
        }
        let groups: Vec<String> = self.states.keys().cloned().collect();
        for group in groups {
            self.on_promise(&group, held.get(group.as_str()).copied(), from_us, out);
        }
        answer.recalled.iter().for_each(|group| self.recall(group, out));
        for (group, objection) in answer.refused {
            if objection != Objection::OldToken {
                self.wants.remove(&group);
                out.notify(Notice::Refused(group, objection));
            }
        }
        let wants = &self.wants;
        self.states.retain(|group, state| !matches!(state, LeaseState::Waits) || wants.contains_key(group));
        self.watch_expiry(out);
        if self.is_idle() { out.cancel(Timer::Ask) } else { self.ask(out) }
    }

    /// What the answer says about one group: a promise, or that it is not held.
    fn on_promise(&mut self, group: &str, promise: Option<&Promise>, from_us: u64, out: &mut Outbox<Self>) {
        let (now_us, over, is_wanted) = (self.now_us, self.over, self.wants.contains_key(group));
        let Some(state) = self.states.get_mut(group) else { return };
        let promise = promise.map(|promise| (promise.token, from_us + promise.rest_us));
        *state = match (*state, promise) {
            (LeaseState::Waits, Some((token, until_us))) if token > over && until_us > now_us && is_wanted => {
                out.notify(Notice::Granted(group.into(), token, until_us));
                LeaseState::Holds { token, until_us }
            }
            // It came when it was not wanted any more; or it was over, and a leader that was none said that the log knows.
            (LeaseState::Waits, Some((token, _))) if token <= over || !is_wanted => LeaseState::Ended { token },
            (LeaseState::Holds { token, until_us }, Some((newer, then_us))) if newer == token => {
                let until_us = then_us.max(until_us);
                out.notify(Notice::Renewed(group.into(), token, until_us));
                LeaseState::Holds { token, until_us }
            }
            (LeaseState::Ends { token, until_us }, Some((newer, then_us))) if newer == token => {
                let until_us = then_us.max(until_us);
                out.notify(Notice::Renewed(group.into(), token, until_us));
                LeaseState::Ends { token, until_us }
            }
            (LeaseState::Holds { token, .. } | LeaseState::Ends { token, .. }, _) => {
                out.notify(Notice::Lost(group.into()));
                LeaseState::Lost { token }
            }
            // The lessor has let go of it.
            (LeaseState::Ended { token }, promise) if promise.is_none_or(|(newer, _)| newer != token) => {
                self.over = over.max(token);
                LeaseState::Waits
            }
            (state, _) => state,
        };
    }

    fn watch_expiry(&self, out: &mut Outbox<Self>) {
        let untils = self.states.keys().filter_map(|group| self.until_us(group));
        match untils.min() {
            Some(until_us) => {
                let rest_us = until_us.saturating_sub(self.now_us);
                out.set(Timer::Expiry, Delay { min_us: rest_us, max_us: rest_us });
            }
            None => out.cancel(Timer::Expiry),
        }
    }

    fn on_expiry(&mut self, out: &mut Outbox<Self>) {
        for (group, state) in &mut self.states {
            if let LeaseState::Holds { token, until_us } | LeaseState::Ends { token, until_us } = *state
                && until_us <= self.now_us
            {
                *state = LeaseState::Lost { token };
                out.notify(Notice::Lost(group.clone()));
            }
        }
        self.watch_expiry(out);
    }

    /// The last question was not answered in time: perhaps another server leads.
    fn on_ask(&mut self, out: &mut Outbox<Self>) {
        if self.asked.take().is_some() {
            self.is_stranger = true;
        }
        self.ask(out);
    }
}

impl Machine for Guard {
    type Peer = Leader;
    type Message = Message;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        self.now_us = self.now_us.max(now.0);
        match input {
            Input::Message { message: Message::Answer(answer), .. } => self.on_answer(answer, out),
            Input::Message { .. } => out.ignore("what only candidates say"),
            Input::Timer(Timer::Ask) => self.on_ask(out),
            Input::Timer(Timer::Expiry) => self.on_expiry(out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(_) | Input::LinkDown(_) => {}
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Want(candidacies) => {
                f.write_str("want")?;
                candidacies.iter().try_for_each(|candidacy| write!(f, " {}", candidacy.group))
            }
            Self::Leave(group) => write!(f, "leave {group}"),
            Self::Ended(group) => write!(f, "ended {group}"),
            Self::Score(score) => write!(f, "score {score}"),
            Self::At(server) => write!(f, "at {server}"),
            Self::Failed(number) => write!(f, "failed {number}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(group, token, _) => write!(f, "granted {group} #{token}"),
            Self::Renewed(group, token, _) => write!(f, "renewed {group} #{token}"),
            Self::Recalled(group) => write!(f, "recalled {group}"),
            Self::Lost(group) => write!(f, "lost {group}"),
            Self::Refused(group, objection) => write!(f, "refused {group}: {objection}"),
        }
    }
}

impl fmt::Display for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("leader")
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ask => "ask",
            Self::Expiry => "expiry",
        })
    }
}
