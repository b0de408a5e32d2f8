//! What all benches have in common: how figures come to a few, and how they are printed.

use std::time::Instant;

use primus_terminal::json::rounded;
use serde::Serialize;

/// Single figures, and what they come to, as all benches print them.
#[derive(Debug, Serialize)]
pub struct Spread {
    /// The single figures.
    pub runs: Vec<f64>,
    /// Half of the runs took no longer.
    pub median_ms: f64,
    /// Nine tenths of the runs took no longer.
    pub p90_ms: f64,
    /// The longest run.
    pub max_ms: f64,
}

impl Spread {
    /// The spread of these runs.
    pub fn of(runs: Vec<f64>) -> Self {
        let [median_ms, p90_ms, max_ms] = [0.5, 0.9, 1.0].map(|share| quantile(&runs, share));
        Self { runs, median_ms, p90_ms, max_ms }
    }

    /// For people.
    pub fn text(&self) -> String {
        let Self { runs, median_ms, p90_ms, max_ms } = self;
        let all: Vec<String> = runs.iter().map(|ms| format!("{ms:.1}")).collect();
        format!(
            "median       {median_ms:.1} ms
90 % within  {p90_ms:.1} ms
max          {max_ms:.1} ms
runs         {} ms
",
            all.join(", ")
        )
    }
}

/// A remark below the figures of a build that is not meant to be measured.
pub const fn debug_remark() -> &'static str {
    if cfg!(debug_assertions) { "\nThis is no release build: the figures mean little.\n" } else { "" }
}

/// The smallest of the times that this share of them does not exceed.
pub fn quantile(times: &[f64], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// How long ago that was.
pub fn milliseconds(since: Instant) -> f64 {
    rounded(since.elapsed().as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_figures_that_were_measured() {
        let times = [3.0, 1.0, 2.0, 4.0];
        assert_eq!([0.5, 0.9, 1.0].map(|share| quantile(&times, share)), [2.0, 4.0, 4.0]);
        assert_eq!(quantile(&[7.0], 0.5), 7.0);
    }
}
