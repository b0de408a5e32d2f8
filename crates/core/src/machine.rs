//! The contract between a protocol and whoever drives it.
//!
//! A [`Machine`] is a plain value. Its driver (a story, a simulated run, an exploration or a real server)
//! feeds it one [`Input`] at a time and carries out the [`Output`]s that it finds in the [`Outbox`]. A machine
//! never waits, never fails and never asks: what it wants to know arrives as an input, what it wants to happen
//! leaves as an output. The idea of a sink with a few verbs is foca's; tokens for durability come from Raft's
//! rule that a vote must be on disk before it is sent.

use alloc::vec::Vec;
use core::fmt::{self, Debug, Display};
use core::hash::Hash;

/// A protocol as a value: same inputs, same outputs.
pub trait Machine: Sized + Debug {
    /// Whom it talks with: servers, workers, farms or sessions, never two kinds under one number.
    type Peer: Copy + Eq + Ord + Hash + Debug + Display;
    /// What they say to each other.
    type Message: Clone + Eq + Ord + Hash + Debug + Display;
    /// What the owner of the machine tells it to do.
    type Command: Clone + Eq + Ord + Hash + Debug + Display;
    /// The names of its timers; at most one of each name runs.
    type Timer: Copy + Eq + Ord + Hash + Debug + Display;
    /// What must survive a crash; [`Never`] if nothing must.
    type Record: Clone + Eq + Ord + Hash + Debug + Display;
    /// Names its writes: a [`Token`], or [`Never`] for a machine that keeps nothing.
    type Token: WriteName;
    /// Names the write that a message of it waits for: a [`Token`], or [`Never`] if none waits.
    type Barrier: WriteName;
    /// What the owner is told.
    type Notice: Clone + Eq + Ord + Hash + Debug + Display;

    /// Takes one input at this moment and puts everything that follows from it into `out`. Moments never go back.
    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>);
}

/// A moment on the clock of the host that drives a machine, in microseconds. It cannot be compared with a moment of another
/// host, nor with the time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// The first moment of all, and the only one where time does not matter.
    pub const START: Self = Self(0);
}

/// Everything that can happen to a machine.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input<M: Machine> {
    /// A peer's message arrived.
    Message {
        /// Who sent it.
        from: M::Peer,
        /// What it says.
        message: M::Message,
    },
    /// A timer that the machine had set ran out.
    Timer(M::Timer),
    /// The owner wants something.
    Command(M::Command),
    /// A link to a peer came up.
    LinkUp(M::Peer),
    /// A link to a peer was lost.
    LinkDown(M::Peer),
    /// All records up to this token are durable.
    Persisted(M::Token),
}

// Deriving it would ask for machines that can be cloned, and the Raft engine cannot.
impl<M: Machine> Clone for Input<M> {
    fn clone(&self) -> Self {
        match self {
            Self::Message { from, message } => Self::Message { from: *from, message: message.clone() },
            Self::Timer(timer) => Self::Timer(*timer),
            Self::Command(command) => Self::Command(command.clone()),
            Self::LinkUp(peer) => Self::LinkUp(*peer),
            Self::LinkDown(peer) => Self::LinkDown(*peer),
            Self::Persisted(token) => Self::Persisted(*token),
        }
    }
}

/// Everything that a machine can ask for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Output<M: Machine> {
    /// Send a message now.
    Send {
        /// To whom.
        to: M::Peer,
        /// What.
        message: M::Message,
    },
    /// Make records durable, then answer with [`Input::Persisted`]. A driver may merge several tokens into one
    /// write; it must not reorder them.
    Persist {
        /// Names this write.
        token: M::Token,
        /// What to write.
        records: Vec<M::Record>,
    },
    /// Send a message once the token is durable, never before.
    SendAfter {
        /// The write that must come first.
        token: M::Barrier,
        /// To whom.
        to: M::Peer,
        /// What.
        message: M::Message,
    },
    /// Start a timer, or start it again if it runs.
    Set {
        /// Which one.
        timer: M::Timer,
        /// When it runs out.
        delay: Delay,
    },
    /// Stop a timer.
    Cancel(M::Timer),
    /// Tell the owner.
    Notify(M::Notice),
    /// The input was stale or strange and changed nothing; drivers count these.
    Ignore(&'static str),
}

/// Names one write to disk. Tokens of one machine grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Token(pub u64);

/// A type without values: the records of a machine that keeps nothing, and the names of its writes. The compiler knows that such
/// outputs cannot exist, so a driver needs no code for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Never {}

/// The name of a write, as far as a machine has any: [`Token`] or [`Never`].
pub trait WriteName: Copy + Eq + Ord + Hash + Debug {
    /// It grows from write to write.
    fn number(self) -> u64;
}

impl WriteName for Token {
    fn number(self) -> u64 {
        self.0
    }
}

impl WriteName for Never {
    fn number(self) -> u64 {
        match self {}
    }
}

impl Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// How long a timer runs, in microseconds: a range, because a machine has no chance of its own. The driver
/// draws one value from it; in an exploration the length does not matter at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Delay {
    /// The shortest.
    pub min_us: u64,
    /// The longest.
    pub max_us: u64,
}

impl Delay {
    /// Always the same length.
    #[must_use]
    pub const fn exactly_ms(ms: u64) -> Self {
        Self { min_us: ms * 1000, max_us: ms * 1000 }
    }

    /// Any length from `min` to `max`, both included.
    #[must_use]
    pub const fn between_ms(min: u64, max: u64) -> Self {
        Self { min_us: min * 1000, max_us: max * 1000 }
    }

    /// One length from the range, in microseconds: the one that this random number chooses.
    #[must_use]
    pub const fn drawn(self, random: u64) -> u64 {
        match self.max_us - self.min_us {
            0 => self.min_us,
            spread => self.min_us + random % spread,
        }
    }

    /// The same range, `factor` times as long.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self { min_us: self.min_us.saturating_mul(factor), max_us: self.max_us.saturating_mul(factor) }
    }

    /// The same range, all of it longer by `us`.
    #[must_use]
    pub const fn longer_by(self, us: u64) -> Self {
        Self { min_us: self.min_us.saturating_add(us), max_us: self.max_us.saturating_add(us) }
    }

    /// The same range on a clock that runs this much slower, in parts per million, or faster if it is negative.
    #[must_use]
    pub fn skewed(self, ppm: i64) -> Self {
        let skewed = |us: u64| {
            let rate = u128::try_from(1_000_000 + i128::from(ppm)).unwrap_or(0);
            // Rounded up: a timer never runs out before its own clock says so.
            u64::try_from((u128::from(us) * rate).div_ceil(1_000_000)).unwrap_or(u64::MAX)
        };
        Self { min_us: skewed(self.min_us), max_us: skewed(self.max_us) }
    }
}

/// Where a machine puts its outputs. The driver owns it, empties it after each step and uses it again, so that
/// stepping allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outbox<M: Machine> {
    outputs: Vec<Output<M>>,
}

impl<M: Machine> Outbox<M> {
    /// An empty outbox.
    #[must_use]
    pub const fn new() -> Self {
        Self { outputs: Vec::new() }
    }

    /// Sends a message now.
    pub fn send(&mut self, to: M::Peer, message: M::Message) {
        self.outputs.push(Output::Send { to, message });
    }

    /// Makes records durable.
    pub fn persist(&mut self, token: M::Token, records: Vec<M::Record>) {
        self.outputs.push(Output::Persist { token, records });
    }

    /// Sends a message once `token` is durable.
    pub fn send_after(&mut self, token: M::Barrier, to: M::Peer, message: M::Message) {
        self.outputs.push(Output::SendAfter { token, to, message });
    }

    /// Starts a timer.
    pub fn set(&mut self, timer: M::Timer, delay: Delay) {
        self.outputs.push(Output::Set { timer, delay });
    }

    /// Stops a timer.
    pub fn cancel(&mut self, timer: M::Timer) {
        self.outputs.push(Output::Cancel(timer));
    }

    /// Tells the owner.
    pub fn notify(&mut self, notice: M::Notice) {
        self.outputs.push(Output::Notify(notice));
    }

    /// Says why an input changed nothing.
    pub fn ignore(&mut self, reason: &'static str) {
        self.outputs.push(Output::Ignore(reason));
    }

    /// What has been put in since the last time, in order.
    pub fn drain(&mut self) -> impl Iterator<Item = Output<M>> + '_ {
        self.outputs.drain(..)
    }

    /// What has been put in, left where it is.
    #[must_use]
    pub fn as_slice(&self) -> &[Output<M>] {
        &self.outputs
    }
}

impl<M: Machine> Default for Outbox<M> {
    fn default() -> Self {
        Self::new()
    }
}
