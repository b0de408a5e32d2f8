//! Conservation: every worker is at home, lent, or gone, counted once and by its owner; what a farm has borrowed was lent to it.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::ledger::loans::home_of;
use primus_core::ledger::{Effect, Ledger};

use super::{Judgement, LoanName};
use crate::driver::host::FarmPlace;

/// All loans that were ever made: who, and to which farm.
#[derive(Debug, Default)]
pub(super) struct Watch {
    made: BTreeMap<LoanName, (String, String)>,
    lent_max: u32,
}

impl Watch {
    /// No farm may lend more than so many.
    pub(super) const fn new(lent_max: u32) -> Self {
        Self { made: BTreeMap::new(), lent_max }
    }

    pub(super) fn on_effect(
        &mut self,
        farm: FarmPlace,
        names: &[&str],
        effect: &Effect,
        truth: &Ledger,
    ) -> Judgement {
        match effect {
            Effect::Lent(_) if truth.loans().lent().len() > self.lent_max as usize => {
                Err(format!("farm {farm} has lent more than {} at once", self.lent_max))
            }
            Effect::Lent(loan) => {
                let lent = truth.loans().lent().get(loan);
                let made = lent.map(|lent| (lent.worker.clone(), lent.to.clone())).unwrap_or_default();
                match self.made.insert((farm, *loan), made) {
                    None => Ok(()),
                    Some((worker, _)) => {
                        Err(format!("loan {loan} of farm {farm} is made anew, and was {worker}'s"))
                    }
                }
            }
            Effect::Borrowed(name) => self.on_borrowed(farm, names, name, truth),
            _ => Ok(()),
        }
    }

    fn on_borrowed(&self, farm: FarmPlace, names: &[&str], name: &str, truth: &Ledger) -> Judgement {
        let Some(borrowed) = truth.loans().borrowed().get(name) else { return Ok(()) };
        let lender = names.iter().position(|lender| *lender == borrowed.from);
        let made = lender.and_then(|lender| self.made.get(&(lender, borrowed.loan)));
        let is_lent = made.is_some_and(|(worker, to)| {
            to == names[farm] && home_of(name).is_some_and(|(here, home)| here == worker && home == borrowed.from)
        });
        if is_lent {
            return Ok(());
        }
        Err(format!("farm {farm} has borrowed {name} under loan {}, which nobody lent it", borrowed.loan))
    }
}

pub(super) fn check(truth: &Ledger) -> Judgement {
    let loans = truth.loans();
    let mut lent = BTreeSet::new();
    for (loan, what) in loans.lent() {
        if !lent.insert(&what.worker) {
            return Err(format!("{} is lent twice", what.worker));
        }
        if loans.loan_of(&what.worker) != Some(*loan) || home_of(&what.worker).is_some() {
            return Err(format!("{} is lent under loan {loan}, and should not be", what.worker));
        }
    }
    let is_stray = |name: &&String| home_of(name).is_some() && !loans.borrowed().contains_key(*name);
    match truth.workers().keys().find(is_stray) {
        None => Ok(()),
        Some(name) => Err(format!("{name} is registered, and not borrowed")),
    }
}
