//! A farm whose nodes have a small disk each, which can be filled and emptied.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use super::namespace::Mount;
use super::place::Place;

/// Enough for what these tests keep, and little enough to be filled in a moment. Only its owner can write there.
const SIZE: &str = "size=96m,mode=700";
/// The farm's folder.
pub(crate) const FARM: &str = "farm";

/// The disks, until this value goes.
pub(crate) struct Disks {
    mounted: Vec<Mount>,
}

impl Disks {
    /// A farm of three servers and two workers in the folder [`FARM`] that starts with nothing, on these disks. To be called
    /// inside a namespace of its own.
    pub(crate) fn new(place: &Place) -> Self {
        place.up(&format!("--dir {FARM}")).end();
        let mut disks = Self { mounted: Vec::new() };
        for node in ["server-1", "server-2", "server-3", "w1", "w2"] {
            let folder = place.dir.join(FARM).join(node);
            disks.mounted.push(Mount::new("tmpfs", SIZE, folder).expect("a disk can be mounted"));
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
        let disk = self.mounted.iter().map(Mount::folder).find(|folder| folder.ends_with(node));
        disk.expect("it has a disk").join("filler")
    }
}
