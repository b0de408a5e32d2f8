//! Somebody who knows the protocol and nothing else: it greets a port as whatever it likes to be, and says what it likes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::BytesMut;
use primus_core::ServerId;
use primus_core::farm;
use primus_core::founding::ClusterId;
use primus_wire::native::{self, Answer, FarmHello, Hello, Purpose, WorkerHello};
use primus_wire::work::{self, FromWorker, Reader, ToWorker};
use serde::Serialize;

use super::eventually;

/// How long a stranger waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A link of a stranger, and what it was answered.
pub(crate) struct Stranger {
    pub(crate) stream: TcpStream,
    pub(crate) answer: Answer,
    arrived: BytesMut,
    reader: Reader,
}

impl Stranger {
    /// Greets; nothing if it is not even answered.
    fn greet(address: SocketAddr, hello: &impl Serialize) -> io::Result<Self> {
        let mut stream = eventually("a connection", || TcpStream::connect(address).ok());
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (mut said, mut arrived) = (BytesMut::new(), BytesMut::new());
        native::put(&mut said, hello).map_err(io::Error::other)?;
        stream.write_all(&said)?;
        let answer = loop {
            if let Some(answer) = native::take(&mut arrived).map_err(io::Error::other)? {
                break answer;
            }
            more(&mut stream, &mut arrived)?;
        };
        Ok(Self { stream, answer, arrived, reader: Reader::default() })
    }

    /// As a server that names its cluster, which no stranger can know.
    pub(crate) fn as_member(
        address: SocketAddr,
        (farm, cluster): (&str, ClusterId),
        (own, to): (u64, u64),
        store: [u8; 16],
    ) -> Self {
        let hello = Hello::new(farm.to_owned(), ServerId(own), ServerId(to), store, 7).of(Some(cluster));
        Self::greet(address, &hello).expect("it answers")
    }

    /// As a server that wants to ask, instead of speaking for its control part.
    pub(crate) fn as_asker(
        address: SocketAddr,
        (own, to): (u64, u64),
        store: [u8; 16],
        (cluster, purpose): (&str, Purpose),
    ) -> Self {
        let hello = Hello::new(cluster.to_owned(), ServerId(own), ServerId(to), store, 7).with_purpose(purpose);
        Self::greet(address, &hello).expect("it answers")
    }

    pub(crate) fn as_worker(address: SocketAddr, cluster: &str, name: &str, to: u64, store: [u8; 16]) -> Self {
        let hello = WorkerHello::new(cluster.to_owned(), name.to_owned(), ServerId(to), store);
        Self::greet(address, &hello).expect("it answers")
    }

    pub(crate) fn as_farm(address: SocketAddr, farm: &str, to: &str, server: u64, store: [u8; 16]) -> Self {
        let hello = FarmHello::new(farm.to_owned(), to.to_owned(), ServerId(server), store);
        Self::greet(address, &hello).expect("it answers")
    }

    /// Says this as a frame of servers. False if the link is closed.
    pub(crate) fn say(&mut self, message: &impl Serialize) -> bool {
        let mut said = BytesMut::new();
        native::put(&mut said, message).expect("it fits into a frame");
        self.stream.write_all(&said).is_ok()
    }

    /// Says this as a word of workers and farms. False if the link is closed.
    pub(crate) fn say_word(&mut self, word: &impl Serialize) -> bool {
        let mut said = BytesMut::new();
        work::put(&mut said, word);
        self.stream.write_all(&said).is_ok()
    }

    /// Introduces itself to the foreman, with all this.
    pub(crate) fn introduce(&mut self, hello: farm::Hello) -> bool {
        self.say_word(&FromWorker::Farm(farm::Message::Hello(hello)))
    }

    /// What a server says to a worker; nothing if it ends the link or has nothing to say.
    pub(crate) fn hear(&mut self) -> Option<ToWorker> {
        loop {
            if let Some(word) = self.reader.take(&mut self.arrived).expect("servers say what can be read") {
                return Some(word);
            }
            more(&mut self.stream, &mut self.arrived).ok()?;
        }
    }

    /// Waits for the end of the link.
    pub(crate) fn await_end(&mut self) {
        eventually("the end of a link", || match self.stream.read(&mut [0; 4096]) {
            Ok(0) => Some(()),
            Ok(_) => None,
            Err(error) => (!matches!(error.kind(), io::ErrorKind::WouldBlock)).then_some(()),
        });
    }
}

fn more(stream: &mut TcpStream, arrived: &mut BytesMut) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    match stream.read(&mut buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => {
            arrived.extend_from_slice(&buffer[..count]);
            Ok(())
        }
    }
}
