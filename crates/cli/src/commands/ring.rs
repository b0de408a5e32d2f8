//! `primus ring`: a ring of real nodes. What its process may open, and with which other one it ends, is settled here.

use primus_ring::args::{RealRing, RealRingArgs, RingNodeArgs};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use rustix::process::Signal;

use super::server::{end_with, raise_file_limit};

/// Runs what the arguments ask for.
pub(super) fn run(args: &RealRingArgs, format: Format) -> Result<Verdict, Failure> {
    match &args.what {
        // Every node has a connection of its own.
        RealRing::Run(_) => raise_file_limit(),
        RealRing::Node(RingNodeArgs { parent: Some(parent), .. }) => end_with(*parent, Signal::KILL)?,
        _ => {}
    }
    primus_ring::commands::run(args, format)
}
