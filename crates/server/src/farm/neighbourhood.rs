//! Which farms are neighbours: those that the configuration names, and those that the roll trusts. Trust that is given while
//! servers run counts at once, and so does its end.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::FarmId;
use primus_core::ledger::roll;
use primus_core::loan::lending;
use primus_core::machine::Outbox;

use super::{Farm, Notice};

/// The farms that are neighbours, with the numbers by which machines know them.
#[derive(Debug)]
pub(super) struct Neighbourhood {
    /// Those that the configuration names, in its order.
    configured: Vec<String>,
    numbers: BTreeMap<FarmId, String>,
    /// No number comes back, so that what is still on its way from a farm that was forgotten is not taken for a new one's.
    last: u64,
}

impl Neighbourhood {
    pub(super) fn new(configured: Vec<String>) -> Self {
        let numbers = (1..).map(FarmId).zip(configured.iter().cloned()).collect();
        Self { last: configured.len() as u64, configured, numbers }
    }

    /// These are trusted beside those that the configuration names. Nothing if that changes nothing.
    fn update(&mut self, trusted: &BTreeMap<String, roll::Neighbour>) -> Option<BTreeMap<FarmId, String>> {
        let wanted: BTreeSet<&String> = self.configured.iter().chain(trusted.keys()).collect();
        let known = self.numbers.len();
        self.numbers.retain(|_, name| wanted.contains(name));
        let mut has_changed = self.numbers.len() < known;
        for name in wanted {
            if !self.numbers.values().any(|known| known == name) {
                self.last += 1;
                self.numbers.insert(FarmId(self.last), name.clone());
                has_changed = true;
            }
        }
        has_changed.then(|| self.numbers.clone())
    }
}

impl Farm {
    /// The lending side knows the neighbours that the ledger names.
    pub(super) fn know_neighbours(&mut self) {
        let trusted = self.foreman.ledger().roll().neighbours();
        if let Some(neighbours) = self.neighbourhood.update(trusted) {
            self.lending.set_neighbours(neighbours);
        }
    }

    /// The roll has changed. A leader begins to lend with its first neighbour, and stops when the last one has gone and
    /// everybody is home.
    pub(super) fn see_to_neighbours(&mut self, out: &mut Outbox<Self>) {
        self.know_neighbours();
        let Some(term) = self.leads else { return };
        let loans = self.ledger().loans().clone();
        let has_work = self.lending.neighbours().next().is_some() || !loans.is_empty();
        if !has_work {
            self.stop_lending(out);
        } else if !self.lending.is_leading() {
            self.loans.is_on = true;
            out.notify(Notice::Lending(true));
            self.tell_office(lending::Command::Lead(term, loans), out);
        }
    }
}
