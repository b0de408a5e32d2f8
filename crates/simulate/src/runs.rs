//! Whole servers, workers and guards: one run told and judged, or many.

use primus_lab::invariants::repeatability::Fingerprint;
use primus_lab::setup::Setup;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict, screen};

use crate::args::Servers;
use crate::output::chronicle::{Chronicle, Interest};
use crate::output::names::Names;
use crate::output::{sequence, servers};
use crate::settings::Seeds;
use crate::survey::{self, Sample};

/// Nobody reads more than this.
const BEATS_MAX: usize = 300;

/// Runs what the arguments ask for.
pub(crate) fn run(what: &Servers, format: Format) -> Result<Verdict, Failure> {
    let is_drawn = format == Format::Mermaid;
    let interest = |jobs, tasks| Interest { messages: is_drawn, jobs, tasks };
    match what {
        Servers::Cluster(args) => run_setup(&args.setup()?, interest(false, false), what, format),
        Servers::Farm(args) => run_setup(&args.setup()?, interest(true, true), what, format),
        Servers::Lending(args) => run_setup(&args.setup()?, interest(true, false), what, format),
        Servers::Leases(args) => run_setup(&args.setup()?, interest(false, false), what, format),
    }
}

fn run_setup<S: Setup>(setup: &S, interest: Interest, what: &Servers, format: Format) -> Result<Verdict, Failure> {
    match what.runs().seeds()? {
        Seeds::One(seed) => run_one(setup, interest, seed, what.name(), format),
        Seeds::Many(range) => {
            let run = |seed| Sample::from(&setup.run(seed, &mut ()));
            survey::run(run, |seed| what.replay(seed), range, format)
        }
    }
}

fn run_one<S: Setup>(
    setup: &S,
    interest: Interest,
    seed: u64,
    name: &'static str,
    format: Format,
) -> Result<Verdict, Failure> {
    let chronicle = Chronicle::new(Names(setup.farms(seed)), interest, BEATS_MAX);
    let mut listeners = (chronicle, Fingerprint::default());
    let report = setup.run(seed, &mut listeners);
    let (chronicle, trace) = (listeners.0, listeners.1.number());
    screen::print(&match format {
        Format::Text => servers::text(&chronicle, &report),
        Format::Json => servers::json(name, &chronicle.names, &report, trace),
        Format::Mermaid => sequence::run(&chronicle, &report),
    })?;
    Ok(Verdict::of(report.violation.is_none()))
}
