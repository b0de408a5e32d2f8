//! How a cluster begins: servers that list each other agree on who they are, with which disks, once and for ever.
//!
//! A disk is *empty*, *agreed* or *founded*, and only founded servers vote, answer votes or append. Three rules:
//!
//! 1. An empty server agrees when it has heard all servers of its list, none of them founded, all with the same list. The cluster's
//!    id follows from their disks, so another disk makes another cluster.
//! 2. A server that has agreed is founded when all others of the record have said that they agreed on the same; or when one says
//!    that it is founded, and this disk stands in its record. The latter holds whatever it has agreed on: words under way must
//!    not leave it waiting for ever.
//! 3. A server that has agreed agrees on other disks of the same servers when it hears all of its list at present, and none is
//!    founded. A founded server never changes.
//!
//! Why that is safe: what a cluster has acknowledged is on a majority of its disks, and all of these are founded. Unless most of
//! them are lost, one remains; another cluster of the same servers needs the word of each, and a founded one does not give it.
//! One phase would not be enough. Rule 3 stops at other *servers*: with those, the word of each would come from other disks than
//! those that may have been founded meanwhile.
//!
//! Directories of a release before foundings bring *old data*. There a majority is enough that remembers the same disks for the
//! whole list: it shares a server with every other majority, and what a disk remembers does not change.
//!
//! What is not here: certificates and hellos, which carry the claims; and who votes later, which is in the log.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use core::fmt;

use crate::ServerId;
use crate::machine::{Input, Machine, Moment, Never, Outbox, Token};
use crate::planted::Bug;

mod obstacles;
mod reason;
#[cfg(test)]
mod tests;
mod words;

pub use reason::{Absence, Need, Reason, Remedy};
pub use words::{Claim, ClusterId, Digest, Disks, Phase, Record, Rules, SERVERS_MAX, StoreId};

/// So many servers that are not on the list may be heard; beyond that they are ignored.
const OUTSIDERS_MAX: usize = 16;

/// One server during its founding.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Founding {
    id: ServerId,
    rules: Arc<Rules>,
    addresses: Arc<BTreeMap<ServerId, String>>,
    /// What it may say of itself: what is durable.
    said: Claim,
    /// The phase that is on its way to the disk.
    writing: Option<(Token, Phase)>,
    writes: u64,
    links: BTreeSet<ServerId>,
    /// What peers have said to this process last.
    heard: BTreeMap<ServerId, Heard>,
    absences: BTreeMap<ServerId, Absence>,
    told: Option<Reason>,
}

/// A server as it is configured, with its disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Server {
    /// Its number.
    pub id: ServerId,
    /// Its disk.
    pub store: StoreId,
    /// The servers that its configuration names, with itself, and where they are.
    pub list: BTreeMap<ServerId, String>,
    /// For a disk with data of a release before foundings: the disks of the peers that it has met.
    pub remembers: Option<Disks>,
}

/// What a peer has said.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Heard {
    claim: Claim,
    /// It came on the link that is there now.
    is_present: bool,
}

/// What its owner tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// The process begins.
    Start,
    /// it founds a cluster by itself: an administrator says so, or its list has no other server and is on loopback.
    Alone,
    /// A peer could not be reached.
    Absent(ServerId, Absence),
}

/// What it tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// The disk belongs to this cluster: the server may vote from now on.
    Founded(Record),
    /// It waits for this; said once until it changes.
    Waiting(Reason),
}

impl Founding {
    /// A server as it starts, with what is on its disk.
    ///
    /// # Panics
    /// If it is not on its own list.
    #[must_use]
    pub fn new(server: Server, phase: Phase, rules: Arc<Rules>) -> Self {
        let Server { id, store, list, remembers } = server;
        assert!(list.contains_key(&id), "server {id} must be on its own list");
        let said = Claim { phase, list: list.keys().copied().collect(), store, remembers };
        Self {
            id,
            rules,
            addresses: Arc::new(list),
            said,
            writing: None,
            writes: 0,
            links: BTreeSet::new(),
            heard: BTreeMap::new(),
            absences: BTreeMap::new(),
            told: None,
        }
    }

    /// What a hello says now: nothing that is not durable.
    #[must_use]
    pub const fn claim(&self) -> &Claim {
        &self.said
    }

    /// How far its disk has come.
    #[must_use]
    pub const fn phase(&self) -> &Phase {
        &self.said.phase
    }

    /// Why it is not founded yet; `None` if it is.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match &self.said.phase {
            Phase::Founded(_) => None,
            Phase::Agreed(record) => self.find_obstacle().or_else(|| self.find_unconfirmed(record)),
            Phase::Empty => self.find_obstacle().or_else(|| self.find_unheard()),
        }
    }

    fn on_command(&mut self, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Start => {
                if let Some(record) = self.said.phase.founded() {
                    out.notify(Notice::Founded(record.clone()));
                }
            }
            Command::Alone => self.on_alone(out),
            Command::Absent(peer, absence) if !self.links.contains(&peer) => {
                self.absences.insert(peer, absence);
            }
            Command::Absent(..) => out.ignore("an absence of a peer that is here"),
        }
    }

    /// Only a disk that has promised nothing may do so: with the word of one that has agreed, others may have founded.
    fn on_alone(&mut self, out: &mut Outbox<Self>) {
        let is_free = match self.said.phase {
            Phase::Empty => true,
            Phase::Agreed(_) => self.rules.planted.is(Bug::AgreesAgainUnheard),
            Phase::Founded(_) => false,
        };
        if !is_free || self.writing.is_some() || self.said.remembers.is_some() {
            return out.ignore("alone: this disk is not free");
        }
        if self.find_founded().is_some() {
            return out.ignore("alone: a peer is founded");
        }
        let record = self.rules.record([(self.id, self.said.store)].into());
        self.write(Phase::Founded(record), out);
    }

    fn on_link_up(&mut self, peer: ServerId, out: &mut Outbox<Self>) {
        self.links.insert(peer);
        self.absences.remove(&peer);
        out.send(peer, self.said.clone());
        if let Some((token, phase)) = &self.writing {
            out.send_after(*token, peer, Claim { phase: phase.clone(), ..self.said.clone() });
        }
    }

    fn on_link_down(&mut self, peer: ServerId) {
        self.links.remove(&peer);
        let is_listed = self.said.list.contains(&peer);
        if let Some(heard) = self.heard.get_mut(&peer) {
            heard.is_present = false;
            // What the founded say stays true; other servers that are not on the list matter only while they are here.
            if !is_listed && heard.claim.phase.founded().is_none() {
                self.heard.remove(&peer);
            }
        }
    }

    fn on_claim(&mut self, from: ServerId, claim: Claim, out: &mut Outbox<Self>) {
        let outsiders = || self.heard.keys().filter(|id| !self.said.list.contains(id)).count();
        let is_known = self.said.list.contains(&from) || self.heard.contains_key(&from);
        if from == self.id || !claim.is_short() {
            return out.ignore("a claim that cannot be");
        }
        if !is_known && outsiders() >= OUTSIDERS_MAX {
            return out.ignore("too many servers that are not on the list");
        }
        let is_present = self.links.contains(&from);
        if !is_present && !self.said.list.contains(&from) && claim.phase.founded().is_none() {
            return out.ignore("a server that is not on the list, and gone");
        }
        self.heard.insert(from, Heard { claim, is_present });
    }

    fn on_persisted(&mut self, token: Token, out: &mut Outbox<Self>) {
        let Some((_, phase)) = self.writing.take_if(|(writing, _)| *writing == token) else {
            return out.ignore("a write of another process");
        };
        if let Phase::Founded(record) = &phase {
            self.heard.clear();
            if !self.rules.planted.is(Bug::FoundingSaidBeforeDurable) {
                out.notify(Notice::Founded(record.clone()));
            }
        }
        self.said.phase = phase;
    }

    /// One step at a time: nothing is decided while a write is under way.
    fn go_on(&mut self, out: &mut Outbox<Self>) {
        if self.writing.is_some() || self.said.phase.founded().is_some() {
            return;
        }
        match self.find_next() {
            Some(next) => self.write(next, out),
            None => self.tell(out),
        }
    }

    /// A peer that is dialled next is not worth a word.
    fn tell(&mut self, out: &mut Outbox<Self>) {
        let reason = self.reason().filter(|reason| !reason.is_passing());
        if let Some(reason) = reason.filter(|reason| self.told.as_ref() != Some(reason)) {
            self.told = Some(reason.clone());
            out.notify(Notice::Waiting(reason));
        }
    }

    fn write(&mut self, phase: Phase, out: &mut Outbox<Self>) {
        self.writes += 1;
        let token = Token(self.writes);
        let claim = Claim { phase: phase.clone(), ..self.said.clone() };
        out.persist(token, vec![phase.clone()]);
        let is_hasty = self.rules.planted.is(Bug::FoundingSaidBeforeDurable);
        for peer in &self.links {
            // The record must reach the disk first: others found with this word, and a server that forgets it could found anew.
            match is_hasty {
                false => out.send_after(token, *peer, claim.clone()),
                true => out.send(*peer, claim.clone()),
            }
        }
        if let (true, Phase::Founded(record)) = (is_hasty, &phase) {
            out.notify(Notice::Founded(record.clone()));
        }
        (self.writing, self.told) = (Some((token, phase)), None);
    }

    /// Rules 2, 1 and 3.
    fn find_next(&self) -> Option<Phase> {
        if let Some(record) = self.find_invitation().or_else(|| self.find_confirmed()) {
            return Some(Phase::Founded(record.clone()));
        }
        let record = self.find_proposal()?;
        if self.rules.planted.is(Bug::OnePhaseFounding) {
            return Some(Phase::Founded(record));
        }
        self.may_agree(&record).then_some(Phase::Agreed(record))
    }

    /// A founded cluster in which this disk stands. An empty disk that stands in one has been put back from a copy, or has old
    /// data; only the latter may go on.
    fn find_invitation(&self) -> Option<&Record> {
        let is_bound = self.said.phase.agreed().is_some() || self.said.remembers.is_some();
        if !is_bound && !self.rules.planted.is(Bug::OnePhaseFounding) {
            return None;
        }
        let founded = self.heard.values().filter_map(|heard| heard.claim.phase.founded());
        founded.into_iter().find(|record| record.names(self.id, self.said.store))
    }

    /// The record that this disk and enough others have agreed on.
    fn find_confirmed(&self) -> Option<&Record> {
        let record = self.said.phase.agreed()?;
        let members = record.members.len();
        let needed = if self.said.remembers.is_some() { members / 2 + 1 } else { members };
        let confirmed = record.members.keys().filter(|id| self.is_confirmed_by(**id, record)).count();
        (confirmed >= needed).then_some(record)
    }

    fn is_confirmed_by(&self, id: ServerId, record: &Record) -> bool {
        let says_so = |heard: &Heard| {
            record.names(id, heard.claim.store) && heard.claim.phase.agreed().is_some_and(|agreed| agreed == record)
        };
        id == self.id || self.heard.get(&id).is_some_and(says_so)
    }

    /// What the servers of the list would found, as far as this one knows; `None` if it does not, or if they must not.
    fn find_proposal(&self) -> Option<Record> {
        if self.find_founded().is_some() || self.find_other_list().is_some() {
            return None;
        }
        let members = match &self.said.remembers {
            None => self.find_present_disks()?,
            Some(_) => self.find_remembered_disks()?,
        };
        Some(self.rules.record(members))
    }

    /// The disks of the list as all of them were heard, none with old data. One server alone has to be told so.
    fn find_present_disks(&self) -> Option<Disks> {
        let disk = |id: ServerId| match self.heard.get(&id) {
            _ if id == self.id => Some(self.said.store),
            Some(heard) if heard.claim.remembers.is_none() => Some(heard.claim.store),
            _ => None,
        };
        if self.said.list.len() == 1 {
            return None;
        }
        self.said.list.iter().map(|id| Some((*id, disk(*id)?))).collect()
    }

    /// The disks of the list as this one remembers them, if a majority remembers the same.
    fn find_remembered_disks(&self) -> Option<Disks> {
        let list = &self.said.list;
        let view = self.said.view(self.id, list)?;
        let views = list.iter().filter_map(|id| Some((id, self.heard.get(id)?)));
        let same = views.filter(|(id, heard)| heard.claim.view(**id, list).as_ref() == Some(&view)).count();
        (1 + same > list.len() / 2).then_some(view)
    }

    fn may_agree(&self, record: &Record) -> bool {
        let Some(agreed) = self.said.phase.agreed() else { return true };
        let are_the_same = agreed.members.keys().eq(record.members.keys());
        let is_safe = are_the_same && self.find_unheard_anew().is_none();
        agreed != record && (is_safe || self.rules.planted.is(Bug::AgreesAgainUnheard))
    }
}

impl Machine for Founding {
    type Peer = ServerId;
    type Message = Claim;
    type Command = Command;
    type Timer = Never;
    type Record = Phase;
    type Token = Token;
    type Barrier = Token;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message } if self.said.phase.founded().is_none() => {
                self.on_claim(from, message, out);
            }
            // A founded server has nothing to learn from claims: its members are in the log.
            Input::Message { .. } => {}
            Input::Command(command) => self.on_command(command, out),
            Input::LinkUp(peer) => self.on_link_up(peer, out),
            Input::LinkDown(peer) => self.on_link_down(peer),
            Input::Persisted(token) => self.on_persisted(token, out),
            Input::Timer(never) => match never {},
        }
        self.go_on(out);
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Alone => f.write_str("alone"),
            Self::Absent(peer, absence) => write!(f, "server {peer} {absence}"),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Founded(record) => write!(f, "founded {}", record.cluster),
            Self::Waiting(reason) => write!(f, "say \"{reason}\""),
        }
    }
}
