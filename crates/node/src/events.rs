//! What has happened on a server, numbered, so that whoever was away can read on from where it left off.

mod words;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use primus_core::ServerId;
use primus_core::load::Score;
use primus_core::text::escape;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

/// How many are kept.
const EVENTS_MAX: usize = 1000;
/// How many of them may tell of refusals: those that are refused choose how many there are.
const REFUSALS_MAX: usize = 100;
/// How often a refusal is told.
const REFUSAL_EVERY: Duration = Duration::from_millis(500);

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its number; the next one has the next.
    pub index: u64,
    /// When.
    pub time: SystemTime,
    /// What.
    pub kind: Kind,
}

/// What happened. In words that this program knows, or in those of an event that was [read](Kind::read).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind<S = &'static str> {
    /// Another server leads.
    LeaderChanged {
        /// Who leads now.
        leader: u64,
        /// Who led before.
        previous: Option<u64>,
        /// In which term.
        term: u64,
        /// Why.
        reason: S,
        /// How long there was nobody, as far as this server knows.
        took_ms: f64,
    },
    /// Nobody is known to lead any more.
    LeaderLost {
        /// Who led.
        previous: Option<u64>,
        /// In which term.
        term: u64,
        /// Why.
        reason: S,
    },
    /// Another server leads a group.
    GroupLeaderChanged {
        /// Which group.
        group: String,
        /// Who leads it now.
        leader: u64,
        /// Who led it before.
        previous: Option<u64>,
        /// Why.
        reason: S,
    },
    /// Somebody asked for an election, and the leader won it.
    LeaderConfirmed {
        /// Who leads.
        leader: u64,
        /// In which term.
        term: u64,
        /// The server that was asked for it.
        asked: u64,
        /// The server that held it.
        held_by: u64,
        /// How loaded everybody was.
        scores: Vec<ServerScore>,
    },
    /// Somebody asked for an election of a further group, and its leader won it.
    GroupLeaderConfirmed {
        /// Which group.
        group: String,
        /// Who leads it.
        leader: u64,
        /// In which round.
        round: u64,
        /// The server that held the election.
        held_by: u64,
        /// How loaded everybody was, as far as that server knows.
        scores: Vec<ServerScore>,
    },
    /// The server belongs to no cluster yet.
    FoundingWaits {
        /// What it waits for, or why it will not belong to one as it is.
        reason: String,
    },
    /// The server belongs to a cluster from now on.
    Founded {
        /// Which one: the first digits of its id.
        cluster: String,
        /// The servers of the cluster.
        members: Vec<u64>,
    },
    /// The server's configuration names others than the members of its cluster.
    ListDiffers {
        /// Whom it names.
        listed: Vec<u64>,
        /// Who they are.
        members: Vec<u64>,
    },
    /// A peer is suspected.
    Suspected {
        /// Who.
        peer: u64,
        /// Why.
        reason: S,
    },
    /// A link was refused, or what came on one.
    LinkRefused {
        /// Why.
        reason: String,
        /// How many others were refused since the last one that was told.
        left_out: u64,
    },
    /// The farm has too much to do.
    Saturated {
        /// How many tasks wait.
        queued: u64,
    },
    /// It has not any more, and sends home whom it has borrowed.
    Calm,
    /// A neighbour was asked for workers.
    LoanAsked {
        /// Who.
        farm: String,
        /// How many.
        count: u32,
    },
    /// It lends some.
    LoanPromised {
        /// Who.
        farm: String,
        /// How many.
        count: u32,
    },
    /// It lends none.
    LoanRefused {
        /// Who.
        farm: String,
        /// Why.
        reason: S,
    },
    /// A neighbour that was asked did not answer.
    NeighbourSilent {
        /// Who.
        farm: String,
    },
    /// A neighbour promised a worker that did not come.
    LoanNotSent {
        /// Who.
        farm: String,
        /// The lender's number of the loan.
        loan: u64,
    },
    /// A neighbour speaks of a loan that there is not.
    LoanUnknown {
        /// Who.
        farm: String,
        /// The number that it names.
        loan: u64,
    },
    /// A worker has come from a neighbour that has not lent it.
    WorkerUnknown {
        /// Whose it says it is.
        farm: String,
        /// Its name here.
        worker: String,
    },
    /// A worker that is lent to a neighbour cannot go there; its own diagnostics say why.
    WorkerCannotGo {
        /// To whom.
        farm: String,
        /// Who.
        worker: String,
    },
    /// A worker is lent.
    Lent(Loan<S>),
    /// It is wanted back.
    Recalled(Loan<S>),
    /// It is back.
    LoanHome(Loan<S>),
    /// It is dead.
    LoanDead(Loan<S>),
    /// It should be back by now.
    Overdue(Loan<S>),
    /// A worker of another farm works here.
    Borrowed(Guest<S>),
    /// It does not any more.
    GivenBack(Guest<S>),
    /// The clock of a server is far from the farm's time.
    ClockOff {
        /// Whose.
        server: u64,
        /// By how much it is ahead; less than nothing if it is behind.
        ahead_ms: i64,
    },
    /// It is right again.
    ClockRight {
        /// Whose.
        server: u64,
    },
    /// A turn of the control loop took longer than it may.
    LateTurn {
        /// How long it took.
        took_ms: f64,
        /// For how long its thread had a processor meanwhile.
        worked_ms: f64,
        /// What took so long; `the host` if the thread had no processor.
        cause: S,
        /// How many other turns were late since the last one that was told.
        left_out: u64,
    },
    /// A hook has run, or could not.
    HookEnded {
        /// Which: it is called after the events that it runs for.
        hook: S,
        /// The number of the event that it ran for.
        event: u64,
        /// How it ended, in one word: `done`, `failed`, `timed_out`, `not_started` or `dropped`.
        outcome: S,
        /// Its exit code, if it ended by itself.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Why it did not run.
        error: Option<String>,
        /// How long it took.
        took_ms: f64,
        /// The end of what it printed.
        output: String,
    },
}

/// How loaded a server is, as events tell it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerScore {
    /// Which server.
    pub id: u64,
    /// From 0 to 100, lower is better.
    pub score: f64,
}

impl ServerScore {
    pub(crate) fn new(id: ServerId, score: Score) -> Self {
        Self { id: id.0, score: f64::from(score.hundredths()) / 100.0 }
    }
}

/// A worker that is lent, as events tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan<S = &'static str> {
    /// The number of the loan.
    pub loan: u64,
    /// Who.
    pub worker: String,
    /// To which farm.
    pub to: String,
    /// For how long.
    pub for_ms: u64,
    /// Why: `asked` or `operator`.
    pub why: S,
}

/// A worker that is borrowed, as events tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest<S = &'static str> {
    /// The lender's number of the loan.
    pub loan: u64,
    /// Its name here.
    pub worker: String,
    /// Whose it is.
    pub from: String,
    /// For how long.
    pub for_ms: u64,
    /// Why: `asked` or `operator`.
    pub why: S,
}

impl Kind<String> {
    /// What an event says that some server wrote down; nothing if this version does not know its kind.
    #[must_use]
    pub fn read(event: &Value) -> Option<Self> {
        Self::deserialize(event).ok()
    }
}

impl Event {
    /// As scripts and hooks see it: one object.
    #[must_use]
    pub fn object(&self) -> Value {
        let mut object = serde_json::to_value(&self.kind).unwrap_or_default();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("index".to_owned(), self.index.into());
            fields.insert("time".to_owned(), text_of(self.time).into());
        }
        object
    }
}

/// A length of time as events tell it: to the microsecond, so that it reads the same however often it is passed on.
pub(crate) fn milliseconds(length: Duration) -> f64 {
    length.as_micros() as f64 / 1000.0
}

/// A point in time as RFC 3339, UTC, milliseconds.
#[must_use]
pub fn text_of(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| String::new(), |time| format!("{time:.3}"))
}

/// The last events of a server.
#[derive(Debug)]
pub struct History {
    events: Mutex<VecDeque<Event>>,
    refusals: Mutex<Refusals>,
    newest: watch::Sender<u64>,
}

impl Default for History {
    fn default() -> Self {
        Self { events: Mutex::default(), refusals: Mutex::default(), newest: watch::Sender::new(0) }
    }
}

/// When a refusal was last told, and how many were left out since.
#[derive(Debug, Default)]
struct Refusals {
    told: Option<Instant>,
    left_out: u64,
}

impl Refusals {
    /// One more. Says how many were left out before it, if it is to be told.
    fn add(&mut self, now: Instant) -> Option<u64> {
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < REFUSAL_EVERY) {
            self.left_out += 1;
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

impl History {
    /// Adds what has just happened, and announces it.
    pub fn add(&self, kind: Kind) {
        self.keep(kind);
        self.announce();
    }

    /// Adds what has just happened. It is announced later.
    pub(crate) fn keep(&self, kind: Kind) {
        let mut events = self.events.lock().expect("nobody panics while holding this");
        let index = events.back().map_or(0, |event| event.index) + 1;
        let is_refusal = |event: &Event| matches!(event.kind, Kind::LinkRefused { .. });
        if matches!(kind, Kind::LinkRefused { .. })
            && events.iter().filter(|event| is_refusal(event)).count() >= REFUSALS_MAX
            && let Some(oldest) = events.iter().position(is_refusal)
        {
            events.remove(oldest);
        }
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(Event { index, time: SystemTime::now(), kind });
    }

    /// Announces what has been added. The lock is free by then, so a thread that this wakes can read at once.
    pub(crate) fn announce(&self) {
        let index =
            self.events.lock().expect("nobody panics while holding this").back().map_or(0, |event| event.index);
        self.newest.send_if_modified(|newest| {
            let is_new = index > *newest;
            *newest = index.max(*newest);
            is_new
        });
    }

    /// Tells that somebody was refused, unless the last one was just now: then it is only counted. All refusals of a server
    /// come here, so that nobody who is refused can fill its history or its log.
    pub fn refused(&self, reason: impl AsRef<str>) {
        let told = self.refusals.lock().expect("nobody panics while holding this").add(Instant::now());
        if let Some(left_out) = told {
            self.add(Kind::LinkRefused { reason: escape(reason.as_ref()).into_owned(), left_out });
        }
    }

    /// What happened after the event of this number, as far as it is kept.
    #[must_use]
    pub fn after(&self, index: u64) -> Vec<Event> {
        let events = self.events.lock().expect("nobody panics while holding this");
        events.iter().filter(|event| event.index > index).cloned().collect()
    }

    /// Announces the number of the newest event.
    #[must_use]
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_twice_a_second_and_the_rest_is_counted() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let told: Vec<u64> = (0..5000).filter_map(|ms| refusals.add(start + Duration::from_millis(ms))).collect();
        assert_eq!(told.len(), 10);
        assert_eq!((told[0], told[1]), (0, 499));
        let history = History::default();
        (0..1000).for_each(|_| history.refused("a\nb\u{202e}"));
        let [Event { kind: Kind::LinkRefused { reason, left_out: 0 }, .. }] = &history.after(0)[..] else {
            panic!("{:?}", history.after(0))
        };
        assert_eq!(reason, "a\\nb\\u{202e}");
    }

    #[test]
    fn however_many_refusals_there_are_other_events_stay() {
        let history = History::default();
        history.add(Kind::Calm);
        for _ in 0..5000 {
            history.add(Kind::LinkRefused { reason: String::new(), left_out: 0 });
        }
        let events = history.after(0);
        assert_eq!((events.len(), events[0].index, events[1].index), (1 + REFUSALS_MAX, 1, 4902));
    }
}
