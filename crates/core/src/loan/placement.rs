//! Whom a worker works for: the worker's side of a loan.
//!
//! A worker is at home, away, or on its way back. It goes away when its own leader calls and nothing of its own runs; it goes
//! home when either leader says so, or when its time is over. On its way back it takes nothing new; what runs may end within the
//! given time and is stopped then. Its epoch is on disk before it goes, and before it says that it will not, so after a restart
//! it knows which calls are old; and it is at home then, whatever it did before.

use core::fmt;

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::WorkerMessage;
use crate::ServerId;
use crate::ledger::LoanId;
use crate::machine::{Delay, Input, Machine, Moment, Never, Outbox, Token};
use crate::planted::{Bug, Planted};

/// While its own farm cannot be reached, a worker whose time is over stays for so long and tries again.
const EXTENSION: Delay = Delay::exactly_ms(2000);

/// No loan is longer, and no deadline later, whatever others say.
const LONGEST_MS: u64 = 30 * 24 * 3600 * 1000;

/// A worker's placement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The newest call that it has followed.
    epoch: LoanId,
    place: Place,
    /// The leader of its own farm, if it has a link to it and is welcome there.
    home: Option<ServerId>,
    /// Does nothing run or wait for the farm that it works for?
    is_idle: bool,
    last_token: u64,
    planted: Planted,
}

/// Where a worker is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// With its own farm.
    Home,
    /// About to go: that it goes is on its way to the disk.
    Going {
        /// To whom.
        farm: String,
        /// For how long.
        for_ms: u64,
        /// How long what runs then may take to end.
        within_ms: u64,
        /// The write that must come first.
        token: Token,
    },
    /// With its own farm, and it stays there: that it will not follow its last call is on its way to the disk. Otherwise it
    /// could follow it after all once it has started again, though its own farm has been told that it is at home.
    Staying {
        /// The write that must come first.
        token: Token,
    },
    /// With another one.
    Away {
        /// With whom.
        farm: String,
        /// How long what runs may take to end when its time is over.
        within_ms: u64,
    },
    /// With another one, but it takes nothing new from it.
    Returning {
        /// With whom.
        farm: String,
    },
}

/// What its owner tells a worker's placement.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Command {
    /// This is the leader of its own farm, and the worker is welcome there; or there is none that it reaches.
    Home(Option<ServerId>),
    /// The leader of the farm that it works for says this.
    Abroad(WorkerMessage),
    /// Nothing runs or waits for the farm that it works for, or something does.
    Idle(bool),
}

/// What its owner is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Notice {
    /// Take nothing more from its own farm, and work for that one.
    Go {
        /// For whom.
        farm: String,
        /// Under which loan.
        loan: LoanId,
    },
    /// Take nothing new from that farm; what runs goes on.
    Finish,
    /// Stop what still runs.
    Stop,
    /// Work for its own farm again.
    ComeHome,
}

/// What a worker keeps on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Record {
    /// The newest call that it has followed.
    pub epoch: LoanId,
}

/// Its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The time for which it was lent is over.
    Lease,
    /// What still runs has had time enough.
    Deadline,
}

impl Placement {
    /// A worker that has just started, with what it had on disk.
    #[must_use]
    pub const fn new(epoch: LoanId, planted: Planted) -> Self {
        Self { epoch, place: Place::Home, home: None, is_idle: true, last_token: 0, planted }
    }

    /// Where it is.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// The newest call that it has followed.
    #[must_use]
    pub const fn epoch(&self) -> LoanId {
        self.epoch
    }

    /// The other farm that it works for.
    #[must_use]
    pub fn farm(&self) -> Option<&str> {
        match &self.place {
            Place::Away { farm, .. } | Place::Returning { farm } => Some(farm),
            Place::Home | Place::Going { .. } | Place::Staying { .. } => None,
        }
    }

    /// Whoever is about to go counts as gone: its own farm must not take it for one that has come back.
    fn is_away(&self) -> bool {
        self.place != Place::Home
    }

    fn on_home_word(&mut self, word: WorkerMessage, out: &mut Outbox<Self>) {
        match word {
            WorkerMessage::Redirect { loan, farm, for_ms, within_ms } => {
                self.on_redirect(loan, farm, (for_ms, within_ms), out);
            }
            WorkerMessage::Return { loan, .. } if loan > self.epoch => self.on_call_taken_back(loan, out),
            WorkerMessage::Return { loan, within_ms } => self.on_return(loan, within_ms, out),
            WorkerMessage::At { .. } | WorkerMessage::CannotGo { .. } => out.ignore("what only workers say"),
        }
    }

    fn on_redirect(&mut self, loan: LoanId, farm: String, (for_ms, within_ms): (u64, u64), out: &mut Outbox<Self>) {
        let is_new = loan > self.epoch || self.planted.is(Bug::LateRedirect);
        if !is_new || self.place != Place::Home {
            // Whoever calls may not know where it is.
            self.tell(out);
            return out.ignore("a call abroad that is late, or comes twice");
        }
        if !self.is_idle {
            // It will be called again.
            return out.ignore("a call abroad while something of its own runs");
        }
        let token = self.note_epoch(loan, out);
        self.place = Place::Going { farm, for_ms, within_ms, token };
    }

    /// It is wanted at home before it has even gone. Whatever called it may still be on its way.
    fn on_call_taken_back(&mut self, loan: LoanId, out: &mut Outbox<Self>) {
        if self.place != Place::Home {
            return out.ignore("the end of a loan that it cannot follow yet");
        }
        let token = self.note_epoch(loan, out);
        self.place = Place::Staying { token };
    }

    fn note_epoch(&mut self, epoch: LoanId, out: &mut Outbox<Self>) -> Token {
        self.last_token += 1;
        self.epoch = epoch;
        let token = Token(self.last_token);
        out.persist(token, alloc::vec![Record { epoch }]);
        token
    }

    fn on_persisted(&mut self, persisted: Token, out: &mut Outbox<Self>) {
        match &self.place {
            Place::Going { farm, for_ms, within_ms, token } if *token <= persisted => {
                let (farm, for_ms, within_ms) = (farm.clone(), *for_ms, *within_ms);
                self.place = Place::Away { farm: farm.clone(), within_ms };
                out.notify(Notice::Go { farm, loan: self.epoch });
                out.set(Timer::Lease, Delay::exactly_ms(for_ms.min(LONGEST_MS)));
                self.tell(out);
            }
            Place::Staying { token } if *token <= persisted => {
                self.place = Place::Home;
                self.tell(out);
            }
            _ => {}
        }
    }

    fn on_return(&mut self, loan: LoanId, within_ms: u64, out: &mut Outbox<Self>) {
        match &self.place {
            Place::Away { farm, .. } if loan == self.epoch => {
                self.place = Place::Returning { farm: farm.clone() };
                out.cancel(Timer::Lease);
                out.set(Timer::Deadline, Delay::exactly_ms(within_ms.min(LONGEST_MS)));
                out.notify(Notice::Finish);
                self.come_home_if_idle(out);
            }
            // It has not gone yet.
            Place::Going { token, .. } if loan == self.epoch => self.place = Place::Staying { token: *token },
            Place::Home if loan == self.epoch => self.tell(out),
            _ => out.ignore("the end of another loan, or one that it has heard of"),
        }
    }

    /// A worker that nobody could take back stays where it is of use.
    fn on_lease(&mut self, out: &mut Outbox<Self>) {
        match self.place {
            Place::Away { within_ms, .. } if self.home.is_some() => self.on_return(self.epoch, within_ms, out),
            Place::Away { .. } => out.set(Timer::Lease, EXTENSION),
            _ => out.ignore("the end of a time that is over"),
        }
    }

    fn on_idle(&mut self, is_idle: bool, out: &mut Outbox<Self>) {
        self.is_idle = is_idle;
        match self.place {
            // Its own farm has given it something since it was called: it took it for dead, and the call is void.
            Place::Going { token, .. } if !is_idle => self.place = Place::Staying { token },
            _ => self.come_home_if_idle(out),
        }
    }

    fn come_home_if_idle(&mut self, out: &mut Outbox<Self>) {
        if self.is_idle && matches!(self.place, Place::Returning { .. }) {
            self.place = Place::Home;
            out.cancel(Timer::Deadline);
            out.notify(Notice::ComeHome);
            self.tell(out);
        }
    }

    fn on_home(&mut self, leader: Option<ServerId>, out: &mut Outbox<Self>) {
        self.home = leader;
        self.tell(out);
    }

    /// Its own leader is told where it is whenever that changes, and every new leader is; but not while that is on its way to
    /// the disk, because then it is neither here nor there.
    fn tell(&self, out: &mut Outbox<Self>) {
        let is_settled = !matches!(self.place, Place::Going { .. } | Place::Staying { .. });
        if let Some(leader) = self.home.filter(|_| is_settled) {
            out.send(leader, WorkerMessage::At { epoch: self.epoch, is_away: self.is_away() });
        }
    }
}

impl Machine for Placement {
    type Peer = ServerId;
    type Message = WorkerMessage;
    type Command = Command;
    type Timer = Timer;
    type Record = Record;
    type Token = Token;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Message { from, message } if self.home == Some(from) => self.on_home_word(message, out),
            Input::Message { .. } => out.ignore("a call of somebody who does not lead its own farm"),
            Input::Command(Command::Home(leader)) => self.on_home(leader, out),
            Input::Command(Command::Idle(is_idle)) => self.on_idle(is_idle, out),
            Input::Command(Command::Abroad(WorkerMessage::Return { loan, within_ms })) => {
                self.on_return(loan, within_ms, out);
            }
            Input::Command(Command::Abroad(_)) => out.ignore("what only its own leader may say"),
            Input::Timer(Timer::Lease) => self.on_lease(out),
            Input::Timer(Timer::Deadline) => out.notify(Notice::Stop),
            Input::Persisted(token) => self.on_persisted(token, out),
            Input::LinkUp(_) | Input::LinkDown(_) => out.ignore("what its owner says in its own way"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Home(Some(leader)) => write!(f, "home is led by {leader}"),
            Self::Home(None) => f.write_str("home is out of reach"),
            Self::Abroad(word) => write!(f, "abroad: {word}"),
            Self::Idle(is_idle) => f.write_str(if *is_idle { "idle" } else { "busy" }),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go { farm, loan } => write!(f, "go to {farm} under {loan}"),
            Self::Finish => f.write_str("finish"),
            Self::Stop => f.write_str("stop"),
            Self::ComeHome => f.write_str("come home"),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}", self.epoch)
    }
}

impl fmt::Display for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease => "lease",
            Self::Deadline => "deadline",
        })
    }
}
