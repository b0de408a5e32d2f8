//! A session with a farm, as a candidate for leases has one: drives its guard, whatever carries its questions to the leader.
//!
//! What the guard decides comes out as notices, in order. The owner of a session takes turns until it needs the session no more.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use primus_core::SessionId;
use primus_core::lease::guard::{Command, Leader, Notice, Rules, Timer};
use primus_core::lease::{Answer, Guard, LEASE_US, Message, Poll};
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_core::planted::Planted;
use tokio::time::{Instant, sleep_until};

use crate::clock::now;
use crate::timers::{Timers, drawn};

/// A question without an answer is given up after this part of a lease, on top of what the answer may wait.
const PATIENCE_PARTS: u64 = 4;

/// What carries questions to the leader of a farm, one at a time.
pub trait Transport {
    /// Why no server would ever answer such a question.
    type Refusal;

    /// Asks this, and forgets what was asked before. Without an answer after that time it has come to nothing.
    fn ask(&mut self, session: SessionId, poll: Poll, patience: Duration);
    /// What came of the last question; never, while there is none. May be dropped and called again without losing anything.
    fn answer(&mut self) -> impl Future<Output = Answered<Self::Refusal>> + Send;
}

/// What came of a question.
#[derive(Debug)]
pub enum Answered<R> {
    /// What the leader says, and how long leases last there, in microseconds.
    Answer(Answer, u64),
    /// The question of this number came to nothing, but may be asked again.
    Failed(u64),
    /// No server would ever answer it.
    Refused(R),
}

/// A session with a farm.
#[derive(Debug)]
pub struct Session<T> {
    guard: Guard,
    outbox: Outbox<Guard>,
    timers: Timers<Timer>,
    transport: T,
    lease_us: u64,
    notices: VecDeque<Notice>,
}

impl<T: Transport> Session<T> {
    /// A session of a random number that wants nothing yet. How long leases last there, it learns.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn new(transport: T) -> Self {
        Self::with_lease(transport, LEASE_US)
    }

    /// The same, where leases are known to last this long, in microseconds.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn with_lease(transport: T, lease_us: u64) -> Self {
        // Zero belongs to no session.
        let number = SessionId(getrandom::u64().expect("the system has randomness") | 1);
        let guard = Guard::new(number, Rules { lease_us, planted: Planted::NONE });
        let (outbox, timers, notices) = <_>::default();
        Self { guard, outbox, timers, transport, lease_us, notices }
    }

    /// Its number.
    pub const fn number(&self) -> SessionId {
        self.guard.session()
    }

    /// How long leases last, in microseconds.
    pub const fn lease_us(&self) -> u64 {
        self.lease_us
    }

    /// True if it has to do with no group any more, so that it may end.
    pub fn is_idle(&self) -> bool {
        self.guard.is_idle()
    }

    /// Tells the guard something.
    pub fn tell(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    /// The next thing that the guard has decided.
    pub fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Waits for an answer, or until something is due. May be dropped and called again without losing anything.
    ///
    /// # Errors
    /// If no server would ever answer such a question.
    pub async fn turn(&mut self) -> Result<(), T::Refusal> {
        let due = self.timers.next().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            biased;
            answered = self.transport.answer() => self.on_answered(answered)?,
            () = sleep_until(due) => self.fire_timers(),
        }
        Ok(())
    }

    fn on_answered(&mut self, answered: Answered<T::Refusal>) -> Result<(), T::Refusal> {
        match answered {
            Answered::Answer(answer, lease_us) => {
                self.lease_us = lease_us;
                self.guard.set_lease(lease_us);
                self.step(Input::Message { from: Leader, message: Message::Answer(answer) });
            }
            Answered::Failed(number) => self.tell(Command::Failed(number)),
            Answered::Refused(refusal) => return Err(refusal),
        }
        Ok(())
    }

    fn fire_timers(&mut self) {
        let now = Instant::now();
        while let Some((_, timer)) = self.timers.take_due(now) {
            self.step(Input::Timer(timer));
        }
    }

    fn step(&mut self, input: Input<Guard>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.guard.step(now(), input, &mut outbox);
        outbox.drain().for_each(|output| self.carry_out(output));
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Guard>) {
        match output {
            Output::Send { message: Message::Poll(poll), .. } => {
                let patience = Duration::from_micros(poll.wait_us + self.lease_us / PATIENCE_PARTS);
                self.transport.ask(self.guard.session(), poll, patience);
            }
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.notices.push_back(notice),
            Output::Send { .. } | Output::Ignore(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use primus_core::ServerId;
    use primus_core::lease::{Candidacy, Promise};
    use primus_core::ledger::{GroupRank, GroupRules};
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A leader that does not answer the first question, and grants whatever is wanted in the next one.
    #[derive(Default)]
    struct Leads {
        asked: Option<Poll>,
        polls: u64,
    }

    impl Transport for Leads {
        type Refusal = Infallible;

        fn ask(&mut self, _: SessionId, poll: Poll, patience: Duration) {
            assert!(patience > Duration::from_micros(poll.wait_us));
            self.asked = Some(poll);
            self.polls += 1;
        }

        async fn answer(&mut self) -> Answered<Infallible> {
            let Some(poll) = self.asked.take().filter(|_| self.polls <= 2) else {
                return std::future::pending().await;
            };
            if self.polls == 1 {
                return Answered::Failed(poll.number);
            }
            let wants = poll.wants.expect("a session that was not answered says everything");
            let promise = |want: Candidacy| Promise { group: want.group, token: 7, rest_us: 900_000 };
            let promises = wants.into_iter().map(promise).collect();
            let answer =
                Answer { number: poll.number, is_known: true, promises, recalled: Vec::new(), refused: Vec::new() };
            Answered::Answer(answer, 1_000_000)
        }
    }

    #[tokio::test]
    async fn a_question_that_came_to_nothing_is_asked_again_and_a_grant_is_a_notice() {
        let mut session = Session::new(Leads::default());
        assert!(session.is_idle());
        let rules = GroupRules { rank: GroupRank::Load, holders: 1 };
        let candidacy = Candidacy { group: "nightly".to_owned(), rules, name: "a".to_owned(), id: 1 };
        session.tell(Command::At(ServerId(1)));
        session.tell(Command::Want(vec![candidacy]));
        let granted = async {
            loop {
                if let Some(notice) = session.take_notice() {
                    return notice;
                }
                let Ok(()) = session.turn().await;
            }
        };
        let notice = timeout(PATIENCE, granted).await.expect("it is granted in time");
        assert!(matches!(notice, Notice::Granted(group, 7, _) if group == "nightly"));
        assert_eq!((session.lease_us(), session.is_idle()), (1_000_000, false));
    }
}
