//! Visits every state of small elections: three nodes, and four where that ends within seconds.
//!
//! In synchronous time everything must hold. In asynchronous time two leaders must be found; the way there is kept as
//! a story, which `PRIMUS_REWRITE=1` writes anew. Whole servers, leases, loans and guests must be safe in any kind of time.

use std::fmt::Display;
use std::path::Path;

use primus_core::election;
use primus_core::planted::{Bug, Planted};
use primus_explore::elections::Milestone::{DeathInElection, Duplicate, GaveUp, MessageDied, Return, SecondStart};
use primus_explore::elections::{Broken, Budget, Exploration, Milestone, Scene, Time};
use primus_explore::guests::{self, GuestExploration};
use primus_explore::leases::{self, LeaseExploration};
use primus_explore::loans::{self, LoanExploration};
use primus_explore::servers::{self, Opening, ServerExploration};
use primus_lab::invariants::message_bound::Bound;
use primus_lab::story::cluster::{BullyRecipe, Cluster, Recipe, RingRecipe};
use primus_lab::{story, tally};
use primus_server::control::Timer;

const NOTHING: Budget =
    Budget { starts: 0, crashes: 0, restarts: 0, duplicates: 0, losses: 0, doubts: 0, resignations: 0, loads: 0 };

/// A Bully among these nodes. Deaths are noticed in two ticks, so that T passes before or after that.
fn bully(nodes: &str) -> Exploration<BullyRecipe> {
    let Ok(Cluster::Bully(cluster)) = parse("bully", nodes) else { panic!("{nodes} is no Bully") };
    in_time(cluster.recipe, Time::Synchronous { notice_ticks: 2 })
}

/// A ring of these members. Deaths are noticed in six ticks, so that a round ends before or after that.
fn ring(members: &str) -> Exploration<RingRecipe> {
    let Ok(Cluster::Ring(cluster)) = parse("ring", members) else { panic!("{members} is no ring") };
    in_time(cluster.recipe, Time::Synchronous { notice_ticks: 6 })
}

fn parse(election: &str, nodes: &str) -> Result<Cluster, String> {
    let words: Vec<_> = std::iter::once(election).chain(nodes.split_whitespace()).collect();
    Cluster::parse(&words)
}

fn in_time<R>(recipe: R, time: Time) -> Exploration<R> {
    Exploration { recipe, time, budget: NOTHING, milestones: &[], bound: None }
}

fn visit<R: Recipe + Send + Sync + 'static>(name: impl Display, exploration: &Exploration<R>)
where
    Scene<R::Machine>: Send + Sync,
{
    let states = exploration.visit().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    println!("{name}: {states} states");
    tally::add("states", states);
}

fn visit_bully(nodes: &str, budget: Budget, milestones: &'static [Milestone]) {
    visit(format_args!("bully {nodes}"), &Exploration { budget, milestones, ..bully(nodes) });
}

fn visit_ring(members: &str, budget: Budget, milestones: &'static [Milestone]) {
    visit(format_args!("ring {members}"), &Exploration { budget, milestones, ..ring(members) });
}

#[test]
fn explore_bully_by_id() {
    for options in ["", "preempt=false", "asking=one-by-one"] {
        let nodes = format!("1 2 3 {options}");
        visit_bully(
            &nodes,
            Budget { starts: 2, crashes: 1, ..NOTHING },
            &[SecondStart, DeathInElection, MessageDied],
        );
        visit_bully(&nodes, Budget { starts: 2, crashes: 2, ..NOTHING }, &[GaveUp]);
        visit_bully(&nodes, Budget { starts: 1, crashes: 1, restarts: 1, ..NOTHING }, &[Return]);
    }
}

#[test]
fn explore_bully_by_load() {
    for options in ["scores=20,20,20", "scores=7,43,20", "scores=20,20,7 preempt=true", "scores=20,24.9,7 known"] {
        let nodes = format!("1 2 3 rank=load {options}");
        visit_bully(&nodes, Budget { starts: 2, crashes: 2, ..NOTHING }, &[SecondStart, DeathInElection, GaveUp]);
        visit_bully(&nodes, Budget { starts: 1, crashes: 1, restarts: 1, ..NOTHING }, &[Return]);
    }
}

#[test]
fn explore_bully_of_four() {
    visit_bully("1 2 3 4", Budget { starts: 1, crashes: 1, ..NOTHING }, &[DeathInElection]);
    visit_bully("1 2 3 4 asking=one-by-one", Budget { starts: 2, crashes: 2, ..NOTHING }, &[SecondStart, GaveUp]);
    visit_bully("1 2 3 4 rank=load scores=20,20,7,43", Budget { starts: 2, ..NOTHING }, &[SecondStart]);
    visit_bully("1 2 3 4 rank=load scores=20,7,7,43 known", Budget { starts: 1, crashes: 1, ..NOTHING }, &[]);
}

#[test]
fn explore_ring_of_three() {
    for options in ["winner=lowest", "winner=highest", "winner=lowest preempt=false"] {
        let members = format!("2 1 3 {options}");
        visit_ring(&members, Budget { starts: 3, crashes: 1, ..NOTHING }, &[SecondStart, DeathInElection, GaveUp]);
        visit_ring(&members, Budget { starts: 2, crashes: 2, ..NOTHING }, &[MessageDied]);
        visit_ring(&members, Budget { starts: 1, crashes: 1, restarts: 1, ..NOTHING }, &[Return]);
    }
}

#[test]
fn explore_ring_of_four() {
    visit_ring("1 2 3 4", Budget { starts: 1, crashes: 1, ..NOTHING }, &[DeathInElection, MessageDied, GaveUp]);
    visit_ring("3 1 4 2 winner=highest", Budget { starts: 2, crashes: 1, ..NOTHING }, &[SecondStart]);
}

/// Messages that arrive twice, leaders that step down, and loads that change at any moment.
#[test]
fn explore_what_else_may_happen() {
    visit_bully("1 2 3", Budget { starts: 2, crashes: 1, duplicates: 1, ..NOTHING }, &[Duplicate]);
    visit_ring("1 2 3", Budget { starts: 2, crashes: 1, duplicates: 1, ..NOTHING }, &[Duplicate]);
    visit_bully("1 2 3", Budget { starts: 1, resignations: 1, ..NOTHING }, &[]);
    visit_bully("1 2 3 rank=load", Budget { starts: 1, crashes: 1, resignations: 1, ..NOTHING }, &[]);
    visit_ring("1 2 3", Budget { starts: 1, crashes: 1, resignations: 2, ..NOTHING }, &[]);
    for options in ["preempt=false", "preempt=true"] {
        let nodes = format!("1 2 3 rank=load scores=20,43,7 {options}");
        visit_bully(&nodes, Budget { starts: 2, loads: 2, ..NOTHING }, &[]);
        visit_bully(&nodes, Budget { starts: 2, crashes: 1, loads: 1, ..NOTHING }, &[]);
    }
}

/// One election without faults takes so many messages, whoever starts it and in whatever order they arrive.
#[test]
fn explore_message_bounds_of_rings() {
    for (members, n) in [("1 2 3", 3), ("3 1 4 2", 4), ("4 3 2 1", 4), ("1 2 3 4 5", 5)] {
        for (starts, is_single) in [(1, true), (n, false)] {
            let bound = Some(Bound::Ring { n: u64::from(n), is_single });
            let budget = Budget { starts, ..NOTHING };
            visit(format_args!("ring {members}"), &Exploration { budget, bound, ..ring(members) });
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
        let budget = Budget { starts: 3, ..NOTHING };
        visit(format_args!("bully {nodes}"), &Exploration { budget, bound, ..bully(&nodes) });
    }
}

/// The tester tested: a planted bug must break something. Bugs that only a lost message shows are left to runs.
#[test]
fn explore_finds_planted_bugs() {
    let budget = Budget { starts: 2, crashes: 1, ..NOTHING };
    for (bug, nodes) in [
        (Bug::TieElectsNobody, "1 2 3 rank=load scores=20,20,20"),
        (Bug::AddressesAsText, "10.0.0.9 10.0.0.10 10.0.0.11 rank=address"),
    ] {
        let mut exploration = Exploration { budget, ..bully(nodes) };
        exploration.recipe.rules_mut().planted = Planted::the(bug);
        must_break(bug, exploration.visit());
    }
    let bound = Some(Bound::Ring { n: 3, is_single: false });
    let mut exploration = Exploration { budget: Budget { starts: 2, ..NOTHING }, bound, ..ring("1 2 3") };
    exploration.recipe.rules_mut().planted = Planted::the(Bug::OwnIdSentAgain);
    must_break(Bug::OwnIdSentAgain, exploration.visit());
}

fn must_break(bug: Bug, result: Result<usize, Broken>) {
    match result {
        Ok(states) => panic!("{bug:?} was not found in {states} states"),
        Err(broken) => println!("{bug:?}: {broken}"),
    }
}

/// Nothing happens in circles, so every way ends; and where it ends, the other explorations have found it good.
#[test]
fn explore_every_way_ends() {
    let budget = Budget { starts: 2, crashes: 2, ..NOTHING };
    for nodes in ["1 2 3", "1 2 3 asking=one-by-one", "1 2 3 rank=load scores=20,20,7"] {
        assert_eq!(Exploration { budget, ..bully(nodes) }.find_circle(), None, "bully {nodes}");
    }
    assert_eq!(Exploration { budget, ..ring("1 2 3") }.find_circle(), None);
    let budget = Budget { starts: 1, crashes: 1, restarts: 1, ..NOTHING };
    assert_eq!(Exploration { budget, ..bully("1 2 3 rank=load scores=7,43,20 preempt=true") }.find_circle(), None);
    assert_eq!(Exploration { budget, ..ring("1 2 3") }.find_circle(), None);
}

/// Writes the way to two leaders as a story and compares it with the one that is kept.
fn keep(path: &str, opening: &str, cluster: &str, way: &[String], end: &str) {
    let commands = format!("{opening}cluster {cluster}\n\n{}\ntable\nleaders\n\n{end}", way.join("\n"));
    story::check_found(Path::new(path), &commands).unwrap_or_else(|error| panic!("{error}"));
}

/// No way to two leaders is longer than this.
const DEPTH_MAX: usize = 20;

#[test]
fn explore_bully_in_asynchrony_elects_two() {
    let budget = Budget { starts: 2, losses: 1, ..NOTHING };
    let exploration = Exploration { budget, time: Time::Asynchronous, ..bully("1 2 3") };
    let way = exploration.find_two_leaders(DEPTH_MAX).expect("asynchrony elects two");
    let opening = "\
# Found by exploration, not written: the shortest way to two leaders in asynchronous time. Election theory's Bully is
# safe only if T is long enough. Here it runs out before the answer arrives, so the worse node leads, too.
";
    let end = "# What is in flight arrives: the worse one yields.\nsettle\ntable\nleaders\n";
    keep("../lab/stories/bully/asynchrony_elects_two.txt", opening, "bully 1 2 3", &way, end);
}

#[test]
fn explore_ring_in_asynchrony_elects_two() {
    let budget = Budget { starts: 1, losses: 1, doubts: 1, ..NOTHING };
    let exploration = Exploration { budget, time: Time::Asynchronous, ..ring("1 2 3") };
    let way = exploration.find_two_leaders(DEPTH_MAX).expect("asynchrony elects two");
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
    keep("../lab/stories/ring/asynchrony_elects_two.txt", opening, "ring 1 2 3", &way, end);
}

const NO_FAULTS: servers::Budget =
    servers::Budget { crashes: 0, restarts: 0, losses: 0, doubts: 0, proposals: 0, stalls: 0, ticks: 0, timers: 0 };

/// Three whole servers on models of the log, so many steps deep.
fn servers(opening: Opening, depth_max: usize, budget: servers::Budget) -> ServerExploration {
    let (early, milestones, planted) = (&[], &[], Planted::NONE);
    ServerExploration { opening, early, depth_max, budget, milestones, planted }
}

fn visit_servers(name: &str, milestones: &'static [servers::Milestone], exploration: ServerExploration) {
    let exploration = ServerExploration { milestones, ..exploration };
    let states = exploration.visit().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    println!("{name}: {states} states");
    tally::add("states", states);
}

#[test]
fn explore_servers_whose_leader_dies() {
    use servers::Milestone::{Committed, Elected};
    let budget = servers::Budget { crashes: 1, proposals: 1, timers: 1, ..NO_FAULTS };
    visit_servers("leader dies", &[Elected, Committed], servers(Opening::Calm, 20, budget));
    let budget = servers::Budget { crashes: 1, losses: 1, timers: 2, ..NO_FAULTS };
    visit_servers("a message is lost", &[Elected], servers(Opening::Calm, 20, budget));
}

#[test]
fn explore_servers_that_suspect_a_live_leader() {
    use servers::Milestone::{Elected, Survived};
    let budget = servers::Budget { doubts: 1, ticks: 2, timers: 2, ..NO_FAULTS };
    visit_servers("one doubts", &[Survived], servers(Opening::Calm, 12, budget));
    let budget = servers::Budget { doubts: 2, ticks: 1, ..NO_FAULTS };
    visit_servers("two doubt", &[Elected], servers(Opening::Calm, 9, budget));
}

#[test]
fn explore_servers_that_come_back() {
    use servers::Milestone::{Committed, Elected, LostWrites};
    let budget = servers::Budget { crashes: 1, restarts: 1, stalls: 1, proposals: 1, ..NO_FAULTS };
    visit_servers("comes back", &[Committed, Elected, LostWrites], servers(Opening::Calm, 10, budget));
}

/// The best-ranked knows less than another: that one jumps in, leads, and gives way once.
#[test]
fn explore_servers_that_jump_in() {
    use servers::Milestone::{Corrected, JumpedIn};
    let budget = servers::Budget { timers: 3, ticks: 1, ..NO_FAULTS };
    visit_servers("jumps in", &[JumpedIn, Corrected], servers(Opening::BestKnowsLess, 40, budget));
}

/// The way to the scenes in which counting an older term's entry, or voting twice, would do harm. Whoever starts up or asks
/// again does not wait there until all messages have arrived.
fn figure_8() -> ServerExploration {
    const EARLY: &[Timer] = &[Timer::Election(election::Timer::Startup), Timer::Retry];
    let budget = servers::Budget { crashes: 1, restarts: 1, timers: 2, ..NO_FAULTS };
    ServerExploration { early: EARLY, ..servers(Opening::Figure8, 15, budget) }
}

#[test]
fn explore_servers_in_figure_8() {
    visit_servers("figure 8", &[servers::Milestone::Elected], figure_8());
}

/// The tester tested.
#[test]
fn explore_servers_finds_planted_bugs() {
    for bug in [Bug::VotesTwice, Bug::CommitsByCountingOldTerms] {
        must_break(bug, ServerExploration { planted: Planted::the(bug), ..figure_8() }.visit());
        tally::add("planted", 1);
    }
}

const NO_TROUBLE: leases::Budget = leases::Budget {
    drifts: 0,
    resignations: 0,
    freezes: 0,
    delays: 0,
    overtakings: 0,
    wishes: 0,
    questions: [3, 3],
};

/// Two servers and two guards for so many ticks; the leader changes at any moment, or never.
fn leases(ticks: u64, budget: leases::Budget) -> LeaseExploration {
    LeaseExploration { ticks, budget, milestones: &[], planted: Planted::NONE }
}

fn visit_leases(name: &str, milestones: &'static [leases::Milestone], exploration: LeaseExploration) {
    let exploration = LeaseExploration { milestones, ..exploration };
    let states = exploration.visit().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    println!("{name}: {states} states");
    tally::add("states", states);
}

#[test]
fn explore_leases_that_end_and_go_on() {
    use leases::Milestone::{EarlyCommit, Expiry, GoesOn, Release, StalePromise};
    let budget = leases::Budget { resignations: 1, questions: [4, 4], ..NO_TROUBLE };
    visit_leases("a leader changes", &[Release, Expiry, GoesOn, StalePromise], leases(6, budget));
    let budget = leases::Budget { wishes: 1, ..NO_TROUBLE };
    visit_leases("a free group is wanted", &[EarlyCommit], leases(6, budget));
}

#[test]
fn explore_leases_whose_words_are_late() {
    use leases::Milestone::Expiry;
    let budget = leases::Budget { delays: 1, overtakings: 1, questions: [2, 2], ..NO_TROUBLE };
    visit_leases("words are late", &[Expiry], leases(6, budget));
}

/// Clocks that are wrong by two ticks in all are what those who wait allow for; three are too many.
#[test]
fn explore_leases_on_wrong_clocks() {
    use leases::Milestone::{Expiry, GoesOn};
    let wrong_by = |drifts| leases(6, leases::Budget { drifts, questions: [2, 2], ..NO_TROUBLE });
    visit_leases("clocks are wrong", &[Expiry, GoesOn], wrong_by(2));
    let broken = wrong_by(3).visit().expect_err("nobody waits that long");
    println!("clocks are too wrong: {broken}");
}

/// A server or a guard stands still while the first guard waits for one more promise, and the second one asks for the group.
fn frozen_leases() -> LeaseExploration {
    leases(4, leases::Budget { freezes: 1, questions: [1, 4], ..NO_TROUBLE })
}

#[test]
fn explore_leases_of_the_frozen() {
    use leases::Milestone::Expiry;
    visit_leases("somebody freezes", &[Expiry], frozen_leases());
    let budget = leases::Budget { freezes: 1, questions: [2, 2], ..NO_TROUBLE };
    visit_leases("somebody freezes for long", &[Expiry], leases(6, budget));
    let budget = leases::Budget { freezes: 1, drifts: 1, questions: [1, 1], ..NO_TROUBLE };
    visit_leases("somebody freezes, and a clock is wrong", &[Expiry], leases(5, budget));
}

/// The tester tested.
#[test]
fn explore_leases_finds_planted_bugs() {
    for bug in [Bug::SuccessorDoesNotWait, Bug::LeaseFromAnswer] {
        must_break(bug, LeaseExploration { planted: Planted::the(bug), ..frozen_leases() }.visit());
        tally::add("planted", 1);
    }
}

const NOTHING_WRONG: loans::Budget =
    loans::Budget { crashes: 0, losses: 0, delays: 0, cuts: 0, floods: 0, orders: 0 };

/// Two farms for so many ticks, the first of which has so many workers.
fn loans(workers: usize, ticks: u64, budget: loans::Budget) -> LoanExploration {
    LoanExploration { workers, ticks, budget, milestones: &[], planted: Planted::NONE }
}

fn visit_loans(name: &str, milestones: &'static [loans::Milestone], exploration: LoanExploration) {
    let exploration = LoanExploration { milestones, ..exploration };
    let states = exploration.visit().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    println!("{name}: {states} states");
    tally::add("states", states);
}

/// A leader or a worker dies, and something is lost.
#[test]
fn explore_loans_of_two_workers() {
    use loans::Milestone::{Arrival, BorrowerChange, LenderChange};
    let budget = loans::Budget { crashes: 1, losses: 1, ..NOTHING_WRONG };
    visit_loans("two are lent", &[Arrival, LenderChange, BorrowerChange], loans(2, 2, budget));
}

#[test]
fn explore_loans_until_they_end() {
    use loans::Milestone::{Death, Homecoming};
    let budget = loans::Budget { crashes: 1, losses: 1, ..NOTHING_WRONG };
    visit_loans("one is lent", &[Homecoming, Death], loans(1, 3, budget));
}

#[test]
fn explore_loans_of_the_cut_off() {
    use loans::Milestone::{FalseDeath, LateCall};
    let budget = loans::Budget { cuts: 2, ..NOTHING_WRONG };
    visit_loans("somebody is cut off", &[FalseDeath, LateCall], loans(1, 2, budget));
}

#[test]
fn explore_loans_that_somebody_wants_back() {
    use loans::Milestone::{Homecoming, Recall};
    let budget = loans::Budget { orders: 2, ..NOTHING_WRONG };
    visit_loans("an operator orders", &[Recall, Homecoming], loans(1, 3, budget));
    let budget = loans::Budget { floods: 1, delays: 1, ..NOTHING_WRONG };
    visit_loans("both have too much to do", &[Recall], loans(1, 2, budget));
}

/// The tester tested.
#[test]
fn explore_loans_finds_late_calls_obeyed() {
    find_in_loans(Bug::LateRedirect, 4, loans::Budget { losses: 1, ..NOTHING_WRONG });
}

#[test]
fn explore_loans_finds_workers_taken_back_by_timer() {
    find_in_loans(Bug::TakesBackByTimer, 4, loans::Budget { losses: 1, ..NOTHING_WRONG });
}

#[test]
fn explore_loans_finds_terms_of_two_farms_compared() {
    find_in_loans(Bug::BareTerms, 1, loans::Budget { orders: 1, crashes: 1, ..NOTHING_WRONG });
}

fn find_in_loans(bug: Bug, ticks: u64, budget: loans::Budget) {
    let exploration = loans(1, ticks, budget);
    visit_loans("without the bug", &[], exploration.clone());
    must_break(bug, LoanExploration { planted: Planted::the(bug), ..exploration }.visit());
    tally::add("planted", 1);
}

const ALL_WELL: guests::Budget = guests::Budget { crashes: 0, cuts: 0, doubts: 0, calls: 0 };

/// A farm that has borrowed a worker for so many tasks.
fn guests(tasks: u64, has_own: bool, budget: guests::Budget) -> GuestExploration {
    GuestExploration { tasks, is_once: false, has_own, budget, milestones: &[], planted: Planted::NONE }
}

fn visit_guests(name: &str, milestones: &'static [guests::Milestone], exploration: GuestExploration) {
    let exploration = GuestExploration { milestones, ..exploration };
    let states = exploration.visit().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    println!("{name}: {states} states");
    tally::add("states", states);
}

#[test]
fn explore_guests_and_their_tasks() {
    use guests::Milestone::{LeaderDied, RunsAgain, ToldFromHome, WentBack};
    let budget = guests::Budget { crashes: 1, ..ALL_WELL };
    visit_guests("somebody dies", &[ToldFromHome, RunsAgain, LeaderDied], guests(1, true, budget));
    visit_guests("somebody dies, and there are two tasks", &[WentBack], guests(2, false, budget));
}

#[test]
fn explore_guests_that_are_cut_off() {
    use guests::Milestone::{RunsAgain, ToldFromHome};
    let budget = guests::Budget { doubts: 1, ..ALL_WELL };
    visit_guests("the guest is silent", &[ToldFromHome], guests(1, true, budget));
    let budget = guests::Budget { crashes: 1, cuts: 1, ..ALL_WELL };
    visit_guests("a link breaks, and somebody dies", &[RunsAgain], guests(1, true, budget));
}

#[test]
fn explore_guests_that_are_lent_again() {
    use guests::Milestone::LentAgain;
    let budget = guests::Budget { calls: 1, ..ALL_WELL };
    visit_guests("the guest is lent again", &[LentAgain], guests(1, false, budget));
}

/// Such a task is handed out when the result of the one before it has been told: the guest may have gone by then.
#[test]
fn explore_guests_whose_tasks_must_not_start_twice() {
    let budget = guests::Budget { crashes: 1, ..ALL_WELL };
    let exploration = GuestExploration { is_once: true, ..guests(2, false, budget) };
    visit_guests("two tasks must not start twice", &[guests::Milestone::ToldFromHome], exploration);
}

/// The tester tested.
#[test]
fn explore_guests_finds_tasks_started_twice() {
    let budget = guests::Budget { crashes: 1, ..ALL_WELL };
    let exploration = GuestExploration { is_once: true, ..guests(1, true, budget) };
    visit_guests("without the bug", &[], exploration.clone());
    let bug = Bug::OnceWithoutCommit;
    must_break(bug, GuestExploration { planted: Planted::the(bug), ..exploration }.visit());
    tally::add("planted", 1);
}
