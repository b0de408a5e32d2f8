//! Tests that change what all processes share, networks and mounts, do so in a namespace of their own. Nothing outside is
//! touched, and nothing needs to be tidied up: a namespace goes when its last process ends. But a folder in which something is
//! mounted cannot be removed, so mounts go before their test ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Set for the test that runs inside.
const INSIDE: &str = "PRIMUS_INSIDE_A_NAMESPACE";

/// Runs the test of this name again, inside a namespace of this kind (`--net`, `--mount`), or does what it is about if this
/// is inside.
pub(crate) fn inside(kind: &str, test: &str, act: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return act();
    }
    // One at a time: ten servers on a small host would test the host.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut command = Command::new("unshare");
    command.arg(kind).args((!rustix::process::geteuid().is_root()).then_some("--map-root-user"));
    // It must not survive this process.
    command.args(["setpriv", "--pdeathsig", "KILL"]);
    command.arg(std::env::current_exe().expect("a test knows its program"));
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(INSIDE, "1");
    let ran = command.output().expect("there is an unshare");
    let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    println!("{stdout}{stderr}");
    assert!(ran.status.success() && stdout.contains(" 1 passed;"), "{test} failed inside its namespace");
}

/// Something that is mounted on a folder until this value goes.
pub(crate) struct Mount(PathBuf);

impl Mount {
    /// Mounts a file system of this kind. Nothing if the system does not allow that.
    pub(crate) fn new(kind: &str, options: &str, folder: PathBuf) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, kind]).arg(&folder);
        mount.status().expect("there is a mount").success().then_some(Self(folder))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // What is still used goes when nobody uses it any more.
        _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
