//! How a command ends that did what it is for.

use std::process::ExitCode;

/// Did what was asked for hold?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It held: exit code 0.
    Held,
    /// It did not: exit code 1.
    Failed,
    /// There is no leader, and that was the question: exit code 4.
    NoLeader,
    /// It held as far as another program's exit code says.
    Code(u8),
}

impl Verdict {
    /// The verdict on a claim.
    #[must_use]
    pub const fn of(holds: bool) -> Self {
        if holds { Self::Held } else { Self::Failed }
    }

    /// As output contracts say.
    #[must_use]
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Held => ExitCode::SUCCESS,
            Self::Failed => ExitCode::FAILURE,
            Self::NoLeader => ExitCode::from(4),
            Self::Code(code) => ExitCode::from(code),
        }
    }
}
