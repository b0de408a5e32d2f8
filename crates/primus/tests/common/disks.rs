//! A farm whose nodes have a small disk each, which can be filled and emptied.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use super::place::Place;

/// Enough for what these tests keep, and little enough to be filled in a moment. Only its owner can write there.
const SIZE: &str = "size=96m,mode=700";
/// The farm's folder.
pub(crate) const FARM: &str = "farm";

/// The disks, until this value goes.
pub(crate) struct Disks {
    mounted: Vec<PathBuf>,
}

impl Disks {
    /// A farm of three servers and two workers in the folder [`FARM`] that starts with nothing, on these disks. To be called
    /// inside a namespace of its own.
    pub(crate) fn new(place: &Place) -> Self {
        place.up(&format!("--dir {FARM}")).end();
        let mut disks = Self { mounted: Vec::new() };
        for node in ["server-1", "server-2", "server-3", "w1", "w2"] {
            let folder = place.dir.join(FARM).join(node);
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(&folder);
            assert!(mount.status().expect("there is a mount").success(), "{mount:?}");
            disks.mounted.push(folder);
        }
        disks
    }

    /// Leaves no room on this node's disk.
    pub(crate) fn fill(&self, node: &str) {
        let mut filler = OpenOptions::new().create(true).append(true).open(self.filler(node)).expect("it opens");
        // The last pieces are small, so that really nothing is left.
        for len in [1 << 20, 4096] {
            while filler.write_all(&vec![1; len]).is_ok() {}
        }
    }

    /// Makes room again.
    pub(crate) fn empty(&self, node: &str) {
        fs::remove_file(self.filler(node)).expect("it was filled");
    }

    fn filler(&self, node: &str) -> PathBuf {
        let folder = self.mounted.iter().find(|folder| folder.ends_with(node)).expect("it has a disk");
        folder.join("filler")
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for folder in &self.mounted {
            // What is still used goes when nobody uses it any more.
            _ = Command::new("umount").arg("--lazy").arg(folder).status();
        }
    }
}
