//! What primus servers say to each other in frames: first who they are, then messages. Workers introduce themselves at the
//! same door, in a similar way, and so do the leaders of other farms; what they say then is in [`crate::work`].

use bytes::{BufMut, Bytes, BytesMut};
use postcard::ser_flavors::Flavor;
use primus_core::ServerId;
use primus_core::ledger::loans::home_of;
use primus_core::names::{NAME_LEN_MAX, is_name};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::frame::{self, FrameError};

/// The version of this protocol. Servers of different versions do not talk.
pub const PROTOCOL: u32 = 9;
/// How a link of control begins, so that a stranger is known by its first bytes.
const MAGIC: [u8; 8] = *b"primus\0\x01";
/// How a worker's link begins.
const WORKER_MAGIC: [u8; 8] = *b"primus\0\x02";

/// Why a farm is not listened to.
const NAMELESS: &str = "a farm's name has letters, digits, ., - and _, a letter or a digit first";

/// How a link of another farm begins.
const FARM_MAGIC: [u8; 8] = *b"primus\0\x03";

/// How a link for questions begins.
const QUESTIONS_MAGIC: [u8; 8] = *b"primus\0\x04";
/// How a link for requests begins.
const REQUESTS_MAGIC: [u8; 8] = *b"primus\0\x05";

/// What a server wants a link for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// What control parts say to each other.
    Control,
    /// Questions for the leader that fit into a frame, and the answers to them.
    Questions,
    /// Requests for the leader, in HTTP: of any length, and with answers that may come late.
    Requests,
}

/// Who is at the other end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    magic: [u8; 8],
    /// The protocol that it speaks.
    pub protocol: u32,
    /// The cluster that it belongs to.
    pub cluster: String,
    /// Which server it is.
    pub server: ServerId,
    /// Which server it wants to talk to.
    pub to: ServerId,
    /// Its disk.
    pub store: [u8; 16],
    /// Its process.
    pub incarnation: u64,
}

/// A worker at the other end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerHello {
    magic: [u8; 8],
    /// The protocol that it speaks.
    pub protocol: u32,
    /// The cluster that it works for.
    pub cluster: String,
    /// Its name.
    pub name: String,
    /// Which server it wants to talk to.
    pub to: ServerId,
    /// Its disk.
    pub store: [u8; 16],
}

/// A server of another farm at the other end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarmHello {
    magic: [u8; 8],
    /// The protocol that it speaks.
    pub protocol: u32,
    /// The farm that it belongs to.
    pub farm: String,
    /// Which farm it wants to talk to.
    pub to: String,
    /// Which server of its farm it is.
    pub server: ServerId,
    /// Its disk.
    pub store: [u8; 16],
}

/// Whoever calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Greeting {
    /// A server.
    Server(Hello),
    /// A worker.
    Worker(WorkerHello),
    /// A server of another farm.
    Farm(FarmHello),
}

/// The answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To a server: go on.
    Welcome(Hello),
    /// Go away, for this reason.
    Refused(String),
    /// To a worker, or to a server of another farm: go on. It is not told which disk this server has: peers know each other
    /// by their disks, so nobody else may know them.
    Admitted,
}

/// What travels on a link once both know each other. A message that carries more than fits into a frame (a whole state, for
/// one that is far behind) sends its cargo ahead in pieces, between which other messages find room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parcel<T> {
    /// A message that is whole.
    Message(T),
    /// A piece of the cargo of the next laden message.
    Piece(Bytes),
    /// A message whose cargo is everything that came in pieces since the last one.
    Laden(T),
}

/// No piece is longer, so that nothing urgent waits long behind one.
pub const PIECE_LEN_MAX: usize = 128 << 10;
/// No cargo is longer.
pub const CARGO_LEN_MAX: usize = 2 << 30;

/// Why bytes were not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotUnderstood {
    /// It is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It is no message.
    #[error("a frame that is not a message of protocol {PROTOCOL}")]
    Message,
}

impl Hello {
    /// A hello in the present protocol, for a link of control.
    #[must_use]
    pub const fn new(cluster: String, server: ServerId, to: ServerId, store: [u8; 16], incarnation: u64) -> Self {
        Self { magic: MAGIC, protocol: PROTOCOL, cluster, server, to, store, incarnation }
    }

    /// The same for another kind of link.
    #[must_use]
    pub fn with_purpose(self, purpose: Purpose) -> Self {
        let magic = match purpose {
            Purpose::Control => MAGIC,
            Purpose::Questions => QUESTIONS_MAGIC,
            Purpose::Requests => REQUESTS_MAGIC,
        };
        Self { magic, ..self }
    }

    /// What the link is for; nothing if this is not a link of servers.
    #[must_use]
    pub const fn purpose(&self) -> Option<Purpose> {
        match self.magic {
            MAGIC => Some(Purpose::Control),
            QUESTIONS_MAGIC => Some(Purpose::Questions),
            REQUESTS_MAGIC => Some(Purpose::Requests),
            _ => None,
        }
    }

    /// Why a server `me` of `cluster` would not talk to whoever says this; nothing if it would.
    #[must_use]
    pub fn objection(&self, cluster: &str, me: ServerId) -> Option<String> {
        if self.purpose().is_none() {
            return Some("this is a link of primus servers".to_owned());
        }
        let objection = objection_to(self.protocol, &self.cluster, self.to, cluster, me);
        let twins = || format!("two servers have the id {me}: give each its own");
        objection.or_else(|| (self.server == me).then(twins))
    }
}

impl WorkerHello {
    /// A hello in the present protocol.
    #[must_use]
    pub const fn new(cluster: String, name: String, to: ServerId, store: [u8; 16]) -> Self {
        Self { magic: WORKER_MAGIC, protocol: PROTOCOL, cluster, name, to, store }
    }

    /// Why a server `me` of `cluster` would not talk to whoever says this; nothing if it would.
    #[must_use]
    pub fn objection(&self, cluster: &str, me: ServerId) -> Option<String> {
        // A borrowed worker's name has that of its own farm in it.
        let (name, home) = home_of(&self.name).unwrap_or((&self.name, "home"));
        let nameless = || {
            format!(
                "a worker's name has 1 to {NAME_LEN_MAX} letters, digits, ., - and _, a letter or a digit first"
            )
        };
        let objection = objection_to(self.protocol, &self.cluster, self.to, cluster, me);
        objection.or_else(|| (!is_name(name) || !is_name(home)).then(nameless))
    }
}

impl FarmHello {
    /// A hello in the present protocol.
    #[must_use]
    pub const fn new(farm: String, to: String, server: ServerId, store: [u8; 16]) -> Self {
        Self { magic: FARM_MAGIC, protocol: PROTOCOL, farm, to, server, store }
    }

    /// Why a server of `farm` would not talk to whoever says this; nothing if it would. Whether that is a neighbour is for
    /// others to say.
    #[must_use]
    pub fn objection(&self, farm: &str) -> Option<String> {
        if self.protocol != PROTOCOL {
            return Some(other_protocol(self.protocol));
        }
        if self.to != farm {
            let meant = called(&self.to);
            return Some(format!("farm '{farm}' here, {meant} was meant: check the addresses of the neighbours"));
        }
        if !is_name(&self.farm) {
            return Some(NAMELESS.to_owned());
        }
        (self.farm == farm).then(|| format!("two farms are called '{farm}': give each a name of its own"))
    }
}

impl Greeting {
    /// Takes the greeting out of what has arrived, if it is there already.
    ///
    /// # Errors
    /// If what comes can never be one.
    pub fn take(arrived: &mut BytesMut) -> Result<Option<Self>, NotUnderstood> {
        let Some(frame) = frame::take(arrived)? else { return Ok(None) };
        let greeting = match frame.first_chunk() {
            Some(&WORKER_MAGIC) => parse(&frame).map(Self::Worker),
            Some(&FARM_MAGIC) => parse(&frame).map(Self::Farm),
            _ => parse(&frame).map(Self::Server),
        };
        greeting.map(Some)
    }
}

fn objection_to(protocol: u32, theirs: &str, to: ServerId, cluster: &str, me: ServerId) -> Option<String> {
    if protocol != PROTOCOL {
        return Some(other_protocol(protocol));
    }
    if theirs != cluster {
        let there = called(theirs);
        return Some(format!("cluster '{cluster}' here, {there} there: check the addresses of the peers"));
    }
    (to != me).then(|| format!("server {me} here, server {to} was meant: check the addresses of the peers"))
}

/// How a caller names itself, if that can be repeated.
fn called(name: &str) -> String {
    if is_name(name) { format!("'{name}'") } else { "something else".to_owned() }
}

fn other_protocol(protocol: u32) -> String {
    format!("protocol {PROTOCOL} here, {protocol} there: run the same version on both")
}

/// Appends a message as a frame.
///
/// # Errors
/// If it is too long for one.
pub fn put<T: Serialize>(buffer: &mut BytesMut, message: &T) -> Result<(), FrameError> {
    frame::put(buffer, |buffer| {
        postcard::serialize_with_flavor(message, Appended(buffer)).expect("every message can be written");
    })
}

/// Appends to a buffer that is there already: a long message is not copied once more, into memory that is new each time.
struct Appended<'a>(&'a mut BytesMut);

impl Flavor for Appended<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.put_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.put_u8(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Takes the next whole message out of what has arrived, if there is one.
///
/// # Errors
/// If what comes next can never be one.
pub fn take<T: DeserializeOwned>(arrived: &mut BytesMut) -> Result<Option<T>, NotUnderstood> {
    frame::take(arrived)?.map(|frame| parse(&frame)).transpose()
}

/// A whole frame must be one message, with nothing left over.
fn parse<T: DeserializeOwned>(frame: &Bytes) -> Result<T, NotUnderstood> {
    match postcard::take_from_bytes(frame) {
        Ok((message, [])) => Ok(message),
        _ => Err(NotUnderstood::Message),
    }
}

#[cfg(test)]
mod tests {
    use primus_core::election::bully;
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        Hello::new("north".to_owned(), ServerId(1), ServerId(2), [7; 16], 42)
    }

    #[test]
    fn a_hello_comes_out_as_it_went_in() {
        let mut buffer = BytesMut::new();
        put(&mut buffer, &Answer::Admitted).unwrap();
        assert_eq!(take(&mut buffer), Ok(Some(Answer::Admitted)));
        put(&mut buffer, &Answer::Welcome(hello())).unwrap();
        assert_eq!(take(&mut buffer), Ok(Some(Answer::Welcome(hello()))));
        assert_eq!(take::<Answer>(&mut buffer), Ok(None));
    }

    #[test]
    fn a_stranger_is_refused_with_a_reason() {
        let objection = |change: fn(&mut Hello)| {
            let mut hello = hello();
            change(&mut hello);
            hello.objection("north", ServerId(2))
        };
        assert_eq!(objection(|_| {}), None);
        assert!(objection(|hello| hello.cluster = "south".to_owned()).unwrap().contains("'south'"));
        assert!(objection(|hello| hello.protocol = 9).unwrap().contains("protocol"));
        assert!(objection(|hello| hello.to = ServerId(3)).unwrap().contains("server 3 was meant"));
        assert!(objection(|hello| hello.server = ServerId(2)).unwrap().contains("two servers"));
        assert!(objection(|hello| hello.magic = [0; 8]).is_some());
    }

    #[test]
    fn a_hello_says_what_its_link_is_for() {
        for purpose in [Purpose::Control, Purpose::Questions, Purpose::Requests] {
            let mut buffer = BytesMut::new();
            put(&mut buffer, &hello().with_purpose(purpose)).unwrap();
            let Ok(Some(Greeting::Server(hello))) = Greeting::take(&mut buffer) else { panic!("a server greets") };
            assert_eq!((hello.purpose(), hello.objection("north", ServerId(2))), (Some(purpose), None));
        }
    }

    #[test]
    fn workers_and_servers_are_told_apart_and_strange_workers_refused() {
        let worker = WorkerHello::new("north".to_owned(), "w1".to_owned(), ServerId(2), [7; 16]);
        let mut buffer = BytesMut::new();
        put(&mut buffer, &worker).unwrap();
        put(&mut buffer, &hello()).unwrap();
        assert_eq!(Greeting::take(&mut buffer), Ok(Some(Greeting::Worker(worker.clone()))));
        assert_eq!(Greeting::take(&mut buffer), Ok(Some(Greeting::Server(hello()))));
        assert_eq!(Greeting::take(&mut buffer), Ok(None));
        assert_eq!(worker.objection("north", ServerId(2)), None);
        assert!(worker.objection("south", ServerId(2)).unwrap().contains("'north'"));
        assert!(worker.objection("north", ServerId(3)).unwrap().contains("server 2 was meant"));
        for name in ["", "a\nb", "w 1", "\x1b[31m", "../w"] {
            let nameless = WorkerHello { name: name.to_owned(), ..worker.clone() };
            assert!(nameless.objection("north", ServerId(2)).unwrap().contains("name"), "{name:?}");
        }
    }

    #[test]
    fn what_strangers_call_themselves_is_not_repeated() {
        let forged = "x\n2026-11-16T00:00:00.000Z info 3: leader 9 term 99 operator, forged";
        let server = Hello { cluster: forged.to_owned(), ..hello() }.objection("north", ServerId(2));
        let worker = WorkerHello::new(forged.to_owned(), "w1".to_owned(), ServerId(2), [7; 16]);
        let farm = |farm: &str, to: &str| FarmHello::new(farm.to_owned(), to.to_owned(), ServerId(1), [7; 16]);
        for objection in [
            server,
            worker.objection("north", ServerId(2)),
            farm(forged, "north").objection("north"),
            farm("south", forged).objection("north"),
        ] {
            assert!(objection.is_some_and(|reason| !reason.contains("forged")));
        }
    }

    #[test]
    fn a_borrowed_worker_has_two_names() {
        let objection = |name: String| {
            let hello = WorkerHello::new("south".to_owned(), name, ServerId(2), [7; 16]);
            hello.objection("south", ServerId(2))
        };
        let long = "n".repeat(NAME_LEN_MAX);
        assert_eq!(objection(format!("{long}@{long}")), None);
        assert!(objection(format!("{long}n")).unwrap().contains("name"));
        assert!(objection("w1@".to_owned()).unwrap().contains("name"));
    }

    #[test]
    fn other_farms_are_told_apart_and_refused_if_they_mean_somebody_else() {
        let hello = FarmHello::new("south".to_owned(), "north".to_owned(), ServerId(1), [7; 16]);
        let mut buffer = BytesMut::new();
        put(&mut buffer, &hello).unwrap();
        assert_eq!(Greeting::take(&mut buffer), Ok(Some(Greeting::Farm(hello.clone()))));
        assert_eq!(hello.objection("north"), None);
        assert!(hello.objection("west").unwrap().contains("'north' was meant"));
        let twin = FarmHello { farm: "north".to_owned(), ..hello.clone() };
        assert!(twin.objection("north").unwrap().contains("two farms"));
        let older = FarmHello { protocol: 3, ..hello };
        assert!(older.objection("north").unwrap().contains("protocol"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut framed = BytesMut::new();
            frame::put(&mut framed, |buffer| buffer.put_slice(&bytes)).unwrap();
            _ = take::<Answer>(&mut framed.clone());
            _ = Greeting::take(&mut framed.clone());
            _ = take::<bully::Message>(&mut framed);
        }
    }
}
