//! The workers that have a link to this server.
//!
//! Every link gets a number of its own, so that what was said on an old one is never taken for news. Whoever does not read
//! what it is sent is dropped at a limit; whoever says more than the farm can take is not read until it can.
//!
//! A name belongs to the data directory of the worker that had it first, for as long as that worker has a link and for a
//! while after that: so nobody takes it while its worker restarts. A worker that has lost its directory waits that long.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use primus_core::WorkerId;
use primus_core::farm::Message;
use primus_identity::trust::Identified;
use primus_wire::native::{self, Answer, WorkerHello};
use primus_wire::work::{self, FromWorker, Reader, ToWorker};
use tokio::io::{AsyncReadExt, ReadHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::shares::{Share, taken_by};
use crate::dialling::say;
use crate::line::{Line, Parted};
use crate::link_faults::LinkGate;
use crate::outgoing::{self, All, Leaving, Outgoing, WRITE_TIME};

/// How many workers may have a link.
const LINKS_MAX: usize = 4096;
/// How many words of all workers may wait for the farm.
const WORDS_MAX: usize = 64;
/// No word of a worker is longer before the foreman has welcomed it, and none is longer then.
const FIRST_WORD_LEN_MAX: usize = 1 << 20;
const WORD_LEN_MAX: usize = 16 << 20;
/// Why a link is closed on which more was said than all may say together.
const UNREAD: &str = "too much is unread";
/// How long a worker may take to bring a word to its end.
const WORD_TIME: Duration = Duration::from_secs(30);
/// How long a name is kept for the worker that had it, and how many names are.
const NAME_KEPT: Duration = Duration::from_secs(20);
const NAMES_MAX: usize = 2 * LINKS_MAX;

/// A worker that has introduced itself and waits for an answer.
#[derive(Debug)]
pub struct CallingWorker {
    pub(crate) line: Parted,
    /// What it said already.
    pub(crate) arrived: BytesMut,
    pub(crate) hello: WorkerHello,
    pub(crate) gate: LinkGate,
}

/// What happens on the links.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// What a worker said, and what it takes of the memory for words until it is dropped.
    WorkerMessage(WorkerId, FromWorker, Share),
    Down(WorkerId),
}

/// All links.
#[derive(Debug)]
pub(super) struct WorkerLinks {
    links: BTreeMap<WorkerId, Link>,
    last: u64,
    events: mpsc::Sender<WorkerEvent>,
    /// Names of workers that have no link at the moment, with their disks, and until when they are kept.
    kept: BTreeMap<String, ([u8; 16], Instant)>,
    unread: Share,
    leaving: All,
}

#[derive(Debug)]
struct Link {
    name: String,
    store: [u8; 16],
    /// What the foreman has said in this turn.
    said: Vec<Message>,
    /// Has it welcomed this worker?
    is_known: Arc<AtomicBool>,
    outgoing: Outgoing,
    /// What it has proved; nothing on a plain link.
    who: Option<Identified>,
    /// Has it heard that this server leads?
    is_led: bool,
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
    New(WorkerId, Option<WorkerId>),
    /// There is none, for this reason.
    Refused(String),
}

impl WorkerLinks {
    pub(super) fn new() -> (Self, mpsc::Receiver<WorkerEvent>) {
        let (events, received) = mpsc::channel(WORDS_MAX);
        let (links, kept, unread, leaving) = <_>::default();
        (Self { links, last: 0, events, kept, unread, leaving }, received)
    }

    /// Answers a worker that calls. Must be called inside the farm's runtime.
    pub(super) fn meet(&mut self, caller: CallingWorker) -> Met {
        let CallingWorker { line, arrived, hello, gate } = caller;
        // A link that cannot be used will be dialled again.
        let Ok(line) = line.join() else { return Met::Refused("it is gone again".to_owned()) };
        let before = self.named(&hello.name);
        if let Some(reason) = self.objection(&hello, before, Instant::now()) {
            tokio::spawn(refuse(line, reason.clone()));
            return Met::Refused(format!("refused worker '{}': {reason}", hello.name));
        }
        before.into_iter().for_each(|before| self.drop_link(before));
        Met::New(self.open((line, gate), arrived, hello), before)
    }

    /// Why a worker is refused, if the one of its name has this link.
    fn objection(&self, hello: &WorkerHello, before: Option<WorkerId>, now: Instant) -> Option<String> {
        let WorkerHello { name, store, .. } = hello;
        let kept = self.kept.get(name).filter(|(known, until)| known != store && now < *until);
        match before {
            Some(before) if self.links[&before].store != *store => {
                Some(format!("another worker is called '{name}': give each a name of its own"))
            }
            Some(_) => None,
            None if kept.is_some() => Some(format!(
                "a worker with another data directory was called '{name}' a moment ago: this one may have the name when \
                 that one has been away for {} s",
                NAME_KEPT.as_secs()
            )),
            None => (self.links.len() >= LINKS_MAX).then(|| format!("there are {LINKS_MAX} workers already")),
        }
    }

    fn open(&mut self, connection: (Line, LinkGate), arrived: BytesMut, hello: WorkerHello) -> WorkerId {
        self.last += 1;
        let id = WorkerId(self.last);
        let (outgoing, leaving) = outgoing::queue(&self.leaving);
        let is_known = Arc::<AtomicBool>::default();
        let ear =
            Ear { id, events: self.events.clone(), is_known: Arc::clone(&is_known), unread: self.unread.another() };
        let who = connection.0.who().cloned();
        let task = tokio::spawn(talk(connection, arrived, ear, leaving)).abort_handle();
        let mut answer = BytesMut::new();
        native::put(&mut answer, &Answer::Admitted).expect("it is short");
        outgoing.send(answer.freeze());
        self.kept.remove(&hello.name);
        let link = Link {
            name: hello.name,
            store: hello.store,
            said: Vec::new(),
            is_known,
            outgoing,
            who,
            is_led: false,
            task,
        };
        self.links.insert(id, link);
        id
    }

    /// The foreman knows this worker now.
    pub(super) fn welcome(&self, id: WorkerId) {
        if let Some(link) = self.links.get(&id) {
            link.is_known.store(true, Ordering::Relaxed);
        }
    }

    /// The link of the worker of this name.
    pub(super) fn named(&self, name: &str) -> Option<WorkerId> {
        self.links.iter().find(|(_, link)| link.name == name).map(|(id, _)| *id)
    }

    /// Ends a link. Its worker may come back, so its name is kept for it.
    pub(super) fn drop_link(&mut self, id: WorkerId) {
        let Some(mut link) = self.links.remove(&id) else { return };
        let now = Instant::now();
        if self.kept.len() >= NAMES_MAX {
            self.kept.retain(|_, (_, until)| now < *until);
        }
        if self.kept.len() < NAMES_MAX {
            self.kept.insert(std::mem::take(&mut link.name), (link.store, now + NAME_KEPT));
        }
    }

    /// Keeps a name for nobody.
    pub(super) fn free(&mut self, name: &str) {
        self.kept.remove(name);
    }

    /// What this worker has proved, on a link that is encrypted.
    pub(super) fn who(&self, id: WorkerId) -> Option<&Identified> {
        self.links.get(&id)?.who.as_ref()
    }

    /// Where to write to it.
    pub(super) fn outgoing(&self, id: WorkerId) -> Option<Outgoing> {
        self.links.get(&id).map(|link| link.outgoing.clone())
    }

    /// Those that know that this server leads.
    pub(super) fn led(&self) -> impl Iterator<Item = WorkerId> {
        self.links.iter().filter(|(_, link)| link.is_led).map(|(id, _)| *id)
    }

    /// It hears now whether this server leads.
    pub(super) fn lead(&mut self, id: WorkerId, leads: bool) {
        self.links.get_mut(&id).into_iter().for_each(|link| link.is_led = leads);
    }

    /// Says something at once.
    pub(super) fn say(&self, id: WorkerId, word: &ToWorker) {
        if let Some(link) = self.links.get(&id) {
            let mut buffer = BytesMut::new();
            work::put(&mut buffer, word);
            link.outgoing.send(buffer.freeze());
        }
    }

    /// Keeps what the foreman says until the turn ends. What is said in a row in the same way is said in one go.
    pub(super) fn add(&mut self, to: WorkerId, message: Message) {
        let Some(Link { said, .. }) = self.links.get_mut(&to) else { return };
        match (said.last_mut(), message) {
            (Some(Message::Forget(term, all)), Message::Forget(same, more)) if *term == same => all.extend(more),
            (Some(Message::Run(term, all)), Message::Run(same, more)) if *term == same => all.extend(more),
            (_, message) => said.push(message),
        }
    }

    /// Sends what was said in this turn; gives back those who do not read.
    pub(super) fn flush(&mut self) -> Vec<WorkerId> {
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

async fn refuse(mut line: Line, reason: String) {
    _ = timeout(WRITE_TIME, say(&mut line, &Answer::Refused(reason))).await;
}

/// What it takes to hear a worker.
struct Ear {
    id: WorkerId,
    events: mpsc::Sender<WorkerEvent>,
    is_known: Arc<AtomicBool>,
    unread: Share,
}

/// Reads and writes until the link is lost.
async fn talk((line, mut gate): (Line, LinkGate), arrived: BytesMut, ear: Ear, leaving: Leaving) {
    let (reading, writing) = tokio::io::split(line);
    let (id, events) = (ear.id, ear.events.clone());
    tokio::select! {
        // However it was lost, the worker will call again.
        _ = ear.listen((reading, gate.clone()), arrived) => {}
        () = leaving.write_to(writing, Some(gate.clone())) => {}
        () = gate.is_closed() => {}
    }
    _ = events.send(WorkerEvent::Down(id)).await;
}

impl Ear {
    async fn listen(
        mut self,
        (mut reading, mut gate): (ReadHalf<Line>, LinkGate),
        mut arrived: BytesMut,
    ) -> io::Result<()> {
        let mut reader = Reader::up_to(FIRST_WORD_LEN_MAX);
        loop {
            if self.is_known.load(Ordering::Relaxed) {
                reader.allow(WORD_LEN_MAX);
            }
            let unread = |reader: &Reader, arrived: &BytesMut| reader.len() + arrived.len();
            let mut before = unread(&reader, &arrived);
            while let Some(word) = reader.take(&mut arrived).map_err(io::Error::other)? {
                let len = before - unread(&reader, &arrived);
                before -= len;
                self.unread.resize(before);
                let mut weight = self.unread.another();
                if !weight.resize(taken_by(len)) {
                    return Err(io::Error::other(UNREAD));
                }
                let event = WorkerEvent::WorkerMessage(self.id, word, weight);
                self.events.send(event).await.map_err(io::Error::other)?;
            }
            if !self.unread.resize(reader.len() + arrived.len()) {
                return Err(io::Error::other(UNREAD));
            }
            let read = match reader.is_empty() && arrived.is_empty() {
                true => reading.read_buf(&mut arrived).await,
                false => timeout(WORD_TIME, reading.read_buf(&mut arrived)).await?,
            };
            // Through a network that lets nothing pass, not even the end of a link is seen.
            gate.flows().await;
            if read? == 0 {
                return Ok(());
            }
        }
    }
}
