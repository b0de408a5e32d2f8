//! What the library promises: the same calls on every server, workers that end in good order, handlers that may block.

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use primus_farm::{
    Client, GuardError, Job, JobError, JobHandle, JobId, LoadSource, Network, Rank, Server, StartError,
    SubmitError, TaskState, ValueError, WorkerError, WorkerEvent,
};
use tokio::time::{sleep, timeout};

use common::{Farm, PATIENCE, eventually_async};

async fn is_running(job: &JobHandle) -> bool {
    job.report().await.expect("it is known").running > 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_can_be_asked_about_jobs() {
    let farm = Farm::start("asks", 3).await;
    let worker = farm.servers[0].worker("worker", farm.dir.join("worker")).slots(2);
    let worker = worker.kind("echo", async |task| Ok(task.argument)).start().await.expect("it starts");
    farm.leader().await;
    for (number, server) in (1..).zip(&farm.servers) {
        let client = server.client();
        let job = client.submit(Job::kind("echo", "").array(1..=3).name("three")).await.expect("it is taken");
        assert_eq!(job.id(), JobId(number));
        // Any other server says the same.
        let other = farm.servers[number as usize % 3].client().job(job.id());
        let report = timeout(PATIENCE, other.wait()).await.expect("it ends").expect("it is known");
        assert_eq!((report.name.as_str(), report.done, report.tasks()), ("three", 3, 3));
        assert!(report.is_over() && report.is_success());
        assert_eq!(other.report().await, Ok(report));
        let results = other.results().await.expect("they are kept");
        let printed: Vec<&str> = results.iter().map(|task| task.stdout.as_str()).collect();
        assert_eq!(printed, ["1", "2", "3"]);
        assert!(
            results.iter().all(|task| task.state == TaskState::Done && task.worker.as_deref() == Some("worker"))
        );
        assert_eq!(results[2].task.to_string(), format!("{number}.3"));
        assert_eq!(other.cancel().await, Ok(0), "nothing is left to cancel");
        let unknown = client.job(JobId(99));
        assert_eq!(unknown.wait().await, Err(JobError::NoSuchJob(JobId(99))));
        assert_eq!(unknown.results().await, Err(JobError::NoSuchJob(JobId(99))));
        assert_eq!(unknown.cancel().await, Err(JobError::NoSuchJob(JobId(99))));
    }
    worker.drain().await.expect("it ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_are_told_page_by_page() {
    let farm = Farm::start("pages", 1).await;
    let worker = farm.servers[0].worker("worker", farm.dir.join("worker")).slots(8);
    let _worker = worker.kind("long", async |_| Ok("x".repeat(4096))).start().await.expect("it starts");
    let client = farm.servers[0].client();
    let job = client.submit(Job::kind("long", "").array(1..=2500)).await.expect("it is taken");
    timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known");
    let results = job.results().await.expect("they are kept");
    assert_eq!(results.len(), 2500);
    assert!(results.iter().all(|task| task.stdout.len() == 4096));
    let places: Vec<u64> = results.iter().map(|task| task.task.index).collect();
    assert_eq!(places, (1..=2500).collect::<Vec<_>>());
    // Why they failed takes room in an answer, too.
    let refused = Job::command(["x".repeat(2000)]).array(1..=600);
    let job = client.submit(refused).await.expect("it is taken");
    timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known");
    let results = job.results().await.expect("they are kept");
    assert_eq!(results.len(), 600);
    assert!(results.iter().all(|task| task.reason.as_ref().is_some_and(|reason| reason.len() > 4000)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_goes_on_when_the_leader_dies() {
    let mut farm = Farm::start("dies", 3).await;
    let leader = farm.leader().await;
    let (held, other) = (Arc::new(tokio::sync::Semaphore::new(0)), (leader + 1) % 3);
    let gate = Arc::clone(&held);
    let worker = farm.servers[other].worker("worker", farm.dir.join("worker"));
    let worker = worker.kind("gate", move |_| {
        let gate = Arc::clone(&gate);
        async move { gate.acquire().await.map(|_| "open").map_err(|error| error.to_string()) }
    });
    let _worker = worker.start().await.expect("it starts");
    let job = farm.servers[other].client().submit(Job::kind("gate", "")).await.expect("it is taken");
    let waiting = tokio::spawn({
        let job = job.clone();
        async move { job.wait().await }
    });
    eventually_async("it to run", async || is_running(&job).await.then_some(())).await;
    drop(farm.servers.remove(leader));
    held.add_permits(1);
    let report = timeout(PATIENCE, waiting).await.expect("it ends").expect("it runs").expect("it is known");
    assert!(report.is_success(), "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_make_no_sense_are_the_callers_mistake() {
    let farm = Farm::start("mistakes", 1).await;
    farm.leader().await;
    let client = farm.servers[0].client();
    for (job, expected) in [
        (Job::command([""; 0]), "the command is missing"),
        (Job::kind("", "x"), "kind is empty"),
        (Job::command(["a"]).lines([""; 0]), "the job has no tasks"),
        (Job::command(["a"]).priority(2000), "priority"),
        (Job::command(["a"]).timeout(Duration::ZERO), "timeout"),
        (Job::command(["a"]).cpus(0), "cpus"),
    ] {
        let refused = client.submit(job.clone()).await;
        assert!(
            matches!(&refused, Err(SubmitError::Job(words)) if words.contains(expected)),
            "{job:?}: {refused:?}"
        );
    }
    let first = client.submit(Job::kind("noop", "1").key("one")).await.expect("it is taken");
    let again = client.submit(Job::kind("noop", "1").key("one")).await.expect("it is taken");
    assert_eq!(first.id(), again.id(), "under a key it is taken once");
    let other = client.submit(Job::kind("noop", "2").key("one")).await;
    assert!(matches!(other, Err(SubmitError::KeyTaken(_))), "{other:?}");
    let full = client.submit(Job::kind("noop", "").array(0..=u64::MAX - 1)).await;
    assert!(matches!(full, Err(SubmitError::Full(_))), "{full:?}");
    assert!(matches!(client.put(&"k".repeat(2000), "").await, Err(ValueError::Value(_))));
    let strange = farm.servers[0].group("a b").guard(async |_| ()).await;
    assert_eq!(strange, Err(GuardError::Name("a b".to_owned())));
    assert!(Client::at("https://host").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_drains_ends_what_it_has_and_takes_nothing_new() {
    let farm = Farm::start("drains", 1).await;
    let (server, started) = (&farm.servers[0], Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&started);
    let slow = move |_| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            sleep(Duration::from_millis(300)).await;
            Ok("slow")
        }
    };
    let mut first = server
        .worker("first", farm.dir.join("first"))
        .slots(1)
        .kind("slow", slow)
        .start()
        .await
        .expect("it starts");
    let mut events = first.events();
    let job = server.client().submit(Job::kind("slow", "").array(1..=3)).await.expect("it is taken");
    eventually_async("the first to start", async || (started.load(Ordering::SeqCst) > 0).then_some(())).await;
    timeout(PATIENCE, first.drain()).await.expect("it ends").expect("it ends well");
    assert_eq!(started.load(Ordering::SeqCst), 1, "it has begun with nothing new");
    let results = job.results().await.expect("they are kept");
    let done: Vec<bool> = results.iter().map(|task| task.state == TaskState::Done).collect();
    assert_eq!(done, [true, false, false], "its last result is recorded");
    assert!(matches!(events.next().await, Some(WorkerEvent::Serves { .. })));
    timeout(PATIENCE, async { while events.next().await.is_some() {} }).await.expect("its events end");
    // The same folder can be used again at once.
    let second = server.worker("first", farm.dir.join("first")).kind("slow", async |_| Ok("quick")).start().await;
    let second = second.expect("it starts");
    assert!(timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known").is_success());
    second.stop().await.expect("it ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_stops_gives_back_what_it_has() {
    let farm = Farm::start("stops", 1).await;
    let (server, dropped) = (&farm.servers[0], Arc::new(AtomicU64::new(0)));
    let seen = Arc::clone(&dropped);
    let forever = move |_| {
        let guard = Dropped(Arc::clone(&seen));
        async move {
            let _guard = guard;
            std::future::pending::<Result<String, String>>().await
        }
    };
    let first = server
        .worker("first", farm.dir.join("first"))
        .slots(1)
        .kind("work", forever)
        .start()
        .await
        .expect("it starts");
    let job = server.client().submit(Job::kind("work", "")).await.expect("it is taken");
    eventually_async("it to run", async || is_running(&job).await.then_some(())).await;
    let second = server.worker("second", farm.dir.join("second")).kind("work", async |_| Ok("done")).start().await;
    let _second = second.expect("it starts");
    let begun = Instant::now();
    timeout(PATIENCE, first.stop()).await.expect("it ends").expect("it ends well");
    assert!(timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known").is_success());
    assert!(begun.elapsed() < Duration::from_secs(5), "nothing waited for a worker that is gone");
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "the handler was dropped");
    assert_eq!(job.results().await.expect("they are kept")[0].worker.as_deref(), Some("second"));
}

struct Dropped(Arc<AtomicU64>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// This program's own runtime has one thread, and handlers keep it busy for longer than a worker may be silent.
#[tokio::test(flavor = "current_thread")]
async fn a_slow_handler_does_not_make_the_worker_look_dead() {
    let farm = Farm::start("slow", 1).await;
    let server = &farm.servers[0];
    let attempts = Arc::new(Mutex::new(BTreeSet::new()));
    let (seen, also_seen) = (Arc::clone(&attempts), Arc::clone(&attempts));
    let worker = server.worker("worker", farm.dir.join("worker")).slots(2);
    let worker = worker.blocking_kind("blocks", move |task| {
        seen.lock().expect("no handler panics").insert(task.attempt);
        thread::sleep(Duration::from_secs(3));
        Ok("blocked")
    });
    // Not as it should be, and yet only this program is late.
    let worker = worker.kind("is rude", move |task| {
        let seen = Arc::clone(&also_seen);
        async move {
            seen.lock().expect("no handler panics").insert(task.attempt);
            thread::sleep(Duration::from_secs(3));
            Ok("was rude")
        }
    });
    let mut worker = worker.start().await.expect("it starts");
    let mut events = worker.events();
    let client = server.client();
    let blocks = client.submit(Job::kind("blocks", "")).await.expect("it is taken");
    let is_rude = client.submit(Job::kind("is rude", "")).await.expect("it is taken");
    for job in [blocks, is_rude] {
        let report = timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known");
        assert!(report.is_success(), "{report:?}");
    }
    assert_eq!(attempts.lock().expect("no handler panics").len(), 2, "each began once");
    worker.drain().await.expect("it ends well");
    let mut all = Vec::new();
    while let Some(event) = events.next().await {
        all.push(event);
    }
    assert!(matches!(all.as_slice(), [WorkerEvent::Serves { .. }]), "its leader was never lost: {all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_fails_its_task_alone() {
    let farm = Farm::start("panics", 1).await;
    let server = &farm.servers[0];
    let worker = server.worker("worker", farm.dir.join("worker"));
    let worker = worker.blocking_kind::<String>("panics", |task| panic!("at {}", task.id));
    let worker = worker.kind("works", async |_| Ok("well")).start().await.expect("it starts");
    let client = server.client();
    let job = client.submit(Job::kind("panics", "")).await.expect("it is taken");
    let report = timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known");
    assert_eq!((report.failed, report.is_success()), (1, false));
    let task = job.results().await.expect("they are kept").remove(0);
    assert_eq!(task.exit, Some(101));
    assert!(task.stderr.contains("at 1.1"), "{task:?}");
    let job = client.submit(Job::kind("works", "")).await.expect("it is taken");
    assert!(timeout(PATIENCE, job.wait()).await.expect("it ends").expect("it is known").is_success());
    worker.stop().await.expect("it ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_without_a_companion_may_not_allow_commands() {
    let farm = Farm::start("orphan", 1).await;
    let orphan = farm.servers[0].worker("orphan", farm.dir.join("orphan")).allow(["*"]).start().await;
    assert!(matches!(orphan, Err(WorkerError::Settings(_))), "{orphan:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_says_whose_fault_it_is_that_it_does_not_start() {
    let farm = Farm::start("starts", 1).await;
    let [(_, address)] = farm.addresses[..] else { panic!("one server") };
    let builder = |dir: &str| Server::builder("starts", 1, [(1, address)], farm.dir.join(dir));
    assert!(matches!(builder("1").start().await, Err(StartError::Directory(_))));
    assert!(matches!(builder("other").start().await, Err(StartError::Address(..))));
    let stranger = Server::builder("starts", 9, [(1, address)], farm.dir.join("9")).start().await;
    assert!(matches!(stranger, Err(StartError::Settings(_))), "{stranger:?}");
    assert!(matches!(builder("x").weights(0, 0, 0, 1).start().await, Err(StartError::Settings(_))));
    assert!(matches!(builder("x").lease(Duration::from_millis(1)).start().await, Err(StartError::Settings(_))));
    let ms = Duration::from_millis;
    assert!(matches!(builder("x").silence(ms(50), ms(20), ms(90)).start().await, Err(StartError::Settings(_))));
    let free = common::free_addresses(1)[0].1;
    let server = Server::builder("starts", 1, [(1, free)], farm.dir.join("wan")).network(Network::Wan);
    let server = server.rank(Rank::Id).load(LoadSource::Process).on_leader_change(["true"], ms(1000)).start().await;
    let mut server = server.expect("it starts");
    let leader = timeout(PATIENCE, server.leadership().wait_for(|now| now.is_me)).await.expect("it leads");
    assert_eq!(leader.map(|leader| (leader.id, leader.term > 0)), Some((Some(server.id()), true)));
    assert!(timeout(Duration::from_millis(50), server.ended()).await.is_err(), "it goes on");
    server.stop().await.expect("it ends well");
}
