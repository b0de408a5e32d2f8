//! The story of a run as it is recorded: who did what and why, without the noise.
//!
//! Left out are repeated announcements and whatever changes nothing: a run may send thousands of those after its
//! election is over. Of a long story the middle is cut out; what was left out is counted. How a story is told is the business of
//! [`super::text`] and of diagrams.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::ServerId;
use primus_core::election::bully::{self, Kind};
use primus_core::election::{Command, Election, MessageKind, Notice, Timer, ring};
use primus_core::load::Score;
use primus_core::machine::{Input, Output};
use primus_core::rank::Standing;
use primus_lab::node::NodeId;
use primus_lab::simulate::{Happening, Observer};

use super::bounded::Bounded;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// When, in microseconds.
    pub at_us: u64,
    /// What.
    pub event: Event,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A node acted.
    Step {
        /// Which one.
        node: ServerId,
        /// Why.
        cause: Cause,
        /// What came of it.
        effects: Vec<Effect>,
    },
    /// A message did not arrive.
    Lost {
        /// The sender.
        from: ServerId,
        /// The node that should have received it.
        to: ServerId,
        /// What it said.
        label: String,
    },
    /// A node dies, starts again, stands still or goes on, in words.
    Suffers(ServerId, &'static str),
    /// Messages from the first to the second get lost from now on; or they arrive again.
    Links {
        /// Do they get lost?
        are_cut: bool,
        /// From whom to whom.
        pairs: Vec<(ServerId, ServerId)>,
    },
}

/// Why a node acted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Its owner started an election.
    Starts,
    /// Its owner let it resign.
    Resigns,
    /// It suspects this node.
    Suspects(ServerId),
    /// It trusts this node again.
    Trusts(ServerId),
    /// It measured its load.
    Measures(Score),
    /// A message arrived.
    Receives {
        /// The sender.
        from: ServerId,
        /// What it says.
        label: String,
        /// True if a token came back to the node that sent it off.
        is_own_id: bool,
    },
    /// A timer ran out.
    RunsOut(Timer),
}

/// What followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It sends a message.
    Sends {
        /// The receiver.
        to: ServerId,
        /// What it says.
        label: String,
    },
    /// It leads from now on.
    Leads,
    /// It follows this leader.
    Follows(ServerId),
    /// It knows no leader any more.
    LosesLeader,
    /// The election is complete.
    Completes,
}

/// A message as a story names it.
pub trait Spoken {
    /// `ELECTION(5)`.
    fn label(&self) -> String;
    /// Is it said again only because it might have been missed?
    fn is_repetition(&self) -> bool;
    /// Does it bring this node its own id back?
    fn is_own_token(&self, node: ServerId) -> bool;
}

/// Listens to a run.
#[derive(Debug)]
pub struct Narrator {
    story: Story,
    tells_loads: bool,
    /// Messages that were told of and have not arrived yet.
    under_way: BTreeMap<(ServerId, ServerId, String), u32>,
    suspicions: BTreeSet<(ServerId, ServerId)>,
}

/// What happened, without the middle if it is long.
pub type Story = Bounded<Beat>;

impl Beat {
    /// Does it change who leads, or start something that may?
    #[must_use]
    pub fn is_turning_point(&self) -> bool {
        let changes_leader = |effect: &Effect| matches!(effect, Effect::Leads | Effect::Follows(_));
        match &self.event {
            Event::Step { effects, .. } if effects.iter().any(changes_leader) => true,
            Event::Step { cause: Cause::Starts | Cause::RunsOut(Timer::Startup), .. } => true,
            Event::Step { cause: Cause::Suspects(_), effects, .. } => !effects.is_empty(),
            Event::Step { .. } | Event::Lost { .. } => false,
            _ => true,
        }
    }
}

impl Narrator {
    /// Keeps so much of the story; changes of load belong to it only where they matter.
    #[must_use]
    pub fn new(most: usize, tells_loads: bool) -> Self {
        let (under_way, suspicions) = (BTreeMap::new(), BTreeSet::new());
        Self { story: Bounded::new(most), tells_loads, under_way, suspicions }
    }

    /// Everything that was told.
    #[must_use]
    pub fn story(self) -> Story {
        self.story
    }

    /// What has been told since the last time.
    pub fn take(&mut self) -> Vec<Beat> {
        std::mem::take(&mut self.story.beats)
    }

    fn tell(&mut self, at_us: u64, event: Event) {
        self.story.push(Beat { at_us, event });
    }

    /// What a node did, unless it is not worth telling.
    fn step(&mut self, at_us: u64, node: ServerId, cause: Cause, effects: Vec<Effect>) {
        let is_worth_telling = match &cause {
            Cause::Starts | Cause::Resigns => true,
            Cause::Suspects(peer) => self.suspicions.insert((node, *peer)) || !effects.is_empty(),
            // Looking twice at somebody who is there again is no news, and greeting it twice is a repetition.
            Cause::Trusts(peer) => self.suspicions.remove(&(node, *peer)),
            Cause::Measures(_) => self.tells_loads,
            Cause::Receives { from, label, .. } => self.arrives(*from, node, label) || !effects.is_empty(),
            Cause::RunsOut(Timer::Remind) => false,
            Cause::RunsOut(_) => true,
        };
        if is_worth_telling {
            for effect in &effects {
                if let Effect::Sends { to, label } = effect {
                    *self.under_way.entry((node, *to, label.clone())).or_default() += 1;
                }
            }
            self.tell(at_us, Event::Step { node, cause, effects });
        }
    }

    /// Takes a message off its way; true if the story told of its sending.
    fn arrives(&mut self, from: ServerId, to: ServerId, label: &str) -> bool {
        let key = (from, to, label.to_string());
        let Some(count) = self.under_way.get_mut(&key) else { return false };
        *count -= 1;
        if *count == 0 {
            self.under_way.remove(&key);
        }
        true
    }

    /// All links that change at one moment are told at once.
    fn link(&mut self, at_us: u64, pair: (ServerId, ServerId), is_cut: bool) {
        match self.story.newest().filter(|beat| beat.at_us == at_us).map(|beat| &mut beat.event) {
            Some(Event::Links { are_cut, pairs }) if *are_cut == is_cut => pairs.push(pair),
            _ => self.tell(at_us, Event::Links { are_cut: is_cut, pairs: vec![pair] }),
        }
    }
}

impl<M: Election<Message: Spoken>> Observer<M> for Narrator {
    fn on_step(&mut self, at_us: u64, node: NodeId, input: &Input<M>, outputs: &[Output<M>]) {
        let node = node.server();
        let Some(cause) = cause(node, input) else { return };
        let mut effects: Vec<Effect> = outputs.iter().filter_map(effect).collect();
        if matches!(input, Input::Message { message, .. } if message.is_repetition()) {
            effects.retain(|effect| *effect != Effect::Completes);
        }
        self.step(at_us, node, cause, effects);
    }

    fn on_happening(&mut self, at_us: u64, happening: &Happening) {
        match *happening {
            // The step that follows tells it.
            Happening::Command(..) => {}
            Happening::Crash(node) => self.tell(at_us, Event::Suffers(node.server(), "dies")),
            Happening::Restart(node) => self.tell(at_us, Event::Suffers(node.server(), "starts again")),
            Happening::Pause(node) => self.tell(at_us, Event::Suffers(node.server(), "freezes")),
            Happening::Resume(node) => self.tell(at_us, Event::Suffers(node.server(), "goes on")),
            Happening::Cut(from, to) => self.link(at_us, (from.server(), to.server()), true),
            Happening::Mend(from, to) => self.link(at_us, (from.server(), to.server()), false),
        }
    }

    fn on_loss(&mut self, at_us: u64, from: NodeId, to: NodeId, message: &M::Message) {
        let (from, to) = (from.server(), to.server());
        let label = message.label();
        if self.arrives(from, to, &label) {
            self.tell(at_us, Event::Lost { from, to, label });
        }
    }
}

fn cause<M: Election<Message: Spoken>>(node: ServerId, input: &Input<M>) -> Option<Cause> {
    Some(match input {
        Input::Message { from, message } => {
            let is_own_id = message.is_own_token(node) && M::kind_of(message) == MessageKind::Election;
            Cause::Receives { from: *from, label: message.label(), is_own_id }
        }
        Input::Timer(timer) => Cause::RunsOut(*timer),
        Input::Command(Command::Start) => Cause::Starts,
        Input::Command(Command::Resign) => Cause::Resigns,
        Input::Command(Command::Suspect(peer)) => Cause::Suspects(*peer),
        Input::Command(Command::Trust(peer)) => Cause::Trusts(*peer),
        Input::Command(Command::Score(score)) => Cause::Measures(*score),
        Input::Command(
            Command::Boot
            | Command::PeerScore(..)
            | Command::Members(_)
            | Command::Ratified(_)
            | Command::Slower(_),
        )
        | Input::LinkUp(_)
        | Input::LinkDown(_)
        | Input::Persisted(_) => return None,
    })
}

fn effect<M: Election<Message: Spoken>>(output: &Output<M>) -> Option<Effect> {
    match output {
        Output::Send { message, .. } if message.is_repetition() => None,
        Output::Send { to, message } => Some(Effect::Sends { to: *to, label: message.label() }),
        Output::Notify(Notice::Lead) => Some(Effect::Leads),
        Output::Notify(Notice::Follow(leader)) => Some(Effect::Follows(*leader)),
        Output::Notify(Notice::Undefined) => Some(Effect::LosesLeader),
        Output::Notify(Notice::Complete) => Some(Effect::Completes),
        _ => None,
    }
}

impl Spoken for ring::Message {
    fn label(&self) -> String {
        match self {
            Self::Election { candidate: Some(candidate), .. } => format!("ELECTION({candidate})"),
            Self::Election { candidate: None, .. } => "ELECTION(-)".to_string(),
            Self::Elected { leader, .. } => format!("ELECTED({leader})"),
        }
    }

    fn is_repetition(&self) -> bool {
        matches!(self, Self::Elected { lap: 1.., .. })
    }

    fn is_own_token(&self, node: ServerId) -> bool {
        matches!(self, Self::Election { candidate, .. } if *candidate == Some(node))
    }
}

impl Spoken for bully::Message {
    fn label(&self) -> String {
        let kind = match self.kind {
            Kind::Election => "Election",
            Kind::Alive => "Alive",
            Kind::Coordinator => "Coordinator",
        };
        match (self.kind, self.standing) {
            (Kind::Election, standing @ (Standing::Load(_) | Standing::Resigned)) => format!("{kind}({standing})"),
            _ => kind.to_string(),
        }
    }

    fn is_repetition(&self) -> bool {
        false
    }

    fn is_own_token(&self, _: ServerId) -> bool {
        false
    }
}
