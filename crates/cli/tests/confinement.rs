//! What a farm keeps to itself on its host: its files, its secrets, its rights and its time, whatever tasks and other users do.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::broker::free_ports;
use common::place::{Farm, Place, Ran};
use common::{eventually, http};
use rustix::process::geteuid;
use serde_json::{Value, json};

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o777
}

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A worker of the farm that runs in this place, with these lines under `[worker]`; what it says is in `NAME.said`.
fn worker(place: &Place, farm: &Farm<'_>, name: &str, lines: &str) -> Killed {
    let (of, server) = (&farm.ready["farm"], &farm.ready["servers"][0]);
    let cluster = format!("servers = [{{ id = {}, address = {} }}]", server["id"], server["address"]);
    let own = format!("name = \"{name}\"\nslots = 1\n{lines}");
    let file = place.dir.join(format!("{name}.toml"));
    fs::write(&file, format!("[server]\nfarm = {of}\n[cluster]\n{cluster}\n[worker]\n{own}"))
        .expect("there is room");
    let said = fs::File::create(place.dir.join(format!("{name}.said"))).expect("there is room");
    let mut command = place.command(&["worker", "--config", file.to_str().expect("a plain path")]);
    command.env("AWS_SECRET_ACCESS_KEY", "hunter2").env("PRIMUS_TOKEN", "hunter2").env("EDITION", "second");
    Killed(command.stderr(said).stdout(Stdio::null()).spawn().expect("primus starts"))
}

fn run(place: &Place, words: &[&str]) -> Ran {
    place.command(words).output().expect("primus starts").into()
}

/// Runs a task to its end; what it printed.
fn printed(place: &Place, words: &[&str]) -> String {
    let ran = run(place, &[&["run", "--cwd", "/"], words].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout
}

#[test]
fn a_task_gets_neither_the_workers_secrets_nor_its_umask() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    let _worker = worker(&place, &farm, "w1", "allow = [\"*\"]\npass = [\"EDITION\"]\n");
    let seen = printed(&place, &["--env", "COLOUR=blue", "--", "env"]);
    assert!(seen.contains("COLOUR=blue") && seen.contains("EDITION=second") && seen.contains("PATH="), "{seen}");
    assert!(!seen.contains("hunter2") && !seen.contains("XDG_RUNTIME_DIR"), "{seen}");
    let own = Command::new("/bin/sh").args(["-c", "umask"]).output().expect("there is a shell").stdout;
    assert_eq!(printed(&place, &["--", "sh", "-c", "umask"]), String::from_utf8_lossy(&own));
    assert_eq!(printed(&place, &["--", "grep", "NoNewPrivs", "/proc/self/status"]), "NoNewPrivs:\t1\n");
    let said = fs::read_to_string(place.dir.join("w1.said")).expect("it is there");
    assert_eq!(said.matches("tasks run as the user of this process").count(), 1, "{said}");
}

#[test]
fn the_tasks_of_up_start_from_a_clean_environment_and_the_old_umask() {
    let place = Place::new();
    let words = ["up", "-o", "json", "--servers", "1", "--workers", "1", "--for", "60s"];
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "umask 027; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_primus")]).args(words);
    command.current_dir(&place.dir).env("XDG_RUNTIME_DIR", place.dir.join("run")).env("TMPDIR", &place.dir);
    let _up = Killed(command.env("SECRET", "hunter2").stdout(Stdio::null()).spawn().expect("it starts"));
    eventually("the farm to run", || (run(&place, &["run", "--", "true"]).code == Some(0)).then_some(()));
    assert_eq!(printed(&place, &["--", "sh", "-c", "umask; env | grep -c hunter2 || true"]), "0027\n0\n");
}

#[test]
fn with_an_allow_list_a_variable_that_loads_code_fails_the_task() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    let _worker = worker(&place, &farm, "w1", "allow = [\"true\"]\n");
    let body = r#"{"command":["true"],"env":{"LD_PRELOAD":"/shared/evil.so"}}"#;
    let (status, answer) = http::ask(farm.api[0], "POST", "/v1/jobs", body).expect("it answers");
    assert_eq!(status, 201, "{answer}");
    let task = eventually("the task to fail", || {
        let task = place.json("task 1.1");
        (task["state"] == "failed").then_some(task)
    });
    assert!(task.to_string().contains("allow_env"), "{task}");
    assert_eq!(run(&place, &["run", "--cwd", "/", "--", "true"]).code, Some(0));
}

#[test]
fn limits_of_a_worker_hold() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    let _worker = worker(&place, &farm, "w1", "allow = [\"*\"]\nmemory_max = \"64MiB\"\nfile_max = \"1MiB\"\n");
    let limits = printed(&place, &["--", "cat", "/proc/self/limits"]);
    for (name, limit) in [("Max data size", "67108864"), ("Max file size", "1048576")] {
        assert!(limits.lines().any(|line| line.starts_with(name) && line.matches(limit).count() == 2), "{limits}");
    }
    assert_eq!(run(&place, &["run", "--cwd", "/", "--", "sh", "-c", "exit 7"]).code, Some(7));
    let missing = run(&place, &["run", "--cwd", "/", "--", "no-such-program"]);
    assert!(missing.stderr.contains("was not found on this worker"), "{missing:?}");
}

/// Only the superuser can start processes of others.
#[test]
fn a_worker_of_root_runs_tasks_as_another_user() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    let lines = "allow = [\"*\"]\nuser = \"65534:65534\"\nmemory_max = \"1GiB\"\n";
    let mut worker = worker(&place, &farm, "w1", lines);
    if !geteuid().is_root() {
        assert_eq!(eventually("it to end", || worker.0.try_wait().expect("a child")).code(), Some(2));
        return;
    }
    let submitted = json!({ "command": ["sh", "-c", "id -u; pwd; echo x > made && cat made; ls ../results 2>&1 | tail -c 18"] });
    http::ask(farm.api[0], "POST", "/v1/jobs", &submitted.to_string()).expect("it answers");
    let task = eventually("the task to end", || {
        let task = place.json("task 1.1");
        (task["state"] == "done" || task["state"] == "failed").then_some(task)
    });
    let home = place.dir.join("primus-data/w1/home");
    let logs = run(&place, &["logs", "1.1"]).stdout;
    assert!(logs.starts_with(&format!("65534\n{}\nx\n", home.display())), "{logs}: {task}");
    assert_eq!(fs::metadata(home.join("made")).expect("it was made").uid(), 65534);
    assert_eq!((mode(&home), mode(&place.dir.join("primus-data/w1"))), (0o700, 0o711));
    assert_eq!(mode(&place.dir.join("primus-data/w1/results")), 0o600);
    let said = fs::read_to_string(place.dir.join("w1.said")).expect("it is there");
    assert!(!said.contains("tasks run as the user"), "{said}");
}

#[test]
fn what_cannot_be_is_one_sentence_and_exit_code_2() {
    let place = Place::new();
    let base = "config check --set server.id=1 --set";
    for (value, sentence) in [
        ("worker.pass=PRIMUS_TOKEN", "belongs to primus"),
        ("worker.allow_env=A=B", "holds 'A=B'"),
        ("worker.user=1:x", "worker.user is '1:x'"),
        ("worker.memory_max=much", "worker.memory_max"),
    ] {
        let ran = place.primus(&format!("{base} {value}"));
        assert_eq!(ran.code, Some(2), "{value}: {ran:?}");
        assert!(ran.stderr.contains(sentence), "{value}: {ran:?}");
    }
    let shown = place.primus("config show --set server.id=1 --set worker.pass=LC_*,EDITION");
    assert!(shown.stdout.contains("LC_*,EDITION"), "{shown:?}");
}

#[test]
fn a_folder_that_others_can_write_to_is_refused_with_exit_code_2() {
    let place = Place::new();
    let open = place.dir.join("open");
    fs::create_dir(&open).expect("there is room");
    let path = open.to_str().expect("a plain path");
    for bits in [0o777, 0o1777, 0o775] {
        set_mode(&open, bits);
        for words in [
            &["server", "--id", "1", "--dir", path][..],
            &["worker", "--name", "w1", "--servers", "1@127.0.0.1:9", "--dir", path],
            &["up", "--dir", path],
            &["up", "--farms", "2", "--dir", path],
        ] {
            let ran = run(&place, words);
            assert_eq!(ran.code, Some(2), "{words:?}: {ran:?}");
            assert!(ran.stderr.contains("can be written by other users"), "{words:?}: {ran:?}");
            assert_eq!(ran.stderr.lines().count(), 1, "{words:?}: {ran:?}");
            assert_eq!(fs::read_dir(&open).expect("it is there").count(), 0, "{words:?}");
        }
    }
    if geteuid().is_root() {
        set_mode(&open, 0o755);
        std::os::unix::fs::chown(&open, Some(65534), Some(65534)).expect("root can do that");
        let ran = run(&place, &["up", "--dir", path]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("belongs to user 65534"), "{ran:?}");
    }
}

fn all_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("it is there").flatten().map(|entry| entry.path());
    let below = |path: PathBuf| {
        let deeper = if path.is_dir() && !path.is_symlink() { all_below(&path) } else { Vec::new() };
        [vec![path], deeper].concat()
    };
    entries.flat_map(below).collect()
}

#[test]
fn what_a_farm_writes_is_for_its_owner_alone() {
    let place = Place::new();
    let dir = place.dir.join("farm");
    fs::create_dir(&dir).expect("there is room");
    set_mode(&dir, 0o755);
    let farm = place.up(&format!("--servers 1 --workers 1 --dir {}", dir.display()));
    let secret =
        run(&place, &["run", "--env", "PASSWORD=hunter2", "--", "sh", "-c", "seq 20000 > /dev/null; seq 20000"]);
    assert_eq!(secret.code, Some(0), "{secret:?}");
    let exposed: Vec<PathBuf> = all_below(&dir).into_iter().filter(|path| mode(path) & 0o077 != 0).collect();
    assert!(exposed.is_empty(), "{exposed:?}");
    assert_eq!(mode(&dir), 0o700);
    assert!(
        all_below(&dir).iter().any(|path| path.extension().is_some_and(|end| end == "stdout")),
        "there is an output"
    );
    drop(farm);
    // As an older version would have left it: it opens, and is closed to others.
    let data = dir.join("server-1");
    set_mode(&data, 0o755);
    all_below(&data).iter().for_each(|path| set_mode(path, 0o644));
    let _again = place.up(&format!("--dir {}", dir.display()));
    assert_eq!(mode(&data.join("log.redb")), 0o600);
}

#[test]
fn a_planted_link_is_neither_followed_nor_truncated() {
    let place = Place::new();
    let (victim, dir) = (place.dir.join("victim"), place.dir.join("data"));
    fs::write(&victim, "precious").expect("there is room");
    fs::create_dir(&dir).expect("there is room");
    symlink(&victim, dir.join("log.redb.new")).expect("there is room");
    let path = dir.to_str().expect("a plain path");
    let mut command = place.command(&["server", "--id", "1", "--address", &free_address(), "--dir", path]);
    let _server = Killed(command.stderr(Stdio::null()).spawn().expect("it starts"));
    eventually("its store", || dir.join("log.mark").exists().then_some(()));
    assert_eq!(fs::read(&victim).expect("it is there"), b"precious");
    assert!(!dir.join("log.redb").is_symlink());
    let farm = place.dir.join("farm");
    fs::create_dir(&farm).expect("there is room");
    symlink(&victim, farm.join("farm.json")).expect("there is room");
    let ran = run(&place, &["up", "--dir", farm.to_str().expect("a plain path")]);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert_eq!(fs::read(&victim).expect("it is there"), b"precious");
}

#[test]
fn a_hook_has_the_servers_environment_without_its_token_and_the_old_umask() {
    let place = Place::new();
    let hook = place.dir.join("hook.sh");
    fs::write(&hook, "#!/bin/sh\n{ umask; env; } > hooked.new && mv hooked.new hooked\n").expect("there is room");
    set_mode(&hook, 0o755);
    let config = format!(
        "[server]\nid = 1\ndir = \"data\"\naddress = \"{}\"\n[hooks]\nleader_changed = [{:?}]\n",
        free_address(),
        hook
    );
    fs::write(place.dir.join("server.toml"), config).expect("there is room");
    let mut command = place.command(&["server", "--config", "server.toml"]);
    command.env("PRIMUS_TOKEN", "hunter2").env("COLOUR", "blue").stderr(Stdio::null());
    let _server = Killed(command.spawn().expect("it starts"));
    let seen = eventually("the hook", || fs::read_to_string(place.dir.join("hooked")).ok());
    let own = Command::new("/bin/sh").args(["-c", "umask"]).output().expect("there is a shell").stdout;
    assert!(seen.starts_with(&*String::from_utf8_lossy(&own)), "{seen}");
    assert!(seen.contains("COLOUR=blue") && !seen.contains("hunter2"), "{seen}");
}

/// Somewhere a server can listen, with a free port above it.
fn free_address() -> String {
    format!("127.0.0.1:{}", free_ports())
}

#[test]
fn a_timeout_longer_than_a_day_is_refused() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    for timeout in ["86400001", "18446744073709551", "18446744073709551615"] {
        let body = format!(r#"{{"command":["true"],"timeout_ms":{timeout}}}"#);
        let (status, answer) = http::ask(farm.api[0], "POST", "/v1/jobs", &body).expect("it answers");
        assert_eq!(status, 400, "{answer}");
        assert!(answer.to_string().contains(&format!("timeout_ms is {timeout}")), "{answer}");
    }
}

/// A library that moves the clock of a process by as many seconds as a file says.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(id, t);
    const char *path = getenv("MOVED_CLOCK");
    if (id == CLOCK_REALTIME && path) {
        FILE *file = fopen(path, "re");
        long seconds = 0;
        if (file) { if (fscanf(file, "%ld", &seconds) == 1) t->tv_sec += seconds; fclose(file); }
    }
    return answer;
}
"#;

/// The library, built by the program that links Rust's own programs, so it is there.
fn moved_clock(place: &Place) -> PathBuf {
    let library = place.dir.join("clock.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-ldl", "-o"]).arg(&library).stdin(Stdio::piped());
    let mut child = cc.spawn().expect("Rust links with cc");
    child.stdin.take().expect("it was asked for").write_all(CLOCK.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "the library is built");
    library
}

/// As in the attack: the clock jumps by three days, then back by thirty, then is right.
#[test]
fn a_clock_that_jumps_loses_no_results_and_dates_nothing_in_the_future() {
    let place = Place::new();
    let library = moved_clock(&place);
    let clock = place.dir.join("moved");
    fs::write(&clock, "0").expect("there is room");
    let address = free_address();
    let config = format!(
        "[server]\nid = 1\ndir = \"data\"\naddress = \"{address}\"\n[worker]\nslots = 2\nallow = [\"*\"]\n"
    );
    fs::write(place.dir.join("server.toml"), config).expect("there is room");
    let mut command = place.command(&["server", "--config", "server.toml"]);
    command.env("LD_PRELOAD", library).env("MOVED_CLOCK", &clock).stderr(Stdio::null());
    let _server = Killed(command.spawn().expect("it starts"));
    let (host, port) = address.rsplit_once(':').expect("a port");
    let api = format!("http://{host}:{}", port.parse::<u16>().expect("a number") + 1);
    let ask = |words: &[&str]| -> Option<Value> {
        let (command, rest) = words.split_first()?;
        let ran = run(&place, &[&[command, "--api", &api, "-o", "json"], rest].concat());
        (ran.code == Some(0)).then(|| serde_json::from_str(&ran.stdout).expect("stdout is JSON"))
    };
    let job = || eventually("a job to end", || ask(&["submit", "--wait", "--cwd", "/", "--", "true"]));
    job();
    let days = |days: i64| fs::write(&clock, (days * 86_400).to_string()).expect("there is room");
    let first = eventually("the first job", || ask(&["jobs"])?["items"].as_array()?.first().cloned());
    days(3);
    eventually("it to be told", || {
        let events = run(&place, &["events", "--api", &api]).stdout;
        events.contains("the clock of server 1 is 3 days ahead").then_some(())
    });
    job();
    days(-30);
    job();
    days(0);
    job();
    eventually("it to be told", || {
        run(&place, &["events", "--api", &api])
            .stdout
            .contains("the clock of server 1 is right again")
            .then_some(())
    });
    let jobs = ask(&["jobs"]).expect("it answers");
    let items = jobs["items"].as_array().expect("a list");
    let today = &first["submitted"].as_str().expect("a time")[..8];
    assert!(items.len() >= 4 && items.iter().any(|item| item["job"] == first["job"]), "{jobs}");
    for item in items {
        assert_eq!(&item["submitted"].as_str().expect("a time")[..8], today, "{jobs}");
    }
}
