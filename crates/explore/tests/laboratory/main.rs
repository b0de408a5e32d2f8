//! The examples of `docs/laboratory.md`, whole: a machine, its story, its property and its exploration, and the mistake that they
//! find. What the document quotes from any file is compared with that file.

mod document;
mod exploration;
mod numbers_differ;
mod tickets;

use std::path::Path;

use exploration::{Chance, FORGOTTEN, Offices};
use primus_core::ServerId;
use primus_explore::frame::Exploration;
use primus_lab::story::stage::Stage;
use primus_lab::story::{self, bare};
use tickets::{Tickets, Want};

/// A stage for stories of this machine: `cluster tickets 1 2 3`.
fn open(description: &[&str]) -> Result<Box<dyn Stage>, String> {
    let ["tickets", ids @ ..] = description else { return Err("say: cluster tickets 1 2 3".to_owned()) };
    let id = |word: &&str| word.parse().map(ServerId).map_err(|_| format!("{word} is not an id"));
    let ids: Vec<ServerId> = ids.iter().map(id).collect::<Result<_, _>>()?;
    let read = |words: &[&str]| (words == ["want"]).then_some(Want);
    Ok(Box::new(bare::Bare::new(&ids, bare::Rules { make: Tickets::new, read })))
}

#[test]
fn the_story_goes_as_written() {
    let path = Path::new("tests/laboratory/number_lost_in_a_crash.txt");
    story::check_on(path, open).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_wrong_command_is_named() {
    for (command, reason) in [
        ("fly 1", "no such command"),
        ("want", "no such command"),
        ("want 9", "there is no node 9"),
        ("restart 1", "node 1 is alive"),
        ("fire 2 noon", "node 2 has not set its timer noon"),
    ] {
        let text = format!("cluster tickets 1 2 3\n{command}\n");
        let error = story::Story::parse("a.txt", &text).play_on(open).unwrap_err().to_string();
        assert_eq!(error, format!("a.txt:2: {reason}\n    {command}"));
    }
}

#[test]
fn the_exploration_holds_and_forgets_numbers() {
    let exploration = Exploration::new(Offices { is_hasty: false }, [(Chance::Crash, 1)]);
    let states = exploration.by_way_of(&[FORGOTTEN]).visit().unwrap_or_else(|broken| panic!("{broken}"));
    assert!(states > 20, "{states} states are few");
}

#[test]
fn the_exploration_finds_the_planted_mistake() {
    let exploration = Exploration::new(Offices { is_hasty: true }, [(Chance::Crash, 1)]);
    let broken = exploration.visit().expect_err("a number is given twice");
    assert_eq!(broken.property, "numbers differ");
    assert!(document::text().contains(&broken.to_string()), "the document shows another way than this:\n{broken}");
}
