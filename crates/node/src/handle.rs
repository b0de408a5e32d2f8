//! How others on the same host talk to a running server: what it looks like, what can be asked of it, and why it cannot
//! always do that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_core::load::{Load, Score, Usage};
use primus_core::machine::Input;
use primus_replica::Role;
use primus_server::control::{Outlook, Reason};
use primus_server::groups;
use primus_server::peers::{State, Why};
use primus_server::record;
use primus_server::register::{Change, Proposal};
use primus_server::transfer::Obstacle;
use tokio::sync::{oneshot, watch};

use crate::budget::{Budget, Weight};
use crate::credentials::Live;
use crate::elections::{Elected, ElectedGroups, Elections};
use crate::events::History;
use crate::farm::FarmHandle;
use crate::fleet::Shown;
use crate::heard::Heard;
use crate::link_faults::LinkFaults;
use crate::meters::Meters;
use crate::questions::Asker;
use crate::reads::Read;
use crate::request_links::RequestLinks;
use crate::requests::Requests;
use crate::steps::Steps;

/// How many bytes of writes of clients may be under way.
pub(crate) const UNWRITTEN_LEN_MAX: u32 = 64 << 20;
/// What each takes beside its content.
const WRITE_LEN: usize = 256;

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, Unable>>;

/// What a server looks like from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// This server.
    pub id: ServerId,
    /// What it is.
    pub role: Role,
    /// Who leads, as far as it knows.
    pub leader: Option<ServerId>,
    /// In which term.
    pub term: Term,
    /// Since when.
    pub since: SystemTime,
    /// Why.
    pub reason: Reason,
    /// How far the log is applied here.
    pub applied: u64,
    /// How far it reaches.
    pub last: u64,
    /// Its own load.
    pub load: Load,
    /// Who can be written to, and, at the leader, how far each is behind.
    pub peers: BTreeMap<ServerId, PeerView>,
    /// Who gave way, each with the leader that it gave way to.
    pub gave_way: BTreeMap<ServerId, ServerId>,
    /// How often somebody was suspected.
    pub suspicions: u64,
    /// T as it is now: how long the leader may be silent.
    pub silence_us: u64,
    /// The longest turn of the loop.
    pub longest_turn: Duration,
}

impl View {
    /// How long a message to the slowest peer and back takes, as far as that is known.
    #[must_use]
    pub fn slowest_round_trip(&self) -> Duration {
        let slowest_us = self.peers.values().filter_map(|peer| peer.round_trip_us).max();
        Duration::from_micros(slowest_us.unwrap_or(0))
    }

    /// Who leads.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        let Self { id, leader, term, reason, .. } = *self;
        Leadership { leader, term, reason, is_me: leader == Some(id) }
    }
}

/// A peer as a server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerView {
    /// How it is.
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// Why it is not up.
    pub why: Option<Why>,
    /// Can it be written to?
    pub is_up: bool,
    /// How much of the log it has, if this server leads.
    pub matched: Option<u64>,
    /// Its load, as last heard.
    pub load: Option<Load>,
    /// How long a message there and back takes, as measured.
    pub round_trip_us: Option<u64>,
    /// By how much what it says is delayed on purpose.
    pub delay: Option<Duration>,
}

impl Default for PeerView {
    fn default() -> Self {
        let (state, since, why) = (State::Unknown, SystemTime::now(), Some(Why::NotHeard));
        Self { state, since, why, is_up: false, matched: None, load: None, round_trip_us: None, delay: None }
    }
}

/// What came of an election that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    /// What happened.
    pub outcome: Outcome,
    /// Who leads.
    pub leader: ServerId,
    /// In which term.
    pub term: Term,
    /// Who led before, if anybody did.
    pub previous: Option<ServerId>,
    /// The server that was asked for it.
    pub asked: ServerId,
    /// The server that held it.
    pub held_by: ServerId,
    /// How loaded everybody is, as far as the latter knows.
    pub scores: Vec<(ServerId, Score)>,
}

/// What can come of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The leader won.
    Confirmed,
    /// Another server won, and leads now.
    Transferred,
    /// No server led, and one does now.
    Elected,
}

impl Outcome {
    /// Its name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed",
            Self::Transferred => "transferred",
            Self::Elected => "elected",
        }
    }
}

/// What can be asked of a server.
#[derive(Debug)]
pub enum Request {
    /// Append these proposals; the answer tells where the last one is. See [`Handle::change`].
    Propose(Proposals, Reply<u64>),
    /// Say how far the farm must have applied the log to know of everything that was acknowledged before; and that this
    /// server leads.
    Confirm(Read),
    /// Let another server lead: that one, or the best. The answer comes when somebody does.
    Transfer(Option<ServerId>, Reason, Reply<()>),
    /// Say what would change that this server leads.
    Outlook(Reply<Outlook>),
    /// Let another server lead, because this process is about to end. The answer comes when somebody does.
    Leave(Reply<()>),
    /// Hold an election, for which that server was asked.
    Elect(ServerId, Reply<Election>),
    /// Cut these links, and no others.
    Cut(LinkFaults),
    /// Delay what these peers say by this much; with nothing, not any more.
    Delay(BTreeMap<ServerId, Duration>),
    /// The load has been measured.
    Load(Usage),
    /// Whatever is measured, this is the load; with nothing, what is measured counts again.
    OverrideLoad(Option<Score>),
}

impl Request {
    /// Tells who waits for the answer, if somebody does, why there is none.
    pub(crate) fn refuse(self, unable: Unable) {
        // Whoever asked may have gone away.
        match self {
            Self::Propose(_, reply) => _ = reply.send(Err(unable)),
            Self::Confirm(read) => read.answer(Err(unable)),
            Self::Transfer(_, _, reply) | Self::Leave(reply) => _ = reply.send(Err(unable)),
            Self::Outlook(reply) => _ = reply.send(Err(unable)),
            Self::Elect(_, reply) => _ = reply.send(Err(unable)),
            Self::Cut(_) | Self::Delay(_) | Self::Load(_) | Self::OverrideLoad(_) => {}
        }
    }

    /// For those who measure what takes how long.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Propose(..) => "a write",
            Self::Confirm(_) => "a read",
            Self::Transfer(..) | Self::Leave(_) => "a transfer",
            Self::Elect(..) => "an election",
            Self::Outlook(_) => "a question",
            Self::Cut(_) | Self::Delay(_) => "links that are cut or slow on purpose",
            Self::Load(_) | Self::OverrideLoad(_) => "a load",
        }
    }
}

/// Changes of the register, as the log takes them. All of them are taken or none.
#[derive(Debug)]
pub struct Proposals {
    /// The number of the last.
    pub(crate) number: u64,
    pub(crate) entries: Vec<Bytes>,
    /// Between two leaders, may they wait here for the next one?
    pub(crate) may_wait: bool,
    /// Do they bring new content?
    pub(crate) grows: bool,
    pub(crate) weight: Weight,
}

/// Who leads, as far as a server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// Who leads; nobody between two leaders.
    pub leader: Option<ServerId>,
    /// In which term.
    pub term: Term,
    /// Why it changed.
    pub reason: Reason,
    /// Does this server itself lead?
    pub is_me: bool,
}

/// Why a request could not be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum Unable {
    /// Another server leads.
    #[error("server {0} leads, not this one")]
    NotLeading(ServerId),
    /// Nobody leads.
    #[error("no server leads at the moment")]
    NoLeader,
    /// There is no room on the leader's disk.
    #[error("the leader's disk is full")]
    DiskFull,
    /// There is no room on the disks of so many servers that a majority cannot write.
    #[error("the disks of too many servers are full: a majority must be able to write")]
    DisksFull,
    /// Too much is under way.
    #[error("the leader is busy")]
    Busy,
    /// Leadership was lost while the request was under way.
    #[error("leadership was lost; whether the write took place is unknown")]
    Unknown,
    /// Nobody took over.
    #[error("{0}; the leader stays")]
    NotTransferred(Obstacle),
    /// It does not fit into the log.
    #[error("this is more than one batch of the log can hold")]
    TooLong,
    /// The worker that has it is not here.
    #[error("that worker is not here, or does not answer")]
    NoWorker,
    /// There may be no more content than so many bytes.
    #[error("the farm may hold {0} bytes of keys, jobs and results, and does")]
    StateFull(u64),
}

/// A way to talk to a running server.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(crate) requests: Requests,
    /// The process, and how many proposals it has made.
    pub(crate) origin: u64,
    pub(crate) numbers: Arc<AtomicU64>,
    /// What may be under way of them.
    pub(crate) unwritten: Budget,
    /// What the server looks like; changes are announced.
    pub view: watch::Receiver<View>,
    pub(crate) leadership: watch::Receiver<Leadership>,
    /// How whoever leads is asked.
    pub(crate) asker: Arc<Asker>,
    /// What has happened.
    pub history: Arc<History>,
    /// The steps of the last elections.
    pub steps: Arc<Steps>,
    /// What is counted.
    pub meters: Arc<Meters>,
    /// Its tasks.
    pub farm: FarmHandle,
    /// Who leads further groups, as far as this server knows; changes are announced.
    pub elected: watch::Receiver<ElectedGroups>,
    /// When each peer was last heard.
    pub heard: Arc<Heard>,
    pub(crate) elections: Elections,
    /// What proves who this server is; nothing if links are plain.
    pub(crate) live: Option<Arc<Live>>,
    /// What the others have shown of themselves.
    pub(crate) shown: Arc<Shown>,
}

impl Handle {
    /// Asks for something. False if it was not taken: too much waits already, and who waits for an answer hears that; or the
    /// server has ended and answers nothing any more.
    pub fn ask(&self, request: Request) -> bool {
        self.requests.ask(request)
    }

    /// The load has been measured. If too much waits, it counts when it is measured the next time. False once the server has
    /// ended.
    pub fn measured(&self, usage: Usage) -> bool {
        self.requests.ask(Request::Load(usage)) || !self.requests.are_over()
    }

    /// Has a group elect that needs no quorum. False if this server is not a member of it.
    #[must_use]
    pub fn elect_in_group(&self, group: &str) -> bool {
        let is_member = |elected: &Elected| elected.members.contains(&self.view.borrow().id);
        let may = self.elected.borrow().get(group).is_some_and(is_member);
        if may {
            self.elections.tell(Input::Command(groups::Command::Elect(group.to_owned())));
        }
        may
    }

    /// How it asks other servers, and is asked by them.
    #[must_use]
    pub fn request_links(&self) -> Arc<RequestLinks> {
        Arc::clone(&self.asker.links)
    }

    /// Changes the register: each of these lists is one entry of the log, and takes place at once. The answer comes when
    /// the last is acknowledged, or at once if too much is under way. The entries are made here, by the caller's thread, and not by the loop. Between two leaders
    /// they wait for the next one, for a moment, if they may.
    pub fn change<'a>(
        &self,
        lists: impl IntoIterator<Item = Vec<Change<'a>>>,
        may_wait: bool,
        reply: Reply<u64>,
    ) -> bool {
        let (mut number, mut grows) = (0, false);
        let entry = |changes: Vec<Change<'a>>| {
            grows |= changes.iter().any(|change| matches!(change, Change::Put(..)));
            number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
            record::of_register(&Proposal { origin: self.origin, number, changes })
        };
        let entries: Vec<Bytes> = lists.into_iter().map(entry).collect();
        let Some(weight) = self.unwritten.take(WRITE_LEN + entries.iter().map(Bytes::len).sum::<usize>()) else {
            return reply.send(Err(Unable::Busy)).is_ok();
        };
        self.ask(Request::Propose(Proposals { number, entries, may_wait, grows, weight }, reply))
    }
}
