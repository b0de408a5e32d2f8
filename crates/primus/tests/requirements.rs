//! `docs/requirements.md` must stay true: every file and test that it names exists, and every command that it shows runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Everything between backticks, with the table's escapes undone.
fn quoted() -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/requirements.md")).expect("the requirements can be read");
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).map(|word| word.replace("\\|", "|")).collect()
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
fn every_path_and_every_test_exists() {
    let named: Vec<String> =
        quoted().into_iter().filter(|word| word.contains('/') && !word.contains(' ')).collect();
    assert!(named.len() > 50, "the requirements name many files, not {}", named.len());
    for name in named {
        let (path, test) = name.split_once("::").map_or((name.as_str(), None), |(path, test)| (path, Some(test)));
        let full = root().join(path);
        assert!(full.exists(), "{path} does not exist");
        if let Some(test) = test {
            let text = fs::read_to_string(&full).expect("a text file");
            assert!(text.contains(&format!("fn {test}(")), "{path} has no {test}");
        }
    }
}

#[test]
fn every_command_runs() {
    let commands: Vec<String> = quoted().into_iter().filter(|word| word.starts_with("primus ")).collect();
    assert!(commands.len() > 30, "the requirements show many commands, not {}", commands.len());
    for command in commands {
        let done =
            Command::new(env!("CARGO_BIN_EXE_primus")).args(&words(&command)[1..]).output().expect("primus starts");
        let complaint = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{command} ended with {}: {complaint}", done.status);
    }
}
