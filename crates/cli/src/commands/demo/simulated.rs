//! The simulated scenes of the demo.

use std::time::{Duration, Instant};

use primus_core::ServerId;
use primus_core::election::MessageKind::{Elected, Election};
use primus_lab::experiment::Report;
use primus_simulate::args::SimulateArgs;
use primus_simulate::output::narration::Beat;
use primus_simulate::output::text::story_lines;
use primus_simulate::settings::{Seeds, Simulation};
use primus_simulate::survey::{self, Progress};
use primus_simulate::{Told, tell};
use primus_terminal::failure::Failure;
use primus_terminal::screen::{FAINT, styled};

/// Of a long story, the first and the last lines are shown.
const FIRST_LINES: usize = 8;
const LAST_LINES: usize = 8;
/// A slow host makes fewer runs of the last scene, so that the demo ends in time.
const SEEDS_BUDGET: Duration = Duration::from_secs(8);
const SEEDS_LOT: u64 = 100;

/// One thing that the demo shows.
pub(super) struct Scene {
    pub(super) title: &'static str,
    pub(super) command: &'static str,
    claim: Claim,
}

/// What is claimed of it.
enum Claim {
    /// Of one run.
    Run(fn(&Report) -> (String, bool)),
    /// Of many runs: the same node leads, whatever the seed.
    SameLeader(ServerId),
    /// Of many runs: no property is violated.
    NoViolation,
}

/// What a scene came to.
pub(super) struct Shown {
    pub(super) lines: Vec<String>,
    pub(super) claim: String,
    pub(super) held: bool,
}

pub(super) const SCENES: &[Scene] = &[
    Scene {
        title: "A ring: the token travels until the lowest id comes back to its owner",
        command: "primus simulate ring --ids 5,3,7,1,4 --start 1 --seed 1",
        claim: Claim::Run(ring_example),
    },
    Scene {
        title: "Bully by load: three equal loads, and still exactly one winner, always the same",
        command: "primus simulate bully --nodes 1,2,3 --rank load --loads 20,20,20 --seeds 200",
        claim: Claim::SameLeader(ServerId(3)),
    },
    Scene {
        title: "A partition: without a quorum each side has a leader, until the network heals",
        command: "primus simulate bully --nodes 1,2,3 --partition '1,2|3@1s..3s' --seed 1",
        claim: Claim::Run(partition),
    },
    Scene {
        title: "Bully under all faults: loss, duplication, lateness, crashes, pauses, partitions, wrong clocks",
        command: "primus simulate bully --nodes 1,2,3,4,5 --faults all --seeds 1000",
        claim: Claim::NoViolation,
    },
];

fn ring_example(report: &Report) -> (String, bool) {
    let (outcome, messages) = (&report.outcome, &report.outcome.messages);
    let claim = "id 1 leads, after exactly 8 ELECTION and 5 ELECTED messages".to_string();
    let counts = (messages.of(Election), messages.of(Elected), messages.total());
    (claim, outcome.agreed_leader() == Some(ServerId(1)) && counts == (8, 5, 13))
}

fn partition(report: &Report) -> (String, bool) {
    let outcome = &report.outcome;
    let claim = "two led at the same time, and in the end node 3 alone leads all".to_string();
    (claim, outcome.leaders.most_at_once == 2 && outcome.agreed_leader() == Some(ServerId(3)))
}

impl Scene {
    /// Does what its command line says.
    pub(super) fn play(&self) -> Result<Shown, Failure> {
        let simulation = self.simulation()?;
        match (&self.claim, simulation.seeds.clone()) {
            (Claim::SameLeader(leader), Seeds::Many(range)) => Ok(same_leader(&simulation, range, *leader)),
            (Claim::NoViolation, Seeds::Many(range)) => Ok(no_violation(&simulation, range)),
            (Claim::Run(claim), Seeds::One(seed)) => Ok(one_run(&simulation, seed, *claim)),
            _ => unreachable!("a scene claims something of what its command runs"),
        }
    }

    fn simulation(&self) -> Result<Simulation, Failure> {
        // No quoted word holds a space.
        let words: Vec<&str> = self.command.split(' ').map(|word| word.trim_matches('\'')).collect();
        let args = SimulateArgs::read(&words).expect("the command lines of scenes make sense");
        Simulation::of(&args)?.map_or_else(|| unreachable!("scenes are elections"), Ok)
    }
}

fn one_run(simulation: &Simulation, seed: u64, claim: fn(&Report) -> (String, bool)) -> Shown {
    let Told { report, mut story, first_leader, .. } = tell(simulation, seed);
    let (claim, is_so) = claim(&report);
    let held = is_so && report.violation().is_none();
    if !simulation.cast.is_ring() {
        story.beats.retain(Beat::is_turning_point);
    }
    Shown { lines: shortened(story_lines(&simulation.cast, first_leader, &story)), claim, held }
}

fn shortened(lines: Vec<String>) -> Vec<String> {
    let hidden = lines.len().saturating_sub(FIRST_LINES + LAST_LINES);
    if hidden < 2 {
        return lines;
    }
    let (first, rest) = lines.split_at(FIRST_LINES);
    let between = styled(FAINT, &format!("… {hidden} lines …"));
    first.iter().cloned().chain([between]).chain(rest[hidden..].iter().cloned()).collect()
}

fn same_leader(simulation: &Simulation, range: std::ops::Range<u64>, leader: ServerId) -> Shown {
    let runs = range.end - range.start;
    let is_right = |seed: &u64| {
        let report = simulation.experiment.run(*seed, &mut ());
        report.outcome.agreed_leader() == Some(leader) && report.violation().is_none()
    };
    let right = range.filter(is_right).count() as u64;
    let name = simulation.cast.full(leader);
    Shown { lines: Vec::new(), claim: format!("{name} led in {right} of {runs} runs"), held: right == runs }
}

fn no_violation(simulation: &Simulation, range: std::ops::Range<u64>) -> Shown {
    let started = Instant::now();
    let (mut runs, mut failed, mut several) = (0, 0, 0);
    let mut first = range.start;
    while first < range.end && started.elapsed() < SEEDS_BUDGET {
        let end = (first + SEEDS_LOT).min(range.end);
        let survey =
            survey::survey(|seed| (&simulation.experiment.run(seed, &mut ())).into(), first..end, Progress::Hidden);
        (runs, failed, several) =
            (runs + survey.seeds(), failed + survey.failed, several + survey.runs_with_several_leaders);
        first = end;
    }
    let seconds = started.elapsed().as_secs_f64();
    let claim = format!(
        "{} of {runs} runs violated no property, although in {several} of them several led for a while ({seconds:.1} s)",
        runs - failed
    );
    Shown { lines: Vec::new(), claim, held: failed == 0 }
}
