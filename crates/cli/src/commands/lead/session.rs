//! A guard that asks the farm's servers: what it decides comes out as notices, in order.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use primus_core::SessionId;
use primus_core::lease::guard::{Command, Leader, Notice, Rules, Timer};
use primus_core::lease::{Guard, LEASE_US, Message, Poll};
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_core::planted::Planted;
use primus_node::clock::now;
use primus_terminal::failure::Failure;
use tokio::time::{Instant, sleep_until};

use super::asking::{Answered, Asker};

/// A session with a farm.
pub(in crate::commands) struct Session {
    guard: Guard,
    outbox: Outbox<Guard>,
    timers: BTreeMap<Timer, Instant>,
    asker: Asker,
    /// How long leases last there.
    lease_us: u64,
    notices: VecDeque<Notice>,
}

impl Session {
    /// A session of a random number that wants nothing yet.
    pub(in crate::commands) fn new(asker: Asker) -> Self {
        let rules = Rules { lease_us: LEASE_US, planted: Planted::NONE };
        // The random half of it. Zero is nobody's.
        let number = SessionId(uuid::Uuid::now_v7().as_u64_pair().1 | 1);
        Self {
            guard: Guard::new(number, rules),
            outbox: Outbox::new(),
            timers: BTreeMap::new(),
            asker,
            lease_us: LEASE_US,
            notices: VecDeque::new(),
        }
    }

    /// Its number.
    pub(super) const fn number(&self) -> u64 {
        self.guard.session().0
    }

    pub(super) const fn lease_us(&self) -> u64 {
        self.lease_us
    }

    /// Does it have to do with any group?
    pub(super) fn is_idle(&self) -> bool {
        self.guard.is_idle()
    }

    /// Tells the guard something.
    pub(in crate::commands) fn tell(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    /// The next thing that it has decided.
    pub(in crate::commands) fn take_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Waits for an answer, or until something is due. May be dropped and called again without losing anything.
    ///
    /// # Errors
    /// If no server would ever answer such a question.
    pub(in crate::commands) async fn turn(&mut self) -> Result<(), Failure> {
        let due = self.timers.values().min().copied();
        let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            answered = self.asker.answer() => self.on_answered(answered),
            () = sleep_until(due) => {
                self.fire_timers();
                Ok(())
            }
        }
    }

    fn on_answered(&mut self, answered: Answered) -> Result<(), Failure> {
        match answered {
            Answered::Answer(answer) => {
                self.lease_us = answer.lease_us();
                self.guard.set_lease(self.lease_us);
                self.step(Input::Message { from: Leader, message: Message::Answer(answer.into_answer()) });
            }
            Answered::Failed(number) => self.tell(Command::Failed(number)),
            Answered::Refused(failure) => return Err(failure),
        }
        Ok(())
    }

    fn fire_timers(&mut self) {
        let now = Instant::now();
        let due: Vec<Timer> = self.timers.iter().filter(|(_, due)| **due <= now).map(|(timer, _)| *timer).collect();
        for timer in due {
            self.timers.remove(&timer);
            self.step(Input::Timer(timer));
        }
    }

    fn step(&mut self, input: Input<Guard>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.guard.step(now(), input, &mut outbox);
        for output in outbox.drain() {
            match output {
                Output::Send { message: Message::Poll(poll), .. } => self.ask(poll),
                Output::Set { timer, delay } => {
                    _ = self.timers.insert(timer, Instant::now() + Duration::from_micros(delay.max_us));
                }
                Output::Cancel(timer) => _ = self.timers.remove(&timer),
                Output::Notify(notice) => self.notices.push_back(notice),
                _ => {}
            }
        }
        self.outbox = outbox;
    }

    fn ask(&mut self, poll: Poll) {
        let patience = Duration::from_micros(poll.wait_us + self.lease_us / 4);
        self.asker.ask(self.guard.session(), poll, patience);
    }
}
