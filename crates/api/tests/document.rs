//! The document of the API: complete, true to its own examples, and the source of docs/api.md. What servers answer is held to
//! it by the end-to-end tests of the program.

mod page;
mod validator;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{env, fs};

use primus_node::events::{Event, Guest, Kind, Loan, ServerScore};
use serde_json::{Value, json};
use validator::{Asked, Document};

fn document() -> Document {
    Document(primus_api::document())
}

/// All routes: method, path, description.
fn operations(document: &Value) -> Vec<(String, &str, &Value)> {
    let paths = document["paths"].as_object().expect("there are paths");
    let of_path = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(move |(method, operation)| (method.to_ascii_uppercase(), path.as_str(), operation))
    });
    of_path.collect()
}

#[test]
fn examples_are_what_their_schemas_say() {
    let document = document();
    let mut count = 0;
    for (method, path, operation) in operations(&document.0) {
        let answers = operation["responses"].as_object().into_iter().flatten().map(|(_, response)| response);
        let bodies = answers.chain([&operation["requestBody"]]).filter_map(|body| body["content"].as_object());
        for (kind, content) in bodies.flatten().filter(|(_, content)| !content["example"].is_null()) {
            let checked = document.check(&content["schema"], &content["example"]);
            assert_eq!(checked, Ok(()), "{method} {path} {kind}: {}", content["example"]);
            count += 1;
        }
    }
    assert!(count > 50, "{count} examples");
    let error = &document.0["components"]["schemas"]["Error"];
    assert_eq!(document.check(error, &error["example"]), Ok(()));
}

#[test]
fn every_route_answers_and_every_field_is_described() {
    let document = document();
    for (method, path, operation) in operations(&document.0) {
        let name = format!("{method} {path}");
        assert!(!operation["summary"].as_str().unwrap_or_default().is_empty(), "{name} has no summary");
        let responses = operation["responses"].as_object().expect("there are answers");
        assert!(responses.keys().any(|status| status.starts_with('2')), "{name} never answers");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(
                parameter["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{name} {parameter}"
            );
            assert!(parameter["schema"]["type"].is_string(), "{name} {parameter}");
        }
    }
    check_descriptions(&document.0, "");
}

/// Every property, wherever it is, says in a sentence what it is.
fn check_descriptions(value: &Value, place: &str) {
    if let Some(properties) = value["properties"].as_object() {
        for (name, property) in properties {
            let text = property["description"].as_str().unwrap_or_default();
            assert!(text.ends_with('.') && !text.contains("[`"), "{place}.{name}: {text:?}");
        }
    }
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| check_descriptions(value, &format!("{place}.{name}")));
        }
        Value::Array(items) => items.iter().for_each(|item| check_descriptions(item, place)),
        _ => {}
    }
}

#[test]
fn a_stray_field_a_missing_one_and_a_wrong_status_are_noticed() {
    let document = document();
    let asked = Asked { method: "GET", path: "/v1/leader" };
    let right = json!({ "farm": "north", "leader": null, "term": 0, "since": "x", "reason": "start" });
    let check = |status, body: &Value| document.check_answer(asked, status, "application/json", body);
    assert_eq!(check(200, &right), Ok(()));
    for (status, name, value, expected) in [
        (200, "colour", json!("red"), "not in the document"),
        (200, "term", json!("7"), "not of type"),
        (200, "reason", json!("mood"), "none of"),
        (200, "term", json!(-1), "bounds"),
        (202, "term", json!(1), "no answer has the status"),
    ] {
        let mut wrong = right.clone();
        wrong[name] = value;
        assert!(check(status, &wrong).unwrap_err().contains(expected), "{name}");
    }
    let mut short = right.clone();
    short.as_object_mut().unwrap().remove("leader");
    assert!(check(200, &short).unwrap_err().contains("is missing"));
    let refusal = |code: &str| json!({ "error": { "code": code, "message": "m", "hint": "h" } });
    assert_eq!(check(401, &refusal("no_token")), Ok(()));
    assert!(check(401, &refusal("not_found")).is_err());
    let stray = Asked { method: "GET", path: "/v1/nowhere" };
    assert!(document.check_answer(stray, 200, "application/json", &right).is_err());
}

/// One event of each kind. Who adds a kind is stopped here by the compiler, and below by the document.
fn kinds() -> Vec<Kind> {
    let loan = Loan { loan: 3, worker: "n1".to_owned(), to: "south".to_owned(), for_ms: 1, why: "asked" };
    let guest =
        Guest { loan: 3, worker: "s1@south".to_owned(), from: "south".to_owned(), for_ms: 1, why: "operator" };
    let (farm, worker, reason) = ("south".to_owned(), "n1".to_owned(), "silence");
    let scores = vec![ServerScore { id: 1, score: 4.5 }];
    let mut all = vec![Kind::LeaderChanged { leader: 1, previous: None, term: 2, reason, took_ms: 1.5 }];
    while let Some(next) = match all.last().expect("there is one") {
        Kind::LeaderChanged { .. } => Some(Kind::LeaderLost { previous: Some(1), term: 2, reason }),
        Kind::LeaderLost { .. } => {
            Some(Kind::LeaderConfirmed { leader: 1, term: 2, asked: 1, held_by: 1, scores: scores.clone() })
        }
        Kind::LeaderConfirmed { .. } => {
            Some(Kind::GroupLeaderChanged { group: "g".to_owned(), leader: 1, previous: None, reason })
        }
        Kind::GroupLeaderChanged { .. } => Some(Kind::GroupLeaderConfirmed {
            group: "g".to_owned(),
            leader: 1,
            round: 2,
            held_by: 1,
            scores: scores.clone(),
        }),
        Kind::GroupLeaderConfirmed { .. } => Some(Kind::Suspected { peer: 1, reason }),
        Kind::Suspected { .. } => Some(Kind::FoundingWaits { reason: "because".to_owned() }),
        Kind::FoundingWaits { .. } => Some(Kind::Founded { cluster: "3f9c-27b1".to_owned(), members: vec![1, 2] }),
        Kind::Founded { .. } => Some(Kind::ListDiffers { listed: vec![1], members: vec![1, 2] }),
        Kind::ListDiffers { .. } => Some(Kind::LinkRefused { reason: "because".to_owned(), left_out: 0 }),
        Kind::LinkRefused { .. } => Some(Kind::Saturated { queued: 7 }),
        Kind::Saturated { .. } => Some(Kind::Calm),
        Kind::Calm => Some(Kind::LoanAsked { farm: farm.clone(), count: 1 }),
        Kind::LoanAsked { .. } => Some(Kind::LoanPromised { farm: farm.clone(), count: 1 }),
        Kind::LoanPromised { .. } => Some(Kind::LoanRefused { farm: farm.clone(), reason }),
        Kind::LoanRefused { .. } => Some(Kind::NeighbourSilent { farm: farm.clone() }),
        Kind::NeighbourSilent { .. } => Some(Kind::LoanNotSent { farm: farm.clone(), loan: 3 }),
        Kind::LoanNotSent { .. } => Some(Kind::LoanUnknown { farm: farm.clone(), loan: 3 }),
        Kind::LoanUnknown { .. } => Some(Kind::WorkerUnknown { farm: farm.clone(), worker: worker.clone() }),
        Kind::WorkerUnknown { .. } => Some(Kind::WorkerCannotGo { farm: farm.clone(), worker: worker.clone() }),
        Kind::WorkerCannotGo { .. } => Some(Kind::Lent(loan.clone())),
        Kind::Lent(_) => Some(Kind::Recalled(loan.clone())),
        Kind::Recalled(_) => Some(Kind::LoanHome(loan.clone())),
        Kind::LoanHome(_) => Some(Kind::LoanDead(loan.clone())),
        Kind::LoanDead(_) => Some(Kind::Overdue(loan.clone())),
        Kind::Overdue(_) => Some(Kind::Borrowed(guest.clone())),
        Kind::Borrowed(_) => Some(Kind::GivenBack(guest.clone())),
        Kind::GivenBack(_) => Some(Kind::ClockOff { server: 1, ahead_ms: -7 }),
        Kind::ClockOff { .. } => Some(Kind::ClockRight { server: 1 }),
        Kind::ClockRight { .. } => {
            Some(Kind::LateTurn { took_ms: 9.5, worked_ms: 1.5, cause: "the host", left_out: 0 })
        }
        Kind::LateTurn { .. } => Some(Kind::HookEnded {
            hook: "on_leader_changed",
            event: 7,
            outcome: "done",
            code: Some(0),
            signal: None,
            error: None,
            took_ms: 1.5,
            output: String::new(),
        }),
        Kind::HookEnded { .. } => None,
    } {
        all.push(next);
    }
    all
}

#[test]
fn every_kind_of_event_is_described_and_no_other() {
    let document = document();
    let schema = &document.0["components"]["schemas"]["Event"];
    let time = std::time::SystemTime::UNIX_EPOCH;
    let mut seen = BTreeSet::new();
    for (index, kind) in (1..).zip(kinds()) {
        let object = Event { index, time, kind }.object();
        assert_eq!(document.check(schema, &object), Ok(()));
        seen.insert(object["kind"].clone().to_string());
    }
    let choices = schema["oneOf"].as_array().expect("there are kinds").iter();
    let described: BTreeSet<String> =
        choices.map(|choice| choice["properties"]["kind"]["enum"][0].to_string()).collect();
    assert_eq!(seen, described);
}

/// Everything that a client may rely on, one line each: parameters, fields of bodies, fields of answers.
fn fields(document: &Value) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for (method, path, operation) in operations(document) {
        let route = format!("{method} {path}");
        lines.insert(route.clone());
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let [place, name] = ["in", "name"].map(|key| parameter[key].as_str().unwrap_or_default());
            lines.insert(format!("{route} {place} {name}"));
        }
        for content in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            add_fields(document, &content.1["schema"], &format!("{route} body "), &mut lines);
        }
        for (status, response) in operation["responses"].as_object().into_iter().flatten() {
            for (_, content) in
                response["content"].as_object().into_iter().flatten().filter(|_| status.starts_with('2'))
            {
                add_fields(document, &content["schema"], &format!("{route} {status} "), &mut lines);
            }
            for code in response["x-codes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                lines.insert(format!("{route} {status} {code}"));
            }
        }
    }
    lines
}

fn add_fields(document: &Value, schema: &Value, place: &str, lines: &mut BTreeSet<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let found = document.pointer(name.trim_start_matches('#')).expect("references lead somewhere");
        return add_fields(document, found, place, lines);
    }
    for choice in schema["oneOf"].as_array().into_iter().flatten() {
        add_fields(document, choice, place, lines);
    }
    if !schema["items"].is_null() {
        add_fields(document, &schema["items"], &format!("{place}[]"), lines);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let point = if place.ends_with(' ') { "" } else { "." };
        let place = format!("{place}{point}{name}");
        lines.insert(place.clone());
        add_fields(document, property, &place, lines);
    }
}

fn is_rewriting() -> bool {
    env::var_os("PRIMUS_REWRITE").is_some_and(|value| value == "1")
}

fn place(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A release adds its lines with `PRIMUS_REWRITE=1`; only a new minor version may take lines out of the file, by hand.
#[test]
fn fields_are_added_and_never_removed() {
    let (file, fields) = (place("tests/fields.txt"), fields(&document().0));
    let text = fs::read_to_string(&file).unwrap_or_default();
    let released: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let missing: Vec<&String> = released.difference(&fields).collect();
    assert!(missing.is_empty(), "clients may rely on what a release had: {missing:#?}");
    assert!(is_rewriting() || released.len() > 500, "the file has {} lines", released.len());
    if is_rewriting() {
        let lines: Vec<&str> = fields.iter().map(String::as_str).collect();
        fs::write(&file, lines.join("\n") + "\n").expect("it can be written");
    }
}

const BEGIN: &str = "<!-- made from the API's document: begin -->";
const END: &str = "<!-- made from the API's document: end -->";

#[test]
fn the_page_says_what_the_document_says() {
    let file = place("../../docs/api.md");
    let text = fs::read_to_string(&file).expect("there is a page");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a place for it");
    let (_, after) = rest.split_once(END).expect("that place has an end");
    let made = format!("{before}{BEGIN}\n\n{}\n{END}{after}", page::page(&document().0));
    if is_rewriting() {
        fs::write(&file, made).expect("it can be written");
    } else {
        assert!(
            made == text,
            "docs/api.md is not up to date: PRIMUS_REWRITE=1 cargo test -p primus-api --test document"
        );
    }
}
