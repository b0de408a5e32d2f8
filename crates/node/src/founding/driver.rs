//! The machine of the founding meets a disk and callers. It runs until its server belongs to a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use primus_core::founding::{Claim, Command, Founding, Notice, Phase, Record};
use primus_core::machine::{Input, Machine, Outbox, Output, Token};
use primus_core::{Place, ServerId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep_until};

use super::alone::{authority, machine};
use super::calls::Caller;
use super::members::{listed, with_addresses};
use super::{Order, Shown, Standing};
use crate::clock;
use crate::credentials::Security;
use crate::disk::Origins;
use crate::events::{History, Kind};
use crate::introductions::Introductions;
use crate::store::{Origin, StoreId};

/// How many words of callers may wait.
const WORDS_MAX: usize = 64;
/// How long the server must have waited for the same before it says so: while all start at once, that changes all the time.
const SETTLED: Duration = Duration::from_millis(200);
/// How often to look whether a person has said that this server shall begin alone.
const LOOK: Duration = Duration::from_millis(500);

/// A server that is not founded yet.
pub(crate) struct Beginning {
    /// All servers that its configuration names.
    pub(crate) list: BTreeMap<ServerId, Place>,
    pub(crate) origin: Origin,
    pub(crate) origins: Origins,
    pub(crate) security: Security,
    pub(crate) introductions: Arc<Introductions>,
    pub(crate) shown: Shown,
    pub(crate) history: Arc<History>,
    /// Its directory.
    pub(crate) dir: PathBuf,
}

/// A server that is founded, and does not say so yet.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) record: Record,
    pub(crate) claim: Claim,
    pub(crate) shown: Shown,
}

/// Begins. The answer comes when the server belongs to a cluster.
pub(crate) fn start(beginning: Beginning) -> oneshot::Receiver<Begun> {
    let (tell, begun) = oneshot::channel();
    tokio::spawn(async move {
        // If nothing listens, the server ends.
        _ = tell.send(Driver::new(beginning).run().await);
    });
    begun
}

struct Driver {
    machine: Founding,
    started: Instant,
    beginning: Beginning,
    /// The write that is on its way to the disk.
    writing: Option<(Token, oneshot::Receiver<()>)>,
    founded: Option<Record>,
    /// What it waits for, and when it says so.
    untold: Option<(Instant, String)>,
}

impl Driver {
    fn new(mut beginning: Beginning) -> Self {
        let own = beginning.introductions.own();
        beginning.origin.authority = authority(&own.cluster, &beginning.security);
        let store = (own.server, StoreId(own.store));
        let machine = machine(&beginning.origin, &own.cluster, store, &beginning.list);
        Self { machine, started: Instant::now(), beginning, writing: None, founded: None, untold: None }
    }

    async fn run(mut self) -> Begun {
        let (machine, mut words) = mpsc::channel(WORDS_MAX);
        let _callers = self.call_all(&machine);
        self.step(Input::Command(Command::Start));
        if self.is_alone_on_loopback() {
            self.step(Input::Command(Command::Alone));
        }
        let mut looks = interval(LOOK);
        loop {
            if let Some(record) = self.founded.take() {
                Order::Alone.is_over(&self.beginning.dir);
                return Begun { record, claim: self.machine.claim().clone(), shown: self.beginning.shown };
            }
            tokio::select! {
                token = written(&mut self.writing) => {
                    self.writing = None;
                    self.step(Input::Persisted(token));
                }
                Some(word) = words.recv() => self.step(word),
                () = settled(&self.untold) => self.tell(),
                _ = looks.tick(), if self.writing.is_none() => self.look_for_order(),
            }
        }
    }

    /// One caller for each other server of the list. They end with what is returned.
    fn call_all(&self, machine: &mpsc::Sender<Input<Founding>>) -> JoinSet<()> {
        let Beginning { list, security, introductions, history, .. } = &self.beginning;
        let mut callers = JoinSet::new();
        for (peer, address) in list.iter().filter(|(id, _)| **id != introductions.own().server) {
            let caller = Caller {
                peer: *peer,
                address: address.clone(),
                security: security.clone(),
                introductions: Arc::clone(introductions),
                bell: introductions.founders.bell(*peer),
                machine: machine.clone(),
                history: Arc::clone(history),
            };
            callers.spawn(caller.run());
        }
        callers
    }

    /// A server that only this host can reach founds nothing beside others.
    fn is_alone_on_loopback(&self) -> bool {
        let list = &self.beginning.list;
        list.len() == 1 && list.values().all(Place::is_loopback)
    }

    /// A person may have said that this server shall begin alone.
    fn look_for_order(&mut self) {
        if !Order::Alone.is_given(&self.beginning.dir) {
            return;
        }
        self.step(Input::Command(Command::Alone));
        if self.writing.is_none() {
            let reason =
                "primus init --alone came too late: this disk has agreed with others, or others are founded";
            self.beginning.history.add(Kind::FoundingWaits { reason: reason.to_owned() });
            Order::Alone.is_over(&self.beginning.dir);
        }
    }

    fn tell(&mut self) {
        if let Some((_, reason)) = self.untold.take() {
            self.beginning.history.add(Kind::FoundingWaits { reason });
        }
    }

    fn step(&mut self, input: Input<Founding>) {
        let mut outbox = Outbox::new();
        self.machine.step(clock::since(self.started), input, &mut outbox);
        for output in outbox.drain() {
            match output {
                Output::Persist { token, records } => self.persist(token, records),
                Output::Notify(Notice::Founded(record)) => self.founded = Some(record),
                Output::Notify(Notice::Waiting(reason)) => {
                    self.untold = Some((Instant::now() + SETTLED, reason.to_string()));
                }
                // Peers hear the claim, which holds nothing that is not durable.
                Output::Send { .. } | Output::SendAfter { .. } | Output::Cancel(_) | Output::Ignore(_) => {}
                Output::Set { timer, .. } => match timer {},
            }
        }
        self.show();
    }

    fn persist(&mut self, token: Token, phases: Vec<Phase>) {
        let Some(phase) = phases.into_iter().next_back() else { return };
        let Beginning { list, origin, .. } = &self.beginning;
        self.untold = None;
        let record = phase.founded().or(phase.agreed());
        let mut next = record.map_or_else(|| origin.clone(), |record| with_addresses(origin, record, list.iter()));
        next.phase = phase;
        self.beginning.origin = next.clone();
        self.writing = Some((token, self.beginning.origins.keep(next)));
    }

    /// That it is founded is shown only once it takes part in its cluster.
    fn show(&self) {
        let (Some(reason), claim) = (self.machine.reason(), self.machine.claim()) else { return };
        self.beginning.shown.standing.send_if_modified(|standing| {
            let now = Standing::Waiting(reason.to_string().into());
            std::mem::replace(standing, now.clone()) != now
        });
        self.beginning.shown.claim.send_if_modified(|shown| {
            let is_news = shown != claim;
            if is_news {
                shown.clone_from(claim);
            }
            is_news
        });
    }
}

async fn settled(untold: &Option<(Instant, String)>) {
    match untold {
        Some((due, _)) => sleep_until(*due).await,
        None => std::future::pending().await,
    }
}

async fn written(writing: &mut Option<(Token, oneshot::Receiver<()>)>) -> Token {
    if let Some((token, kept)) = writing
        && kept.await.is_ok()
    {
        return *token;
    }
    // A disk that has failed says so to control.
    std::future::pending().await
}

/// What is told when a server belongs to its cluster.
pub(crate) fn founded(record: &Record) -> Kind {
    let members: BTreeSet<ServerId> = record.members.keys().copied().collect();
    Kind::Founded { cluster: record.cluster.to_string(), members: listed(members.iter()) }
}
