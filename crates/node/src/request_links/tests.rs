//! Who may open a link for requests, how many, and what moves on it.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::founding::founded_with;
use crate::links::{Doors, Identity, Known, LinkEvent, Links};

const PATIENCE: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(50);

type Events = mpsc::Receiver<LinkEvent<primus_server::words::Words>>;

/// A server that knows one peer and its disk.
struct Side {
    links: Links<primus_server::words::Words>,
    _events: Events,
}

fn side(id: u64, listener: TcpListener, other: SocketAddr) -> Side {
    let identity =
        Identity { cluster: "test".to_owned(), server: ServerId(id), store: [id as u8; 16], incarnation: id };
    let peer = ServerId(3 - id);
    let doors = Doors {
        workers: mpsc::channel(1).0,
        envoys: mpsc::channel(1).0,
        neighbours: watch::channel(Arc::default()).1,
    };
    let claim = founded_with(ServerId(id), [1, 2].map(|id| (ServerId(id), [id as u8; 16])).into_iter());
    let known = Known { peers: BTreeMap::from([(peer, other.into())]), claim, security: Security::None };
    let cuts = watch::channel(LinkFaults::default()).0;
    let (links, events) = Links::start(identity, listener, known, doors, cuts, Arc::default());
    Side { links, _events: events }
}

async fn pair() -> (Side, Side) {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (first, second) = (bind().await.expect("a free port"), bind().await.expect("a free port"));
    let (at, there) = (first.local_addr().expect("it is bound"), second.local_addr().expect("it is bound"));
    (side(1, first, there), side(2, second, at))
}

async fn call(from: &Side, calls: &mut mpsc::Receiver<CallingServer>) -> (PeerStream, PeerStream) {
    let dialled = from.links.requests.dial(ServerId(2), Purpose::Requests).await.expect("it is let in");
    let caller = timeout(PATIENCE, calls.recv()).await.expect("it is passed on in time").expect("it is served");
    assert_eq!(caller.from, ServerId(1));
    (dialled, caller.open(PATIENCE).expect("it is open"))
}

#[tokio::test]
async fn nothing_moves_while_the_link_is_cut_and_nothing_is_lost() {
    let (one, two) = pair().await;
    let mut calls = two.links.requests.serve(Purpose::Requests);
    let (mut asks, mut answers) = call(&one, &mut calls).await;
    let mut heard = [0; 5];
    asks.write_all(b"first").await.expect("it is written");
    answers.read_exact(&mut heard).await.expect("it arrives");
    assert_eq!(&heard, b"first");
    let cut = |peers: &[u64]| LinkFaults {
        peers: peers.iter().map(|id| ServerId(*id)).collect::<BTreeSet<_>>(),
        ..LinkFaults::default()
    };
    two.links.cut(cut(&[1]));
    asks.write_all(b"later").await.expect("it is written");
    assert!(timeout(MOMENT, answers.read_exact(&mut heard)).await.is_err());
    assert!(timeout(MOMENT, answers.write_all(b"x")).await.is_err());
    one.links.cut(cut(&[2]));
    assert!(timeout(MOMENT, one.links.requests.dial(ServerId(2), Purpose::Requests)).await.is_err());
    one.links.cut(cut(&[]));
    two.links.cut(cut(&[]));
    timeout(PATIENCE, answers.read_exact(&mut heard)).await.expect("it is mended").expect("it arrives");
    assert_eq!(&heard, b"later");
    call(&one, &mut calls).await;
}

#[tokio::test]
async fn a_link_that_is_not_served_is_refused() {
    let (one, two) = pair().await;
    let dial = || one.links.requests.dial(ServerId(2), Purpose::Requests);
    let refused = |dialled: io::Result<PeerStream>| dialled.expect_err("it is refused").to_string();
    assert!(refused(dial().await).contains("server 2 serves no such requests"));
    let mut calls = two.links.requests.serve(Purpose::Requests);
    call(&one, &mut calls).await;
    assert!(two.links.requests.serve(Purpose::Requests).recv().await.is_none(), "it is served already");
    call(&one, &mut calls).await;
    drop(calls);
    assert!(refused(dial().await).contains("server 2 refuses"));
}

#[tokio::test]
async fn a_peer_has_so_many_links_and_no_more_on_both_sides() {
    let (one, two) = pair().await;
    let mut calls = two.links.requests.serve(Purpose::Requests);
    let most = u32::try_from(LINKS_MAX).expect("it is few");
    let held = call(&one, &mut calls).await;
    let accepted = &two.links.requests.peers[&ServerId(1)].accepted;
    let others = accepted.try_acquire_many(most - 1).expect("one is taken");
    let refused = one.links.requests.dial(ServerId(2), Purpose::Requests).await.expect_err("there is no place");
    assert!(refused.to_string().contains("more links for requests than server 2 can have"), "{refused}");
    drop(others);
    let dialled = &one.links.requests.peers[&ServerId(2)].dialled;
    let others = dialled.try_acquire_many(most - 1).expect("one is taken");
    assert!(timeout(MOMENT, one.links.requests.dial(ServerId(2), Purpose::Requests)).await.is_err(), "it waits");
    drop(held);
    call(&one, &mut calls).await;
    drop(others);
}
