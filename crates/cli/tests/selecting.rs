//! End to end: jobs, tasks and workers as people name them, and lists as they ask for them.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::eventually;
use common::place::{Place, Ran};
use serde_json::Value;

fn lines(ran: &Ran) -> Vec<&str> {
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    ran.stdout.lines().collect()
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let items = list["items"].as_array().expect("a list has items");
    items.iter().map(|item| item[key].as_str().expect("it has a name").to_owned()).collect()
}

/// A farm with the jobs 1 to 4: one task, three tasks, one that failed, and one that is called render.
fn with_four_jobs(place: &Place) -> common::place::Farm<'_> {
    let farm = place.up("--servers 1 --workers 1 --slots 2");
    assert_eq!(lines(&place.primus("submit -q --wait -- echo one")), ["1"]);
    assert_eq!(lines(&place.primus("submit --quiet --array 1-3 -- echo {}")), ["2"]);
    let failed = place.primus("submit -q --wait -- false");
    assert_eq!((failed.code, failed.stdout.as_str(), failed.stderr.as_str()), (Some(1), "3\n", ""), "{failed:?}");
    assert_eq!(lines(&place.primus("submit -q --name render -- echo four")), ["4"]);
    assert_eq!(place.primus("wait 1-4").code, Some(1), "one has failed");
    farm
}

#[test]
fn ranges_lists_and_the_last_name_jobs_and_tasks() {
    let place = Place::new();
    let farm = with_four_jobs(&place);
    assert_eq!(place.json("job last")["job"], "4");
    assert_eq!(place.json("task last")["task"], "4.1");
    assert_eq!(names(&place.json("job 1-2,4"), "job"), ["1", "2", "4"]);
    assert_eq!(names(&place.json("task 2.2-9"), "task"), ["2.2", "2.3"]);
    assert_eq!(place.primus("logs 1-2").stdout, "one\n1\n2\n3\n");
    assert_eq!(place.primus("logs last 2.3 last").stdout, "four\n3\n", "each once");
    assert!(place.primus("explain last").stdout.starts_with("4.1 ended well on w1 in "));
    assert_eq!(names(&place.json("tasks last"), "task"), ["4.1"]);
    let pages = place.primus("job 1 4").stdout;
    assert!(
        pages.starts_with("job 1: 1 task, 1 done\n") && pages.contains("\n\njob 4: 1 task, 1 done\n"),
        "{pages}"
    );
    assert_eq!(lines(&place.primus("wait 1,4")), ["job 1: 1 task, 1 done", "job 4: 1 task, 1 done"]);
    assert_eq!(lines(&place.primus("retry 3-4")), ["3: 1 task is retried", "4: 0 tasks are retried"]);
    assert_eq!(place.primus("wait 3").code, Some(1));
    for (line, code, part) in [
        ("job 7-9", 1, "no job from 7 to 9 is known"),
        ("task 2.4-9", 1, "2.4 is not among them"),
        ("cancel 5-3", 2, "is not a range"),
        ("job all", 2, "too much"),
        ("job list", 2, "primus jobs"),
        ("tasks 1-2", 2, "can be several"),
    ] {
        let ran = place.primus(line);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
        assert!(ran.stderr.contains(part), "{line}: {ran:?}");
    }
    farm.end();
}

#[test]
fn all_names_what_has_not_ended() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 1");
    let none = place.primus("job last");
    assert_eq!((none.code, none.stderr.contains("the farm has no jobs")), (Some(1), true), "{none:?}");
    assert_eq!(place.primus("wait all").code, Some(0), "nothing to wait for");
    assert_eq!(place.primus("run -- true").code, Some(0));
    for _ in 0..3 {
        assert_eq!(place.primus("submit -q -- sleep 1000").code, Some(0));
    }
    let cancelled = place.primus("cancel all");
    let expected = ["2: 1 task is cancelled", "3: 1 task is cancelled", "4: 1 task is cancelled"];
    assert_eq!(lines(&cancelled), expected);
    assert_eq!(lines(&place.primus("cancel all")), [""; 0]);
    farm.end();
}

#[test]
fn lists_are_filtered_short_and_watched() {
    let place = Place::new();
    let farm = with_four_jobs(&place);
    assert_eq!(lines(&place.primus("jobs -q")), ["4", "3", "2", "1"]);
    assert_eq!(lines(&place.primus("jobs --state failed,running -q")), ["3"]);
    assert_eq!(lines(&place.primus("jobs --name rend -q")), ["4"]);
    let first = place.json("jobs --state done --limit 2");
    assert_eq!((names(&first, "job"), &first["next"]), (vec!["4".to_owned(), "2".to_owned()], &Value::from("2")));
    let all = place.json("jobs --state done --all");
    assert_eq!((names(&all, "job").len(), &all["next"]), (3, &Value::Null));
    assert_eq!(lines(&place.primus("tasks 2 -q")), ["2.1", "2.2", "2.3"]);
    assert_eq!(lines(&place.primus("workers -q")), ["w1"]);
    assert_eq!(lines(&place.primus("farms -q")), ["local"]);
    let both = place.primus("jobs -q -o json");
    assert_eq!((both.code, both.stderr.contains("different things")), (Some(2), true), "{both:?}");
    let mut watch =
        place.command(&["jobs", "--watch", "-q"]).stdout(Stdio::piped()).spawn().expect("primus starts");
    let mut shown = BufReader::new(watch.stdout.take().expect("it was asked for")).lines().map_while(Result::ok);
    let shown: Vec<String> = shown.by_ref().take(8).collect();
    watch.kill().and_then(|()| watch.wait()).expect("it runs");
    assert_eq!(shown, ["4", "3", "2", "1", "4", "3", "2", "1"]);
    farm.end();
}

#[test]
fn a_worker_has_a_page_and_several_are_drained_at_once() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 2");
    let job = place.primus("submit -q -- sleep 1000").stdout;
    let task = format!("{}.1", job.trim());
    let runs = |name: &str| place.json(&format!("workers {name}"))["items"][0]["running_tasks"][0] == task.as_str();
    let name = eventually("it to run", || ["w1", "w2"].into_iter().find(|name| runs(name)));
    let page = place.primus(&format!("workers {name}")).stdout;
    assert!(page.starts_with(&format!("worker {name} is connected\n")) && page.contains(&task), "{page}");
    assert_eq!(lines(&place.primus("drain w1 w2")), ["worker w1 gets nothing new", "worker w2 gets nothing new"]);
    assert!(place.primus("workers w1").stdout.starts_with("worker w1 is drained\n"));
    let busy = place.primus("drain w1 w2 --wait --timeout 300ms");
    assert_eq!((busy.code, busy.stderr.contains("still runs 1")), (Some(124), true), "{busy:?}");
    assert_eq!(place.primus("cancel last").code, Some(0));
    let idle = format!("worker {name} runs nothing and gets nothing new");
    assert_eq!(lines(&place.primus(&format!("drain {name} --wait"))), [idle]);
    assert_eq!(names(&place.json("drain w1 w2 --undo"), "worker"), ["w1", "w2"]);
    assert_eq!(place.json("drain w1 --undo")["worker"], "w1");
    let unknown = place.primus("workers w3");
    assert_eq!((unknown.code, unknown.stderr.contains("did you mean w")), (Some(1), true), "{unknown:?}");
    farm.end();
}

#[test]
fn the_last_lines_are_shown_and_followed() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 1 --slots 2");
    assert_eq!(place.primus("submit -q --wait --array 1-2 -- seq 5000").code, Some(0));
    assert_eq!(place.primus("logs 1 --tail 2").stdout, "4999\n5000\n4999\n5000\n");
    assert_eq!(place.primus("logs 1.1 --tail 0").stdout, "");
    assert_eq!(place.primus("logs 1.1 --tail 9999").stdout.lines().count(), 5000);
    let stop = place.dir.join("stop");
    let script = format!("seq 10; while ! [ -e {} ]; do sleep 0.05; done; echo end", stop.display());
    assert_eq!(
        place.command(&["submit", "-q", "--", "sh", "-c", &script]).output().expect("it runs").stdout,
        b"2\n"
    );
    eventually("what it prints", || (place.primus("logs 2").stdout.lines().count() == 10).then_some(()));
    let mut logs = place.command(&["logs", "last", "-f", "--tail", "1"]);
    let follower = logs.stdout(Stdio::piped()).spawn().expect("primus starts");
    std::fs::write(&stop, "").expect("there is room");
    let shown = follower.wait_with_output().expect("it ends").stdout;
    assert!(shown.ends_with(b"end\n") && shown.len() < 8, "{}", String::from_utf8_lossy(&shown));
    assert_eq!(place.primus("logs 1 --tail -1").code, Some(2));
    farm.end();
}
