//! `primus submit`: a job, which the farm runs when there is room.

use primus_client::strange_answer;
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::{Format, Verdict, screen};

use super::lists;
use super::wait::{self, Waiting};
use crate::args::SubmitArgs;
use crate::settings::work::Wish;

/// Submits it and, if that is wanted, waits for it.
pub(super) fn run(args: &SubmitArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    lists::check_quiet(args.quiet, format)?;
    let mut caller = args.work.place.caller()?;
    let wish = Wish::of_submit(args, caller.is_local())?;
    let body = serde_json::to_vec(&wish.submission).expect("plain fields become JSON");
    let answer = caller.submit(&body, &wish.key)?;
    let job = answer["job"].as_str().ok_or_else(strange_answer)?;
    let noun = if answer["tasks"] == 1 { "task" } else { "tasks" };
    let verb = if answer["created"] == false { "was submitted before" } else { "is submitted" };
    let sentence = format!("job {job} {verb}: {} {noun}", answer["tasks"]);
    let line = if args.quiet { on_one_line(job) } else { sentence };
    if !args.wait {
        format.show(|| format!("{line}\n"), &answer)?;
        return Ok(Verdict::Held);
    }
    match (format, args.quiet) {
        (Format::Text, true) => screen::print(&format!("{line}\n"))?,
        (Format::Text, false) => screen::complain(&line),
        _ => {}
    }
    let items = Waiting::new(caller, vec![job.to_owned()], None)?.finish()?;
    let [job] = items.as_slice() else { return Err(strange_answer().into()) };
    if !args.quiet {
        format.show(|| format!("{}\n", wait::sentence(job)), job)?;
    }
    Ok(Verdict::of(wait::ended_well(job)))
}
