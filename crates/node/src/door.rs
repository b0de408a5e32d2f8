//! The thread at the door: it accepts connections, shakes hands, and hears who calls. Control's thread has nothing to do with
//! those who are not known yet, and shakes no hands: what a handshake computes would make heartbeats late.
//!
//! It lasts as long as the runtime that opened it. When that ends, nothing listens at the port any more.

use std::future::{Future, pending};
use std::io;
use std::thread::{self, JoinHandle};

use primus_identity::refusal::Refusal;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::credentials::{Callee, Security};
use crate::dialling::shake_hands;
use crate::invitations::Joiners;
use crate::line::{Accepted, Line, Parted};
use crate::unidentified::Unidentified;

/// How a caller begins that speaks TLS.
const HANDSHAKE: [u8; 2] = [22, 3];

/// Where work for the thread goes.
#[derive(Debug)]
pub(crate) struct Door {
    thread: Handle,
    handshakes: Unidentified,
    joiners: Joiners,
}

/// Ends the thread, and waits until it has ended.
struct Guard {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It has no panics of its own: each task keeps its own.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Door {
    /// Opens a door, for as long as the present runtime lasts. Those who ask to join go there.
    ///
    /// # Panics
    /// If the system gives no thread.
    pub(crate) fn open(joiners: Joiners) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = move || {
            // Nothing is sent: the other end is dropped.
            _ = runtime.block_on(stopped);
        };
        let thread =
            thread::Builder::new().name("door".to_owned()).spawn(running).expect("the system gives a thread");
        let guard = Guard { stop: Some(stop), thread: Some(thread) };
        tokio::spawn(async move {
            let _guard = guard;
            pending::<()>().await;
        });
        Self { thread: handle, handshakes: Unidentified::handshakes(), joiners }
    }

    /// Has the thread do this.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.thread.spawn(task);
    }

    /// Shakes hands with a caller, on this thread. Nothing is there if the caller is not heard any further, or only by those who
    /// let others join.
    ///
    /// # Errors
    /// Why the caller was refused.
    pub(crate) async fn receive(&self, tcp: TcpStream, security: &Security) -> Result<Option<Line>, Refusal> {
        let Security::Tls(own) = security else { return Ok(Some(Line::plain(tcp))) };
        // Those who say nothing wait elsewhere.
        if tcp.readable().await.is_err() {
            return Ok(None);
        }
        let mut place = self.handshakes.enter().await;
        tokio::select! {
            shaken = Line::accept(tcp, own) => match shaken {
                Ok(Accepted::Node(line)) => Ok(Some(line)),
                Ok(Accepted::Joiner(line)) => {
                    self.joiners.hear(line);
                    Ok(None)
                }
                Err(error) => Refusal::of_io(&error).map_or(Ok(None), Err),
            },
            () = place.lost() => Ok(None),
        }
    }

    /// Has the thread shake hands with a server that was dialled from another one.
    pub(crate) async fn shake_hands(&self, tcp: TcpStream, callee: Option<Callee>) -> io::Result<Line> {
        let Some(callee) = callee else { return Ok(Line::plain(tcp)) };
        let (done, shaken) = oneshot::channel();
        let parted = Line::plain(tcp).part()?;
        self.spawn(async move {
            // Nobody listens if the caller has ended.
            _ = done.send(shake_hands_with(parted, callee).await);
        });
        shaken.await.map_err(io::Error::other)??.join()
    }
}

/// Does a caller speak TLS to a server that does not?
pub(crate) fn is_handshake(arrived: &[u8], security: &Security) -> bool {
    matches!(security, Security::None) && arrived.starts_with(&HANDSHAKE)
}

async fn shake_hands_with(parted: Parted, callee: Callee) -> io::Result<Parted> {
    let tcp = parted.join()?.into_tcp();
    shake_hands(tcp, Some(callee)).await?.part()
}
