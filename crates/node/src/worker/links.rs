//! A worker's links: one to every server, dialled again whenever it is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use bytes::BytesMut;
use primus_core::{Place, ServerId};
use primus_identity::refusal::Refusal;
use primus_wire::native::{Answer, WorkerHello};
use primus_wire::work::{Reader, ToWorker};
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::credentials::Security;
use crate::dialling::{Dialler, Pace, REFUSED_TIME};
use crate::line::Line;
use crate::names::Unresolved;
use crate::outgoing::{self, All, Outgoing};

/// How many words of all servers may wait for the worker.
const WORDS_MAX: usize = 64;

/// What happens on the links.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// A server can be written to, here.
    Up(ServerId, Outgoing),
    /// A server said something.
    WorkerMessage(ServerId, ToWorker),
    /// The link to a server is lost.
    Down(ServerId),
    /// A server does not want this worker.
    Refused(ServerId, String),
    /// The name of a server does not resolve, with this sentence.
    Unresolved(ServerId, String),
    /// The two cannot prove to each other who they are.
    Barred(ServerId, Refusal),
}

/// The links that are up.
#[derive(Debug)]
pub(super) struct Links {
    up: BTreeMap<ServerId, Outgoing>,
    /// Which servers have barred the worker, until one has let it in: nothing after that.
    barred: Option<BTreeSet<ServerId>>,
    servers: usize,
}

impl Links {
    /// Starts dialling. Must be called inside a runtime.
    pub(super) fn start(
        cluster: String,
        name: &str,
        servers: &BTreeMap<ServerId, Place>,
        store: [u8; 16],
        security: &Security,
    ) -> (Self, mpsc::Receiver<LinkEvent>) {
        let (events, received) = mpsc::channel(WORDS_MAX);
        for (server, address) in servers {
            let hello = WorkerHello::new(cluster.clone(), name.to_owned(), *server, store);
            let dialler = Dialler::new(address.clone(), security.towards(&cluster, *server), Pace::CALLERS);
            tokio::spawn(
                ServerLink { server: *server, dialler, hello, is_unresolved: false, events: events.clone() }.run(),
            );
        }
        (Self { up: BTreeMap::new(), barred: Some(BTreeSet::new()), servers: servers.len() }, received)
    }

    pub(super) fn opened(&mut self, server: ServerId, outgoing: Outgoing) {
        self.up.insert(server, outgoing);
        self.barred = None;
    }

    /// A server and this worker cannot prove to each other who they are. True if it is so with all servers, and has been since the
    /// worker began: then trying again changes nothing.
    pub(super) fn is_barred_everywhere(&mut self, server: ServerId) -> bool {
        let Some(barred) = &mut self.barred else { return false };
        barred.insert(server);
        barred.len() == self.servers
    }

    pub(super) fn closed(&mut self, server: ServerId) {
        self.up.remove(&server);
    }

    /// Drops all links. They are dialled again.
    pub(super) fn drop_all(&mut self) {
        self.up.clear();
    }

    /// Where to write to a server.
    pub(super) fn outgoing(&self, server: ServerId) -> Option<Outgoing> {
        self.up.get(&server).cloned()
    }
}

/// Keeps the link to one server.
struct ServerLink {
    server: ServerId,
    dialler: Dialler,
    hello: WorkerHello,
    /// True if the last dial failed for want of an address.
    is_unresolved: bool,
    events: mpsc::Sender<LinkEvent>,
}

impl ServerLink {
    /// Until nobody listens any more.
    async fn run(mut self) {
        while !self.events.is_closed() {
            match self.dialler.dial(&self.hello).await {
                Ok((line, arrived, Answer::Admitted)) => self.talk(line, arrived).await,
                Ok((.., Answer::Refused(reason))) => {
                    _ = self.events.send(LinkEvent::Refused(self.server, reason)).await;
                    sleep(REFUSED_TIME).await;
                }
                // Servers of one cluster are welcome, workers are admitted.
                Ok((.., Answer::Welcome(_))) => {}
                Err(error) => self.on_failure(&error).await,
            }
            sleep(self.dialler.next_pause()).await;
        }
    }

    /// Most failures pass by themselves.
    async fn on_failure(&mut self, error: &io::Error) {
        let unresolved = Unresolved::of_io(error);
        if let Some(unresolved) = unresolved.filter(|_| !self.is_unresolved) {
            _ = self.events.send(LinkEvent::Unresolved(self.server, unresolved.to_string())).await;
        }
        self.is_unresolved = unresolved.is_some();
        if let Some(refusal) = Refusal::of_io(error) {
            _ = self.events.send(LinkEvent::Barred(self.server, refusal)).await;
            sleep(REFUSED_TIME).await;
        }
    }

    /// Reads and writes until the link is lost.
    async fn talk(&self, line: Line, arrived: BytesMut) {
        let (outgoing, leaving) = outgoing::queue(&All::default());
        _ = self.events.send(LinkEvent::Up(self.server, outgoing)).await;
        let (reading, writing) = tokio::io::split(line);
        tokio::select! {
            // However it was lost, it will be dialled again.
            _ = self.listen(reading, arrived) => {}
            () = leaving.write_to(writing, None) => {}
        }
        _ = self.events.send(LinkEvent::Down(self.server)).await;
    }

    async fn listen(&self, mut reading: ReadHalf<Line>, mut arrived: BytesMut) -> io::Result<()> {
        let mut reader = Reader::default();
        loop {
            while let Some(word) = reader.take(&mut arrived).map_err(io::Error::other)? {
                self.events.send(LinkEvent::WorkerMessage(self.server, word)).await.map_err(io::Error::other)?;
            }
            if reading.read_buf(&mut arrived).await? == 0 {
                return Ok(());
            }
        }
    }
}
