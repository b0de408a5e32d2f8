//! How a link to a server is opened, by another server, a worker or the leader of another farm: dial, shake hands, say hello, hear
//! the answer.
//!
//! Every stage has a time limit. Only a *refusal* of the system says that a process is dead: a time-out or a lack of files says
//! nothing. What becomes of an open link, its owner decides; when it is lost, the same dialler dials again.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use primus_core::Place;
use primus_identity::refusal::Refusal;
use primus_wire::native::{self, Answer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::credentials::Callee;
use crate::line::Line;
use crate::names::{Lookup, Unresolved, look_up};
use crate::sockets::tend;

/// How long one dial may take.
pub(crate) const DIAL_TIME: Duration = Duration::from_secs(1);
/// How long a hello and its answer may take.
pub(crate) const HELLO_TIME: Duration = Duration::from_secs(2);
/// No hello is longer, and no answer to one.
pub(crate) const HELLO_LEN_MAX: u64 = 4096;
/// A link on which nothing arrives for this long, though something was sent, is dialled anew.
pub(crate) const UNHEARD_TIME: Duration = Duration::from_secs(1);
/// How long a caller waits that the other side has refused.
pub(crate) const REFUSED_TIME: Duration = Duration::from_secs(2);
/// How long a dial may take before another one follows: as many times as long as the last one that was taken, within bounds.
const PATIENCE_TIMES: u32 = 4;
const PATIENCE_MIN: Duration = Duration::from_millis(2);
const PATIENCE_MAX: Duration = Duration::from_millis(500);
/// The same before the first dial has been taken.
const PATIENCE: Duration = Duration::from_millis(50);

/// How an alert of TLS begins.
const ALERT: [u8; 2] = [21, 3];

/// How hard a dialler tries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pause_min: Duration,
    pause_max: Duration,
    /// How many dials may be under way. A dial that arrives in the moment in which a port is closed is thrown away by the system,
    /// which tries again only after a second; another one is taken, or refused.
    dials_max: usize,
}

impl Pace {
    /// Between the servers of one cluster. A process that dies closes its links before it closes its port, so the first dial after
    /// a link was lost may still be taken, and lost again: the refusal comes a moment later.
    pub(crate) const PEERS: Self =
        Self { pause_min: Duration::from_micros(250), pause_max: Duration::from_millis(500), dials_max: 6 };
    /// From workers and other farms.
    pub(crate) const CALLERS: Self =
        Self { pause_min: Duration::from_millis(1), pause_max: Duration::from_millis(250), dials_max: 1 };
}

/// Dials one place again and again. A name is looked up anew for every dial.
#[derive(Debug)]
pub(crate) struct Dialler {
    place: Place,
    /// Where a name led when the last dial was taken, until a dial there fails.
    last: Option<SocketAddr>,
    /// A lookup that was still under way when the last dial ended.
    lookup: Option<Lookup>,
    /// Who is to answer; nothing if links are plain.
    callee: Option<Callee>,
    pace: Pace,
    /// How long to wait before the next dial.
    pause: Duration,
    /// How long a dial may take before another one follows.
    patience: Duration,
}

impl Dialler {
    pub(crate) const fn new(place: Place, callee: Option<Callee>, pace: Pace) -> Self {
        Self { place, last: None, lookup: None, callee, pace, pause: pace.pause_min, patience: PATIENCE }
    }

    /// Opens a link, and says who calls. Gives back what came after the answer, too.
    pub(crate) async fn dial(&mut self, hello: &impl Serialize) -> io::Result<(Line, BytesMut, Answer)> {
        let tcp = self.connect().await?;
        let mut line = shake_hands(tcp, self.callee()).await?;
        let (answer, arrived) = self.greet(&mut line, hello).await?;
        Ok((line, arrived, answer))
    }

    /// Who is to answer; nothing if links are plain.
    pub(crate) fn callee(&self) -> Option<Callee> {
        self.callee.clone()
    }

    /// A connection; [`io::ErrorKind::ConnectionRefused`] if no process listens there.
    pub(crate) async fn connect(&mut self) -> io::Result<TcpStream> {
        let stream = match self.place.number() {
            Some(address) => timeout(DIAL_TIME, self.connect_to_any(&[address])).await??,
            None => self.connect_by_name().await?,
        };
        tend(&stream, UNHEARD_TIME)?;
        // A dead port in the ephemeral range can connect to itself.
        if stream.local_addr()? == stream.peer_addr()? {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        Ok(stream)
    }

    /// Where the last dial was taken the next one begins, while the name is being looked up: if the process is dead, a refusal
    /// says so at once, however long the lookup takes. The dial after a refusal waits for the lookup, because the name may lead
    /// elsewhere by then.
    async fn connect_by_name(&mut self) -> io::Result<TcpStream> {
        let mut lookup = self.lookup.take().unwrap_or_else(|| look_up(&self.place));
        if let Some(last) = self.last.take() {
            tokio::select! {
                biased;
                found = &mut lookup => return self.connect_to_found(found).await,
                connected = timeout(DIAL_TIME, TcpStream::connect(last)) => match connected? {
                    Ok(stream) => {
                        self.last = Some(last);
                        return Ok(stream);
                    }
                    Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        self.lookup = Some(lookup);
                        return Err(error);
                    }
                    Err(_) => {}
                },
            }
        }
        match timeout(DIAL_TIME, &mut lookup).await {
            Ok(found) => self.connect_to_found(found).await,
            Err(_) => {
                self.lookup = Some(lookup);
                Err(io::Error::other(Unresolved::new(&self.place, "no name server has answered yet")))
            }
        }
    }

    async fn connect_to_found(
        &mut self,
        found: Result<Result<Vec<SocketAddr>, Unresolved>, RecvError>,
    ) -> io::Result<TcpStream> {
        let addresses = found.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let stream = timeout(DIAL_TIME, self.connect_to_any(&addresses)).await??;
        self.last = stream.peer_addr().ok();
        Ok(stream)
    }

    /// Tries these addresses in turn: the next one when one fails, or takes longer than usual.
    async fn connect_to_any(&mut self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let (mut dials, began, mut patience) = (JoinSet::new(), Instant::now(), self.patience);
        let (mut failed, mut tried) = (BTreeMap::new(), 0);
        let dials_max = self.pace.dials_max.max(addresses.len());
        loop {
            let next = (tried..).map(|turn| addresses[turn % addresses.len()]);
            if let Some(address) = next.take(addresses.len()).find(|address| !failed.contains_key(address)) {
                tried += 1;
                dials.spawn(async move { (address, TcpStream::connect(address).await) });
            }
            loop {
                tokio::select! {
                    Some(dialled) = dials.join_next() => match dialled.map_err(io::Error::other)? {
                        (_, Ok(stream)) => {
                            self.patience = (began.elapsed() * PATIENCE_TIMES).clamp(PATIENCE_MIN, PATIENCE_MAX);
                            return Ok(stream);
                        }
                        (address, Err(error)) => _ = failed.insert(address, error),
                    },
                    () = sleep(patience), if dials.len() < dials_max => {
                        patience *= 2;
                        break;
                    }
                }
                if failed.len() == addresses.len() {
                    return Err(verdict(failed.into_values()));
                }
                if tried < addresses.len() || dials.is_empty() {
                    break;
                }
            }
        }
    }

    /// Says hello, and hears the answer.
    pub(crate) async fn greet(
        &mut self,
        line: &mut Line,
        hello: &impl Serialize,
    ) -> io::Result<(Answer, BytesMut)> {
        let mut arrived = BytesMut::new();
        let greeting = async {
            say(line, hello).await?;
            hear(&mut line.take(HELLO_LEN_MAX), &mut arrived).await
        };
        let heard = timeout(HELLO_TIME, greeting).await?;
        let is_alert = arrived.starts_with(&ALERT) && self.callee.is_none();
        let (answer, _) =
            heard.map_err(|error| if is_alert { io::Error::other(Refusal::Secured) } else { error })?;
        if !matches!(answer, Answer::Refused(_)) {
            self.pause = self.pace.pause_min;
        }
        Ok((answer, arrived))
    }

    /// How long to wait before the next dial: longer each time, until one is answered.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.pace.pause_max);
        pause
    }
}

/// What it means that no address of a place was reached. If any of them may still be alive, the process may be.
fn verdict(errors: impl Iterator<Item = io::Error>) -> io::Error {
    let mut errors: Vec<io::Error> = errors.collect();
    // That this host has no way to addresses of one version tells nothing about the process.
    let tells = |error: &io::Error| {
        !matches!(error.kind(), io::ErrorKind::NetworkUnreachable | io::ErrorKind::AddrNotAvailable)
    };
    let is_refusal = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let worst = errors.iter().position(|error| tells(error) && !is_refusal(error));
    let worst = worst.or_else(|| errors.iter().position(is_refusal)).unwrap_or(0);
    errors.swap_remove(worst)
}

/// Makes sure that the right one answers, unless links are plain.
pub(crate) async fn shake_hands(tcp: TcpStream, callee: Option<Callee>) -> io::Result<Line> {
    let Some(callee) = callee else { return Ok(Line::plain(tcp)) };
    let shaken = timeout(HELLO_TIME, Line::dial(tcp, &callee)).await?;
    shaken.map_err(|error| match Refusal::of_io(&error) {
        Some(Refusal::Protocol) => io::Error::other(Refusal::Plain),
        Some(refusal) => io::Error::other(refusal),
        None => error,
    })
}

/// Writes one message.
pub(crate) async fn say(line: &mut Line, message: &impl Serialize) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    native::put(&mut buffer, message).map_err(io::Error::other)?;
    line.write_all(&buffer).await?;
    line.flush().await
}

/// The next message, and how many bytes it took.
pub(crate) async fn hear<M: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    arrived: &mut BytesMut,
) -> io::Result<(M, usize)> {
    loop {
        let before = arrived.len();
        if let Some(message) = native::take(arrived).map_err(io::Error::other)? {
            return Ok((message, before - arrived.len()));
        }
        if stream.read_buf(arrived).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests;
