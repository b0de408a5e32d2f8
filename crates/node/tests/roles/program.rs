//! The other processes of this crate's tests: a companion, a worker, and users of a store that die, fill their disk or lack
//! rights. The first argument says which.
//!
//! It is a program of its own, so that no test has to be one: a test that plays a role asserts nothing when it is run by name.

#![expect(clippy::unwrap_used, reason = "what fails in a role fails its test")]

#[path = "../common/mod.rs"]
mod common;
#[allow(dead_code, reason = "the tests of the store use the rest")]
#[path = "../store/scratch.rs"]
mod scratch;
#[allow(dead_code, reason = "the tests of tasks use the rest")]
#[path = "../tasks/stage.rs"]
mod stage;
mod store;
mod worker;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use primus_node::companion;
use primus_node::companion::limited;

fn main() -> ExitCode {
    let words: Vec<OsString> = env::args_os().skip(1).collect();
    let (role, rest) = words.split_first().expect("the first argument is a role");
    let dir = || Path::new(rest.first().expect("the second argument is a folder"));
    match role.to_str().unwrap() {
        "companion" => companion::run().unwrap(),
        "limit" => return limited::exec(rest).into(),
        "worker" => worker::run(dir()),
        "writer" => store::write_until_killed(dir()),
        "filler" => store::fill_the_disk(dir()),
        "waiter" => store::wait_for_room(dir()),
        "refused" => store::is_refused(dir()),
        other => panic!("{other} is not a role"),
    }
    ExitCode::SUCCESS
}

/// Where this program is.
fn program() -> PathBuf {
    env::current_exe().expect("a program knows where it is")
}
