//! How the load of a day is spread over farms and time, and when tasks come.

use std::f64::consts::TAU;

use super::Day;
use crate::chance::Chance;

/// Which share of the load does not follow the bursts, so that nobody is ever without any.
const STEADY: f64 = 0.2;
/// The mean of the curve before it is scaled.
const CURVE_MEAN: f64 = 1.5;

/// A shape of the load; each farm gets as much as the others, unless it says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A rise and a fall a day, at each farm later than at the one before it.
    Curve,
    /// Nearly everything goes to one farm, to the next one after so long, and so on, round and round.
    Bursts {
        /// How long it is one farm's turn.
        turn_us: u64,
    },
    /// Nearly everything goes to the first farm, all day.
    One,
    /// The same everywhere, at any time.
    Even,
}

impl Load {
    /// How much a farm gets at a moment; 1 is the mean over all farms and the day.
    fn share(self, day: &Day, farm: usize, at_us: u64) -> f64 {
        let place = farm as f64 / day.farms as f64;
        match self {
            Self::Curve => {
                let hour = at_us as f64 / day.day_us as f64;
                (1.0 - (TAU * (hour - place)).cos()).powi(2) / CURVE_MEAN
            }
            Self::Bursts { turn_us } => {
                let whose = at_us / turn_us.max(1) % day.farms as u64;
                burst(day, whose == farm as u64)
            }
            Self::One => burst(day, farm == 0),
            Self::Even => 1.0,
        }
    }

    /// No share is greater.
    fn share_max(self, day: &Day) -> f64 {
        match self {
            Self::Curve => 4.0 / CURVE_MEAN,
            Self::Bursts { .. } | Self::One => burst(day, true),
            Self::Even => 1.0,
        }
    }
}

fn burst(day: &Day, is_here: bool) -> f64 {
    if is_here { STEADY + (1.0 - STEADY) * day.farms as f64 } else { STEADY }
}

/// The tasks of a farm, one after the other.
#[derive(Debug)]
pub(super) struct Source {
    farm: usize,
    chance: Chance,
    now_us: u64,
}

impl Source {
    pub(super) const fn new(farm: usize, chance: Chance) -> Self {
        Self { farm, chance, now_us: 0 }
    }

    /// When the next task comes, and how long it takes; none after the end of the day.
    ///
    /// Tasks are drawn as if the farm's share were always the greatest, and only as many of them are kept as the share says.
    pub(super) fn next(&mut self, day: &Day) -> Option<(u64, u64)> {
        let share_max = day.load.share_max(day);
        let busy_slots = day.slots_each() as f64 * day.busy_percent as f64 / 100.0;
        let every_us = day.task_us as f64 / (busy_slots * share_max);
        while self.now_us < day.day_us {
            self.now_us += self.chance.length(every_us).max(1);
            if self.chance.part() * share_max < day.load.share(day, self.farm, self.now_us) {
                let takes_us = self.chance.length(day.task_us as f64).max(1);
                return Some((self.now_us, takes_us)).filter(|_| self.now_us < day.day_us);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_is_as_much_as_any_other() {
        let turn_us = 1_000_000;
        for load in [Load::Curve, Load::Bursts { turn_us }, Load::One, Load::Even] {
            let day = Day { farms: 4, load, day_us: 16_000_000, ..Day::default() };
            let moments = (0..16_000).map(|ms| ms * 1000 + 500);
            let shares: Vec<f64> =
                moments.flat_map(|at_us| (0..4).map(move |farm| load.share(&day, farm, at_us))).collect();
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            assert!((mean - 1.0).abs() < 1e-6, "{load:?}: {mean}");
            assert!(shares.iter().all(|share| (0.0..=load.share_max(&day) + 1e-9).contains(share)), "{load:?}");
        }
    }
}
