//! How questions travel: on one link to each peer, many at a time, each under a number, in frames. The asker dials when there
//! is something to ask. If the link is lost, nobody knows what became of what was asked on it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use primus_core::ServerId;
use primus_wire::native::{self, Purpose};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{ANSWER_TIME, Rooms};
use crate::dialling::hear;
use crate::handle::{Handle, Unable};
use crate::request_links::{CallingServer, PeerStream, QUESTION_UNHEARD_TIME, RequestLinks};

/// How many questions to one peer may be under way, and as many may wait for the link.
const ASKED_MAX: usize = 1024;
/// How many answers may wait for one link.
const ANSWERS_MAX: usize = 64;
/// How many bytes are written at once.
const WRITE_LEN_MAX: usize = 1 << 20;

/// A question or an answer, under its number.
type Numbered = (u64, Bytes);
/// A question, and who waits for the answer.
pub(super) type Asked = (Bytes, oneshot::Sender<Result<Bytes, Unable>>);

/// What is asked of one peer.
pub(super) struct Conversation {
    peer: ServerId,
    links: Arc<RequestLinks>,
    queue: mpsc::Receiver<Asked>,
    last_number: u64,
    open: BTreeMap<u64, oneshot::Sender<Result<Bytes, Unable>>>,
}

impl Conversation {
    /// One that begins with the first question, and the way to ask.
    pub(super) fn new(peer: ServerId, links: Arc<RequestLinks>) -> (Self, mpsc::Sender<Asked>) {
        let (asked, queue) = mpsc::channel(ASKED_MAX);
        (Self { peer, links, queue, last_number: 0, open: BTreeMap::new() }, asked)
    }

    pub(super) async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            match self.links.dial(self.peer, Purpose::Questions).await {
                Ok(stream) => self.talk(stream, first).await,
                Err(_) => self.refuse(first),
            }
        }
    }

    /// Nothing of this has been asked.
    fn refuse(&mut self, first: Asked) {
        let mut next = Some(first);
        while let Some((_, reply)) = next {
            // Whoever asked may have given up.
            _ = reply.send(Err(Unable::NoLeader));
            next = self.queue.try_recv().ok();
        }
    }

    /// Asks and hears until the link is lost.
    async fn talk(&mut self, stream: PeerStream, first: Asked) {
        let (mut reader, mut writer) = split(stream);
        let (mut arrived, mut buffer) = (BytesMut::new(), BytesMut::new());
        self.fill(first, &mut buffer);
        while write(&mut writer, &mut buffer).await.is_ok() {
            tokio::select! {
                heard = hear::<Numbered>(&mut reader, &mut arrived) => match heard {
                    Ok(((number, body), _)) => self.on_answer(number, body),
                    Err(_) => break,
                },
                Some(asked) = self.queue.recv() => self.fill(asked, &mut buffer),
                else => break,
            }
        }
        // Those who wait hear that their answer will never come.
        self.open.clear();
    }

    /// Everything that waits goes out together.
    fn fill(&mut self, first: Asked, buffer: &mut BytesMut) {
        let mut next = Some(first);
        while let Some((body, reply)) = next {
            self.ask(body, reply, buffer);
            next = if buffer.len() < WRITE_LEN_MAX { self.queue.try_recv().ok() } else { None };
        }
    }

    fn ask(&mut self, body: Bytes, reply: oneshot::Sender<Result<Bytes, Unable>>, buffer: &mut BytesMut) {
        if self.open.len() >= ASKED_MAX {
            self.open.retain(|_, reply| !reply.is_closed());
        }
        self.last_number += 1;
        if self.open.len() >= ASKED_MAX {
            _ = reply.send(Err(Unable::Busy));
        } else if native::put(buffer, &(self.last_number, body)).is_err() {
            _ = reply.send(Err(Unable::TooLong));
        } else {
            self.open.insert(self.last_number, reply);
        }
    }

    fn on_answer(&mut self, number: u64, body: Bytes) {
        if let Some(reply) = self.open.remove(&number) {
            _ = reply.send(Ok(body));
        }
    }
}

/// Answers what peers ask, each link by itself.
pub(super) async fn answer_all(mut calls: mpsc::Receiver<CallingServer>, links: Arc<RequestLinks>, handle: Handle) {
    let rooms = Rooms::new();
    while let Some(caller) = calls.recv().await {
        let (from, who, gate) = (caller.from, caller.who.clone(), links.gate(caller.from));
        let Ok(stream) = caller.open(QUESTION_UNHEARD_TIME) else { continue };
        let (handle, rooms) = (handle.clone(), rooms.clone());
        tokio::spawn(async move {
            let (reader, writer) = split(stream);
            let (answers, queue) = mpsc::channel(ANSWERS_MAX);
            let answer = |(number, body): Numbered| {
                let (gate, answers, answering) =
                    (gate.clone(), answers.clone(), rooms.answer(&handle, body, who.clone()));
                tokio::spawn(async move {
                    gate.travel(1).await;
                    let (answer, _weight) = answering.await;
                    // The link may be lost.
                    _ = answers.send((number, answer)).await;
                });
            };
            let written = tokio::spawn(write_answers(writer, queue));
            if let Err(error) = read_questions(reader, answer).await
                && error.kind() == io::ErrorKind::Other
            {
                handle.history.refused(format!("closed a link for questions of server {from}: {error}"));
            }
            written.abort();
        });
    }
}

async fn read_questions(mut reader: impl AsyncRead + Unpin, answer: impl Fn(Numbered)) -> io::Result<()> {
    let mut arrived = BytesMut::new();
    loop {
        answer(hear(&mut reader, &mut arrived).await?.0);
    }
}

async fn write_answers(mut writer: impl AsyncWrite + Unpin, mut answers: mpsc::Receiver<Numbered>) {
    let mut buffer = BytesMut::new();
    while let Some(first) = answers.recv().await {
        let mut next = Some(first);
        while let Some(answer) = next {
            // What is too long was not made: see `Rooms`.
            _ = native::put(&mut buffer, &answer);
            next = if buffer.len() < WRITE_LEN_MAX { answers.try_recv().ok() } else { None };
        }
        if write(&mut writer, &mut buffer).await.is_err() {
            return;
        }
    }
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), buffer: &mut BytesMut) -> io::Result<()> {
    if !buffer.is_empty() {
        let written = async {
            writer.write_all(buffer).await?;
            writer.flush().await
        };
        timeout(ANSWER_TIME, written).await??;
        buffer.clear();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::credentials::Security;
    use crate::introductions::Introductions;
    use crate::link_faults::LinkFaults;
    use crate::links::Identity;

    /// A conversation with a server that is nowhere.
    fn conversation() -> (Conversation, mpsc::Sender<Asked>) {
        let identity = Identity { cluster: "test".to_owned(), server: ServerId(1), store: [1; 16], incarnation: 1 };
        let introductions = Introductions::new(identity, std::iter::empty(), BTreeMap::new());
        let cuts = watch::channel(LinkFaults::default()).1;
        let links = RequestLinks::new(Arc::new(introductions), &BTreeMap::new(), cuts, Security::None);
        Conversation::new(ServerId(2), Arc::new(links))
    }

    #[tokio::test]
    async fn what_cannot_be_asked_was_certainly_not_taken() {
        let (conversation, ask) = conversation();
        tokio::spawn(conversation.run());
        let (reply, answer) = oneshot::channel();
        ask.send((Bytes::new(), reply)).await.expect("it runs");
        assert_eq!(answer.await.expect("it answers"), Err(Unable::NoLeader));
    }

    #[test]
    fn so_many_questions_wait_and_those_whose_asker_is_gone_give_way() {
        let ((mut conversation, _ask), mut buffer) = (conversation(), BytesMut::new());
        let mut ask = || {
            let (reply, answer) = oneshot::channel();
            conversation.ask(Bytes::new(), reply, &mut buffer);
            answer
        };
        let waiting: Vec<_> = (0..ASKED_MAX).map(|_| ask()).collect();
        assert_eq!(ask().try_recv(), Ok(Err(Unable::Busy)));
        drop(waiting);
        assert!(ask().try_recv().is_err(), "it waits");
        assert_eq!(conversation.open.len(), 1);
    }
}
