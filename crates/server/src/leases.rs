//! The leases of a server: who holds which group for how long, and what must end before another server leads.
//!
//! They stand beside the farm, not in it: a farm may be busy, and a lease that is not renewed in time ends what it guards. What
//! a lease is granted by is an entry of the log, so grants and releases go through the farm ([`Notice::Want`],
//! [`Command::Applied`]); that it goes on is a promise for which a majority must have said that this server leads, and takes
//! nothing from the farm.

use core::fmt;

use primus_core::lease::lessor::{self, Lessor, Rules, Tick};
use primus_core::lease::{Message, Poll};
use primus_core::ledger::{Effect, Entry, Groups};
use primus_core::machine::{Input, Machine, Moment, Never, Outbox, Output};
use primus_core::{ServerId, SessionId, Term};

use crate::control::Reason;
use crate::farm::{Refusal, Ticket};

/// How many questions may wait for the leader to be ready.
const EARLY_MAX: usize = 1024;

/// The leases of one server.
#[derive(Debug)]
pub struct Leases {
    id: ServerId,
    lessor: Lessor,
    /// Used again and again, so that stepping allocates nothing.
    outbox: Outbox<Lessor>,
    /// Who leads, and in which term, as far as this server knows.
    leader: Option<ServerId>,
    term: Term,
    /// Those that came before this server was ready to lead.
    early: Vec<Early>,
    /// What the owner was told.
    is_guarded: bool,
    vacating: Vec<Ticket>,
    handover: Option<(ServerId, Reason)>,
}

#[derive(Debug)]
enum Early {
    Poll(SessionId, Poll),
    Vacate(Ticket),
}

/// What its owner tells it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// This one leads in this term, as far as this server knows. If it is this server itself, it has to wait for
    /// [`Command::Lead`].
    Leader(Option<ServerId>, Term),
    /// This server leads in this term, and the log says that these are held.
    Lead(Term, Groups),
    /// In this term the log has said this.
    Applied(Term, Vec<Effect>),
    /// A majority has said that this server leads: the answer to [`Notice::Confirm`].
    Confirmed(u64),
    /// This server wants to hand over to that one, for this reason, once nothing is guarded beside it.
    HandOver(ServerId, Reason),
    /// Nobody has taken over.
    Stay,
    /// End what is held beside this server. Answered when it has ended.
    Vacate(Ticket),
}

/// What it tells its owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// These should be in the log, if this server still leads in this term.
    Want(Term, Vec<Entry>),
    /// Ask a majority whether this server leads.
    Confirm(u64),
    /// Nothing is held beside this server; or why that is not for it to say.
    Vacant(Ticket, Result<(), Refusal>),
    /// The session must ask elsewhere, or later.
    Elsewhere(SessionId, Refusal),
    /// Something is guarded beside this server, or not any more.
    Guarded(bool),
    /// Nothing is, so that one can take over, for this reason.
    Transfer(ServerId, Reason),
    /// Somebody asked with a token of an older leader.
    OldToken,
}

impl Leases {
    /// The leases of this server. It does not lead yet.
    #[must_use]
    pub fn new(id: ServerId, rules: Rules) -> Self {
        Self {
            id,
            lessor: Lessor::new(id, rules),
            outbox: Outbox::new(),
            leader: None,
            term: Term(0),
            early: Vec::new(),
            is_guarded: false,
            vacating: Vec::new(),
            handover: None,
        }
    }

    /// The one that grants them, to look at.
    ///
    /// # Errors
    /// If this server does not lead.
    pub fn lessor(&self) -> Result<&Lessor, Refusal> {
        if self.lessor.is_leading() { Ok(&self.lessor) } else { Err(self.refusal()) }
    }

    /// Why this server does not answer, if it does not lead.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        Refusal::of(self.id, self.leader)
    }

    fn on_command(&mut self, now: Moment, command: Command, out: &mut Outbox<Self>) {
        match command {
            Command::Leader(leader, term) => self.on_leader(now, (leader, term), out),
            // What the farm said in an older term may be late.
            Command::Lead(term, groups) if self.leads_in(term) => {
                self.tell(now, lessor::Command::Lead(groups), out);
                self.ask_again(now, out);
            }
            Command::Applied(term, effects) if self.leads_in(term) => {
                self.tell(now, lessor::Command::Applied(effects), out);
            }
            Command::Lead(..) | Command::Applied(..) => out.ignore("what the farm said in an older term"),
            Command::Confirmed(question) => self.tell(now, lessor::Command::Confirmed(question), out),
            Command::HandOver(..) if self.leader != Some(self.id) => out.ignore("what a leader is told"),
            Command::HandOver(to, reason) => {
                // It may be said again and again.
                if self.handover.replace((to, reason)).is_none() {
                    self.tell(now, lessor::Command::Vacate(true), out);
                }
            }
            Command::Stay => {
                self.handover = None;
                self.tell(now, lessor::Command::Vacate(false), out);
            }
            Command::Vacate(ticket) => self.on_question(now, Early::Vacate(ticket), out),
        }
    }

    fn leads_in(&self, term: Term) -> bool {
        self.leader == Some(self.id) && self.term == term
    }

    /// Another server leads, or nobody, or this one is not ready yet: what it knew as a leader is void.
    fn on_leader(&mut self, now: Moment, (leader, term): (Option<ServerId>, Term), out: &mut Outbox<Self>) {
        (self.leader, self.term) = (leader, term);
        self.tell(now, lessor::Command::Follow, out);
        out.cancel(Tick);
        self.handover = None;
        let refusal = self.refusal();
        for ticket in std::mem::take(&mut self.vacating) {
            out.notify(Notice::Vacant(ticket, Err(refusal)));
        }
        self.ask_again(now, out);
    }

    /// What came too early is asked now.
    fn ask_again(&mut self, now: Moment, out: &mut Outbox<Self>) {
        let early = std::mem::take(&mut self.early);
        early.into_iter().for_each(|question| self.on_question(now, question, out));
    }

    /// A question is for the leader. Before this server is ready to lead, it waits.
    fn on_question(&mut self, now: Moment, question: Early, out: &mut Outbox<Self>) {
        if !self.lessor.is_leading() {
            if self.leader == Some(self.id) && self.early.len() < EARLY_MAX {
                return self.early.push(question);
            }
            return out.notify(match question {
                Early::Poll(session, _) => Notice::Elsewhere(session, self.refusal()),
                Early::Vacate(ticket) => Notice::Vacant(ticket, Err(self.refusal())),
            });
        }
        match question {
            Early::Poll(from, poll) => {
                self.step_lessor(now, Input::Message { from, message: Message::Poll(poll) }, out);
            }
            Early::Vacate(ticket) => {
                self.vacating.push(ticket);
                self.tell(now, lessor::Command::Vacate(true), out);
            }
        }
    }

    fn tell(&mut self, now: Moment, command: lessor::Command, out: &mut Outbox<Self>) {
        self.step_lessor(now, Input::Command(command), out);
    }

    fn step_lessor(&mut self, now: Moment, input: Input<Lessor>, out: &mut Outbox<Self>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.lessor.step(now, input, &mut outbox);
        outbox.drain().for_each(|output| self.on_lessor(output, out));
        self.outbox = outbox;
    }

    fn on_lessor(&mut self, output: Output<Lessor>, out: &mut Outbox<Self>) {
        match output {
            Output::Send { to, message } => out.send(to, message),
            Output::Set { timer, delay } => out.set(timer, delay),
            Output::Cancel(timer) => out.cancel(timer),
            Output::Notify(lessor::Notice::Propose(entries)) => out.notify(Notice::Want(self.term, entries)),
            Output::Notify(lessor::Notice::Confirm(question)) => out.notify(Notice::Confirm(question)),
            Output::Notify(lessor::Notice::Vacant) => {
                for ticket in std::mem::take(&mut self.vacating) {
                    out.notify(Notice::Vacant(ticket, Ok(())));
                }
            }
            Output::Notify(lessor::Notice::OldToken) => out.notify(Notice::OldToken),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }

    /// Its owner must know whether something has to end before another server leads.
    fn tell_of_guards(&mut self, out: &mut Outbox<Self>) {
        let is_guarded = self.lessor.holds_beside();
        if std::mem::replace(&mut self.is_guarded, is_guarded) != is_guarded {
            out.notify(Notice::Guarded(is_guarded));
        }
        if let Some((to, reason)) = self.handover.take_if(|_| !is_guarded) {
            out.notify(Notice::Transfer(to, reason));
        }
    }
}

impl Machine for Leases {
    type Peer = SessionId;
    type Message = Message;
    type Command = Command;
    type Timer = Tick;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, now: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message: Message::Poll(poll) } => {
                self.on_question(now, Early::Poll(from, poll), out);
            }
            Input::Message { .. } => out.ignore("what no session says"),
            Input::Timer(tick) => self.step_lessor(now, Input::Timer(tick), out),
            Input::Command(command) => self.on_command(now, command, out),
            Input::LinkUp(_) | Input::LinkDown(_) => out.ignore("a link that nobody watches here"),
        }
        self.tell_of_guards(out);
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader(Some(leader), term) => write!(f, "leader {leader} in term {term}"),
            Self::Leader(None, term) => write!(f, "no leader in term {term}"),
            Self::Lead(term, _) => write!(f, "lead in term {term}"),
            Self::Applied(_, effects) => write!(f, "applied {}", effects.len()),
            Self::Confirmed(question) => write!(f, "confirmed {question}"),
            Self::HandOver(to, reason) => write!(f, "hand over to {to}: {reason}"),
            Self::Stay => f.write_str("stay"),
            Self::Vacate(ticket) => write!(f, "vacate {}", ticket.0),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Want(_, entries) => write!(f, "want {}", entries.len()),
            Self::Confirm(question) => write!(f, "confirm {question}"),
            Self::Vacant(ticket, Ok(())) => write!(f, "vacant {}", ticket.0),
            Self::Vacant(ticket, Err(refusal)) => write!(f, "refuse {}: {refusal}", ticket.0),
            Self::Elsewhere(session, refusal) => write!(f, "refuse session {session}: {refusal}"),
            Self::Guarded(is_guarded) => f.write_str(if *is_guarded { "guarded" } else { "unguarded" }),
            Self::Transfer(to, reason) => write!(f, "transfer to {to}: {reason}"),
            Self::OldToken => f.write_str("old token"),
        }
    }
}
