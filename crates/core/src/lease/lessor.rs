//! The leader's side of leases. Every server has one; only the leader's does anything.
//!
//! What it proposes is decided by the log, what it promises by the time at which a majority last confirmed that it leads. All
//! else is soft: who is a candidate, and what was promised to whom. A new leader knows the holders from the log and the
//! candidates as soon as they have asked once.

mod candidates;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{Answer, Candidacy, Claim, Message, Objection, Poll, stretched};
use crate::ledger::groups::{Grant, Group, GroupRank, GroupRules, Groups};
use crate::ledger::{Effect, Entry};
use crate::load::Score;
use crate::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use crate::planted::{Bug, Planted};
use crate::{ServerId, SessionId};

/// No more sessions are known at once.
pub const SESSIONS_MAX: usize = 16 * 1024;
/// Nobody wants more than this, all sessions together.
pub const CANDIDACIES_MAX: usize = 200_000;
/// How many questions to the other servers may be open; older ones are forgotten.
const ASKED_MAX: usize = 16;
/// A lease is cut into so many ticks: so exactly are its ends seen.
const TICKS_PER_LEASE: u64 = 20;
/// For this part of a lease a new leader keeps what follows leadership for whoever is beside it, and may not have asked yet:
/// otherwise it would begin elsewhere, only to be asked back at once.
const KEPT_PARTS: u64 = 4;
/// Whoever was not heard for this many leases is forgotten.
const FORGOTTEN_LEASES: u64 = 10;

/// The lessor of one server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lessor {
    id: ServerId,
    rules: Rules,
    now_us: u64,
    /// Names the last question to the other servers. An answer may come when this server leads again, in a later term, and
    /// must not be taken for one to a later question: so numbers are never used twice.
    last_question: u64,
    leadership: Option<Leadership>,
}

/// What a lessor goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rules {
    /// How long a lease lasts.
    pub lease_us: u64,
    /// A known bug, to see whether the laboratory finds it.
    pub planted: Planted,
}

/// What its owner tells a lessor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// This server leads from now on, and the log says that these are held.
    Lead(Groups),
    /// It does not any more.
    Follow,
    /// The log has said this.
    Applied(Vec<Effect>),
    /// A majority has said that this server led when this was asked.
    Confirmed(u64),
    /// Another server is to lead soon: what is held beside this one must end first; or not, after all.
    Vacate(bool),
}

/// What a lessor tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// This should be in the log.
    Propose(Vec<Entry>),
    /// Ask the other servers whether this one leads, and answer with this number.
    Confirm(u64),
    /// Nothing is held beside this server any more.
    Vacant,
    /// Somebody came with an old token.
    OldToken,
}

/// Time to look at what has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick;

/// What a leader knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Leadership {
    /// When it began.
    since_us: u64,
    /// As the log says.
    held: BTreeMap<String, Group>,
    /// Who wants which group.
    wanted: BTreeMap<String, Wanted>,
    candidacies: usize,
    guests: BTreeMap<SessionId, Guest>,
    /// Before this nobody else may have what they hold.
    promised: BTreeMap<(String, SessionId), u64>,
    /// When the questions were asked that are still open.
    asked: VecDeque<(u64, u64)>,
    /// The last moment at which this server is known to have led.
    confirmed_us: Option<u64>,
    /// Grants on their way into the log, since when.
    entering: BTreeMap<(String, SessionId), u64>,
    /// Releases on their way into the log: those who are about to hold something no more are promised nothing.
    leaving: BTreeSet<(String, SessionId)>,
    /// Is another server to lead soon?
    is_vacating: bool,
    is_ticking: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Wanted {
    rules: GroupRules,
    candidates: BTreeMap<SessionId, Candidacy>,
}

/// Somebody who has asked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Guest {
    seen_us: u64,
    score: Score,
    at: ServerId,
    wants: BTreeSet<String>,
    holds: BTreeMap<String, u64>,
    recalled: BTreeSet<String>,
    refused: BTreeMap<String, Objection>,
    /// Names the newest question that it has asked.
    last_number: u64,
    question: Option<Question>,
    /// Is there something that it was not told?
    has_news: bool,
}

/// A question that is not answered yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Question {
    number: u64,
    /// When it arrived: the candidate has asked it before.
    arrived_us: u64,
    /// Until when the answer may wait.
    due_us: u64,
}

impl Lessor {
    /// The lessor of this server.
    #[must_use]
    pub const fn new(id: ServerId, rules: Rules) -> Self {
        Self { id, rules, now_us: 0, last_question: 0, leadership: None }
    }

    /// Does it lead?
    #[must_use]
    pub const fn is_leading(&self) -> bool {
        self.leadership.is_some()
    }

    /// Who wants this group, the best first, with whatever they are called.
    #[must_use]
    pub fn candidates(&self, group: &str) -> Vec<&str> {
        let Some(leadership) = &self.leadership else { return Vec::new() };
        let Some(wanted) = leadership.wanted.get(group) else { return Vec::new() };
        let sessions: Vec<SessionId> = wanted.candidates.keys().copied().collect();
        let ranked = leadership.ranked(self.id, wanted, sessions);
        ranked.into_iter().map(|session| wanted.candidates[&session].name.as_str()).collect()
    }

    /// Is something held beside this server that follows leadership?
    #[must_use]
    pub fn holds_beside(&self) -> bool {
        self.leadership.as_ref().is_some_and(|leadership| leadership.holds_beside(self.id))
    }

    /// What those who want this group have agreed on.
    #[must_use]
    pub fn rules_of(&self, group: &str) -> Option<GroupRules> {
        Some(self.leadership.as_ref()?.wanted.get(group)?.rules)
    }

    /// The groups that somebody wants.
    pub fn wanted(&self) -> impl Iterator<Item = (&str, GroupRules, usize)> {
        let wanted = self.leadership.iter().flat_map(|leadership| &leadership.wanted);
        wanted.map(|(group, wanted)| (group.as_str(), wanted.rules, wanted.candidates.len()))
    }

    fn tick_us(&self) -> u64 {
        self.rules.lease_us / TICKS_PER_LEASE
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Lead(groups) => self.lead(&groups, out),
            Command::Follow => {
                self.leadership = None;
                out.cancel(Tick);
            }
            Command::Applied(effects) => self.on_applied(effects, out),
            Command::Confirmed(question) => self.on_confirmed(question, out),
            Command::Vacate(is_vacating) => self.on_vacate(is_vacating, out),
        }
    }

    /// Whatever the last leader promised ends within one lease from now.
    fn lead(&mut self, groups: &Groups, out: &mut Outbox<Self>) {
        let mut leadership =
            Leadership { since_us: self.now_us, held: groups.held().clone(), ..Leadership::default() };
        for (name, group) in &leadership.held {
            for (session, holding) in &group.holders {
                let wait_us = stretched(holding.lease_us);
                let is_hasty = self.rules.planted.is(Bug::SuccessorDoesNotWait);
                let until_us = if is_hasty { self.now_us } else { self.now_us + wait_us };
                leadership.promised.insert((name.clone(), *session), until_us);
            }
        }
        let is_needed = !leadership.held.is_empty();
        self.leadership = Some(leadership);
        if is_needed {
            self.start_ticking(out);
        }
    }

    fn start_ticking(&mut self, out: &mut Outbox<Self>) {
        let tick_us = self.tick_us();
        let Some(leadership) = &mut self.leadership else { return };
        if !core::mem::replace(&mut leadership.is_ticking, true) {
            out.set(Tick, Delay { min_us: tick_us, max_us: tick_us });
            self.ask(out);
        }
    }

    /// Asks the other servers whether this one leads.
    fn ask(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        self.last_question += 1;
        leadership.asked.push_back((self.last_question, self.now_us));
        if leadership.asked.len() > ASKED_MAX {
            leadership.asked.pop_front();
        }
        out.notify(Notice::Confirm(self.last_question));
    }

    fn on_tick(&mut self, out: &mut Outbox<Self>) {
        let (tick_us, lease_us) = (self.tick_us(), self.rules.lease_us);
        let Some(leadership) = &mut self.leadership else { return };
        leadership.forget_guests(self.now_us, FORGOTTEN_LEASES * lease_us);
        leadership.is_ticking = !leadership.held.is_empty() || !leadership.guests.is_empty();
        if !leadership.is_ticking {
            return;
        }
        out.set(Tick, Delay { min_us: tick_us, max_us: tick_us });
        leadership.entering.retain(|_, since_us| self.now_us < *since_us + lease_us);
        // Every second tick: a promise is then worth nine tenths of a lease at least.
        if leadership.asked.back().is_none_or(|(_, at_us)| self.now_us >= at_us + 2 * tick_us) {
            self.ask(out);
        }
        self.end_expired(out);
        self.look_at_all(out);
        self.answer_due(out);
    }

    /// Those who were promised nothing for long enough hold their groups no more.
    fn end_expired(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let expired: Vec<_> =
            leadership.promised.iter().filter(|(_, until_us)| **until_us <= self.now_us).collect();
        let expired: Vec<(String, SessionId)> = expired.into_iter().map(|(key, _)| key.clone()).collect();
        let entries = expired.into_iter().filter_map(|key| leadership.release(key)).collect();
        propose(entries, out);
    }

    fn look_at_all(&mut self, out: &mut Outbox<Self>) {
        let Some(leadership) = &self.leadership else { return };
        let groups: Vec<String> = leadership.wanted.keys().cloned().collect();
        groups.iter().for_each(|group| self.look_at(group, out));
    }

    /// Gives a group to the best who want it, if there is room; and, where it follows leadership, asks for it back.
    fn look_at(&mut self, group: &str, out: &mut Outbox<Self>) {
        let (id, now_us, lease_us) = (self.id, self.now_us, self.rules.lease_us);
        let Some(leadership) = &mut self.leadership else { return };
        let Some(wanted) = leadership.wanted.get(group) else { return };
        let rules = wanted.rules;
        let grant = |session: SessionId| {
            let name = wanted.candidates[&session].name.clone();
            Grant { group: group.into(), rules, session, name, lease_us }
        };
        let grants: Vec<Grant> =
            leadership.choose(group, wanted, (id, now_us, lease_us)).into_iter().map(grant).collect();
        for grant in &grants {
            leadership.entering.insert((group.into(), grant.session), now_us);
        }
        if rules.rank == GroupRank::Leader {
            leadership.recall(group, id, now_us, lease_us);
        }
        propose(grants.into_iter().map(Entry::Grant).collect(), out);
        self.answer_due(out);
    }

    fn on_applied(&mut self, effects: Vec<Effect>, out: &mut Outbox<Self>) {
        for effect in effects {
            match effect {
                Effect::Granted { grant, token, since_ms } => self.on_granted(grant, token, since_ms),
                Effect::Released { group, session, token } => self.on_released(&group, session, token, out),
                _ => {}
            }
        }
        self.tell_if_vacant(out);
        self.answer_due(out);
    }

    fn on_granted(&mut self, grant: Grant, token: u64, since_ms: u64) {
        let now_us = self.now_us;
        let Some(leadership) = &mut self.leadership else { return };
        let Grant { group, rules, session, name, lease_us } = grant;
        let place =
            leadership.held.entry(group.clone()).or_insert_with(|| Group { rules, holders: BTreeMap::new() });
        place.holders.insert(session, crate::ledger::Holding { token, name, since_ms, lease_us });
        leadership.entering.remove(&(group.clone(), session));
        // It has been told nothing yet, and gets time to ask.
        leadership.promised.insert((group.clone(), session), now_us + stretched(lease_us));
        if let Some(guest) = leadership.guests.get_mut(&session) {
            guest.holds.insert(group, token);
            guest.has_news = true;
        }
    }

    fn on_released(&mut self, group: &str, session: SessionId, token: u64, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let key = (group.into(), session);
        leadership.leaving.remove(&key);
        if let Some(place) = leadership.held.get_mut(group)
            && place.holders.get(&session).is_some_and(|holding| holding.token == token)
        {
            place.holders.remove(&session);
            leadership.promised.remove(&key);
            if place.holders.is_empty() {
                leadership.held.remove(group);
            }
        }
        if let Some(guest) = leadership.guests.get_mut(&session) {
            guest.holds.remove(group);
            guest.recalled.remove(group);
            guest.has_news = true;
        }
        self.look_at(group, out);
    }

    fn on_confirmed(&mut self, question: u64, out: &mut Outbox<Self>) {
        let Some(leadership) = &mut self.leadership else { return };
        let Some(place) = leadership.asked.iter().position(|(number, _)| *number == question) else { return };
        let asked_us = leadership.asked[place].1;
        leadership.asked.drain(..=place);
        leadership.confirmed_us = leadership.confirmed_us.max(Some(asked_us));
        self.answer_due(out);
    }

    fn on_vacate(&mut self, is_vacating: bool, out: &mut Outbox<Self>) {
        let id = self.id;
        let Some(leadership) = &mut self.leadership else { return };
        leadership.is_vacating = is_vacating;
        let leading = leadership.held.iter().filter(|(_, group)| group.rules.rank == GroupRank::Leader);
        let keys =
            leading.flat_map(|(name, group)| group.holders.keys().map(move |session| (name.clone(), *session)));
        let keys: Vec<(String, SessionId)> = keys.collect();
        for (group, session) in keys {
            let Some(guest) = leadership.guests.get_mut(&session) else { continue };
            let is_news = match is_vacating && guest.at == id {
                true => guest.recalled.insert(group),
                false => guest.recalled.remove(&group),
            };
            guest.has_news |= is_news;
        }
        self.tell_if_vacant(out);
        self.answer_due(out);
        if !is_vacating {
            self.look_at_all(out);
        }
    }

    fn tell_if_vacant(&self, out: &mut Outbox<Self>) {
        let Some(leadership) = &self.leadership else { return };
        if leadership.is_vacating && !leadership.holds_beside(self.id) {
            out.notify(Notice::Vacant);
        }
    }

    fn on_poll(&mut self, from: SessionId, poll: Poll, out: &mut Outbox<Self>) {
        let (now_us, lease_us) = (self.now_us, self.rules.lease_us);
        let Some(leadership) = &mut self.leadership else {
            return out.ignore("a question to one that does not lead");
        };
        // It would say what the candidate wanted once, not what it wants now.
        if leadership.guests.get(&from).is_some_and(|guest| poll.number < guest.last_number) {
            return out.ignore("a question that a newer one has overtaken");
        }
        let is_known = leadership.guests.contains_key(&from);
        if !is_known && (poll.wants.is_none() || leadership.guests.len() >= SESSIONS_MAX) {
            return send(from, unknown(poll.number), out);
        }
        leadership.meet(from, &poll, now_us);
        let mut groups = leadership.candidacies_of(from, poll.wants);
        let old = leadership.old_claims(from, poll.holds.iter().chain(&poll.ended));
        old.iter().for_each(|_| out.notify(Notice::OldToken));
        let ended: Vec<Claim> = poll.ended.into_iter().filter(|claim| leadership.is_held(from, claim)).collect();
        let entries: Vec<Entry> =
            ended.into_iter().filter_map(|claim| leadership.release((claim.group, from))).collect();
        groups.extend(entries.iter().filter_map(|entry| match entry {
            Entry::Release(release) => Some(release.group.clone()),
            _ => None,
        }));
        if let Some(guest) = leadership.guests.get_mut(&from) {
            guest.has_news |= !old.is_empty();
            guest.refused.extend(old.into_iter().map(|group| (group, Objection::OldToken)));
            let due_us = now_us + poll.wait_us.min(lease_us);
            guest.question = Some(Question { number: poll.number, arrived_us: now_us, due_us });
        }
        propose(entries, out);
        self.start_ticking(out);
        groups.iter().for_each(|group| self.look_at(group, out));
        self.answer_due(out);
    }

    /// Answers whoever has news, or has waited long enough, as soon as there is something to promise.
    fn answer_due(&mut self, out: &mut Outbox<Self>) {
        let now_us = self.now_us;
        let Some(leadership) = &mut self.leadership else { return };
        let is_due = |guest: &Guest| guest.question.is_some_and(|asked| guest.has_news || asked.due_us <= now_us);
        let due: Vec<SessionId> =
            leadership.guests.iter().filter(|(_, guest)| is_due(guest)).map(|(session, _)| *session).collect();
        for session in due {
            if let Some(answer) = leadership.answer(session) {
                send(session, answer, out);
            }
        }
    }
}

const fn unknown(number: u64) -> Answer {
    Answer { number, is_known: false, promises: Vec::new(), recalled: Vec::new(), refused: Vec::new() }
}

fn send(to: SessionId, answer: Answer, out: &mut Outbox<Lessor>) {
    out.send(to, Message::Answer(answer));
}

fn propose(entries: Vec<Entry>, out: &mut Outbox<Lessor>) {
    if !entries.is_empty() {
        out.notify(Notice::Propose(entries));
    }
}

impl Machine for Lessor {
    type Peer = SessionId;
    type Message = Message;
    type Command = Command;
    type Timer = Tick;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        self.now_us = self.now_us.max(now.0);
        match input {
            Input::Message { from, message: Message::Poll(poll) } => self.on_poll(from, poll, out),
            Input::Message { .. } => out.ignore("what only lessors say"),
            Input::Timer(Tick) => self.on_tick(out),
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(_) | Input::LinkDown(_) => {}
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lead(_) => f.write_str("lead"),
            Self::Follow => f.write_str("follow"),
            Self::Applied(effects) => write!(f, "applied {}", effects.len()),
            Self::Confirmed(question) => write!(f, "confirmed {question}"),
            Self::Vacate(is_vacating) => f.write_str(if *is_vacating { "vacate" } else { "stay" }),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Propose(entries) => write!(f, "propose {}", entries.len()),
            Self::Confirm(question) => write!(f, "confirm {question}"),
            Self::Vacant => f.write_str("vacant"),
            Self::OldToken => f.write_str("old token"),
        }
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tick")
    }
}
