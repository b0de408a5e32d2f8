//! What all lists have in common: they can be shown as a table, as ids alone or as JSON, once or again and again.

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use primus_client::tasks::TaskClient;
use primus_client::{pages, strange_answer};
use primus_terminal::failure::Failure;
use primus_terminal::values::plain;
use primus_terminal::{Format, Verdict};
use serde_json::Value;

use crate::args::ListArgs;

const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Moves to the first line and clears what is below; only terminals get to see it.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Shows a list whose items have this as their id.
pub(super) fn show(
    args: &ListArgs,
    format: Format,
    id: &str,
    mut look: impl FnMut(&mut TaskClient) -> Result<Value, Failure>,
    table: impl Fn(&[Value]) -> String,
) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    check_quiet(args.quiet, format)?;
    let lines = |items: &[Value]| items.iter().map(|item| format!("{}\n", plain(&item[id]))).collect::<String>();
    again(args.watch, format, |clear| {
        let answer = look(&mut args.place.caller()?)?;
        let items = answer["items"].as_array().ok_or_else(strange_answer)?;
        let text = || if args.quiet { lines(items) } else { table(items) };
        format.show(|| format!("{clear}{}", text()), &answer)
    })
}

/// The same for a list that is shown whole, and is found at this path.
pub(super) fn all(
    args: &ListArgs,
    format: Format,
    path: &str,
    id: &str,
    table: impl Fn(&[Value]) -> String,
) -> Result<Verdict, Failure> {
    show(args, format, id, |caller| Ok(pages::all(path, |page| caller.get(page))?), table)
}

/// Shows something once or, for somebody who watches, every second. Then failures are reported, and it goes on: what happens to
/// the servers is what one wants to see. `show` is given what clears the screen, and says whether the reader is still there.
pub(super) fn again(
    is_watched: bool,
    format: Format,
    mut show: impl FnMut(&str) -> Result<bool, Failure>,
) -> Result<Verdict, Failure> {
    if !is_watched {
        return show("").map(|_| Verdict::Held);
    }
    let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        match show(clear) {
            Ok(true) => {}
            Ok(false) => return Ok(Verdict::Held),
            Err(failure) if failure.is_usage() => return Err(failure),
            Err(failure) => failure.complain(format),
        }
        thread::sleep(WATCH_EVERY);
    }
}

/// Lines of ids are not JSON.
pub(super) fn check_quiet(is_quiet: bool, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json if is_quiet => {
            Err(Failure::usage("--quiet and -o json say different things", "leave one out"))
        }
        _ => Ok(()),
    }
}
