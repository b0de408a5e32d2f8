//! The tester tested: known bugs are planted, and the laboratory must find each within a bounded number of seeds. Without
//! the bug the same seeds must all pass.

#[path = "common/bugs.rs"]
mod bugs;
mod common;

use common::{bully, ring};
use primus_core::election::ring::Winner;
use primus_core::load::Score;
use primus_core::planted::{Bug, Planted};
use primus_core::rank::RankBy;
use primus_lab::cluster::Cluster;
use primus_lab::experiment::{Contest, Experiment};
use primus_lab::faults::{Kind, Kinds};

const SEEDS_MAX: u64 = 2000;

fn must_find(bug: Bug, experiment: impl Fn(Planted) -> Experiment) {
    bugs::must_find(bug, SEEDS_MAX, |planted, seed| {
        experiment(planted).run(seed, &mut ()).violation().map(|property| property.name().to_owned())
    });
}

fn calm(experiment: Experiment) -> Experiment {
    Experiment { all_faults: false, ..experiment }
}

#[test]
fn addresses_compared_as_text_are_found() {
    must_find(Bug::AddressesAsText, |planted| calm(bully(RankBy::Address, 4, |rules| rules.planted = planted)));
}

#[test]
fn a_tie_that_elects_nobody_is_found() {
    must_find(Bug::TieElectsNobody, |planted| {
        let mut experiment = calm(bully(RankBy::Load, 3, |rules| rules.planted = planted));
        if let Contest::Bully { rules, scores } = &mut experiment.contest {
            *scores = rules.ids().map(|id| (id, Score::from_percent(20.0))).collect();
        }
        experiment
    });
}

#[test]
fn a_loser_without_a_timer_is_found() {
    must_find(Bug::LoserWithoutTimer, |planted| bully(RankBy::Id, 5, |rules| rules.planted = planted));
}

#[test]
fn a_score_that_changes_during_the_round_is_found() {
    must_find(Bug::ScoreChangesInRound, |planted| bully(RankBy::Load, 5, |rules| rules.planted = planted));
}

#[test]
fn an_unreachable_winner_that_is_never_skipped_is_found() {
    must_find(Bug::UnreachableWinnerNeverSkipped, |planted| bully(RankBy::Id, 5, |rules| rules.planted = planted));
}

#[test]
fn a_lost_token_that_nobody_replaces_is_found() {
    must_find(Bug::LostTokenNotReplaced, |planted| ring(Winner::Lowest, 5, |rules| rules.planted = planted));
}

#[test]
fn an_own_id_sent_again_and_again_is_found() {
    must_find(Bug::OwnIdSentAgain, |planted| calm(ring(Winner::Lowest, 7, |rules| rules.planted = planted)));
}

/// A bug in a cluster with these faults.
fn must_find_in_cluster(bug: Bug, servers: u64, kinds: impl IntoIterator<Item = Kind>) {
    let faults = Kinds::These(kinds.into_iter().collect());
    bugs::must_find_in(bug, SEEDS_MAX, |planted| Cluster { planted, ..Cluster::new(servers, faults.clone()) });
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    must_find_in_cluster(Bug::AcknowledgedBeforeSync, 3, [Kind::Crashes, Kind::Disks]);
}

#[test]
fn an_append_of_an_old_term_that_is_accepted_is_found() {
    // A leader that was paused speaks again when others have gone on, and some of what it says arrives late.
    let kinds = [Kind::Lateness, Kind::Pauses, Kind::Partitions, Kind::Disks, Kind::Commands];
    must_find_in_cluster(Bug::OldTermAppend, 5, kinds);
}

/// A bug in whole servers, under all faults.
fn must_find_in_servers(bug: Bug) {
    bugs::must_find_in(bug, SEEDS_MAX, |planted| Cluster { planted, ..Cluster::new(3, Kinds::All) });
}

#[test]
fn proposals_in_another_order_are_found() {
    must_find_in_servers(Bug::ProposalsReordered);
}

#[test]
fn a_look_before_what_it_must_see_is_applied_is_found() {
    must_find_in_servers(Bug::LookBeforeApplied);
}

#[test]
fn a_state_of_which_only_half_is_taken_is_found() {
    must_find_in_servers(Bug::HalfRestored);
}
