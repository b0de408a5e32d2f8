//! Lines over real sockets.

use std::net::Ipv4Addr;
use std::sync::Arc;

use primus_core::ServerId;
use primus_identity::UnixTime;
use primus_identity::authority::Authority;
use primus_identity::name::Name;
use primus_identity::refusal::Refusal;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::time::sleep;

use super::*;
use crate::credentials::Security;

const PATIENCE: Duration = Duration::from_secs(30);
const LEN: usize = 8 << 20;

fn authority() -> Authority {
    Authority::create("north", UnixTime::now()).unwrap()
}

fn server(authority: &Authority, id: u64) -> Security {
    Tls::of(authority, &Name::server("north", ServerId(id)).unwrap())
}

fn tls(security: &Security) -> Arc<Tls> {
    match security {
        Security::Tls(tls) => Arc::clone(tls),
        Security::None => panic!("it has a certificate"),
    }
}

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (dialled, listener.accept().await.unwrap().0)
}

/// Accepts a node.
async fn accept(tcp: TcpStream, own: &Tls) -> io::Result<Line> {
    match Line::accept(tcp, own).await? {
        Accepted::Node(line) => Ok(line),
        Accepted::Joiner(_) => panic!("it has a certificate"),
    }
}

/// What comes of it if server 1 of one authority dials server 2 of another one.
async fn meet(dials: &Authority, accepts: &Authority) -> (io::Result<Line>, io::Result<Line>) {
    let (dialled, accepted) = sockets().await;
    let (callee, own) = (server(dials, 1).towards("north", ServerId(2)).unwrap(), tls(&server(accepts, 2)));
    tokio::join!(Line::dial(dialled, &callee), accept(accepted, &own))
}

async fn pair() -> (Line, Line) {
    let north = authority();
    let (dialled, accepted) = meet(&north, &north).await;
    (dialled.unwrap(), accepted.unwrap())
}

fn bytes(seed: u8) -> Vec<u8> {
    (0..LEN).map(|place| (place.wrapping_mul(31) >> 3) as u8 ^ seed).collect()
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it ends in time")
}

#[tokio::test]
async fn both_know_who_is_there() {
    let (dialled, accepted) = pair().await;
    assert_eq!(dialled.who().unwrap().server_of("north"), Ok(ServerId(2)));
    assert_eq!(accepted.who().unwrap().server_of("north"), Ok(ServerId(1)));
    let plain = Line::plain(sockets().await.0);
    assert_eq!(plain.who(), None);
}

/// Each side writes much before it reads, on tasks of their own: neither waits for the other for ever.
#[tokio::test]
async fn much_is_said_in_both_directions_at_once() {
    let (dialled, accepted) = pair().await;
    let talk = |line: Line, seed: u8, expected: u8| {
        let (mut reading, mut writing) = tokio::io::split(line);
        let said = tokio::spawn(async move {
            writing.write_all(&bytes(seed)).await.unwrap();
            writing.flush().await.unwrap();
            writing
        });
        tokio::spawn(async move {
            let mut heard = vec![0; LEN];
            reading.read_exact(&mut heard).await.unwrap();
            assert!(heard == bytes(expected));
            said.await.unwrap()
        })
    };
    let (one, two) = (talk(dialled, 1, 2), talk(accepted, 2, 1));
    in_time(async { (one.await.unwrap(), two.await.unwrap()) }).await;
}

#[tokio::test]
async fn a_slow_reader_makes_the_writer_wait_and_loses_nothing() {
    let (mut dialled, mut accepted) = pair().await;
    let mut said = 0;
    let piece = vec![7; 64 << 10];
    let full = async {
        loop {
            said += dialled.write(&piece).await.unwrap();
        }
    };
    assert!(timeout(Duration::from_millis(500), full).await.is_err(), "it never waits");
    assert!(said > UNSENT_LEN_MAX, "{said}");
    let heard = tokio::spawn(async move {
        let (mut heard, mut buffer) = (0, vec![0; 1000]);
        loop {
            match accepted.read(&mut buffer).await.unwrap() {
                0 => return heard,
                len => heard += len,
            }
        }
    });
    in_time(dialled.shutdown()).await.unwrap();
    assert_eq!(in_time(heard).await.unwrap(), said);
}

/// A process that is killed says no farewell, and what it had said whole is heard.
#[tokio::test]
async fn the_end_of_the_connection_is_an_end() {
    for has_farewell in [true, false] {
        let (mut dialled, mut accepted) = pair().await;
        dialled.write_all(b"last").await.unwrap();
        dialled.flush().await.unwrap();
        if has_farewell {
            dialled.shutdown().await.unwrap();
        }
        drop(dialled);
        let mut heard = Vec::new();
        in_time(accepted.read_to_end(&mut heard)).await.unwrap();
        assert_eq!(heard, b"last");
        assert_eq!(in_time(accepted.read(&mut [0; 8])).await.unwrap(), 0);
    }
}

/// Whatever arrives before a cut in the middle of a record is the beginning of what was said.
#[tokio::test]
async fn a_line_that_is_cut_in_the_middle_brings_whole_records_and_its_end() {
    for len in [1000, 20_000, 100_000] {
        let ((left, mut middle), (mut other, right)) = (sockets().await, sockets().await);
        let north = authority();
        let (callee, own) = (server(&north, 1).towards("north", ServerId(2)).unwrap(), tls(&server(&north, 2)));
        let relay = tokio::spawn(async move {
            let ((mut hears, mut says), (mut back, mut forth)) = (middle.split(), other.split());
            let mut to_there = (&mut hears).take(len);
            let _: (io::Result<u64>, io::Result<u64>) = tokio::select! {
                done = tokio::io::copy(&mut to_there, &mut forth) => (done, Ok(0)),
                done = tokio::io::copy(&mut back, &mut says) => (Ok(0), done),
            };
        });
        let talk = async {
            let (dialled, accepted) = tokio::join!(Line::dial(left, &callee), accept(right, &own));
            // The shortest cut is in the middle of the handshake.
            let (Ok(mut dialled), Ok(mut accepted)) = (dialled, accepted) else { return Vec::new() };
            let said = tokio::spawn(async move { dialled.write_all(&bytes(1)).await });
            let mut heard = Vec::new();
            _ = accepted.read_to_end(&mut heard).await;
            _ = said.await;
            heard
        };
        let heard = in_time(talk).await;
        in_time(relay).await.unwrap();
        assert!(heard.len() < len as usize && bytes(1).starts_with(&heard), "{len}: {}", heard.len());
        assert_eq!(heard.is_empty(), len == 1000, "{len}");
    }
}

#[tokio::test]
async fn garbage_after_the_handshake_ends_the_line() {
    let (dialled, mut accepted) = pair().await;
    dialled.tcp.try_write(&[23, 3, 3, 0, 40].into_iter().chain([9; 40]).collect::<Vec<u8>>()).unwrap();
    let error = in_time(accepted.read(&mut [0; 8])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(Refusal::of_io(&error).is_some(), "{error}");
}

/// Waits until so many bytes lie in the system's buffer.
async fn await_bytes(line: &Line, len: usize) {
    let mut seen = vec![0; len];
    in_time(async { while line.tcp.peek(&mut seen).await.unwrap() < len {} }).await;
}

#[tokio::test]
async fn one_read_takes_what_has_arrived() {
    let (mut dialled, mut accepted) = pair().await;
    let said = vec![7; RECEIVED_LEN_MAX - 200];
    dialled.write_all(&said).await.unwrap();
    dialled.flush().await.unwrap();
    await_bytes(&accepted, said.len()).await;
    assert_eq!(in_time(accepted.read(&mut [0; 1])).await.unwrap(), 1);
    assert_eq!(accepted.tcp.try_read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut rest = vec![0; said.len() - 1];
    in_time(accepted.read_exact(&mut rest)).await.unwrap();
    assert!(rest == said[1..]);
    let Some(Secured { arrived, .. }) = &accepted.secured else { panic!("it is not plain") };
    assert_eq!(arrived.capacity(), 0, "a line that says nothing needs no memory");
}

#[tokio::test]
async fn pieces_that_are_written_together_are_one_record() {
    let (mut dialled, accepted) = pair().await;
    assert!(dialled.is_write_vectored());
    let pieces = [&b"head"[..], b"", b"and", b"body"].map(IoSlice::new);
    assert_eq!(dialled.write_vectored(&pieces).await.unwrap(), 11);
    dialled.flush().await.unwrap();
    let mut record = [0; 256];
    in_time(accepted.tcp.readable()).await.unwrap();
    let len = accepted.tcp.try_read(&mut record).unwrap();
    // What a record says of its length ends where the record ends.
    let [kind, _, _, high, low, ..] = record;
    assert_eq!((kind, usize::from(u16::from_be_bytes([high, low]))), (23, len - 5));
}

#[tokio::test]
async fn keys_are_renewed_and_nothing_is_lost() {
    let (mut dialled, mut accepted) = pair().await;
    for _ in 0..3 {
        let Some(Secured { tls, .. }) = &mut dialled.secured else { panic!("it is not plain") };
        match &mut **tls {
            Connection::Client(connection) => connection.refresh_traffic_keys().unwrap(),
            Connection::Server(_) => panic!("it has dialled"),
        }
        for (from, to) in [(true, b"there"), (false, b"back!")] {
            let (saying, hearing) =
                if from { (&mut dialled, &mut accepted) } else { (&mut accepted, &mut dialled) };
            saying.write_all(to).await.unwrap();
            saying.flush().await.unwrap();
            let mut heard = [0; 5];
            in_time(hearing.read_exact(&mut heard)).await.unwrap();
            assert_eq!(&heard, to);
        }
    }
}

#[tokio::test]
async fn each_side_hears_why_the_other_one_is_refused() {
    let (north, other) = (authority(), authority());
    let (dialled, accepted) = in_time(meet(&north, &other)).await;
    let refusal =
        |end: io::Result<Line>| Refusal::of_io(&end.expect_err("it is refused")).map(|refusal| refusal.code());
    assert_eq!((refusal(dialled), refusal(accepted)), (Some("other_there"), Some("other_expected")));
    // A worker's certificate is good for dialling, and a server answers under its own number only.
    let (dialled, accepted) = sockets().await;
    let (callee, own) = (server(&north, 1).towards("north", ServerId(3)).unwrap(), tls(&server(&north, 2)));
    let (dialled, accepted) =
        in_time(async { tokio::join!(Line::dial(dialled, &callee), accept(accepted, &own)) }).await;
    assert_eq!((refusal(dialled), refusal(accepted)), (Some("other_server"), Some("refused_there")));
}

#[tokio::test]
async fn a_plain_caller_hears_an_alert_and_nothing_else() {
    let (mut dialled, accepted) = sockets().await;
    let own = tls(&server(&authority(), 2));
    dialled.write_all(b"\0\0\0\x40primus\0\x01 and more than fits into the header of a record").await.unwrap();
    let heard = async {
        let mut heard = Vec::new();
        dialled.read_to_end(&mut heard).await.unwrap();
        drop(dialled);
        heard
    };
    let (refused, heard) = in_time(async { tokio::join!(accept(accepted, &own), heard) }).await;
    assert_eq!(Refusal::of_io(&refused.expect_err("it is plain")), Some(Refusal::Protocol));
    assert!(heard.len() <= 14 && heard.starts_with(&[21, 3]), "{heard:?}");
}

/// The thread at the door reads as much as it needs; the rest is heard where the line is used.
#[test]
fn a_line_moves_to_another_runtime_with_what_has_arrived() {
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let (door, inside) = (runtime(), runtime());
    let (mut dialled, accepted) = door.block_on(async {
        let (mut dialled, mut accepted) = pair().await;
        dialled.write_all(b"hello and more").await.unwrap();
        dialled.flush().await.unwrap();
        let mut hello = [0; 5];
        accepted.read_exact(&mut hello).await.unwrap();
        (dialled, accepted.part().unwrap())
    });
    std::thread::spawn(move || {
        inside.block_on(async {
            let mut line = accepted.join().unwrap();
            let mut rest = [0; 9];
            line.read_exact(&mut rest).await.unwrap();
            assert_eq!(&rest, b" and more");
            line.write_all(b"answer").await.unwrap();
            line.flush().await.unwrap();
            sleep(Duration::from_millis(1)).await;
        });
    })
    .join()
    .unwrap();
    let mut heard = Vec::new();
    door.block_on(async { in_time(dialled.read_to_end(&mut heard)).await.unwrap() });
    assert_eq!(heard, b"answer");
}
