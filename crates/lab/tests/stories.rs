//! Plays every story under `stories/`. `PRIMUS_REWRITE=1` writes down how they go now.

use std::path::{Path, PathBuf};

use primus_lab::{story, tally};

/// All text files below a folder, in order.
fn find_stories(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder of stories can be read");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("its entries can be read").path()).collect();
    paths.sort();
    paths.into_iter().flat_map(|path| if path.is_dir() { find_stories(&path) } else { vec![path] }).collect()
}

fn stories() -> Vec<PathBuf> {
    // Relative to the crate, where cargo runs tests: failures then name short paths.
    find_stories(Path::new("stories"))
}

#[test]
fn every_story_goes_as_written() {
    let stories = stories();
    let failures: Vec<_> = stories.iter().filter_map(|path| story::check(path).err()).collect();
    let report: String = failures.iter().map(|failure| format!("\n{failure}\n")).collect();
    assert!(failures.is_empty(), "{} of {} stories failed:\n{report}", failures.len(), stories.len());
    tally::add("stories", stories.len());
}

#[test]
fn every_story_opens_with_what_must_happen_and_why() {
    for path in stories() {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("# "),
            "{} must open with a comment: its source, what must happen, why",
            path.display()
        );
    }
}
