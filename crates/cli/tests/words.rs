//! What people read says plainly what it says: help texts, errors, events and documents hold to a list of words that make a reader
//! from another country read twice.

use std::fs;
use std::path::{Path, PathBuf};

/// Words that have a plainer one.
const FORBIDDEN: [&str; 4] = ["whoever", "whomever", "nobody", "lest"];
/// Those whose texts people see. The machines' own are words of traces and stories.
const CRATES: [&str; 11] =
    ["api", "bench", "cli", "client", "facade", "local", "node", "ring", "shapes", "simulate", "terminal"];
const DOCUMENTS: [&str; 4] = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "docs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below that end so.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    if folder.is_file() {
        return vec![folder.to_owned()];
    }
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("it can be read").path());
    let below = |path: PathBuf| if path.is_dir() { files(&path, ending) } else { vec![path] };
    entries.flat_map(below).filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

/// What is wrong with a text: a word of the list, or `is no` where `is not a` or `does not exist` is plainer.
fn fault(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let single = words.iter().find(|word| FORBIDDEN.contains(word)).map(ToString::to_string);
    single.or_else(|| {
        let is_bad =
            |three: &&[&str]| matches!(three, ["is" | "are" | "was" | "were", "no", next] if *next != "longer");
        words.windows(3).find(is_bad).map(|three| three.join(" "))
    })
}

/// The string literals of a source, but for tests, comments, and what a broken invariant says; with them comments that are help
/// texts, if `has_help`.
fn texts(source: &str, has_help: bool) -> Vec<String> {
    let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
    let (mut texts, mut rest) = (Vec::new(), shipped);
    while let Some(place) = rest.find(['"', '/', '\'']) {
        let (before, from) = rest.split_at(place);
        if from.starts_with("//") {
            let (comment, after) = from.split_once('\n').unwrap_or((from, ""));
            texts.extend(comment.strip_prefix("///").filter(|_| has_help).map(str::to_owned));
            rest = after;
        } else if let Some(after) = from.strip_prefix("'\"'") {
            rest = after;
        } else if let Some(text) = from.strip_prefix('"') {
            let (text, after) = literal(before, text);
            let calls = ["expect(", "panic!(", "assert!(", "unreachable!("];
            texts.extend((!calls.iter().any(|call| before.ends_with(call))).then(|| text.to_owned()));
            rest = after;
        } else {
            rest = &from[1..];
        }
    }
    texts
}

/// A literal up to its end, and what follows.
fn literal<'a>(before: &str, text: &'a str) -> (&'a str, &'a str) {
    let hashes = before.len() - before.trim_end_matches('#').len();
    if before.trim_end_matches('#').ends_with('r') {
        return text.split_once(&format!("\"{}", "#".repeat(hashes))).unwrap_or((text, ""));
    }
    let mut is_escaped = false;
    let end = text.bytes().position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or((text, ""), |end| (&text[..end], &text[end + 1..]))
}

#[test]
fn texts_for_people_are_plain() {
    let mut faults = Vec::new();
    for name in CRATES {
        for file in files(&root().join("crates").join(name).join("src"), ".rs") {
            let path = file.to_string_lossy().into_owned();
            if path.ends_with("/tests.rs") || path.contains("/tests/") {
                continue;
            }
            let source = fs::read_to_string(&file).expect("it is text");
            let texts = texts(&source, path.contains("/args"));
            faults.extend(texts.iter().filter_map(|text| Some(format!("{path}: {}: {text}", fault(text)?))));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn documents_are_plain() {
    let mut faults = Vec::new();
    for file in DOCUMENTS.iter().flat_map(|name| files(&root().join(name), ".md")) {
        let text = fs::read_to_string(&file).expect("it is text");
        // What stands in code is called so elsewhere; its names and texts have tests of their own.
        let prose = text.split('`').step_by(2).collect::<Vec<_>>().join(" x ");
        faults.extend(fault(&prose).map(|fault| format!("{}: {fault}", file.display())));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_list_finds_what_it_must_find() {
    for text in ["Whoever asks", "there is no farm", "a is no number", "nobody leads", "lest it fails"] {
        assert!(fault(text).is_some(), "{text}");
    }
    for text in ["it is no longer there", "it is not a number", "no such farm exists", "the farm has no jobs"] {
        assert_eq!(fault(text), None, "{text}");
    }
    let source = "/// nobody\nlet a = '\"'; let b = \"one \\\" two\"; // \"nobody\"\nlet c = r#\"a \"b\" c\"#;\n\
                  x.expect(\"nobody\"); #[cfg(test)] \"nobody\"";
    assert_eq!(texts(source, false), ["one \\\" two", "a \"b\" c"]);
    assert_eq!(texts(source, true)[0], " nobody");
}
