//! Two farms that lend each other workers.

use primus_core::ledger::{Fan, State, TaskId};
use primus_core::loan::office;
use primus_node::events::Kind;
use primus_node::worker::Happening;

use super::stage::{Farm, sleep, spec};

/// Loans are short here, and nobody waits long.
fn rules() -> office::Rules {
    office::Rules { loan_ms: 3000, recall_ms: 2000, calm_ms: 200, stay_ms: 200, ..office::Rules::default() }
}

/// Two farms of one server and two workers each, which know each other.
async fn two_farms() -> (Farm, Farm) {
    let (mut north, mut south) = (Farm::of("north", 1), Farm::of("south", 1));
    (north.neighbours, south.neighbours) = (vec![south.as_neighbour()], vec![north.as_neighbour()]);
    for farm in [&mut north, &mut south] {
        farm.lending = rules();
        farm.start_server(1).await;
        farm.start_worker("w1");
        farm.start_worker("w2");
        farm.wait_for_workers(2).await;
    }
    (north, south)
}

/// Waits until this many workers are lent and this many borrowed.
async fn wait_for_loans(farm: &Farm, lent: usize, borrowed: usize) {
    let what = format!("{}: {lent} lent, {borrowed} borrowed", farm.name);
    farm.wait_until(&what, |farm| async move {
        farm.look_at_loans(move |foreman, _| {
            let loans = foreman.ledger().loans();
            (loans.lent().len(), loans.borrowed().len()) == (lent, borrowed)
        })
        .await
    })
    .await;
}

fn told(farm: &Farm) -> Vec<&'static str> {
    let steps = |kind: &Kind| match kind {
        Kind::Saturated { .. } => Some("saturated"),
        Kind::LoanAsked { .. } => Some("asked"),
        Kind::LoanPromised { .. } => Some("promised"),
        Kind::Lent(_) => Some("lent"),
        Kind::LoanHome(_) => Some("home"),
        Kind::LoanDead(_) => Some("dead"),
        Kind::Borrowed(_) => Some("borrowed"),
        Kind::GivenBack(_) => Some("given back"),
        _ => None,
    };
    let mut told: Vec<_> =
        farm.handle_of(1).history.after(0).iter().filter_map(|event| steps(&event.kind)).collect();
    told.sort_unstable();
    told.dedup();
    told
}

#[tokio::test]
async fn workers_flow_to_a_flooded_farm_and_home_again() {
    let (mut north, south) = two_farms().await;
    let job = south.submit(spec(sleep(50), Fan::Array { first: 1, last: 80 })).await;
    wait_for_loans(&south, 0, 2).await;
    south.wait_for(job).await;
    assert!(south.states(job).await.iter().all(|state| *state == State::Done));
    let mut workers = Vec::new();
    for index in 1..=80 {
        workers.push(south.outcome(TaskId { job, index }).await.worker);
    }
    assert!(["w1", "w2", "w1@north", "w2@north"].iter().all(|name| workers.iter().any(|worker| worker == name)));
    wait_for_loans(&north, 0, 0).await;
    wait_for_loans(&south, 0, 0).await;
    assert_eq!(told(&north), ["home", "lent"]);
    assert_eq!(told(&south), ["asked", "borrowed", "given back", "promised", "saturated"]);
    let own = north.run(spec(sleep(1), Fan::Array { first: 1, last: 20 })).await;
    assert!(north.states(own).await.iter().all(|state| *state == State::Done));
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(Happening::Home(_))) {
        seen.push(north.happening("w1").await);
    }
    assert!(seen.iter().any(|happening| matches!(happening, Happening::Lent(farm, _) if farm == "south")));
}
