//! All chance of a run, drawn from one seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded source of random numbers whose values never change between versions or platforms: a seed that failed
/// once must fail in the same way for ever.
#[derive(Debug, Clone)]
pub struct Chance(Xoshiro256PlusPlus);

impl Chance {
    /// The source that belongs to this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number from 0 up to, not including, `bound`; 0 if there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a wide product: unbiased enough (2⁻⁶⁴) and free of divisions.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `min` to `max`, both included.
    pub fn between(&mut self, min: u64, max: u64) -> u64 {
        if min >= max { min } else { min + self.below((max - min).saturating_add(1)) }
    }

    /// True this many times in a million.
    pub fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < u64::from(per_million)
    }

    /// More than 0, and 1 at most.
    pub fn part(&mut self) -> f64 {
        (self.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A length with this mean: short ones are many, long ones few (exponential).
    pub fn length(&mut self, mean: f64) -> u64 {
        (-self.part().ln() * mean) as u64
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("an index fits")]
    }

    /// Puts these into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.between(0, last as u64)).expect("an index fits");
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut chance = Chance::new(7);
        let drawn: Vec<u64> = (0..4).map(|_| chance.below(1000)).collect();
        assert_eq!(drawn, [55, 172, 717, 427]);
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut chance = Chance::new(1);
        for _ in 0..10_000 {
            assert!((3..=5).contains(&chance.between(3, 5)));
        }
        assert_eq!(chance.between(9, 2), 9);
        assert_eq!(chance.below(0), 0);
    }
}
