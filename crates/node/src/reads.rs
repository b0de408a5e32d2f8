//! Questions under way: how much of the log must be applied to know of everything that was acknowledged before?
//!
//! The log says how far that is, once a majority has said that this server leads; whoever asks then looks at what is applied
//! that far. Nothing is read here.

use std::collections::BTreeMap;

use crate::budget::Weight;
use crate::handle::{Reply, Unable};

/// How many of them may wait for a new leader to be ready.
const EARLY_MAX: usize = 1024;

/// A question of somebody who wants to look at the farm.
#[derive(Debug)]
pub struct Read {
    reply: Reply<(u64, Weight)>,
    weight: Weight,
}

impl Read {
    /// The answer says how far the farm must be, and brings back what the question weighs.
    pub(crate) const fn new(reply: Reply<(u64, Weight)>, weight: Weight) -> Self {
        Self { reply, weight }
    }

    pub(crate) fn answer(self, answer: Result<u64, Unable>) {
        // Whoever asked may have gone away.
        _ = self.reply.send(answer.map(|index| (index, self.weight)));
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Reads {
    last: u64,
    /// Those that the log was asked for, by number.
    asked: BTreeMap<u64, Read>,
    /// Those that wait until a new leader knows everything that its predecessors acknowledged.
    early: Vec<Read>,
    /// Those that wait until so much of the log is known here.
    late: BTreeMap<u64, Vec<Read>>,
}

impl Reads {
    /// Gives a read the number under which the log is to be asked.
    pub(crate) fn ask(&mut self, read: Read) -> u64 {
        self.last += 1;
        self.asked.insert(self.last, read);
        self.last
    }

    /// This much must be known.
    pub(crate) fn on_readable(&mut self, number: u64, index: u64) {
        if let Some(read) = self.asked.remove(&number) {
            self.late.entry(index).or_default().push(read);
        }
    }

    /// The log cannot say yet, or not here: it waits if this server leads and will be ready soon.
    pub(crate) fn on_unreadable(&mut self, number: u64, leads: bool, unable: Unable) {
        let Some(read) = self.asked.remove(&number) else { return };
        if leads && self.early.len() < EARLY_MAX {
            self.early.push(read);
        } else {
            read.answer(Err(unable));
        }
    }

    /// Those that came too early.
    pub(crate) fn take_early(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.early)
    }

    /// Those that can be answered, because the log is known up to here.
    pub(crate) fn take_ready(&mut self, applied: u64) -> Option<Vec<Read>> {
        let first = *self.late.first_key_value()?.0;
        (first <= applied).then(|| {
            let rest = self.late.split_off(&(applied + 1));
            std::mem::replace(&mut self.late, rest).into_values().flatten().collect()
        })
    }

    /// Nobody here can say.
    pub(crate) fn refuse(&mut self, unable: Unable) {
        let asked = std::mem::take(&mut self.asked).into_values();
        asked.chain(self.take_early()).for_each(|read| read.answer(Err(unable)));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;
    use crate::budget::Budget;

    #[test]
    fn reads_that_come_too_early_have_a_bound_and_the_rest_is_refused_at_once() {
        let (mut reads, room) = (Reads::default(), Budget::new(2 * EARLY_MAX as u32));
        let ask = |reads: &mut Reads| {
            let (reply, answer) = oneshot::channel();
            let number = reads.ask(Read::new(reply, room.take(1).expect("there is room")));
            reads.on_unreadable(number, true, Unable::Busy);
            answer
        };
        let mut waiting: Vec<_> = (0..EARLY_MAX).map(|_| ask(&mut reads)).collect();
        assert_eq!(ask(&mut reads).try_recv().expect("it is answered").err(), Some(Unable::Busy));
        assert!(waiting.iter_mut().all(|answer| answer.try_recv().is_err()), "the others wait");
        let early = reads.take_early();
        assert_eq!(early.len(), EARLY_MAX);
        // They take their place until they are answered, though nobody waits for them any more.
        drop(waiting);
        assert!(room.take(EARLY_MAX + 1).is_none());
        drop(early);
        assert!(room.take(2 * EARLY_MAX).is_some());
    }
}
