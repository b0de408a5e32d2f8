//! `primus farms`, `primus loans`, `primus lend`, `primus recall`: other farms, and who is away from home.

use std::time::Duration;

use primus_client::Patience;
use primus_client::http::{Request, escaped};
use primus_terminal::amounts::{length, number, quoted};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use serde_json::json;

use super::lists;
use crate::args::{LendArgs, ListArgs, RecallArgs};
use crate::output::loans;

/// No more workers are lent at once.
const WORKERS_MAX: u64 = 1024;
/// How long a leader may take to write a loan down.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Shows the farm and its neighbours.
pub(super) fn farms(args: &ListArgs, format: Format) -> Result<Verdict, Failure> {
    lists::all(args, format, "/v1/farms", "farm", loans::farms)
}

/// Shows who is away from home.
pub(super) fn loans(args: &ListArgs, format: Format) -> Result<Verdict, Failure> {
    lists::all(args, format, "/v1/loans", "id", loans::loans)
}

/// Lends idle workers, once: whoever asks twice lends twice as many.
pub(super) fn lend(args: &LendArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let count = number("N", &args.count, 1, WORKERS_MAX)?;
    let for_ms = args.for_time.as_deref().map(for_ms).transpose()?;
    let body = json!({ "to": args.to, "count": count, "for_ms": for_ms }).to_string();
    let request = Request::post("/v1/loans", body.as_bytes());
    let answer = args.place.client()?.write(request, Patience::Once(ANSWER_TIME))?;
    format.show(|| loans::lent(&answer), &answer)?;
    Ok(Verdict::Held)
}

fn for_ms(text: &str) -> Result<u64, Failure> {
    let time = length("--for", text)?;
    let wrong = || Failure::usage(format!("--for is {}", quoted(text)), "give it a millisecond at least");
    u64::try_from(time.as_millis()).ok().filter(|time| *time > 0).ok_or_else(wrong)
}

/// Calls workers home.
pub(super) fn recall(args: &RecallArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let (path, body) = match args {
        RecallArgs { loan: Some(loan), .. } => (format!("/v1/loans/{}/recall", escaped(&name(loan)?)), json!({})),
        RecallArgs { worker: Some(worker), .. } => (RECALL.to_owned(), json!({ "worker": worker })),
        RecallArgs { from: Some(farm), .. } => (RECALL.to_owned(), json!({ "farm": farm })),
        RecallArgs { all: true, .. } => (RECALL.to_owned(), json!({ "all": true })),
        _ => {
            let hint = "name a loan, --worker NAME, --from FARM or --all";
            return Err(Failure::usage("who is to come home is missing", hint));
        }
    };
    let answer = args.place.caller()?.post(&path, &body)?;
    format.show(|| loans::recalled(&answer), &answer)?;
    Ok(Verdict::Held)
}

const RECALL: &str = "/v1/loans/recall";

/// The name of a loan, if it can be one.
pub(super) fn name(text: &str) -> Result<String, Failure> {
    let is_loan = text.split('@').next().is_some_and(|number| number.parse::<u64>().is_ok_and(|number| number > 0));
    let wrong =
        || Failure::usage(format!("{} is not a loan", quoted(text)), "a loan is 3, or 3@south if south lends it");
    if is_loan { Ok(text.to_owned()) } else { Err(wrong()) }
}
