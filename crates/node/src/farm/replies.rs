//! Who waits for an answer of the farm, under which ticket.

use std::collections::BTreeMap;

use primus_core::ledger::Effect;
use primus_core::loan::lending::CannotLend;
use primus_server::farm::{Answer, Farm, Refusal, Ticket};

use super::Look;
use crate::handle::{Reply, Unable};

/// How many may wait before those are looked for who have gone away.
const SWEPT_AT: usize = 100_000;

/// All of them.
#[derive(Default)]
pub(super) struct Replies {
    last: u64,
    waiting: BTreeMap<Ticket, Waiting>,
}

/// Where an answer goes.
pub(super) enum Waiting {
    Entered(Reply<Vec<Effect>>),
    Lent(Reply<Result<Vec<Effect>, CannotLend>>),
    Done(Reply<()>),
    Look(Look),
}

impl Replies {
    pub(super) fn add(&mut self, waiting: Waiting) -> Ticket {
        self.last += 1;
        self.waiting.insert(Ticket(self.last), waiting);
        Ticket(self.last)
    }

    pub(super) fn answer(&mut self, ticket: Ticket, answer: Result<Answer, Refusal>, farm: &Farm) {
        // The receiver may have gone away.
        match (self.waiting.remove(&ticket), answer) {
            (Some(Waiting::Entered(reply)), Ok(Answer::Entered(effects))) => _ = reply.send(Ok(effects)),
            (Some(Waiting::Lent(reply)), Ok(Answer::Entered(effects))) => _ = reply.send(Ok(Ok(effects))),
            (Some(Waiting::Lent(reply)), Ok(Answer::CannotLend(cannot))) => _ = reply.send(Ok(Err(cannot))),
            (Some(Waiting::Done(reply)), Ok(_)) => _ = reply.send(Ok(())),
            (Some(Waiting::Look(look)), Ok(_)) => look(Ok(farm)),
            (Some(waiting), Err(refusal)) => waiting.refuse(refusal.into()),
            (Some(Waiting::Entered(_) | Waiting::Lent(_)) | None, _) => {}
        }
    }

    /// Those who have gone away, if there are too many.
    pub(super) fn take_gone(&mut self) -> Vec<Ticket> {
        if self.waiting.len() < SWEPT_AT {
            return Vec::new();
        }
        self.waiting.extract_if(.., |_, waiting| waiting.is_gone()).map(|(ticket, _)| ticket).collect()
    }
}

impl Waiting {
    pub(super) fn refuse(self, unable: Unable) {
        match self {
            Self::Entered(reply) => _ = reply.send(Err(unable)),
            Self::Lent(reply) => _ = reply.send(Err(unable)),
            Self::Done(reply) => _ = reply.send(Err(unable)),
            Self::Look(look) => look(Err(unable)),
        }
    }

    /// What was entered counts although nobody waits for it.
    fn is_gone(&self) -> bool {
        matches!(self, Self::Done(reply) if reply.is_closed())
    }
}

impl From<Refusal> for Unable {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotLeading(leader) => Self::NotLeading(leader),
            Refusal::NoLeader => Self::NoLeader,
            Refusal::Busy => Self::Busy,
            Refusal::DiskFull => Self::DiskFull,
            Refusal::DisksFull => Self::DisksFull,
            Refusal::StateFull(max) => Self::StateFull(max),
            Refusal::Unknown => Self::Unknown,
        }
    }
}
