//! A connection between two nodes: plain TCP, or TLS on it, with who is at the other end.
//!
//! Unlike streams of other crates a line can move to the runtime of another thread ([`Line::part`]): the thread at the door
//! shakes hands, and the thread that the link is for reads what is said on it. The connection's end is an end, with or without a
//! farewell: a process that is killed sends none.
//!
//! What was written may wait inside a line until it is flushed. So [`tokio::io::AsyncWriteExt::flush`] follows every `write_all`.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use primus_core::ServerId;
use primus_identity::authority::AuthorityCertificate;
use primus_identity::rustls::{ClientConnection, Connection, ServerConnection};
use primus_identity::trust::Identified;
use primus_identity::verify::{self, HostClock};
use primus_identity::{UnixTime, config, name, peer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::credentials::{Callee, Tls};

/// How much text may wait to be encrypted and sent. A line that is full takes no more until some of it has left.
const UNSENT_LEN_MAX: usize = 256 << 10;
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
    /// Who is at the other end, as its certificate proves.
    who: Box<Identified>,
}

impl Line {
    /// A plain line.
    pub(crate) const fn plain(tcp: TcpStream) -> Self {
        Self { tcp, secured: None }
    }

    /// Shakes hands with a node that has dialled. It hears why if it is refused.
    pub(crate) async fn accept(tcp: TcpStream, own: &Tls) -> io::Result<Self> {
        let connection = ServerConnection::new(own.accepting()).map_err(io::Error::other)?;
        let mut hands = Hands::new(tcp, connection.into());
        let shaken = hands.shake().await.and_then(|()| match &*hands.tls {
            Connection::Server(connection) => own.caller(connection).map_err(io::Error::other),
            Connection::Client(_) => unreachable!("it was made as a server's"),
        });
        match shaken {
            Ok(who) => Ok(hands.line(who)),
            Err(error) => {
                hands.refuse().await;
                Err(error)
            }
        }
    }

    /// Shakes hands with the node that was dialled.
    pub(crate) async fn dial(tcp: TcpStream, callee: &Callee) -> io::Result<Self> {
        let connection = ClientConnection::new(callee.config(), callee.name()).map_err(io::Error::other)?;
        let mut hands = Hands::new(tcp, connection.into());
        hands.shake().await?;
        let who = match &*hands.tls {
            Connection::Client(connection) => callee.judge(connection).map_err(io::Error::other)?,
            Connection::Server(_) => unreachable!("it was made as a client's"),
        };
        Ok(hands.line(who))
    }

    /// Shakes hands with a server as one who has no name yet, to see the authority of its farm. Nothing is said.
    pub(crate) async fn visit(
        tcp: TcpStream,
        expected: verify::Pin,
        server: ServerId,
    ) -> io::Result<(Identified, AuthorityCertificate)> {
        let config = config::joining(expected, Arc::new(HostClock));
        let connection = ClientConnection::new(config, name::dial(server)).map_err(io::Error::other)?;
        let mut hands = Hands::new(tcp, connection.into());
        hands.shake().await?;
        match &*hands.tls {
            Connection::Client(shown) => peer::inviter(shown, expected, UnixTime::now()).map_err(io::Error::other),
            Connection::Server(_) => unreachable!("it was made as a client's"),
        }
    }

    /// Who is at the other end; nothing on a plain line.
    pub(crate) fn who(&self) -> Option<&Identified> {
        self.secured.as_ref().map(|secured| &*secured.who)
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

    fn line(self, who: Identified) -> Line {
        Line { tcp: self.tcp, secured: Some(Secured { tls: self.tls, who: Box::new(who) }) }
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

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { tcp, secured } = self.get_mut();
        let Some(Secured { tls, .. }) = secured else { return Pin::new(tcp).poll_read(context, buffer) };
        loop {
            match tls.reader().read(buffer.initialize_unfilled()) {
                Ok(len) => {
                    buffer.advance(len);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            let received = ready!(poll_receive(tls, tcp, context));
            // Keys may have been renewed, which wants an answer. It leaves with what is written next at the latest.
            _ = send_now(tls, tcp);
            received?;
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let Self { tcp, secured } = self.get_mut();
        let Some(Secured { tls, .. }) = secured else { return Pin::new(tcp).poll_write(context, buffer) };
        loop {
            let len = tls.writer().write(buffer)?;
            let sent = poll_send(tls, tcp, context)?;
            if len > 0 || buffer.is_empty() {
                return Poll::Ready(Ok(len));
            }
            ready!(sent);
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.secured.is_none() {
            return Pin::new(&mut self.get_mut().tcp).poll_write_vectored(context, pieces);
        }
        let first = pieces.iter().find(|piece| !piece.is_empty()).map_or(&[][..], |piece| &**piece);
        self.poll_write(context, first)
    }

    fn is_write_vectored(&self) -> bool {
        self.secured.is_none()
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
