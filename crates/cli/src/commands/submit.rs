//! `primus submit`: a job, which the farm runs when there is room.

use primus_client::strange_answer;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict, screen};

use super::wait::Waiting;
use crate::args::SubmitArgs;
use crate::settings::work::Wish;

/// Submits it and, if that is wanted, waits for it.
pub(super) fn run(args: &SubmitArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let mut caller = args.work.place.caller()?;
    let wish = Wish::of_submit(args, caller.is_local())?;
    let body = serde_json::to_vec(&wish.submission).expect("plain fields become JSON");
    let answer = caller.submit(&body, &wish.key)?;
    let job = answer["job"].as_str().ok_or_else(strange_answer)?;
    let noun = if answer["tasks"] == 1 { "task" } else { "tasks" };
    let verb = if answer["created"] == false { "was submitted before" } else { "is submitted" };
    let sentence = format!("job {job} {verb}: {} {noun}", answer["tasks"]);
    if !args.wait {
        format.show(|| format!("{sentence}\n"), &answer)?;
        return Ok(Verdict::Held);
    }
    if format == Format::Text {
        screen::complain(&sentence);
    }
    let mut waiting = Waiting::new(caller, vec![job.to_owned()], None)?;
    let items = waiting.finish()?;
    let [job] = items.as_slice() else { return Err(strange_answer().into()) };
    waiting.show_one(job, format)
}
