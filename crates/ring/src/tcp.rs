//! A ring without a broker: every member listens on a socket of its own, and whoever has something to say to it dials.
//!
//! Links go one way, as in the ring: what one has dialled one writes to, what one has accepted one reads. A member is there
//! if it can be dialled. On the loopback address only.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::BytesMut;
use primus_core::ServerId;
use primus_core::election::ring::Message;
use primus_wire::native;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::member::{Arrival, Carrier, Cut};

/// So many messages wait to be read; whoever sends more waits, too.
const ARRIVALS_MAX: usize = 1024;
const READ_LEN: usize = 4096;

/// Where the members of a ring listen.
pub type Addresses = Arc<BTreeMap<ServerId, SocketAddr>>;

/// Messages between sockets.
#[derive(Debug)]
pub struct TcpCarrier {
    id: ServerId,
    addresses: Addresses,
    dialled: BTreeMap<ServerId, TcpStream>,
    arrivals: mpsc::Receiver<(ServerId, Message)>,
    /// Accepts and reads; ends with the carrier.
    _listening: JoinSet<()>,
}

/// A socket for a member to be; its address is known before anybody dials.
///
/// # Errors
/// If the system gives none.
pub async fn listen() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}

impl TcpCarrier {
    /// What is said to this listener is for this member.
    #[must_use]
    pub fn new(id: ServerId, listener: TcpListener, addresses: Addresses) -> Self {
        let (sender, arrivals) = mpsc::channel(ARRIVALS_MAX);
        let known = addresses.keys().copied().collect();
        let mut listening = JoinSet::new();
        listening.spawn(accept(listener, sender, known));
        Self { id, addresses, dialled: BTreeMap::new(), arrivals, _listening: listening }
    }

    /// An open link to this member, dialled if need be.
    async fn link(&mut self, peer: ServerId) -> Option<&mut TcpStream> {
        if self.dialled.get(&peer).is_some_and(is_closed) {
            self.dialled.remove(&peer);
        }
        if !self.dialled.contains_key(&peer) {
            let link = TcpStream::connect(self.addresses.get(&peer)?).await.ok()?;
            link.set_nodelay(true).ok()?;
            // A port that nobody listens on any more can be dialled from that very port.
            if link.local_addr().ok() == link.peer_addr().ok() {
                return None;
            }
            self.dialled.insert(peer, link);
        }
        self.dialled.get_mut(&peer)
    }
}

/// Nobody writes on a link that was dialled here: whatever can be read is its end.
fn is_closed(link: &TcpStream) -> bool {
    !matches!(link.try_read(&mut [0; 1]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

async fn accept(listener: TcpListener, arrivals: mpsc::Sender<(ServerId, Message)>, known: Vec<ServerId>) {
    let known = Arc::new(known);
    let mut reading = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while reading.try_join_next().is_some() {}
        reading.spawn(read(stream, arrivals.clone(), Arc::clone(&known)));
    }
}

/// Reads until the other side closes, or says something that no member says.
async fn read(mut stream: TcpStream, arrivals: mpsc::Sender<(ServerId, Message)>, known: Arc<Vec<ServerId>>) {
    let mut arrived = BytesMut::with_capacity(READ_LEN);
    while stream.read_buf(&mut arrived).await.is_ok_and(|count| count > 0) {
        loop {
            match native::take::<(ServerId, Message)>(&mut arrived) {
                Ok(Some((from, message))) if known.contains(&from) => {
                    if arrivals.send((from, message)).await.is_err() {
                        return;
                    }
                }
                Ok(Some(_)) | Err(_) => return,
                Ok(None) => break,
            }
        }
    }
}

impl Carrier for TcpCarrier {
    type Receipt = ();

    async fn receive(&mut self) -> Result<Arrival<()>, Cut> {
        match self.arrivals.recv().await {
            Some((from, message)) => Ok(Arrival::Message(from, message, ())),
            None => Err(Cut("the socket is closed".to_owned())),
        }
    }

    async fn settle(&mut self, (): ()) -> Result<(), Cut> {
        Ok(())
    }

    async fn is_there(&mut self, peer: ServerId) -> Result<bool, Cut> {
        Ok(self.link(peer).await.is_some())
    }

    async fn send(&mut self, to: ServerId, message: &Message) -> Result<(), Cut> {
        let mut frame = BytesMut::new();
        native::put(&mut frame, &(self.id, *message)).map_err(|error| Cut(error.to_string()))?;
        // Whoever is not there gets nothing; the loop has looked a moment ago, and the next look tells the machine.
        if let Some(link) = self.link(to).await
            && link.write_all(&frame).await.is_err()
        {
            self.dialled.remove(&to);
        }
        Ok(())
    }

    /// A socket of one's own that is closed cannot be mended.
    async fn mend(&mut self) {
        std::future::pending::<()>().await;
    }
}
