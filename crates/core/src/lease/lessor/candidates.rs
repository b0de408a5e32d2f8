//! What a leader knows of those who ask: what they want, who of them gets a group, and what they are told.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::{CANDIDACIES_MAX, Guest, KEPT_PARTS, Leadership, Question, Wanted};
use crate::lease::{Answer, Candidacy, Claim, Contender, Objection, Poll, Promise, preference, stretched};
use crate::ledger::Entry;
use crate::ledger::groups::{GROUPS_MAX, GroupRank, Release};
use crate::load::Score;
use crate::{ServerId, SessionId};

impl Leadership {
    /// Does somebody beside the leader hold what follows leadership? Whoever has not asked yet may be there.
    pub(super) fn holds_beside(&self, leader: ServerId) -> bool {
        let is_beside = |session: &SessionId| self.guests.get(session).is_none_or(|guest| guest.at == leader);
        let mut leading = self.held.values().filter(|group| group.rules.rank == GroupRank::Leader);
        leading.any(|group| group.holders.keys().any(is_beside))
    }

    pub(super) fn meet(&mut self, session: SessionId, poll: &Poll, now_us: u64) {
        let guest = self.guests.entry(session).or_insert_with(|| Guest {
            seen_us: now_us,
            score: poll.score,
            at: poll.at,
            wants: BTreeSet::new(),
            holds: BTreeMap::new(),
            recalled: BTreeSet::new(),
            refused: BTreeMap::new(),
            last_number: poll.number,
            question: None,
            has_news: false,
        });
        (guest.seen_us, guest.score, guest.at) = (now_us, poll.score, poll.at);
        guest.last_number = poll.number;
        if poll.wants.is_some() {
            let held = self.held.iter().filter_map(|(name, group)| Some((name, group.holders.get(&session)?)));
            guest.holds = held.map(|(name, holding)| (name.clone(), holding.token)).collect();
            guest.has_news |= !guest.holds.is_empty();
        }
    }

    /// Takes down what a session wants, and says for which groups that is new.
    pub(super) fn candidacies_of(&mut self, session: SessionId, wants: Option<Vec<Candidacy>>) -> Vec<String> {
        let Some(wants) = wants else { return Vec::new() };
        self.forget_candidacies(session);
        let mut groups = Vec::new();
        for candidacy in wants {
            let group = candidacy.group.clone();
            let objection = self.objection(&candidacy);
            let Some(guest) = self.guests.get_mut(&session) else { continue };
            if let Some(objection) = objection {
                guest.refused.insert(group, objection);
                guest.has_news = true;
                continue;
            }
            guest.wants.insert(group.clone());
            let rules = candidacy.rules;
            let wanted = self.wanted.entry(group.clone());
            let wanted = wanted.or_insert_with(|| Wanted { rules, candidates: BTreeMap::new() });
            self.candidacies += usize::from(wanted.candidates.insert(session, candidacy).is_none());
            groups.push(group);
        }
        groups
    }

    fn objection(&self, candidacy: &Candidacy) -> Option<Objection> {
        let held = self.held.get(&candidacy.group).map(|group| group.rules);
        let rules = held.or_else(|| self.wanted.get(&candidacy.group).map(|wanted| wanted.rules));
        match rules {
            Some(rules) if rules != candidacy.rules => Some(Objection::OtherRules(rules)),
            _ if self.candidacies >= CANDIDACIES_MAX => Some(Objection::TooManyCandidates),
            None if self.wanted.len().max(self.held.len()) >= GROUPS_MAX => Some(Objection::TooManyGroups),
            _ => None,
        }
    }

    fn forget_candidacies(&mut self, session: SessionId) {
        let wants = self.guests.get_mut(&session).map(|guest| core::mem::take(&mut guest.wants));
        for group in wants.unwrap_or_default() {
            let Some(wanted) = self.wanted.get_mut(&group) else { continue };
            self.candidacies -= usize::from(wanted.candidates.remove(&session).is_some());
            if wanted.candidates.is_empty() {
                self.wanted.remove(&group);
            }
        }
    }

    pub(super) fn forget_guests(&mut self, now_us: u64, after_us: u64) {
        let gone = self.guests.iter().filter(|(_, guest)| guest.seen_us + after_us <= now_us);
        let gone: Vec<SessionId> = gone.map(|(session, _)| *session).collect();
        for session in gone {
            self.forget_candidacies(session);
            self.guests.remove(&session);
        }
    }

    pub(super) fn is_held(&self, session: SessionId, claim: &Claim) -> bool {
        let holding = self.held.get(&claim.group).and_then(|group| group.holders.get(&session));
        holding.is_some_and(|holding| holding.token == claim.token)
    }

    /// The groups for which a session shows a token that is not good any more.
    pub(super) fn old_claims<'a>(
        &self,
        session: SessionId,
        claims: impl Iterator<Item = &'a Claim>,
    ) -> Vec<String> {
        claims.filter(|claim| !self.is_held(session, claim)).map(|claim| claim.group.clone()).collect()
    }

    /// The entry that ends a holding, unless one is on its way already.
    pub(super) fn release(&mut self, key: (String, SessionId)) -> Option<Entry> {
        let holding = self.held.get(&key.0)?.holders.get(&key.1)?;
        let release = Release { group: key.0.clone(), session: key.1, token: holding.token };
        self.leaving.insert(key).then_some(Entry::Release(release))
    }

    /// Who gets a group, as far as there is room.
    pub(super) fn choose(
        &self,
        group: &str,
        wanted: &Wanted,
        (leader, now_us, lease_us): (ServerId, u64, u64),
    ) -> Vec<SessionId> {
        let is_following = wanted.rules.rank == GroupRank::Leader;
        let holders = self.held.get(group).map(|group| &group.holders);
        let from_here = (String::from(group), SessionId(0))..=(String::from(group), SessionId(u64::MAX));
        // The log takes both in order: whoever leaves has left when the next one comes.
        let leaving = self.leaving.range(from_here.clone()).count();
        let taken = holders.map_or(0, BTreeMap::len) - leaving + self.entering.range(from_here).count();
        let room = usize::from(wanted.rules.holders).saturating_sub(taken);
        if room == 0 || is_following && self.is_vacating {
            return Vec::new();
        }
        let is_free = |session: &&SessionId| {
            let is_holding = holders.is_some_and(|holders| holders.contains_key(*session));
            !is_holding && !self.entering.contains_key(&(group.into(), **session))
        };
        let is_present = |session: &&SessionId| {
            self.guests
                .get(*session)
                .is_some_and(|guest| guest.question.is_some() || now_us < guest.seen_us + lease_us)
        };
        let is_kept = is_following && now_us < self.since_us + lease_us / KEPT_PARTS;
        let is_beside = |session: &&SessionId| self.guests.get(*session).is_some_and(|guest| guest.at == leader);
        let free = wanted.candidates.keys().filter(is_free).filter(is_present);
        let free = free.filter(|session| !is_kept || is_beside(session)).copied().collect();
        let mut ranked = self.ranked(leader, wanted, free);
        ranked.truncate(room);
        ranked
    }

    pub(super) fn ranked(&self, leader: ServerId, wanted: &Wanted, mut sessions: Vec<SessionId>) -> Vec<SessionId> {
        let standing = |session: &SessionId| Contender {
            candidacy: &wanted.candidates[session],
            score: self.guests.get(session).map_or(Score::default(), |guest| guest.score),
            at: self.guests.get(session).map_or(ServerId(0), |guest| guest.at),
        };
        let rank = wanted.rules.rank;
        sessions.sort_by(|one, other| {
            preference(rank, leader, &standing(one)).cmp(&preference(rank, leader, &standing(other)))
        });
        sessions
    }

    /// Whoever holds it elsewhere lets go, if somebody beside the leader wants it.
    pub(super) fn recall(&mut self, group: &str, leader: ServerId, now_us: u64, lease_us: u64) {
        let (Some(wanted), Some(held)) = (self.wanted.get(group), self.held.get(group)) else { return };
        let is_present = |guest: &Guest| guest.question.is_some() || now_us < guest.seen_us + lease_us;
        let is_beside = |session: &SessionId| {
            self.guests.get(session).is_some_and(|guest| guest.at == leader && is_present(guest))
        };
        let waits_beside =
            wanted.candidates.keys().any(|session| is_beside(session) && !held.holders.contains_key(session));
        let elsewhere = held.holders.keys().filter(|session| !is_beside(session)).copied();
        let elsewhere: Vec<SessionId> = elsewhere.filter(|_| waits_beside && !self.is_vacating).collect();
        for session in elsewhere {
            if let Some(guest) = self.guests.get_mut(&session) {
                guest.has_news |= guest.recalled.insert(group.into());
            }
        }
    }

    /// What a session is told now; nothing while it holds something and this server may not promise it.
    ///
    /// All times count from the arrival of the question, because the candidate counts from a moment before that: so a promise
    /// that was given after a long wait keeps nobody waiting any longer.
    pub(super) fn answer(&mut self, session: SessionId) -> Option<Answer> {
        let guest = self.guests.get_mut(&session)?;
        let Question { number, arrived_us, .. } = guest.question?;
        let mut promises = Vec::with_capacity(guest.holds.len());
        for (group, token) in &guest.holds {
            if self.leaving.contains(&(group.clone(), session)) {
                continue;
            }
            let holding = self.held.get(group).and_then(|group| group.holders.get(&session));
            let lease_us = holding.map_or(0, |holding| holding.lease_us);
            let led_until_us = self.confirmed_us? + lease_us;
            let rest_us = led_until_us.saturating_sub(arrived_us).min(lease_us);
            // A majority must have spoken lately, else there is nothing to promise.
            if rest_us < lease_us / 2 {
                return None;
            }
            promises.push(Promise { group: group.clone(), token: *token, rest_us });
        }
        for promise in &promises {
            let until_us = arrived_us + stretched(promise.rest_us);
            let promised = self.promised.entry((promise.group.clone(), session)).or_insert(0);
            *promised = until_us.max(*promised);
        }
        guest.question = None;
        guest.has_news = false;
        let recalled = guest.recalled.iter().cloned().collect();
        let refused = core::mem::take(&mut guest.refused).into_iter().collect();
        Some(Answer { number, is_known: true, promises, recalled, refused })
    }
}
