//! End to end: commands that farms of real processes run, and what becomes of them when somebody dies.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use common::place::{Farm, Place, Ran};
use common::{eventually, is_running, send};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A call with words as they are.
fn run(place: &Place, words: &[&str]) -> Ran {
    place.command(words).output().expect("primus starts").into()
}

/// The same, fed with this.
fn fed(place: &Place, words: &[&str], input: &str) -> Ran {
    let mut command = place.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("primus starts");
    child.stdin.take().expect("stdin is a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends").into()
}

/// The object that a call prints.
fn object(place: &Place, words: &[&str]) -> Value {
    let ran = run(place, words);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{words:?}: {ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{words:?}: {ran:?}"))
}

/// Submits this and gives back the job.
fn submit(place: &Place, words: &[&str]) -> String {
    let answer = object(place, &[&["submit", "-o", "json"], words].concat());
    answer["job"].as_str().expect("a job has a name").to_string()
}

/// Waits until the task is in this state.
fn await_state(place: &Place, task: &str, state: &str) -> Value {
    eventually(&format!("{task} to be {state}"), || {
        let task = place.json(&format!("task {task}"));
        (task["state"] == state).then_some(task)
    })
}

fn pid_of(farm: &Farm<'_>, worker: &str) -> u64 {
    let workers = farm.ready["workers"].as_array().expect("workers are a list");
    let worker = workers.iter().find(|one| one["name"] == worker).expect("the worker is there");
    worker["pid"].as_u64().expect("it runs")
}

#[test]
fn a_command_runs_as_if_it_ran_here() {
    let place = Place::new();
    let farm = place.up("");
    assert_eq!(farm.ready["workers"].as_array().map(Vec::len), Some(2), "{}", farm.ready);
    let ran = run(&place, &["run", "--", "echo", "hello"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "hello\n", ""));
    let ran = run(&place, &["run", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(7), "out\n", "err\n"));
    let ran = run(&place, &["run", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(ran.code, Some(137), "{ran:?}");
    let ran = run(&place, &["run", "--", "pwd"]);
    assert_eq!(ran.stdout.trim(), fs::canonicalize(&place.dir).unwrap().to_str().unwrap());
    let ran = fed(
        &place,
        &["run", "--stdin", "-", "--env", "COLOUR=blue", "--", "sh", "-c", "cat; echo $COLOUR"],
        "in\n",
    );
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "in\nblue\n"), "{ran:?}");
    let ran = run(&place, &["run", "--timeout", "50ms", "--", "sleep", "100"]);
    assert!(ran.code == Some(124) && ran.stderr.contains("took longer than 50 ms"), "{ran:?}");
    let ran = run(&place, &["run", "--", "/no/such/program"]);
    assert!(ran.code == Some(125) && ran.stderr.contains("/no/such/program"), "{ran:?}");
    let ran = run(&place, &["run", "-o", "json", "--", "echo", "hello"]);
    let task: Value = serde_json::from_str(&ran.stdout).expect("stdout is JSON");
    assert_eq!((&task["state"], &task["exit"], &task["stdout"]), (&"done".into(), &0.into(), &"hello\n".into()));
    farm.end();
}

#[test]
fn what_a_command_prints_is_shown_while_it_runs_and_all_of_it() {
    let place = Place::new();
    let _farm = place.up("");
    let flag = place.dir.join("flag");
    let script = format!("echo first; while [ ! -e {} ]; do sleep 0.01; done; echo last", flag.display());
    let mut child = place.command(&["run", "--", "sh", "-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "first\n");
    fs::write(&flag, "").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), child.wait().unwrap().code()), ("last\n", Some(0)));
    let output = place.command(&["run", "--", "seq", "300000"]).output().unwrap();
    let expected: String = (1..=300_000).map(|number| format!("{number}\n")).collect();
    assert!(output.stdout == expected.as_bytes(), "{} of {} bytes", output.stdout.len(), expected.len());
    let bytes = place.command(&["run", "--", "printf", r"\377\000\001"]).output().unwrap();
    assert_eq!(bytes.stdout, [0xff, 0, 1]);
}

#[test]
fn an_interrupted_command_is_cancelled() {
    let place = Place::new();
    let _farm = place.up("");
    let words = ["run", "--", "sh", "-c", "echo $$; exec sleep 100"];
    let mut child = place.command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let pid: u64 = line.trim().parse().expect("the command prints its process");
    assert!(is_running(pid));
    send(Signal::INT, &[u64::from(child.id())]);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    eventually("the command to end", || (!is_running(pid)).then_some(()));
    assert_eq!(place.json("task 1")["state"], "cancelled");
}

#[test]
fn arrays_and_lines_become_tasks_with_arguments_of_their_own() {
    let place = Place::new();
    let _farm = place.up("");
    let script = "echo $PRIMUS_TASK $PRIMUS_INDEX {}";
    let job = submit(&place, &["--array", "5-9", "--name", "five", "--", "sh", "-c", script]);
    let done = object(&place, &["wait", &job, "-o", "json"]);
    assert_eq!((&done["items"][0]["done"], &done["items"][0]["name"]), (&5.into(), &"five".into()), "{done}");
    let expected: String = (1..=5).map(|n| format!("{job}.{n} {} {}\n", n + 4, n + 4)).collect();
    assert_eq!(run(&place, &["logs", &job]).stdout, expected);
    let words = ["submit", "--each-line", "-", "--wait", "-o", "json", "--", "echo", "<{}>"];
    let ran = fed(&place, &words, "one\n\ntwo words\n{}\n");
    let done: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    assert_eq!((ran.code, &done["done"]), (Some(0), &4.into()), "{ran:?}");
    let printed = run(&place, &["logs", done["job"].as_str().unwrap()]).stdout;
    assert_eq!(printed, "<one>\n<>\n<two words>\n<{}>\n");
    let tasks = object(&place, &["tasks", "--job", &job, "--state", "done", "--limit", "2", "-o", "json"]);
    assert_eq!(tasks["items"].as_array().map(Vec::len), Some(2), "{tasks}");
    assert_eq!(tasks["next"], format!("{job}.2"));
}

#[test]
fn failures_are_retried_counted_and_explained() {
    let place = Place::new();
    let _farm = place.up("");
    let script = format!("echo x >> {}; exit 3", place.dir.join("tries").display());
    let ran = run(&place, &["submit", "--retries", "2", "--wait", "--", "sh", "-c", &script]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "job 1: 1 task, 1 failed\n"), "{ran:?}");
    assert_eq!(fs::read_to_string(place.dir.join("tries")).unwrap(), "x\nx\nx\n");
    assert_eq!(run(&place, &["explain", "1"]).stdout, "1.1 is failed: it ended with exit code 3\n");
    let again = place.json("retry --failed 1");
    assert_eq!(again["items"], json!([{ "id": "1", "retried": 1 }]));
    assert_eq!(place.primus("wait 1").code, Some(1));
    assert_eq!(fs::read_to_string(place.dir.join("tries")).unwrap().lines().count(), 6);
    let ran = run(&place, &["submit", "--wait", "--timeout", "30ms", "--", "sleep", "100"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(run(&place, &["explain", "2"]).stdout.contains("took longer than 30 ms"));
}

#[test]
fn what_waits_says_what_for_and_can_be_cancelled() {
    let place = Place::new();
    let _farm = place.up("");
    let long = submit(&place, &["--array", "1-2", "--", "sleep", "100"]);
    await_state(&place, &format!("{long}.2"), "running");
    let wide = submit(&place, &["--cpus", "2", "--", "true"]);
    let sentence = run(&place, &["explain", &wide]).stdout;
    let expected = format!("{wide}.1 needs 2 slots, and the largest worker has 1; it has waited for ");
    assert!(sentence.starts_with(&expected), "{sentence}");
    let waits = submit(&place, &["--array", "1-50", "--", "true"]);
    let sentence = run(&place, &["explain", &format!("{waits}.50")]).stdout;
    assert!(sentence.contains("waits for a free slot; "), "{sentence}");
    let ran = run(&place, &["wait", &waits, "--timeout", "50ms"]);
    assert_eq!(ran.code, Some(124), "{ran:?}");
    let cancelled = object(&place, &["cancel", &long, &format!("{waits}.7"), "-o", "json"]);
    let expected = json!([{ "id": long, "cancelled": 2 }, { "id": format!("{waits}.7"), "cancelled": 1 }]);
    assert_eq!(cancelled["items"], expected);
    let done = run(&place, &["wait", &waits]);
    assert_eq!((done.code, done.stdout), (Some(1), format!("job {waits}: 50 tasks, 49 done, 1 cancelled\n")));
}

#[test]
fn a_key_makes_one_job() {
    let place = Place::new();
    let _farm = place.up("");
    let first = object(&place, &["submit", "--key", "once", "-o", "json", "--", "true"]);
    let second = object(&place, &["submit", "--key", "once", "-o", "json", "--", "true"]);
    assert_eq!((&first["created"], &second["created"]), (&true.into(), &false.into()));
    assert_eq!(first["job"], second["job"]);
}

#[test]
fn a_drained_worker_gets_nothing_new() {
    let place = Place::new();
    let _farm = place.up("--workers 2");
    place.json("drain w1");
    let job = submit(&place, &["--array", "1-20", "--", "true"]);
    assert_eq!(run(&place, &["wait", &job]).code, Some(0));
    let tasks = object(&place, &["tasks", "--job", &job, "-o", "json"]);
    assert!(tasks["items"].as_array().unwrap().iter().all(|task| task["worker"] == "w2"), "{tasks}");
    place.json("drain w2");
    let job = submit(&place, &["--", "true"]);
    let sentence = run(&place, &["explain", &job]).stdout;
    assert!(sentence.contains("are drained"), "{sentence}");
    place.json("drain w1 --undo");
    assert_eq!(run(&place, &["wait", &job]).code, Some(0));
    let ran = place.primus("drain w9");
    assert!(ran.code == Some(1) && ran.stderr.contains("worker 'w9' does not exist"), "{ran:?}");
}

#[test]
fn a_killed_workers_task_runs_elsewhere_and_no_process_is_left() {
    let place = Place::new();
    let farm = place.up("");
    let script = format!("echo $$ >> {}; exec sleep 100", place.dir.join("pids").display());
    let job = submit(&place, &["--", "sh", "-c", &script]);
    let task = await_state(&place, &job, "running");
    let first = task["worker"].as_str().unwrap().to_string();
    let pids = || -> Vec<u64> {
        let text = fs::read_to_string(place.dir.join("pids")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    let old = eventually("the task to start", || pids().first().copied());
    send(Signal::KILL, &[pid_of(&farm, &first)]);
    eventually("its process to end", || (!is_running(old)).then_some(()));
    let new = eventually("it to run elsewhere", || pids().get(1).copied());
    assert!(is_running(new) && !is_running(old));
    let now = await_state(&place, &job, "running");
    assert_ne!(now["worker"], first.as_str());
    place.json(&format!("cancel {job}"));
    eventually("all to end", || (!is_running(new)).then_some(()));
    place.json(&format!("chaos restart {first}"));
    eventually("the worker to be back", || {
        let status = place.json("status");
        let workers = status["workers"].as_array()?.clone();
        workers.iter().any(|worker| worker["name"] == first.as_str() && worker["alive"] == true).then_some(())
    });
    assert_eq!(farm.end().matches("has ended").count(), 1);
}

#[test]
fn a_task_that_must_not_run_twice_is_lost_with_its_worker() {
    let place = Place::new();
    let farm = place.up("");
    let job = submit(&place, &["--no-rerun", "--", "sleep", "100"]);
    let task = await_state(&place, &job, "running");
    send(Signal::KILL, &[pid_of(&farm, task["worker"].as_str().unwrap())]);
    await_state(&place, &job, "lost");
    let ran = run(&place, &["explain", &job]);
    assert!(ran.stdout.contains("must not run twice"), "{ran:?}");
}

#[test]
fn a_killed_leader_costs_no_task_and_run_does_not_notice() {
    let place = Place::new();
    let farm = place.up("--slots 2");
    let leader = farm.ready["leader"].as_u64().unwrap();
    let file = place.dir.join("done");
    let script = format!("echo {{}} >> {}; sleep 0.02", file.display());
    let flag = place.dir.join("flag");
    let waits = format!("echo first; while [ ! -e {} ]; do sleep 0.01; done; echo last", flag.display());
    let mut running = place.command(&["run", "--", "sh", "-c", &waits]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(running.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let job = submit(&place, &["--array", "1-300", "--", "sh", "-c", &script]);
    let begun = || fs::read_to_string(&file).unwrap_or_default().lines().count();
    eventually("some to be done", || (begun() > 20).then_some(()));
    let servers = farm.ready["servers"].as_array().unwrap();
    let pid = servers.iter().find(|server| server["id"] == leader).unwrap()["pid"].as_u64().unwrap();
    send(Signal::KILL, &[pid]);
    assert!(begun() < 300, "the leader died too late to matter");
    let done = object(&place, &["wait", &job, "-o", "json"]);
    assert_eq!(done["items"][0]["done"], 300, "{done}");
    let lines: std::collections::BTreeSet<String> =
        fs::read_to_string(&file).unwrap().lines().map(str::to_string).collect();
    assert_eq!(lines.len(), 300);
    fs::write(&flag, "").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), running.wait().unwrap().code()), ("last\n", Some(0)));
}

#[test]
fn bad_input_is_refused_in_one_sentence() {
    let place = Place::new();
    let farm = place.up("--workers 1");
    for (words, code, expected) in [
        (&["submit", "--array", "1-1000000000000", "--", "true"][..], 2, "4000000 are allowed"),
        (&["submit", "--array", "9-1", "--", "true"], 2, "array is '9-1'"),
        (&["submit"], 2, "the command is missing"),
        (&["submit", "--retries", "300", "--", "true"], 2, "--retries is '300'"),
        (&["submit", "--env", "nonsense", "--", "true"], 2, "--env is 'nonsense'"),
        (&["submit", "--each-line", "absent", "--", "true"], 2, "cannot be read"),
        (&["cancel", "99"], 1, "job 99 does not exist"),
        (&["cancel", "99.1"], 1, "task 99.1 does not exist"),
        (&["retry", "x"], 2, "names neither a job nor a task"),
        (&["task", "99"], 1, "task 99.1 does not exist"),
        (&["logs", "99"], 1, "job 99 does not exist"),
        (&["wait", "99"], 1, "job 99 does not exist"),
        (&["explain", "99"], 1, "task 99.1 does not exist"),
        (&["run"], 125, "COMMAND"),
        (&["run", "--nonsense", "--", "true"], 125, "'--nonsense' means nothing here"),
        (&["run", "--api", "127.0.0.1:1", "--", "true"], 125, "no server answers"),
    ] {
        let ran = run(&place, words);
        assert_eq!(
            (ran.code, ran.stderr.lines().count(), ran.stdout.as_str()),
            (Some(code), 1, ""),
            "{words:?} {ran:?}"
        );
        assert!(ran.stderr.contains(expected), "{words:?}: {ran:?}");
    }
    let long = "x".repeat(100_000);
    let words: Vec<&str> =
        ["submit", "--", "echo"].into_iter().chain(std::iter::repeat_n(long.as_str(), 11)).collect();
    let ran = run(&place, &words);
    assert!(ran.code == Some(2) && ran.stderr.contains("786432 are allowed"), "{:?}", ran.code);
    let mut command = place.command(&["submit", "--", "echo"]);
    let invalid: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"\xff\xfe");
    let ran: Ran = command.arg(invalid).output().unwrap().into();
    assert!(ran.code == Some(2) && ran.stderr.contains("not valid UTF-8"), "{ran:?}");
    farm.end();
}

#[test]
fn a_worker_runs_only_what_it_may() {
    let place = Place::new();
    let _farm = place.up("--workers 0");
    let job = submit(&place, &["--", "true"]);
    assert!(run(&place, &["explain", &job]).stdout.contains("there is none"));
    let words = ["worker", "--name", "careful", "--allow", "echo", "--slots", "1"];
    let mut worker = place.command(&words).stderr(Stdio::null()).spawn().unwrap();
    await_state(&place, &job, "failed");
    let sentence = run(&place, &["explain", &job]).stdout;
    assert!(sentence.contains("[worker] allow = [\"true\"]"), "{sentence}");
    assert_eq!(run(&place, &["run", "--", "echo", "hello"]).stdout, "hello\n");
    worker.kill().unwrap();
    worker.wait().unwrap();
}

#[test]
fn many_jobs_in_one_body_exist_once_whoever_is_asked() {
    let place = Place::new();
    let farm = place.up("");
    let lines: String = (0..2500).map(|_| "{\"kind\":\"noop\"}\n").collect();
    let post = |server: usize, lines: &str| -> (u16, Value) {
        let head =
            "POST /v1/jobs HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\n";
        let request = format!("{head}idempotency-key: bulk\r\ncontent-length: {}\r\n\r\n{lines}", lines.len());
        let text = common::http::exchange(farm.api[server], request.as_bytes()).expect("it answers");
        let (head, body) = text.split_once("\r\n\r\n").expect("an answer has a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("and a status");
        (status, serde_json::from_str(body).expect("the body is JSON"))
    };
    let (status, answer) = post(0, &lines);
    assert_eq!((status, &answer["jobs"], &answer["created"]), (200, &2500.into(), &2500.into()), "{answer}");
    assert_eq!(answer["ranges"], json!([["1", "2500"]]));
    for server in 1..3 {
        let (status, again) = post(server, &lines);
        assert_eq!((status, &again["jobs"], &again["created"]), (200, &2500.into(), &0.into()), "{again}");
    }
    assert_eq!(place.primus("wait 2500").code, Some(0));
    let (status, wrong) = post(0, "{\"kind\":\"noop\"}\nnonsense\n");
    assert!(status == 400 && wrong["error"]["message"].as_str().unwrap().contains("line 2: "), "{wrong}");
}

#[test]
fn all_tasks_are_listed_page_by_page() {
    let place = Place::new();
    let farm = place.up("");
    for count in [3, 250, 1] {
        let job = submit(&place, &["--kind", "noop", "--array", &format!("1-{count}")]);
        assert_eq!(run(&place, &["wait", &job]).code, Some(0));
    }
    let (mut seen, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/tasks?limit=70&fields=task,state&state=done{next}");
        let (status, page) = common::http::ask(farm.api[0], "GET", &path, "").expect("it answers");
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().unwrap();
        assert!(items.iter().all(|item| item.as_object().unwrap().len() == 2 && item["state"] == "done"), "{page}");
        seen.extend(items.iter().map(|item| item["task"].as_str().unwrap().to_string()));
        let Some(place) = page["next"].as_str() else { break };
        next = format!("&after={place}");
    }
    let expected = [(3, 1), (2, 250), (1, 3)].into_iter();
    let expected: Vec<String> = expected.flat_map(|(job, n)| (1..=n).map(move |i| format!("{job}.{i}"))).collect();
    assert_eq!(seen, expected);
    assert_eq!(place.json("jobs --limit 2")["next"], "2");
}

#[test]
fn a_full_queue_says_so_and_takes_work_again() {
    let place = Place::new();
    let farm = place.up("--workers 0");
    let job = submit(&place, &["--kind", "noop", "--array", "1-4000000"]);
    let ran = run(&place, &["submit", "-o", "json", "--", "true"]);
    assert!(ran.code == Some(4) && ran.stderr.starts_with("{\"error\":{\"code\":\"queue_full\""), "{ran:?}");
    for body in [r#"{"kind":"noop"}"#, r#"{"kind":"noop","array":"1-9"}"#] {
        let (status, answer) = common::http::ask(farm.api[0], "POST", "/v1/jobs", body).expect("it answers");
        assert_eq!((status, &answer["error"]["code"]), (429, &"queue_full".into()), "{answer}");
    }
    place.json(&format!("cancel {job}"));
    submit(&place, &["--", "true"]);
}

#[test]
fn nothing_survives_a_killed_up() {
    let place = Place::new();
    let mut farm = place.up("");
    let script = format!("echo $$ >> {}; exec sleep 100", place.dir.join("pids").display());
    submit(&place, &["--array", "1-2", "--", "sh", "-c", &script]);
    let tasks = eventually("both to run", || {
        let text = fs::read_to_string(place.dir.join("pids")).ok()?;
        let pids: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (pids.len() == 2).then_some(pids)
    });
    let mut pids = [farm.pids(), tasks].concat();
    pids.extend(["w1", "w2"].map(|worker| pid_of(&farm, worker)));
    farm.up.kill().unwrap();
    farm.up.wait().unwrap();
    eventually("all to end", || (!pids.iter().any(|pid| is_running(*pid))).then_some(()));
}

#[test]
fn a_frozen_workers_task_runs_elsewhere_and_what_it_prints_is_followed() {
    let place = Place::new();
    let _farm = place.up("");
    let flag = place.dir.join("flag");
    let script = format!("echo begun; while [ ! -e {} ]; do sleep 0.01; done; echo ended", flag.display());
    let job = submit(&place, &["--", "sh", "-c", &script]);
    let task = await_state(&place, &job, "running");
    let first = task["worker"].as_str().unwrap().to_string();
    place.json(&format!("chaos freeze {first}"));
    eventually("it to run elsewhere", || {
        let task = place.json(&format!("task {job}"));
        (task["state"] == "running" && task["worker"] != first.as_str()).then_some(())
    });
    let words = ["logs", &job, "--follow"];
    let mut logs = place.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(logs.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "begun\n");
    place.json(&format!("chaos thaw {first}"));
    fs::write(&flag, "").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!((rest.as_str(), logs.wait().unwrap().code()), ("ended\n", Some(0)));
    assert_eq!(run(&place, &["wait", &job]).code, Some(0));
}

#[test]
fn a_worker_that_was_cut_off_ends_what_others_have_by_now() {
    let place = Place::new();
    let _farm = place.up("");
    for manner in ["", "--close "] {
        let file = place.dir.join(format!("pids{}", manner.trim()));
        let job = submit(&place, &["--", "sh", "-c", &format!("echo $$ >> {}; exec sleep 100", file.display())]);
        let first = await_state(&place, &job, "running")["worker"].as_str().unwrap().to_string();
        let pid = |number: usize| {
            let text = fs::read_to_string(&file).unwrap_or_default();
            text.lines().nth(number).and_then(|line| line.parse::<u64>().ok())
        };
        let old = eventually("the task to start", || pid(0));
        place.json(&format!("chaos partition {manner}{first}|1,2,3"));
        let new = eventually("it to run elsewhere", || pid(1));
        assert!(is_running(old), "nobody could tell it");
        place.json("chaos heal");
        eventually("the old one to end", || (!is_running(old)).then_some(()));
        let now = await_state(&place, &job, "running");
        assert!(is_running(new) && now["worker"] != first.as_str(), "{now}");
        place.json(&format!("cancel {job}"));
        eventually("all to end", || (!is_running(new)).then_some(()));
    }
}

#[test]
fn a_server_with_slots_runs_tasks_too() {
    let place = Place::new();
    let port = eventually("two free ports", || {
        let listen = |port| std::net::TcpListener::bind(("127.0.0.1", port));
        let first = 12_000 + (std::process::id() % 1_000) as u16 * 3;
        (0..300).map(|step| first + step * 2).find(|port| listen(*port).is_ok() && listen(port + 1).is_ok())
    });
    let (address, api) = (format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + 1));
    let cluster = format!("1@{address}/{api}");
    let words = ["server", "--id", "1", "--cluster", &cluster, "--slots", "2", "--allow", "*", "--dir", "data"];
    let mut server = place.command(&words).stderr(Stdio::null()).spawn().unwrap();
    let ran = eventually("a leader", || {
        let ran = run(&place, &["run", "--api", &api, "--", "echo", "hello"]);
        (ran.code == Some(0)).then_some(ran)
    });
    assert_eq!(ran.stdout, "hello\n");
    let status = object(&place, &["status", "--api", &api, "-o", "json"]);
    assert_eq!((&status["workers"][0]["name"], &status["workers"][0]["slots"]), (&"server-1".into(), &2.into()));
    server.kill().unwrap();
    server.wait().unwrap();
}
