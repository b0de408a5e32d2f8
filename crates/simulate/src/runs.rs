//! Whole servers, workers and guards: one run told and judged, or many.

use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::setup::Setup;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict, screen};

use crate::args::{Replay, Servers};
use crate::output::chronicle::{Chronicle, Interest};
use crate::output::names::Names;
use crate::output::{sequence, servers};
use crate::settings::Seeds;
use crate::survey::{self, Sample};

/// Nobody reads more than this.
const BEATS_MAX: usize = 300;

/// Runs what the arguments ask for.
pub(crate) fn run(what: &Servers, replay: &Replay, format: Format) -> Result<Verdict, Failure> {
    let interest = |jobs, tasks| Interest { messages: format == Format::Mermaid, jobs, tasks };
    let (none, loans, all) = (interest(false, false), interest(true, false), interest(true, true));
    match what {
        Servers::Cluster(args) => run_setup(&args.setup()?, none, args.runs.seeds.read()?, replay, format),
        Servers::Farm(args) => run_setup(&args.setup()?, all, args.runs.seeds.read()?, replay, format),
        Servers::Lending(args) => run_setup(&args.setup()?, loans, args.runs.seeds.read()?, replay, format),
        Servers::Leases(args) => run_setup(&args.setup()?, none, args.runs.seeds.read()?, replay, format),
    }
}

fn run_setup<S: Setup>(
    setup: &S,
    interest: Interest,
    seeds: Seeds,
    replay: &Replay,
    format: Format,
) -> Result<Verdict, Failure> {
    let seed = match seeds {
        Seeds::One(seed) => seed,
        Seeds::Many(range) => {
            let run = |seed| Sample::from(&setup.run(seed, &mut ()));
            return survey::run(run, replay, range, format);
        }
    };
    let chronicle = Chronicle::new(Names(setup.farms(seed)), interest, BEATS_MAX);
    let mut listeners = (chronicle, Fingerprint::default());
    let report = setup.run(seed, &mut listeners);
    let (chronicle, trace) = (listeners.0, listeners.1.number());
    screen::print(&match format {
        Format::Text => servers::text(&chronicle, &report),
        Format::Json => servers::json(&replay.name, &chronicle.names, &report, trace),
        Format::Mermaid => sequence::run(&chronicle, &report),
    })?;
    Ok(Verdict::of(report.violation.is_none()))
}
