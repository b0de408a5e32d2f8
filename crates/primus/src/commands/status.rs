//! `primus status`: who leads, and how all servers are.

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{Verdict, refuse_to_draw, show};
use crate::args::{Format, StatusArgs};
use crate::client::{Client, Leader};
use crate::output::failure::{Failure, on_one_line};

const WATCH_EVERY: Duration = Duration::from_secs(1);
/// Moves to the first line and clears what is below; only terminals get to see it.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";
const COLUMNS: [&str; 8] = ["SERVER", "ROLE", "ALIVE", "SCORE", "APPLIED", "LAG", "ADDRESS", "API"];

/// Shows it once, or again and again.
pub(super) fn run(args: &StatusArgs, format: Format) -> Result<Verdict, Failure> {
    refuse_to_draw(format)?;
    if args.watch {
        return watch(args, format);
    }
    let status = Client::find(&args.place)?.latest("/v1/status")?;
    show(format, || text(&status), &status)?;
    Ok(Verdict::Held)
}

/// Whatever happens to the servers, whoever watches wants to see it.
fn watch(args: &StatusArgs, format: Format) -> Result<Verdict, Failure> {
    let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        match Client::find(&args.place).and_then(|client| client.latest("/v1/status")) {
            Ok(status) => {
                if !show(format, || format!("{clear}{}", text(&status)), &status)? {
                    return Ok(Verdict::Held);
                }
            }
            Err(failure) if failure.is_usage() => return Err(failure),
            Err(failure) => failure.complain(format),
        }
        thread::sleep(WATCH_EVERY);
    }
}

fn text(status: &Value) -> String {
    let headline = Leader::read(status).map_or_else(|_| "the farm".to_string(), |leader| leader.sentence());
    let servers = status["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<[String; 8]> = servers.iter().map(row).collect();
    format!("{headline}\n\n{}", table(&rows))
}

fn row(server: &Value) -> [String; 8] {
    let is_alive = server["alive"] == true;
    let role = if is_alive { plain(&server["role"]) } else { "-".to_string() };
    let alive = if is_alive { "yes" } else { "no" }.to_string();
    let field = |name: &str| plain(&server[name]);
    [field("id"), role, alive, field("score"), field("applied"), field("lag"), field("address"), field("api")]
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_string(),
        Value::String(text) => on_one_line(text),
        other => other.to_string(),
    }
}

fn table(rows: &[[String; 8]]) -> String {
    let head = COLUMNS.map(str::to_string);
    let all: Vec<&[String; 8]> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |row: &&[String; 8]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_a_sentence_and_a_table() {
        let status = json!({
            "farm": "north", "leader": 2, "term": 7, "since": "now", "reason": "start",
            "servers": [
                {"id": 1, "role": "follower", "alive": false, "score": null, "address": "a:1", "api": "a:2"},
                {"id": 2, "role": "leader", "alive": true, "score": 1.5, "applied": 9, "lag": 0, "address": "b:1", "api": "b:2"},
            ],
        });
        let expected = "\
server 2 leads north in term 7 since now (start)

SERVER  ROLE    ALIVE  SCORE  APPLIED  LAG  ADDRESS  API
1       -       no     -      -        -    a:1      a:2
2       leader  yes    1.5    9        0    b:1      b:2
";
        assert_eq!(text(&status), expected);
    }
}
