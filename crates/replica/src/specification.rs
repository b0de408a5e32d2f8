//! What replicas may do: the rules of Raft, as a judge that watches a group.
//!
//! It is told everything that can be seen from outside: each step with what caused it and what followed, each write that
//! became durable, each message that left, crashes and restarts. From that it says whether each was allowed. It neither acts
//! nor predicts: where Raft leaves a choice, every choice is allowed. The engine and the model are judged by the same rules,
//! so what an exploration shows of the model, the tests of the engine show to be a fair picture.
//!
//! Rules about one replica compare what it was before a step with what it is afterwards. Rules about the group use what no
//! single replica knows: whose vote left for whom, what is on which disk, who led in which term, what was ever committed.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::ServerId;
use primus_core::machine::Input;
use raft::Storage;

use crate::consensus::Consensus;
use crate::log::Log;
use crate::message::{Entry, Kind, Message, Record};
use crate::model::ModelReplica;
use crate::replica::{Command, Replica, Role};

/// Judges a group of replicas.
#[derive(Debug, Clone)]
pub struct Specification {
    voters: Vec<ServerId>,
    now: BTreeMap<ServerId, View>,
    disks: BTreeMap<ServerId, Log>,
    /// Whose vote left for whom, by term: what a disk forgets before that was never a vote.
    votes: BTreeMap<(u64, ServerId), ServerId>,
    /// Which votes have arrived: term, voter, candidate.
    heard: BTreeSet<(u64, ServerId, ServerId)>,
    leaders: BTreeMap<u64, ServerId>,
    committed: BTreeMap<u64, Entry>,
}

/// What can be seen of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// Follower, candidate or leader.
    pub role: Role,
    /// Whom it takes for the leader.
    pub leader: Option<ServerId>,
    /// The newest term that it knows.
    pub term: u64,
    /// Whom it voted for in that term.
    pub vote: Option<ServerId>,
    /// How far it knows the log to be committed.
    pub commit: u64,
    /// What the entries follow: an index and its term.
    pub base: (u64, u64),
    /// The entries that it keeps.
    pub entries: Vec<Entry>,
}

/// A replica that can be judged.
pub trait Observable: Consensus {
    /// What can be seen of it.
    fn observe(&self) -> View;
}

/// Something that happened to a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It took a step, and is this afterwards.
    Step(Cause, View),
    /// These records are on its disk.
    Durable(Vec<Record>),
    /// A message left.
    Left(ServerId, Message),
    /// It started again, and is this.
    Restart(View),
}

/// What caused a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// A peer's message.
    Message(ServerId, Message),
    /// The owner.
    Command(Command),
    /// The clock.
    Tick,
    /// The disk.
    Persisted,
    /// A link.
    Link,
}

/// A rule that was broken, in words.
pub type Broken = &'static str;

type Verdict = Result<(), Broken>;

impl Specification {
    /// Replicas that have just begun.
    #[must_use]
    pub fn new(voters: Vec<ServerId>) -> Self {
        let ids: Vec<u64> = voters.iter().map(|voter| voter.0).collect();
        Self {
            now: voters.iter().map(|voter| (*voter, View::default())).collect(),
            disks: voters.iter().map(|voter| (*voter, Log::new(ids.clone(), []))).collect(),
            voters,
            votes: BTreeMap::new(),
            heard: BTreeSet::new(),
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
        }
    }

    /// Judges what happened to a replica, and takes note of it.
    ///
    /// # Errors
    /// If a rule was broken.
    pub fn allow(&mut self, id: ServerId, event: &Event) -> Verdict {
        match event {
            Event::Step(cause, after) => {
                self.hear(id, cause);
                let before = self.now.get(&id).ok_or("only voters take part")?;
                allows(id, before, cause, after)?;
                self.allows_campaign(id, before, cause, after)?;
                self.allows_lead(id, before, after)?;
                self.allows_commit(before, after)?;
                self.note(id, after);
            }
            Event::Durable(records) => {
                let disk = self.disks.get_mut(&id).ok_or("only voters take part")?;
                records.iter().for_each(|record| disk.apply(record.clone()));
            }
            Event::Left(to, message) => self.allows_message(id, *to, message)?,
            Event::Restart(after) => {
                self.allows_restart(id, after)?;
                self.now.insert(id, after.clone());
            }
        }
        Ok(())
    }

    fn hear(&mut self, id: ServerId, cause: &Cause) {
        if let Cause::Message(from, Message { kind: Kind::RequestVoteResponse, reject: false, term, .. }) = cause {
            self.heard.insert((*term, *from, id));
        }
    }

    fn note(&mut self, id: ServerId, after: &View) {
        if after.role == Role::Leader {
            self.leaders.insert(after.term, id);
        }
        let known = after.entries.iter().filter(|entry| entry.index <= after.commit);
        known.for_each(|entry| _ = self.committed.entry(entry.index).or_insert_with(|| entry.clone()));
        self.now.insert(id, after.clone());
    }

    fn is_majority(&self, has: impl Fn(ServerId) -> bool) -> bool {
        self.voters.iter().filter(|voter| has(**voter)).count() > self.voters.len() / 2
    }

    /// A term of one's own needs a promise of others that it can be won, or the leader's order.
    fn allows_campaign(&self, id: ServerId, before: &View, cause: &Cause, after: &View) -> Verdict {
        if after.term == before.term || after.vote != Some(id) {
            return Ok(());
        }
        match cause {
            // A late answer counts as well: pre-votes save terms, and nothing else hangs on them.
            Cause::Message(_, Message { kind: Kind::RequestPreVoteResponse, reject: false, .. }) => {
                check(before.role == Role::Candidate, "a pre-vote for one that did not ask")
            }
            Cause::Message(from, Message { kind: Kind::TimeoutNow, term, .. }) => {
                let is_leader = before.leader == Some(*from) && self.leaders.get(term) == Some(from);
                check(is_leader && *term == before.term, "only the leader may order a campaign")
            }
            _ => check(self.voters.len() == 1, "nobody campaigns without a pre-vote"),
        }
    }

    /// A majority's votes left and arrived, one's own is durable, nobody else leads this term, and nothing committed is missing.
    fn allows_lead(&self, id: ServerId, before: &View, after: &View) -> Verdict {
        if after.role != Role::Leader {
            return Ok(());
        }
        check(self.leaders.get(&after.term).is_none_or(|leader| *leader == id), "two leaders in one term")?;
        if before.role == Role::Leader && before.term == after.term {
            return Ok(());
        }
        let state = self.disks[&id].hard_state();
        let own = self.voters.len() == 1 || (state.term, state.vote) == (after.term, id.0);
        let is_given = |voter| self.votes.get(&(after.term, voter)) == Some(&id);
        let has_vote =
            |voter| voter == id && own || is_given(voter) && self.heard.contains(&(after.term, voter, id));
        check(self.is_majority(has_vote), "a leader without a majority's durable votes")?;
        let missing = self.committed.values().find(|entry| !after.has(entry.index, entry.term));
        check(missing.is_none(), "a leader without a committed entry")
    }

    /// What is committed once is committed for ever; and a leader commits by counting disks, in its own term only.
    fn allows_commit(&self, before: &View, after: &View) -> Verdict {
        let mut known = after.entries.iter().filter(|entry| entry.index <= after.commit);
        let agrees = known.all(|entry| self.committed.get(&entry.index).is_none_or(|first| first == entry));
        check(agrees, "two entries are committed at one place")?;
        if after.role != Role::Leader || after.commit == before.commit {
            return Ok(());
        }
        check(after.term_at(after.commit) == Some(after.term), "an older term's entry is committed by counting")?;
        let has = |voter| self.disks[&voter].term(after.commit) == Ok(after.term);
        check(self.is_majority(has), "a commit without a majority's disks")
    }

    fn allows_message(&mut self, id: ServerId, to: ServerId, message: &Message) -> Verdict {
        let (now, disk) = (&self.now[&id], &self.disks[&id]);
        let state = disk.hard_state();
        let has_voted_for =
            |whom: ServerId| state.term > message.term || (state.term, state.vote) == (message.term, whom.0);
        match message.kind {
            // Its own vote counts only once it is durable. But a candidate that forgot entries after it asked, and stands
            // again in the same term, would be elected with votes for the longer log.
            Kind::RequestVote => {
                let is_durable = disk.last() == message.index && disk.term(message.index) == Ok(message.log_term);
                check(is_durable, "a candidate that asks with a log that is not durable")
            }
            Kind::RequestVoteResponse if !message.reject => {
                let first = *self.votes.entry((message.term, id)).or_insert(to);
                check(first == to, "two votes in one term")?;
                check(has_voted_for(to), "a vote that is not durable")
            }
            Kind::AppendResponse if !message.reject => {
                check(disk.last() >= message.index, "an acknowledgement of what is not durable")
            }
            // It may overtake acknowledgements, because it says nothing about the log.
            Kind::HeartbeatResponse => {
                check(state.term >= message.term, "a sign of life in a term that is not durable")
            }
            Kind::Append => {
                let leads = self.leaders.get(&message.term) == Some(&id);
                check(leads, "an append of one that does not lead")?;
                let is_own = |entry: &Entry| now.term != message.term || now.has(entry.index, entry.term);
                check(message.entries.iter().all(is_own), "an append of what the leader does not have")
            }
            Kind::TimeoutNow => {
                let has = |entry: &Entry| self.disks[&to].term(entry.index).unwrap_or(entry.term) == entry.term;
                let is_ready = now.entries.iter().all(has) && self.disks[&to].last() >= now.last();
                check(now.role == Role::Leader && now.term == message.term, "an order of one that does not lead")?;
                check(is_ready, "an order to one that does not have everything")
            }
            _ => Ok(()),
        }
    }

    /// Whoever comes back knows what is on its disk, and nothing else.
    fn allows_restart(&self, id: ServerId, after: &View) -> Verdict {
        let disk = &self.disks[&id];
        let state = disk.hard_state();
        let same = (after.term, after.vote) == (state.term, some(state.vote)) && after.commit <= state.commit;
        check(
            same && disk.entries().eq(after.entries.iter().cloned()),
            "a restart with more or less than the disk",
        )?;
        check(after.role == Role::Follower && after.leader.is_none(), "whoever comes back follows nobody yet")
    }
}

/// May this replica, by itself, become this?
fn allows(id: ServerId, before: &View, cause: &Cause, after: &View) -> Verdict {
    allows_term(id, before, cause, after)?;
    allows_vote(id, before, cause, after)?;
    allows_role(id, before, cause, after)?;
    allows_log(before, cause, after)?;
    allows_commit(before, cause, after)
}

/// A term never goes back, and a new one comes from a message or a campaign.
fn allows_term(id: ServerId, before: &View, cause: &Cause, after: &View) -> Verdict {
    check(after.term >= before.term, "a term goes back")?;
    let is_told = matches!(cause, Cause::Message(_, message)
        if message.term == after.term && message.kind != Kind::RequestPreVote);
    let is_campaign = after.term == before.term + 1 && after.vote == Some(id);
    check(after.term == before.term || is_told || is_campaign, "a term that nobody named")
}

/// One vote in a term, for oneself or for one that asks and knows at least as much.
fn allows_vote(id: ServerId, before: &View, cause: &Cause, after: &View) -> Verdict {
    let earlier = before.vote.filter(|_| before.term == after.term);
    if earlier == after.vote {
        return Ok(());
    }
    check(earlier.is_none(), "a vote is changed within a term")?;
    match cause {
        _ if after.vote == Some(id) => check(after.term > before.term, "a campaign in a term that has begun"),
        Cause::Message(from, Message { kind: Kind::RequestVote, term, log_term, index, .. }) => {
            check(after.vote == Some(*from) && *term == after.term, "a vote for one that did not ask")?;
            check((*log_term, *index) >= before.freshness(), "a vote for one that knows less")
        }
        _ => Err("a vote that nobody asked for"),
    }
}

/// Only a vote makes a leader; and whom a replica follows is whoever spoke as the leader of its term.
fn allows_role(id: ServerId, before: &View, cause: &Cause, after: &View) -> Verdict {
    let is_same_term = before.term == after.term;
    if after.role == Role::Leader && !(before.role == Role::Leader && is_same_term) {
        let is_voted = matches!(cause, Cause::Message(_, Message { kind: Kind::RequestVoteResponse, reject: false, term, .. })
            if *term == after.term);
        let is_alone =
            matches!(cause, Cause::Command(Command::Campaign) | Cause::Tick) && before.term + 1 == after.term;
        // Votes that came early wait until one's own is durable.
        let is_late = matches!(cause, Cause::Persisted);
        check(
            is_alone || (is_voted || is_late) && before.role == Role::Candidate && is_same_term,
            "a leader that nobody voted for",
        )?;
        check(after.vote == Some(id), "a leader that did not vote for itself")?;
    }
    check((after.role == Role::Leader) == (after.leader == Some(id)), "whoever leads knows it, and nobody else")?;
    let speaks = |leader| {
        matches!(cause, Cause::Message(from, message) if *from == leader && message.term == after.term
            && matches!(message.kind, Kind::Append | Kind::Heartbeat | Kind::Snapshot))
    };
    let is_known = |leader| leader == id || is_same_term && before.leader == Some(leader) || speaks(leader);
    check(after.leader.is_none_or(is_known), "a leader that has not spoken")
}

/// A leader appends and never overwrites; anybody else has what the leader says, and loses nothing that is committed.
fn allows_log(before: &View, cause: &Cause, after: &View) -> Verdict {
    if (after.base, &after.entries) == (before.base, &before.entries) {
        return Ok(());
    }
    match cause {
        Cause::Command(Command::Compact(..)) => {
            let is_suffix = before.entries.ends_with(&after.entries) && after.base.0 <= before.commit;
            check(is_suffix && after.last() == before.last(), "a compaction that forgets more than it may")
        }
        Cause::Message(_, Message { kind: Kind::Snapshot, term, .. }) => {
            let is_kept = after.entries.iter().all(|entry| before.has(entry.index, entry.term));
            check(*term == after.term && after.base.0 >= before.commit && is_kept, "a state that nobody sent")
        }
        _ if after.role == Role::Leader => {
            let is_longer = after.base == before.base && after.entries.starts_with(&before.entries);
            check(is_longer, "a leader overwrites its log")?;
            let mut own = after.entries[before.entries.len()..].iter();
            check(own.all(|entry| entry.term == after.term), "a leader appends for another term")
        }
        Cause::Message(_, message) if message.kind == Kind::Append && message.term == after.term => {
            check(before.term_at(message.index) == Some(message.log_term), "an append that leaves a gap")?;
            check(before.with(&message.entries) == *after.entries, "a log that the leader did not send")?;
            let lost = before.entries.iter().filter(|entry| entry.index <= before.commit);
            check({ lost }.all(|entry| after.has(entry.index, entry.term)), "a committed entry is overwritten")
        }
        _ => Err("a log that changes by itself"),
    }
}

/// A follower knows of commits from the leader, or from anybody who can name the entry's term.
fn allows_commit(before: &View, cause: &Cause, after: &View) -> Verdict {
    use Kind::{Append, AppendResponse, Heartbeat, ReadIndexResponse, Snapshot};
    check(after.commit >= before.commit, "a commit is taken back")?;
    check(after.commit <= after.last(), "a commit of what is not there")?;
    if after.commit == before.commit {
        return Ok(());
    }
    let is_told = match cause {
        Cause::Persisted => after.role == Role::Leader,
        Cause::Message(_, Message { kind: AppendResponse, .. }) => after.role == Role::Leader,
        Cause::Message(_, message) if matches!(message.kind, Append | Heartbeat) => {
            let known = message.index + message.entries.len() as u64;
            after.commit <= message.commit && (message.kind == Heartbeat || after.commit <= known)
        }
        Cause::Message(_, Message { kind: Snapshot, snapshot, .. }) => {
            snapshot.as_ref().is_some_and(|snapshot| snapshot.index == after.commit)
        }
        Cause::Message(_, Message { kind: ReadIndexResponse, index, term, .. }) => {
            after.commit == *index && after.term_at(*index) == Some(*term)
        }
        Cause::Message(_, message) => {
            after.commit == message.commit && after.term_at(message.commit) == Some(message.commit_term)
        }
        _ => false,
    };
    check(is_told, "a commit that nobody could know of")
}

const fn check(is_kept: bool, rule: Broken) -> Verdict {
    if is_kept { Ok(()) } else { Err(rule) }
}

const fn some(vote: u64) -> Option<ServerId> {
    if vote == 0 { None } else { Some(ServerId(vote)) }
}

impl View {
    /// The index of the last entry.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }

    fn freshness(&self) -> (u64, u64) {
        (self.entries.last().map_or(self.base.1, |entry| entry.term), self.last())
    }

    fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base.0 {
            return Some(self.base.1);
        }
        let place = usize::try_from(index.checked_sub(self.base.0 + 1)?).ok()?;
        self.entries.get(place).map(|entry| entry.term)
    }

    /// Has it this entry? What lies before the base is committed, and counts as known.
    fn has(&self, index: u64, term: u64) -> bool {
        index < self.base.0 || self.term_at(index) == Some(term)
    }

    /// The entries as they are once the leader has sent these: the first that differs replaces everything behind it.
    fn with(&self, sent: &[Entry]) -> Vec<Entry> {
        let mut entries = self.entries.clone();
        for entry in sent.iter().filter(|entry| !self.has(entry.index, entry.term)) {
            entries.retain(|kept| kept.index < entry.index);
            entries.push(entry.clone());
        }
        entries
    }
}

impl Observable for Replica {
    fn observe(&self) -> View {
        let (role, leader, _) = self.view();
        let state = self.log().hard_state();
        let entries: Vec<Entry> = self.log().entries().collect();
        let base = self.log().last() - entries.len() as u64;
        let base = (base, self.log().term(base).unwrap_or(0));
        View { role, leader, term: state.term, vote: some(state.vote), commit: state.commit, base, entries }
    }
}

impl Observable for ModelReplica {
    fn observe(&self) -> View {
        let (role, leader, _) = self.view();
        let state = self.hard_state();
        let entries = self.entries().to_vec();
        View { role, leader, term: state.term, vote: some(state.vote), commit: state.commit, base: (0, 0), entries }
    }
}

impl<M: Consensus> From<&Input<M>> for Cause {
    fn from(input: &Input<M>) -> Self {
        match input {
            Input::Message { from, message } => Self::Message(*from, message.clone()),
            Input::Command(command) => Self::Command(command.clone()),
            Input::Timer(_) => Self::Tick,
            Input::Persisted(_) => Self::Persisted,
            Input::LinkUp(_) | Input::LinkDown(_) => Self::Link,
        }
    }
}
