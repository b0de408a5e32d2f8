//! `docs/requirements.md` must stay true: every demand is judged, everything that it names exists and is run by the suite, and every
//! command that it shows runs. The files that `CONTRIBUTING.md` names exist, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many demands each of the five documents makes.
const DEMANDS: [(&str, usize); 5] = [("000", 27), ("001", 29), ("002", 59), ("003", 37), ("004", 26)];
/// What may be left for later.
const LATER: [&str; 4] = ["wire protocol", "clients of the existing system", "image workload", "joining"];
/// Tests that need this are run wherever the host can give it, and nowhere else.
const NEEDS: [&str; 3] = ["needs network namespaces", "needs mount namespaces", "RabbitMQ"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands between backticks, with the table's escapes undone.
fn quoted(text: &str) -> Vec<String> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).map(|word| word.replace("\\|", "|")).collect()
}

/// The rows of all tables under a heading that begins so.
fn rows(heading: &str) -> Vec<Vec<String>> {
    let text = read("docs/requirements.md");
    let sections = text.split("\n## ").filter(|section| section.starts_with(heading));
    let lines = sections.flat_map(str::lines).filter(|line| line.starts_with("| "));
    let cells = |line: &str| {
        let line = line.replace("\\|", "\0");
        let cells = line.trim_matches('|').split('|').map(|cell| cell.trim().replace('\0', "\\|"));
        cells.collect::<Vec<_>>()
    };
    let head = ["#", "what", "document"];
    lines.map(cells).filter(|cells| !head.contains(&cells[0].as_str())).collect()
}

/// A file as the document names it.
fn find(name: &str) -> Option<PathBuf> {
    let name = match name.split_once('/') {
        Some(("stories", _)) => format!("lab/{name}"),
        Some(("tests", _)) => format!("cli/{name}"),
        _ => name.to_owned(),
    };
    [root().join("crates").join(&name), root().join(&name)].into_iter().find(|path| path.exists())
}

fn is_path(word: &str) -> bool {
    word.contains('/') && !word.contains([' ', '…'])
}

/// A test of a file: how it is ignored, if it is. Nothing if there is no such test.
fn look_up(text: &str, test: &str) -> Option<Option<String>> {
    let name = format!("fn {test}(");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.truncate(lines.iter().position(|line| line.contains(&name))?);
    let is_above = |line: &&&str| line.trim().starts_with(['#', '/']);
    let attributes: Vec<&str> = lines.iter().rev().take_while(is_above).copied().collect();
    let is_test = attributes.iter().any(|line| line.contains("#[test]") || line.contains("#[tokio::test"));
    let ignored = attributes.iter().find(|line| line.contains("#[ignore")).map(|line| line.trim().to_owned());
    is_test.then_some(ignored)
}

/// Does this show something whenever the suite runs: a story, a test or a command?
fn shows(word: &str) -> bool {
    match word.split_once("::") {
        Some((path, test)) => {
            let text = find(path).and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
            // ./x test starts the broker for those that need one.
            look_up(&text, test).is_some_and(|mark| mark.is_none_or(|mark| mark.contains("RabbitMQ")))
        }
        None => word.starts_with("stories/") || word.starts_with("primus ") && !word.contains("--help"),
    }
}

/// Words as a shell would split them: single quotes hold a word together.
fn words(command: &str) -> Vec<String> {
    let pieces = command.split('\'').enumerate();
    let split = pieces.flat_map(|(place, piece)| match place % 2 {
        0 => piece.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
        _ => vec![piece.to_owned()],
    });
    split.collect()
}

#[test]
fn every_demand_is_judged_and_shown() {
    for (document, count) in DEMANDS {
        let rows = rows(document);
        let numbers: Vec<String> = rows.iter().map(|row| row[0].clone()).collect();
        let expected: Vec<String> = (1..=count).map(|number| format!("{document}.{number}")).collect();
        assert_eq!(numbers, expected, "every demand once, in order");
        for row in rows {
            let [number, _, judgement, shown] = row.as_slice() else { panic!("four columns: {row:?}") };
            let is_later = judgement.starts_with("*later*");
            let is_judged = is_later || judgement.starts_with("met") || judgement.contains(": met");
            assert!(is_judged || judgement.starts_with("different: "), "{number}: {judgement}");
            let may_wait = LATER.iter().any(|what| judgement.contains(what));
            assert!(!judgement.contains("later*") || may_wait, "{number}: {judgement} may not be left for later");
            assert!(
                is_later || quoted(shown).iter().any(|word| shows(word)),
                "{number} is shown by nothing: {shown}"
            );
        }
    }
    for row in rows("Beyond the documents") {
        assert!(quoted(&row[1]).iter().any(|word| shows(word)), "{row:?} is shown by nothing");
    }
}

#[test]
fn every_path_and_every_test_exists_and_is_run() {
    let named: Vec<String> =
        quoted(&read("docs/requirements.md")).into_iter().filter(|word| is_path(word)).collect();
    assert!(named.len() > 150, "the requirements name many files, not {}", named.len());
    for name in named {
        let (path, test) = name.split_once("::").map_or((name.as_str(), None), |(path, test)| (path, Some(test)));
        let full = find(path).unwrap_or_else(|| panic!("{path} does not exist"));
        if let Some(test) = test {
            let text = fs::read_to_string(&full).expect("a text file");
            let ignored = look_up(&text, test).unwrap_or_else(|| panic!("{path} has no test {test}"));
            let is_run = ignored.as_ref().is_none_or(|why| NEEDS.iter().any(|need| why.contains(need)));
            assert!(is_run, "{name} is not run: {ignored:?}");
        }
    }
}

#[test]
fn every_test_that_can_be_called_by_cargo_exists() {
    let commands = quoted(&read("docs/requirements.md")).into_iter().filter(|word| word.starts_with("cargo "));
    for command in commands {
        let words = words(&command);
        let after = |flag: &str| words.iter().skip_while(|word| *word != flag).nth(1).cloned();
        let (package, file) = (after("-p").expect("a package"), after("--test").expect("a test program"));
        let is_package = |path: &PathBuf| {
            let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
            manifest.contains(&format!("name = \"{package}\""))
        };
        let folders =
            fs::read_dir(root().join("crates")).expect("there are crates").flatten().map(|entry| entry.path());
        let folder =
            folders.into_iter().find(is_package).unwrap_or_else(|| panic!("there is no package {package}"));
        let text = fs::read_to_string(folder.join(format!("tests/{file}.rs"))).expect("the test program exists");
        let name = words.last().filter(|word| **word != file);
        let is_there = name.is_none_or(|name| look_up(&text, name) == Some(None));
        assert!(is_there, "{command} runs nothing");
    }
}

#[test]
fn every_command_runs() {
    // What is named in other columns does something; what is named in the last one shows it by itself.
    let shown = DEMANDS.iter().flat_map(|(document, _)| rows(document)).chain(rows("Beyond"));
    let words_shown = shown.filter_map(|mut row| row.pop()).flat_map(|cell| quoted(&cell));
    let commands: Vec<String> = words_shown.filter(|word| word.starts_with("primus ")).collect();
    assert!(commands.len() > 30, "the requirements show many commands, not {}", commands.len());
    for command in commands {
        assert!(!command.contains("--help"), "{command} shows nothing");
        let done =
            Command::new(env!("CARGO_BIN_EXE_primus")).args(&words(&command)[1..]).output().expect("primus starts");
        let complaint = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command} ended with {}: {complaint}", done.status);
    }
}

/// Python's style guide, type hints and docstrings have counterparts here, and warnings are errors.
#[test]
fn the_counterparts_of_pep_8_are_switched_on() {
    let (manifest, checks) = (read("Cargo.toml"), read("x"));
    for lint in ["missing_docs", "unsafe_code", "clippy"] {
        assert!(manifest.contains(lint), "{lint}");
    }
    assert!(
        checks.contains("cargo fmt --all --check") && checks.contains("clippy") && checks.contains("-D warnings")
    );
}

#[test]
fn the_instructions_for_rings_name_commands_that_exist() {
    let text = read("docs/ring.md");
    for command in ["setup", "run", "node", "status", "start"] {
        let is_there = |word: &&str| text.contains(&format!("primus ring {word}"));
        let Some(command) = Some(command).filter(is_there) else {
            panic!("docs/ring.md does not tell of {command}")
        };
        let help = Command::new(env!("CARGO_BIN_EXE_primus")).args(["ring", command, "--help"]).output().unwrap();
        assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("Examples:"), "{command}");
    }
}

/// A newcomer finds every file that CONTRIBUTING.md names as an answer.
#[test]
fn the_answers_of_contributing_are_there() {
    let text = read("CONTRIBUTING.md");
    let (_, rest) = text.split_once("\n## Where is it?\n").expect("the section is there");
    let (section, _) = rest.split_once("\n## ").expect("another one follows");
    let answers = section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| question"));
    let answers: Vec<Vec<String>> = answers.map(quoted).collect();
    assert_eq!(answers.len(), 10, "ten questions");
    for paths in answers {
        let first = paths.first().expect("an answer names a file");
        let mut folder = root().join(first);
        for path in &paths {
            // A bare name stands for a file beside the one before.
            let full = if path.contains('/') { root().join(path) } else { folder.with_file_name(path) };
            assert!(full.exists(), "CONTRIBUTING.md names {path}, which does not exist");
            folder = full;
        }
    }
}
