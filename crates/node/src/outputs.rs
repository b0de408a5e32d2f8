//! The full outputs of a worker's tasks: files under one folder, the oldest finished ones deleted when there are too many.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use primus_core::ledger::Held;
pub use primus_wire::work::Stream;

use crate::private;

/// However short a file is, a disk gives it this much.
const FILE_LEN_MIN: u64 = 4096;

/// The folder and what is in it. What still runs is not counted: it is bounded by slots and the limit of a task.
#[derive(Debug)]
pub(crate) struct Outputs {
    directory: PathBuf,
    quota: u64,
    /// Names without stream and their lengths, the oldest first.
    finished: VecDeque<(String, u64)>,
    total: u64,
}

impl Outputs {
    /// Makes the folder if it is missing. What is in it belongs to tasks that have ended.
    pub(crate) fn open(directory: PathBuf, quota: u64) -> io::Result<Self> {
        private::own_folder(&directory)?;
        let mut found: Vec<(SystemTime, String, u64)> = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let (name, about) = (entry.file_name(), entry.metadata()?);
            if let Some((stem, "stdout" | "stderr")) = name.to_str().and_then(|name| name.rsplit_once('.')) {
                found.push((about.modified()?, stem.to_owned(), about.len()));
            }
        }
        found.sort();
        let mut outputs = Self { directory, quota, finished: VecDeque::new(), total: 0 };
        found.into_iter().for_each(|(_, stem, length)| outputs.add(stem, length));
        Ok(outputs)
    }

    /// A task has ended and left this much.
    pub(crate) fn add(&mut self, stem: String, length: u64) {
        let length = length.max(FILE_LEN_MIN);
        self.total += length;
        self.finished.push_back((stem, length));
        while self.total > self.quota {
            let Some((oldest, length)) = self.finished.pop_front() else { return };
            self.total -= length;
            for stream in [Stream::Stdout, Stream::Stderr] {
                // It may have had only one of them.
                _ = fs::remove_file(self.directory.join(file_name(&oldest, stream)));
            }
        }
    }
}

/// How the files of an attempt's output begin.
pub(crate) fn stem(held: Held) -> String {
    format!("{}-{}", held.task, held.attempt)
}

fn file_name(stem: &str, stream: Stream) -> String {
    match stream {
        Stream::Stdout => format!("{stem}.stdout"),
        Stream::Stderr => format!("{stem}.stderr"),
    }
}

/// Reads a part of an attempt's full output, up to `len_max` bytes from `offset`; empty at its end. Nothing if there is no
/// such file: then the output was short and is in the result, is still to come, or was deleted for want of room.
///
/// # Errors
/// What the system says.
pub fn read(
    outputs: &Path,
    held: Held,
    stream: Stream,
    offset: u64,
    len_max: usize,
) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(outputs.join(file_name(&stem(held), stream))) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(len_max as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
