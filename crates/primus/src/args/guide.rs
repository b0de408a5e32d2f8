//! The texts that explain the command line: the short guide, the list of commands, and examples.

/// What primus is, in one line.
pub(super) const ABOUT: &str = "a task farm that governs itself, with elections you can watch, attack and trust";

/// The layout of the main help text: commands under headings, which clap itself cannot do.
pub(super) const TEMPLATE: &str = "{about}\n\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}";

/// All commands, by what people want to do.
pub(super) const COMMANDS: &str = "\
try:
  demo        a tour of elections that checks what it shows
  simulate    run an election in virtual time and judge it

operate:
  bench       measure how fast primus is here

`primus COMMAND --help` explains a command and ends with examples.";

pub(super) const DEMO: &str = "\
Examples:
  primus demo
  primus demo -o json";

pub(super) const SIMULATE: &str = "\
Examples:
  primus simulate ring --ids 5,3,7,1,4 --start 1
  primus simulate bully --nodes 1,2,3,4,5 --crash 5";

pub(super) const RING: &str = "\
Times are written 250ms, 2s or 1h. A run that violates a property ends with exit code 1.

Examples:
  primus simulate ring --ids 5,3,7,1,4 --start 1
  primus simulate ring --ids 5,3,7,1,4 --start all --winner highest -o mermaid
  primus simulate ring --ids 5,3,7,1,4 --start 1,3 --crash 4@30ms
  primus simulate ring --ids 5,3,7,1,4 --faults all --seeds 10000";

pub(super) const BULLY: &str = "\
Times are written 250ms, 2s or 1h. A run that violates a property ends with exit code 1.

Examples:
  primus simulate bully --nodes 1,2,3,4,5 --crash 5 --start 2
  primus simulate bully --nodes 1,2,3 --rank load --loads 20,43,7
  primus simulate bully --nodes 172.18.0.9,172.18.0.10 --rank address
  primus simulate bully --nodes 1,2,3 --partition '1,2|3@2s..5s' -o mermaid
  primus simulate bully --nodes 1,2,3,4,5 --crash 5 --seeds 10000";

pub(super) const BENCH: &str = "\
Examples:
  primus bench simulate
  primus bench simulate -o json";

pub(super) const BENCH_SIMULATE: &str = "\
Figures are only worth something in a release build: cargo build --release.

Examples:
  primus bench simulate
  primus bench simulate --all-initiators
  primus bench simulate --nodes 10000 --runs 10 -o json";

/// What somebody sees who types `primus` and nothing else.
pub(crate) fn guide() -> String {
    format!(
        "primus {}: {ABOUT}

  primus demo                                       a tour that checks what it shows
  primus simulate ring --ids 5,3,7,1,4 --start 1    one election, line by line
  primus simulate bully --nodes 1,2,3,4,5 --crash 5 --seeds 10000
                                                    ten thousand elections, judged
  primus --help                                     all commands
",
        env!("CARGO_PKG_VERSION"),
    )
}
