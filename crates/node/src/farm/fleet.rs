//! What the farm's thread does so that workers can prove who they are: the leader tells them which authorities there are and what
//! time it is, and passes on what they wish.

use std::sync::Arc;

use bytes::Bytes;
use primus_core::WorkerId;
use primus_core::ledger::roll::Fingerprint;
use primus_identity::trust::Identified;
use primus_wire::work::ToWorker;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use super::run::Driver;
use crate::credentials::Live;
use crate::fleet::{QUIET, Shown, Wish};

/// How often the clock of links is set.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

/// What it takes on a farm whose links are encrypted.
pub(super) struct Fleet {
    live: Option<Arc<Live>>,
    wishes: mpsc::Sender<Wish>,
    pub(super) shown: Arc<Shown>,
    /// When workers were told last, and of which authorities.
    told: (Instant, Vec<Fingerprint>),
    clock_set: Option<Instant>,
}

impl Fleet {
    pub(super) fn new(live: Option<Arc<Live>>, wishes: mpsc::Sender<Wish>, shown: Arc<Shown>) -> Self {
        Self { live, wishes, shown, told: (Instant::now(), Vec::new()), clock_set: None }
    }
}

impl Driver {
    /// A worker has a link: which authority has issued its certificate?
    pub(super) fn note_shown(&self, id: WorkerId) {
        if let Some(who) = self.own_worker(id) {
            let name = who.name.worker_name().unwrap_or_default();
            self.fleet.shown.worker(id, name, Fingerprint(*who.authority.bytes()));
        }
    }

    /// What a worker says of its certificate.
    pub(super) fn on_shows(&self, id: WorkerId, authority: [u8; 32]) {
        if let Some(who) = self.own_worker(id) {
            let name = who.name.worker_name().unwrap_or_default();
            self.fleet.shown.worker(id, name, Fingerprint(authority));
        }
    }

    /// This server leads, and a worker has heard that.
    pub(super) fn greet(&self, id: WorkerId) {
        let Some(who) = self.own_worker(id) else { return };
        let (name, key) = (who.name.worker_name().unwrap_or_default(), Fingerprint(*who.key.bytes()));
        if !self.farm.ledger().roll().workers().contains_key(name) {
            self.wish_for(Wish::Bind(name.to_owned(), key));
        }
        self.authorities().iter().for_each(|word| self.callers.say(id, word));
    }

    /// A worker of this farm whose certificate is old.
    pub(super) fn on_renew(&self, id: WorkerId, key: Bytes) {
        if let (Some(who), Some(answer)) = (self.own_worker(id), self.callers.outgoing(id)) {
            self.wish_for(Wish::Renew(Box::new(who.clone()), key, answer));
        }
    }

    /// Tells workers which authorities there are, if that has changed, or is long ago: their certificates may be old by now.
    pub(super) fn tell_authorities(&mut self) {
        let roll = self.farm.ledger().roll();
        let now: Vec<Fingerprint> = roll.authorities().iter().map(|authority| authority.hash).collect();
        if now == self.fleet.told.1 && self.fleet.told.0.elapsed() < QUIET {
            return;
        }
        self.fleet.told = (Instant::now(), now);
        if let Some(word) = self.authorities() {
            let led: Vec<WorkerId> = self.callers.led().collect();
            led.into_iter().filter(|id| self.own_worker(*id).is_some()).for_each(|id| self.callers.say(id, &word));
        }
    }

    /// Links go by the ledger's time, where it is known.
    pub(super) fn set_clock(&mut self) {
        let Some(live) = &self.fleet.live else { return };
        if self.fleet.clock_set.is_some_and(|set| set.elapsed() < CLOCK_EVERY) {
            return;
        }
        self.fleet.clock_set = Some(Instant::now());
        match self.farm.time_ms() {
            (now_ms, true) => live.clock().tell(now_ms),
            (past_ms, false) => live.clock().at_least(past_ms),
        }
    }

    fn authorities(&self) -> Option<ToWorker> {
        let roll = self.farm.ledger().roll();
        let certificates =
            roll.authorities().iter().map(|authority| Bytes::copy_from_slice(&authority.certificate));
        let authorities: Vec<Bytes> = certificates.collect();
        let (now_ms, is_sure) = self.farm.time_ms();
        let (now_ms, as_of_ms) = (if is_sure { now_ms } else { 0 }, roll.newest_ms());
        let is_any = self.fleet.live.is_some() && !authorities.is_empty();
        is_any.then_some(ToWorker::Authorities { as_of_ms, now_ms, authorities })
    }

    /// A worker of this farm that has proved who it is.
    fn own_worker(&self, id: WorkerId) -> Option<&Identified> {
        let live = self.fleet.live.as_ref()?;
        self.callers.who(id).filter(|who| who.worker_of(live.farm()).is_ok())
    }

    fn wish_for(&self, wish: Wish) {
        // If too many wait, it will be wished again.
        _ = self.fleet.wishes.try_send(wish);
    }
}
