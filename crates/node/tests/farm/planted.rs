//! Known bugs of what joins the machines, on real servers: with the bug the same test fails.

use primus_core::ledger::{Ending, Entry, Expansion, JobId, Target};
use primus_core::loan::lending::{self, CannotLend, LendOrder};
use primus_core::planted::{Bug, Planted};
use primus_node::handle::Handle;
use primus_node::private;
use primus_node::results::Results;
use primus_node::worker::Happening;
use primus_server::register::Change;
use tokio::sync::oneshot;

use super::bounds::busy;
use super::loans;
use super::stage::{Farm, command, noop, spec};
use crate::common::eventually_async;

/// A client submits and cancels, while the farm is busy with something else. Is the job cancelled?
async fn is_cancelled(planted: Planted) -> bool {
    let mut farm = Farm::of("test", 1);
    farm.planted = planted;
    farm.start_server(1).await;
    farm.wait_for_leader(1).await;
    let handle = farm.farm_of(1);
    let hold = busy(&handle).await;
    let submit = vec![Entry::Submit { spec: spec(noop(), Expansion::One), key: None }];
    let cancel = vec![Entry::Cancel(Target::Job(JobId(1)))];
    let (asked, both) = oneshot::channel();
    let client = tokio::spawn(async move {
        let (first, second) = (handle.enter(submit), handle.enter(cancel));
        let told = async { _ = asked.send(()) };
        let (first, second, ()) = tokio::join!(biased; first, second, told);
        first.expect("it is taken");
        second.expect("it is taken");
    });
    both.await.expect("both are asked");
    drop(hold);
    client.await.expect("it does not panic");
    farm.farm().await.look(|foreman| foreman.ledger().counts().cancelled == 1).await.expect("it leads")
}

#[tokio::test]
async fn proposals_in_another_order_are_found() {
    assert!(is_cancelled(Planted::NONE).await);
    assert!(!is_cancelled(Planted::the(Bug::ProposalsReordered)).await);
}

/// An operator lends one worker twice, while the farm is busy. How often does somebody go?
async fn lent(planted: Planted) -> usize {
    let rules = lending::Rules { lent_max: 1, planted, ..loans::rules() };
    let (north, south) = loans::farms(&["w1", "w2"], &[], rules).await;
    loans::wait_until_heard(&north, true).await;
    let handle = north.farm_of(1);
    let hold = busy(&handle).await;
    let order = || LendOrder { to: south.name.clone(), count: 1, for_ms: 60_000 };
    let orders = (order(), order());
    let (asked, both) = oneshot::channel();
    let operator = tokio::spawn(async move {
        let told = async { _ = asked.send(()) };
        let (first, second, ()) = tokio::join!(biased; handle.lend(orders.0), handle.lend(orders.1), told);
        [first, second].map(|answer| answer.expect("it leads"))
    });
    both.await.expect("both are asked");
    drop(hold);
    let answers = operator.await.expect("it does not panic");
    let refused = answers.iter().filter(|answer| **answer == Err(CannotLend::AllLent)).count();
    answers.len() - refused
}

#[tokio::test]
async fn a_lender_that_counts_only_what_is_agreed_on_is_found() {
    assert_eq!(lent(Planted::NONE).await, 1);
    assert_eq!(lent(Planted::the(Bug::LendsUnpledged)).await, 2);
}

/// So many keys, written so many times, are more than the farm applies in a turn.
const KEYS: usize = 4000;
const TIMES: u64 = 20;

/// Writes this value to so many keys, and waits until that is acknowledged.
async fn put(handle: &Handle, keys: usize, value: u64) {
    let (keys, value): (Vec<String>, _) = ((0..keys).map(|key| format!("key{key}")).collect(), value.to_string());
    let (reply, answer) = oneshot::channel();
    handle.change(keys.iter().map(|key| vec![Change::Put(key, value.as_bytes())]), true, reply);
    answer.await.expect("it lives").expect("it is taken");
}

/// The farm is behind with the log when somebody reads a key. Is that what was acknowledged before?
async fn is_read_as_acknowledged(planted: Planted) -> bool {
    let mut farm = Farm::of("test", 1);
    farm.planted = planted;
    farm.start_server(1).await;
    farm.wait_for_leader(1).await;
    let handle = farm.handle_of(1).clone();
    let hold = busy(&handle.farm).await;
    for value in 1..=TIMES {
        put(&handle, KEYS, value).await;
    }
    // What is written after the read was asked for is acknowledged after that was confirmed: by then the farm has the question.
    let let_go = async {
        put(&handle, 1, TIMES + 1).await;
        drop(hold);
    };
    let (read, ()) = tokio::join!(biased; handle.farm.get("key0".to_owned()), let_go);
    let value = read.expect("it leads").map(|(value, _)| String::from_utf8_lossy(&value).parse());
    value.is_some_and(|value: Result<u64, _>| value.expect("it is a number") >= TIMES)
}

#[tokio::test]
async fn a_look_before_what_it_must_see_is_applied_is_found() {
    for _ in 0..3 {
        assert!(is_read_as_acknowledged(Planted::NONE).await);
    }
    let planted = || Planted::the(Bug::LookBeforeApplied);
    eventually_async("the bug", async || (!is_read_as_acknowledged(planted()).await).then_some(())).await;
}

/// A worker has written down that it goes to another farm. Then its own farm takes it for dead, sees it again, and has a task.
/// Does the worker begin with that before it has gone?
async fn begins_while_it_goes(planted: Planted) -> bool {
    let (mut north, _south) = loans::farms(&["w1"], &[], lending::Rules { planted, ..loans::rules() }).await;
    // While somebody else uses this folder, the worker cannot go. It tries for a second, then it comes home.
    let folder = north.path("w1").join("away/south");
    private::folder(&folder).expect("there is room for a folder");
    let _in_use = Results::open(&folder).expect("nobody else has it");
    let loan = loans::lend(&north, loans::LONG_MS).await;
    loans::wait_for_file(&north.path("w1").join("epoch")).await;
    let (worker, mark) = ("w1".to_owned(), north.path("begun"));
    let task = command(&["touch", &mark.display().to_string()]);
    let entries = vec![
        Entry::Leave { worker: worker.clone() },
        Entry::EndLoan(loan, Ending::Dead),
        Entry::Join { worker, slots: 1 },
        Entry::Submit { spec: spec(task, Expansion::One), key: None },
    ];
    north.farm().await.enter(entries).await.expect("it is taken");
    let begins = eventually_async("it to go", async || {
        // In this order: one that goes says so before it can be at home again, and begin.
        let has_begun = mark.exists();
        let has_gone = north.happenings("w1").iter().any(|happening| matches!(happening, Happening::Lent(..)));
        (has_begun || has_gone).then_some(!has_gone)
    })
    .await;
    north.wait_for(JobId(1)).await;
    begins
}

#[tokio::test]
async fn a_room_that_is_closed_too_late_is_found() {
    assert!(!begins_while_it_goes(Planted::NONE).await);
    let planted = || Planted::the(Bug::RoomClosedTooLate);
    eventually_async("the bug", async || begins_while_it_goes(planted()).await.then_some(())).await;
}
