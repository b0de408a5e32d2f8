//! One election told and judged, or many.

use primus_core::ServerId;
use primus_core::rank::RankBy;
use primus_lab::experiment::{Contest, Experiment, Report};
use primus_lab::invariants::repeatability::Fingerprint;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict, screen};

use crate::args::{Algorithm, Replay};
use crate::output::narration::{Narrator, Story};
use crate::output::{diagram, json, text};
use crate::settings::{Seeds, Simulation};
use crate::survey::{self, Sample};

/// Nobody reads more than this.
const BEATS_MAX: usize = 300;
/// In a large election the beginning says it nearly all.
const NODES_LARGE: usize = 40;
const BEATS_MAX_LARGE: usize = 40;

/// Runs what the arguments ask for.
pub(crate) fn run(algorithm: &Algorithm, replay: &Replay, format: Format) -> Result<Verdict, Failure> {
    let simulation = Simulation::new(algorithm)?;
    match simulation.seeds.clone() {
        Seeds::One(seed) => run_one(&simulation, seed, format),
        Seeds::Many(range) => {
            let run = |seed| Sample::from(&simulation.experiment.run(seed, &mut ()));
            survey::run(run, replay, range, format)
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
pub struct Told {
    /// What it came to.
    pub report: Report,
    /// What happened in it.
    pub story: Story,
    /// Who led before it began.
    pub first_leader: Option<ServerId>,
    /// The number that two equal runs share.
    pub trace: u64,
}

/// Makes one run and listens to it.
#[must_use]
pub fn tell(simulation: &Simulation, seed: u64) -> Told {
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
