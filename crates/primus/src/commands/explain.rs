//! `primus explain`: why a task is as it is, or why a server leads and what would change that.

use serde_json::Value;

use super::{Verdict, refuse_to_draw, show};
use crate::args::{ExplainArgs, Format};
use crate::client::tasks::{Caller, task_path};
use crate::client::{Client, strange_answer};
use crate::output::failure::{Failure, on_one_line};

/// What is asked for instead of a task.
const LEADER: &str = "leader";

/// Asks, and prints the sentence.
pub(super) fn run(args: &ExplainArgs, format: Format) -> Result<Verdict, Failure> {
    refuse_to_draw(format)?;
    if args.id == LEADER {
        let answer = Client::find(&args.place)?.latest("/v1/leader/explain")?;
        say(&answer, "sentence", format)?;
        return Ok(if answer["leader"].is_null() { Verdict::NoLeader } else { Verdict::Held });
    }
    let path = format!("{}/explain", task_path(&args.id)?);
    say(&Caller::find(&args.place)?.get(&path)?, "explanation", format)?;
    Ok(Verdict::Held)
}

fn say(answer: &Value, field: &str, format: Format) -> Result<(), Failure> {
    let sentence = answer[field].as_str().ok_or_else(strange_answer)?;
    show(format, || format!("{}\n", on_one_line(sentence)), answer)?;
    Ok(())
}
