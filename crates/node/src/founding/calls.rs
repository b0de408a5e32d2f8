//! Calls to one server of the list, to hear how far it is: again and again, until this one is founded.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use primus_core::founding::{Absence, Claim, Command, Founding};
use primus_core::machine::Input;
use primus_core::{Place, ServerId};
use primus_identity::refusal::Refusal;
use primus_wire::native::{Answer, Purpose};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::founders::REPEATED;
use crate::credentials::Security;
use crate::dialling::{Dialler, Pace, REFUSED_TIME, hear};
use crate::events::History;
use crate::introductions::Introductions;
use crate::line::Line;
use crate::names::Unresolved;

/// A peer that says nothing for this long is not there any more: it would have repeated itself.
const SILENCE: Duration = Duration::from_secs(3);

/// What calls one server.
pub(super) struct Caller {
    pub(super) peer: ServerId,
    pub(super) address: Place,
    pub(super) security: Security,
    pub(super) introductions: Arc<Introductions>,
    /// Rung when the peer calls.
    pub(super) bell: Arc<Notify>,
    /// Where the machine hears of it.
    pub(super) machine: mpsc::Sender<Input<Founding>>,
    pub(super) history: Arc<History>,
}

/// Why there is no link.
enum Failure {
    Io(io::Error),
    /// One of the two refuses the other.
    Objection(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match Refusal::of_io(&error) {
            Some(refusal) => Self::Objection(refusal.to_string()),
            None => Self::Io(error),
        }
    }
}

impl Caller {
    pub(super) async fn run(self) {
        let callee = self.security.towards(&self.introductions.own().cluster, self.peer);
        let mut dialler = Dialler::new(self.address.clone(), callee, Pace::PEERS);
        loop {
            let pause = match self.call(&mut dialler).await {
                Ok((line, arrived)) => {
                    self.tell(Input::LinkUp(self.peer)).await;
                    self.listen(line, arrived).await;
                    self.tell(Input::LinkDown(self.peer)).await;
                    dialler.next_pause()
                }
                Err(failure) => self.on_failure(failure, &mut dialler).await,
            };
            _ = timeout(pause, self.bell.notified()).await;
        }
    }

    /// Says how long to wait before the next call.
    async fn on_failure(&self, failure: Failure, dialler: &mut Dialler) -> Duration {
        let (absence, pause) = match failure {
            Failure::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                (Absence::Refuses, dialler.next_pause())
            }
            Failure::Io(error) if Unresolved::of_io(&error).is_some() => (Absence::Nowhere, dialler.next_pause()),
            Failure::Io(_) => (Absence::Silent, dialler.next_pause()),
            Failure::Objection(reason) => {
                self.history.refused(format!("server {} is not heard: {reason}", self.peer));
                (Absence::Objects, REFUSED_TIME)
            }
        };
        self.tell(Input::Command(Command::Absent(self.peer, absence))).await;
        pause
    }

    async fn tell(&self, input: Input<Founding>) {
        // If nothing listens any more, the server is founded or ends.
        _ = self.machine.send(input).await;
    }

    async fn call(&self, dialler: &mut Dialler) -> Result<(Line, BytesMut), Failure> {
        let hello = self.introductions.hello(self.peer, Purpose::Founding);
        let (line, arrived, answer) = dialler.dial(&hello).await?;
        match answer {
            Answer::Welcome(hello) => match self.introductions.check_founder(&hello, line.who()) {
                Ok(peer) if peer == self.peer => Ok((line, arrived)),
                Ok(other) => Err(Failure::Objection(format!("server {other} answers in its place"))),
                Err(reason) => Err(Failure::Objection(reason)),
            },
            Answer::Refused(reason) | Answer::Barred(reason) => {
                Err(Failure::Objection(format!("it refuses: {reason}")))
            }
            Answer::Admitted => Err(Failure::Objection("it takes this one for something else".to_owned())),
        }
    }

    /// Passes on what the peer says, until the link is lost. The first words may have come with its answer.
    async fn listen(&self, mut line: Line, mut arrived: BytesMut) {
        while let Ok(Ok((claim, _))) = timeout(SILENCE, hear::<Claim>(&mut line, &mut arrived)).await {
            self.tell(Input::Message { from: self.peer, message: claim }).await;
        }
    }
}

/// A peer repeats itself before it is taken for silent.
const _: () = assert!(REPEATED.as_secs() < SILENCE.as_secs());
