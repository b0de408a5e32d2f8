//! The workers that have a link to this server.
//!
//! Every link gets a number of its own, so that what was said on an old one is never taken for news. Whoever does not read
//! what it is sent is dropped at a limit; whoever says more than the farm can take is not read until it can.

use std::collections::BTreeMap;
use std::io;

use bytes::BytesMut;
use primus_core::NodeId;
use primus_core::farm::Message;
use primus_wire::native::{self, Answer, Hello, WorkerHello};
use primus_wire::work::{self, FromWorker, Reader, ToWorker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::cuts::Line;
use crate::links::Identity;
use crate::outgoing::{self, Leaving, Outgoing, WRITE_TIME};

/// Links are numbered from here on; servers have smaller numbers.
const FIRST_LINK: u64 = 1 << 32;
/// How many workers may have a link.
const LINKS_MAX: usize = 4096;
/// How many words of all workers may wait for the farm.
const WORDS_MAX: usize = 64;

/// A worker that has introduced itself and waits for an answer.
#[derive(Debug)]
pub struct Caller {
    pub(crate) stream: std::net::TcpStream,
    /// What it said already.
    pub(crate) arrived: BytesMut,
    pub(crate) hello: WorkerHello,
    pub(crate) line: Line,
}

/// What happens on the links.
#[derive(Debug)]
pub(super) enum CallerEvent {
    Word(NodeId, FromWorker),
    Down(NodeId),
}

/// All links.
#[derive(Debug)]
pub(super) struct Callers {
    identity: Identity,
    links: BTreeMap<NodeId, Link>,
    last: u64,
    events: mpsc::Sender<CallerEvent>,
}

#[derive(Debug)]
struct Link {
    name: String,
    store: [u8; 16],
    /// What the foreman has said in this turn.
    said: Vec<Message>,
    outgoing: Outgoing,
    task: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What came of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// There is a link, in the place of this one if there was one.
    New(NodeId, Option<NodeId>),
    /// There is none, for this reason.
    Refused(String),
}

impl Callers {
    pub(super) fn new(identity: Identity) -> (Self, mpsc::Receiver<CallerEvent>) {
        let (events, received) = mpsc::channel(WORDS_MAX);
        (Self { identity, links: BTreeMap::new(), last: FIRST_LINK, events }, received)
    }

    /// Answers a worker that calls. Must be called inside the farm's runtime.
    pub(super) fn meet(&mut self, caller: Caller) -> Met {
        let Caller { stream, arrived, hello, line } = caller;
        // A link that cannot be used will be dialled again.
        let Ok(stream) = TcpStream::from_std(stream) else { return Met::Refused("it is gone again".to_owned()) };
        let before = self.named(&hello.name);
        let twin = before.filter(|before| self.links[before].store != hello.store);
        let objection = match twin {
            Some(_) => Some(format!("another worker is called '{}': give each a name of its own", hello.name)),
            None if self.links.len() >= LINKS_MAX => Some(format!("there are {LINKS_MAX} workers already")),
            None => None,
        };
        if let Some(reason) = objection {
            tokio::spawn(refuse(stream, reason.clone()));
            return Met::Refused(format!("refused worker '{}': {reason}", hello.name));
        }
        before.into_iter().for_each(|before| self.drop_link(before));
        Met::New(self.open(stream, arrived, hello, line), before)
    }

    fn open(&mut self, stream: TcpStream, arrived: BytesMut, hello: WorkerHello, line: Line) -> NodeId {
        self.last += 1;
        let id = NodeId(self.last);
        let (outgoing, leaving) = outgoing::queue();
        let task = tokio::spawn(talk((stream, line), arrived, id, self.events.clone(), leaving)).abort_handle();
        let link = Link { name: hello.name, store: hello.store, said: Vec::new(), outgoing, task };
        let mut welcome = BytesMut::new();
        let Identity { cluster, server, store, incarnation } = self.identity.clone();
        let own = Hello::new(cluster, server, NodeId(0), store, incarnation);
        native::put(&mut welcome, &Answer::Welcome(own)).expect("a hello fits into a frame");
        link.outgoing.send(welcome.freeze());
        self.links.insert(id, link);
        id
    }

    /// The link of the worker of this name.
    pub(super) fn named(&self, name: &str) -> Option<NodeId> {
        self.links.iter().find(|(_, link)| link.name == name).map(|(id, _)| *id)
    }

    /// Who is at the other end.
    pub(super) fn name(&self, id: NodeId) -> Option<&str> {
        self.links.get(&id).map(|link| link.name.as_str())
    }

    pub(super) fn drop_link(&mut self, id: NodeId) {
        self.links.remove(&id);
    }

    /// Says something at once.
    pub(super) fn say(&self, id: NodeId, word: &ToWorker) {
        if let Some(link) = self.links.get(&id) {
            let mut buffer = BytesMut::new();
            work::put(&mut buffer, word);
            link.outgoing.send(buffer.freeze());
        }
    }

    pub(super) fn say_to_all(&self, word: &ToWorker) {
        self.links.keys().for_each(|id| self.say(*id, word));
    }

    /// Keeps what the foreman says until the turn ends. What is said in a row in the same way is said in one go.
    pub(super) fn add(&mut self, to: NodeId, message: Message) {
        let Some(Link { said, .. }) = self.links.get_mut(&to) else { return };
        match (said.last_mut(), message) {
            (Some(Message::Forget(term, all)), Message::Forget(same, more)) if *term == same => all.extend(more),
            (Some(Message::Run(term, all)), Message::Run(same, more)) if *term == same => all.extend(more),
            (_, message) => said.push(message),
        }
    }

    /// Sends what was said in this turn; gives back those who do not read.
    pub(super) fn flush(&mut self) -> Vec<NodeId> {
        let mut lazy = Vec::new();
        for (id, link) in self.links.iter_mut().filter(|(_, link)| !link.said.is_empty()) {
            let mut buffer = BytesMut::new();
            link.said.drain(..).for_each(|message| work::put(&mut buffer, &ToWorker::Farm(message)));
            if !link.outgoing.send(buffer.freeze()) {
                lazy.push(*id);
            }
        }
        lazy
    }
}

async fn refuse(mut stream: TcpStream, reason: String) {
    let mut buffer = BytesMut::new();
    if native::put(&mut buffer, &Answer::Refused(reason)).is_ok() {
        _ = timeout(WRITE_TIME, stream.write_all(&buffer)).await;
    }
}

/// Reads and writes until the link is lost.
async fn talk(
    (mut stream, mut line): (TcpStream, Line),
    arrived: BytesMut,
    id: NodeId,
    events: mpsc::Sender<CallerEvent>,
    leaving: Leaving,
) {
    let (reading, writing) = stream.split();
    tokio::select! {
        // However it was lost, the worker will call again.
        _ = listen((reading, line.clone()), arrived, id, &events) => {}
        () = leaving.write_to(writing, Some(line.clone())) => {}
        () = line.is_closed() => {}
    }
    _ = events.send(CallerEvent::Down(id)).await;
}

async fn listen(
    (mut reading, mut line): (ReadHalf<'_>, Line),
    mut arrived: BytesMut,
    id: NodeId,
    events: &mpsc::Sender<CallerEvent>,
) -> io::Result<()> {
    let mut reader = Reader::default();
    loop {
        while let Some(word) = reader.take(&mut arrived).map_err(io::Error::other)? {
            events.send(CallerEvent::Word(id, word)).await.map_err(io::Error::other)?;
        }
        let read = reading.read_buf(&mut arrived).await;
        // Through a network that lets nothing pass, not even the end of a link is seen.
        line.flows().await;
        if read? == 0 {
            return Ok(());
        }
    }
}
