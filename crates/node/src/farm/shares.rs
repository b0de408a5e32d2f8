//! How much of what workers send may be in memory at once, all links together: words that are not whole yet, and words that
//! the farm has not come to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all links may hold together, in bytes.
pub(super) const UNREAD_LEN_MAX: usize = 64 << 20;
/// What a link may hold without being counted: honest words are seldom longer, and nobody can keep others from saying one.
const UNCOUNTED_LEN: usize = 64 << 10;

/// How many times its length a word may take in memory, because short items become long ones...
const GROWTH: usize = 16;
/// ...but no more than this is gained, because lists have bounds ([`primus_core::farm::HELD_MAX`], [`primus_core::farm::ENDED_MAX`]).
const GROWN_MAX: usize = 2 << 20;

/// How much memory a word may take that has been read.
pub(super) fn taken_by(len: usize) -> usize {
    len + (GROWTH * len).min(GROWN_MAX)
}

/// The part of one link, or of one word. It is given back when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Share {
    all: Arc<AtomicUsize>,
    counted: usize,
}

impl Share {
    /// An empty part of the same whole.
    pub(super) fn another(&self) -> Self {
        Self { all: Arc::clone(&self.all), counted: 0 }
    }

    /// From now on this part has so many bytes. False if that is too much for all together.
    pub(super) fn resize(&mut self, len: usize) -> bool {
        let before = std::mem::replace(&mut self.counted, if len > UNCOUNTED_LEN { len } else { 0 });
        if self.counted <= before {
            self.all.fetch_sub(before - self.counted, Ordering::Relaxed);
            return true;
        }
        let more = self.counted - before;
        self.all.fetch_add(more, Ordering::Relaxed) + more <= UNREAD_LEN_MAX
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use primus_core::Term;
    use primus_core::farm::{ENDED_MAX, HELD_MAX, Message};
    use primus_core::ledger::{Attempt, Held, JobId, Outcome, Report, Tail, TaskId, Verdict};
    use primus_wire::work::FromWorker;

    use super::*;

    #[test]
    fn all_together_hold_no_more_than_the_limit() {
        let mut first = Share::default();
        let (mut second, mut third) = (first.another(), first.another());
        assert!(first.resize(UNREAD_LEN_MAX - UNCOUNTED_LEN));
        assert!(second.resize(UNCOUNTED_LEN), "that is not counted");
        assert!(!second.resize(2 * UNCOUNTED_LEN));
        drop(second);
        assert!(first.resize(UNCOUNTED_LEN));
        assert!(third.resize(UNREAD_LEN_MAX));
        drop(third);
        assert_eq!(first.all.load(Ordering::Relaxed), 0);
    }

    /// What a worker can say that grows most when it is read.
    #[test]
    fn no_word_takes_more_memory_than_is_counted() {
        let held =
            Held { task: TaskId { job: JobId(1), index: 1 }, attempt: Attempt { term: Term(1), sequence: 1 } };
        let written = |word: &FromWorker| postcard::to_stdvec(word).expect("it can be written").len();
        for count in [1, 1000, HELD_MAX] {
            let len = written(&FromWorker::Farm(Message::GaveBack(vec![held; count])));
            assert!(count * size_of::<Held>() <= taken_by(len), "{count} held, {len} bytes");
        }
        let (worker, verdict) = (String::new(), Verdict::Lost);
        let (stdout, stderr) = (Tail::default(), Tail::default());
        let outcome = Outcome { attempt: held.attempt, worker, verdict, started_us: 0, took_us: 0, stdout, stderr };
        let report = Report { task: held.task, outcome };
        for count in [1, ENDED_MAX] {
            let len = written(&FromWorker::Farm(Message::Ended(vec![report.clone(); count])));
            assert!(count * size_of::<Report>() <= taken_by(len), "{count} ended, {len} bytes");
        }
    }
}
