//! What must be true of every cluster, one property per file: the five of the Raft paper (figure 3), the
//! step of its proof that a wrong append breaks first, and what clients see.
//!
//! A `Checks` sees every leadership, every append, every commit and every answer to a client as it happens. It notes the
//! first violation, and the run ends there.

mod commits_stay;
mod durability;
mod election_safety;
mod few_terms;
mod gave_way;
mod leader_completeness;
mod liveness;
mod log_matching;
mod order;
mod state_machine_safety;

use std::collections::BTreeMap;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_core::ledger::JobId;
use primus_replica::log::Log;
use primus_replica::message::{Entry, Snapshot};
use primus_server::Reason;

use super::host::Owner;
pub(super) use liveness::{State, is_healed};

/// A property of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// At most one server leads in a term.
    ElectionSafety,
    /// Logs that have an entry in common are the same up to there.
    LogMatching,
    /// Whoever leads has everything that was committed in earlier terms.
    LeaderCompleteness,
    /// A committed entry is in the logs of a majority, and nobody who has it overwrites it.
    CommitsStay,
    /// All servers apply the same entry at the same place, without gaps.
    StateMachineSafety,
    /// What was acknowledged is never lost, and every later read sees it.
    Durability,
    /// What a client asks a farm for one after the other takes place one after the other.
    Order,
    /// Leadership is not handed back to a server that gave way.
    GaveWay,
    /// When the faults have ended, somebody leads and everybody gets what is written.
    Liveness,
    /// No server breaks an assertion of its own.
    Assertions,
    /// If nothing happens but that the leader dies, two terms later at most another one leads.
    FewTerms,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// What should have been true.
    pub property: Property,
    /// What was found.
    pub what: String,
}

/// Everything that is known about a run, for all properties.
#[derive(Debug, Default)]
pub(super) struct Checks {
    election_safety: election_safety::Watch,
    log_matching: log_matching::Watch,
    commits_stay: commits_stay::Watch,
    durability: durability::Watch,
    few_terms: few_terms::Watch,
    order: order::Watch,
    committed: Vec<Committed>,
    /// What farms wrote down, by place in the log.
    states: BTreeMap<u64, u64>,
    violation: Option<Violation>,
}

/// An entry that is committed; its place is its index less one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Committed {
    term: u64,
    data: Bytes,
    /// The state after it.
    digest: u64,
    /// The term of the server that was the first to know: it was committed in that one or in an earlier one.
    known_in: Term,
}

/// What a property says: nothing, or what is wrong.
type Judgement = Result<(), String>;

impl Checks {
    fn note(&mut self, property: Property, judgement: Judgement) {
        if let Err(what) = judgement {
            self.violation.get_or_insert(Violation { property, what });
        }
    }

    /// A server begins to lead.
    pub(super) fn on_lead(&mut self, id: ServerId, term: Term, log: &Log) {
        let judgement = self.election_safety.on_lead(id, term);
        self.note(Property::ElectionSafety, judgement);
        let judgement = self.few_terms.on_lead(term);
        self.note(Property::FewTerms, judgement);
        self.note(Property::LeaderCompleteness, leader_completeness::on_lead(id, term, log, &self.committed));
    }

    /// The leader of this term is killed, and nothing else goes wrong.
    pub(super) fn on_kill(&mut self, term: Term) {
        self.few_terms.on_kill(term);
    }

    /// A server has appended these entries to its log.
    pub(super) fn on_append<'a>(
        &mut self,
        id: ServerId,
        term: Term,
        entries: impl Iterator<Item = &'a Entry> + Clone,
        log: &Log,
    ) {
        let judgement = self.log_matching.on_append(id, entries.clone(), log);
        self.note(Property::LogMatching, judgement);
        let judgement = self.commits_stay.on_append(id, term, entries, &self.committed);
        self.note(Property::CommitsStay, judgement);
    }

    /// A server starts with this log and this state.
    pub(super) fn on_start(&mut self, id: ServerId, log: &Log, snapshot: Option<&Snapshot>) {
        let entries: Vec<Entry> = log.entries().collect();
        self.commits_stay.on_start(id, log);
        self.on_append(id, Term(0), entries.iter(), log);
        if let Some(snapshot) = snapshot {
            self.on_restore(id, snapshot);
        }
    }

    /// A server applies an entry. Tells whether it is the first to know that it is committed.
    pub(super) fn on_apply(&mut self, id: ServerId, term: Term, entry: &Entry, owner: &Owner) -> bool {
        let before = self.committed.len();
        let judgement = state_machine_safety::on_apply(id, term, entry, owner, &mut self.committed);
        self.note(Property::StateMachineSafety, judgement);
        let is_new = self.committed.len() > before;
        if is_new {
            self.note(Property::CommitsStay, self.commits_stay.on_commit(&self.committed));
        }
        is_new
    }

    /// An entry is newly known to be committed: this server leads in a term of its own.
    pub(super) fn on_commit(&mut self, leader: ServerId, term: Term, log: &Log) {
        self.note(Property::LeaderCompleteness, leader_completeness::on_commit(leader, term, log, &self.committed));
    }

    /// A server takes over a whole state.
    pub(super) fn on_restore(&mut self, id: ServerId, snapshot: &Snapshot) {
        self.commits_stay.on_restore(id, snapshot.index);
        self.note(
            Property::StateMachineSafety,
            state_machine_safety::on_restore(id, snapshot, &self.committed, &self.states),
        );
        self.note(Property::GaveWay, gave_way::on_restore(id, snapshot, &self.committed));
    }

    /// A leader that has applied everything up to here, and leads because of the second reason, hands over to that one because
    /// of the first.
    pub(super) fn on_handover(&mut self, to: ServerId, reason: Reason, leads_because: Reason, applied: u64) {
        let judgement = gave_way::on_handover(to, reason, leads_because, applied, &self.committed);
        self.note(Property::GaveWay, judgement);
    }

    /// A farm writes its state down, with everything up to here.
    pub(super) fn on_state(&mut self, id: ServerId, index: u64, data: &Bytes) {
        let judgement = state_machine_safety::on_state(id, index, data, &mut self.states);
        self.note(Property::StateMachineSafety, judgement);
    }

    /// The digest of everything that was applied up to here.
    pub(super) fn digest_at(&self, index: u64) -> u64 {
        let place = usize::try_from(index).ok().and_then(|index| index.checked_sub(1));
        place.and_then(|place| self.committed.get(place)).map_or(0, |entry| entry.digest)
    }

    /// A client submitted two jobs, one right after the other, and both have a number.
    pub(super) fn on_both(&mut self, first: JobId, second: JobId) {
        let judgement = self.order.on_both(first, second);
        self.note(Property::Order, judgement);
    }

    /// A client looks at a farm, and misses something that was acknowledged before it asked, or nothing.
    pub(super) fn on_look(&mut self, id: ServerId, missing: Option<&str>) {
        self.note(Property::Durability, durability::on_look(id, missing));
    }

    /// A client is told that its write, at this place, will last.
    pub(super) fn on_acknowledged(&mut self, index: u64) {
        self.durability.on_acknowledged(index);
    }

    /// Up to where a client has been told that writes will last.
    pub(super) const fn acknowledged(&self) -> u64 {
        self.durability.acknowledged()
    }

    /// A read that began when writes up to `since` had been acknowledged sees everything up to `index`.
    pub(super) fn on_read(&mut self, id: ServerId, since: u64, index: u64) {
        self.note(Property::Durability, durability::on_read(id, since, index));
    }

    /// A server broke an assertion of its own.
    pub(super) fn on_panic(&mut self, id: ServerId, words: &str) {
        self.note(Property::Assertions, Err(format!("server {id} broke off: {words}")));
    }

    /// The run is over; these are the live servers.
    pub(super) fn on_end(&mut self, states: &[State], wanted: Option<u64>) {
        if self.violation.is_none() {
            self.note(Property::Durability, self.durability.on_end(states));
            self.note(Property::Liveness, liveness::on_end(states, wanted));
        }
    }

    pub(super) const fn is_violated(&self) -> bool {
        self.violation.is_some()
    }

    /// What went wrong, and every property that applies. Nobody knows whether a run that broke off would have healed.
    pub(super) fn verdict(self) -> (Option<Violation>, BTreeMap<Property, bool>) {
        let violated = self.violation.as_ref().map(|violation| violation.property);
        let applies = |property: &Property| match property {
            Property::Liveness => violated.is_none_or(|violated| violated == Property::Liveness),
            Property::Assertions => violated == Some(Property::Assertions),
            Property::FewTerms => self.few_terms.applies(),
            Property::Order => self.order.applies() || violated == Some(Property::Order),
            _ => true,
        };
        let all = Property::ALL.into_iter().filter(applies);
        let properties = all.map(|property| (property, violated != Some(property))).collect();
        (self.violation, properties)
    }
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::ElectionSafety,
        Self::LogMatching,
        Self::LeaderCompleteness,
        Self::CommitsStay,
        Self::StateMachineSafety,
        Self::Durability,
        Self::Order,
        Self::GaveWay,
        Self::Liveness,
        Self::Assertions,
        Self::FewTerms,
    ];

    /// The property's name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ElectionSafety => "election_safety",
            Self::LogMatching => "log_matching",
            Self::LeaderCompleteness => "leader_completeness",
            Self::CommitsStay => "commits_stay",
            Self::StateMachineSafety => "state_machine_safety",
            Self::Durability => "durability",
            Self::Order => "order",
            Self::GaveWay => "gave_way",
            Self::Liveness => "liveness",
            Self::Assertions => "assertions",
            Self::FewTerms => "few_terms",
        }
    }
}
