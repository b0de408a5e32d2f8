//! Two farms that lend each other workers.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use primus_core::ledger::{Effect, Entry, Expansion, JobId, Lend, LoanId, State, TaskId, Verdict, Why};
use primus_core::loan::lending;
use primus_node::events::Kind;
use primus_node::handle::Request;
use primus_node::link_faults::LinkFaults;
use primus_node::worker::Happening;

use super::stage::{Farm, command, first, sleep, spec};
use crate::common::eventually_async;

/// Longer than any test takes.
pub(crate) const LONG_MS: u64 = 60_000;

/// Loans are short here, and nobody waits long.
pub(crate) fn rules() -> lending::Rules {
    lending::Rules { loan_ms: 3000, recall_ms: 2000, calm_ms: 200, stay_ms: 200, ..lending::Rules::default() }
}

/// Two farms of one server each, which know each other, with these workers.
pub(crate) async fn farms(in_north: &[&str], in_south: &[&str], rules: lending::Rules) -> (Farm, Farm) {
    farms_that_allow("*", in_north, in_south, rules).await
}

/// The same; north's workers run this program only.
async fn farms_that_allow(
    program: &str,
    in_north: &[&str],
    in_south: &[&str],
    rules: lending::Rules,
) -> (Farm, Farm) {
    let (mut north, mut south) = (Farm::of("north", 1), Farm::of("south", 1));
    north.allow = vec![program.to_owned()];
    (north.neighbours, south.neighbours) = (vec![south.as_neighbour()], vec![north.as_neighbour()]);
    for (farm, workers) in [(&mut north, in_north), (&mut south, in_south)] {
        (farm.lending, farm.planted) = (rules, rules.planted);
        farm.start_server(1).await;
        workers.iter().for_each(|worker| farm.start_worker(worker));
        farm.wait_for_workers(workers.len()).await;
    }
    (north, south)
}

/// North has a worker and has lent it to south, which has none of its own.
async fn lent(rules: lending::Rules) -> (Farm, Farm, LoanId) {
    let (north, south) = farms(&["w1"], &[], rules).await;
    let loan = lend(&north, LONG_MS).await;
    wait_for_loans(&south, 0, 1).await;
    south.wait_for_workers(1).await;
    (north, south, loan)
}

/// An operator lends north's worker to south.
pub(crate) async fn lend(north: &Farm, for_ms: u64) -> LoanId {
    let lend = Lend { worker: "w1".to_owned(), to: "south".to_owned(), for_ms, why: Why::Operator };
    match enter(north, Entry::Lend(lend)).await[..] {
        [Effect::Lent(loan)] => loan,
        ref effects => panic!("{effects:?}"),
    }
}

async fn recall(north: &Farm, loan: LoanId) {
    assert_eq!(enter(north, Entry::Recall(loan)).await, [Effect::Recalled(loan)]);
}

async fn enter(farm: &Farm, entry: Entry) -> Vec<Effect> {
    farm.farm().await.enter(vec![entry]).await.expect("it is taken")
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

async fn wait_for_all_home(north: &Farm, south: &Farm) {
    wait_for_loans(north, 0, 0).await;
    wait_for_loans(south, 0, 0).await;
}

pub(crate) async fn wait_for_file(path: &Path) -> String {
    let text = async || std::fs::read_to_string(path).ok().filter(|text| !text.is_empty());
    eventually_async(&path.display().to_string(), text).await
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
    let (mut north, south) = farms(&["w1", "w2"], &["w1", "w2"], rules()).await;
    let job = south.submit(spec(sleep(50), Expansion::Array { first: 1, last: 80 })).await;
    wait_for_loans(&south, 0, 2).await;
    south.wait_for(job).await;
    assert!(south.states(job).await.iter().all(|state| *state == State::Done));
    let mut workers = Vec::new();
    for index in 1..=80 {
        workers.push(south.outcome(TaskId { job, index }).await.worker);
    }
    assert!(["w1", "w2", "w1@north", "w2@north"].iter().all(|name| workers.iter().any(|worker| worker == name)));
    wait_for_all_home(&north, &south).await;
    assert_eq!(told(&north), ["home", "lent"]);
    assert_eq!(told(&south), ["asked", "borrowed", "given back", "promised", "saturated"]);
    let own = north.run(spec(sleep(1), Expansion::Array { first: 1, last: 20 })).await;
    assert!(north.states(own).await.iter().all(|state| *state == State::Done));
    let mut seen = Vec::new();
    eventually_async("it to come home", async || {
        seen.push(north.happening("w1").await);
        matches!(seen.last(), Some(Happening::Home(_))).then_some(())
    })
    .await;
    assert!(seen.iter().any(|happening| matches!(happening, Happening::Lent(farm, _) if farm == "south")));
}

#[tokio::test]
async fn a_worker_comes_home_when_its_time_is_over_though_the_other_farm_is_gone() {
    let (north, mut south) = farms(&["w1"], &[], rules()).await;
    lend(&north, 1500).await;
    wait_for_loans(&south, 0, 1).await;
    south.stop_server(1);
    wait_for_loans(&north, 0, 0).await;
    assert_eq!(told(&north), ["home", "lent"]);
    let own = north.run(spec(sleep(1), Expansion::One)).await;
    assert_eq!(north.outcome(first(own)).await.worker, "w1");
}

#[tokio::test]
async fn a_recalled_worker_ends_what_runs_and_gives_the_rest_back() {
    let (north, mut south, loan) = lent(rules()).await;
    let job = south.submit(spec(sleep(500), Expansion::Array { first: 1, last: 3 })).await;
    south
        .wait_until("one runs and one waits behind it", |farm| async move {
            farm.look(|foreman| foreman.handed_out() == 2).await
        })
        .await;
    recall(&north, loan).await;
    wait_for_all_home(&north, &south).await;
    south
        .wait_until("all is told", |farm| async move { farm.look(|foreman| foreman.handed_out() == 0).await })
        .await;
    let ended = south.states(job).await.iter().filter(|state| **state == State::Done).count();
    assert_eq!(ended, 1, "what had not begun came back");
    south.start_worker("w1");
    south.wait_for(job).await;
    let mut workers = Vec::new();
    for index in 1..=3 {
        workers.push(south.outcome(TaskId { job, index }).await.worker);
    }
    assert_eq!(workers, ["w1@north", "w1", "w1"]);
}

#[tokio::test]
async fn what_does_not_end_in_time_is_stopped_and_runs_elsewhere() {
    let (north, mut south, loan) = lent(lending::Rules { recall_ms: 300, ..rules() }).await;
    let mark = south.path("mark");
    let script = format!("test -e {0} && exit 0; echo $$ > {0}; exec sleep 60", mark.display());
    let job = south.submit(spec(command(&["sh", "-c", &script]), Expansion::One)).await;
    let process = Path::new("/proc").join(wait_for_file(&mark).await.trim());
    recall(&north, loan).await;
    wait_for_all_home(&north, &south).await;
    south.wait_until("it is dead", |_| async { Ok(!process.exists()) }).await;
    south.start_worker("w1");
    south.wait_for(job).await;
    assert_eq!((south.states(job).await, south.outcome(first(job)).await.worker), (vec![State::Done], "w1".into()));
}

/// South dies while north's worker runs something for it. Gives back what it writes when it runs, and the job.
async fn unrecorded(north: &Farm, south: &mut Farm) -> (PathBuf, JobId) {
    let (mark, before) = (south.path("ran"), north.results_len("w1/away/south"));
    let script = format!("echo once >> {}; sleep 0.3", mark.display());
    let job = south.submit(spec(command(&["sh", "-c", &script]), Expansion::One)).await;
    wait_for_file(&mark).await;
    south.stop_server(1);
    // The worker has it on its disk when it has ended, though nobody can be told.
    north.wait_for_more_results("w1/away/south", before).await;
    (mark, job)
}

#[tokio::test]
async fn a_result_for_another_farm_survives_its_worker() {
    let (mut north, mut south, _) = lent(rules()).await;
    let (mark, job) = unrecorded(&north, &mut south).await;
    north.stop_worker("w1");
    north.start_worker("w1");
    wait_for_loans(&north, 0, 0).await;
    south.start_server(1).await;
    south.wait_for(job).await;
    assert_eq!(south.states(job).await, [State::Done]);
    assert_eq!(std::fs::read_to_string(mark).expect("it ran"), "once\n");
    wait_for_loans(&south, 0, 0).await;
}

#[tokio::test]
async fn a_worker_is_lent_again_to_a_farm_that_has_not_got_all_its_results() {
    let (mut north, mut south, loan) = lent(rules()).await;
    let (mark, job) = unrecorded(&north, &mut south).await;
    recall(&north, loan).await;
    wait_for_loans(&north, 0, 0).await;
    let again = lend(&north, LONG_MS).await;
    while north.happening("w1").await != Happening::Lent("south".to_owned(), again) {}
    south.start_server(1).await;
    south.wait_for(job).await;
    assert_eq!(std::fs::read_to_string(mark).expect("it ran"), "once\n");
    let other = south.run(spec(sleep(1), Expansion::One)).await;
    assert_eq!(south.outcome(first(other)).await.worker, "w1@north");
    recall(&north, again).await;
    wait_for_all_home(&north, &south).await;
}

#[tokio::test]
async fn a_worker_that_is_called_back_before_it_has_gone_stays() {
    let (north, south) = farms(&["w1"], &[], rules()).await;
    let job = north.submit(spec(sleep(1000), Expansion::One)).await;
    north.wait_until("it runs", |farm| async move { farm.look(|foreman| foreman.handed_out() == 1).await }).await;
    let loan = lend(&north, LONG_MS).await;
    recall(&north, loan).await;
    wait_for_loans(&north, 0, 0).await;
    north.wait_for(job).await;
    let again = lend(&north, LONG_MS).await;
    wait_for_loans(&south, 0, 1).await;
    recall(&north, again).await;
    wait_for_all_home(&north, &south).await;
}

#[tokio::test]
async fn whoever_is_with_a_farm_that_is_no_neighbour_any_more_comes_home() {
    let (mut north, south, _) = lent(rules()).await;
    north.stop_server(1);
    north.neighbours.clear();
    north.start_server(1).await;
    wait_for_all_home(&north, &south).await;
}

#[tokio::test]
async fn a_worker_that_cannot_go_says_so() {
    let (mut north, _south) = farms(&["w1"], &[], rules()).await;
    std::fs::write(north.path("w1").join("away"), "in its way").expect("there is room for a file");
    lend(&north, LONG_MS).await;
    wait_for_loans(&north, 0, 0).await;
    let told = Kind::WorkerCannotGo { farm: "south".to_owned(), worker: "w1".to_owned() };
    assert!(north.handle_of(1).history.after(0).iter().any(|event| event.kind == told));
    north.await_happening("w1", |happening| matches!(happening, Happening::CannotGo(..))).await;
}

#[tokio::test]
async fn a_loan_ends_though_the_farms_do_not_hear_each_other() {
    let (north, south) = farms(&["w1"], &[], rules()).await;
    lend(&north, 2000).await;
    wait_for_loans(&south, 0, 1).await;
    // One side is enough: it neither speaks nor listens.
    let farms = BTreeSet::from(["south".to_owned()]);
    north.handle_of(1).ask(Request::Cut(LinkFaults { farms, ..LinkFaults::default() }));
    for farm in [&north, &south] {
        wait_until_heard(farm, false).await;
    }
    wait_for_all_home(&north, &south).await;
    north.handle_of(1).ask(Request::Cut(LinkFaults::default()));
    for farm in [&north, &south] {
        wait_until_heard(farm, true).await;
    }
    let loan = lend(&north, LONG_MS).await;
    wait_for_loans(&south, 0, 1).await;
    recall(&north, loan).await;
    wait_for_all_home(&north, &south).await;
}

/// Waits until a farm hears its neighbour, or does not.
pub(crate) async fn wait_until_heard(farm: &Farm, is_heard: bool) {
    let what = format!("{}: the neighbour is heard: {is_heard}", farm.name);
    farm.wait_until(&what, |farm| async move {
        farm.look_at_loans(move |_, lending| lending.neighbours().all(|(_, heard)| heard.is_some() == is_heard))
            .await
    })
    .await;
}

#[tokio::test]
async fn what_a_lender_allows_its_workers_holds_abroad_too() {
    let (north, south) = farms_that_allow("true", &["w1"], &[], rules()).await;
    lend(&north, LONG_MS).await;
    wait_for_loans(&south, 0, 1).await;
    south.wait_for_workers(1).await;
    let allowed = south.run(spec(command(&["true"]), Expansion::One)).await;
    assert_eq!(south.outcome(first(allowed)).await.verdict, Verdict::Exited(0));
    let other = south.run(spec(command(&["sh", "-c", "echo hello"]), Expansion::One)).await;
    let outcome = south.outcome(first(other)).await;
    assert_eq!(outcome.worker, "w1@north");
    assert!(
        matches!(&outcome.verdict, Verdict::Refused(reason) if reason.contains("does not allow")),
        "{outcome:?}"
    );
}
