//! Elections among three nodes, and four where that ends within seconds.

use std::path::Path;

use primus_core::planted::{Bug, Planted};
use primus_explore::elections::Chance::{self, Crash, Doubt, Duplicate, Load, Loss, Resignation, Restart, Start};
use primus_explore::elections::{
    DEATH_IN_ELECTION, DUPLICATE, Elections, GAVE_UP, MESSAGE_DIED, RETURN, SECOND_START, Time,
};
use primus_explore::frame::{Broken, Budget, Exploration, Milestone};
use primus_lab::invariants::message_bound::Bound;
use primus_lab::story;
use primus_lab::story::cluster::{BullyRecipe, Cluster, RingRecipe};

use super::{must_break, visit};

/// A Bully among these nodes. Deaths are noticed in two ticks, so that T passes before or after that.
fn bully(nodes: &str) -> Elections<BullyRecipe> {
    let Ok(Cluster::Bully(cluster)) = parse("bully", nodes) else { panic!("{nodes} is no Bully") };
    Elections { recipe: cluster.recipe, time: Time::Synchronous { notice_ticks: 2 }, bound: None }
}

/// A ring of these members. Deaths are noticed in six ticks, so that a round ends before or after that.
fn ring(members: &str) -> Elections<RingRecipe> {
    let Ok(Cluster::Ring(cluster)) = parse("ring", members) else { panic!("{members} is no ring") };
    Elections { recipe: cluster.recipe, time: Time::Synchronous { notice_ticks: 6 }, bound: None }
}

fn parse(election: &str, nodes: &str) -> Result<Cluster, String> {
    let words: Vec<_> = std::iter::once(election).chain(nodes.split_whitespace()).collect();
    Cluster::parse(&words)
}

fn visit_bully(nodes: &str, budget: impl Into<Budget<Chance>>, milestones: &'static [Milestone]) {
    visit(&format!("bully {nodes}"), Exploration::new(bully(nodes), budget), milestones);
}

fn visit_ring(members: &str, budget: impl Into<Budget<Chance>>, milestones: &'static [Milestone]) {
    visit(&format!("ring {members}"), Exploration::new(ring(members), budget), milestones);
}

#[test]
fn explore_bully_by_id() {
    for options in ["", "preempt=false", "asking=one-by-one"] {
        let nodes = format!("1 2 3 {options}");
        visit_bully(&nodes, [(Start, 2), (Crash, 1)], &[SECOND_START, DEATH_IN_ELECTION, MESSAGE_DIED]);
        visit_bully(&nodes, [(Start, 2), (Crash, 2)], &[GAVE_UP]);
        visit_bully(&nodes, [(Start, 1), (Crash, 1), (Restart, 1)], &[RETURN]);
    }
}

#[test]
fn explore_bully_by_load() {
    for options in ["scores=20,20,20", "scores=7,43,20", "scores=20,20,7 preempt=true", "scores=20,24.9,7 known"] {
        let nodes = format!("1 2 3 rank=load {options}");
        visit_bully(&nodes, [(Start, 2), (Crash, 2)], &[SECOND_START, DEATH_IN_ELECTION, GAVE_UP]);
        visit_bully(&nodes, [(Start, 1), (Crash, 1), (Restart, 1)], &[RETURN]);
    }
}

#[test]
fn explore_bully_of_four() {
    visit_bully("1 2 3 4", [(Start, 1), (Crash, 1)], &[DEATH_IN_ELECTION]);
    visit_bully("1 2 3 4 asking=one-by-one", [(Start, 2), (Crash, 2)], &[SECOND_START, GAVE_UP]);
    visit_bully("1 2 3 4 rank=load scores=20,20,7,43", [(Start, 2)], &[SECOND_START]);
    visit_bully("1 2 3 4 rank=load scores=20,7,7,43 known", [(Start, 1), (Crash, 1)], &[]);
}

#[test]
fn explore_ring_of_three() {
    for options in ["winner=lowest", "winner=highest", "winner=lowest preempt=false"] {
        let members = format!("2 1 3 {options}");
        visit_ring(&members, [(Start, 3), (Crash, 1)], &[SECOND_START, DEATH_IN_ELECTION, GAVE_UP]);
        visit_ring(&members, [(Start, 2), (Crash, 2)], &[MESSAGE_DIED]);
        visit_ring(&members, [(Start, 1), (Crash, 1), (Restart, 1)], &[RETURN]);
    }
}

#[test]
fn explore_ring_of_four() {
    visit_ring("1 2 3 4", [(Start, 1), (Crash, 1)], &[DEATH_IN_ELECTION, MESSAGE_DIED, GAVE_UP]);
    visit_ring("3 1 4 2 winner=highest", [(Start, 2), (Crash, 1)], &[SECOND_START]);
}

/// Messages that arrive twice, leaders that step down, and loads that change at any moment.
#[test]
fn explore_what_else_may_happen() {
    visit_bully("1 2 3", [(Start, 2), (Crash, 1), (Duplicate, 1)], &[DUPLICATE]);
    visit_ring("1 2 3", [(Start, 2), (Crash, 1), (Duplicate, 1)], &[DUPLICATE]);
    visit_bully("1 2 3", [(Start, 1), (Resignation, 1)], &[]);
    visit_bully("1 2 3 rank=load", [(Start, 1), (Crash, 1), (Resignation, 1)], &[]);
    visit_ring("1 2 3", [(Start, 1), (Crash, 1), (Resignation, 2)], &[]);
    for options in ["preempt=false", "preempt=true"] {
        let nodes = format!("1 2 3 rank=load scores=20,43,7 {options}");
        visit_bully(&nodes, [(Start, 2), (Load, 2)], &[]);
        visit_bully(&nodes, [(Start, 2), (Crash, 1), (Load, 1)], &[]);
    }
}

/// One election without faults takes so many messages, whoever starts it and in whatever order they arrive.
#[test]
fn explore_message_bounds_of_rings() {
    for (members, n) in [("1 2 3", 3), ("3 1 4 2", 4), ("4 3 2 1", 4), ("1 2 3 4 5", 5)] {
        for (starts, is_single) in [(1, true), (n, false)] {
            let bound = Some(Bound::Ring { n: u64::from(n), is_single });
            let setting = Elections { bound, ..ring(members) };
            visit(&format!("ring {members}"), Exploration::new(setting, [(Start, starts)]), &[]);
        }
    }
}

#[test]
fn explore_message_bounds_of_bullies() {
    for (options, ranks_known, one_by_one) in [
        ("", true, false),
        ("asking=one-by-one", true, true),
        ("rank=load scores=20,20,7 known", true, false),
        ("rank=load scores=20,20,7", false, false),
    ] {
        let nodes = format!("1 2 3 {options}");
        let bound = Some(Bound::Bully { n: 3, ranks_known, best_starts: false, one_by_one });
        let setting = Elections { bound, ..bully(&nodes) };
        visit(&format!("bully {nodes}"), Exploration::new(setting, [(Start, 3)]), &[]);
    }
}

/// Bugs that only a lost message shows are left to runs.
#[test]
fn explore_finds_planted_bugs() {
    for (bug, nodes) in [
        (Bug::TieElectsNobody, "1 2 3 rank=load scores=20,20,20"),
        (Bug::AddressesAsText, "10.0.0.9 10.0.0.10 10.0.0.11 rank=address"),
    ] {
        let mut setting = bully(nodes);
        setting.recipe.rules_mut().planted = Planted::the(bug);
        must_break(bug, Exploration::new(setting, [(Start, 2), (Crash, 1)]).visit());
    }
    let mut setting = Elections { bound: Some(Bound::Ring { n: 3, is_single: false }), ..ring("1 2 3") };
    setting.recipe.rules_mut().planted = Planted::the(Bug::OwnIdSentAgain);
    must_break(Bug::OwnIdSentAgain, Exploration::new(setting, [(Start, 2)]).visit());
}

/// Nothing happens in circles, so every way ends; and where it ends, the other explorations have found it good.
#[test]
fn explore_every_way_ends() {
    let deaths = Budget::from([(Start, 2), (Crash, 2)]);
    for nodes in ["1 2 3", "1 2 3 asking=one-by-one", "1 2 3 rank=load scores=20,20,7"] {
        assert_eq!(Exploration::new(bully(nodes), deaths).find_circle(), None, "bully {nodes}");
    }
    assert_eq!(Exploration::new(ring("1 2 3"), deaths).find_circle(), None);
    let returns = Budget::from([(Start, 1), (Crash, 1), (Restart, 1)]);
    let by_load = bully("1 2 3 rank=load scores=7,43,20 preempt=true");
    assert_eq!(Exploration::new(by_load, returns).find_circle(), None);
    assert_eq!(Exploration::new(ring("1 2 3"), returns).find_circle(), None);
}

/// Writes a way to two leaders as a story and compares it with the one that is kept.
fn keep(election: &str, opening: &str, result: Result<usize, Broken>, end: &str) {
    let way = result.expect_err("asynchrony elects two").way.expect("there is a way").join("\n");
    let path = format!("../lab/stories/{election}/asynchrony_elects_two.txt");
    let commands = format!("{opening}cluster {election} 1 2 3\n\n{way}\ntable\nleaders\n\n{end}");
    story::check_found(Path::new(&path), &commands).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn explore_bully_in_asynchrony_elects_two() {
    let setting = Elections { time: Time::Asynchronous, ..bully("1 2 3") };
    let result = Exploration::new(setting, [(Start, 2), (Loss, 1)]).visit();
    let opening = "\
# Found by exploration, not written: the shortest way to two leaders in asynchronous time. Election theory's Bully is
# safe only if T is long enough. Here it runs out before the answer arrives, so the worse node leads, too.
";
    let end = "# What is in flight arrives: the worse one yields.\nsettle\ntable\nleaders\n";
    keep("bully", opening, result, end);
}

#[test]
fn explore_ring_in_asynchrony_elects_two() {
    let setting = Elections { time: Time::Asynchronous, ..ring("1 2 3") };
    let result = Exploration::new(setting, [(Start, 1), (Loss, 1), (Doubt, 1)]).visit();
    let opening = "\
# Found by exploration, not written: the shortest way to two leaders in asynchronous time. Slow is taken for dead: a
# member that leads and lives is suspected and left out of the ring, and the others elect another one.
";
    let end = "\
# What is in flight arrives. Member 1 hears that 2 leads and, being better, starts a round; but it is still left out
# of the ring, so its token never comes back.
deliver-all
table

# The suspicion ends: the better one leads, alone.
trust 3 1
settle
table
leaders
";
    keep("ring", opening, result, end);
}
