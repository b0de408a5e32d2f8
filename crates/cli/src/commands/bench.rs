//! `primus bench`: the benches are a crate of their own; here is what they measure of other commands.

mod ring;

use primus_bench::{BenchArgs, Candidate, Program, RingArgs};
use primus_core::lease::guard::{Command, Notice};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Place, Verdict};

use super::lead::{Asker, Session};

/// Measures and prints.
pub(super) fn run(args: &BenchArgs, format: Format) -> Result<Verdict, Failure> {
    primus_bench::run(args, format, &ThisProgram)
}

struct ThisProgram;

impl Program for ThisProgram {
    type Candidate = Session;

    fn candidate(&self, api: &str) -> Result<Session, Failure> {
        Ok(Session::new(Asker::find(&Place { api: Some(api.to_owned()), farm: None })?))
    }

    fn ring(&self, args: &RingArgs, format: Format) -> Result<Verdict, Failure> {
        ring::ring(args, format)
    }
}

impl Candidate for Session {
    fn tell(&mut self, command: Command) {
        Self::tell(self, command);
    }

    fn take_notice(&mut self) -> Option<Notice> {
        Self::take_notice(self)
    }

    async fn turn(&mut self) -> Result<(), Failure> {
        Self::turn(self).await
    }
}
