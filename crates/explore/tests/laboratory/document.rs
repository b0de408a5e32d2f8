//! What `docs/laboratory.md` quotes must be in the files that it quotes from.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The document.
pub(crate) fn text() -> String {
    read("docs/laboratory.md")
}

/// Every block that comes right after a line `From [name](path):`, with that path.
fn quotations(text: &str) -> Vec<(String, String)> {
    let mut quotations = Vec::new();
    for part in text.split("From [").skip(1) {
        let (_, rest) = part.split_once("](").expect("a link");
        let (path, rest) = rest.split_once("):\n").expect("a path, and nothing else in this line");
        let (_, block) = rest.split_once("```").filter(|(before, _)| before.trim().is_empty()).expect("a block");
        let (block, _) = block.split_once("\n```").expect("the end of the block");
        let (_, block) = block.split_once('\n').expect("its language");
        quotations.push((path.trim_start_matches("../").to_owned(), block.to_owned()));
    }
    quotations
}

/// Lines of code without their indentation; a line `…` stands for lines that are left out.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn every_quotation_is_in_its_file() {
    let quotations = quotations(&text());
    assert!(quotations.len() >= 9, "{} quotations are few", quotations.len());
    for (path, block) in quotations {
        let file = read(&path);
        let mut rest = lines(&file).join("\n");
        for piece in lines(&block).split(|line| *line == "…") {
            let piece = piece.join("\n");
            let place = rest.find(&piece).unwrap_or_else(|| panic!("{path} has nothing like this:\n{piece}"));
            rest = rest.split_off(place + piece.len());
        }
    }
}

#[test]
fn every_file_that_is_named_exists() {
    let text = text();
    let links = text.split("](").skip(1).filter_map(|part| part.split_once(')')).map(|(link, _)| link);
    let mut paths: Vec<&str> = links.filter(|link| !link.contains("://") && !link.starts_with('#')).collect();
    paths.retain(|path| !path.is_empty());
    assert!(paths.len() > 10, "{} links are few", paths.len());
    for path in paths {
        let (path, _) = path.split_once('#').unwrap_or((path, ""));
        assert!(root().join("docs").join(path).exists(), "docs/laboratory.md names {path}, which does not exist");
    }
}
