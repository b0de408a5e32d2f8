//! Known bugs of what joins the machines, on real servers: with the bug the same test fails.

use primus_core::ledger::{Entry, Fan, JobId, Target};
use primus_core::loan::office::{self, CannotLend, LendOrder};
use primus_core::planted::{Bug, Planted};
use tokio::sync::oneshot;

use super::bounds::busy;
use super::loans;
use super::stage::{Farm, noop, spec};

/// A client submits and cancels, while the farm is busy with something else. Is the job cancelled?
async fn is_cancelled(planted: Planted) -> bool {
    let mut farm = Farm::of("test", 1);
    farm.planted = planted;
    farm.start_server(1).await;
    farm.wait_for_leader(1).await;
    let handle = farm.farm_of(1);
    let hold = busy(&handle).await;
    let submit = vec![Entry::Submit { spec: spec(noop(), Fan::One), key: None }];
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
    let rules = office::Rules { lent_max: 1, planted, ..loans::rules() };
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
