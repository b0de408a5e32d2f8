//! How much a user of the library has to know: the names that the crate gives away, counted in its source.

use std::fs;
use std::path::Path;

/// More names than this are too many to learn.
const ITEMS_MAX: usize = 40;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("a source file")
}

/// The names behind `pub use`, one or several, and other public items that stand at the beginning of a line.
fn items(source: &str) -> Vec<String> {
    let public = source.split("\npub ").skip(1);
    let names = |item: &str| -> Vec<String> {
        let head = item.split([';', '(']).next().unwrap_or_default();
        let mut words = head.split([' ', '<', ':', '\n']);
        match words.next() {
            Some("use") => {
                let path = head.trim_start_matches("use ");
                let last = path.split_once('{').map_or_else(|| path.rsplit("::").next(), |(_, names)| Some(names));
                let names =
                    last.unwrap_or_default().trim_end_matches('}').split(',').map(|name| name.trim().to_owned());
                names.filter(|name| !name.is_empty()).collect()
            }
            Some("mod") => Vec::new(),
            Some(_) => words.next().map(str::to_owned).into_iter().collect(),
            None => Vec::new(),
        }
    };
    public.flat_map(names).collect()
}

#[test]
fn the_library_has_few_names() {
    let (all, modules) = (read("src/lib.rs"), read("src/lib.rs").matches("\npub mod ").count());
    assert_eq!(modules, 1, "another public module must be counted here, too");
    let names: Vec<String> = items(&all).into_iter().chain(items(&read("src/election.rs"))).collect();
    for expected in ["Server", "JobHandle", "WorkerEvents", "companion", "ServerId", "Trial", "Election"] {
        assert!(names.iter().any(|name| name == expected), "{expected} is not counted: {names:?}");
    }
    assert!((30..=ITEMS_MAX).contains(&names.len()), "{}: {names:?}", names.len());
}

/// A conversion from a type of another crate of primus would show that type to all who read the documentation.
#[test]
fn no_conversion_shows_a_type_of_the_crates_below() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let text = fs::read_to_string(&entry).expect("a text");
            for line in text.lines().filter(|line| line.starts_with("impl From<")) {
                // What went wrong is a type of the crate's own that is not public.
                assert!(line.contains("Trouble"), "{}: {line}", entry.display());
                count += 1;
            }
        }
    }
    assert!(count > 0, "the test looks at nothing");
}

#[test]
fn examples_need_no_other_crate_of_primus() {
    let examples =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).expect("there are examples");
    let mut count = 0;
    for example in examples.map(|example| example.expect("a file").path()) {
        let text = fs::read_to_string(&example).expect("a text");
        let tests = read("tests/examples.rs");
        let name = example.file_stem().and_then(|name| name.to_str()).expect("a name");
        assert!(
            tests.contains(&format!("{name}::run()")) || tests.contains(&format!("`{name}`")),
            "{name} is not run"
        );
        for word in
            text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.starts_with("primus_"))
        {
            assert_eq!(word, "primus_farm", "{}", example.display());
        }
        count += 1;
    }
    assert!(count >= 5, "{count}");
}
