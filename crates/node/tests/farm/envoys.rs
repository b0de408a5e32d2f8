//! Who may say something on links between farms, and what becomes of those who talk nonsense there.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use primus_core::ledger::{LoanId, Why};
use primus_core::loan::{Beat, Content, LentWorker, Message};
use primus_core::{ServerId, Term};
use primus_node::events::Kind;
use primus_server::plan::Neighbour;
use primus_wire::native::{self, Answer, FarmHello};
use primus_wire::work::{self, FARM_WORD_LEN_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::stage::Farm;
use crate::common::{PATIENCE, eventually_async};

/// One server of north, which believes that east is its neighbour; nobody is there.
async fn north() -> (Farm, SocketAddr) {
    let mut north = Farm::of("north", 1);
    let nowhere = "127.0.0.1:9".parse().expect("an address");
    north.neighbours =
        vec![Neighbour { name: "east".to_owned(), servers: [(ServerId(1), nowhere)].into(), authority: None }];
    north.start_server(1).await;
    north.leader().await;
    let address = north.as_neighbour().servers[&ServerId(1)].number().expect("a number");
    (north, address)
}

/// Says hello. Gives back the link and what is answered.
async fn call(address: SocketAddr, hello: &FarmHello) -> (TcpStream, Answer) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let mut buffer = BytesMut::new();
    native::put(&mut buffer, hello).expect("a hello fits into a frame");
    stream.write_all(&buffer).await.expect("it reads");
    let mut arrived = BytesMut::new();
    loop {
        if let Some(answer) = native::take(&mut arrived).expect("an answer") {
            return (stream, answer);
        }
        let read = timeout(PATIENCE, stream.read_buf(&mut arrived)).await.expect("it answers in time");
        assert_ne!(read.expect("the link holds"), 0, "it answers before it closes the link");
    }
}

fn hello(farm: &str, to: &str, server: u64) -> FarmHello {
    FarmHello::new(farm.to_owned(), to.to_owned(), ServerId(server), [7; 16])
}

/// Says this as the leader of east; does the link end then?
async fn is_closed_after(address: SocketAddr, bytes: Bytes) -> bool {
    let (mut stream, answer) = call(address, &hello("east", "north", 1)).await;
    assert!(matches!(answer, Answer::Admitted), "{answer:?}");
    // It may be closed before all is said.
    _ = stream.write_all(&bytes).await;
    let ended = timeout(PATIENCE, stream.read(&mut [0; 64])).await;
    matches!(ended, Ok(Ok(0) | Err(_)))
}

fn as_bytes(message: &Message) -> Bytes {
    let mut buffer = BytesMut::new();
    work::put(&mut buffer, message);
    buffer.freeze()
}

async fn wait_for_event(farm: &Farm, what: &str, is_it: impl Fn(&Kind) -> bool) {
    let is_told = || farm.handle_of(1).history.after(0).iter().any(|event| is_it(&event.kind));
    eventually_async(what, async || is_told().then_some(())).await;
}

#[tokio::test]
async fn whoever_is_no_neighbour_is_refused() {
    let (north, address) = north().await;
    for (hello, words) in [
        (hello("west", "north", 1), "farm 'west' is not a neighbour of farm 'north'"),
        (hello("north", "north", 1), "two farms are called 'north'"),
        (hello("east", "west", 1), "farm 'north' here, 'west' was meant"),
        (hello("east", "north", 9), "farm 'east' has no server 9"),
    ] {
        let (_, answer) = call(address, &hello).await;
        assert!(matches!(&answer, Answer::Refused(reason) if reason.contains(words)), "{words}: {answer:?}");
    }
    wait_for_event(&north, "a refusal", |kind| matches!(kind, Kind::LinkRefused { .. })).await;
}

#[tokio::test]
async fn garbage_ends_a_link_and_nothing_else() {
    let (north, address) = north().await;
    let lent: Vec<LentWorker> = (1..=60_000).map(lending).collect();
    let endless = as_bytes(&Message { term: Term(1), content: Content::Beat(Beat { lent, ..Beat::default() }) });
    assert!(endless.len() > FARM_WORD_LEN_MAX);
    for garbage in [Bytes::from_static(&[0xFF; 64]), Bytes::from_static(&[0, 0, 0, 2, 0, 99]), endless] {
        assert!(is_closed_after(address, garbage).await);
    }
    let words = "closed a link from farm 'east'";
    let is_told = |kind: &Kind| matches!(kind, Kind::LinkRefused { reason, .. } if reason.starts_with(words));
    wait_for_event(&north, "the end of a link", is_told).await;
    // Whoever talks sense after that is heard.
    let (mut stream, _) = call(address, &hello("east", "north", 1)).await;
    let beat = Beat { borrowed: vec![LoanId(5)], ..Beat::default() };
    let bytes = as_bytes(&Message { term: Term(1), content: Content::Beat(beat) });
    stream.write_all(&bytes).await.expect("it reads");
    let is_told = |kind: &Kind| matches!(kind, Kind::LoanUnknown { farm, loan: 5 } if farm == "east");
    wait_for_event(&north, "a loan that there is not", is_told).await;
    let loans = north.farm().await.look_at_loans(|foreman, _| foreman.ledger().loans().is_empty()).await;
    assert_eq!(loans, Ok(true));
}

fn lending(loan: u64) -> LentWorker {
    let worker = "somebody with a long name".to_owned();
    LentWorker { loan: LoanId(loan), worker, for_ms: 1, why: Why::Asked, is_recalled: false }
}
