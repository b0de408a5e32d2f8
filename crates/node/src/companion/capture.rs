//! What a task prints: its end in memory, the first part in a file, the rest counted and dropped.
//!
//! The pipe is always read, however much comes, so a task that prints without end neither blocks nor fills a disk. A short
//! task that prints little never touches the disk: its output fits into its result. A file is made once there is more, or
//! when somebody may want to see what a longer task has printed so far.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use primus_core::ledger::Tail;

use crate::private;

/// A task that runs longer than this after it printed something has that in a file, for people who follow it.
const SHOWN_AFTER_US: u64 = 20_000;
/// How much is read after the task has ended. More can only come from processes that left its group.
const LATE_LEN_MAX: usize = 1 << 20;

/// One stream of one task.
#[derive(Debug)]
pub(super) struct Capture {
    /// Nothing once the stream has ended.
    pipe: Option<File>,
    path: PathBuf,
    file: Kept,
    total: u64,
    /// The end of the stream, and up to as much again before it.
    last: Vec<u8>,
    first_at_us: u64,
}

#[derive(Debug)]
enum Kept {
    InMemory,
    InFile(File, u64),
    /// The disk would not have it.
    Nowhere,
}

impl Capture {
    pub(super) fn new(pipe: OwnedFd, path: PathBuf) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let pipe = Some(File::from(pipe));
        Ok(Self { pipe, path, file: Kept::InMemory, total: 0, last: Vec::new(), first_at_us: 0 })
    }

    pub(super) fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is there, once; gives back how much that was. `room` is what may still be kept of this task's output.
    pub(super) fn read(&mut self, buffer: &mut [u8], room: &mut u64, now_us: u64) -> usize {
        let Some(pipe) = &mut self.pipe else { return 0 };
        match pipe.read(buffer) {
            Ok(0) => self.pipe = None,
            Ok(length) => {
                self.take(&buffer[..length], room, now_us);
                return length;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => self.pipe = None,
        }
        0
    }

    fn take(&mut self, bytes: &[u8], room: &mut u64, now_us: u64) {
        if self.total == 0 {
            self.first_at_us = now_us;
        }
        if self.total + bytes.len() as u64 > Tail::LEN_MAX as u64 {
            self.spill(room);
        }
        self.total += bytes.len() as u64;
        self.keep(bytes, room);
        self.last.extend_from_slice(&bytes[bytes.len().saturating_sub(Tail::LEN_MAX)..]);
        if self.last.len() > 2 * Tail::LEN_MAX {
            self.last.drain(..self.last.len() - Tail::LEN_MAX);
        }
    }

    /// Moves into a file what was only in memory. That is everything so far: the first spill comes before memory is full.
    fn spill(&mut self, room: &mut u64) {
        if matches!(self.file, Kept::InMemory) {
            self.file = private::overwrite(&self.path).map_or(Kept::Nowhere, |file| Kept::InFile(file, 0));
            let so_far = std::mem::take(&mut self.last);
            self.keep(&so_far, room);
            self.last = so_far;
        }
    }

    fn keep(&mut self, bytes: &[u8], room: &mut u64) {
        let Kept::InFile(file, length) = &mut self.file else { return };
        let fits = usize::try_from(*room).unwrap_or(usize::MAX).min(bytes.len());
        if fits == 0 {
            return;
        }
        *room -= fits as u64;
        *length += fits as u64;
        // A full disk must not end a task: what it prints is then dropped, like what is too much.
        if file.write_all(&bytes[..fits]).is_err() {
            *room = 0;
        }
    }

    /// When this must be shown to those who follow it, if it is not yet.
    pub(super) fn shown_at_us(&self) -> Option<u64> {
        (self.total > 0 && matches!(self.file, Kept::InMemory)).then(|| self.first_at_us + SHOWN_AFTER_US)
    }

    pub(super) fn show(&mut self, room: &mut u64, now_us: u64) {
        if self.shown_at_us().is_some_and(|at| at <= now_us) {
            self.spill(room);
        }
    }

    /// Reads what is left in the pipe, and no more: processes outside the group may keep it open for ever.
    pub(super) fn finish(mut self, buffer: &mut [u8], room: &mut u64, now_us: u64) -> (Tail, u64) {
        let mut late = 0;
        while late < LATE_LEN_MAX {
            match self.read(buffer, room, now_us) {
                0 => break,
                length => late += length,
            }
        }
        self.last.drain(..self.last.len().saturating_sub(Tail::LEN_MAX));
        let kept = if let Kept::InFile(_, length) = self.file { length } else { 0 };
        (Tail { total: self.total, bytes: self.last }, kept)
    }
}
