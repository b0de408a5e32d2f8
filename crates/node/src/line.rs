//! A connection between two nodes: plain TCP, or TLS on it, with who is at the other end.
//!
//! Unlike streams of other crates a line can move to the runtime of another thread ([`Line::part`]): the thread at the door
//! shakes hands, and the thread that the link is for reads what is said on it. The connection's end is an end, with or without a
//! farewell: a process that is killed sends none.
//!
//! A line ends, too, when the one at its other end is not welcome any more: whoever reads hears why.
//!
//! What was written may wait inside a line until it is flushed. So [`tokio::io::AsyncWriteExt::flush`] follows every `write_all`.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use primus_identity::UnixTime;
use primus_identity::authority::AuthorityCertificate;
use primus_identity::config;
use primus_identity::name::dial_any;
use primus_identity::peer::{self, Caller};
use primus_identity::refusal::Refusal;
use primus_identity::rustls::{ClientConnection, Connection, ServerConnection};
use primus_identity::trust::Identified;
use primus_identity::verify::{self, HostClock};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::credentials::{Callee, Tls, Welcome};

/// How much text may wait to be encrypted and sent. A line that is full takes no more until some of it has left.
const UNSENT_LEN_MAX: usize = 256 << 10;
/// How much is received at once. TLS alone would ask the system for 4 KiB each time, and a part of the log is far longer.
const RECEIVED_LEN_MAX: usize = 32 << 10;
/// How much is read of a caller that was refused. As long as something is unread, the system would not deliver why.
const IGNORED_LEN_MAX: u64 = 64 << 10;
/// How long a refused caller may take to hear why.
const FAREWELL_TIME: Duration = Duration::from_millis(500);

/// A connection, open and usable on the runtime that made it.
#[derive(Debug)]
pub(crate) struct Line {
    tcp: TcpStream,
    /// Nothing on a plain line.
    secured: Option<Secured>,
}

/// A line between two runtimes.
#[derive(Debug)]
pub(crate) struct Parted {
    tcp: std::net::TcpStream,
    secured: Option<Secured>,
}

#[derive(Debug)]
struct Secured {
    tls: Box<Connection>,
    /// Who is at the other end, as its certificate proves; nothing for a joiner, which has none.
    who: Option<Box<Identified>>,
    /// For how long it is welcome; nothing if nobody says that, or it is over.
    welcome: Option<Welcome>,
    /// What has arrived and is not decrypted yet. It takes no memory while nothing arrives.
    arrived: BytesMut,
}

/// Who has dialled a server, once hands are shaken.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A node with a name.
    Node(Line),
    /// A process without one, that may ask to join, and nothing else.
    Joiner(Line),
}

impl Line {
    /// A plain line.
    pub(crate) const fn plain(tcp: TcpStream) -> Self {
        Self { tcp, secured: None }
    }

    /// Shakes hands with a node that has dialled. It hears why if it is refused.
    pub(crate) async fn accept(tcp: TcpStream, own: &Tls) -> io::Result<Accepted> {
        let shown = own.shown();
        let connection = ServerConnection::new(shown.accepting()).map_err(io::Error::other)?;
        let mut hands = Hands::new(tcp, connection.into());
        let shaken = hands.shake().await.and_then(|()| match &*hands.tls {
            Connection::Server(connection) => own.caller(connection, &shown).map_err(io::Error::other),
            Connection::Client(_) => unreachable!("it was made as a server's"),
        });
        match shaken {
            Ok(Caller::Known(who)) => {
                let welcome = own.live().welcome(&who);
                Ok(Accepted::Node(hands.line(Some(who), welcome)))
            }
            Ok(Caller::Joiner) => Ok(Accepted::Joiner(hands.line(None, None))),
            Err(error) => {
                hands.refuse().await;
                Err(error)
            }
        }
    }

    /// Shakes hands with the node that was dialled.
    pub(crate) async fn dial(tcp: TcpStream, callee: &Callee) -> io::Result<Self> {
        let shown = callee.shown();
        let config = shown.dialling(callee.farm());
        let connection = ClientConnection::new(config, callee.name()).map_err(io::Error::other)?;
        let mut hands = Hands::new(tcp, connection.into());
        hands.shake().await?;
        let who = match &*hands.tls {
            Connection::Client(connection) => callee.judge(connection, &shown).map_err(io::Error::other)?,
            Connection::Server(_) => unreachable!("it was made as a client's"),
        };
        let welcome = callee.live().welcome(&who);
        Ok(hands.line(Some(who), welcome))
    }

    /// Shakes hands with a server that is to let this process join, and shows nothing before it is the one of this authority.
    pub(crate) async fn dial_inviter(tcp: TcpStream, pin: verify::Pin) -> io::Result<(Self, AuthorityCertificate)> {
        let joining = config::joining(pin, Arc::new(HostClock));
        let connection = ClientConnection::new(joining, dial_any()).map_err(io::Error::other)?;
        let mut hands = Hands::new(tcp, connection.into());
        hands.shake().await.map_err(of_inviter)?;
        let (who, authority) = match &*hands.tls {
            Connection::Client(connection) => {
                peer::inviter(connection, pin, UnixTime::now()).map_err(io::Error::other)?
            }
            Connection::Server(_) => unreachable!("it was made as a client's"),
        };
        Ok((hands.line(Some(who), None), authority))
    }

    /// Who is at the other end; nothing on a plain line, and for a joiner.
    pub(crate) fn who(&self) -> Option<&Identified> {
        self.secured.as_ref().and_then(|secured| secured.who.as_deref())
    }

    /// The connection itself, for its addresses and options.
    pub(crate) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The connection of a plain line.
    pub(crate) fn into_tcp(self) -> TcpStream {
        self.tcp
    }

    /// Takes the line from its runtime.
    pub(crate) fn part(self) -> io::Result<Parted> {
        Ok(Parted { tcp: self.tcp.into_std()?, secured: self.secured })
    }
}

impl Parted {
    /// The line again, on the runtime of the thread that asks.
    pub(crate) fn join(self) -> io::Result<Line> {
        Ok(Line { tcp: TcpStream::from_std(self.tcp)?, secured: self.secured })
    }
}

/// A server that does not know the authority that is expected has another one.
fn of_inviter(error: io::Error) -> io::Error {
    match Refusal::of_io(&error) {
        Some(Refusal::OtherThere) => io::Error::other(Refusal::OtherAuthority),
        _ => error,
    }
}

/// Two nodes that do not know each other yet.
struct Hands {
    tcp: TcpStream,
    tls: Box<Connection>,
}

impl Hands {
    fn new(tcp: TcpStream, mut tls: Connection) -> Self {
        tls.set_buffer_limit(Some(UNSENT_LEN_MAX));
        Self { tcp, tls: Box::new(tls) }
    }

    fn line(self, who: Option<Identified>, welcome: Option<Welcome>) -> Line {
        let arrived = BytesMut::new();
        Line { tcp: self.tcp, secured: Some(Secured { tls: self.tls, who: who.map(Box::new), welcome, arrived }) }
    }

    async fn shake(&mut self) -> io::Result<()> {
        std::future::poll_fn(|context| self.poll_shake(context)).await
    }

    fn poll_shake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(poll_send(&mut self.tls, &mut self.tcp, context))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            match ready!(poll_receive(&mut self.tls, &mut self.tcp, context)) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => {
                    // The other side hears why, in an alert.
                    _ = send_now(&mut self.tls, &self.tcp);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Ends it so that the other side hears what was said last.
    async fn refuse(mut self) {
        self.tls.send_close_notify();
        _ = send_now(&mut self.tls, &self.tcp);
        let ended = async {
            self.tcp.shutdown().await?;
            tokio::io::copy(&mut self.tcp.take(IGNORED_LEN_MAX), &mut tokio::io::sink()).await
        };
        _ = timeout(FAREWELL_TIME, ended).await;
    }
}

/// Sends what is encrypted, all of it.
fn poll_send(tls: &mut Connection, tcp: &mut TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
    send(tls, &mut Waiting { tcp, context })
}

/// Sends what the system takes now. Whoever waits to write on the same line goes on waiting: it is not disturbed.
fn send_now(tls: &mut Connection, tcp: &TcpStream) -> io::Result<()> {
    match send(tls, &mut Now(tcp)) {
        Poll::Ready(sent) => sent,
        Poll::Pending => Ok(()),
    }
}

fn send(tls: &mut Connection, socket: &mut dyn Write) -> Poll<io::Result<()>> {
    while tls.wants_write() {
        match tls.write_tls(socket) {
            Ok(0) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
    Poll::Ready(Ok(()))
}

/// Receives and decrypts some; 0 at the connection's end.
fn poll_receive(tls: &mut Connection, tcp: &mut TcpStream, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let len = match tls.read_tls(&mut Waiting { tcp, context }) {
        Ok(len) => len,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Poll::Pending,
        Err(error) => return Poll::Ready(Err(error)),
    };
    let understood = tls.process_new_packets().map(|_| len);
    Poll::Ready(understood.map_err(|error| io::Error::new(ErrorKind::InvalidData, error)))
}

impl Secured {
    /// Waits until there is something to decrypt, or the connection has ended.
    fn poll_arrive(&mut self, tcp: &mut TcpStream, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.arrived.is_empty() {
            return Poll::Ready(Ok(()));
        }
        ready!(tcp.poll_read_ready(context))?;
        self.arrived.reserve(RECEIVED_LEN_MAX);
        let read = pin!(tcp.read_buf(&mut self.arrived)).poll(context);
        self.release();
        read.map(|read| read.map(drop))
    }

    /// Decrypts some of what has arrived. If that is nothing, the connection has ended.
    fn understand(&mut self) -> io::Result<()> {
        let len = self.tls.read_tls(&mut &*self.arrived)?;
        self.arrived.advance(len);
        self.release();
        let understood = self.tls.process_new_packets();
        understood.map(drop).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Thousands of links that say nothing need no room to hear.
    fn release(&mut self) {
        if self.arrived.is_empty() {
            self.arrived = BytesMut::new();
        }
    }

    /// Takes as much of these pieces as there is room for, as few records. What the system takes now is sent.
    fn poll_say(
        &mut self,
        tcp: &mut TcpStream,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            let len = self.tls.writer().write_vectored(pieces)?;
            let sent = poll_send(&mut self.tls, tcp, context)?;
            if len > 0 || pieces.iter().all(|piece| piece.is_empty()) {
                return Poll::Ready(Ok(len));
            }
            ready!(sent);
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { tcp, secured } = self.get_mut();
        let Some(secured) = secured else { return Pin::new(tcp).poll_read(context, buffer) };
        if let Some(Poll::Ready(refusal)) = secured.welcome.as_mut().map(|welcome| welcome.poll_over(context)) {
            secured.welcome = None;
            return Poll::Ready(Err(io::Error::other(refusal)));
        }
        loop {
            match secured.tls.reader().read(buffer.initialize_unfilled()) {
                Ok(len) => {
                    buffer.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(secured.poll_arrive(tcp, context))?;
            let understood = secured.understand();
            // Keys may have been renewed, which wants an answer. It leaves with what is written next at the latest.
            _ = send_now(&mut secured.tls, tcp);
            understood?;
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(buffer)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { tcp, secured } = self.get_mut();
        match secured {
            Some(secured) => secured.poll_say(tcp, context, pieces),
            None => Pin::new(tcp).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { tcp, secured } = self.get_mut();
        match secured {
            Some(Secured { tls, .. }) => poll_send(tls, tcp, context),
            None => Pin::new(tcp).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { tcp, secured } = self.get_mut();
        if let Some(Secured { tls, .. }) = secured {
            tls.send_close_notify();
            ready!(poll_send(tls, tcp, context))?;
        }
        Pin::new(tcp).poll_shutdown(context)
    }
}

/// A socket as rustls wants it: it would block where a task would wait. The task is woken when it can go on.
struct Waiting<'a, 'b> {
    tcp: &'a mut TcpStream,
    context: &'a mut Context<'b>,
}

/// The same for one that does not wait.
struct Now<'a>(&'a TcpStream);

impl Read for Waiting<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut *self.tcp).poll_read(self.context, &mut buffer) {
            Poll::Ready(done) => done.map(|()| buffer.filled().len()),
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Waiting<'_, '_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buffer)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.tcp).poll_write_vectored(self.context, pieces) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Now<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.try_write(buffer)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
