//! What is said of each route beside its summary, in the order of the table.

mod loans;
mod roll;
mod work;

use primus_shapes::schema::{Described, Schemas};
use primus_shapes::session::{AnswerBody, QuestionBody};
use serde_json::{Value, json};

use super::Operations;
use super::operation::{JSON, LINES, Operation, TEXT};
use super::parameters::{AFTER, KEY, LIMIT, no, path, query, text, yes};
use super::shapes;
use crate::chaos::{CutAnswer, DelayAnswer, LoadAnswer};
use crate::elections::ElectionAnswer;
use crate::groups::GroupFacts;
use crate::happenings::{Happening, Step};
use crate::kv::import::{ImportAnswer, ImportLine};
use crate::kv::{KeyFacts, WriteAnswer};
use crate::leader::LeaderAnswer;
use crate::leader::explain::LeaderExplanation;
use crate::limits::{BATCH_MAX, PAGE_MAX};
use crate::status::StatusAnswer;
use crate::table::Row;

/// What a request can meet that the leader answers.
const AT_THE_LEADER: [&str; 2] = ["no_leader", "unknown_outcome"];
/// What a write can meet.
const WRITES: [&str; 5] = ["no_leader", "unknown_outcome", "disk_full", "state_full", "too_long"];
/// What a change of leadership can meet.
const CHANGES_LEADER: [&str; 5] = ["no_leader", "unknown_outcome", "not_transferred", "not_caught_up", "dead"];

const LEADER: &str =
    r#"{"farm":"north","leader":3,"term":7,"since":"2026-01-02T03:04:05.678Z","reason":"link_lost"}"#;

/// All of them.
pub(super) fn all() -> Operations {
    let parts = [
        server(),
        leadership(),
        groups(),
        keys(),
        chaos(),
        work::jobs(),
        work::tasks(),
        work::workers(),
        loans::all(),
        roll::all(),
    ];
    parts.into_iter().flatten().collect()
}

/// A list of descriptions.
type Part = Vec<((&'static str, &'static str), Operation)>;

fn new() -> Operation {
    Operation::default()
}

fn server() -> Part {
    vec![
        (
            ("GET", Row::INDEX),
            new().lists::<Row>(
                "All routes.",
                r#"{"items":[{"method":"GET","path":"/v1","about":"this list"}],"next":null}"#,
            ),
        ),
        (
            ("GET", Row::DOCUMENT),
            new().gives_kind(200, "This document.", JSON, shapes::any, r#"{"openapi":"3.1.0"}"#),
        ),
        (
            ("GET", "/livez"),
            new()
                .about("The one route that needs no secret. It depends on nothing but the process.")
                .gives_kind(200, "It lives.", TEXT, shapes::text, "alive\n"),
        ),
        (
            ("GET", "/readyz"),
            new().gives_kind(200, "A server leads.", TEXT, shapes::text, "ready\n").refuses(&["no_leader", "refused"]),
        ),
        (
            ("GET", "/metrics"),
            new().gives_kind(
                200,
                "What the server counts, as Prometheus reads it.",
                TEXT,
                shapes::text,
                "# HELP primus_term The newest term that this server knows.\n# TYPE primus_term gauge\nprimus_term 7\n",
            ),
        ),
        (
            ("GET", "/v1/status"),
            new()
                .about("The leader answers, because it knows most. A follower that cannot reach it says what it knows.")
                .gives::<StatusAnswer>(
                    200,
                    "The farm at a glance.",
                    r#"{"farm":"north","leader":1,"term":7,"since":"2026-01-02T03:04:05.678Z","reason":"start",
                    "server":1,"servers":[],"workers":[],"queued":0,"running":0,"suspicions":0,"silence_ms":80.0,
                    "longest_turn_ms":0.4}"#,
                ),
        ),
        (
            ("GET", "/v1/events"),
            new()
                .about(
                    "Every server has its own history: the last 1,000 events. The answer is a stream of server-sent \
                     events: data is an object, id is its index.",
                )
                .asks(&[
                    query("after", "Only events with a greater number.", || json!({ "type": "integer", "minimum": 0, "default": 0 })),
                    query("follow", "True if the answer goes on with what happens next.", yes),
                    query("steps", "True for the steps of the last elections instead of what came of them.", no),
                    query("limit", "How many events at most; only with follow=false. All that are kept unless given.", || {
                        json!({ "type": "integer", "minimum": 1, "maximum": PAGE_MAX })
                    }),
                ])
                .gives_kind(
                    200,
                    "Events, or steps.",
                    "text/event-stream",
                    happenings,
                    r#"{"index":41,"time":"2026-01-02T03:04:05.678Z","kind":"leader_changed","leader":2,"previous":3,
                    "term":8,"reason":"link_lost","took_ms":4.1}"#,
                ),
        ),
    ]
}

/// What a stream of events holds.
fn happenings(schemas: &mut Schemas) -> Value {
    json!({ "oneOf": [Happening::schema(schemas), Step::schema(schemas)] })
}

fn leadership() -> Part {
    let group = query("group", "The group; without it, the cluster.", text);
    vec![
        (
            ("GET", "/v1/leader"),
            new().gives::<LeaderAnswer>(200, "Who leads; leader is null if no server does.", LEADER),
        ),
        (
            ("GET", "/v1/leader/explain"),
            new().gives::<LeaderExplanation>(
                200,
                "Who leads, why, and what would change that.",
                r#"{"farm":"north","leader":3,"term":7,"since":"2026-01-02T03:04:05.678Z","reason":"start",
                "algorithm":"bully","rank":"id","best":null,"difference":null,"margin":null,"worse_for_ms":null,
                "dwell_ms":null,"not_before_ms":0,"gave_way":[],
                "sentence":"Server 3 leads in term 7 since 12 s ago because the cluster started."}"#,
            ),
        ),
        (
            ("POST", "/v1/leader/resign"),
            new()
                .about("The leader does not stand in elections until the next leader is lost.")
                .gives::<LeaderAnswer>(200, "The new leader.", LEADER)
                .refuses(&CHANGES_LEADER),
        ),
        (
            ("POST", "/v1/leader/transfer"),
            new()
                .takes_kind(JSON, shapes::transfer, r#"{"to":2}"#)
                .gives::<LeaderAnswer>(200, "The new leader.", LEADER)
                .refuses(&CHANGES_LEADER)
                .refuses(&["not_found"]),
        ),
        (
            ("POST", "/v1/elections"),
            new()
                .asks(&[group])
                .gives::<ElectionAnswer>(
                    200,
                    "What came of it.",
                    r#"{"started":true,"outcome":"confirmed","leader":3,"term":7,"previous":3,"asked":1,"held_by":3,
                    "scores":[{"id":3,"score":4.5}]}"#,
                )
                .refuses(&CHANGES_LEADER)
                .refuses(&["not_found"]),
        ),
    ]
}

fn groups() -> Part {
    let session = path(
        "id",
        "A number that the candidate has chosen at random, in hex, and not 0.",
        || json!({ "type": "string", "pattern": "^[0-9a-fA-F]{1,16}$" }),
    );
    vec![
        (
            ("GET", "/v1/groups"),
            new()
                .about("Groups in which servers elect come first, then leases. next is none/NAME or quorum/NAME.")
                .asks(&[LIMIT, AFTER])
                .lists::<GroupFacts>(
                    "A page of groups.",
                    r#"{"items":[{"group":"nightly","authority":"quorum","leader":"host-7","term":9,"round":null,
                    "since":"2026-01-02T03:04:05.678Z","reason":null,"candidates":["host-7","host-8"],
                    "holders":[{"name":"host-7","term":9,"since":"2026-01-02T03:04:05.678Z"}],"rank":"id",
                    "holders_max":1}],"next":null}"#,
                )
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("POST", "/v1/sessions/{id}"),
            new()
                .about(
                    "A session asks again and again; the answer comes when there is news, or after wait_ms. A holder that \
                     has not heard for rest_ms must have stopped.",
                )
                .asks(&[session])
                .takes::<QuestionBody>(r#"{"number":1,"wants":[{"group":"nightly","rank":"id","name":"host-7","id":7}]}"#)
                .gives::<AnswerBody>(
                    200,
                    "What it holds, and what it cannot have.",
                    r#"{"number":1,"known":true,"holds":[{"group":"nightly","term":9,"rest_ms":4800.0}],"recalled":[],
                    "refused":[],"server":1,"lease_ms":5000.0}"#,
                )
                .refuses(&WRITES),
        ),
    ]
}

fn keys() -> Part {
    let prefix = query("prefix", "Only keys that begin with this.", text);
    let batch = query(
        "batch",
        "How many lines take place at once, or not at all.",
        || json!({ "type": "integer", "minimum": 1, "maximum": BATCH_MAX, "default": 1 }),
    );
    let written = r#"{"key":"colour","index":41}"#;
    vec![
        (
            ("GET", "/v1/kv"),
            new()
                .about("In the order of the keys.")
                .asks(&[prefix, LIMIT, AFTER])
                .lists::<KeyFacts>(
                    "A page of keys.",
                    r#"{"items":[{"key":"colour","value":"blue","index":41}],"next":null}"#,
                )
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("POST", "/v1/kv"),
            new()
                .about(
                    "Lines are written while they arrive. If one is wrong, those before it stay written, and the message \
                     says how many were acknowledged.",
                )
                .asks(&[batch])
                .takes_kind(LINES, ImportLine::schema, r#"{"key":"colour","value":"blue"}"#)
                .gives::<ImportAnswer>(200, "All are written.", r#"{"written":1,"index":41}"#)
                .refuses(&WRITES),
        ),
        (
            ("GET", "/v1/kv/{*key}"),
            new()
                .asks(&[KEY])
                .gives::<KeyFacts>(200, "The value.", r#"{"key":"colour","value":"blue","index":41}"#)
                .refuses(&AT_THE_LEADER)
                .refuses(&["not_found"]),
        ),
        (
            ("PUT", "/v1/kv/{*key}"),
            new()
                .about("The value is the body as it is, up to 256 KiB of UTF-8 text. The answer comes when a majority has it on disk.")
                .asks(&[KEY])
                .takes_kind(JSON, shapes::text, "blue")
                .gives::<WriteAnswer>(200, "It is written.", written)
                .refuses(&WRITES),
        ),
        (
            ("DELETE", "/v1/kv/{*key}"),
            new().asks(&[KEY]).gives::<WriteAnswer>(200, "It is deleted, if it was there.", written).refuses(&WRITES),
        ),
    ]
}

fn chaos() -> Part {
    const ONLY: &str = "Only where the server was started by primus up.";
    vec![
        (
            ("POST", "/v1/chaos/cut"),
            new().about(ONLY).takes_kind(JSON, shapes::cut, r#"{"peers":[1,2]}"#).gives::<CutAnswer>(
                200,
                "They are cut.",
                r#"{"cut":true}"#,
            ),
        ),
        (
            ("POST", "/v1/chaos/delay"),
            new()
                .about(ONLY)
                .takes_kind(JSON, shapes::delay, r#"{"peers":[1,2],"delay_ms":75}"#)
                .gives::<DelayAnswer>(200, "They are slow.", r#"{"delay":true}"#),
        ),
        (
            ("POST", "/v1/chaos/load"),
            new().about(ONLY).takes_kind(JSON, shapes::load, r#"{"score":85}"#).gives::<LoadAnswer>(
                200,
                "The score is set.",
                r#"{"score":85.0}"#,
            ),
        ),
    ]
}
