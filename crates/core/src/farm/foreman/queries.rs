//! What people can ask a foreman: what runs where, and why something does not run yet.
//!
//! Nothing here changes anything, and only the leader's foreman knows more than the ledger says.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeBounds;

use super::Foreman;
use crate::WorkerId;
use crate::farm::leadership::{Assigned, KnownWorker, Leadership, Phase};
use crate::ledger::loans::home_of;
use crate::ledger::{JobId, State, TaskId};
use crate::loan::lending::Situation;

/// Where a task stands, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskStatus {
    /// There is no such task.
    Unknown,
    /// Nothing happens to it any more.
    Ended(State),
    /// This server does not lead, so it does not know.
    NotLeading,
    /// It is with a worker.
    With {
        /// Which one.
        worker: String,
        /// How many tasks that worker has to end before; with none, it runs.
        before: u64,
    },
    /// It must not start twice, and that it starts is being written down.
    Starting(String),
    /// It has ended, and that is being written down.
    Reported(String),
    /// A new leader waits until these workers have said what they have.
    Settling(Vec<String>),
    /// There is no worker.
    NoWorker,
    /// All workers are told to take nothing new.
    AllDraining,
    /// Those that could take it have no room for results on their disks.
    DisksFull(Vec<String>),
    /// It needs more slots than any worker has.
    TooLarge {
        /// How many it needs.
        slots: u16,
        /// How many the largest worker has.
        most: u32,
    },
    /// There is no free slot, and so many tasks come first.
    Waits {
        /// How many.
        before: u64,
    },
}

impl Foreman {
    /// How things are in this farm, for whoever lends and borrows; nothing as long as that is not settled.
    #[must_use]
    pub fn situation(&self, now_ms: u64) -> Option<Situation> {
        let leadership = self.leadership.as_ref().filter(|leadership| leadership.older.is_none())?;
        let occupied: BTreeSet<WorkerId> = leadership.assigned.values().map(|hand| hand.worker).collect();
        let open: Vec<(&WorkerId, &KnownWorker)> =
            leadership.workers.iter().filter(|(_, worker)| leadership.is_open(worker, &self.ledger)).collect();
        let is_idle = |(id, worker): &&(&WorkerId, &KnownWorker)| {
            home_of(&worker.name).is_none() && worker.held.is_empty() && !occupied.contains(*id)
        };
        let name_and_slots = |(_, worker): &(&WorkerId, &KnownWorker)| {
            (worker.name.clone(), u16::try_from(worker.slots).unwrap_or(u16::MAX))
        };
        let guests = self.ledger.workers().keys().filter(|name| home_of(name).is_some());
        Some(Situation {
            now_ms,
            queued: self.waiting(),
            free: open.iter().map(|(_, worker)| worker.slots.saturating_sub(worker.busy)).sum(),
            idle: open.iter().filter(is_idle).map(name_and_slots).collect(),
            guests: guests.cloned().collect(),
        })
    }

    /// Where a task stands, and why.
    #[must_use]
    pub fn status(&self, task: TaskId) -> TaskStatus {
        let Some((job, state)) = self.ledger.job(task.job).and_then(|job| Some((job, job.state(task.index)?)))
        else {
            return TaskStatus::Unknown;
        };
        let Some(leadership) = &self.leadership else {
            return if state.is_final() { TaskStatus::Ended(state) } else { TaskStatus::NotLeading };
        };
        match leadership.assigned.get(&task) {
            _ if state.is_final() => return TaskStatus::Ended(state),
            Some(hand) => return self.in_hand(leadership, task, hand.worker, hand.phase),
            None => {}
        }
        if leadership.is_older(task.job) {
            return TaskStatus::Settling(leadership.unreported.iter().cloned().collect());
        }
        let slots = job.spec.slots();
        let most = leadership.workers.values().filter(|worker| !worker.is_gone).map(|worker| worker.slots).max();
        match most {
            None => TaskStatus::NoWorker,
            Some(most) if most < u32::from(slots) => TaskStatus::TooLarge { slots, most },
            Some(_) if !leadership.fits_somewhere(&self.ledger, job) => TaskStatus::AllDraining,
            Some(_) => match leadership.without_room(&self.ledger, job) {
                full if full.is_empty() => {
                    TaskStatus::Waits { before: leadership.queue.before(job.spec.priority, task) }
                }
                full => TaskStatus::DisksFull(full),
            },
        }
    }

    fn in_hand(&self, leadership: &Leadership, task: TaskId, worker: WorkerId, phase: Phase) -> TaskStatus {
        let Some(worker) = leadership.workers.get(&worker) else { return TaskStatus::NoWorker };
        let name = worker.name.clone();
        match phase {
            Phase::Starting => TaskStatus::Starting(name),
            Phase::Reported => TaskStatus::Reported(name),
            Phase::Out if self.begun(worker).any(|begun| begun == task) => {
                TaskStatus::With { worker: name, before: 0 }
            }
            Phase::Out => {
                let before = worker.held.values().take_while(|held| **held != task).count() as u64;
                TaskStatus::With { worker: name, before }
            }
        }
    }

    /// What a worker runs, as far as its leader can tell: it begins in the order in which it got things.
    fn begun<'a>(&'a self, worker: &'a KnownWorker) -> impl Iterator<Item = TaskId> + 'a {
        let mut free = worker.slots;
        worker.held.values().copied().take_while(move |task| {
            let slots = self.ledger.job(task.job).map_or(1, |job| u32::from(job.spec.slots()));
            let fits = free >= slots;
            free = free.saturating_sub(slots);
            fits
        })
    }

    /// How many tasks wait for a slot: those that are handed out in advance and have not begun wait, too. This is the one
    /// number that people, neighbours and the rules of lending go by.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let counts = self.ledger.counts();
        let Some(leadership) = &self.leadership else { return counts.waiting };
        let in_advance = |worker: &KnownWorker| worker.held.len() - self.begun(worker).count();
        let in_advance: usize = leadership.workers.values().map(in_advance).sum();
        // What has started, as agreed on, does not wait, though a new leader may not have heard yet where it is.
        let starts = self.ledger.starts().filter(|start| !leadership.assigned.contains_key(&start.task));
        let elsewhere = if counts.started > 0 { starts.count() } else { 0 };
        (counts.waiting + counts.started + in_advance as u64)
            .saturating_sub((leadership.assigned.len() + elsewhere) as u64)
    }

    /// How many tasks neither wait nor have ended: they run, as far as the leader can tell, or that they start or have ended is
    /// being written down.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        let counts = self.ledger.counts();
        (counts.waiting + counts.started).saturating_sub(self.waiting())
    }

    /// The same tasks, one by one.
    #[must_use]
    pub fn running(&self) -> BTreeSet<TaskId> {
        let workers = self.leadership.iter().flat_map(|leadership| leadership.workers.values());
        workers.flat_map(|worker| self.begun(worker)).chain(self.being_written(JobId(0)..)).collect()
    }

    /// How many of them are of one job.
    #[must_use]
    pub fn running_of(&self, job: JobId) -> u64 {
        let workers = self.leadership.iter().flat_map(|leadership| leadership.workers.values());
        let begun = workers.flat_map(|worker| self.begun(worker)).filter(|task| task.job == job).count();
        (begun + self.being_written(job..=job).count()) as u64
    }

    /// Tasks of these jobs that no worker has: that they have ended, or start on one that has gone meanwhile, is being written
    /// down.
    fn being_written(&self, jobs: impl RangeBounds<JobId>) -> impl Iterator<Item = TaskId> {
        let task = |index: u64| move |job: &JobId| TaskId { job: *job, index };
        let range = (jobs.start_bound().map(task(0)), jobs.end_bound().map(task(u64::MAX)));
        let hands = self
            .leadership
            .iter()
            .flat_map(move |leadership| leadership.assigned.range(range).map(move |found| (leadership, found)));
        let is_held = |leadership: &Leadership, hand: &Assigned| {
            leadership.workers.get(&hand.worker).is_some_and(|worker| worker.held.contains_key(&hand.attempt))
        };
        hands.filter(move |(leadership, (_, hand))| !is_held(leadership, hand)).map(|(_, (task, _))| *task)
    }

    /// The workers that are here, each with how many tasks it runs.
    pub fn running_per_worker(&self) -> impl Iterator<Item = (&str, u64)> {
        let workers = self.leadership.iter().flat_map(|leadership| leadership.workers.values());
        let present = workers.filter(|worker| !worker.is_gone);
        present.map(|worker| (worker.name.as_str(), self.begun(worker).count() as u64))
    }
}
