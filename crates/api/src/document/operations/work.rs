//! What is said of the routes of jobs, tasks and workers.

use primus_node::farm::OUTPUT_LEN_MAX;
use primus_shapes::schema::{Described, Schemas};
use primus_shapes::submission::Submission;
use serde_json::{Value, json};

use super::super::operation::{JSON, LINES, Operation, page};
use super::super::parameters::{
    AFTER, JOB, JOBS, LIMIT, ONCE, TASK, TIMEOUT, longest_ms, no, number, path, query, text,
};
use super::super::shapes;
use super::{AT_THE_LEADER, Part, WRITES, new};
use crate::headers::{ATTEMPT, ELSEWHERE, LAST, OFFSET, TOTAL};
use crate::jobs::{BulkAnswer, CancelAnswer, JobFacts, RangeFacts, RetryAnswer, SubmittedAnswer};
use crate::tasks::TaskFacts;
use crate::tasks::explain::TaskExplanation;
use crate::workers::{DrainAnswer, ForgetAnswer, WorkerFacts};

const JOB_EXAMPLE: &str = r#"{"job":"12","name":"hello","command":["echo","hello"],"kind":null,"tasks":1,"open":0,
    "queued":0,"running":0,"done":1,"failed":0,"lost":0,"cancelled":0,"submitted":"2026-01-02T03:04:05.678Z",
    "priority":0,"cpus":1,"retries":0,"timeout_ms":null,"no_rerun":false}"#;
const TASK_EXAMPLE: &str = r#"{"task":"12.1","job":"12","state":"done","argument":"","failures":0,"worker":"w1",
    "attempt":"7-3","reason":null,"verdict":"exited","exit":0,"signal":null,"started":"2026-01-02T03:04:05.700Z",
    "started_us":1767323045700000,"took_ms":3.1,"stdout":"hello\n","stdout_len":6,"stderr":"","stderr_len":0}"#;

pub(super) fn jobs() -> Part {
    vec![
        (
            ("GET", "/v1/jobs"),
            new()
                .about("The newest first.")
                .asks(&[LIMIT, query("after", "Where to read on: the field next of the page before, a job's number.", number)])
                .lists::<JobFacts>("A page of jobs.", r#"{"items":[],"next":null}"#)
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("POST", "/v1/jobs"),
            new()
                .about(
                    "With Content-Type application/x-ndjson the body holds a job per line, which are submitted while they \
                     arrive; the answer has their numbers as stretches.",
                )
                .asks(&[ONCE])
                .takes::<Submission>(r#"{"command":["echo","hello"]}"#)
                .takes_kind(LINES, Submission::schema, r#"{"command":["echo","hello"]}"#)
                .gives::<SubmittedAnswer>(201, "It is submitted.", r#"{"job":"12","tasks":1,"created":true}"#)
                .gives::<SubmittedAnswer>(
                    200,
                    "It was submitted before under this Idempotency-Key; or many jobs are submitted.",
                    r#"{"job":"12","tasks":1,"created":false}"#,
                )
                .gives::<BulkAnswer>(200, "", "")
                .refuses(&WRITES)
                .refuses(&["other_job", "queue_full"]),
        ),
        (
            ("GET", "/v1/jobs/{id}"),
            new()
                .asks(&[JOB])
                .gives::<JobFacts>(200, "The job.", JOB_EXAMPLE)
                .refuses(&AT_THE_LEADER)
                .refuses(&["not_found"]),
        ),
        (
            ("GET", "/v1/jobs/{id}/wait"),
            new()
                .asks(&[JOBS, TIMEOUT])
                .gives::<JobFacts>(200, "The job, ended or not; of several jobs their counts.", JOB_EXAMPLE)
                .gives::<RangeFacts>(200, "", "")
                .refuses(&AT_THE_LEADER)
                .refuses(&["not_found"]),
        ),
        (
            ("POST", "/v1/jobs/{id}/cancel"),
            new()
                .asks(&[JOB])
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<CancelAnswer>(200, "Its tasks are cancelled.", r#"{"id":"12","cancelled":1}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
        (
            ("POST", "/v1/jobs/{id}/retry"),
            new()
                .asks(&[JOB])
                .takes_kind(JSON, shapes::retry, r#"{"failed_only":true}"#)
                .or_nothing()
                .gives::<RetryAnswer>(200, "Its tasks run again.", r#"{"id":"12","retried":1}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
    ]
}

pub(super) fn tasks() -> Part {
    vec![
        (("GET", "/v1/tasks"), list_of_tasks()),
        (
            ("GET", "/v1/tasks/{id}"),
            new()
                .asks(&[TASK])
                .gives::<TaskFacts>(200, "The task.", TASK_EXAMPLE)
                .refuses(&AT_THE_LEADER)
                .refuses(&["not_found"]),
        ),
        (
            ("GET", "/v1/tasks/{id}/explain"),
            new()
                .asks(&[TASK])
                .gives::<TaskExplanation>(
                    200,
                    "The reason.",
                    r#"{"task":"12.1","code":"no_slot","explanation":"12.1 waits for a free slot, and is next; it has waited for 2.0 s",
                    "since":"2026-01-02T03:04:05.678Z","for_ms":2000.0}"#,
                )
                .refuses(&AT_THE_LEADER)
                .refuses(&["not_found"]),
        ),
        (("GET", "/v1/tasks/{id}/output"), output()),
        (
            ("GET", "/v1/tasks/{id}/wait"),
            new()
                .asks(&[TASK, TIMEOUT])
                .gives::<TaskFacts>(200, "The task, ended or not.", TASK_EXAMPLE)
                .refuses(&AT_THE_LEADER)
                .refuses(&["not_found"]),
        ),
        (
            ("POST", "/v1/tasks/{id}/cancel"),
            new()
                .asks(&[TASK])
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<CancelAnswer>(200, "It is cancelled, unless it had ended.", r#"{"id":"12.1","cancelled":1}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
        (
            ("POST", "/v1/tasks/{id}/retry"),
            new()
                .asks(&[TASK])
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<RetryAnswer>(200, "It runs again, if it had ended.", r#"{"id":"12.1","retried":1}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
    ]
}

fn list_of_tasks() -> Operation {
    let state = query(
        "state",
        "Only tasks in this state.",
        || json!({ "type": "string", "enum": ["queued", "running", "done", "failed", "lost", "cancelled"] }),
    );
    let fields =
        query("fields", "Only these fields of each task, separated by commas; then the others are left out.", text);
    new()
        .about("The newest job first; in a job, from its first task to its last.")
        .asks(&[query("job", "Only tasks of this job.", number), state, fields, LIMIT, AFTER])
        .gives_kind(
            200,
            "A page of tasks.",
            JSON,
            page_of_tasks,
            r#"{"items":[{"task":"12.1","state":"done"}],"next":null}"#,
        )
        .refuses(&AT_THE_LEADER)
}

/// A page of tasks, of which only some fields may have been asked for.
fn page_of_tasks(schemas: &mut Schemas) -> Value {
    let task = TaskFacts::schema(schemas);
    let mut some = schemas.resolve(&task).clone();
    some["required"] = json!([]);
    some["description"] = "A task, or those of its fields that were asked for.".into();
    page(some)
}

fn output() -> Operation {
    let wait = query(
        "wait_ms",
        "How long to wait for something new.",
        || json!({ "type": "integer", "minimum": 0, "default": 0, "maximum": longest_ms() }),
    );
    let stream = query(
        "stream",
        "Which stream.",
        || json!({ "type": "string", "enum": ["stdout", "stderr"], "default": "stdout" }),
    );
    let offset = query(
        "offset",
        "Where to read on: x-primus-offset plus the length of the piece before.",
        || json!({ "type": "integer", "minimum": 0, "default": 0 }),
    );
    let attempt =
        query("attempt", "The attempt that was read so far; another one is read from its beginning.", text);
    let follow = query("follow", "True for all of it in one answer, until the task has ended.", no);
    const { assert!(OUTPUT_LEN_MAX == 256 << 10, "the text below says so") };
    new()
        .about("An answer is one piece, up to 256 KiB, and says in its fields where the next one begins.")
        .asks(&[TASK, stream, offset, attempt, wait, follow])
        .gives_kind(
            200,
            "A piece of the output, or all of it.",
            "application/octet-stream",
            shapes::bytes,
            "hello\n",
        )
        .with_headers(&[
            (OFFSET, "Where in the whole output the piece begins."),
            (LAST, "true if nothing comes behind it."),
            (ATTEMPT, "Which attempt it is of."),
            (TOTAL, "How long the whole output is, once that is known."),
            (ELSEWHERE, "The worker that may have what is missing before the piece, and is not connected."),
        ])
        .refuses(&AT_THE_LEADER)
        .refuses(&["not_found", "no_worker"])
}

pub(super) fn workers() -> Part {
    let name = path("name", "The worker's name.", text);
    vec![
        (
            ("GET", "/v1/workers"),
            new()
                .about("In the order of their names.")
                .asks(&[LIMIT, AFTER])
                .lists::<WorkerFacts>("A page of workers.", r#"{"items":[],"next":null}"#)
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("POST", "/v1/workers/{name}/drain"),
            new()
                .asks(&[name])
                .takes_kind(JSON, shapes::drain, r#"{"draining":true}"#)
                .or_nothing()
                .gives::<DrainAnswer>(200, "It is so.", r#"{"worker":"w1","draining":true}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
        (
            ("POST", "/v1/workers/{name}/forget"),
            new()
                .about(
                    "What it runs is run elsewhere, its certificates are void, and another worker may have its name. One that \
                     shows no certificate may come back.",
                )
                .asks(&[name])
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<ForgetAnswer>(200, "It is forgotten.", r#"{"worker":"w1"}"#)
                .refuses(&WRITES)
                .refuses(&["not_found", "roll_full"]),
        ),
    ]
}
