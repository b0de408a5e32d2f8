//! What a worker and its companion say to each other: frames of postcard over one socket.

use std::ffi::OsString;
use std::path::PathBuf;

use bytes::BytesMut;
use primus_core::ledger::{Tail, Verdict};
use primus_wire::frame::{self, FrameError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::limited::Limits;

/// How much of what a task reads travels in one frame.
pub(crate) const INPUT_PIECE_LEN: usize = 256 << 10;

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Before anything else: what holds for all tasks.
    Begin(Rules),
    /// A piece of what the attempt of this number will read. All pieces come before its start.
    Input(u64, Vec<u8>),
    /// Run this.
    Start(Start),
    /// End this at once.
    Kill(u64),
    /// The worker was well at this time, in microseconds since the host started.
    Renew(u64),
}

/// What holds for all tasks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Rules {
    /// How long tasks may go on without a word of the worker.
    pub(crate) patience_us: u64,
    /// How long a task that took too long has between TERM and KILL.
    pub(crate) grace_us: u64,
    /// Where full outputs go.
    pub(crate) outputs: PathBuf,
    /// How much of a task's output is kept there.
    pub(crate) output_len_max: u64,
    /// How much each process of a task may use.
    pub(crate) limits: Limits,
    /// The program that calls [`exec`](super::limited::exec) with what follows, and its arguments; needed for limits only.
    pub(crate) exec: Option<(PathBuf, Vec<OsString>)>,
    /// User and group of tasks, if not those of the companion.
    pub(crate) user: Option<(u32, u32)>,
}

/// One attempt. No shell is involved.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// What this attempt is called between worker and companion.
    pub(crate) number: u64,
    /// When the worker said so: it was well at that time.
    pub(crate) sent_us: u64,
    /// The program and its arguments.
    pub(crate) arguments: Vec<String>,
    /// Added to the companion's environment, which holds what all tasks get.
    pub(crate) environment: Vec<(String, String)>,
    /// Where it runs, if not where the companion runs.
    pub(crate) directory: Option<String>,
    /// How much it gives way to others.
    pub(crate) nice: u8,
    /// How long it may take.
    pub(crate) timeout_us: Option<u64>,
    /// How the files of its output begin.
    pub(crate) output: String,
}

/// What the companion says: an attempt has ended, and nothing of its group lives.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct End {
    /// Which attempt.
    pub(crate) number: u64,
    pub(crate) cause: Cause,
    /// When it started, in milliseconds since 1970.
    pub(crate) started_us: u64,
    pub(crate) took_us: u64,
    pub(crate) stdout: Tail,
    pub(crate) stderr: Tail,
    /// How many bytes of output are in files.
    pub(crate) kept: u64,
}

/// Why an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    /// It did what it did.
    Verdict(Verdict),
    /// The worker did not renew in time, or did not want it any more: this is no result of the task.
    Abandoned,
}

/// Appends a frame.
pub(crate) fn put(buffer: &mut BytesMut, what: &impl Serialize) -> Result<(), FrameError> {
    let bytes = postcard::to_stdvec(what).expect("plain values can be written");
    frame::put(buffer, |buffer| buffer.extend_from_slice(&bytes))
}

/// Takes the next whole frame, if there is one.
pub(crate) fn take<T: DeserializeOwned>(arrived: &mut BytesMut) -> std::io::Result<Option<T>> {
    let frame = frame::take(arrived).map_err(std::io::Error::other)?;
    frame.map(|bytes| postcard::from_bytes(&bytes).map_err(std::io::Error::other)).transpose()
}
