//! Keeps a candidate's lease, on a thread of the server: it drives the guard, whose owner only hears how it stands.

use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use primus_core::SessionId;
use primus_core::lease::guard::Leader;
use primus_core::lease::guard::{Command, Notice, Rules, Timer};
use primus_core::lease::{Candidacy, Guard, Message, Objection, Poll};
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_core::planted::Planted;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::clock::now;
use crate::handle::{Handle, Unable};
use crate::questions::{Given, Question};
use crate::timers::{Timers, drawn};

/// How long the farm may take to hear that everything has ended, before the lease is left to run out.
const FAREWELL: Duration = Duration::from_secs(2);

/// How it stands with a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is not its turn, or not any more: its last one had this term, or it had none and this is zero. The owner, who sees
    /// only the latest standing, learns so of a turn that was over before it had begun, and that has to end, too.
    Waits { last_term: u64 },
    /// It holds the group under this term until then.
    Holds { term: u64, until_us: u64 },
    /// It never will.
    Refused(Objection),
}

type Asked = Pin<Box<dyn Future<Output = (u64, Result<Given, Unable>)> + Send>>;

/// The loop's state.
pub(super) struct Keeper {
    handle: Handle,
    session: SessionId,
    candidacy: Candidacy,
    guard: Guard,
    outbox: Outbox<Guard>,
    timers: Timers<Timer>,
    /// The question under way.
    asked: Option<Asked>,
    standing: watch::Sender<Standing>,
    /// What has ended. An orphan's owner is gone, and everything with it.
    ended: mpsc::UnboundedReceiver<u64>,
    is_orphan: bool,
    is_ending: watch::Receiver<bool>,
    /// When it gives up telling the farm that it wants nothing any more.
    farewell: Option<Instant>,
}

impl Keeper {
    pub(super) fn new(
        handle: Handle,
        session: SessionId,
        candidacy: Candidacy,
        standing: watch::Sender<Standing>,
        ended: mpsc::UnboundedReceiver<u64>,
    ) -> Self {
        let rules = Rules { lease_us: handle.asker.lease_us, planted: Planted::NONE };
        Self {
            is_ending: handle.asker.is_ending.subscribe(),
            handle,
            session,
            candidacy,
            guard: Guard::new(session, rules),
            outbox: Outbox::new(),
            timers: Timers::default(),
            asked: None,
            standing,
            ended,
            is_orphan: false,
            farewell: None,
        }
    }

    pub(super) async fn run(mut self) {
        self.tell(Command::At(self.handle.id()));
        self.tell(Command::Want(vec![self.candidacy.clone()]));
        while !self.is_done() {
            let due = self.timers.next().into_iter().chain(self.farewell).min();
            let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                (number, answer) = answered(&mut self.asked) => self.on_answer(number, answer),
                ended = self.ended.recv(), if !self.is_orphan => self.on_ended(ended),
                () = becomes_true(&mut self.is_ending), if self.farewell.is_none() => self.leave(),
                () = sleep_until(due) => self.on_time(),
            }
        }
        // The last words are said, but nobody waits for an answer to them.
        _ = answered(&mut self.asked).now_or_never();
    }

    fn is_done(&self) -> bool {
        self.farewell.is_some_and(|by| self.guard.is_idle() || by <= Instant::now())
    }

    /// It wants the group no more. What runs is told to end, and counts as held until its owner says that it has.
    fn leave(&mut self) {
        self.farewell.get_or_insert(Instant::now() + FAREWELL);
        self.tell(Command::Leave(self.candidacy.group.clone()));
    }

    /// What ran under this term has ended; or the owner is gone, and everything with it.
    fn on_ended(&mut self, term: Option<u64>) {
        if term.is_none() {
            self.is_orphan = true;
            self.leave();
        }
        self.wait();
        self.tell(Command::Ended(self.candidacy.group.clone()));
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        while let Some((_, timer)) = self.timers.take_due(now) {
            self.step(Input::Timer(timer));
        }
    }

    fn on_answer(&mut self, number: u64, answer: Result<Given, Unable>) {
        match answer {
            Ok(Given::Holds(answer)) => {
                self.step(Input::Message { from: Leader, message: Message::Answer(answer) });
            }
            _ => self.tell(Command::Failed(number)),
        }
    }

    fn tell(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    fn step(&mut self, input: Input<Guard>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.guard.step(now(), input, &mut outbox);
        outbox.drain().for_each(|output| self.carry_out(output));
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Guard>) {
        match output {
            Output::Send { message: Message::Poll(poll), .. } => self.ask(poll),
            Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
            Output::Cancel(timer) => self.timers.cancel(timer),
            Output::Notify(notice) => self.on_notice(notice),
            Output::Send { .. } | Output::Ignore(_) => {}
        }
    }

    /// Whoever asks again has given up the older question.
    fn ask(&mut self, mut poll: Poll) {
        let (handle, session, number) = (self.handle.clone(), self.session, poll.number);
        poll.score = self.handle.view.borrow().load.score;
        let asking = async move { (number, handle.ask_once(&Question::Poll(session, poll)).await) };
        self.asked = Some(Box::pin(asking));
    }

    fn on_notice(&self, notice: Notice) {
        match notice {
            Notice::Granted(_, term, until_us) => {
                self.standing.send_replace(Standing::Holds { term, until_us });
            }
            Notice::Renewed(_, term, then_us) => {
                self.standing.send_if_modified(|standing| match standing {
                    Standing::Holds { term: held, until_us } if *held == term => {
                        *until_us = then_us;
                        true
                    }
                    // What has been told to end does not go on.
                    _ => false,
                });
            }
            Notice::Recalled(_) | Notice::Lost(_) => self.wait(),
            Notice::Refused(_, objection) => _ = self.standing.send_replace(Standing::Refused(objection)),
        }
    }

    /// The turn is over, if there is one.
    fn wait(&self) {
        self.standing.send_if_modified(|standing| match *standing {
            Standing::Holds { term, .. } => {
                *standing = Standing::Waits { last_term: term };
                true
            }
            _ => false,
        });
    }
}

async fn becomes_true(flag: &mut watch::Receiver<bool>) {
    // Whoever would set it is gone only when everything is.
    _ = flag.wait_for(|is_true| *is_true).await;
}

/// The answer to the question under way; never, if there is none.
async fn answered(asked: &mut Option<Asked>) -> (u64, Result<Given, Unable>) {
    let Some(asking) = asked else { return std::future::pending().await };
    let answer = asking.await;
    *asked = None;
    answer
}
