//! The other threads of this server, and what they are told at the end of a turn.
//!
//! To wake a thread takes a processor as long as a short turn does. So peers and disk come first: what a turn has for them is on its
//! way before another thread hears of it. And what can wait (records of keys, who leads elsewhere) wakes no thread: it is told with
//! what comes next, at the latest after a moment.

use std::time::Duration;

use bytes::Bytes;
use primus_core::{ServerId, Term};
use primus_server::leases;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::budget::{Budget, Weight};
use crate::elections::Elections;
use crate::farm::{ToFarm, UNAPPLIED_LEN_MAX};
use crate::leases::{Arrived, Teller};

/// So many records go to the farm in one word, and so many bytes: memory that comes back from another thread in larger pieces is dear.
const RECORDS_MAX: usize = 1000;
const RECORDS_LEN_MAX: usize = 1 << 20;
/// How long the farm can go without hearing what can wait.
const PATIENCE: Duration = Duration::from_millis(20);

/// The other threads.
pub(super) struct Others {
    pub(super) elections: Elections,
    farm: mpsc::UnboundedSender<ToFarm>,
    leases: Teller,
    leader: watch::Sender<(Option<ServerId>, Term)>,
    for_leases: Vec<leases::Command>,
    for_farm: Vec<ToFarm>,
    /// What comes behind that: records of the log, and how many bytes they have.
    records: (Vec<(u64, Bytes)>, usize),
    /// How much of the log the farm may still have to apply.
    unapplied: Budget,
    /// Must the farm hear all this at the end of this turn? If not, when?
    is_urgent: bool,
    until: Option<Instant>,
}

impl Others {
    pub(super) fn new(
        farm: mpsc::UnboundedSender<ToFarm>,
        (leases, leader): (Teller, watch::Sender<(Option<ServerId>, Term)>),
        elections: Elections,
    ) -> Self {
        Self {
            elections,
            farm,
            leases,
            leader,
            for_leases: Vec::new(),
            for_farm: Vec::new(),
            records: Default::default(),
            unapplied: Budget::new(UNAPPLIED_LEN_MAX),
            is_urgent: false,
            until: None,
        }
    }

    pub(super) fn tell_leases(&mut self, command: leases::Command) {
        self.for_leases.push(command);
    }

    /// Does anything of their own depend on who leads? If not, they hear it when they are asked something.
    pub(super) fn tell_leader(&mut self, leader: Option<ServerId>, term: Term, is_urgent: bool) {
        self.leader.send_replace((leader, term));
        if is_urgent {
            _ = self.leases.send((Arrived::Leader, None));
        }
        self.tell_farm_soon(ToFarm::Leader(leader));
        self.hurry_if(is_urgent);
    }

    /// In the order of the log.
    pub(super) fn tell_farm(&mut self, told: ToFarm) {
        self.tell_farm_soon(told);
        self.hurry();
    }

    /// The same for what can wait.
    pub(super) fn tell_farm_soon(&mut self, told: ToFarm) {
        self.close_records();
        self.for_farm.push(told);
        self.hurry_if(false);
    }

    /// This is agreed on. What it means is for the farm to say.
    pub(super) fn pass_on(&mut self, index: u64, record: Bytes, is_urgent: bool) {
        self.records.1 += record.len();
        self.records.0.push((index, record));
        let is_full = self.records.0.len() >= RECORDS_MAX || self.records.1 > RECORDS_LEN_MAX;
        if is_full {
            self.close_records();
        }
        self.hurry_if(is_full || is_urgent);
    }

    /// Somebody is about to look.
    pub(super) const fn hurry(&mut self) {
        self.is_urgent = true;
    }

    /// What the farm will have to apply.
    pub(super) fn weigh(&self, len: usize) -> Weight {
        self.unapplied.add(len)
    }

    /// Is there so much for the farm that it must not get more?
    pub(super) fn is_farm_behind(&self) -> bool {
        self.unapplied.is_spent()
    }

    pub(super) const fn due(&self) -> Option<Instant> {
        self.until
    }

    /// The turn is over. If one of the threads has failed, this server is about to end.
    pub(super) fn end_turn(&mut self, now: Instant) {
        for command in self.for_leases.drain(..) {
            _ = self.leases.send((Arrived::ToFarm(command), None));
        }
        if self.is_urgent || self.until.is_some_and(|until| until <= now) {
            (self.is_urgent, self.until) = (false, None);
            self.close_records();
            for told in self.for_farm.drain(..) {
                _ = self.farm.send(told);
            }
        }
    }

    fn hurry_if(&mut self, is_urgent: bool) {
        self.is_urgent |= is_urgent;
        if !self.is_urgent && self.until.is_none() {
            self.until = Some(Instant::now() + PATIENCE);
        }
    }

    fn close_records(&mut self) {
        let (records, len) = std::mem::take(&mut self.records);
        if !records.is_empty() {
            let weight = self.weigh(len);
            self.for_farm.push(ToFarm::Committed(records, weight));
        }
    }
}
