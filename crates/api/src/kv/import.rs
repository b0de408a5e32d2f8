//! `POST /v1/kv`: many writes in one request, a line of JSON each, read and acknowledged while they arrive.
//!
//! Every line is a proposal of its own, or every `batch` lines are one that takes place at once. What has arrived and is not
//! acknowledged yet has a bound; beyond it nothing is read, so that a fast client is slowed down by its own connection.

use std::borrow::Cow;
use std::collections::VecDeque;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use memchr::{memchr_iter, memrchr};
use primus_core::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use primus_node::handle::Unable;
use primus_server::register::Change;
use primus_shapes::described;
use primus_shapes::objects::{Object, complaint};
use primus_shapes::schema::Text;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bodies::Pieces;
use crate::context::{Context, heard};
use crate::limits::{BATCH_LEN_MAX, BATCH_MAX, BULK_TIME};
use crate::orders::Asked;
use crate::problem::Problem;
use crate::room::Room;

/// How many pieces of the body may wait to be acknowledged.
const PIECES_MAX: usize = 32;
described! {
    /// A write, as a line of an import.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(crate) struct ImportLine<'a> {
        /// The key.
        #[serde(borrow)]
        key: Cow<'a, str> as Text<1, KEY_LEN_MAX>,
        /// Its value.
        #[serde(borrow)]
        value: Cow<'a, str> as Text<0, VALUE_LEN_MAX>,
    }
}

described! {
    /// What an import has written.
    #[derive(Serialize)]
    pub(crate) struct ImportAnswer {
        /// How many writes were acknowledged.
        written: u64,
        /// Where in the log the last of them is.
        index: u64,
    }
}

/// Changes under way: how many, and what comes of them.
type Entering = (u64, JoinHandle<Result<u64, Problem>>);

/// An import under way.
struct Import {
    context: Context,
    batch: usize,
    /// For what has arrived; what is under way takes its part of it along.
    room: Room,
    arrived: BytesMut,
    /// How many lines have been read.
    lines: u64,
    waiting: VecDeque<Entering>,
    acknowledged: ImportAnswer,
}

pub(crate) async fn import(
    State(context): State<Context>,
    mut asked: Asked,
    request: Request<Body>,
) -> Result<Response, Problem> {
    // How many lines are one proposal.
    let batch = asked.count("batch")?.unwrap_or(1);
    asked.done()?;
    if !(1..=BATCH_MAX).contains(&batch) {
        return Err(Problem::usage(format!("batch is {batch}"), "choose a number from 1 to 10000"));
    }
    if let Some(leader) = context.elsewhere(&request).await {
        return Ok(context.pass_on_within(BULK_TIME, request, leader).await);
    }
    let acknowledged = ImportAnswer { written: 0, index: 0 };
    let (arrived, waiting) = (BytesMut::new(), VecDeque::new());
    let room = Room::of_lines();
    let mut import = Import { context, batch, room, arrived, lines: 0, waiting, acknowledged };
    match import.run(request.into_body()).await {
        Ok(()) => Ok(Json(import.acknowledged).into_response()),
        Err(problem) => {
            let written = import.acknowledged.written;
            Err(problem.after(&format!("{written} writes were acknowledged")))
        }
    }
}

impl Import {
    async fn run(&mut self, body: Body) -> Result<(), Problem> {
        let mut pieces = Pieces::new(body);
        while let Some(piece) = pieces.next_of_lines(self.arrived.is_empty()).await? {
            self.room.hold(self.arrived.len() + piece.len()).await?;
            self.arrived.extend_from_slice(&piece);
            let whole = self.whole_batches_len();
            self.propose(whole).await?;
            if self.arrived.len() > BATCH_LEN_MAX {
                let message = format!("{} lines from line {} on are too long", self.batch, self.lines + 1);
                return Err(Problem::usage(message, "a batch has 524288 bytes at most"));
            }
        }
        self.propose(self.arrived.len()).await?;
        while !self.waiting.is_empty() {
            self.hear().await?;
        }
        Ok(())
    }

    /// How much of what has arrived is whole lines, and as many of them as make whole batches.
    fn whole_batches_len(&self) -> usize {
        if self.batch == 1 {
            return memrchr(b'\n', &self.arrived).map_or(0, |place| place + 1);
        }
        let ends = memchr_iter(b'\n', &self.arrived);
        ends.skip(self.batch - 1).step_by(self.batch).last().map_or(0, |place| place + 1)
    }

    async fn propose(&mut self, len: usize) -> Result<(), Problem> {
        let text: Bytes = self.arrived.split_to(len).freeze();
        let lines = self.read(&text)?;
        if lines.is_empty() {
            return Ok(());
        }
        if self.waiting.len() >= PIECES_MAX {
            self.hear().await?;
        }
        let (reply, answer) = oneshot::channel();
        let lists = lines.chunks(self.batch).map(|lines| lines.iter().map(ImportLine::change).collect());
        self.context.handle.change(lists, true, reply);
        let room = self.room.part(len);
        let entering = tokio::spawn(async move {
            let _room = room;
            heard(answer).await
        });
        self.waiting.push_back((lines.len() as u64, entering));
        Ok(())
    }

    fn read<'a>(&mut self, text: &'a [u8]) -> Result<Vec<ImportLine<'a>>, Problem> {
        let mut found = Vec::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            self.lines += 1;
            let wrong = |what: String| Problem::usage(format!("line {}: {what}", self.lines), LINE_HINT);
            let Object(line) =
                serde_json::from_slice::<Object<ImportLine<'a>>>(line).map_err(|error| wrong(complaint(&error)))?;
            if line.key.is_empty() || line.key.len() > KEY_LEN_MAX || line.value.len() > VALUE_LEN_MAX {
                return Err(wrong(format!("a key has 1 to {KEY_LEN_MAX} bytes, a value {VALUE_LEN_MAX} at most")));
            }
            found.push(line);
        }
        Ok(found)
    }

    /// Waits for the oldest piece.
    async fn hear(&mut self) -> Result<(), Problem> {
        let Some((count, entering)) = self.waiting.pop_front() else { return Ok(()) };
        let index = entering.await.map_err(|_| Unable::Unknown)??;
        self.acknowledged = ImportAnswer { written: self.acknowledged.written + count, index };
        Ok(())
    }
}

const LINE_HINT: &str = "write lines like {\"key\":\"colour\",\"value\":\"blue\"}";

impl ImportLine<'_> {
    fn change(&self) -> Change<'_> {
        Change::Put(&self.key, self.value.as_bytes())
    }
}
