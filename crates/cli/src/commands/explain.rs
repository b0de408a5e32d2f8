//! `primus explain`: why a task is as it is, why a server leads and what would change that, or where a lent worker is.

use primus_client::http::escaped;
use primus_client::strange_answer;
use primus_client::tasks::{TaskClient, task_path};
use primus_terminal::amounts::quoted;
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::{Format, Verdict};
use serde_json::Value;

use super::{loans, select};
use crate::args::ExplainArgs;

/// What is asked for instead of a task.
const LEADER: &str = "leader";
const LOAN: &str = "loan";

/// Asks, and prints the sentence.
pub(super) fn run(args: &ExplainArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    if args.id == LEADER && args.loan.is_none() {
        let answer = args.place.client()?.latest("/v1/leader/explain")?;
        say(&answer, "sentence", format)?;
        return Ok(if answer["leader"].is_null() { Verdict::NoLeader } else { Verdict::Held });
    }
    let mut caller = args.place.caller()?;
    let path = format!("{}/explain", path(args, &mut caller)?);
    say(&caller.get(&path)?, "explanation", format)?;
    Ok(Verdict::Held)
}

fn path(args: &ExplainArgs, caller: &mut TaskClient) -> Result<String, Failure> {
    match (args.id.as_str(), &args.loan) {
        (LOAN, Some(loan)) => Ok(format!("/v1/loans/{}", escaped(&loans::name(loan)?))),
        (LOAN, None) => Err(Failure::usage("which loan is missing", "write it like primus explain loan 3")),
        (_, Some(other)) => {
            Err(Failure::usage(format!("{} is too much", quoted(other)), "name one task, or loan and its number"))
        }
        (task, None) => Ok(task_path(&select::id(caller, task)?)?),
    }
}

fn say(answer: &Value, field: &str, format: Format) -> Result<(), Failure> {
    let sentence = answer[field].as_str().ok_or_else(strange_answer)?;
    format.show(|| format!("{}\n", on_one_line(sentence)), answer)?;
    Ok(())
}
