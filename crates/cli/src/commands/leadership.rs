//! `primus elect`, `primus resign`, `primus transfer`: what an operator may ask of a farm.

use std::time::Duration;

use primus_client::http::{Request, escaped};
use primus_client::{Leader, Patience};
use primus_terminal::Place;
use primus_terminal::amounts::number;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use serde_json::{Value, json};

use super::events::scores;
use crate::args::{ElectArgs, TransferArgs};

/// Longer than a server itself waits for a transfer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Holds an election, and says what came of it.
pub(super) fn elect(args: &ElectArgs, format: Format) -> Result<Verdict, Failure> {
    let group = args.group.as_deref().map(|group| format!("?group={}", escaped(group)));
    let path = format!("/v1/elections{}", group.unwrap_or_default());
    let answer = ask(&args.place, &path, b"", format)?;
    format.show(|| format!("{}\n", result(&answer)), &answer)?;
    Ok(Verdict::Held)
}

fn result(answer: &Value) -> String {
    let (leader, scores) = (&answer["leader"], scores(answer));
    let where_ = match answer["group"].as_str() {
        Some(group) => format!("group {group} in round {}", answer["round"]),
        None => format!("in term {}", answer["term"]),
    };
    match answer["outcome"].as_str() {
        Some("confirmed") => format!("confirmed: server {leader} ranks best and leads on {where_}{scores}"),
        Some("transferred") => {
            let previous = &answer["previous"];
            format!("transferred: server {leader} ranks best and leads {where_}, after server {previous}{scores}")
        }
        _ => format!("elected: server {leader} leads {where_}{scores}"),
    }
}

/// Lets the leader step down.
pub(super) fn resign(place: &Place, format: Format) -> Result<Verdict, Failure> {
    let answer = ask(place, "/v1/leader/resign", b"", format)?;
    show_leader(&answer, format)
}

/// Lets another server lead.
pub(super) fn transfer(args: &TransferArgs, format: Format) -> Result<Verdict, Failure> {
    let to = number("ID", &args.to, 1, u64::MAX)?;
    let body = json!({ "to": to }).to_string();
    let answer = ask(&args.place, "/v1/leader/transfer", body.as_bytes(), format)?;
    show_leader(&answer, format)
}

fn ask(place: &Place, path: &str, body: &[u8], format: Format) -> Result<Value, Failure> {
    format.refuse_to_draw()?;
    Ok(place.client()?.write(Request::post(path, body), Patience::Once(ANSWER_TIME))?)
}

fn show_leader(answer: &Value, format: Format) -> Result<Verdict, Failure> {
    let sentence = || {
        let leader = Leader::read(answer).map(|leader| leader.sentence());
        format!("{}\n", leader.unwrap_or_else(|_| "done".to_string()))
    };
    format.show(sentence, answer)?;
    Ok(Verdict::Held)
}
