//! A number that changes in time, and how long it had which value.

use std::collections::BTreeMap;

/// A number and its history.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    value: u64,
    since_us: u64,
    lasted_us: BTreeMap<u64, u64>,
}

impl Gauge {
    /// From now on it has this value.
    pub(super) fn set(&mut self, value: u64, now_us: u64) {
        *self.lasted_us.entry(self.value).or_default() += now_us - self.since_us;
        (self.value, self.since_us) = (value, now_us);
    }

    pub(super) const fn value(&self) -> u64 {
        self.value
    }

    /// The value times how long it lasted, for all of them.
    pub(super) fn sum_us(&self) -> u128 {
        self.lasted_us.iter().map(|(value, us)| u128::from(*value) * u128::from(*us)).sum()
    }

    fn total_us(&self) -> u64 {
        self.lasted_us.values().sum()
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum_us() as f64 / self.total_us().max(1) as f64
    }

    /// The value that was not exceeded for so many hundredths of the time.
    pub(super) fn percentile(&self, percent: u64) -> u64 {
        let wanted_us = u128::from(self.total_us()) * u128::from(percent);
        let mut so_far_us = 0;
        let reaches = |(_, us): &(&u64, &u64)| {
            so_far_us += u128::from(**us) * 100;
            so_far_us >= wanted_us
        };
        self.lasted_us.iter().find(reaches).map_or(0, |(value, _)| *value)
    }

    /// The greatest value that it had for any time at all.
    pub(super) fn max(&self) -> u64 {
        self.lasted_us.iter().rfind(|(_, us)| **us > 0).map_or(0, |(value, _)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_count_by_how_long_they_lasted() {
        let mut gauge = Gauge::default();
        for (value, now_us) in [(4, 90), (7, 90), (1, 96), (0, 100)] {
            gauge.set(value, now_us);
        }
        assert_eq!((gauge.sum_us(), gauge.value(), gauge.max()), (46, 0, 7));
        assert_eq!([90, 91, 94, 95, 100].map(|percent| gauge.percentile(percent)), [0, 1, 1, 7, 7]);
        assert!((gauge.mean() - 0.46).abs() < 1e-9);
        let never = Gauge::default();
        assert_eq!((never.percentile(95), never.max(), never.sum_us()), (0, 0, 0));
    }
}
