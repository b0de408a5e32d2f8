//! Workers that say as much as they may, and more: anybody who reaches a server's port can be one.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use primus_core::farm::{Hello, Message};
use primus_core::ledger::{Attempt, Held, JobId, TaskId};
use primus_core::{ServerId, Term};
use primus_wire::frame;
use primus_wire::native::{self, Answer, WorkerHello};
use primus_wire::work::{self, FromWorker, Reader, ToWorker};

use super::loads::{Scene, is_silence, open};

/// Where such workers keep their data, they say.
const STORE: [u8; 16] = [9; 16];
/// How long the greeting may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a worker waits before it looks whether it is time to end.
const LOOK: Duration = Duration::from_millis(200);
/// A piece of a word that goes on, and how many of them are said: 60 MiB.
const PIECE_LEN: usize = 512 << 10;
const PIECES: usize = 120;
const GOES_ON: u8 = 1;
/// How many attempts a whole word gives back: four bytes each, a little less than a word may have.
const GIVEN_BACK: u64 = (15 << 20) / 4;

/// A link of such a worker, with what has arrived on it.
struct Link {
    stream: TcpStream,
    arrived: BytesMut,
}

/// Made once, and before the time counts.
static ENDLESS: LazyLock<Bytes> = LazyLock::new(endless);
static WHOLE: LazyLock<Bytes> = LazyLock::new(whole);

/// Makes all words that will be said.
pub(super) fn prepare() {
    LazyLock::force(&ENDLESS);
    LazyLock::force(&WHOLE);
}

/// A piece of a word that goes on.
fn endless() -> Bytes {
    let mut piece = BytesMut::new();
    let write = |buffer: &mut BytesMut| {
        buffer.put_u8(GOES_ON);
        buffer.put_bytes(b'x', PIECE_LEN);
    };
    frame::put(&mut piece, write).expect("a piece fits into a frame");
    piece.freeze()
}

/// A word that can be read: the worker gives back what it never had.
fn whole() -> Bytes {
    let held = Held { task: TaskId { job: JobId(1), index: 1 }, attempt: Attempt { term: Term(1), sequence: 1 } };
    let mut word = BytesMut::new();
    let given = vec![held; usize::try_from(GIVEN_BACK).unwrap_or(0)];
    work::put(&mut word, &FromWorker::Farm(Message::GaveBack(given)));
    word.freeze()
}

/// Calls the leader again and again. One of three says a word without end at once, one when it has been welcomed, and one says
/// whole words.
pub(super) fn work(scene: &Scene<'_>, client: usize) {
    while scene.goes_on() {
        let said = Link::greet(scene, &format!("fat{client}")).and_then(|mut link| {
            if !client.is_multiple_of(3) {
                link.introduce(&format!("fat{client}"))?;
            }
            let (word, times) = if client % 3 == 2 { (&WHOLE, usize::MAX) } else { (&ENDLESS, PIECES) };
            say(scene, &mut link.stream, word, times)
        });
        if let Err(error) = said {
            scene.went_wrong(&error.to_string());
        }
    }
}

/// Says this as often, until the server hangs up or the time is over.
fn say(scene: &Scene<'_>, stream: &mut TcpStream, word: &[u8], times: usize) -> io::Result<()> {
    stream.set_write_timeout(Some(LOOK))?;
    for _ in 0..times {
        let mut left = word;
        while !left.is_empty() {
            match stream.write(left) {
                _ if !scene.goes_on() => return Ok(()),
                Ok(written) => left = &left[written..],
                Err(error) if is_silence(&error) => {}
                Err(_) => return Ok(()),
            }
        }
        scene.count();
    }
    Ok(())
}

impl Link {
    fn greet(scene: &Scene<'_>, name: &str) -> io::Result<Self> {
        let (leader, address) = scene.leader;
        let mut link = Self { stream: open(address)?, arrived: BytesMut::new() };
        link.stream.set_read_timeout(Some(LOOK))?;
        link.stream.set_write_timeout(Some(PATIENCE))?;
        let hello = WorkerHello::new(scene.farm.to_owned(), name.to_owned(), ServerId(leader), STORE);
        let mut said = BytesMut::new();
        native::put(&mut said, &hello).map_err(io::Error::other)?;
        link.stream.write_all(&said)?;
        match link.hear(|arrived| native::take(arrived).map_err(io::Error::other))? {
            Answer::Refused(why) | Answer::Barred(why) => Err(io::Error::other(why)),
            Answer::Welcome(_) | Answer::Admitted => Ok(link),
        }
    }

    /// Introduces itself to the foreman, and waits until it is known.
    fn introduce(&mut self, name: &str) -> io::Result<()> {
        let (held, ended) = (Vec::new(), Vec::new());
        let hello = Hello { name: name.to_owned(), term: Term(0), slots: 0, loan: None, held, ended };
        let mut said = BytesMut::new();
        work::put(&mut said, &FromWorker::Farm(Message::Hello(hello)));
        self.stream.write_all(&said)?;
        let mut reader = Reader::default();
        self.hear(|arrived| {
            loop {
                match reader.take(arrived).map_err(io::Error::other)? {
                    Some(ToWorker::Farm(Message::Welcome(_))) => return Ok(Some(())),
                    Some(_) => {}
                    None => return Ok(None),
                }
            }
        })
    }

    /// Reads until this finds what it looks for.
    fn hear<T>(&mut self, mut look: impl FnMut(&mut BytesMut) -> io::Result<Option<T>>) -> io::Result<T> {
        let mut buffer = [0; 16 << 10];
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(found) = look(&mut self.arrived)? {
                return Ok(found);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.arrived.extend_from_slice(&buffer[..len]),
                Err(error) if is_silence(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}
