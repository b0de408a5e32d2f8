//! `primus simulate`: one run told and judged, many runs judged, or rules compared.

use std::ops::Range;

use primus_core::ServerId;
use primus_core::rank::RankBy;
use primus_lab::assignment::RULES;
use primus_lab::experiment::{Contest, Experiment, Report};
use primus_lab::invariants::repeatability::Fingerprint;
use primus_terminal::failure::Failure;
use primus_terminal::format::nothing_to_draw;
use primus_terminal::{Format, Verdict, screen};

use super::config;
use super::seeds::{self, Sample, Survey};
use crate::args::{Algorithm, ClusterArgs, FarmArgs, LendingArgs, Simulated};
use crate::output::narration::{Narrator, Story};
use crate::output::{cluster, diagram, farm, json, lending, text};
use crate::settings::server::Configuration;
use crate::settings::{ClusterSimulation, FarmSimulation, LendingSimulation, Seeds, Simulation, lending_overrides};

/// Nobody reads more than this.
const BEATS_MAX: usize = 300;
/// In a large election the beginning says it nearly all.
const NODES_LARGE: usize = 40;
const BEATS_MAX_LARGE: usize = 40;

/// Runs what the arguments ask for.
pub(super) fn run(what: &Simulated, format: Format) -> Result<Verdict, Failure> {
    match what {
        Simulated::Election(algorithm) => run_election(algorithm, format),
        Simulated::Cluster(args) => run_cluster(args, format),
        Simulated::Farm(args) => run_farm(args, format),
        Simulated::Lending(args) => run_lending(args, format),
    }
}

fn run_election(algorithm: &Algorithm, format: Format) -> Result<Verdict, Failure> {
    let simulation = Simulation::new(algorithm)?;
    match simulation.seeds.clone() {
        Seeds::One(seed) => run_one(&simulation, seed, format),
        Seeds::Many(range) => {
            let run = |seed| Sample::from(&simulation.experiment.run(seed, &mut ()));
            run_many(run, |seed| algorithm.replay(seed), range, format)
        }
    }
}

fn run_cluster(args: &ClusterArgs, format: Format) -> Result<Verdict, Failure> {
    let ClusterSimulation { cluster, seeds } = ClusterSimulation::new(args)?;
    match seeds {
        Seeds::One(_) if format == Format::Mermaid => Err(nothing_to_draw("a cluster")),
        Seeds::One(seed) => {
            let mut listeners = (cluster::Narrator::new(BEATS_MAX), Fingerprint::default());
            let report = cluster.run(seed, &mut listeners);
            screen::print(&match format {
                Format::Json => cluster::json(&report, listeners.1.number()),
                Format::Text | Format::Mermaid => cluster::text(listeners.0, &report),
            })?;
            Ok(Verdict::of(report.violation.is_none()))
        }
        Seeds::Many(range) => {
            let run = |seed| Sample::from(&cluster.run(seed, &mut ()));
            run_many(run, |seed| args.replay(seed), range, format)
        }
    }
}

fn run_farm(args: &FarmArgs, format: Format) -> Result<Verdict, Failure> {
    let FarmSimulation { comparison, seed } = FarmSimulation::new(args)?;
    if format == Format::Mermaid {
        return Err(nothing_to_draw("a comparison"));
    }
    let rows = RULES.map(|(name, rule)| (name, comparison.run(rule, seed)));
    screen::print(&match format {
        Format::Json => farm::json(&comparison, seed, &rows),
        Format::Text | Format::Mermaid => farm::text(&comparison, seed, &rows),
    })?;
    Ok(Verdict::of(true))
}

fn run_lending(args: &LendingArgs, format: Format) -> Result<Verdict, Failure> {
    let sources = config::sources(args.config.clone(), lending_overrides(args)?);
    // Nobody listens here.
    let rules = Configuration::read(&sources, true).lending()?;
    let LendingSimulation { day, seed } = LendingSimulation::new(args, rules)?;
    if format == Format::Mermaid {
        return Err(nothing_to_draw("a comparison"));
    }
    let [without, with] = [false, true].map(|is_lending| day.run(is_lending, seed));
    screen::print(&match format {
        Format::Json => lending::json(&day, seed, &without, &with),
        Format::Text | Format::Mermaid => lending::text(&day, seed, &without, &with),
    })?;
    Ok(Verdict::of(with.thrash_max <= 1))
}

fn run_one(simulation: &Simulation, seed: u64, format: Format) -> Result<Verdict, Failure> {
    let Told { report, story, first_leader, trace } = tell(simulation, seed);
    let cast = &simulation.cast;
    screen::print(&match format {
        Format::Text => text::run(cast, first_leader, &story, &report),
        Format::Json => json::run(cast, &report, trace),
        Format::Mermaid => diagram::run(cast, first_leader, &story, &report),
    })?;
    Ok(Verdict::of(report.violation().is_none()))
}

/// A run, its story and the number that sums it up.
pub(super) struct Told {
    pub(super) report: Report,
    pub(super) story: Story,
    /// Who led before it began.
    pub(super) first_leader: Option<ServerId>,
    trace: u64,
}

/// Makes one run and listens to it.
pub(super) fn tell(simulation: &Simulation, seed: u64) -> Told {
    let most = if simulation.cast.ids().len() > NODES_LARGE { BEATS_MAX_LARGE } else { BEATS_MAX };
    let experiment = &simulation.experiment;
    let by_load = matches!(&experiment.contest, Contest::Bully { rules, .. } if rules.rank_by() == RankBy::Load);
    let mut listeners = (Narrator::new(most, by_load), Fingerprint::default());
    let report = experiment.run(seed, &mut listeners);
    let (story, trace) = (listeners.0.story(), listeners.1.number());
    Told { report, story, first_leader: first_leader(experiment), trace }
}

/// In a Bully election whoever dies first leads until then.
fn first_leader(experiment: &Experiment) -> Option<ServerId> {
    let is_bully = matches!(experiment.contest, Contest::Bully { .. });
    experiment.crashes.first().filter(|_| is_bully).map(|(leader, _)| *leader)
}

fn run_many(
    run: impl Fn(u64) -> Sample + Sync,
    replay: impl Fn(u64) -> String,
    range: Range<u64>,
    format: Format,
) -> Result<Verdict, Failure> {
    if format == Format::Mermaid {
        return Err(nothing_to_draw("more than one run"));
    }
    let survey: Survey = seeds::survey(run, range, seeds::Progress::OnTerminal);
    let replay = survey.first_failure.map(|(seed, _)| replay(seed));
    screen::print(&match format {
        Format::Json => json::survey(&survey, replay.as_deref()),
        Format::Text | Format::Mermaid => text::survey(&survey, replay.as_deref()),
    })?;
    Ok(Verdict::of(survey.failed == 0))
}
