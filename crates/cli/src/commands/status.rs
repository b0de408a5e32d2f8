//! `primus status`: who leads, and how all servers and workers are.

use std::collections::BTreeSet;
use std::thread;

use primus_client::{Leader, listens};
use primus_terminal::failure::Failure;
use primus_terminal::table::fitted;
use primus_terminal::values::{number, plain};
use primus_terminal::{Format, Verdict};
use serde_json::Value;

use super::lists;
use crate::args::StatusArgs;
use crate::output::workers;

const COLUMNS: [&str; 11] =
    ["SERVER", "ROLE", "STATE", "SCORE", "CPU", "MEMORY", "TASKS", "APPLIED", "LAG", "ADDRESS", "API"];
/// The columns that are shown as they come.
const FIELDS: [&str; 8] = ["score", "cpu", "memory", "tasks", "applied", "lag", "address", "api"];
/// What may be left out where there is no room, the last first.
const SPARE: [&str; 6] = ["ADDRESS", "APPLIED", "LAG", "MEMORY", "CPU", "API"];

/// Shows it once, or again and again.
pub(super) fn run(args: &StatusArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    lists::again(args.watch, format, |clear| {
        let status = args.place.client()?.latest("/v1/status")?;
        format.show(|| format!("{clear}{}", text(&status, &answering(&status))), &status)
    })
}

/// The servers that are missed, and yet answer this command: no process that is dead or frozen does, so they are cut off. One that
/// refuses others has said why.
fn answering(status: &Value) -> BTreeSet<u64> {
    let servers = status["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_refused = |server: &Value| server["why"].as_str().is_some_and(|why| why.contains("refuses: "));
    let is_cut_off = |server: &Value| server["state"] == "suspected" && !is_nowhere(server) && !is_refused(server);
    let missed = servers.iter().filter(|server| is_cut_off(server));
    let missed: Vec<(u64, &str)> =
        missed.filter_map(|it| Some((it["id"].as_u64()?, it["api"].as_str()?))).collect();
    thread::scope(|scope| {
        let asked: Vec<_> =
            missed.iter().map(|(id, api)| scope.spawn(move || listens(api).then_some(*id))).collect();
        asked.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    })
}

/// Does its name not resolve? Then it is not cut off: there is nothing to dial.
fn is_nowhere(server: &Value) -> bool {
    server["why"].as_str().is_some_and(|why| why.contains(" does not resolve: "))
}

fn text(status: &Value, answering: &BTreeSet<u64>) -> String {
    let headline = Leader::read(status).map_or_else(|_| "the farm".to_string(), |leader| leader.sentence());
    let servers = status["servers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_cut_off = |server: &Value| server["id"].as_u64().is_some_and(|id| answering.contains(&id));
    let rows: Vec<[String; 11]> = servers.iter().map(|server| row(server, is_cut_off(server))).collect();
    let (table, notes) = (fitted(&COLUMNS, &rows, &SPARE), notes(servers, is_cut_off));
    let remarks = full_disks(servers) + &slow_links(status, servers);
    format!("{headline}\n\n{table}{notes}{remarks}{}", crew(status))
}

/// What a table has no room for: who is not up, since when and why, and who gave way.
fn notes(servers: &[Value], is_cut_off: impl Fn(&Value) -> bool) -> String {
    let note = |server: &Value| {
        let (id, state) = (plain(&server["id"]), server["state"].as_str().filter(|state| *state != "up"));
        let heard = server["heard_ms"].as_f64().map(|ms| format!(", last heard {:.1} s ago", ms / 1000.0));
        let (since, heard) = (plain(&server["since"]), heard.unwrap_or_default());
        let missing = state.map(|state| match is_cut_off(server) {
            true => format!(
                "server {id} is cut off since {since}{heard}: it answers here, but the others do not hear it\n"
            ),
            false => format!("server {id} is {state} since {since}{heard}: {}\n", plain(&server["why"])),
        });
        let to = server["gave_way_to"].as_u64();
        let gave_way = to.map(|to| {
            format!(
                "server {id} gave way to server {to}: it does not stand; primus explain leader says until when\n"
            )
        });
        missing.unwrap_or_default() + &gave_way.unwrap_or_default()
    };
    let notes: String = servers.iter().map(note).collect();
    if notes.is_empty() { notes } else { format!("\n{notes}") }
}

/// Which links are slow on purpose, as far as the server knows that answers.
fn slow_links(status: &Value, servers: &[Value]) -> String {
    let here = plain(&status["server"]);
    let slow = servers.iter().filter_map(|server| Some((plain(&server["id"]), server["delay_ms"].as_u64()?)));
    slow.map(|(id, ms)| {
        format!("\nthe link between server {here} and server {id} is delayed by {ms} ms each way\n")
    })
    .collect()
}

/// What has to be done about disks; nothing where all have room.
fn full_disks(servers: &[Value]) -> String {
    let full = servers.iter().filter(|server| server["disk_full"] == true);
    full.map(|server| format!("\nthe disk of server {} is full: make room\n", plain(&server["id"]))).collect()
}

/// The workers, and what there is to do; nothing where there has never been a worker or a task.
fn crew(status: &Value) -> String {
    let workers = status["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (queued, running) = (number(&status["queued"]), number(&status["running"]));
    if workers.is_empty() && queued + running == 0 {
        return String::new();
    }
    format!("\n{}\n{queued} queued, {running} running\n", workers::table(workers))
}

fn row(server: &Value, is_cut_off: bool) -> [String; 11] {
    let state = if is_cut_off { "cut off".to_owned() } else { plain(&server["state"]) };
    let role = plain(&server["role"]);
    let [score, cpu, memory, tasks, applied, lag, address, api] = FIELDS.map(|name| plain(&server[name]));
    [plain(&server["id"]), role, state, score, cpu, memory, tasks, applied, lag, address, api]
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
                {"id": 1, "role": null, "alive": false, "state": "dead", "since": "then", "heard_ms": 2500.0,
                 "why": "its port refuses connections", "gave_way_to": 2, "score": null, "address": "a:1", "api": "a:2"},
                {"id": 2, "role": "leader", "alive": true, "state": "up", "score": 1.5, "cpu": 2.0, "memory": 2.5,
                 "tasks": 0, "applied": 9, "lag": 0, "address": "b:1", "api": "b:2"},
            ],
        });
        let expected = "\
server 2 leads north in term 7 since now (start)

SERVER  ROLE    STATE  SCORE  CPU  MEMORY  TASKS  APPLIED  LAG  ADDRESS  API
1       -       dead   -      -    -       -      -        -    a:1      a:2
2       leader  up     1.5    2.0  2.5     0      9        0    b:1      b:2

server 1 is dead since then, last heard 2.5 s ago: its port refuses connections
server 1 gave way to server 2: it does not stand; primus explain leader says until when
";
        assert_eq!(text(&status, &BTreeSet::new()), expected);
        let mut missed = status;
        missed["servers"][0]["state"] = "suspected".into();
        let text = text(&missed, &BTreeSet::from([1]));
        let expected = "server 1 is cut off since then, last heard 2.5 s ago: it answers here, but the others do not hear it\n";
        assert!(text.contains("1       -       cut off") && text.contains(expected), "{text}");
        let slow = slow_links(
            &json!({"server": 1}),
            &[json!({"id": 1, "delay_ms": null}), json!({"id": 2, "delay_ms": 75})],
        );
        assert_eq!(slow, "\nthe link between server 1 and server 2 is delayed by 75 ms each way\n");
        let full = full_disks(&[json!({"id": 1, "disk_full": false}), json!({"id": 2, "disk_full": true})]);
        assert_eq!(full, "\nthe disk of server 2 is full: make room\n");
        let crowd = json!({"workers": [{"name": "w1", "farm": "north", "slots": 2, "running": 1, "alive": true, "draining": false,
            "score": 17.0, "cpu": 20.0, "memory": 20.0, "tasks": 1}], "queued": 7, "running": 1});
        let expected = "
WORKER  FARM   SLOTS  RUNNING  ALIVE  DRAINED  SCORE  CPU   MEMORY  TASKS
w1      north  2      1        yes    no       17.0   20.0  20.0    1

7 queued, 1 running
";
        assert_eq!(crew(&crowd), expected);
    }
}
