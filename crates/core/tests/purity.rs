//! The crate must stay pure: `no_std` outside its tests, and free of whatever differs from run to run. The compiler and
//! `clippy.toml` enforce most of it; this test notices when somebody turns them off.

use std::fs;
use std::path::Path;

fn sources(folder: &Path, into: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).expect("the crate's sources can be read") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, into);
        } else {
            into.push((path.display().to_string(), fs::read_to_string(&path).expect("a text file")));
        }
    }
}

#[test]
fn no_source_reaches_for_std_outside_its_tests() {
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
    assert!(all.len() > 5, "the sources were found");
    for (path, text) in all {
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for forbidden in
            ["std::collections", "std::time", "std::thread", "std::net", "std::fs", "HashMap", "HashSet", "f32"]
        {
            assert!(!product.contains(forbidden), "{path} uses {forbidden}");
        }
    }
}

#[test]
fn the_crate_is_no_std_and_its_lints_are_in_force() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lib = fs::read_to_string(root.join("src/lib.rs")).expect("lib.rs");
    assert!(lib.contains("#![no_std]") && lib.contains("#[cfg(test)]\nextern crate std;"));
    let lints = fs::read_to_string(root.join("clippy.toml")).expect("clippy.toml");
    for named in ["HashMap", "Instant", "SystemTime", "TcpStream", "thread::spawn"] {
        assert!(lints.contains(named), "clippy.toml forbids {named}");
    }
}
