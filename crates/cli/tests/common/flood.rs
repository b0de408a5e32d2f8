//! A flood: one job of many short tasks that leave traces, what is seen of it while it runs, and the judgement on both.
//!
//! A task's first act is to append its name, its attempt, its folder and the time to one file, and so is its last. The folder
//! tells which worker runs it: `…/s1/home`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::eventually_or;
use super::neighbourhood::{Ledgers, text};
use super::place::Place;

const SCRIPT: &str = r#"say() { echo "$1 $PRIMUS_TASK $PRIMUS_ATTEMPT $PWD $(date +%s%N)" >> "$0"; }
say begin; sleep {}; say end"#;

/// Many tasks of one farm.
pub(crate) struct Flood<'a> {
    farms: &'a Ledgers,
    farm: String,
    job: String,
    tasks: usize,
    traces: PathBuf,
    /// The results that were seen first.
    seen: Mutex<BTreeMap<String, Seen>>,
}

/// A result, and how long the file of traces was when it had been seen.
struct Seen {
    state: String,
    attempt: Attempt,
    traces_len: usize,
}

/// Term, then sequence.
type Attempt = (u64, u64);

/// One start, and where in the file it is noted.
#[derive(Debug)]
struct Trace {
    attempt: Attempt,
    /// What its own farm calls it.
    worker: String,
    is_guest: bool,
    offset: usize,
    /// In nanoseconds since 1970.
    began: u64,
    /// Nothing if it was killed.
    ended: Option<u64>,
}

/// What the tasks came to.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// How many starts there were.
    pub(crate) starts: usize,
    /// How many of them at workers of other farms.
    pub(crate) starts_at_guests: usize,
    /// Which workers of other farms had any.
    pub(crate) guests: BTreeSet<String>,
    /// Which tasks started more than once.
    pub(crate) reruns: Vec<String>,
}

impl<'a> Flood<'a> {
    /// Submits so many tasks of so many seconds at once.
    pub(crate) fn begin(place: &Place, farms: &'a Ledgers, farm: &str, (tasks, seconds): (usize, &str)) -> Self {
        let traces = place.dir.join(format!("traces-{farm}"));
        fs::write(&traces, "").expect("a file can be written");
        let command = json!(["sh", "-c", SCRIPT, traces]);
        // Every flood has a key of its own, so that it can be submitted again.
        let key = format!("{:?}", std::time::SystemTime::now());
        let job = farms.submit(farm, &key, &json!({ "command": command, "lines": vec![seconds; tasks] }));
        Self { farms, farm: farm.to_owned(), job, tasks, traces, seen: Mutex::default() }
    }

    /// Notes every result that can be seen by now.
    pub(crate) fn look(&self) {
        let path = format!("/v1/tasks?job={}&limit=1000&fields=task,state,attempt", self.job);
        let tasks = self.farms.items(&self.farm, &path);
        // Only now: whatever starts from here on starts after the result was there to be seen.
        let traces_len = fs::read(&self.traces).expect("the file of traces is there").len();
        let mut seen = self.seen.lock().expect("nobody panics while noting");
        for task in tasks.iter().filter(|task| task["state"] != "queued" && task["state"] != "running") {
            let (name, state) = (text(&task["task"]), text(&task["state"]));
            let result = Seen { state, attempt: attempt(&text(&task["attempt"])), traces_len };
            let (now, first) = ((result.state.clone(), result.attempt), seen.entry(name.clone()).or_insert(result));
            assert_eq!((first.state.clone(), first.attempt), now, "{name} has two results");
        }
    }

    pub(crate) fn ended(&self) -> usize {
        self.seen.lock().expect("nobody panics while noting").len()
    }

    /// Waits until every task has a result.
    pub(crate) fn wait(&self) {
        eventually_or("all tasks to end", || {
            self.look();
            if self.ended() == self.tasks { Ok(()) } else { Err(format!("{} of {}", self.ended(), self.tasks)) }
        });
    }

    /// Compares results and traces, when nothing runs any more: every task has one result, which is the one of an attempt that
    /// began, and none began after its result could be seen.
    pub(crate) fn judge(&self) -> Verdict {
        let (seen, traces) = (self.seen.lock().expect("all have ended"), self.traces());
        let wanted: BTreeSet<String> = (1..=self.tasks).map(|index| format!("{}.{index}", self.job)).collect();
        assert!(wanted.iter().eq(seen.keys().collect::<BTreeSet<_>>()), "{} of {} ended", seen.len(), self.tasks);
        assert!(traces.keys().all(|task| wanted.contains(task)), "a task that nobody wanted");
        for (task, Seen { state, attempt, traces_len }) in &*seen {
            let starts = traces.get(task).map_or(&[][..], Vec::as_slice);
            assert_eq!(state, "done", "{task}");
            assert!(
                starts.iter().any(|start| start.attempt == *attempt),
                "{task}: {attempt:?} is not in {starts:?}"
            );
            for late in starts.iter().filter(|start| start.offset >= *traces_len) {
                // What had been handed out by then may have waited somewhere.
                let before = traces.values().flatten().filter(|trace| trace.offset < *traces_len);
                let newest = before.map(|trace| trace.attempt).max();
                assert!(newest >= Some(late.attempt), "{task} was handed out though it had ended: {late:?}");
            }
        }
        Verdict::new(&traces)
    }

    /// For how long all its tasks together have run, and from when to when, in nanoseconds.
    pub(crate) fn span(&self) -> (u64, u64, u64) {
        let traces: Vec<Trace> = self.traces().into_values().flatten().collect();
        let ended = |trace: &Trace| trace.ended.unwrap_or(trace.began);
        let busy = traces.iter().map(|trace| ended(trace) - trace.began).sum();
        let first = traces.iter().map(|trace| trace.began).min().unwrap_or(0);
        (busy, first, traces.iter().map(ended).max().unwrap_or(0))
    }

    /// How often a worker of another farm has begun a task by now.
    pub(crate) fn starts_at_guests(&self) -> usize {
        Verdict::new(&self.traces()).starts_at_guests
    }

    /// Does a worker of another farm run one of the tasks now? Then which one?
    pub(crate) fn guest_at_work(&self) -> Option<(String, String)> {
        let workers = self.farms.workers(&self.farm);
        let is_at_work = |worker: &&Value| worker["home"] != worker["farm"] && worker["running"].as_u64() > Some(0);
        let found = workers.iter().find(is_at_work)?;
        let name = text(&found["name"]);
        let (worker, home) = name.split_once('@').expect("a guest's name says whose it is");
        Some((home.to_owned(), worker.to_owned()))
    }

    /// What was started, by task.
    fn traces(&self) -> BTreeMap<String, Vec<Trace>> {
        let text = fs::read_to_string(&self.traces).expect("the file of traces is there");
        let (mut traces, mut offset) = (BTreeMap::<String, Vec<Trace>>::new(), 0);
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, task, start, folder, time] = words[..] else { panic!("{line:?} is not a trace") };
            let (attempt, time) = (attempt(start), time.parse().expect("a time is a number"));
            let starts = traces.entry(task.to_owned()).or_default();
            if what == "begin" {
                let worker = folder.rsplit('/').nth(1).expect("a worker has a folder").to_owned();
                let is_guest = !self.farms.member(&self.farm).workers.contains(&worker);
                starts.push(Trace { attempt, worker, is_guest, offset, began: time, ended: None });
            } else if let Some(start) = starts.iter_mut().find(|start| start.attempt == attempt) {
                start.ended = Some(time);
            }
            offset += line.len() + 1;
        }
        traces
    }
}

/// No worker ever ran tasks of two farms at once.
pub(crate) fn judge_allegiance(floods: &[&Flood<'_>]) {
    let mut intervals: BTreeMap<String, Vec<(u64, u64, &str)>> = BTreeMap::new();
    for flood in floods {
        for trace in flood.traces().into_values().flatten() {
            // One that was killed was there when it began, at least.
            let interval = (trace.began, trace.ended.unwrap_or(trace.began), flood.farm.as_str());
            intervals.entry(trace.worker).or_default().push(interval);
        }
    }
    for (worker, mut its) in intervals {
        its.sort_unstable();
        let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
        for (began, ended, farm) in its {
            let other = ends.iter().find(|(other, end)| **other != farm && **end > began);
            assert_eq!(other, None, "{worker} worked for {farm} at {began} and for another farm until then");
            let end = ends.entry(farm).or_default();
            *end = (*end).max(ended);
        }
    }
}

impl Verdict {
    fn new(traces: &BTreeMap<String, Vec<Trace>>) -> Self {
        let at_guests = || traces.values().flatten().filter(|trace| trace.is_guest);
        let reruns = traces.iter().filter(|(_, starts)| starts.len() > 1);
        Self {
            starts: traces.values().map(Vec::len).sum(),
            starts_at_guests: at_guests().count(),
            guests: at_guests().map(|trace| trace.worker.clone()).collect(),
            reruns: reruns.map(|(task, starts)| format!("{task}: {starts:?}")).collect(),
        }
    }
}

fn attempt(text: &str) -> Attempt {
    let parts =
        text.split_once('-').and_then(|(term, sequence)| Some((term.parse().ok()?, sequence.parse().ok()?)));
    parts.unwrap_or_else(|| panic!("{text:?} is not an attempt"))
}
