//! How large a number of a peer may be: terms, rounds, and places in a log; and how long a list.
//!
//! Such a number only grows, by one at a time, and everybody follows the greatest. So whoever names one near the end of
//! the numbers stops everybody for good, and no sum with it can be trusted. Machines refuse what nobody can have reached:
//! a million terms a second, for a hundred thousand years, come to less than [`NUMBER_MAX`].

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;

/// No term, round or place in a log is greater.
pub const NUMBER_MAX: u64 = 1 << 62;

/// No term and no round of a peer is further ahead of the own one. A server that was away for a year has missed less.
pub const LEAP_MAX: u64 = 1 << 32;

/// Why a machine ignores what names another number.
pub const ABSURD: &str = "a number that nobody can have reached";

/// True if a peer can have come to this number, while this node is at its own.
#[must_use]
pub const fn is_credible(number: u64, own: u64) -> bool {
    number <= NUMBER_MAX && number.saturating_sub(own) <= LEAP_MAX
}

/// Reads a list of a peer that must not be longer: a short item takes many times its length in memory.
///
/// # Errors
/// If it is longer, or none.
pub fn at_most<'de, const MAX: usize, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: serde::Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    deserializer.deserialize_seq(Few::<MAX, T>(PhantomData))
}

struct Few<const MAX: usize, T>(PhantomData<T>);

impl<'de, const MAX: usize, T: serde::Deserialize<'de>> serde::de::Visitor<'de> for Few<MAX, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX} items")
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            if all.len() == MAX {
                return Err(serde::de::Error::invalid_length(MAX + 1, &self));
            }
            all.push(item);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_believed_up_to_a_leap_and_never_beyond_the_end() {
        for (number, own, is_believed) in [
            (0, 0, true),
            (LEAP_MAX, 0, true),
            (LEAP_MAX + 1, 0, false),
            (LEAP_MAX + 8, 8, true),
            (3, u64::MAX, true),
            (NUMBER_MAX, NUMBER_MAX - 1, true),
            (NUMBER_MAX + 1, NUMBER_MAX, false),
            (u64::MAX, u64::MAX, false),
        ] {
            assert_eq!(is_credible(number, own), is_believed, "{number} beside {own}");
        }
    }
}
