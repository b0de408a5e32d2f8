//! The benches of primus: what it does, measured on this host.
//!
//! A bench starts a farm of real processes for itself ([`primus_local::TemporaryFarm`]), does something to it, and prints what that took:
//! single figures, their median, what nine tenths of them do not exceed, and the longest. Arguments and help texts are here, too; the
//! program only says where they are found: `primus bench`.
//!
//! Some benches need processes beside the farm's, such as candidates for leases. These are hidden commands of `primus bench`.

mod args;
mod beat;
mod encryption;
mod failover;
mod groups;
mod handover;
pub mod help;
mod idle;
mod lead;
mod leader;
mod lending;
mod log;
mod pressure;
mod processes;
mod pulse;
mod queue;
mod report;
mod rescue;
mod ring;
mod simulate;
mod stability;
mod tasks;
mod transfer;
mod watch;
mod writers;

use primus_node::session::Transport;
use primus_terminal::{Failure, Format, Verdict};

pub use args::BenchArgs;

use args::Bench;

/// Measures what the arguments ask for, and prints it. Candidates for leases ask servers as `primus lead` does: through what `leases`
/// makes of the addresses of their APIs, separated by commas.
///
/// # Errors
/// If the arguments make no sense, or nothing could be measured.
pub fn run<T: Transport<Refusal = Failure>>(
    args: &BenchArgs,
    format: Format,
    leases: impl Fn(&str) -> Result<T, Failure>,
) -> Result<Verdict, Failure> {
    match &args.what {
        Bench::Simulate(args) => simulate::simulate(args, format),
        Bench::Failover(args) => failover::failover(args, format),
        Bench::Transfer(args) => transfer::transfer(args, format),
        Bench::Handover(args) => handover::handover(args, format),
        Bench::Idle(args) => idle::idle(args, format),
        Bench::Log(args) => log::log(args, format),
        Bench::Stability(args) => stability::stability(args, format),
        Bench::Tasks(args) => tasks::tasks(args, format),
        Bench::Rescue(args) => rescue::rescue(args, format),
        Bench::Queue(args) => queue::queue(args, format),
        Bench::Lending(args) => lending::lending(args, format),
        Bench::Ring(args) => ring::ring(args, format),
        Bench::Lead(args) => lead::lead(args, format),
        Bench::Groups(args) => groups::groups(args, format),
        Bench::Pressure(args) => pressure::pressure(args, format),
        Bench::Encryption(args) => encryption::encryption(args, format),
        Bench::Guard(args) => pressure::guard(args),
        Bench::Hold(args) => groups::hold(args, leases),
        Bench::Burn(args) => processes::burn(args),
        Bench::Beat(args) => beat::beat(args),
    }
}
