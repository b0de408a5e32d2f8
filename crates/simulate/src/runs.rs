//! Whole servers told and judged, and rules compared.

use primus_core::loan::office::Rules;
use primus_lab::assignment::RULES;
use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::setup::Setup;
use primus_terminal::failure::Failure;
use primus_terminal::format::nothing_to_draw;
use primus_terminal::{Format, Verdict, screen};

use crate::args::{ClusterArgs, FarmArgs, LendingArgs};
use crate::output::{cluster, farm, lending};
use crate::settings::{ClusterSimulation, FarmSimulation, LendingSimulation, Seeds};
use crate::survey::{self, Sample};

/// Nobody reads more than this.
const BEATS_MAX: usize = 300;

pub(crate) fn run_cluster(args: &ClusterArgs, format: Format) -> Result<Verdict, Failure> {
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
            survey::run(run, |seed| args.replay(seed), range, format)
        }
    }
}

pub(crate) fn run_farm(args: &FarmArgs, format: Format) -> Result<Verdict, Failure> {
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

pub(crate) fn run_lending(args: &LendingArgs, rules: Rules, format: Format) -> Result<Verdict, Failure> {
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
