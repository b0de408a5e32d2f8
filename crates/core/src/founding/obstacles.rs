//! What keeps a server from going on, as its [`Reason`]s tell it.

use crate::ServerId;

use super::reason::{Need, Reason, Remedy};
use super::words::{ClusterId, Record};
use super::{Founding, Heard};

impl Founding {
    /// What does not pass by itself.
    pub(super) fn find_obstacle(&self) -> Option<Reason> {
        if let Some((server, cluster, remedy)) = self.find_founded() {
            return Some(Reason::Belongs { server, cluster, remedy });
        }
        if let Some((server, heard)) = self.find_other_list() {
            let theirs = heard.claim.list.clone();
            return Some(Reason::ListsDiffer { server, theirs, ours: self.said.list.clone() });
        }
        if let Some(record) =
            self.said.phase.agreed().filter(|record| !self.said.list.iter().eq(record.members.keys()))
        {
            let agreed = record.members.keys().copied().collect();
            return Some(Reason::ListEdited { agreed, ours: self.said.list.clone() });
        }
        let has_old_data = |heard: &Heard| self.said.remembers.is_none() && heard.claim.remembers.is_some();
        let server = self.find_heard(has_old_data)?.0;
        Some(Reason::OldDataElsewhere { server })
    }

    /// A peer that is founded, and how this server can come into its cluster.
    pub(super) fn find_founded(&self) -> Option<(ServerId, ClusterId, Remedy)> {
        let (server, heard) = self.find_heard(|heard| heard.claim.phase.founded().is_some())?;
        let record = heard.claim.phase.founded()?;
        let is_member = record.members.contains_key(&self.id);
        let remedy = if is_member { Remedy::Replace(self.id) } else { Remedy::Add };
        Some((server, record.cluster, remedy))
    }

    /// A peer with another list.
    pub(super) fn find_other_list(&self) -> Option<(ServerId, &Heard)> {
        self.find_heard(|heard| heard.claim.list != self.said.list)
    }

    fn find_heard(&self, fits: impl Fn(&Heard) -> bool) -> Option<(ServerId, &Heard)> {
        self.heard.iter().find(|(_, heard)| fits(heard)).map(|(id, heard)| (*id, heard))
    }

    /// The first of the list that has not been heard on a link that is there now.
    pub(super) fn find_unheard_anew(&self) -> Option<ServerId> {
        let is_heard = |id: &ServerId| *id == self.id || self.heard.get(id).is_some_and(|heard| heard.is_present);
        self.said.list.iter().find(|id| !is_heard(id)).copied()
    }

    /// Whom an empty server waits for.
    pub(super) fn find_unheard(&self) -> Option<Reason> {
        let farm = self.rules.farm.clone();
        let has_old_data = self.said.remembers.is_some();
        let is_unheard = |id: &&ServerId| **id != self.id && !self.heard.contains_key(id);
        match self.said.list.iter().find(is_unheard) {
            Some(server) if has_old_data => Some(self.missing(*server, Need::Majority)),
            Some(server) => Some(self.missing(*server, Need::All)),
            None if has_old_data => Some(Reason::OldDataTooFew { farm, ours: self.said.list.clone() }),
            None => Some(Reason::Alone { farm }),
        }
    }

    /// Whom a server waits for that has agreed.
    pub(super) fn find_unconfirmed(&self, record: &Record) -> Option<Reason> {
        let has_other_disk =
            |id: &ServerId| self.heard.get(id).is_some_and(|heard| !record.names(*id, heard.claim.store));
        // With another disk among them, all have to be heard anew.
        let unheard = self.find_unheard_anew().filter(|_| self.said.list.iter().any(has_other_disk));
        let unconfirmed = record.members.keys().find(|id| !self.is_confirmed_by(**id, record)).copied();
        let server = unheard.or(unconfirmed)?;
        let need = if self.said.remembers.is_some() { Need::Majority } else { Need::Agreed };
        match self.links.contains(&server) {
            true => Some(Reason::Undecided { farm: self.rules.farm.clone(), server }),
            false => Some(self.missing(server, need)),
        }
    }

    fn missing(&self, server: ServerId, need: Need) -> Reason {
        let address = self.addresses.get(&server).cloned().unwrap_or_default();
        let absence = self.absences.get(&server).copied().unwrap_or_default();
        Reason::Missing { farm: self.rules.farm.clone(), server, address, absence, need }
    }
}
