//! `POST /v1/jobs` with a job per line: read, submitted and acknowledged while they arrive.
//!
//! What has arrived and is not acknowledged yet has a bound; beyond it nothing is read, so that a fast client is slowed down
//! by its own connection.

use std::collections::VecDeque;
use std::mem::take;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use memchr::memrchr;
use primus_core::ledger::{Effect, Entry, JobId};
use primus_node::handle::Unable;
use primus_shapes::described;
use primus_shapes::objects::Object;
use primus_shapes::submission::Submission;
use serde::Serialize;
use tokio::task::JoinHandle;

use super::submission::{entry, not_taken, strange, tasks_of};
use crate::bodies::Pieces;
use crate::context::Context;
use crate::limits::JOB_LINE_LEN_MAX;
use crate::problem::Problem;
use crate::room::Room;
use crate::words::JobNumber;

/// How many jobs are entered at once, and how long their lines are together.
const BATCH_MAX: usize = 1000;
const BATCH_LEN_MAX: usize = 512 << 10;
/// How many batches may wait to be acknowledged.
const BATCHES_MAX: usize = 16;
/// A batch under way.
type Entering = JoinHandle<Result<Vec<Effect>, Unable>>;

/// A submission under way.
struct Bulk<'a> {
    context: &'a Context,
    key: Option<String>,
    /// For what has arrived; batches under way take their part of it along.
    room: Room,
    arrived: BytesMut,
    lines: u64,
    batch: Vec<Entry>,
    batch_len: usize,
    entering: VecDeque<Entering>,
    submitted: Submitted,
}

/// What was acknowledged.
#[derive(Default)]
struct Submitted {
    jobs: u64,
    tasks: u64,
    created: u64,
    /// Their numbers, in the order of their lines, as stretches.
    ranges: Vec<(JobId, JobId)>,
}

described! {
    /// Jobs that were submitted in one body.
    #[derive(Serialize)]
    pub(crate) struct BulkAnswer {
        /// How many jobs were acknowledged.
        jobs: u64,
        /// How many tasks they have.
        tasks: u64,
        /// How many of the jobs are new.
        created: u64,
        /// Their numbers, in the order of their lines: first and last of each stretch.
        ranges: Vec<[String; 2]> as Vec<Vec<JobNumber>>,
    }
}

pub(crate) async fn submit(context: &Context, key: Option<String>, body: Body) -> Result<Response, Problem> {
    let mut bulk = Bulk {
        context,
        key,
        room: Room::of_lines(),
        arrived: BytesMut::new(),
        lines: 0,
        batch: Vec::new(),
        batch_len: 0,
        entering: VecDeque::new(),
        submitted: Submitted::default(),
    };
    let result = bulk.run(body).await;
    let Submitted { jobs, tasks, created, ranges } = bulk.submitted;
    result.map_err(|problem| problem.after(&format!("{jobs} jobs were submitted")))?;
    let ranges = ranges.into_iter().map(|(first, last)| [first.to_string(), last.to_string()]).collect();
    Ok(Json(BulkAnswer { jobs, tasks, created, ranges }).into_response())
}

impl Bulk<'_> {
    async fn run(&mut self, body: Body) -> Result<(), Problem> {
        let mut pieces = Pieces::new(body);
        while let Some(piece) = pieces.next_of_lines(self.arrived.is_empty()).await? {
            self.room.hold(self.arrived.len() + piece.len()).await?;
            self.arrived.extend_from_slice(&piece);
            let whole = memrchr(b'\n', &self.arrived).map_or(0, |place| place + 1);
            self.take(whole).await?;
            if self.arrived.len() > JOB_LINE_LEN_MAX {
                let message = format!("line {} is longer than {JOB_LINE_LEN_MAX} bytes", self.lines + 1);
                return Err(Problem::too_long(message, "submit this job by itself"));
            }
            // What has come so far need not wait for the rest.
            self.enter().await?;
        }
        self.take(self.arrived.len()).await?;
        self.enter().await?;
        while !self.entering.is_empty() {
            self.hear().await?;
        }
        Ok(())
    }

    /// Reads this much, which is whole lines.
    async fn take(&mut self, len: usize) -> Result<(), Problem> {
        let text: Bytes = self.arrived.split_to(len).freeze();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.lines += 1;
            let number = self.lines;
            let place = |problem: Problem| problem.within(&format!("line {number}"));
            let Object(submission) =
                serde_json::from_slice::<Object<Submission>>(line).map_err(|error| place(strange(&error)))?;
            let key = self.key.as_ref().map(|key| format!("{key}/{number}"));
            self.batch.push(entry(self.context, submission, key).map_err(place)?);
            self.batch_len += line.len();
            if self.batch.len() >= BATCH_MAX || self.batch_len >= BATCH_LEN_MAX {
                self.enter().await?;
            }
        }
        Ok(())
    }

    async fn enter(&mut self) -> Result<(), Problem> {
        if self.batch.is_empty() {
            return Ok(());
        }
        if self.entering.len() >= BATCHES_MAX {
            self.hear().await?;
        }
        let batch = take(&mut self.batch);
        let room = self.room.part(take(&mut self.batch_len));
        self.submitted.tasks += batch.iter().map(tasks_of).sum::<u64>();
        let farm = self.context.handle.farm.clone();
        self.entering.push_back(tokio::spawn(async move {
            let _room = room;
            farm.enter(batch).await
        }));
        Ok(())
    }

    /// Waits for the oldest batch.
    async fn hear(&mut self) -> Result<(), Problem> {
        let Some(entering) = self.entering.pop_front() else { return Ok(()) };
        let effects = entering.await.map_err(|_| Unable::Unknown)??;
        for effect in effects {
            let Effect::Submitted { job, is_new } = effect else { return Err(not_taken(self.context, &effect)) };
            self.submitted.add(job, is_new);
        }
        Ok(())
    }
}

impl Submitted {
    fn add(&mut self, job: JobId, is_new: bool) {
        self.jobs += 1;
        self.created += u64::from(is_new);
        match self.ranges.last_mut() {
            Some((_, last)) if last.0 + 1 == job.0 => *last = job,
            _ => self.ranges.push((job, job)),
        }
    }
}
