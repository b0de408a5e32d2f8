//! How a worker stays able to prove who it is: its leader at home tells it which authorities there are, and gives it a new
//! certificate when its own is old, or from an authority that is not the newest. Away from home it has its links to home, too.

use bytes::{Bytes, BytesMut};
use primus_core::{FarmId, ServerId};
use primus_identity::authority::AuthorityCertificate;
use primus_wire::work::{self, FromWorker};
use tokio::task::spawn_blocking;

use super::driver::{Driver, Prepared};
use crate::credentials::{Issued, Live};

impl Driver {
    /// These authorities there are, the newest first; and what time it is.
    pub(super) fn on_authorities(&self, from: ServerId, (as_of_ms, now_ms): (u64, u64), authorities: Vec<Bytes>) {
        self.prove(from, true, move |live| {
            if now_ms > 0 {
                live.clock().tell(now_ms);
            }
            let read = |der: &Bytes| AuthorityCertificate::from_der(der).ok();
            live.believe(as_of_ms, authorities.iter().filter_map(read).collect())
        });
    }

    pub(super) fn on_certificate(&self, from: ServerId, issued: Issued) {
        self.prove(from, false, move |live| live.renew(&issued));
    }

    /// Disks may be slow, so others write.
    fn prove(
        &self,
        leader: ServerId,
        may_ask: bool,
        change: impl FnOnce(&Live) -> std::io::Result<()> + Send + 'static,
    ) {
        let Some(live) = self.live().cloned() else { return };
        let prepare = self.prepare();
        spawn_blocking(move || {
            // What cannot be written down now is told again later.
            if change(&live).is_ok() {
                // Nobody listens when the worker has ended.
                _ = prepare.send(Prepared::Proved { leader, may_ask });
            }
        });
    }

    /// The leader hears which authority has issued the certificate, or that another one is due.
    pub(super) fn on_proved(&mut self, leader: ServerId, may_ask: bool) {
        let Some(live) = self.live() else { return };
        let key = live.public_key().filter(|_| may_ask && live.is_renewal_due());
        let word = match key {
            Some(key) => FromWorker::Renew(key.into()),
            None => FromWorker::Shows(*live.issuer().bytes()),
        };
        let mut buffer = BytesMut::new();
        work::put(&mut buffer, &word);
        self.send(FarmId::OWN, leader, buffer.freeze());
    }
}
