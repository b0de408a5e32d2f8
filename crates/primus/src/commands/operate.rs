//! `primus elect`, `primus resign`, `primus transfer`: what an operator may ask of a farm.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Verdict, refuse_to_draw, show};
use crate::args::{Format, Place, TransferArgs};
use crate::client::http::Request;
use crate::client::{Client, Leader, Patience};
use crate::output::failure::Failure;
use crate::settings::number;

/// Longer than a server itself waits for a transfer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Holds an election.
pub(super) fn elect(place: &Place, format: Format) -> Result<Verdict, Failure> {
    let answer = ask(place, "/v1/elections", b"", format)?;
    show(format, || "an election has been started; primus leader says who leads\n".to_string(), &answer)?;
    Ok(Verdict::Held)
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
    refuse_to_draw(format)?;
    Client::find(place)?.write(Request::post(path, body), Patience::Once(ANSWER_TIME))
}

fn show_leader(answer: &Value, format: Format) -> Result<Verdict, Failure> {
    let sentence = || {
        let leader = Leader::read(answer).map(|leader| leader.sentence());
        format!("{}\n", leader.unwrap_or_else(|_| "done".to_string()))
    };
    show(format, sentence, answer)?;
    Ok(Verdict::Held)
}
