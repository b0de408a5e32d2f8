//! What waits has a bound: whoever asks for more is told so at once, and the rest goes on.

use std::sync::mpsc;
use std::time::Instant;

use primus_core::ledger::{Entry, Fan, Work};
use primus_node::farm::FarmHandle;
use primus_node::handle::Unable;
use primus_server::register::Change;
use tokio::sync::oneshot;

use super::stage::{Farm, PATIENCE, spec};

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
    let job = || vec![Entry::Submit { spec: spec(work.clone(), Fan::One), key: None }];
    let mut waiting: Vec<_> = Vec::new();
    let refused = loop {
        let (handle, entries) = (handle.clone(), job());
        let mut asked = tokio::spawn(async move { handle.enter(entries).await });
        tokio::select! {
            biased;
            answer = &mut asked => break answer.expect("it does not panic"),
            // It is on its way, or refused, once it has been asked.
            () = tokio::time::sleep(std::time::Duration::from_millis(5)) => waiting.push(asked),
        }
        assert!(waiting.len() <= 64, "{} are on their way", waiting.len());
    };
    assert_eq!((refused, waiting.len() >= 60), (Err(Unable::Busy), true));
    drop(hold);
    for asked in waiting {
        asked.await.expect("it does not panic").expect("it is taken");
    }
}
