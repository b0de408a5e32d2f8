//! Keeps a candidate's lease, on a thread of the server: the owner of the candidate only hears how it stands.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use primus_core::SessionId;
use primus_core::lease::guard::{Command, Notice};
use primus_core::lease::{Candidacy, Objection, Poll};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use crate::handle::{Handle, Unable};
use crate::questions::{LeaderReply, LeaderRequest};
use crate::session::{Answered, Session, Transport};

/// How long the farm may take to hear that everything has ended, before the lease is left to run out.
const FAREWELL: Duration = Duration::from_secs(2);

/// How it stands with a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// It is not its turn, or not any more: its last one had this term, or it had none and this is zero. The owner, who sees
    /// only the latest state, learns so of a turn that was over before it had begun, and that has to end, too.
    Waits { last_term: u64 },
    /// It holds the group under this term until then.
    Holds { term: u64, until_us: u64 },
    /// It never will.
    Refused(Objection),
}

type Asked = Pin<Box<dyn Future<Output = (u64, Result<LeaderReply, Unable>)> + Send>>;

/// Questions on the links of a server.
struct Links {
    handle: Handle,
    /// The question under way.
    asked: Option<Asked>,
}

impl Transport for Links {
    type Refusal = Infallible;

    fn ask(&mut self, session: SessionId, mut poll: Poll, _: Duration) {
        let (handle, number) = (self.handle.clone(), poll.number);
        poll.score = self.handle.view.borrow().load.score;
        let asking = async move { (number, handle.ask_once(&LeaderRequest::Poll(session, poll)).await) };
        self.asked = Some(Box::pin(asking));
    }

    async fn answer(&mut self) -> Answered<Infallible> {
        let Some(asking) = &mut self.asked else { return std::future::pending().await };
        let (number, answer) = asking.await;
        self.asked = None;
        match answer {
            Ok(LeaderReply::Holds(answer)) => Answered::Answer(answer, self.handle.asker.lease_us),
            _ => Answered::Failed(number),
        }
    }
}

/// The loop's state.
pub(super) struct Keeper {
    session: Session<Links>,
    candidacy: Candidacy,
    state: watch::Sender<LeaseState>,
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
        candidacy: Candidacy,
        state: watch::Sender<LeaseState>,
        ended: mpsc::UnboundedReceiver<u64>,
    ) -> Self {
        let (is_ending, id, lease_us) = (handle.asker.is_ending.subscribe(), handle.id(), handle.asker.lease_us);
        let mut session = Session::with_lease(Links { handle, asked: None }, lease_us);
        session.tell(Command::At(id));
        session.tell(Command::Want(vec![candidacy.clone()]));
        Self { session, candidacy, state, ended, is_orphan: false, is_ending, farewell: None }
    }

    pub(super) async fn run(mut self) {
        loop {
            while let Some(notice) = self.session.take_notice() {
                self.on_notice(notice);
            }
            if self.is_done() {
                break;
            }
            let farewell = self.farewell.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                Ok(()) = self.session.turn() => {}
                ended = self.ended.recv(), if !self.is_orphan => self.on_ended(ended),
                () = becomes_true(&mut self.is_ending), if self.farewell.is_none() => self.leave(),
                () = sleep_until(farewell) => {}
            }
        }
        // The last words are said, but nothing waits for an answer to them.
        _ = self.session.turn().now_or_never();
    }

    fn is_done(&self) -> bool {
        self.farewell.is_some_and(|by| self.session.is_idle() || by <= Instant::now())
    }

    /// It wants the group no more. What runs is told to end, and counts as held until its owner says that it has.
    fn leave(&mut self) {
        self.farewell.get_or_insert(Instant::now() + FAREWELL);
        self.session.tell(Command::Leave(self.candidacy.group.clone()));
    }

    /// What ran under this term has ended; or the owner is gone, and everything with it.
    fn on_ended(&mut self, term: Option<u64>) {
        if term.is_none() {
            self.is_orphan = true;
            self.leave();
        }
        self.wait();
        self.session.tell(Command::Ended(self.candidacy.group.clone()));
    }

    fn on_notice(&self, notice: Notice) {
        match notice {
            Notice::Granted(_, term, until_us) => {
                self.state.send_replace(LeaseState::Holds { term, until_us });
            }
            Notice::Renewed(_, term, then_us) => {
                self.state.send_if_modified(|state| match state {
                    LeaseState::Holds { term: held, until_us } if *held == term => {
                        *until_us = then_us;
                        true
                    }
                    // What has been told to end does not go on.
                    _ => false,
                });
            }
            Notice::Recalled(_) | Notice::Lost(_) => self.wait(),
            Notice::Refused(_, objection) => _ = self.state.send_replace(LeaseState::Refused(objection)),
        }
    }

    /// The turn is over, if there is one.
    fn wait(&self) {
        self.state.send_if_modified(|state| match *state {
            LeaseState::Holds { term, .. } => {
                *state = LeaseState::Waits { last_term: term };
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
