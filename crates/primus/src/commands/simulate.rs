//! `primus simulate`: one run told and judged, or many runs judged.

use primus_core::NodeId;
use primus_core::rank::RankBy;
use primus_lab::experiment::{Contest, Experiment, Report};
use primus_lab::invariants::repeatability::Fingerprint;

use super::seeds::{self, Survey};
use super::{Verdict, nothing_to_draw};
use crate::args::{Algorithm, Format};
use crate::output::failure::Failure;
use crate::output::narration::{Narrator, Story};
use crate::output::{diagram, json, screen, text};
use crate::settings::{Seeds, Simulation};

/// Nobody reads more than this.
const BEATS_MAX: usize = 300;
/// In a large election the beginning says it nearly all.
const NODES_LARGE: usize = 40;
const BEATS_MAX_LARGE: usize = 40;

/// Runs what the arguments ask for.
pub(super) fn run(algorithm: &Algorithm, format: Format) -> Result<Verdict, Failure> {
    let simulation = Simulation::new(algorithm)?;
    match simulation.seeds.clone() {
        Seeds::One(seed) => run_one(&simulation, seed, format),
        Seeds::Many(_) if format == Format::Mermaid => Err(nothing_to_draw("more than one run")),
        Seeds::Many(range) => {
            let survey = seeds::survey(&simulation.experiment, range, seeds::Progress::OnTerminal);
            print_survey(algorithm, &survey, format)
        }
    }
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
    pub(super) first_leader: Option<NodeId>,
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
fn first_leader(experiment: &Experiment) -> Option<NodeId> {
    let is_bully = matches!(experiment.contest, Contest::Bully { .. });
    experiment.crashes.first().filter(|_| is_bully).map(|(leader, _)| *leader)
}

fn print_survey(algorithm: &Algorithm, survey: &Survey, format: Format) -> Result<Verdict, Failure> {
    let replay = survey.first_failure.map(|(seed, _)| algorithm.replay(seed));
    screen::print(&match format {
        Format::Json => json::survey(survey, replay.as_deref()),
        Format::Text | Format::Mermaid => text::survey(survey, replay.as_deref()),
    })?;
    Ok(Verdict::of(survey.failed == 0))
}
