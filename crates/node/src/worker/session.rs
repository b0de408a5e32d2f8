//! What belongs to one farm of a worker: links to its servers, a disk for its results, and what runs its tasks.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use primus_core::ServerId;
use primus_core::farm::worker::Record;
use primus_core::machine::Token;
use primus_server::worker::FarmAddress;
use primus_wire::work::{self, FromWorker, Part};
use tokio::sync::mpsc;

use super::links::{LinkEvent, Links};
use super::{WorkerError, away_files};
use crate::credentials::Security;
use crate::disk::{self, Disk};
use crate::executor::{self, Ended, Executor, Kinds};
use crate::meters::Meters;
use crate::outputs;
use crate::results::Results;

/// What is the same for all farms.
pub(super) struct Setting {
    /// How tasks of the worker's own farm run. Its folder is the worker's own.
    pub(super) executor: executor::Settings,
    pub(super) kinds: Kinds,
    pub(super) store: [u8; 16],
    pub(super) security: Security,
}

/// What belongs to one farm.
pub(super) struct Session {
    pub(super) executor: Executor,
    ended: mpsc::UnboundedReceiver<Ended>,
    disk: Disk<Results>,
    meters: Arc<Meters>,
    outputs: PathBuf,
    pub(super) links: Links,
    link_events: mpsc::Receiver<LinkEvent>,
}

/// What happens to it.
#[derive(Debug)]
pub(super) enum Arrival {
    Synced(Token),
    Ended(Ended),
    Link(LinkEvent),
}

impl Setting {
    /// What belongs to the worker's own farm.
    pub(super) fn at_home(&self, farm: &FarmAddress, name: &str, results: Results) -> Result<Session, WorkerError> {
        Session::start(self, self.executor.clone(), (farm, name, &self.security), results)
    }

    /// Another farm knows the worker under another name, and what is done for it has a folder of its own.
    pub(super) fn abroad(&self, farm: &FarmAddress, name: &str, results: Results) -> Result<Session, WorkerError> {
        let mut executor = self.executor.clone();
        executor.worker = name.to_owned();
        executor.directory = away_files::folder(&self.executor.directory, &farm.name);
        let security = self.security.abroad(&farm.name, away_files::authority(&executor.directory).as_deref());
        Session::start(self, executor, (farm, name, &security), results)
    }
}

impl Session {
    /// To be called inside a tokio runtime with time and io.
    fn start(
        setting: &Setting,
        executor: executor::Settings,
        (farm, name, security): (&FarmAddress, &str, &Security),
        results: Results,
    ) -> Result<Self, WorkerError> {
        let outputs = executor.directory.join(executor::Settings::OUTPUTS);
        let (executor, ended) = Executor::start(executor, setting.kinds.clone()).map_err(WorkerError::Executor)?;
        let (links, link_events) = Links::start(farm.name.clone(), name, &farm.servers, setting.store, security);
        let meters = Arc::<Meters>::default();
        let disk = disk::start(results, Arc::clone(&meters));
        Ok(Self { executor, ended, disk, meters, outputs, links, link_events })
    }

    /// The next thing that happens, if it has.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Arrival, WorkerError>> {
        if let Poll::Ready(done) = self.disk.poll_done(context) {
            return Poll::Ready(done.map(Arrival::Synced).map_err(WorkerError::Write));
        }
        if let Poll::Ready(ended) = self.ended.poll_recv(context) {
            return Poll::Ready(ended.map(Arrival::Ended).ok_or(WorkerError::NoCompanion));
        }
        match self.link_events.poll_recv(context) {
            Poll::Ready(Some(event)) => Poll::Ready(Ok(Arrival::Link(event))),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// The same, without waiting.
    pub(super) fn try_next(&mut self) -> Result<Option<Arrival>, WorkerError> {
        if let Some(done) = self.disk.try_done() {
            return Ok(Some(Arrival::Synced(done?)));
        }
        let ended = self.ended.try_recv().ok().map(Arrival::Ended);
        Ok(ended.or_else(|| self.link_events.try_recv().ok().map(Arrival::Link)))
    }

    /// Ends what runs, and returns when nothing is left of it, and the results are closed.
    pub(super) async fn close(self) {
        let Self { executor, mut ended, disk, .. } = self;
        drop(executor);
        while ended.recv().await.is_some() {}
        disk.close().await;
    }

    /// Is there room for results on the disk?
    pub(super) fn has_room(&self) -> bool {
        !self.meters.disk_full.get()
    }

    pub(super) fn write(&self, token: Token, records: Vec<Record>) {
        self.disk.write(token, records);
    }

    /// Sends what is encoded to a server. One that does not read gets another link, and a new hello.
    pub(super) fn send(&mut self, server: ServerId, bytes: Bytes) {
        let is_read = self.links.outgoing(server).is_none_or(|outgoing| outgoing.send(bytes));
        if !is_read {
            self.links.closed(server);
        }
    }

    /// Disks may be slow, so others read.
    pub(super) fn read_output(&self, server: ServerId, number: u64, part: Part) {
        let Some(outgoing) = self.links.outgoing(server) else { return };
        let outputs = self.outputs.clone();
        tokio::task::spawn_blocking(move || {
            let len_max = part.len_max as usize;
            // Whatever the system says, there is no such file for whoever asks.
            let found = outputs::read(&outputs, part.held, part.stream, part.offset, len_max).unwrap_or(None);
            let mut buffer = BytesMut::new();
            work::put(&mut buffer, &FromWorker::Output(number, found.map(Bytes::from)));
            _ = outgoing.send(buffer.freeze());
        });
    }
}
