//! What a server expects of its replicated log, whoever keeps it: the engine, or the model that explorations use.

use primus_core::ServerId;
use primus_core::machine::{Machine, Token};

use crate::message::{Message, Record};
use crate::replica::{Command, Notice, Role, Tick};
use primus_core::Term;

/// A replicated log as a machine, and what can be seen of it from outside.
pub trait Consensus:
    Machine<
        Peer = ServerId,
        Message = Message,
        Command = Command,
        Timer = Tick,
        Record = Record,
        Token = Token,
        Barrier = Token,
        Notice = Notice,
    >
{
    /// Its role, whom it takes for the leader, and the term.
    fn view(&self) -> (Role, Option<ServerId>, Term);

    /// May it serve reads: does it lead, and has an entry of its own term been committed?
    fn is_readable(&self) -> bool;

    /// Everybody else who votes.
    fn peers(&self) -> Vec<ServerId>;

    /// Has it asked for real votes and waits for them? Asking again would only start over.
    fn is_voting(&self) -> bool;

    /// How far this peer has the log, if this replica leads.
    fn matched(&self, peer: ServerId) -> Option<u64>;

    /// The index of the last entry, and of the last committed one.
    fn extent(&self) -> (u64, u64);

    /// The last entry's term and index: whose is greater has the fresher log.
    fn freshness(&self) -> (u64, u64);
}
