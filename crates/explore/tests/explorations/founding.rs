//! Three servers that found a cluster.

use primus_core::ServerId;
use primus_core::planted::{Bug, Planted};
use primus_explore::founding::Chance::{self, Alone, Crash, Edit, Late, Wipe};
use primus_explore::founding::{
    AGREED_AGAIN, AGREED_CRASHED, ALL_FOUNDED, EMPTY_CRASHED, FOUNDED_CRASHED, LATE_WORD, LISTS_DIFFERED, REFUSED,
    Servers, WRITER_CRASHED,
};
use primus_explore::frame::{Budget, Exploration};

use super::{must_break, visit};

const SERVERS: Servers =
    Servers { have_agreed: false, have_edited: false, are_old: false, absent: None, planted: Planted::NONE };
const AGREED: Servers = Servers { have_agreed: true, ..SERVERS };
const EDITED: Servers = Servers { have_edited: true, ..AGREED };
const OLD: Servers = Servers { are_old: true, ..SERVERS };

fn servers(setting: Servers, budget: impl Into<Budget<Chance>>) -> Exploration<Servers> {
    Exploration::new(setting, budget)
}

#[test]
fn explore_founding_without_trouble() {
    visit("nothing happens", servers(SERVERS, []), &[ALL_FOUNDED]);
}

#[test]
fn explore_founding_with_crashes() {
    let phases = &[EMPTY_CRASHED, AGREED_CRASHED, FOUNDED_CRASHED, WRITER_CRASHED];
    visit("a process dies", servers(SERVERS, [(Crash, 1)]), phases);
    visit("processes die that have agreed", servers(AGREED, [(Crash, 2)]), &[ALL_FOUNDED, FOUNDED_CRASHED]);
}

#[test]
fn explore_founding_with_lost_disks() {
    let milestones = &[ALL_FOUNDED, REFUSED, AGREED_AGAIN];
    visit("a disk is lost", servers(SERVERS, [(Wipe, 1)]), milestones);
    visit("a disk is lost, and a process dies", servers(SERVERS, [(Wipe, 1), (Crash, 1)]), &[]);
    visit("two disks are lost", servers(AGREED, [(Wipe, 2)]), &[AGREED_AGAIN, REFUSED]);
}

/// Words of dead processes arrive after those of living ones.
#[test]
fn explore_founding_with_late_words() {
    visit("a word of a lost disk is late", servers(AGREED, [(Wipe, 1), (Late, 1)]), &[LATE_WORD, AGREED_AGAIN]);
    visit("a word is late after a crash", servers(SERVERS, [(Crash, 1), (Late, 1)]), &[LATE_WORD]);
}

#[test]
fn explore_founding_with_other_lists() {
    visit("a list is edited", servers(SERVERS, [(Edit, 1)]), &[LISTS_DIFFERED]);
    visit("a list is edited, and a disk is lost", servers(AGREED, [(Edit, 1), (Wipe, 1)]), &[AGREED_AGAIN]);
    visit("two lists were edited", servers(EDITED, [(Wipe, 1), (Crash, 1)]), &[LISTS_DIFFERED]);
    visit("lists are edited", servers(AGREED, [(Edit, 2)]), &[ALL_FOUNDED]);
}

#[test]
fn explore_founding_alone() {
    visit("one founds alone", servers(SERVERS, [(Alone, 1), (Crash, 1)]), &[EMPTY_CRASHED]);
    visit("one founds alone, and a list is edited", servers(AGREED, [(Alone, 1), (Edit, 1)]), &[ALL_FOUNDED]);
}

#[test]
fn explore_founding_with_old_data() {
    visit("old data", servers(OLD, [(Wipe, 1), (Crash, 1)]), &[ALL_FOUNDED, REFUSED]);
    let two = Servers { absent: Some(ServerId(3)), ..OLD };
    visit("old data, and one host is dead", servers(two, [(Crash, 2)]), &[AGREED_CRASHED]);
}

/// Nothing happens in circles: servers that agree again do not do so for ever.
#[test]
fn explore_founding_ends() {
    assert_eq!(servers(SERVERS, [(Wipe, 1)]).find_circle(), None);
}

#[test]
fn explore_founding_finds_planted_bugs() {
    find(Bug::OnePhaseFounding, SERVERS, [(Wipe, 1)]);
    find(Bug::FoundingSaidBeforeDurable, SERVERS, [(Wipe, 1), (Crash, 1)]);
    find(Bug::AgreesAgainUnheard, AGREED, [(Alone, 1)]);
    find(Bug::AgreesAgainUnheard, EDITED, [(Wipe, 1)]);
}

fn find(bug: Bug, opening: Servers, budget: impl Into<Budget<Chance>>) {
    let setting = Servers { planted: Planted::the(bug), ..opening };
    must_break(bug, servers(setting, budget).visit());
}
