//! Links for requests: second connections from a server to a peer, beside the link of control, opened when something is asked.
//!
//! They carry everything that only the leader can answer, so a long body never stands before a heartbeat. A link is dialled
//! like one of control, says what it is for, and is then given to the part of the other server that [serves] that purpose:
//! the thread of questions, or the API. Control's thread has to do with the greeting only.
//!
//! [serves]: RequestLinks::serve

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use primus_core::{Place, ServerId};
use primus_identity::trust::Identified;
pub use primus_wire::native::Purpose;
use primus_wire::native::{Answer, Hello};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::credentials::Security;
use crate::dialling::{Dialler, Pace, shake_hands};
use crate::introductions::Introductions;
use crate::invitations::Joiners;
use crate::line::{Line, Parted};
use crate::link_faults::{LinkFaults, PeerGate};
use crate::sockets::tend;

/// How many of them one server may have open to another one. A server lets a thousand requests wait at once; there is room for
/// them, and for others that must not wait.
const LINKS_MAX: usize = 1536;
/// How many may be on the way to one peer: its control thread hears their greetings, and must not be late.
const DIALS_MAX: usize = 32;
/// How many may wait until the part of the server looks at them that they are for.
const CALLERS_MAX: usize = 256;
/// How long it may take to open one.
const OPEN_TIME: Duration = Duration::from_secs(3);
/// How long a question may stay unheard, and a long body: who reads it may have to wait for room.
pub(crate) const QUESTION_UNHEARD_TIME: Duration = Duration::from_secs(5);
const REQUEST_UNHEARD_TIME: Duration = Duration::from_secs(30);

const UNBROKEN: &str = "no thread panics while holding this";

/// How a server asks its peers, and is asked by them.
#[derive(Debug)]
pub struct RequestLinks {
    introductions: Arc<Introductions>,
    peers: BTreeMap<ServerId, Peer>,
    cuts: watch::Receiver<LinkFaults>,
    security: Security,
    questions: OnceLock<mpsc::Sender<CallingServer>>,
    requests: OnceLock<mpsc::Sender<CallingServer>>,
    /// Those who ask to join the farm.
    pub(crate) joiners: Joiners,
}

/// Where a peer is, and how much room is left for links to it and from it.
#[derive(Debug)]
struct Peer {
    address: Place,
    /// Where control's link to it leads, while that is up: a name is not looked up for every request.
    reached: Mutex<Option<SocketAddr>>,
    dials: Semaphore,
    dialled: Arc<Semaphore>,
    accepted: Arc<Semaphore>,
}

impl Peer {
    fn place(&self) -> Place {
        let reached = *self.reached.lock().expect(UNBROKEN);
        reached.map_or_else(|| self.address.clone(), Place::from)
    }
}

impl RequestLinks {
    pub(crate) fn new(
        introductions: Arc<Introductions>,
        peers: &BTreeMap<ServerId, Place>,
        cuts: watch::Receiver<LinkFaults>,
        security: Security,
    ) -> Self {
        let links = || Arc::new(Semaphore::new(LINKS_MAX));
        let peer = |(id, address): (&ServerId, &Place)| {
            let dials = Semaphore::new(DIALS_MAX);
            (
                *id,
                Peer {
                    address: address.clone(),
                    reached: Mutex::default(),
                    dials,
                    dialled: links(),
                    accepted: links(),
                },
            )
        };
        let (peers, questions, requests) = (peers.iter().map(peer).collect(), OnceLock::new(), OnceLock::new());
        Self { introductions, peers, cuts, security, questions, requests, joiners: Joiners::default() }
    }

    /// The farm that this server belongs to.
    pub(crate) fn farm(&self) -> &str {
        &self.introductions.own().cluster
    }

    /// The links of peers that are for this purpose, from now on; nothing comes if somebody serves it already. Until then such
    /// links are refused.
    ///
    /// # Panics
    /// If the purpose is control or the founding: those links have an owner.
    pub fn serve(&self, purpose: Purpose) -> mpsc::Receiver<CallingServer> {
        let (callers, calls) = mpsc::channel(CALLERS_MAX);
        // The second one has no sender, and so it ends.
        _ = self.served(purpose).expect("only what asks has links that others serve").set(callers);
        calls
    }

    const fn served(&self, purpose: Purpose) -> Option<&OnceLock<mpsc::Sender<CallingServer>>> {
        match purpose {
            Purpose::Control | Purpose::Founding => None,
            Purpose::Questions => Some(&self.questions),
            Purpose::Requests => Some(&self.requests),
        }
    }

    /// Opens a link to a peer, as soon as there is room for one.
    ///
    /// # Errors
    /// If the peer is not there, or does not take it. Nothing has been asked then.
    pub async fn dial(&self, to: ServerId, purpose: Purpose) -> io::Result<PeerStream> {
        let peer = self.peers.get(&to).ok_or(io::ErrorKind::NotFound)?;
        let place = Arc::clone(&peer.dialled).acquire_owned().await.map_err(io::Error::other)?;
        let _dial = peer.dials.acquire().await.map_err(io::Error::other)?;
        let line = timeout(OPEN_TIME, self.open(to, peer.place(), purpose)).await??;
        Ok(PeerStream::new(line, self.gate(to), place))
    }

    /// From now on control's link to this peer leads here, or nowhere.
    pub(crate) fn reached(&self, peer: ServerId, at: Option<SocketAddr>) {
        if let Some(peer) = self.peers.get(&peer) {
            *peer.reached.lock().expect(UNBROKEN) = at;
        }
    }

    async fn open(&self, to: ServerId, address: Place, purpose: Purpose) -> io::Result<Line> {
        let callee = self.security.towards(&self.introductions.own().cluster, to);
        let (mut dialler, mut gate) = (Dialler::new(address, callee, Pace::PEERS), self.gate(to));
        gate.flows().await;
        let connected = dialler.connect().await;
        gate.travel(2).await;
        let mut line = shake_hands(connected?, dialler.callee()).await?;
        let (answer, arrived) = dialler.greet(&mut line, &self.introductions.hello(to, purpose)).await?;
        gate.travel(2).await;
        match answer {
            Answer::Welcome(hello)
                if arrived.is_empty() && self.introductions.identify(&hello, line.who()) == Ok(to) =>
            {
                let is_short = purpose == Purpose::Questions;
                tend(line.tcp(), if is_short { QUESTION_UNHEARD_TIME } else { REQUEST_UNHEARD_TIME })?;
                Ok(line)
            }
            Answer::Refused(reason) | Answer::Barred(reason) => {
                Err(io::Error::other(format!("server {to} refuses: {reason}")))
            }
            Answer::Welcome(_) | Answer::Admitted => {
                Err(io::Error::other(format!("another process answers in the place of server {to}")))
            }
        }
    }

    /// Faults of the link to a peer.
    #[must_use]
    pub fn gate(&self, peer: ServerId) -> PeerGate {
        PeerGate::new(peer, self.cuts.clone())
    }

    /// A place for a caller, who has said nothing but this.
    pub(crate) fn admit(
        &self,
        hello: &Hello,
        who: Option<&Identified>,
        arrived: &BytesMut,
    ) -> Result<Admitted, String> {
        let from = self.introductions.identify(hello, who)?;
        let me = self.introductions.own().server;
        let served = hello.purpose().and_then(|purpose| self.served(purpose)?.get());
        let serving = served.ok_or_else(|| format!("server {me} serves no such requests"))?;
        let peer = self.peers.get(&from).ok_or_else(|| format!("server {from} has no address"))?;
        let full = |_| format!("server {from} has more links for requests than server {me} can have");
        let place = Arc::clone(&peer.accepted).try_acquire_owned().map_err(full)?;
        let late = |_| format!("too many links for requests wait at server {me}");
        let turn = serving.clone().try_reserve_owned().map_err(late)?;
        // An answer to the hello comes first.
        if !arrived.is_empty() {
            return Err("a server that asks waits for the answer to its hello".to_owned());
        }
        Ok(Admitted { from, gate: self.gate(from), place, turn })
    }
}

/// A caller that may ask.
pub(crate) struct Admitted {
    pub(crate) from: ServerId,
    gate: PeerGate,
    place: OwnedSemaphorePermit,
    turn: mpsc::OwnedPermit<CallingServer>,
}

impl Admitted {
    /// Gives its link to those who serve it.
    pub(crate) fn pass_on(self, line: Line) {
        let (Self { from, gate, place, turn }, who) = (self, line.who().cloned());
        if let Ok(line) = line.part() {
            turn.send(CallingServer { from, who, line, gate, place });
        }
    }
}

/// A peer that asks, on a link of its own.
#[derive(Debug)]
pub struct CallingServer {
    /// Which one it is.
    pub from: ServerId,
    /// What it has proved, unless links are plain.
    pub(crate) who: Option<Identified>,
    line: Parted,
    gate: PeerGate,
    place: OwnedSemaphorePermit,
}

impl CallingServer {
    /// Its link, on the runtime on which this is called. What is said on it may stay unheard for this long.
    ///
    /// # Errors
    /// If it is lost already.
    pub fn open(self, unheard: Duration) -> io::Result<PeerStream> {
        let line = self.line.join()?;
        tend(line.tcp(), unheard)?;
        Ok(PeerStream::new(line, self.gate, self.place))
    }
}

/// A link for requests. While the link to the peer is cut, nothing moves on it.
pub struct PeerStream {
    line: Line,
    gate: PeerGate,
    /// Until the link is mended.
    cut: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    _place: OwnedSemaphorePermit,
}

impl std::fmt::Debug for PeerStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerStream").field("line", &self.line).field("gate", &self.gate).finish_non_exhaustive()
    }
}

impl PeerStream {
    fn new(line: Line, gate: PeerGate, place: OwnedSemaphorePermit) -> Self {
        Self { line, gate, cut: None, _place: place }
    }

    /// The other end.
    ///
    /// # Errors
    /// If the link is lost.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.line.tcp().peer_addr()
    }

    fn poll_flows(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.cut.is_none() && self.gate.is_cut() {
            let mut gate = self.gate.clone();
            self.cut = Some(Box::pin(async move { gate.flows().await }));
        }
        if let Some(cut) = &mut self.cut {
            ready!(cut.as_mut().poll(context));
            self.cut = None;
        }
        Poll::Ready(())
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_flows(context));
        Pin::new(&mut self.line).poll_read(context, buffer)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_flows(context));
        Pin::new(&mut self.line).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flows(context));
        Pin::new(&mut self.line).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.line.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.line).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
