//! What must be true of every farm, one property per file.
//!
//! A `Checks` sees every commit, everything that is handed out and every start, and notes the first violation; the run ends
//! there. It keeps a ledger of its own, the truth, to which those of the servers are compared.

mod agreement;
mod attempts;
mod counts;
mod endings;
mod handouts;
mod once;
mod reruns;

use std::collections::BTreeMap;

use primus_core::ledger::{Batch, Effect, Held, Ledger, TaskId};

use crate::node::NodeId;

pub(crate) use reruns::Witness;

/// A property of a farm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Property {
    /// Every acknowledged task comes to its end, and has one recorded result.
    Endings,
    /// Nothing is handed out whose end or cancellation the leader knows.
    Handouts,
    /// No two attempts bear the same name.
    Attempts,
    /// A task that must not start twice does not.
    Once,
    /// What a worker that the leader knows has, or keeps the result of, is not run again; nothing is if all workers live.
    Reruns,
    /// The ledger's counts add up.
    Counts,
    /// All servers that know equally much agree.
    Agreement,
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
pub(crate) struct Checks {
    truth: Ledger,
    /// How often somebody wanted a task again that had ended.
    wanted: BTreeMap<TaskId, u64>,
    endings: endings::Watch,
    attempts: attempts::Watch,
    once: once::Watch,
    violation: Option<Violation>,
}

/// What a property says: nothing, or what is wrong.
type Judgement = Result<(), String>;

impl Checks {
    fn note(&mut self, property: Property, judgement: Judgement) {
        if let Err(what) = judgement {
            self.violation.get_or_insert(Violation { property, what });
        }
    }

    /// What is agreed on.
    pub(crate) const fn truth(&self) -> &Ledger {
        &self.truth
    }

    /// This is committed. Says what came of it.
    pub(crate) fn on_commit(&mut self, batch: &Batch) -> Vec<Effect> {
        let effects = self.truth.apply(batch.clone());
        for effect in &effects {
            if let Effect::Wanted(tasks) = effect {
                tasks.iter().for_each(|task| *self.wanted.entry(task).or_default() += 1);
            }
            let judgement = self.endings.on_effect(effect, &self.wanted);
            self.note(Property::Endings, judgement);
        }
        self.note(Property::Counts, counts::check(&self.truth));
        effects
    }

    /// A server has applied everything that is committed.
    pub(crate) fn on_apply(&mut self, server: NodeId, ledger: &Ledger) {
        self.note(Property::Agreement, agreement::check(server, ledger, &self.truth));
    }

    /// A leader that knows this much hands an attempt out; these workers, which it knows, have something.
    pub(crate) fn on_handout(&mut self, server: NodeId, held: Held, ledger: &Ledger, witnesses: &[Witness]) {
        self.note(Property::Handouts, handouts::on_handout(server, held, ledger));
        let judgement = self.attempts.on_handout(server, held);
        self.note(Property::Attempts, judgement);
        // Whoever cancels a task and wants it again may have it twice for a moment.
        if !self.is_wanted_again(held.task) {
            self.note(Property::Reruns, reruns::on_handout(server, held, ledger, witnesses));
        }
    }

    /// A worker begins with an attempt.
    pub(crate) fn on_start(&mut self, worker: NodeId, held: Held) {
        let is_once = self.truth.job(held.task.job).is_some_and(|job| job.spec.is_once);
        let judgement = self.once.on_start(worker, held, is_once, &self.wanted);
        self.note(Property::Once, judgement);
    }

    /// An attempt begins while another one at the same task runs, its result is kept somewhere, or it has ended already. That
    /// may be if a worker was out of reach; whoever cancels a task and wants it again may have it twice, too.
    pub(crate) fn on_double_start(&mut self, worker: NodeId, held: Held, may_be: bool) {
        if !may_be && !self.is_wanted_again(held.task) {
            self.note(
                Property::Reruns,
                Err(format!("worker {worker} starts {held}, which runs or has run already")),
            );
        }
    }

    /// Has somebody wanted this task again after it had ended?
    pub(crate) fn is_wanted_again(&self, task: TaskId) -> bool {
        self.wanted.contains_key(&task)
    }

    /// The run is over. Have the results that workers keep been taken?
    pub(crate) fn on_end(&mut self, kept: usize) {
        if self.violation.is_none() {
            self.note(Property::Endings, endings::on_end(&self.truth, kept));
        }
    }

    pub(crate) const fn is_violated(&self) -> bool {
        self.violation.is_some()
    }

    pub(crate) fn verdict(self) -> Option<Violation> {
        self.violation
    }
}

impl Property {
    /// The property's name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Endings => "endings",
            Self::Handouts => "handouts",
            Self::Attempts => "attempts",
            Self::Once => "once",
            Self::Reruns => "reruns",
            Self::Counts => "counts",
            Self::Agreement => "agreement",
        }
    }
}
