//! Many runs of an election or a cluster, on all cores: how many held, and the first that did not.
//!
//! Seeds are handed out in small lots. Every run depends on its seed alone, so the result is the same however many
//! cores there are.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use primus_lab::invariants::Property;
use primus_lab::simulate::Leaders;
use primus_lab::{checks, experiment};
use primus_terminal::failure::Failure;
use primus_terminal::format::nothing_to_draw;
use primus_terminal::{Format, Verdict, screen};

use crate::args::Replay;
use crate::output::{json, text};

const LOT: u64 = 16;

/// Runs all these seeds and shows what they came to.
pub(crate) fn run(
    run: impl Fn(u64) -> Sample + Sync,
    replay: &Replay,
    range: Range<u64>,
    format: Format,
) -> Result<Verdict, Failure> {
    if format == Format::Mermaid {
        return Err(nothing_to_draw("more than one run"));
    }
    let survey: Survey = survey(run, range, Progress::OnTerminal);
    let replay = survey.first_failure.map(|(seed, _)| replay.line(seed));
    screen::print(&match format {
        Format::Json => json::survey(&survey, replay.as_deref()),
        Format::Text | Format::Mermaid => text::survey(&survey, replay.as_deref()),
    })?;
    Ok(Verdict::of(survey.failed == 0))
}

/// What many runs came to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Survey {
    /// The seeds, without the end.
    pub range: Range<u64>,
    /// How many of them violated a property.
    pub failed: u64,
    /// The lowest seed that failed, and the first property that it violates.
    pub first_failure: Option<(u64, &'static str)>,
    /// How many runs had more than one leader at the same time.
    pub runs_with_several_leaders: u64,
    /// How many led at the same time, at most.
    pub most_at_once: u32,
    changes: u64,
    /// How long it took.
    pub seconds: f64,
}

/// What is kept of one run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    seed: u64,
    /// The name of the first property that it violates.
    violation: Option<&'static str>,
    leaders: Leaders,
}

impl From<&experiment::Report> for Sample {
    fn from(report: &experiment::Report) -> Self {
        let violation = report.violation().map(Property::name);
        Self { seed: report.seed, violation, leaders: report.outcome.leaders }
    }
}

impl From<&checks::Report> for Sample {
    fn from(report: &checks::Report) -> Self {
        let violation = report.violation.as_ref().map(|violation| violation.property.name());
        Self { seed: report.seed, violation, leaders: report.tally.leaders }
    }
}

/// Whether somebody watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A bar on stderr, if that is a terminal.
    OnTerminal,
    /// Nothing at all.
    Hidden,
}

/// Runs all these seeds.
pub fn survey(run: impl Fn(u64) -> Sample + Sync, range: Range<u64>, progress: Progress) -> Survey {
    let started = Instant::now();
    let bar = progress.bar(range.end - range.start);
    // Lots are counted, not seeds: a count that several threads push past the end cannot wrap round that way.
    let next_lot = AtomicU64::new(0);
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parts: Vec<Survey> = thread::scope(|scope| {
        let work = || survey_lots(&run, &range, &next_lot, &bar);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a run does not panic")).collect()
    });
    bar.finish_and_clear();
    let mut whole = parts.into_iter().fold(Survey::new(range), Survey::merge);
    whole.seconds = started.elapsed().as_secs_f64();
    whole
}

fn survey_lots(
    run: &impl Fn(u64) -> Sample,
    range: &Range<u64>,
    next_lot: &AtomicU64,
    bar: &ProgressBar,
) -> Survey {
    let mut part = Survey::new(range.clone());
    let lots = (range.end - range.start).div_ceil(LOT);
    loop {
        let lot = next_lot.fetch_add(1, Ordering::Relaxed);
        if lot >= lots {
            return part;
        }
        let first = range.start + lot * LOT;
        let end = first.saturating_add(LOT).min(range.end);
        for seed in first..end {
            let _witness = Witness(seed);
            part.add(run(seed));
        }
        bar.inc(end - first);
    }
}

/// Names the seed of a run that panics: without it nobody could look into the matter.
struct Witness(u64);

impl Drop for Witness {
    fn drop(&mut self) {
        if thread::panicking() {
            screen::complain(&format!("the run of seed {} broke off", self.0));
        }
    }
}

impl Survey {
    fn new(range: Range<u64>) -> Self {
        Self { range, ..Self::default() }
    }

    fn add(&mut self, Sample { seed, violation, leaders }: Sample) {
        self.runs_with_several_leaders += u64::from(leaders.most_at_once > 1);
        self.most_at_once = self.most_at_once.max(leaders.most_at_once);
        self.changes += u64::from(leaders.changes);
        if let Some(property) = violation {
            self.failed += 1;
            self.note_failure(Some((seed, property)));
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.failed += other.failed;
        self.note_failure(other.first_failure);
        self.runs_with_several_leaders += other.runs_with_several_leaders;
        self.most_at_once = self.most_at_once.max(other.most_at_once);
        self.changes += other.changes;
        self
    }

    fn note_failure(&mut self, failure: Option<(u64, &'static str)>) {
        self.first_failure = self.first_failure.into_iter().chain(failure).min();
    }

    /// How many seeds were run.
    #[must_use]
    pub const fn seeds(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// How fast it was.
    #[must_use]
    pub fn runs_per_s(&self) -> f64 {
        self.seeds() as f64 / self.seconds.max(1e-9)
    }

    /// How often somebody began to lead, on average.
    #[must_use]
    pub fn mean_changes(&self) -> f64 {
        self.changes as f64 / self.seeds() as f64
    }
}

impl Progress {
    fn bar(self, length: u64) -> ProgressBar {
        if self == Self::Hidden {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {per_sec}, {eta} left");
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr_with_hz(10));
        bar.enable_steady_tick(Duration::from_millis(100));
        style.map_or(bar.clone(), |style| bar.with_style(style))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use primus_core::ServerId;
    use primus_core::election::bully::Rules;
    use primus_lab::experiment::{Contest, Experiment, Starts};

    use super::*;

    /// Without repeated announcements, lost ones are never repaired: some seeds must fail.
    fn fragile() -> Experiment {
        let rules = Arc::new(Rules::by_id((1..=3).map(ServerId)));
        let contest = Contest::Bully { rules, scores: BTreeMap::new() };
        Experiment { loss_ppm: 200_000, ..Experiment::new(contest, Starts::Cold) }
    }

    fn sample(experiment: &Experiment) -> impl Fn(u64) -> Sample + Sync {
        |seed| Sample::from(&experiment.run(seed, &mut ()))
    }

    #[test]
    fn the_first_failure_is_the_lowest_seed_and_fails_again() {
        let experiment = fragile();
        let violation = |seed: u64| sample(&experiment)(seed).violation;
        let whole = survey(sample(&experiment), 0..200, Progress::Hidden);
        let failed: Vec<u64> = (0..200).filter(|seed| violation(*seed).is_some()).collect();
        assert!(!failed.is_empty() && failed.len() < 200, "{failed:?}");
        assert_eq!(whole.failed, failed.len() as u64);
        assert_eq!(whole.first_failure, violation(failed[0]).map(|property| (failed[0], property)));
    }

    #[test]
    fn every_seed_is_run_once() {
        for range in [0..1, 5..21, 3..100, u64::MAX - 20..u64::MAX] {
            let survey = survey(sample(&fragile()), range.clone(), Progress::Hidden);
            let failed = range.filter(|seed| fragile().run(*seed, &mut ()).violation().is_some()).count();
            assert_eq!(survey.failed, failed as u64);
        }
    }
}
