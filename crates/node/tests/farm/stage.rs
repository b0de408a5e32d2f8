//! A farm whose servers and workers can be stopped and started again, and ways to ask it.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use primus_core::ledger::{
    CommandLine, Effect, Entry, Expansion, JobId, Outcome, Spec, State, Target, TaskId, Work,
};
use primus_core::load::Weights;
use primus_core::loan::lending;
use primus_core::planted::Planted;
use primus_core::rank::RankBy;
use primus_core::{Place, ServerId};
use primus_node::credentials::Security;
use primus_node::executor::{Kinds, Settings};
use primus_node::farm::{Awaited, FarmHandle};
use primus_node::handle::Handle;
use primus_node::node::{self, Config};
use primus_node::results::{self, Results};
use primus_node::store::{Identity, OpenError, Opened, Store};
use primus_node::worker::{self, Happening};
use primus_server::Plan;
use primus_server::plan::Neighbour;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{broadcast, oneshot};

use crate::PROGRAM;
use crate::common::{PATIENCE, eventually, eventually_async};

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Something that runs on a thread of its own until it is stopped.
struct Process {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Process {
    fn start<F: Future<Output = ()> + Send + 'static>(work: impl FnOnce() -> F + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = single_threaded();
            runtime.block_on(async {
                let running = tokio::spawn(work());
                tokio::select! {
                    ended = running => ended.expect("it does not panic"),
                    _ = stopped => {}
                }
            });
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop.take().into_iter().for_each(|stop| _ = stop.send(()));
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()), "a server or worker panicked");
    }
}

fn single_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("the system gives a runtime")
}

struct Server {
    handle: Handle,
    _process: Process,
}

/// Servers and workers as they are started.
pub(crate) struct Farm {
    pub(crate) name: String,
    dir: PathBuf,
    addresses: BTreeMap<ServerId, Place>,
    servers: BTreeMap<u64, Server>,
    workers: BTreeMap<String, (Process, broadcast::Receiver<Happening>)>,
    /// Workers whose names others have by now.
    unwatched: Vec<Process>,
    pub(crate) snapshot_every: u64,
    pub(crate) state_max: u64,
    pub(crate) planted: Planted,
    pub(crate) neighbours: Vec<Neighbour>,
    pub(crate) lending: lending::Rules,
    /// The programs that its workers run.
    pub(crate) allow: Vec<String>,
}

impl Drop for Farm {
    fn drop(&mut self) {
        self.workers.clear();
        self.unwatched.clear();
        self.servers.clear();
        _ = fs::remove_dir_all(&self.dir);
    }
}

impl Farm {
    /// Three servers; nothing has been started yet.
    pub(crate) fn new() -> Self {
        Self::of("test", 3)
    }

    /// A farm of this name and with so many servers; nothing has been started yet.
    pub(crate) fn of(name: &str, servers: u64) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("primus-farm-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("there is room for a directory");
        // Addresses that nothing else has: a port of 127.0.0.1 may be taken by a caller while its server is down.
        let [.., high, low] = std::process::id().to_be_bytes();
        let host =
            Ipv4Addr::new(127, 1 + high % 200, low, 1 + u8::try_from(number % 250).expect("it is below 250"));
        let bound = || std::net::TcpListener::bind((host, 0)).expect("a free port");
        let listeners: Vec<_> = (1..=servers).map(|id| (ServerId(id), bound())).collect();
        let address = |listener: &std::net::TcpListener| listener.local_addr().expect("it is bound");
        let addresses = listeners.iter().map(|(id, listener)| (*id, address(listener).into())).collect();
        Self {
            name: name.to_owned(),
            dir,
            addresses,
            servers: BTreeMap::new(),
            workers: BTreeMap::new(),
            unwatched: Vec::new(),
            snapshot_every: 10_000,
            state_max: 1 << 30,
            planted: Planted::NONE,
            neighbours: Vec::new(),
            lending: lending::Rules::default(),
            allow: vec!["*".to_owned()],
        }
    }

    /// How another farm knows this one.
    pub(crate) fn as_neighbour(&self) -> Neighbour {
        Neighbour { name: self.name.clone(), servers: self.addresses.clone(), authority: None }
    }

    /// Three servers and two workers of one slot each; somebody leads.
    pub(crate) async fn started() -> Self {
        let mut farm = Self::new();
        for id in 1..=3 {
            farm.start_server(id).await;
        }
        farm.start_worker("w1");
        farm.start_worker("w2");
        farm.wait_for_workers(2).await;
        farm
    }

    pub(crate) async fn start_server(&mut self, id: u64) {
        let mut plan = Plan::new(ServerId(id), self.addresses.clone());
        plan.election.rank = RankBy::Id;
        plan.snapshot_every = self.snapshot_every;
        plan.farm.state_max = self.state_max;
        plan.planted = self.planted;
        plan.lending.neighbours.clone_from(&self.neighbours);
        plan.lending.rules = self.lending;
        let config = Config { cluster: self.name.clone(), plan, security: Security::None };
        let identity = Identity { cluster: config.cluster.clone(), server: ServerId(id) };
        let opened = open_store(&self.dir.join(id.to_string()), &identity).await;
        let address = self.addresses[&ServerId(id)].number().expect("a number");
        let (ready, handle) = oneshot::channel();
        let process = Process::start(move || async move {
            let listener = TcpListener::bind(address).await.expect("the port is free again");
            node::run(config, listener, opened, ready).await.expect("the disk works");
        });
        self.servers.insert(id, Server { handle: handle.await.expect("it starts"), _process: process });
    }

    pub(crate) fn stop_server(&mut self, id: u64) {
        self.servers.remove(&id);
    }

    pub(crate) fn start_worker(&mut self, name: &str) {
        self.start_worker_in(name, name);
    }

    /// A worker of this name before it is not stopped by that, but not watched any more.
    pub(crate) fn start_worker_in(&mut self, name: &str, folder: &str) {
        let companion = (PROGRAM.into(), vec!["companion".into()]);
        await_closed_results(&self.dir.join(folder));
        let abroad = fs::read_dir(self.dir.join(folder).join("away")).into_iter().flatten().flatten();
        abroad.for_each(|farm| await_closed_results(&farm.path()));
        let mut settings = Settings::new(name, self.dir.join(folder), companion);
        settings.allow.clone_from(&self.allow);
        let config = worker::Config {
            cluster: self.name.clone(),
            name: name.to_owned(),
            slots: 1,
            servers: self.addresses.clone(),
            executor: settings,
            load: None,
            weights: Weights::DEFAULT,
            beside: None,
            founding: None,
        };
        let ((tell, happenings), planted) = (worker::happenings(), self.planted);
        let process = Process::start(move || async move {
            worker::run_with(planted, config, Kinds::default(), tell).await.expect("it goes on");
        });
        let before = self.workers.insert(name.to_owned(), (process, happenings));
        self.unwatched.extend(before.map(|(process, _)| process));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// How many bytes a worker has written down about what ended.
    pub(crate) fn results_len(&self, name: &str) -> u64 {
        fs::metadata(self.dir.join(name).join("results")).map_or(0, |about| about.len())
    }

    pub(crate) async fn wait_for_more_results(&self, name: &str, before: u64) {
        eventually_async("more results", async || (self.results_len(name) > before).then_some(())).await;
    }

    pub(crate) async fn wait_for_leader(&self, wanted: u64) {
        eventually_async("its leadership", async || (self.leader().await == wanted).then_some(())).await;
    }

    pub(crate) fn stop_worker(&mut self, name: &str) {
        self.workers.remove(name);
    }

    /// What next happens to a worker.
    pub(crate) async fn happening(&mut self, name: &str) -> Happening {
        let (_, happenings) = self.workers.get_mut(name).expect("it was started");
        let next = tokio::time::timeout(PATIENCE, happenings.recv()).await;
        next.expect("something happens in time").expect("it lives, and nothing was missed")
    }

    /// Waits until this happens to a worker.
    pub(crate) async fn await_happening(&mut self, name: &str, is_it: impl Fn(Happening) -> bool) {
        let next = async || is_it(self.happening(name).await).then_some(());
        eventually_async("what happens to a worker", next).await;
    }

    /// What has happened to a worker, as far as nobody has looked yet.
    pub(crate) fn happenings(&mut self, name: &str) -> Vec<Happening> {
        let (_, happenings) = self.workers.get_mut(name).expect("it was started");
        std::iter::from_fn(|| happenings.try_recv().ok()).collect()
    }

    pub(crate) fn farm_of(&self, id: u64) -> FarmHandle {
        self.servers[&id].handle.farm.clone()
    }

    pub(crate) fn handle_of(&self, id: u64) -> &Handle {
        &self.servers[&id].handle
    }

    /// Who leads and is ready to.
    pub(crate) async fn leader(&self) -> u64 {
        eventually_async("a leader", async || {
            for (id, server) in &self.servers {
                if server.handle.farm.look(|_| ()).await.is_ok() {
                    return Some(*id);
                }
            }
            None
        })
        .await
    }

    pub(crate) async fn farm(&self) -> FarmHandle {
        self.farm_of(self.leader().await)
    }

    pub(crate) async fn wait_for_workers(&self, count: usize) {
        self.wait_until("the workers are here", |farm| async move {
            farm.look(move |foreman| {
                foreman.connected().count() == count && foreman.ledger().workers().len() >= count
            })
            .await
        })
        .await;
    }

    /// Waits until the leader says so.
    pub(crate) async fn wait_until<F>(&self, what: &str, mut is_so: impl FnMut(FarmHandle) -> F)
    where
        F: Future<Output = Result<bool, primus_node::handle::Unable>>,
    {
        eventually_async(what, async || is_so(self.farm().await).await.ok()?.then_some(())).await;
    }

    pub(crate) async fn submit(&self, spec: Spec) -> JobId {
        let effects = self.farm().await.enter(vec![Entry::Submit { spec, key: None }]).await.expect("it is taken");
        match effects[..] {
            [Effect::Submitted { job, is_new: true }] => job,
            _ => panic!("{effects:?}"),
        }
    }

    /// Waits for a job's end, whoever leads meanwhile.
    pub(crate) async fn wait_for(&self, job: JobId) {
        self.wait_for_all(Awaited::from(Target::Job(job))).await;
    }

    pub(crate) async fn wait_for_all(&self, awaited: Awaited) {
        let what = format!("the end of {awaited:?}");
        eventually_async(&what, async || self.farm().await.ended(vec![awaited]).await.ok()).await;
    }

    pub(crate) async fn outcome(&self, task: TaskId) -> Outcome {
        let farm = self.farm().await;
        let outcome = farm.look(move |foreman| foreman.ledger().outcome(task)).await;
        outcome.expect("it leads").expect("there is a result")
    }

    pub(crate) async fn states(&self, job: JobId) -> Vec<State> {
        let farm = self.farm().await;
        let states = farm.look(move |foreman| foreman.ledger().job(job).map(|job| job.states().collect())).await;
        states.expect("it leads").expect("the job is known")
    }

    pub(crate) async fn run(&self, spec: Spec) -> JobId {
        let job = self.submit(spec).await;
        self.wait_for(job).await;
        job
    }
}

pub(crate) fn first(job: JobId) -> TaskId {
    TaskId { job, index: 1 }
}

pub(crate) fn spec(work: Work, expansion: Expansion) -> Spec {
    Spec {
        name: String::new(),
        work,
        expansion,
        retries: 0,
        timeout_ms: None,
        is_once: false,
        priority: 0,
        cpus: 1,
    }
}

pub(crate) fn noop() -> Work {
    Work::Kind { name: Kinds::NOOP.to_owned(), input: Vec::new() }
}

pub(crate) fn sleep(ms: u64) -> Work {
    Work::Kind { name: Kinds::SLEEP.to_owned(), input: ms.to_string().into_bytes() }
}

pub(crate) fn command(arguments: &[&str]) -> Work {
    let arguments = arguments.iter().map(ToString::to_string).collect();
    Work::Command(CommandLine { arguments, ..CommandLine::default() })
}

/// One that was stopped may still be closing its store.
async fn open_store(dir: &Path, identity: &Identity) -> Opened {
    eventually_async("a store that is closed", async || match Store::open(dir, identity) {
        Ok(opened) => Some(opened),
        Err(OpenError::InUse { .. }) => None,
        Err(error) => panic!("the store opens: {error}"),
    })
    .await
}

/// The same for a worker and its results.
fn await_closed_results(dir: &Path) {
    let is_in_use = || dir.exists() && matches!(Results::open(dir), Err(results::OpenError::InUse { .. }));
    eventually("results that are closed", || (!is_in_use()).then_some(()));
}
