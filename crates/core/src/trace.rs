//! One text form for every input and output: `1: suspect 3 -> send 2 election, set answers`.
//!
//! Stories expect it, the simulator prints it, and the log of a server tells elections in the same words, so that a
//! line from production can be pasted into a story. Messages, commands, timers and notices bring their own words.

use core::fmt;

use crate::machine::{Input, Machine, Output, WriteName};

/// One step of one node, as a line of text.
#[derive(Debug)]
pub struct Step<'a, M: Machine, N> {
    /// Who took the step.
    pub node: N,
    /// What happened to it.
    pub input: &'a Input<M>,
    /// What followed.
    pub outputs: &'a [Output<M>],
}

impl<M: Machine, N: fmt::Display> fmt::Display for Step<'_, M, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> ", self.node, self.input)?;
        if self.outputs.is_empty() {
            return f.write_str("nothing");
        }
        for (position, output) in self.outputs.iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            output.fmt(f)?;
        }
        Ok(())
    }
}

impl<M: Machine> fmt::Display for Input<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { from, message } => write!(f, "from {from} {message}"),
            Self::Timer(timer) => write!(f, "timer {timer}"),
            Self::Command(command) => command.fmt(f),
            Self::LinkUp(peer) => write!(f, "link up {peer}"),
            Self::LinkDown(peer) => write!(f, "link down {peer}"),
            Self::Persisted(token) => write!(f, "persisted {}", token.number()),
        }
    }
}

impl<M: Machine> fmt::Display for Output<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send { to, message } => write!(f, "send {to} {message}"),
            Self::Persist { token, records } => {
                write!(f, "persist {}", token.number())?;
                records.iter().try_for_each(|record| write!(f, " {record}"))
            }
            Self::SendAfter { token, to, message } => write!(f, "after {} send {to} {message}", token.number()),
            Self::Set { timer, .. } => write!(f, "set {timer}"),
            Self::Cancel(timer) => write!(f, "cancel {timer}"),
            Self::Notify(notice) => notice.fmt(f),
            Self::Ignore(reason) => write!(f, "ignore {reason}"),
        }
    }
}
