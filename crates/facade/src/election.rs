//! An election of your own: try it in the laboratory with [`Trial`], then lead a real farm with it through
//! [`ServerBuilder::elect_with`](crate::ServerBuilder::elect_with).
//!
//! An [`Election`] is a plain value. It is told one [`Event`] at a time and says what it wants through [`Actions`]; it has no
//! clock, socket or thread of its own. The servers watch each other and say who seems to be dead; a quorum ratifies the winner, so
//! whatever an election does wrong, there are never two leaders in one term.

mod adapted;
mod trial;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use primus_core::ServerId;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use self::adapted::Adapted;
pub use self::trial::{Trial, TrialFailure};

/// An algorithm that names a leader. A server that restarts begins with a fresh one.
pub trait Election: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// What servers say to each other about it.
    type Message: Clone + Eq + Ord + Hash + Debug + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Takes what has happened, and says what is to be done.
    fn on(&mut self, event: Event<Self::Message>, actions: &mut Actions<Self::Message>);

    /// The servers that seem to live and should rather lead than this one, the best first.
    fn better(&self) -> Vec<ServerId>;

    /// True if a better server takes over from a worse one that leads.
    fn preempts(&self) -> bool {
        true
    }
}

/// What happens to an election.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<M> {
    /// Hold an election: the server has started a moment ago, or an operator wants one.
    Start,
    /// Give leadership up: the server was named and could not lead, or is about to end.
    Resign,
    /// This server seems to be dead or cut off.
    Suspect(ServerId),
    /// This server seems to live again.
    Trust(ServerId),
    /// A quorum has made this server the leader, whatever the election thought: it is over.
    Ratified(ServerId),
    /// Another server says something.
    Message {
        /// Which server.
        from: ServerId,
        /// What it says.
        message: M,
    },
    /// The time that [`Actions::wait`] asked for is over.
    Timeout,
}

/// What an election wants.
#[derive(Debug)]
pub struct Actions<M> {
    said: Vec<(ServerId, M)>,
    named: Option<Option<ServerId>>,
    wait: Option<(Duration, Duration)>,
}

impl<M> Actions<M> {
    const fn new() -> Self {
        Self { said: Vec::new(), named: None, wait: None }
    }

    /// Sends a message to another server. It may be lost.
    pub fn send(&mut self, to: ServerId, message: M) {
        self.said.push((to, message));
    }

    /// Names the leader: this server, another one, or none that is known. What was waited for is over.
    pub fn elect(&mut self, leader: Option<ServerId>) {
        self.named = Some(leader);
        self.wait = None;
    }

    /// Waits for a time between these, as chance has it: then comes [`Event::Timeout`], unless a leader is named before. An
    /// election that waits is under way.
    pub fn wait(&mut self, least: Duration, most: Duration) {
        self.wait = Some((least, most));
    }
}
