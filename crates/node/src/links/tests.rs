//! What waits on links.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::time::timeout;

use super::*;
use crate::dialling::DIAL_TIME;
use crate::founding::founded_with;

const PATIENCE: Duration = Duration::from_secs(30);
const SAID_LEN: usize = 64 << 10;

/// Something that peers say.
#[derive(serde::Serialize, serde::Deserialize)]
struct Said(u64, Bytes);

impl Words for Said {
    fn unload(&mut self) -> Option<Bytes> {
        None
    }

    fn load(&mut self, _: Bytes) {}
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// The links of a server that has one peer.
fn start(id: u64, listener: TcpListener, other: SocketAddr) -> (Links<Said>, mpsc::Receiver<LinkEvent<Said>>) {
    let identity =
        Identity { cluster: "test".to_owned(), server: ServerId(id), store: [id as u8; 16], incarnation: id };
    let peers = BTreeMap::from([(ServerId(3 - id), other.into())]);
    let doors = Doors {
        workers: mpsc::channel(1).0,
        envoys: mpsc::channel(1).0,
        neighbours: watch::channel(Arc::default()).1,
    };
    let claim = founded_with(ServerId(id), [1, 2].map(|id| (ServerId(id), [id as u8; 16])).into_iter());
    let known = Known { peers, claim, security: Security::None };
    Links::start(identity, listener, known, doors, watch::channel(LinkFaults::default()).0, Arc::default())
}

/// The number of the next message.
async fn next(events: &mut mpsc::Receiver<LinkEvent<Said>>) -> u64 {
    loop {
        let event = timeout(PATIENCE, events.recv()).await.expect("something happens in time").expect("it lives");
        if let LinkEvent::Message(_, Said(number, _), _) = event {
            return number;
        }
    }
}

#[tokio::test]
async fn who_says_more_than_is_heard_has_to_wait_and_nothing_is_lost() {
    const MANY: u64 = 400;
    let ((first, at), (second, there)) = (listener().await, listener().await);
    let (links, _ignored) = start(1, first, there);
    let (_other, mut events) = start(2, second, at);
    let said = Bytes::from(vec![0; SAID_LEN]);
    (0..MANY).for_each(|number| links.send(ServerId(2), Said(number, said.clone())));
    assert_eq!(next(&mut events).await, 0);
    // As much as may wait arrives, and then nothing more.
    let most = UNHEARD_LEN_MAX as usize / SAID_LEN + 1;
    while events.len() < most - 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..1000 {
        tokio::task::yield_now().await;
        // Beside messages there are a few events of the link itself.
        assert!(events.len() <= most + 4, "{} wait", events.len());
    }
    for number in 1..MANY {
        assert_eq!(next(&mut events).await, number);
    }
}

#[tokio::test]
async fn what_is_said_to_a_peer_that_is_not_there_is_lost_beyond_the_bound() {
    let ((first, at), (second, there)) = (listener().await, listener().await);
    let (links, _ignored) = start(1, first, there);
    for number in 0..2 * QUEUE_LEN_MAX as u64 {
        links.send(ServerId(2), Said(number, Bytes::new()));
    }
    let (_other, mut events) = start(2, second, at);
    assert_eq!(next(&mut events).await, 0);
    links.send(ServerId(2), Said(u64::MAX, Bytes::new()));
    let mut last = 0;
    while last != u64::MAX {
        let number = next(&mut events).await;
        assert!(number == u64::MAX || number < 2 * QUEUE_LEN_MAX as u64 && number > last);
        last = number;
        if number == QUEUE_LEN_MAX as u64 - 1 {
            // All that had room has arrived; whoever says something now is heard again.
            links.send(ServerId(2), Said(u64::MAX, Bytes::new()));
        }
    }
}

/// The system throws dials away without a word while a port is being closed, and while too many wait there already.
#[tokio::test]
async fn a_dial_that_the_system_throws_away_is_followed_by_another_one() {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let busy = socket.listen(1).expect("it can listen");
    let there = busy.local_addr().expect("it is bound");
    // One more than it said may wait.
    let _waiting = [TcpStream::connect(there).await, TcpStream::connect(there).await];
    let (first, _) = listener().await;
    let (_links, mut events) = start(1, first, there);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    drop(busy);
    // One dial alone would last until it is given up.
    let event = timeout(DIAL_TIME * 9 / 10, events.recv()).await;
    assert!(matches!(event, Ok(Some(LinkEvent::Gone(ServerId(2))))));
}
