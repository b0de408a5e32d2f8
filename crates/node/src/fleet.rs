//! What a server does so that everybody in the fleet can prove who it is.
//!
//! All of it follows from the roll: whom to believe, and whether the server's own certificate is from the newest authority. A leader
//! enters the authority with which the farm began, binds the names of workers that come with a certificate of the founding file, and
//! issues certificates to those who ask on their own links. The others ask the leader.

mod shown;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use primus_core::ledger::Roll;
use primus_core::ledger::roll::{self, Change, Done, Fingerprint};
use primus_core::{ServerId, Term};
use primus_identity::authority::{Authority, AuthorityCertificate, Request};
use primus_identity::certificate::Validity;
use primus_identity::keys::{Keys, PublicKey};
use primus_identity::name::Name;
use primus_identity::trust::Identified;
use primus_identity::verify::Clock;
use primus_wire::work::{self, ToWorker};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

pub(crate) use self::shown::Shown;
use crate::credentials::{DAYS, Issued, Live};
use crate::handle::{Handle, Unable};
use crate::outgoing::Outgoing;
use crate::questions::{LeaderReply, LeaderRequest};

/// How many wishes of workers may wait; what is lost is wished again.
pub(crate) const WISHES_MAX: usize = 1024;
/// How many of them are served at once.
const SERVED_MAX: usize = 32;
/// How soon to try again what failed, and how often to look whether a certificate has become old.
const AGAIN: Duration = Duration::from_millis(500);
pub(crate) const QUIET: Duration = Duration::from_secs(3600);

/// What a worker needs of the leader.
#[derive(Debug)]
pub(crate) enum Wish {
    /// It came first under this name, with this key.
    Bind(String, Fingerprint),
    /// It wants a certificate for its public key, and hears it here.
    Renew(Box<Identified>, Bytes, Outgoing),
}

/// Sees to identities, beside everything else that a server does.
pub(crate) struct Fleet {
    handle: Handle,
    id: ServerId,
    live: Arc<Live>,
    wishes: mpsc::Receiver<Wish>,
    /// To which leader this server has said which authority has issued its certificate.
    told: Option<(ServerId, Term, Fingerprint)>,
}

impl Fleet {
    pub(crate) fn new(handle: Handle, live: Arc<Live>, wishes: mpsc::Receiver<Wish>) -> Self {
        let id = handle.id();
        Self { handle, id, live, wishes, told: None }
    }

    /// Until the server ends.
    pub(crate) async fn run(mut self) {
        let (mut roll, mut leadership) = (self.handle.farm.watch_roll(), self.handle.leadership());
        let served = Arc::new(Semaphore::new(SERVED_MAX));
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                changed = roll.changed() => if changed.is_err() { return },
                changed = leadership.changed() => if changed.is_err() { return },
                Some(wish) = self.wishes.recv() => {
                    let Ok(place) = Arc::clone(&served).acquire_owned().await else { return };
                    let handle = self.handle.clone();
                    tokio::spawn(async move {
                        serve(&handle, wish).await;
                        drop(place);
                    });
                    continue;
                }
                () = sleep(pause) => {}
            }
            pause = if self.look().await.is_some() { QUIET } else { AGAIN };
        }
    }

    /// Does what the roll wants; nothing if that has to be tried again.
    async fn look(&mut self) -> Option<()> {
        let (roll, leads) = (self.handle.farm.roll(), self.leader().is_some_and(|(leader, _)| leader == self.id));
        if roll.authorities().is_empty() {
            return match self.live.founding().filter(|_| leads) {
                Some(authority) => {
                    self.handle.farm.change_roll(Change::AddAuthority(authority)).await.ok().map(drop)
                }
                None => Some(()),
            };
        }
        let live = Arc::clone(&self.live);
        spawn_blocking(move || learn(&live, &roll)).await.ok()?.ok()?;
        if self.live.is_renewal_due() {
            self.renew().await?;
        }
        self.show().await
    }

    fn leader(&self) -> Option<(ServerId, Term)> {
        let leadership = self.handle.leadership();
        let now = leadership.borrow();
        now.leader.map(|leader| (leader, now.term))
    }

    /// Gets a certificate from the leader, here or elsewhere.
    async fn renew(&self) -> Option<()> {
        let key = self.live.public_key()?;
        let LeaderReply::Issued(issued) = self.handle.ask_once(&LeaderRequest::Renew(key)).await.ok()? else {
            return None;
        };
        let live = Arc::clone(&self.live);
        spawn_blocking(move || live.renew(&issued)).await.ok()?.ok()
    }

    /// Says which authority has issued this server's certificate, once to each leader: it may finish a rotation then.
    async fn show(&mut self) -> Option<()> {
        let Some((leader, term)) = self.leader() else { return Some(()) };
        let hash = Fingerprint(*self.live.issuer().bytes());
        let now = Some((leader, term, hash));
        if leader != self.id && self.told != now {
            self.handle.ask_once(&LeaderRequest::Shows(hash.0)).await.ok()?;
            self.told = now;
        }
        Some(())
    }
}

/// Believes those whom the roll lists.
fn learn(live: &Live, roll: &Roll) -> io::Result<()> {
    live.forget_founding()?;
    let read = |authority: &roll::Authority| AuthorityCertificate::from_der(&authority.certificate).ok();
    live.believe(roll.newest_ms(), roll.authorities().iter().filter_map(read).collect())
}

/// If it fails, the worker wishes it again.
async fn serve(handle: &Handle, wish: Wish) {
    match wish {
        Wish::Bind(name, key) => {
            if let Ok(Err(denial)) = handle.farm.change_roll(Change::BindWorker { name, key }).await {
                handle.history.refused(format!("a worker's name has no key: {denial}"));
            }
        }
        Wish::Renew(who, key, answer) => match issue(handle, &who, &key).await {
            Ok(Issued { certificate, authority, voucher }) => {
                let [certificate, authority, voucher] = [certificate, authority, voucher].map(Bytes::from);
                let mut buffer = BytesMut::new();
                work::put(&mut buffer, &ToWorker::Certificate { certificate, authority, voucher });
                _ = answer.send(buffer.freeze());
            }
            Err(error) => handle.history.refused(format!("no certificate for {}: {error}", who.name)),
        },
    }
}

/// A new certificate for a node that has proved who it is, for the same key, if this server leads.
pub(crate) async fn issue(handle: &Handle, who: &Identified, key: &[u8]) -> Result<Issued, String> {
    let live = handle.live.as_ref().ok_or("links are plain here")?;
    let key = PublicKey::from_der(key).map_err(|error| error.to_string())?;
    if key.fingerprint() != who.key {
        return Err("it is for another key".to_owned());
    }
    live.look_up(who).map_err(|refusal| refusal.to_string())?;
    let issued = issue_as(handle, live, &who.name, &key).await?;
    // It may have been revoked meanwhile.
    live.look_up(who).map_err(|refusal| refusal.to_string())?;
    Ok(issued)
}

/// The same for this server itself.
pub(crate) async fn issue_own(handle: &Handle, key: &[u8]) -> Result<Issued, String> {
    let live = handle.live.as_ref().ok_or("links are plain here")?;
    let key = PublicKey::from_der(key).map_err(|error| error.to_string())?;
    issue_as(handle, live, &live.name(), &key).await
}

async fn issue_as(handle: &Handle, live: &Live, name: &Name, key: &PublicKey) -> Result<Issued, String> {
    let drawn = handle.farm.change_roll(Change::DrawSerial).await.map_err(|error| error.to_string())?;
    let Ok(Done::Serial(serial)) = drawn else { return Err(Unable::Unknown.to_string()) };
    let roll = handle.farm.roll();
    let newest = roll.authorities().first().ok_or("this farm has no authority")?;
    let certificate = AuthorityCertificate::from_der(&newest.certificate).map_err(|error| error.to_string())?;
    let keys = Keys::from_der(&newest.key.0).map_err(|error| error.to_string())?;
    let authority = Authority::new(certificate, keys).map_err(|error| error.to_string())?;
    let validity = Validity::since_yesterday(live.clock().now(), DAYS);
    let request = Request { name, key, api: &[], serial };
    let certificate = authority.issue(&request, validity).map_err(|error| error.to_string())?.to_vec();
    Ok(Issued { certificate, authority: newest.certificate.clone(), voucher: newest.voucher.clone() })
}

impl Handle {
    /// Who still shows a certificate of an authority that is not the newest, or has not shown a newer one yet.
    #[must_use]
    pub fn stragglers(&self, servers: impl IntoIterator<Item = ServerId>) -> Vec<String> {
        let roll = self.farm.roll();
        let (Some(live), Some(newest)) = (&self.live, roll.authorities().first()) else { return Vec::new() };
        let own = Some(Fingerprint(*live.issuer().bytes()));
        self.shown
            .others_than(newest.hash, servers.into_iter().filter(|id| *id != self.id() || own != Some(newest.hash)))
    }
}
