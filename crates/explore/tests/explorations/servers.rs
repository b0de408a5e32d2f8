//! Three whole servers on models of the log, so many steps deep.

use primus_core::election;
use primus_core::planted::{Bug, Planted};
use primus_explore::frame::{Budget, Exploration};
use primus_explore::servers::Chance::{self, Crash, Doubt, Loss, Proposal, Restart, Stall, Tick, Timeout};
use primus_explore::servers::{COMMITTED, CORRECTED, ELECTED, JUMPED_IN, LOST_WRITES, Opening, SURVIVED, Servers};
use primus_server::control::Timer;

use super::{must_break, visit};

fn servers(opening: Opening, depth_max: usize, budget: impl Into<Budget<Chance>>) -> Exploration<Servers> {
    let setting = Servers { opening, early: &[], planted: Planted::NONE };
    Exploration { depth_max: Some(depth_max), ..Exploration::new(setting, budget) }
}

#[test]
fn explore_servers_whose_leader_dies() {
    let deaths = servers(Opening::Calm, 20, [(Crash, 1), (Proposal, 1), (Timeout, 1)]);
    visit("leader dies", deaths, &[ELECTED, COMMITTED]);
    let losses = servers(Opening::Calm, 20, [(Crash, 1), (Loss, 1), (Timeout, 2)]);
    visit("a message is lost", losses, &[ELECTED]);
}

#[test]
fn explore_servers_that_suspect_a_live_leader() {
    visit("one doubts", servers(Opening::Calm, 12, [(Doubt, 1), (Tick, 2), (Timeout, 2)]), &[SURVIVED]);
    visit("two doubt", servers(Opening::Calm, 9, [(Doubt, 2), (Tick, 1)]), &[ELECTED]);
}

#[test]
fn explore_servers_that_come_back() {
    let returns = servers(Opening::Calm, 10, [(Crash, 1), (Restart, 1), (Stall, 1), (Proposal, 1)]);
    visit("comes back", returns, &[COMMITTED, ELECTED, LOST_WRITES]);
}

/// The best-ranked knows less than another: that one jumps in, leads, and gives way once.
#[test]
fn explore_servers_that_jump_in() {
    let behind = servers(Opening::BestKnowsLess, 40, [(Timeout, 3), (Tick, 1)]);
    visit("jumps in", behind, &[JUMPED_IN, CORRECTED]);
}

/// The way to the scenes in which counting an older term's entry, or voting twice, would do harm. Whoever starts up or asks
/// again does not wait there until all messages have arrived.
fn figure_8(planted: Planted) -> Exploration<Servers> {
    const EARLY: &[Timer] = &[Timer::Election(election::Timer::Startup), Timer::Retry];
    let setting = Servers { opening: Opening::Figure8, early: EARLY, planted };
    Exploration { depth_max: Some(15), ..Exploration::new(setting, [(Crash, 1), (Restart, 1), (Timeout, 2)]) }
}

#[test]
fn explore_servers_in_figure_8() {
    visit("figure 8", figure_8(Planted::NONE), &[ELECTED]);
}

#[test]
fn explore_servers_finds_planted_bugs() {
    for bug in [Bug::VotesTwice, Bug::CommitsByCountingOldTerms] {
        must_break(bug, figure_8(Planted::the(bug)).visit());
    }
}
