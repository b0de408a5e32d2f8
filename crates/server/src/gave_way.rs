//! Who gave way, as servers agree on it: a server that resigned, or from which an operator moved leadership away.
//!
//! That is a fact in the log, because it must outlive processes: by rank such a server would lead again at once. It neither
//! stands in elections nor is leadership handed to it, until the leader dies that it gave way to (or one to which that leader
//! handed over), until an operator has an election held, or until leadership is transferred to it.

use std::collections::BTreeMap;

use primus_core::ServerId;

/// What changes: a record of the log, written by whoever leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Fact {
    /// This server gave way to that one, which leads now and so does not give way any more.
    GaveWay {
        /// Who led.
        server: ServerId,
        /// Who leads.
        to: ServerId,
        /// Did an operator choose that one? Then it is not replaced because of its rank.
        is_chosen: bool,
    },
    /// From now on everybody stands again.
    AllStand,
}

/// Everybody who gave way, and to whom.
///
/// Every fact assigns something to some servers, so facts that are applied a second time, in their order, change nothing: a
/// state may be a little newer than the place of the log that it is kept under.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct GaveWay {
    servers: BTreeMap<ServerId, ServerId>,
    /// The leader that an operator chose.
    chosen: Option<ServerId>,
}

impl GaveWay {
    /// Takes a fact in.
    pub fn apply(&mut self, fact: Fact) {
        match fact {
            Fact::GaveWay { server, to, is_chosen } => {
                self.servers.insert(server, to);
                self.servers.remove(&to);
                self.chosen = is_chosen.then_some(to);
            }
            Fact::AllStand => *self = Self::default(),
        }
    }

    /// Did this server give way?
    #[must_use]
    pub fn contains(&self, server: ServerId) -> bool {
        self.servers.contains_key(&server)
    }

    /// Does everybody stand?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// Did an operator choose this leader, so that rank alone does not replace it?
    #[must_use]
    pub fn is_chosen(&self, leader: ServerId) -> bool {
        self.chosen == Some(leader)
    }

    /// Those who gave way, each with the one that it gave way to.
    #[must_use]
    pub const fn servers(&self) -> &BTreeMap<ServerId, ServerId> {
        &self.servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gave_way(server: u64, to: u64) -> Fact {
        Fact::GaveWay { server: ServerId(server), to: ServerId(to), is_chosen: server > 2 }
    }

    fn after(facts: &[Fact]) -> GaveWay {
        let mut all = GaveWay::default();
        facts.iter().for_each(|fact| all.apply(*fact));
        all
    }

    #[test]
    fn whoever_leads_does_not_give_way_any_more() {
        let all = after(&[gave_way(3, 2), gave_way(2, 1)]);
        assert_eq!(all.servers(), &BTreeMap::from([(ServerId(3), ServerId(2)), (ServerId(2), ServerId(1))]));
        assert_eq!(
            after(&[gave_way(3, 2), gave_way(2, 3)]).servers(),
            &BTreeMap::from([(ServerId(2), ServerId(3))])
        );
        assert!(after(&[gave_way(3, 2), Fact::AllStand]).is_empty());
        assert!(
            after(&[gave_way(3, 2)]).is_chosen(ServerId(2)) && !after(&[gave_way(2, 3)]).is_chosen(ServerId(3))
        );
        assert!(!after(&[gave_way(3, 2), gave_way(2, 1)]).is_chosen(ServerId(2)), "it resigned");
    }

    #[test]
    fn facts_that_are_applied_twice_change_nothing() {
        let facts =
            [gave_way(3, 2), gave_way(2, 1), Fact::AllStand, gave_way(1, 3), gave_way(3, 2), gave_way(2, 3)];
        for from in 0..facts.len() {
            for to in from..=facts.len() {
                let mut all = after(&facts[..to]);
                facts[from..to].iter().for_each(|fact| all.apply(*fact));
                assert_eq!(all, after(&facts[..to]), "{from}..{to}");
            }
        }
    }
}
