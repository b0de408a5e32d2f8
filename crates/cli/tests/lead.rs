//! `primus lead`: one host at a time runs a command, whatever happens to processes and links.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::namespace::{Mount, inside};
use common::place::{Farm, Place};
use common::{eventually, http, is_running};
use jiff::Timestamp;
use primus_node::clock::now_us;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Two ran at once for no moment at all, says the bench, and somebody took over each time. Whom did it hit?
fn never_overlaps(words: &str, runs: usize) -> Value {
    let place = Place::new();
    let figures = place.json(&format!("bench lead {words} --runs {runs}"));
    assert_eq!(figures["overlap_ms"], 0.0, "{figures}");
    assert_eq!(figures["runs"].as_array().expect("a list").len(), runs, "{figures}");
    figures["victims"].clone()
}

#[test]
fn a_killed_host_is_replaced_and_never_overlaps() {
    assert_eq!(never_overlaps("--fault kill", 3), json!(["server", "lead", "both"]));
}

#[test]
fn a_frozen_host_is_replaced_and_never_overlaps() {
    assert_eq!(never_overlaps("--fault freeze", 3), json!(["server", "lead", "both"]));
    assert_eq!(never_overlaps("--fault freeze --lease 300ms", 3), json!(["server", "lead", "both"]));
}

#[test]
fn a_leader_that_is_cut_off_is_replaced_and_never_overlaps() {
    never_overlaps("--fault partition --lease 300ms", 2);
}

#[test]
fn a_leader_that_steps_down_ends_its_command_first() {
    never_overlaps("--fault release", 3);
    never_overlaps("--fault release --manner stubborn", 1);
    never_overlaps("--fault release --manner setsid", 1);
}

#[test]
fn a_killed_companion_leaves_nothing_running() {
    never_overlaps("--fault kill --victim companion --manner setsid", 2);
    never_overlaps("--fault freeze --victim companion --manner setsid", 2);
}

#[test]
fn a_command_that_does_not_want_to_end_is_killed_in_time() {
    never_overlaps("--fault freeze --victim lead --manner stubborn --lease 500ms", 2);
    never_overlaps("--fault kill --victim server --manner stubborn --lease 500ms", 1);
}

#[test]
fn what_a_command_has_started_is_found_wherever_it_went() {
    never_overlaps("--fault freeze --victim both --manner setsid", 2);
    never_overlaps("--fault kill --victim lead --manner forks", 2);
    never_overlaps("--fault kill --victim lead --manner setsid", 1);
}

#[test]
fn a_lease_of_300_ms_is_the_shortest() {
    let place = Place::new();
    assert_eq!(place.primus("config show --set guard.lease=300ms").code, Some(0));
    let ran = place.primus("config show --set guard.lease=299ms");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("guard.lease is 299ms") && ran.stderr.contains("make it 300ms at least"),
        "{ran:?}"
    );
}

/// A `primus lead` with a command that leaves its mark.
struct Lead<'a> {
    place: &'a Place,
    child: Child,
    name: String,
}

impl<'a> Lead<'a> {
    fn start(place: &'a Place, name: &str, options: &str, script: &str) -> Self {
        let script = format!("echo \"$PRIMUS_TERM $$\" > {name}.mark; {script}");
        let mut words: Vec<&str> = vec!["lead", "--name", name];
        words.extend(options.split_whitespace());
        words.extend(["--", "/bin/sh", "-c", &script]);
        let said = fs::File::create(place.dir.join(format!("{name}.said"))).expect("there is room");
        let mut command = place.command(&words);
        let child = command.stdin(Stdio::null()).stderr(said).spawn().expect("it starts");
        Self { place, child, name: name.to_owned() }
    }

    /// Term and process of its command, if it has run.
    fn mark(&self) -> Option<(u64, u64)> {
        let text = fs::read_to_string(self.file("mark")).ok()?;
        let (term, pid) = text.trim().split_once(' ')?;
        Some((term.parse().ok()?, pid.parse().ok()?))
    }

    fn wait_for_mark(&self) -> (u64, u64) {
        eventually("the command to start", || self.mark())
    }

    fn file(&self, end: &str) -> PathBuf {
        self.place.dir.join(format!("{}.{end}", self.name))
    }

    fn said(&self) -> String {
        fs::read_to_string(self.file("said")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    fn code(&mut self) -> Option<i32> {
        eventually("it to end", || self.child.try_wait().expect("it is a child")).code()
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

const FOREVER: &str = "while :; do sleep 0.05; done";

fn groups(place: &Place) -> Vec<Value> {
    place.json("groups")["items"].as_array().expect("a list").clone()
}

#[test]
fn the_next_one_starts_when_the_first_has_ended_with_its_own_code() {
    let place = Place::new();
    let _farm = place.up("--servers 3 --workers 0");
    let mut first = Lead::start(
        &place,
        "first",
        "--group cron --rank name",
        "trap 'exit 7' TERM; while :; do sleep 0.05; done",
    );
    let (term, pid) = first.wait_for_mark();
    let second = Lead::start(&place, "second", "--group cron --rank name", FOREVER);
    first.signal(Signal::TERM);
    assert_eq!(first.code(), Some(7), "{}", first.said());
    assert!(!is_running(pid));
    assert!(second.wait_for_mark().0 > term);
    let group = &groups(&place)[0];
    assert_eq!((&group["group"], &group["authority"]), (&"cron".into(), &"quorum".into()), "{group}");
    assert_eq!(group["holders"][0]["name"], "second");
}

#[test]
fn a_command_that_ends_is_started_again_only_if_somebody_wants_that() {
    let place = Place::new();
    let _farm = place.up("--servers 1 --workers 0");
    let mut once = Lead::start(&place, "once", "--group a", "exit 3");
    assert_eq!(once.code(), Some(3), "{}", once.said());
    let script = "echo x >> again.count; [ $(wc -l < again.count) -lt 3 ]";
    let mut again =
        Lead::start(&place, "again", "--group b --restart always", &format!("{script} && exit 1; sleep 600"));
    eventually("three starts", || {
        (fs::read_to_string(place.dir.join("again.count")).ok()?.lines().count() >= 3).then_some(())
    });
    again.signal(Signal::TERM);
    assert_eq!(again.code(), Some(143), "{}", again.said());
    let mut killed = Lead::start(&place, "killed", "--group c --restart on-failure", "exit 0");
    assert_eq!(killed.code(), Some(0), "{}", killed.said());
}

#[test]
fn a_semaphore_has_as_many_holders_as_it_says() {
    let place = Place::new();
    let _farm = place.up("--servers 3 --workers 0");
    let start =
        |number: u64| Lead::start(&place, &format!("c{number}"), "--group seats --holders 2 --rank name", FOREVER);
    let leads: Vec<Lead<'_>> = (1..=4).map(start).collect();
    let runs = || leads.iter().filter(|lead| lead.mark().is_some()).count();
    eventually("two to run it", || (runs() == 2).then_some(()));
    let holder = leads.iter().find(|lead| lead.mark().is_some()).unwrap();
    holder.signal(Signal::KILL);
    eventually("a third to run it", || (runs() == 3).then_some(()));
    let group = &groups(&place)[0];
    assert_eq!(group["holders"].as_array().unwrap().len(), 2, "{group}");
    let mut odd = Lead::start(&place, "odd", "--group seats --holders 3", FOREVER);
    assert_eq!(odd.code(), Some(125));
    assert!(odd.said().contains("agreed on rank name and 2 at once"), "{}", odd.said());
}

#[test]
fn the_death_of_a_leader_does_not_disturb_a_group() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 0");
    let lead = Lead::start(&place, "calm", "--group cron", FOREVER);
    let mark = lead.wait_for_mark();
    let first = farm.ready["leader"].as_u64().unwrap();
    place.json("chaos kill leader");
    farm.leader_other_than(first);
    eventually("the new leader to know the holder", || {
        (groups(&place).first()?["holders"][0]["name"] == "calm").then_some(())
    });
    place.json(&format!("chaos restart {first}"));
    farm.wait_until_alive(3);
    assert_eq!(lead.mark(), Some(mark), "{}", lead.said());
    assert!(is_running(mark.1));
}

#[test]
fn a_server_can_guard_by_itself() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 0");
    let leads = become_servers(&place, farm, "", |_| FOREVER.to_owned());
    let running =
        |leads: &[Lead<'_>]| leads.iter().position(|lead| lead.mark().is_some_and(|(_, pid)| is_running(pid)));
    let first = eventually("one to run it", || running(&leads));
    let (term, pid) = leads[first].mark().unwrap();
    leads[first].signal(Signal::KILL);
    let next = eventually("another one to run it", || {
        leads.iter().position(|lead| lead.mark().is_some_and(|(later, pid)| later > term && is_running(pid)))
    });
    assert_ne!(next, first);
    assert!(!is_running(pid));
}

#[test]
fn a_server_that_guards_by_itself_and_is_frozen_never_overlaps() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 0");
    let beats = place.dir.join("beats");
    let leads = become_servers(&place, farm, "", |id| beat(id, &beats));
    let (term, _, first) = eventually("one to run it", || spans(&beats).pop());
    let frozen = &leads[usize::try_from(first).unwrap() - 1];
    frozen.signal(Signal::STOP);
    let (next, ..) = eventually("another one to run it", || spans(&beats).pop().filter(|span| span.0 > term));
    frozen.signal(Signal::CONT);
    eventually("the frozen one to know", || frozen.said().contains("does not hold leader any more").then_some(()));
    let spans = spans(&beats);
    none_overlaps(&spans);
    assert!(spans.iter().any(|span| span.0 == next && span.2 != first), "{spans:?}");
}

/// The term stays the same, so only processes tell the old command from the new one.
#[test]
fn when_a_companion_is_killed_its_command_is_dead_before_it_starts_again() {
    let place = Place::new();
    let _farm = place.up("--servers 1 --workers 0");
    let beats = place.dir.join("beats");
    let script = format!("{} --manner setsid", beat(1, &beats));
    let lead = Lead::start(&place, "kept", "--group cron", &script);
    for _ in 0..5 {
        let old = eventually("the command and its child to run", || living(&beats));
        kill_process(companion_of(&lead), Signal::KILL).unwrap();
        let new = eventually("them to run again", || living(&beats).filter(|new| new[0].0 > old[0].0));
        let died_us = processes(&beats)[&old[0].1].1.max(processes(&beats)[&old[1].1].1);
        assert!(died_us < new[0].0, "{old:?} ended at {died_us}, {new:?} began before: {}", lead.said());
    }
}

/// Only the companion is stopped: its supervisor ends the command at the deadline that the companion knows, and starts it again
/// under another companion while the lease goes on.
#[test]
fn a_frozen_companion_loses_its_command_in_time() {
    let place = Place::new();
    let _farm = place.up("--servers 1 --workers 0");
    let beats = place.dir.join("beats");
    let lead = Lead::start(&place, "kept", "--group cron", &format!("{} --manner setsid", beat(1, &beats)));
    let old = eventually("the command and its child to run", || living(&beats));
    let companion = companion_of(&lead);
    kill_process(companion, Signal::STOP).unwrap();
    let new = eventually("them to run again", || living(&beats).filter(|new| new[0].0 > old[0].0));
    let died_us = processes(&beats)[&old[0].1].1.max(processes(&beats)[&old[1].1].1);
    assert!(died_us < new[0].0, "{old:?} ended at {died_us}, {new:?} began before: {}", lead.said());
    assert!(lead.said().contains("has lost its companion"), "{}", lead.said());
    assert!(!is_running(companion.as_raw_nonzero().get() as u64));
}

/// Only the supervisor is stopped: the companion ends the command.
#[test]
fn a_frozen_supervisor_loses_its_command_in_time() {
    let place = Place::new();
    let _farm = place.up("--servers 1 --workers 0");
    let first = Lead::start(&place, "first", "--group cron", FOREVER);
    let (term, pid) = first.wait_for_mark();
    let second = Lead::start(&place, "second", "--group cron", FOREVER);
    first.signal(Signal::STOP);
    assert!(second.wait_for_mark().0 > term);
    assert!(!is_running(pid), "it still runs while another one has begun");
    first.signal(Signal::CONT);
}

/// Both are stopped, and the command is not. Nothing can end it then; but as soon as either of them goes on, it does.
#[test]
fn when_both_were_frozen_either_of_them_ends_the_command_when_it_goes_on() {
    let place = Place::new();
    let _farm = place.up("--servers 1 --workers 0");
    for thawed_is_lead in [true, false] {
        let group = format!("--group thaw-{thawed_is_lead}");
        let first = Lead::start(
            &place,
            &format!("first-{thawed_is_lead}"),
            &group,
            &format!("setsid sleep 600 & {FOREVER}"),
        );
        let (term, pid) = first.wait_for_mark();
        let companion = companion_of(&first);
        let second = Lead::start(&place, &format!("second-{thawed_is_lead}"), &group, FOREVER);
        first.signal(Signal::STOP);
        kill_process(companion, Signal::STOP).unwrap();
        assert!(second.wait_for_mark().0 > term, "its lease is over");
        if thawed_is_lead {
            first.signal(Signal::CONT);
        } else {
            kill_process(companion, Signal::CONT).unwrap();
        }
        eventually("the command to end", || (!is_running(pid)).then_some(()));
        first.signal(Signal::CONT);
        eventually("it to know", || first.said().contains("does not hold").then_some(()));
    }
}

/// The supervisor is killed while its companion is stopped: the system wakes the companion, which ends everything.
#[test]
fn a_killed_supervisor_of_a_frozen_companion_leaves_nothing_running() {
    let place = Place::new();
    let _farm = place.up("--servers 1 --workers 0");
    let script = format!("setsid sh -c 'echo $$ > child; exec sleep 600' & {FOREVER}");
    let lead = Lead::start(&place, "lone", "--group cron", &script);
    let (_, pid) = lead.wait_for_mark();
    let child: u64 =
        eventually("its child", || fs::read_to_string(place.dir.join("child")).ok()?.trim().parse().ok());
    let companion = companion_of(&lead);
    kill_process(companion, Signal::STOP).unwrap();
    lead.signal(Signal::KILL);
    eventually("everything to be dead", || (!is_running(pid) && !is_running(child)).then_some(()));
    eventually("its companion to end", || (!is_running(companion.as_raw_nonzero().get() as u64)).then_some(()));
}

/// What opens the farm's API does not get into a command by accident; the rest of the environment is its user's own.
#[test]
fn a_guarded_command_has_its_users_environment_without_the_farms_token() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    let words = [
        "lead",
        "--group",
        "env",
        "--",
        "/bin/sh",
        "-c",
        "umask; echo $COLOUR $PRIMUS_GROUP; env | grep -c PRIMUS_TOKEN",
    ];
    let mut command = place.command(&words);
    let token = http::token(farm.api[0]).expect("the farm asks for one");
    let ran = command.env("PRIMUS_TOKEN", token).env("COLOUR", "blue").output().unwrap();
    let umask = Command::new("/bin/sh").args(["-c", "umask"]).output().unwrap().stdout;
    let expected = format!("{}blue env\n0\n", String::from_utf8_lossy(&umask));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", String::from_utf8_lossy(&ran.stderr));
}

/// The companion is the only child of `primus lead`.
fn companion_of(lead: &Lead<'_>) -> Pid {
    let pid = lead.child.id();
    eventually("the companion", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    })
}

/// The last two processes that began to beat, with the time of their first beats, if they live.
fn living(beats: &Path) -> Option<Vec<(u64, u64)>> {
    let mut started: Vec<(u64, u64)> =
        processes(beats).into_iter().map(|(process, (first_us, _))| (first_us, process)).collect();
    started.sort_unstable();
    let last = started.split_off(started.len().checked_sub(2)?);
    last.iter().all(|(_, process)| is_running(*process)).then_some(last)
}

/// Each process's first and last beat.
fn processes(beats: &Path) -> BTreeMap<u64, (u64, u64)> {
    let mut processes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for [us, _, _, process] in lines(beats) {
        let span = processes.entry(process).or_insert((us, us));
        *span = (span.0.min(us), span.1.max(us));
    }
    processes
}

#[test]
fn a_leader_that_gives_way_to_a_better_one_ends_its_command_first() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 0 --rank id");
    let beats = place.dir.join("beats");
    let start = |id: u64| {
        let api = farm.ready["servers"][id as usize - 1]["api"].as_str().unwrap();
        Lead::start(&place, &format!("s{id}"), &format!("--api {api}"), &beat(id, &beats))
    };
    let _leads: Vec<Lead<'_>> = (1..=3).map(start).collect();
    let first = runs_beside(&beats, 3, 0);
    place.json("chaos kill 3");
    let second = runs_beside(&beats, 2, first);
    place.json("chaos restart 3");
    runs_beside(&beats, 3, second);
    none_overlaps(&spans(&beats));
    assert!(place.primus("events").stdout.contains("rank"), "{}", place.primus("events").stdout);
}

#[test]
fn a_leader_that_loses_an_election_ends_its_command_first() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 0 --rank id");
    let beats = place.dir.join("beats");
    let start = |id: u64| {
        let api = farm.ready["servers"][id as usize - 1]["api"].as_str().unwrap();
        Lead::start(&place, &format!("s{id}"), &format!("--api {api}"), &beat(id, &beats))
    };
    let _leads: Vec<Lead<'_>> = (1..=3).map(start).collect();
    let first = runs_beside(&beats, 3, 0);
    place.json("resign");
    let second = runs_beside(&beats, 2, first);
    // On a busy host a transfer may come to nothing at first.
    eventually("the election to move it", || {
        let elected = place.primus("elect -o json");
        let outcome = serde_json::from_str::<Value>(&elected.stdout).ok()?["outcome"].clone();
        (outcome == "transferred" || place.json("leader")["leader"] == 3).then_some(())
    });
    runs_beside(&beats, 3, second);
    none_overlaps(&spans(&beats));
}

/// Only loads shall move this leader, however busy the host is; their files are where the servers were started.
const BY_LOAD: &str = "handover_margin = 30\nhandover_dwell = \"300ms\"\nleast_tenure = \"300ms\"\n\
                       silence_min = \"5s\"\n[load]\nsource = \"file:load-ID\"\n";

#[test]
fn a_leader_that_hands_over_because_of_its_load_ends_its_command_first() {
    let place = Place::new();
    let set_load = |id: u64, points: &str| fs::write(place.dir.join(format!("load-{id}")), points).unwrap();
    (1..=3).for_each(|id| set_load(id, "20"));
    let farm = place.up("--servers 3 --workers 0");
    let (api, beats) = (farm.api.clone(), place.dir.join("beats"));
    let _leads = become_servers(&place, farm, BY_LOAD, |id| beat(id, &beats));
    let old = eventually("a leader", || http::ask(api[0], "GET", "/v1/leader", "").ok()?.1["leader"].as_u64());
    let term = runs_beside(&beats, old, 0);
    let new = old % 3 + 1;
    set_load(new, "0");
    set_load(old, "95");
    runs_beside(&beats, new, term);
    let spans = spans(&beats);
    none_overlaps(&spans);
    // On a busy host a transfer may come to nothing at first; then the command goes on where it was.
    let before = &spans[spans.len() - 2];
    assert!(spans[..spans.len() - 1].iter().all(|span| span.2 == old), "it has moved once: {spans:?}");
    for api in api {
        let change = eventually("the change to be told", || {
            let is_handover = |event: &Value| event["kind"] == "leader_changed" && event["reason"] == "load";
            http::events(api).ok()?.into_iter().rfind(is_handover)
        });
        assert_eq!((&change["previous"], &change["leader"]), (&old.into(), &new.into()), "{change}");
        assert!(before.1.1 < end_of(&change), "it ran on though the leader had changed: {spans:?}, {change}");
    }
}

/// The end of the millisecond in which this happened, on the clock of beats.
fn end_of(event: &Value) -> u64 {
    let time: Timestamp = event["time"].as_str().and_then(|time| time.parse().ok()).expect("it has a time");
    let ago_us = Timestamp::now().as_microsecond() - time.as_microsecond() - 1000;
    now_us().checked_add_signed(-ago_us).expect("the host ran by then")
}

/// A command that writes down that it is alive, and beside which server.
fn beat(server: u64, beats: &Path) -> String {
    format!("exec {} bench beat --server {server} --file {}", env!("CARGO_BIN_EXE_primus"), beats.display())
}

/// Waits until the last one to run is beside this server, in a later term; in which?
fn runs_beside(beats: &Path, server: u64, after: u64) -> u64 {
    eventually("the command to run beside the leader", || {
        let (term, _, found) = *spans(beats).last()?;
        (found == server && term > after).then_some(term)
    })
}

fn none_overlaps(spans: &[(u64, (u64, u64), u64)]) {
    let overlaps = spans.windows(2).filter(|pair| pair[0].1.1 >= pair[1].1.0).count();
    assert_eq!(overlaps, 0, "{spans:?}");
}

/// Each term's first and last beat, and the server beside which it ran.
fn spans(beats: &Path) -> Vec<(u64, (u64, u64), u64)> {
    let mut spans: BTreeMap<u64, ((u64, u64), u64)> = BTreeMap::new();
    for [us, term, server, _] in lines(beats) {
        let span = spans.entry(term).or_insert(((us, us), server));
        span.0 = (span.0.0.min(us), span.0.1.max(us));
    }
    spans.into_iter().map(|(term, (span, server))| (term, span, server)).collect()
}

/// What is written down: when, in which term, beside which server, by which process.
fn lines(beats: &Path) -> Vec<[u64; 4]> {
    let text = fs::read_to_string(beats).unwrap_or_default();
    let numbers = |line: &str| line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
    text.lines().filter_map(|line| numbers(line).try_into().ok()).collect()
}

/// Ends the farm, and starts its servers again, each with a command beside it. More of their configuration may name an ID.
fn become_servers<'a>(
    place: &'a Place,
    farm: Farm<'_>,
    more: &str,
    script: impl Fn(u64) -> String,
) -> Vec<Lead<'a>> {
    let dir = PathBuf::from(farm.ready["dir"].as_str().expect("a path"));
    let files =
        (1..=3).map(|id| (id, fs::read_to_string(dir.join(format!("server-{id}.toml"))).expect("up wrote it")));
    let files: Vec<(u64, String)> = files.collect();
    let kept = place.dir.join("servers");
    fs::create_dir_all(&kept).expect("there is room");
    for secret in ["api.token", "farm.founding"] {
        fs::copy(dir.join(secret), kept.join(secret)).expect("the secret can be kept");
    }
    farm.end();
    let start = |(id, text): &(u64, String)| {
        let folder = kept.join(id.to_string());
        fs::create_dir_all(&folder).expect("there is room");
        let file = folder.join("server.toml");
        // Where `up` kept it is gone.
        let text = text.replace(&dir.display().to_string(), &kept.display().to_string());
        fs::write(&file, text + &more.replace("ID", &id.to_string())).expect("there is room");
        Lead::start(place, &format!("s{id}"), &format!("--config {}", file.display()), &script(*id))
    };
    files.iter().map(start).collect()
}

/// Needs root, or a user who may make namespaces.
#[test]
#[ignore = "needs mount namespaces"]
fn a_guarded_command_has_a_control_group_of_its_own_where_there_are_some() {
    inside("--mount", "a_guarded_command_has_a_control_group_of_its_own_where_there_are_some", || {
        let place = Place::new();
        let groups = place.dir.join("groups");
        fs::create_dir(&groups).unwrap();
        let Some(_groups) = Mount::new("cgroup2", "rw", groups) else {
            return println!("control groups of version 2 cannot be mounted here");
        };
        let _farm = place.up("--servers 1 --workers 0");
        let script = "setsid sh -c 'echo $$ > child; exec sleep 600' & while :; do sleep 0.05; done";
        let lead = Lead::start(&place, "caged", "--group cron", script);
        let (_, pid) = lead.wait_for_mark();
        let child: u64 =
            eventually("its child", || fs::read_to_string(place.dir.join("child")).ok()?.trim().parse().ok());
        let group = |pid: u64| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        for pid in [pid, child] {
            assert!(
                group(pid).lines().any(|line| line.starts_with("0::") && line.contains("primus-guard-")),
                "{}",
                group(pid)
            );
        }
        lead.signal(Signal::KILL);
        eventually("everything to be dead", || (!is_running(pid) && !is_running(child)).then_some(()));
    });
}

/// Asks as a session, in plain JSON.
fn ask(farm: &Farm<'_>, question: &Value) -> (u16, Value) {
    let body = question.to_string();
    eventually("an answer", || {
        let (status, answer) = http::ask(farm.api[0], "POST", "/v1/sessions/5", &body).ok()?;
        // Between two leaders nobody answers.
        (status != 503).then_some((status, answer))
    })
}

#[test]
fn ten_thousand_groups_are_the_limit_and_an_old_term_is_refused_and_counted() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 0");
    let want = |number: u64| json!({ "group": format!("group-{number}"), "rank": "name" });
    let wants: Vec<Value> = (0..10_001).map(want).collect();
    let (status, answer) = ask(&farm, &json!({ "number": 1, "wants": wants, "wait_ms": 200 }));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["refused"].as_array().unwrap().len(), 1, "{}", answer["refused"]);
    assert_eq!(answer["refused"][0]["code"], "too_many_groups");
    let held = eventually("all of them to be held", || {
        let (_, answer) = ask(&farm, &json!({ "number": 2, "wants": wants, "wait_ms": 200 }));
        answer["holds"].as_array().filter(|holds| holds.len() == 10_000).cloned()
    });
    let claim = json!({ "group": held[0]["group"], "term": held[0]["term"].as_u64().unwrap() + 1_000_000 });
    let (_, answer) = ask(&farm, &json!({ "number": 3, "wants": [], "holds": [claim] }));
    assert_eq!(answer["refused"][0]["code"], "old_term", "{}", answer["refused"]);
    let counted = farm.api.iter().filter_map(|api| {
        http::exchange(*api, b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()
    });
    let is_counted = |text: String| {
        text.lines().any(|line| line.starts_with("primus_old_terms_total ") && !line.ends_with(" 0"))
    };
    assert!(counted.into_iter().any(is_counted));
    for (question, status) in [
        (json!({ "number": 1, "wants": [{ "group": "a b", "rank": "name" }] }), 400),
        (json!({ "number": 1, "wants": [{ "group": "a", "rank": "moon" }] }), 400),
        (json!({ "number": 1, "wants": [{ "group": "a", "rank": "name", "holders": 0 }] }), 400),
        (json!([1, 2]), 400),
    ] {
        assert_eq!(ask(&farm, &question).0, status, "{question}");
    }
}

#[test]
fn what_cannot_be_guarded_is_one_clear_sentence() {
    let place = Place::new();
    for (words, sentence) in [
        ("lead", "<COMMAND>... is missing"),
        ("lead -- /no/such/program", "no program '/no/such/program' that can be run was found here"),
        ("lead -- no-such-program", "no program 'no-such-program' that can be run was found here"),
        ("lead --group a%b -- true", "the name of a group has no '%'"),
        ("lead --group '' -- true", "the name of a group has 1 to 64 letters"),
        ("lead --holders 0 -- true", "--holders"),
        ("lead --grace never -- true", "--grace"),
        ("lead --config nowhere.toml -- true", "nowhere.toml"),
    ] {
        let ran = place.primus(words);
        assert_eq!(ran.code, Some(125), "{words}: {ran:?}");
        assert!(ran.stderr.contains(sentence), "{words}: {ran:?}");
        assert_eq!(ran.stderr.lines().filter(|line| line.contains("panicked")).count(), 0);
    }
}
