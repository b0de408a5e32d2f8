//! Clients that submit jobs whose tasks leave traces, one that watches the results, and the judgement on both.
//!
//! A task's first act is to append its name, its attempt and its worker to one file, so the file tells what was started, and in which
//! order. A job is submitted under a key until somebody acknowledges it, so in the end there must be exactly these jobs. Some are
//! cancelled while they run, and some tasks take longer than they may.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use primus_lab::chance::Chance;
use serde_json::{Value, json};

use super::clients::StopAtEnd;
use super::eventually;
use super::http::{ask, submit};
use super::place::Place;

const SUBMITTERS: u64 = 2;
/// How many tasks may wait or run. Few, so that submissions go on until the end.
const OPEN_MAX: u64 = 300;
const JOB_TASKS_MAX: u64 = 30;
/// How many of the newest tasks the watcher asks for; far more than may be open.
const WATCHED: usize = 1000;
const PAGE: usize = 2000;
const PAUSE: Duration = Duration::from_millis(50);
/// Every how many jobs one is submitted again at the end.
const AGAIN_EVERY: usize = 10;
/// How often an answer is lost on its way, so that the job must be submitted again.
const LOST_ANSWER_PPM: u32 = 150_000;
/// How long a task that shall take too long may take. Few are submitted at once, because each keeps a slot for that long.
const TIMEOUT_MS: u64 = 200;
const SLOW_JOB_TASKS_MAX: u64 = 3;
/// How long a job runs before it is cancelled, at most.
const CANCELLED_AFTER_MS: u64 = 200;
/// Far longer than a task has before it is ended.
const TOO_LONG: &str = "3600";

/// What all submitters did, and what was seen of it.
pub(crate) struct Submitters {
    seed: u64,
    /// How many tasks there will be.
    tasks: u64,
    traces: PathBuf,
    /// Where the servers are; they move when the whole farm is started again.
    api: Mutex<Vec<SocketAddr>>,
    began: Instant,
    claimed: AtomicU64,
    /// How many jobs were there already when they were acknowledged.
    known: AtomicU64,
    jobs: Mutex<BTreeMap<u64, Acknowledged>>,
    /// The results that were seen first.
    seen: Mutex<BTreeMap<String, Seen>>,
    stop: AtomicBool,
}

/// What a task is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    /// It may run again if its worker dies.
    Ordinary,
    /// It must not start twice.
    Once,
    /// It fails the first time, and may be retried.
    FailsFirst,
    /// It takes longer than it may.
    TimesOut,
    /// It is cancelled while it waits or runs.
    Cancelled,
}

impl Nature {
    /// Half of the jobs are ordinary; of the slow ones there are few.
    fn drawn(chance: &mut Chance) -> Self {
        match chance.below(20) {
            0 => Self::TimesOut,
            1 => Self::Cancelled,
            2..6 => Self::Once,
            6..10 => Self::FailsFirst,
            _ => Self::Ordinary,
        }
    }

    const fn tasks_max(self) -> u64 {
        if matches!(self, Self::TimesOut) { SLOW_JOB_TASKS_MAX } else { JOB_TASKS_MAX }
    }
}

/// A job that was acknowledged.
struct Acknowledged {
    nature: Nature,
    tasks: u64,
    key: String,
    body: Value,
}

/// A result, and how long the file of traces was when it had been seen.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    result: Outcome,
    traces_len: u64,
}

/// What is recorded of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Outcome {
    state: String,
    attempt: Option<Attempt>,
    verdict: Option<String>,
}

/// Term, then sequence.
type Attempt = (u64, u64);

/// One start, and where in the file it is noted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trace {
    attempt: Attempt,
    worker: String,
    offset: u64,
}

impl Submitters {
    pub(crate) fn new(place: &Place, api: &[SocketAddr], seed: u64, tasks: u64) -> Self {
        let traces = place.dir.join("traces");
        fs::write(&traces, "").expect("a file can be written");
        Self {
            seed,
            tasks,
            traces,
            api: Mutex::new(api.to_vec()),
            began: Instant::now(),
            claimed: AtomicU64::new(0),
            known: AtomicU64::new(0),
            jobs: Mutex::default(),
            seen: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Does this while they work. Whatever happens meanwhile, they must end, or the test never would.
    pub(crate) fn while_they_work<T>(&self, act: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let _stop = StopAtEnd(&self.stop);
            for number in 0..SUBMITTERS {
                scope.spawn(move || self.work(Chance::new(self.seed ^ (number << 32)), number));
            }
            scope.spawn(|| self.watch());
            let done = act();
            eventually("all jobs to be acknowledged", || (self.acknowledged() == self.tasks).then_some(()));
            done
        })
    }

    /// The farm was started again, and is here now.
    pub(crate) fn move_to(&self, api: &[SocketAddr]) {
        *self.api.lock().expect("nobody panics while asking") = api.to_vec();
    }

    /// How many tasks are known to have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.seen.lock().expect("nobody panics while noting").len() as u64
    }

    /// Waits until so many more tasks have ended, or until there are none left to be submitted.
    pub(crate) fn wait_for(&self, count: u64) {
        let wanted = self.ended() + count;
        // Each of them may take its time: what must not happen is that none ends.
        while self.ended() < wanted && !self.are_done() {
            let before = self.ended();
            eventually("a task to end", || (self.ended() > before || self.are_done()).then_some(()));
        }
    }

    /// Is there nothing left to submit?
    pub(crate) fn are_done(&self) -> bool {
        self.claimed.load(Ordering::Relaxed) == self.tasks
    }

    fn acknowledged(&self) -> u64 {
        self.jobs.lock().expect("nobody panics while noting").values().map(|job| job.tasks).sum()
    }

    /// One submitter, until there is nothing left to submit.
    fn work(&self, mut chance: Chance, submitter: u64) {
        for number in 0u64.. {
            while self.claimed.load(Ordering::Relaxed) >= self.ended() + OPEN_MAX {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(PAUSE / 10);
            }
            let nature = Nature::drawn(&mut chance);
            let Some(tasks) = self.claim(chance.between(1, nature.tasks_max())) else { return };
            let body = self.body(nature, tasks, &mut chance);
            let key = format!("{submitter}-{number}");
            if chance.happens(LOST_ANSWER_PPM) {
                _ = submit(self.one_of_them(&mut chance), &key, &body);
            }
            let answer = self.submit(&mut chance, &key, &body);
            self.known.fetch_add(u64::from(answer["created"] == false), Ordering::Relaxed);
            let job = answer["job"].as_str().and_then(|job| job.parse().ok()).expect("a job has a number");
            let acknowledged = Acknowledged { nature, tasks, key, body };
            let before = self.jobs.lock().expect("nobody panics while noting").insert(job, acknowledged);
            assert!(before.is_none(), "seed {}: two jobs are job {job}", self.seed);
            if nature == Nature::Cancelled {
                thread::sleep(Duration::from_millis(chance.between(0, CANCELLED_AFTER_MS)));
                self.cancel(job, &mut chance);
            }
        }
    }

    /// Cancels a job, again and again until that is acknowledged: then none of its tasks may be open any more.
    fn cancel(&self, job: u64, chance: &mut Chance) {
        self.answer(chance, "POST", &format!("/v1/jobs/{job}/cancel"));
        let facts = self.answer(chance, "GET", &format!("/v1/jobs/{job}"));
        assert_eq!(facts["open"], 0, "seed {}: job {job} is cancelled: {facts}", self.seed);
    }

    /// What one server after the other is asked until one answers.
    fn answer(&self, chance: &mut Chance, method: &str, path: &str) -> Value {
        eventually("an answer", || match ask(self.one_of_them(chance), method, path, "") {
            Ok((200, answer)) => Some(answer),
            Ok((503, _)) | Err(_) => None,
            Ok((status, answer)) => panic!("{path}: {status} {answer}"),
        })
    }

    /// As many tasks as there are left, up to this many; none if there are none.
    fn claim(&self, most: u64) -> Option<u64> {
        let take = |claimed: u64| (claimed < self.tasks).then(|| self.tasks.min(claimed + most));
        let before = self.claimed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(most.min(self.tasks - before))
    }

    /// A task leaves its trace, then takes 5 to 50 ms, or too long. Each line is how long one takes.
    fn body(&self, nature: Nature, tasks: u64, chance: &mut Chance) -> Value {
        let mut line = || match nature {
            Nature::TimesOut => TOO_LONG.to_owned(),
            Nature::Cancelled if chance.happens(300_000) => TOO_LONG.to_owned(),
            _ => format!("0.{:03}", chance.between(5, 50)),
        };
        let lines: Vec<String> = (0..tasks).map(|_| line()).collect();
        // A task begins in its worker's own folder: `farm/w1/home`.
        let trace = r#"w=${PWD%/*}; echo "$PRIMUS_TASK $PRIMUS_ATTEMPT ${w##*/}" >> "$0""#;
        let script = match nature {
            Nature::Ordinary | Nature::Once => format!("{trace}; exec sleep {{}}"),
            // Only the first that comes here can make the folder.
            Nature::FailsFirst => {
                format!(r#"{trace}; mkdir "$0.$PRIMUS_TASK" 2> /dev/null && exit 1; exec sleep {{}}"#)
            }
            // The shell stays, so that it can be found by its arguments, and has a child that must end with it.
            Nature::TimesOut | Nature::Cancelled => format!("{trace}; sleep {{}}; true"),
        };
        let retries = if nature == Nature::FailsFirst { 3 } else { 0 };
        let command = json!(["sh", "-c", script, self.traces]);
        let mut body =
            json!({ "command": command, "lines": lines, "no_rerun": nature == Nature::Once, "retries": retries });
        match nature {
            Nature::TimesOut => body["timeout_ms"] = json!(TIMEOUT_MS),
            // Before all others, so that some of it runs when it is cancelled.
            Nature::Cancelled => body["priority"] = json!(10),
            _ => {}
        }
        body
    }

    /// Submits it at one server after the other until it is acknowledged.
    fn submit(&self, chance: &mut Chance, key: &str, body: &Value) -> Value {
        eventually("a job to be acknowledged", || match submit(self.one_of_them(chance), key, body) {
            Ok((200 | 201, answer)) => Some(answer),
            Ok((503, _)) | Err(_) => None,
            Ok((status, answer)) => panic!("submit: {status} {answer}"),
        })
    }

    fn one_of_them(&self, chance: &mut Chance) -> SocketAddr {
        chance.pick(&self.api.lock().expect("nobody panics while asking"))
    }

    /// Notes every result as soon as it can be seen. It stays where it is answered: a frozen server would cost it seconds.
    fn watch(&self) {
        let mut chance = Chance::new(!self.seed);
        let mut api = self.one_of_them(&mut chance);
        while !self.stop.load(Ordering::Relaxed) {
            if self.look(api, &format!("limit={WATCHED}")).is_none() {
                api = self.one_of_them(&mut chance);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Asks for one page of tasks and notes which have ended. What does the page say? None if nobody answers.
    fn look(&self, api: SocketAddr, page: &str) -> Option<Value> {
        let path = format!("/v1/tasks?{page}&fields=task,state,attempt,verdict");
        let answer = match ask(api, "GET", &path, "") {
            Ok((200, answer)) => answer,
            Ok((503, _)) | Err(_) => return None,
            Ok((status, answer)) => panic!("tasks: {status} {answer}"),
        };
        // Only now: whatever starts from here on starts after the result was there to be seen.
        let traces_len = self.traces_len();
        let items = answer["items"].as_array().expect("tasks are a list");
        let mut seen = self.seen.lock().expect("nobody panics while noting");
        for item in items {
            let state = item["state"].as_str().expect("a state is text");
            if ["queued", "running"].contains(&state) {
                continue;
            }
            let result = Outcome {
                state: state.to_owned(),
                attempt: item["attempt"].as_str().map(attempt),
                verdict: item["verdict"].as_str().map(str::to_owned),
            };
            let task = item["task"].as_str().expect("a task has a name").to_owned();
            let first = seen.entry(task.clone()).or_insert(Seen { result: result.clone(), traces_len });
            assert_eq!(first.result, result, "seed {}: {task} has two results", self.seed);
        }
        drop(seen);
        Some(answer)
    }

    /// Waits until every task has ended; then whoever submits a job again learns that it is there already.
    pub(crate) fn wait_for_all(&self) {
        let mut chance = Chance::new(self.seed);
        eventually("all tasks to end", || (self.count_all(&mut chance)? == self.ended()).then_some(()));
        assert_eq!(self.ended(), self.tasks, "seed {}: tasks that nobody wanted, or too few", self.seed);
        let jobs = self.jobs.lock().expect("nobody panics while noting");
        for (number, job) in jobs.iter().step_by(AGAIN_EVERY) {
            let again = self.submit(&mut chance, &job.key, &job.body);
            assert_eq!((&again["job"], &again["created"]), (&json!(number.to_string()), &json!(false)));
        }
    }

    /// Looks at all tasks. How many are there?
    fn count_all(&self, chance: &mut Chance) -> Option<u64> {
        let (mut count, mut page) = (0, format!("limit={PAGE}"));
        loop {
            let answer = self.look(self.one_of_them(chance), &page)?;
            count += answer["items"].as_array()?.len() as u64;
            let Some(next) = answer["next"].as_str() else { return Some(count) };
            page = format!("limit={PAGE}&after={next}");
        }
    }

    /// Where the file of traces ends now.
    pub(crate) fn traces_len(&self) -> u64 {
        fs::metadata(&self.traces).expect("the file of traces is there").len()
    }

    /// The tasks that this worker began after the file of traces was so long.
    pub(crate) fn begun_by(&self, worker: &str, traces_len: u64) -> Vec<String> {
        let is_later = |start: &Trace| start.worker == worker && start.offset >= traces_len;
        let traces = self.traces().into_iter();
        traces.filter(|(_, starts)| starts.iter().any(is_later)).map(|(task, _)| task).collect()
    }

    /// Whoever was cancelled or took too long must not be left behind.
    pub(crate) fn must_have_ended(&self) {
        let traces = self.traces.to_str().expect("folders of tests have plain names");
        eventually("all processes of tasks to end", || {
            let mut processes = fs::read_dir("/proc").expect("there is a /proc").flatten();
            let is_task = |process: fs::DirEntry| {
                let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).split('\0').any(|word| word == traces)
            };
            (!processes.any(is_task)).then_some(())
        });
    }

    /// Compares results and traces, when nothing runs any more.
    pub(crate) fn judge(&self, lost_max: u64) {
        let (jobs, seen) = (self.jobs.lock().expect("all have ended"), self.seen.lock().expect("all have ended"));
        let traces = self.traces();
        let names = |(number, job): (&u64, &Acknowledged)| {
            let (number, nature) = (*number, job.nature);
            (1..=job.tasks).map(move |index| (format!("{number}.{index}"), nature)).collect::<Vec<_>>()
        };
        let tasks: BTreeMap<String, Nature> = jobs.iter().flat_map(names).collect();
        let (wanted, ended): (BTreeSet<_>, BTreeSet<_>) = (tasks.keys().collect(), seen.keys().collect());
        assert_eq!(wanted, ended, "seed {}: not the tasks that were acknowledged", self.seed);
        let unknown = traces.keys().find(|task| !tasks.contains_key(*task));
        assert_eq!(unknown, None, "seed {}: a task that nobody wanted", self.seed);
        for (task, nature) in &tasks {
            let starts = traces.get(task).map_or(&[][..], Vec::as_slice);
            let wrong = wrong(*nature, &seen[task].result, starts);
            assert_eq!(wrong, None, "seed {}: {task}, {nature:?}: {:?} {starts:?}", self.seed, seen[task]);
        }
        let late = self.late(&seen, &traces);
        let lost = seen.values().filter(|seen| seen.result.state == "lost").count();
        let cancelled = seen.values().filter(|seen| seen.result.state == "cancelled").count();
        self.tell(&tasks, &traces, late, (lost, cancelled));
        assert!(lost as u64 <= lost_max, "seed {}: {lost} lost", self.seed);
    }

    /// How many starts came after the result was seen? All of them must have been handed out before: an attempt that is no
    /// newer than another one that had begun by then was, and waited somewhere, as at a worker that was frozen.
    fn late(&self, seen: &BTreeMap<String, Seen>, traces: &BTreeMap<String, Vec<Trace>>) -> usize {
        let mut late = 0;
        for (task, Seen { traces_len, result }) in seen {
            for start in traces.get(task).into_iter().flatten().filter(|start| start.offset >= *traces_len) {
                let before = traces.values().flatten().filter(|trace| trace.offset < *traces_len);
                let newest = before.map(|trace| trace.attempt).max();
                let is_explained = newest.is_some_and(|newest| start.attempt <= newest);
                assert!(is_explained, "seed {}: {task} was handed out though it had ended: {start:?}", self.seed);
                println!("{task}: {start:?} came after {result:?} had been seen");
                late += 1;
            }
        }
        late
    }

    fn tell(
        &self,
        tasks: &BTreeMap<String, Nature>,
        traces: &BTreeMap<String, Vec<Trace>>,
        late: usize,
        (lost, cancelled): (usize, usize),
    ) {
        let count = |nature| tasks.values().filter(|its| **its == nature).count();
        let starts: usize = traces.values().map(Vec::len).sum();
        let is_double = |(task, starts): &(&String, &Vec<Trace>)| {
            starts.len() > 1 && tasks.get(*task) == Some(&Nature::Ordinary)
        };
        let double = traces.iter().filter(is_double).count();
        println!(
            "seed {}: {} tasks: {} ordinary, {} once, {} fail first, {} time out, {} in cancelled jobs; {starts} starts; \
             {double} ordinary ones started twice; {late} starts after the end; {lost} lost; {cancelled} cancelled; \
             {} jobs acknowledged when they were known already; {:.1} s",
            self.seed,
            tasks.len(),
            count(Nature::Ordinary),
            count(Nature::Once),
            count(Nature::FailsFirst),
            count(Nature::TimesOut),
            count(Nature::Cancelled),
            self.known.load(Ordering::Relaxed),
            self.began.elapsed().as_secs_f64()
        );
    }

    /// What was started, by task.
    fn traces(&self) -> BTreeMap<String, Vec<Trace>> {
        let text = fs::read_to_string(&self.traces).expect("the file of traces is there");
        let (mut traces, mut offset) = (BTreeMap::<String, Vec<Trace>>::new(), 0);
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [task, start, worker] = words[..] else { panic!("{line:?} is not a trace") };
            let trace = Trace { attempt: attempt(start), worker: worker.to_owned(), offset };
            traces.entry(task.to_owned()).or_default().push(trace);
            offset += line.len() as u64 + 1;
        }
        traces
    }
}

/// What is wrong with this result of a task that was started so often, if anything is.
fn wrong(nature: Nature, result: &Outcome, starts: &[Trace]) -> Option<&'static str> {
    let is_traced = starts.iter().any(|start| Some(start.attempt) == result.attempt);
    match (nature, result.state.as_str()) {
        (Nature::Once, _) if starts.len() > 1 => Some("it must not start twice"),
        (_, "done" | "failed") if !is_traced => Some("the attempt that ended was never started"),
        (Nature::TimesOut, "failed") if result.verdict.as_deref() == Some("timed_out") => None,
        (Nature::TimesOut, _) => Some("it took too long, and that must be recorded"),
        (Nature::Cancelled, "done" | "cancelled") | (Nature::Once, "lost") | (_, "done") => None,
        _ => Some("it must not end so"),
    }
}

fn attempt(text: &str) -> Attempt {
    let parts =
        text.split_once('-').and_then(|(term, sequence)| Some((term.parse().ok()?, sequence.parse().ok()?)));
    parts.unwrap_or_else(|| panic!("{text:?} is not an attempt"))
}
