//! Groups: who holds the lease of which, as agreed on.
//!
//! A group is known here while somebody holds it. Who would like to is the leader's own business (see [`crate::lease`]), and
//! so is for how long a holder may go on: what is agreed is only who, and under which *token*. Tokens grow with every grant,
//! whatever the group, so whoever keeps something safe for a holder can refuse everybody with an older one.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::effect::Effect;
use crate::ids::SessionId;

/// No more groups are held at once.
pub const GROUPS_MAX: usize = 10_000;
/// No more can hold one group at once.
pub const HOLDERS_MAX: u16 = 1000;
/// No name of a group is longer.
pub const GROUP_NAME_LEN_MAX: usize = 64;
/// No name of a holder is longer.
pub const HOLDER_NAME_LEN_MAX: usize = 100;

/// The name of a group. It has parts between slashes, as a path has, and names nothing outside: no part is empty, `.` or
/// `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(String);

/// Why a text is not the name of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAGroup(String);

impl GroupName {
    /// Reads a name, wherever it was written.
    ///
    /// # Errors
    /// If it is too long, or has other characters than letters, digits and `._-/`, or a part without a name.
    pub fn parse(name: impl Into<String>) -> Result<Self, NotAGroup> {
        let name = name.into();
        objection_to(&name).map_or(Ok(Self(name)), |objection| Err(NotAGroup(objection)))
    }

    /// True if the name has several parts.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        self.0.contains('/')
    }
}

impl From<GroupName> for String {
    fn from(name: GroupName) -> Self {
        name.0
    }
}

impl fmt::Display for NotAGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn objection_to(name: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if name.is_empty() || name.len() > GROUP_NAME_LEN_MAX {
        let len = name.len();
        return Some(format!("the name of a group has 1 to {GROUP_NAME_LEN_MAX} letters, this one {len}"));
    }
    if let Some(strange) = name.chars().find(|c| !is_plain(*c)) {
        return Some(format!("the name of a group has no {strange:?}"));
    }
    let is_empty = |part: &str| part.chars().all(|c| c == '.');
    name.split('/').any(is_empty).then(|| format!("the group {name:?} has a part without a name"))
}

/// True if a holder can have this name.
#[must_use]
pub const fn is_holder_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= HOLDER_NAME_LEN_MAX
}

/// True if so many can hold one group at once.
#[must_use]
pub const fn is_holder_count(holders: u16) -> bool {
    holders >= 1 && holders <= HOLDERS_MAX
}

/// All groups that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Hash, Serialize, Deserialize)]
pub struct Groups {
    held: BTreeMap<String, Group>,
    last_token: u64,
}

/// A group that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group {
    /// How it is held.
    pub rules: GroupRules,
    /// By whom.
    pub holders: BTreeMap<SessionId, Holding>,
}

/// What all who want to hold a group must agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupRules {
    /// Who comes first.
    pub rank: GroupRank,
    /// How many may hold it at once.
    pub holders: u16,
}

/// Who comes first among those who want to hold a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GroupRank {
    /// Whoever is beside the leader; such a group follows leadership.
    Leader,
    /// The least loaded.
    Load,
    /// The greatest number.
    Id,
    /// The first name, in the order of the alphabet.
    Name,
}

/// What a holder has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Holding {
    /// What it can show others, so that they refuse whoever held the group before.
    pub token: u64,
    /// What people call it.
    pub name: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// No promise that it gets lasts longer. It stays the same for as long as it holds the group: a new leader, whatever it was
    /// told when it started, must know what the last one may have promised.
    pub lease_us: u64,
}

/// Somebody is to hold a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Grant {
    /// Which group.
    pub group: String,
    /// How it is held.
    pub rules: GroupRules,
    /// Who.
    pub session: SessionId,
    /// What people call it.
    pub name: String,
    /// For how long a promise may last.
    pub lease_us: u64,
}

/// Somebody holds a group no more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Release {
    /// Which group.
    pub group: String,
    /// Who.
    pub session: SessionId,
    /// Under which token; whoever holds it again has another one.
    pub token: u64,
}

impl Groups {
    /// The groups that somebody holds, by name.
    #[must_use]
    pub const fn held(&self) -> &BTreeMap<String, Group> {
        &self.held
    }

    /// What a session holds of a group.
    #[must_use]
    pub fn holding(&self, group: &str, session: SessionId) -> Option<&Holding> {
        self.held.get(group)?.holders.get(&session)
    }

    pub(super) fn grant(&mut self, grant: Grant, time_ms: u64) -> Effect {
        let (rules, session) = (grant.rules, grant.session);
        let is_new = !self.held.contains_key(&grant.group);
        if is_new && self.held.len() >= GROUPS_MAX || rules.holders == 0 {
            return Effect::Nothing;
        }
        let place =
            self.held.entry(grant.group.clone()).or_insert_with(|| Group { rules, holders: BTreeMap::new() });
        let is_full = place.holders.len() >= usize::from(place.rules.holders);
        if place.rules != rules || is_full || place.holders.contains_key(&session) {
            return Effect::Nothing;
        }
        self.last_token += 1;
        let (token, since_ms) = (self.last_token, time_ms);
        let (name, lease_us) = (grant.name.clone(), grant.lease_us);
        place.holders.insert(session, Holding { token, name, since_ms, lease_us });
        Effect::Granted { grant, token, since_ms }
    }

    pub(super) fn release(&mut self, release: Release) -> Effect {
        let Release { group, session, token } = release;
        let Some(place) = self.held.get_mut(&group) else { return Effect::Nothing };
        if place.holders.get(&session).is_none_or(|holding| holding.token != token) {
            return Effect::Nothing;
        }
        place.holders.remove(&session);
        if place.holders.is_empty() {
            self.held.remove(&group);
        }
        Effect::Released { group, session, token }
    }
}

impl GroupRank {
    /// Its name, as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Load => "load",
            Self::Id => "id",
            Self::Name => "name",
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn grant(groups: &mut Groups, group: &str, holders: u16, session: u64) -> Option<u64> {
        let rules = GroupRules { rank: GroupRank::Load, holders };
        let (group, session) = (group.into(), SessionId(session));
        match groups.grant(Grant { group, rules, session, name: String::new(), lease_us: 1 }, 0) {
            Effect::Granted { token, .. } => Some(token),
            _ => None,
        }
    }

    fn release(groups: &mut Groups, group: &str, session: u64, token: u64) -> bool {
        let release = Release { group: group.into(), session: SessionId(session), token };
        groups.release(release) != Effect::Nothing
    }

    #[test]
    fn a_group_has_as_many_holders_as_were_asked_for_and_tokens_grow() {
        let mut groups = Groups::default();
        let granted: Vec<_> = (1..=4).map(|session| grant(&mut groups, "cron", 2, session)).collect();
        assert_eq!(granted, [Some(1), Some(2), None, None]);
        assert_eq!(grant(&mut groups, "other", 1, 1), Some(3));
        assert!(release(&mut groups, "cron", 1, 1));
        assert_eq!(grant(&mut groups, "cron", 2, 4), Some(4));
    }

    #[test]
    fn a_release_of_an_older_token_changes_nothing() {
        let mut groups = Groups::default();
        assert_eq!(grant(&mut groups, "cron", 1, 7), Some(1));
        assert!(release(&mut groups, "cron", 7, 1));
        assert_eq!(grant(&mut groups, "cron", 1, 7), Some(2));
        assert!(!release(&mut groups, "cron", 7, 1), "that was long ago");
        assert!(!release(&mut groups, "cron", 8, 2), "somebody else's");
        assert!(release(&mut groups, "cron", 7, 2));
        assert_eq!(groups.held().len(), 0, "a group that nobody holds is forgotten");
    }

    #[test]
    fn what_does_not_fit_is_not_granted() {
        let mut groups = Groups::default();
        assert_eq!(grant(&mut groups, "none", 0, 1), None);
        grant(&mut groups, "cron", 1, 1);
        assert_eq!(grant(&mut groups, "cron", 2, 2), None, "others agreed on one holder");
        let names: Vec<String> = (1..GROUPS_MAX).map(|number| alloc::format!("g{number}")).collect();
        names.iter().for_each(|name| assert!(grant(&mut groups, name, 1, 1).is_some()));
        assert_eq!(vec![grant(&mut groups, "one-too-many", 1, 1)], [None]);
    }
}
