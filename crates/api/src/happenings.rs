//! Events and steps as objects, as the document describes them: which fields each kind has, and what they mean.

use primus_shapes::schema::{Described, Schemas, Time};
use serde_json::{Map, Value, json};

/// An item of `/v1/events`.
#[derive(Debug)]
pub(crate) struct Happening;

/// An item of `/v1/events?steps=true`.
#[derive(Debug)]
pub(crate) struct Step;

/// Every kind of event, what it means, and the fields that it has beside `index`, `time` and `kind`.
const KINDS: [(&str, &str, &str); 31] = [
    ("leader_changed", "Another server leads.", "leader previous term reason took_ms"),
    ("leader_lost", "No server is known to lead any more.", "previous term reason"),
    ("leader_confirmed", "An election was held, and the leader won it.", "leader term asked held_by scores"),
    ("group_leader_changed", "Another server leads a group.", "group leader previous reason"),
    (
        "group_leader_confirmed",
        "An election of a group was held, and its leader won it.",
        "group leader round held_by scores",
    ),
    ("suspected", "A server is suspected to be dead.", "peer reason"),
    ("founding_waits", "The server belongs to no cluster yet.", "reason"),
    ("founded", "The server belongs to a cluster from now on.", "cluster members"),
    ("list_differs", "The server's configuration names others than the members of its cluster.", "listed members"),
    ("link_refused", "A link was refused, or what came on one.", "reason left_out"),
    ("saturated", "The farm has too much to do.", "queued"),
    ("calm", "The farm has not too much to do any more.", ""),
    ("loan_asked", "A neighbour was asked for workers.", "farm count"),
    ("loan_promised", "A neighbour lends workers.", "farm count"),
    ("loan_refused", "A neighbour lends no workers.", "farm reason"),
    ("neighbour_silent", "A neighbour that was asked did not answer.", "farm"),
    ("loan_not_sent", "A neighbour promised a worker that did not come.", "farm loan"),
    ("loan_unknown", "A neighbour speaks of a loan that does not exist.", "farm loan"),
    ("worker_unknown", "A worker has come from a neighbour that has not lent it.", "farm worker"),
    ("worker_cannot_go", "A worker that is lent cannot reach the neighbour.", "farm worker"),
    ("lent", "A worker is lent.", "loan worker to for_ms why"),
    ("recalled", "A worker that is lent is wanted back.", "loan worker to for_ms why"),
    ("loan_home", "A worker that was lent is back.", "loan worker to for_ms why"),
    ("loan_dead", "A worker that was lent is dead.", "loan worker to for_ms why"),
    ("overdue", "A worker that is lent should be back by now.", "loan worker to for_ms why"),
    ("borrowed", "A worker of another farm works here.", "loan worker from for_ms why"),
    ("given_back", "A worker of another farm does not work here any more.", "loan worker from for_ms why"),
    ("clock_off", "The clock of a server is far from the farm's time.", "server ahead_ms"),
    ("clock_right", "The clock of a server is right again.", "server"),
    ("late_turn", "A turn of the control loop took longer than it may.", "took_ms worked_ms cause left_out"),
    ("hook_ended", "A hook has run, or could not.", "hook event outcome code signal error took_ms output"),
];

impl Described for Happening {
    fn schema(schemas: &mut Schemas) -> Value {
        schemas.refer("Event", |schemas| {
            let kinds: Vec<Value> = KINDS
                .iter()
                .map(|(kind, about, fields)| object(kind, about, fields.split_whitespace(), schemas))
                .collect();
            json!({ "description": "Something that happened, as a server has seen it.", "oneOf": kinds })
        })
    }
}

impl Described for Step {
    fn schema(schemas: &mut Schemas) -> Value {
        schemas.refer("Step", |schemas| {
            let mut step = object("", "A step of an election, in the words of stories.", ["server", "step"], schemas);
            step["properties"]["kind"] = json!({
                "type": "string", "enum": ["election_step", "heartbeat"], "description": "Whether it is a heartbeat.",
            });
            step
        })
    }
}

fn object<'a>(kind: &str, about: &str, fields: impl IntoIterator<Item = &'a str>, schemas: &mut Schemas) -> Value {
    let mut properties = Map::new();
    let mut required = vec!["index", "time", "kind"];
    let index =
        json!({ "type": "integer", "minimum": 1, "description": "Its number; the next one has a greater one." });
    properties.insert("index".to_owned(), index);
    let mut time = Time::schema(schemas);
    time["description"] = "When it happened.".into();
    properties.insert("time".to_owned(), time);
    properties.insert("kind".to_owned(), json!({ "type": "string", "enum": [kind], "description": about }));
    for name in fields {
        properties.insert(name.to_owned(), field(name));
        required.push(name);
    }
    json!({ "type": "object", "description": about, "properties": properties, "required": required })
}

/// What a field is, in whichever event it stands.
fn field(name: &str) -> Value {
    let number = || json!({ "type": "integer", "minimum": 0 });
    let maybe_number = || json!({ "type": ["integer", "null"], "minimum": 0 });
    let text = || json!({ "type": "string" });
    let length = || json!({ "type": "number", "minimum": 0 });
    let ids = || json!({ "type": "array", "items": { "type": "integer", "minimum": 1 } });
    let (mut schema, about) = match name {
        "ahead_ms" => (json!({ "type": "integer" }), "How far the clock is ahead; less than 0 if it is behind."),
        "asked" => (number(), "The server that was asked for the election."),
        "cluster" => (text(), "The cluster: the first digits of its id."),
        "listed" => (ids(), "The servers that the configuration names."),
        "members" => (ids(), "The servers of the cluster."),
        "cause" => (text(), "What took so long; \"the host\" if the thread had no processor."),
        "code" => (json!({ "type": ["integer", "null"] }), "The exit code, if the hook ended by itself."),
        "count" => (number(), "How many workers."),
        "error" => (json!({ "type": ["string", "null"] }), "Why the hook did not run."),
        "event" => (number(), "The number of the event for which the hook ran."),
        "farm" => (text(), "The neighbour."),
        "for_ms" => (number(), "For how long the worker is lent."),
        "from" => (text(), "The farm whose worker it is."),
        "group" => (text(), "The group."),
        "held_by" => (number(), "The server that held the election."),
        "hook" => (text(), "The hook, by the name of the events for which it runs."),
        "leader" => (number(), "The server that leads."),
        "left_out" => (number(), "How many events of this kind were left out since the last one that was told."),
        "loan" => (number(), "The lender's number of the loan."),
        "outcome" => {
            let words = ["done", "failed", "timed_out", "not_started", "dropped"];
            (json!({ "type": "string", "enum": words }), "How the hook ended.")
        }
        "output" => (text(), "The end of what the hook printed."),
        "peer" => (number(), "The server that is suspected."),
        "previous" => (maybe_number(), "The server that led before."),
        "queued" => (number(), "How many tasks wait."),
        "reason" => (text(), "Why."),
        "round" => (number(), "The round of the group's election."),
        "scores" => {
            let score = json!({ "type": "number", "description": "Its score: 0 to 100, lower is better." });
            let properties =
                json!({ "id": { "type": "integer", "description": "The server's id." }, "score": score });
            let item = json!({ "type": "object", "properties": properties, "required": ["id", "score"] });
            (json!({ "type": "array", "items": item }), "How loaded the servers were.")
        }
        "server" => (number(), "The server that it is about."),
        "signal" => (json!({ "type": ["integer", "null"] }), "The signal that ended the hook."),
        "step" => (text(), "What came in, and what followed, on one line."),
        "term" => (number(), "The term."),
        "to" => (text(), "The farm to which the worker is lent."),
        "took_ms" => (length(), "How long it took."),
        "why" => (json!({ "type": "string", "enum": ["asked", "operator"] }), "Why the worker was lent."),
        "worked_ms" => (length(), "How long the thread had a processor meanwhile."),
        "worker" => (text(), "The worker."),
        other => unreachable!("the field {other} is described nowhere"),
    };
    schema["description"] = about.into();
    schema
}
