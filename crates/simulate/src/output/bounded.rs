//! What is kept of something long: how it began and how it ended. The middle is counted.

use std::collections::VecDeque;

/// How much of the end is kept: whoever looks into a failure wants to see how it ended.
const LAST_MAX: usize = 20;

/// The beginning and the end of a row of items.
#[derive(Debug)]
pub struct Bounded<T> {
    /// How it began; all of it, if it is short.
    pub beats: Vec<T>,
    most: usize,
    /// How a long one ended.
    pub last: VecDeque<T>,
    /// How many items between both are not kept.
    pub left_out: usize,
}

impl<T> Bounded<T> {
    /// Keeps so many from the beginning.
    pub(crate) const fn new(most: usize) -> Self {
        Self { beats: Vec::new(), most, last: VecDeque::new(), left_out: 0 }
    }

    pub(crate) fn push(&mut self, item: T) {
        if self.beats.len() < self.most {
            return self.beats.push(item);
        }
        self.last.push_back(item);
        if self.last.len() > LAST_MAX {
            self.last.pop_front();
            self.left_out += 1;
        }
    }

    /// The newest item.
    pub(crate) fn newest(&mut self) -> Option<&mut T> {
        self.last.back_mut().or(self.beats.last_mut())
    }

    /// All that is kept, told line by line; `gap` says how much is left out.
    pub(crate) fn lines<I: IntoIterator<Item = String>>(
        &self,
        tell: impl Fn(&T) -> I,
        gap: impl Fn(usize) -> String,
    ) -> Vec<String> {
        let mut lines: Vec<String> = self.beats.iter().flat_map(&tell).collect();
        lines.extend((self.left_out > 0).then(|| gap(self.left_out)));
        lines.extend(self.last.iter().flat_map(tell));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_left_out_and_counted() {
        let mut kept = Bounded::new(3);
        (0..40).for_each(|number| kept.push(number));
        assert_eq!((kept.beats, kept.left_out), (vec![0, 1, 2], 17));
        assert_eq!(kept.last.iter().copied().collect::<Vec<_>>(), (20..40).collect::<Vec<_>>());
    }
}
