//! What all benches have in common: how figures come to a few, and how they are printed.

use std::time::Instant;

use primus_terminal::amounts::number;
use primus_terminal::format::nothing_to_draw;
use primus_terminal::json::rounded;
use primus_terminal::{Failure, Format, Verdict};
use serde::Serialize;

/// What a bench found.
pub(crate) trait Found: Serialize {
    /// The name of the bench.
    const BENCH: &'static str;

    /// For people.
    fn text(&self) -> String;

    /// True if what was found is as it should be.
    fn is_good(&self) -> bool {
        true
    }
}

/// The figures, as scripts see them: the bench, then its parameters and what it found.
#[derive(Serialize)]
pub(crate) struct Figures<'a, F> {
    pub(crate) bench: &'static str,
    #[serde(flatten)]
    pub(crate) found: &'a F,
}

/// Refuses to measure what cannot be shown.
///
/// # Errors
/// If a drawing is wanted.
pub(crate) fn refuse_to_draw(format: Format) -> Result<(), Failure> {
    if format == Format::Mermaid { Err(nothing_to_draw("a bench")) } else { Ok(()) }
}

/// Measures and prints. Every failure says that nothing could be measured.
///
/// # Errors
/// If nothing could be measured, or a drawing is wanted.
pub(crate) fn measured<F: Found>(
    format: Format,
    measure: impl FnOnce() -> Result<F, Failure>,
) -> Result<Verdict, Failure> {
    refuse_to_draw(format)?;
    show(&measure().map_err(Failure::into_bench)?, format)
}

/// Prints what was found.
///
/// # Errors
/// If nothing can be printed.
pub(crate) fn show<F: Found>(found: &F, format: Format) -> Result<Verdict, Failure> {
    format.show(|| found.text() + debug_remark(), &Figures { bench: F::BENCH, found })?;
    Ok(Verdict::of(found.is_good()))
}

/// A flag that is a number, as typed or as usual.
pub(crate) fn flag(name: &str, typed: &Option<String>, usual: u64, least: u64, most: u64) -> Result<u64, Failure> {
    typed.as_deref().map_or(Ok(usual), |text| number(name, text, least, most))
}

/// How often to measure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs {
    wanted: Option<u64>,
    usual: u64,
    budget_ms: f64,
}

impl Runs {
    /// As often as `--runs` says; else as often as usual, but no run except the first starts after the budget is used up.
    ///
    /// # Errors
    /// If `--runs` makes no sense.
    pub(crate) fn typed(runs: &Option<String>, usual: u64, most: u64, budget_ms: f64) -> Result<Self, Failure> {
        let wanted = runs.as_deref().map(|text| number("--runs", text, 1, most)).transpose()?;
        Ok(Self { wanted, usual, budget_ms })
    }

    /// The same with a share of the budget.
    pub(crate) fn within(self, share: f64) -> Self {
        Self { budget_ms: share * self.budget_ms, ..self }
    }

    /// True if another run should start after so many.
    pub(crate) fn is_due(self, done: usize, started: Instant) -> bool {
        let fits = || self.wanted.is_some() || done == 0 || milliseconds(started) < self.budget_ms;
        (done as u64) < self.wanted.unwrap_or(self.usual) && fits()
    }

    /// What all runs found; each is told how many there were before.
    pub(crate) fn repeat<T>(
        self,
        started: Instant,
        mut run: impl FnMut(usize) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let mut done = Vec::new();
        while self.is_due(done.len(), started) {
            done.push(run(done.len())?);
        }
        Ok(done)
    }
}

/// A server that should answer and does not.
pub(crate) fn silent(who: &str) -> Failure {
    Failure::failed("silent", format!("{who} does not answer"), "see whether the host is overloaded")
}

/// Single figures, and what they come to, as all benches print them.
#[derive(Debug, Serialize)]
pub(crate) struct Spread {
    /// The single figures.
    pub(crate) runs: Vec<f64>,
    /// Half of the runs took no longer.
    pub(crate) median_ms: f64,
    /// Nine tenths of the runs took no longer.
    pub p90_ms: f64,
    /// The longest run.
    pub(crate) max_ms: f64,
}

impl Spread {
    /// The spread of these runs.
    pub(crate) fn of(runs: Vec<f64>) -> Self {
        let [median_ms, p90_ms, max_ms] = [0.5, 0.9, 1.0].map(|share| quantile(&runs, share));
        Self { runs, median_ms, p90_ms, max_ms }
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
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
pub(crate) const fn debug_remark() -> &'static str {
    if cfg!(debug_assertions) { "\nThis is not a release build: the figures mean little.\n" } else { "" }
}

/// The smallest of the times that this share of them does not exceed.
pub(crate) fn quantile(times: &[f64], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// How long ago that was.
pub(crate) fn milliseconds(since: Instant) -> f64 {
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
