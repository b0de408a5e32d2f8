//! How much of what workers send may be in memory at once, all links together: words that are not whole yet, and words that
//! the farm has not come to. A word of a mebibyte can take several in memory, so the limit is low.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What all links may hold together, in bytes.
pub(super) const UNREAD_LEN_MAX: usize = 64 << 20;
/// What a link may hold without being counted: honest words are seldom longer, and nobody can keep others from saying one.
const UNCOUNTED_LEN: usize = 64 << 10;

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
}
