//! What waits has a bound: whoever asks for more is told so at once, and the rest goes on.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use primus_core::ServerId;
use primus_core::ledger::{Entry, Expansion, Work};
use primus_node::farm::FarmHandle;
use primus_node::handle::{Request, Unable};
use primus_server::plan::Neighbour;
use primus_server::register::Change;
use primus_wire::native::{self, Answer, FarmHello, WorkerHello};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::stage::{Farm, spec};
use crate::common::{PATIENCE, eventually_async};

const VALUE_LEN: usize = 256 << 10;
/// Few writes of many values, so that the disk is not what takes long.
const AT_ONCE: usize = 32;

/// Keeps the farm's thread busy until what comes back is dropped.
pub(crate) async fn busy(farm: &FarmHandle) -> mpsc::Sender<()> {
    let ((hold, held), (begun, begins)) = (mpsc::channel::<()>(), oneshot::channel());
    let farm = farm.clone();
    tokio::spawn(async move {
        let look = farm.look_here(move |_| {
            _ = begun.send(());
            _ = held.recv();
        });
        _ = look.await;
    });
    begins.await.expect("the farm gets to it");
    hold
}

#[tokio::test]
async fn a_leader_whose_farm_stands_still_takes_no_more_than_it_may_hold() {
    let mut farm = Farm::of("test", 1);
    farm.start_server(1).await;
    farm.wait_for_leader(1).await;
    let handle = farm.handle_of(1).clone();
    let hold = busy(&handle.farm).await;
    let value = vec![b'x'; VALUE_LEN];
    let put = async || {
        let (reply, answer) = oneshot::channel();
        handle.change((0..AT_ONCE).map(|_| vec![Change::Put("key", &value)]), true, reply);
        answer.await.expect("it lives")
    };
    let began = Instant::now();
    let mut taken = 0;
    let refused = loop {
        assert!(began.elapsed() < PATIENCE, "it is refused in time");
        match put().await {
            Ok(_) => taken += AT_ONCE * VALUE_LEN,
            Err(unable) => break unable,
        }
    };
    assert_eq!(refused, Unable::Busy);
    assert!((100 << 20..=140 << 20).contains(&taken), "{taken} bytes were taken");
    drop(hold);
    while put().await.is_err() {
        assert!(began.elapsed() < PATIENCE, "there is room again in time");
    }
}

#[tokio::test]
async fn questions_to_a_farm_that_stands_still_have_a_bound_too() {
    let mut farm = Farm::of("test", 1);
    farm.start_server(1).await;
    farm.wait_for_leader(1).await;
    let handle = farm.farm_of(1);
    let hold = busy(&handle).await;
    let work = Work::Kind { name: "noop".to_owned(), input: vec![0; 1 << 20] };
    let job = || vec![Entry::Submit { spec: spec(work.clone(), Expansion::One), key: None }];
    let mut waiting: Vec<_> = Vec::new();
    let refused = loop {
        let (handle, entries) = (handle.clone(), job());
        let mut asked = tokio::spawn(async move { handle.enter(entries).await });
        tokio::select! {
            biased;
            answer = &mut asked => break answer.expect("it does not panic"),
            // It is on its way, or refused, once it has been asked.
            () = tokio::time::sleep(Duration::from_millis(5)) => waiting.push(asked),
        }
        assert!(waiting.len() <= 64, "{} are on their way", waiting.len());
    };
    assert_eq!((refused, waiting.len() >= 60), (Err(Unable::Busy), true));
    drop(hold);
    for asked in waiting {
        asked.await.expect("it does not panic").expect("it is taken");
    }
}

#[tokio::test]
async fn a_follower_whose_farm_stands_still_takes_no_more_than_it_may_hold() {
    const WRITTEN: usize = 176 << 20;
    let mut farm = Farm::new();
    for id in 1..=3 {
        farm.start_server(id).await;
    }
    farm.wait_for_leader(3).await;
    let (leader, follower) = (farm.handle_of(3).clone(), farm.handle_of(1).clone());
    let hold = busy(&follower.farm).await;
    let value = vec![b'x'; VALUE_LEN];
    let (began, mut written) = (Instant::now(), 0);
    while written < WRITTEN {
        let (reply, answer) = oneshot::channel();
        leader.change((0..AT_ONCE).map(|_| vec![Change::Put("key", &value)]), true, reply);
        // The leader's own farm may need a moment now and then.
        match answer.await.expect("it lives") {
            Ok(_) => written += AT_ONCE * VALUE_LEN,
            Err(unable) => assert!(began.elapsed() < 2 * PATIENCE, "a majority writes in time: {unable}"),
        }
    }
    let taken = usize::try_from(follower.view.borrow().last).expect("it is small") * VALUE_LEN;
    // What was on its way when it was full comes on top.
    assert!((100 << 20..=160 << 20).contains(&taken), "{taken} bytes were taken");
    drop(hold);
    let index = leader.view.borrow().applied;
    let mut view = follower.view.clone();
    let caught_up = view.wait_for(|view| view.applied >= index);
    tokio::time::timeout(PATIENCE, caught_up).await.expect("it catches up in time").expect("it lives");
}

/// Calls so often while the farm stands still. Gives back the links, once as many of them as can wait are left.
async fn call(address: SocketAddr, hellos: Vec<BytesMut>, most: usize) -> Vec<TcpStream> {
    let surplus = hellos.len() - most;
    let mut links = Vec::new();
    for hello in hellos {
        let mut link = TcpStream::connect(address).await.expect("it listens");
        link.write_all(&hello).await.expect("it reads");
        links.push(link);
    }
    let is_closed =
        |link: &&TcpStream| !matches!(link.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    let are_closed = async || (links.iter().filter(is_closed).count() >= surplus).then_some(());
    eventually_async("the end of those that cannot wait", are_closed).await;
    links.retain(|link| !is_closed(&link));
    assert_eq!(links.len(), most);
    links
}

fn bytes_of<T: Serialize>(hello: &T) -> BytesMut {
    let mut buffer = BytesMut::new();
    native::put(&mut buffer, hello).expect("a hello fits into a frame");
    buffer
}

/// Is the call answered?
async fn is_admitted(mut link: TcpStream) -> bool {
    let mut arrived = BytesMut::new();
    let answer = async {
        loop {
            if let Some(answer) = native::take::<Answer>(&mut arrived).expect("an answer") {
                return matches!(answer, Answer::Admitted);
            }
            if !matches!(link.read_buf(&mut arrived).await, Ok(1..)) {
                return false;
            }
        }
    };
    tokio::time::timeout(PATIENCE, answer).await.expect("it is answered in time")
}

#[tokio::test]
async fn workers_and_neighbours_that_call_a_farm_that_stands_still_have_a_bound() {
    const CALLERS_MAX: usize = 256;
    const ENVOYS_MAX: usize = 64;
    let mut farm = Farm::of("north", 1);
    let nowhere = "127.0.0.1:9".parse().expect("an address");
    farm.neighbours =
        vec![Neighbour { name: "east".to_owned(), servers: [(ServerId(1), nowhere)].into(), authority: None }];
    farm.start_server(1).await;
    farm.wait_for_leader(1).await;
    let address = farm.as_neighbour().servers[&ServerId(1)].number().expect("a number");
    let hold = busy(&farm.farm_of(1)).await;
    let worker = |number| WorkerHello::new("north".to_owned(), format!("w{number}"), ServerId(1), [7; 16]);
    let workers: Vec<_> = (0..CALLERS_MAX + 20).map(|number| bytes_of(&worker(number))).collect();
    let waiting = call(address, workers, CALLERS_MAX).await;
    let envoy = || FarmHello::new("east".to_owned(), "north".to_owned(), ServerId(1), [7; 16]);
    let envoys: Vec<_> = (0..ENVOYS_MAX + 20).map(|_| bytes_of(&envoy())).collect();
    let of_neighbours = call(address, envoys, ENVOYS_MAX).await;
    drop(hold);
    for link in waiting {
        assert!(is_admitted(link).await);
    }
    drop(of_neighbours);
    // Like a neighbour it calls again as long as there is no room.
    eventually_async("room for a neighbour", async || {
        let mut link = TcpStream::connect(address).await.expect("it listens");
        link.write_all(&bytes_of(&envoy())).await.expect("it reads");
        is_admitted(link).await.then_some(())
    })
    .await;
}

/// Asks once, and goes away before the answer comes. Was it refused at once?
fn asks_and_leaves(look: impl Future<Output = Result<(), Unable>>) -> Option<Unable> {
    match pin!(look).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer.err(),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn requests_to_a_control_that_stands_still_have_a_bound() {
    const REQUESTS_MAX: usize = 1024;
    const READS_MAX: usize = (64 << 20) / 256;
    /// No more than that is taken in the turn that does not end.
    const TURN: usize = 2048;
    let mut farm = Farm::of("test", 1);
    farm.start_server(1).await;
    farm.wait_for_leader(1).await;
    let handle = farm.handle_of(1).clone();
    let ask = || {
        let (reply, answer) = oneshot::channel();
        (handle.ask(Request::Outlook(reply)), answer)
    };
    // Control cannot end a turn while somebody looks at what it shows.
    let looks = handle.view.borrow();
    let mut waiting: Vec<_> =
        (0..REQUESTS_MAX + TURN).map(|_| ask()).take_while(|(is_taken, _)| *is_taken).collect();
    let (is_taken, mut refused) = ask();
    assert!(!is_taken && waiting.len() >= REQUESTS_MAX, "{} wait", waiting.len());
    assert!(matches!(refused.try_recv(), Ok(Err(Unable::Busy))));
    let reads = (0..READS_MAX + TURN).map(|_| asks_and_leaves(handle.farm.look(|_| ())));
    assert!(reads.take_while(Option::is_none).count() >= READS_MAX);
    assert_eq!(asks_and_leaves(handle.farm.look(|_| ())), Some(Unable::Busy));
    drop(looks);
    for (_, answer) in waiting.drain(..) {
        assert!(answer.await.expect("it lives").is_ok());
    }
    eventually_async("room for a look", async || handle.farm.look(|_| ()).await.ok()).await;
}
