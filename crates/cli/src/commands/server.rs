//! `primus server`: one server of a cluster, until its process ends.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use primus_api as api;
use primus_node::handle::Handle;
use primus_node::load::Meter;
use primus_node::node::{self, Config, EndError};
use primus_node::store::{Identity, OpenError, Opened, Store};
use primus_node::{hooks, umask, watched};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, Rlimit, Signal, geteuid, getrlimit, setrlimit};
use serde_json::json;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;

pub(super) use primus_terminal::parent::end_with;

use super::diagnostics::{self, Diary, Level, Note};
use crate::args::{LogFormat, ServerArgs};
use crate::settings::server::{ServerSettings, WorkerSettings};

/// How many may have called before they are accepted; a crowd must not make the system drop a peer's call.
const CALLERS_MAX: u32 = 4096;

/// How long a leader that is to end may take to make another one: a guarded command may take its time to end.
const STEP_DOWN_TIME: Duration = Duration::from_secs(10);

/// Runs the server that the file describes.
pub(crate) fn run(args: &ServerArgs) -> Result<Verdict, Failure> {
    let settings = super::config::read(&args.choices).settle()?;
    umask::restrict();
    if let Some(parent) = args.parent {
        end_with(parent, Signal::KILL)?;
    }
    single_threaded().block_on(async {
        let (handle, serving) = Prepared::new(settings, args.log_format).await?.begin().await?;
        serve(&handle, serving).await
    })
}

/// A server that has everything that it needs to begin.
pub(super) struct Prepared {
    settings: ServerSettings,
    links: TcpListener,
    web: TcpListener,
    opened: Opened,
    meter: Meter,
    diary: Diary,
}

/// A server's loop, which ends only when it fails.
pub(super) type Serving = JoinHandle<Result<(), EndError>>;

impl Prepared {
    /// Opens its disk and its ports.
    pub(super) async fn new(settings: ServerSettings, log_format: LogFormat) -> Result<Self, Failure> {
        let diary = Diary::new(log_format)?;
        // What a part of it says when it fails is said once, at its end.
        watched::hush();
        let meter = Meter::open(&settings.load).map_err(|error| {
            Failure::usage(format!("load.source is {}, but {error}", settings.load), "choose system or process")
        })?;
        raise_file_limit();
        make_room_for_files();
        let identity = Identity { cluster: settings.farm.clone(), server: settings.id };
        let opened = Store::open(&settings.dir, &identity).map_err(|error| not_opened(&error, &settings.dir))?;
        let links = bind(settings.address, "address").await?;
        let web = bind(settings.api, "api").await?;
        Ok(Self { settings, links, web, opened, meter, diary })
    }

    /// Begins to serve.
    pub(super) async fn begin(self) -> Result<(Handle, Serving), Failure> {
        let Self { settings, links, web, opened, meter, diary } = self;
        let config = Config { cluster: settings.farm.clone(), plan: settings.plan.clone() };
        let (ready, handle) = oneshot::channel();
        // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
        let mut serving = tokio::spawn(node::run(config, links, opened, ready));
        let handle = tokio::select! {
            handle = handle => handle.map_err(|_| Failure::server("the server did not start", "see above"))?,
            ended = &mut serving => return Err(failed(ended)),
        };
        let measured = handle.clone();
        meter.watch(move |usage| measured.measured(usage));
        if let Some(hook) = settings.hook.clone() {
            let (history, meters) = (Arc::clone(&handle.history), Arc::clone(&handle.meters));
            hooks::start(hook, settings.farm.clone(), settings.id, history, meters);
        }
        work(settings.worker.clone(), diary);
        say_who_can_use(&settings, diary);
        serve_api(settings, web, handle.clone(), diary);
        Ok((handle, serving))
    }
}

/// How many files there is room for from the start: more than all connections that a server may have.
const FILES: RawFd = 8000;

/// Connections are files, and by default a process may have few: strangers must not use up those that peers need.
pub(super) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Where it may not be raised, the server works with what it has.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// The system makes room for more files step by step, and every step stops the thread that opens one until all processors know
/// of it: for tens of milliseconds on a busy host. So the room is there before anybody waits for it.
fn make_room_for_files() {
    _ = File::open("/dev/null").map(|file| fcntl_dupfd_cloexec(&file, FILES));
}

fn single_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("the system gives a runtime")
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(CALLERS_MAX)
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener, Failure> {
    listen(address).map_err(|error| {
        Failure::usage(format!("cannot listen on {address}: {error}"), format!("choose another server.{key}"))
    })
}

/// Until somebody wants it to end; then another server leads first, if one can.
async fn serve(handle: &Handle, mut serving: Serving) -> Result<Verdict, Failure> {
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be heard");
    tokio::select! {
        ended = &mut serving => return Err(failed(ended)),
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    tokio::select! {
        ended = serving => return Err(failed(ended)),
        _ = timeout(STEP_DOWN_TIME, handle.step_down()) => {}
        // Whoever asks twice does not want to wait.
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(Verdict::Held)
}

/// The API has a thread of its own: however busy it is, the server's loop is not late.
fn serve_api(settings: ServerSettings, web: TcpListener, handle: Handle, diary: Diary) {
    let happenings = (Arc::clone(&handle.history), Arc::clone(&handle.steps));
    let id = settings.id;
    let api = api::Settings {
        id,
        farm: settings.farm,
        listens: settings.api,
        names: settings.names,
        token: settings.token,
        servers: settings.servers,
        algorithm: settings.plan.algorithm,
        rank: settings.plan.rank,
        queue_max: settings.plan.limits.waiting,
        lease_us: settings.plan.lease_us,
        lending: settings.plan.lending,
        neighbours: settings.plan.neighbours.into_iter().map(|neighbour| neighbour.name).collect(),
        has_chaos: settings.chaos,
    };
    let web = web.into_std().expect("a listener stays one");
    std::thread::Builder::new()
        .name("api".to_owned())
        .spawn(move || {
            single_threaded().block_on(async {
                let web = TcpListener::from_std(web).expect("a listener stays one");
                tokio::spawn(diagnostics::write_down(id.0, happenings, diary));
                api::serve(api, handle, web).await;
            });
        })
        .expect("the system gives a thread");
}

/// Without a secret a server listens on loopback only, and there everybody may ask: people should know.
fn say_who_can_use(settings: &ServerSettings, diary: Diary) {
    if settings.token.is_some() {
        return;
    }
    let (api, user) = (settings.api, user_name());
    let words = format!(
        "every user of this host can run commands as {user}, through the API at {api}: name a file with a secret in \
         api.token_file"
    );
    diary.add(Note {
        time: SystemTime::now(),
        level: Level::Warn,
        who: ("server", settings.id.0.into()),
        words,
        facts: json!({ "kind": "no_token", "api": api.to_string(), "user": user }),
    });
}

/// What the user is called who runs this process.
fn user_name() -> String {
    let user = geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == user).then(|| name.to_owned())
    };
    users.lines().find_map(name).unwrap_or_else(|| format!("user {user}"))
}

/// A worker beside the server has a thread of its own, too. If it cannot work, the server still serves.
fn work(worker: Option<WorkerSettings>, diary: Diary) {
    let Some(worker) = worker else { return };
    let working = move || {
        if let Err(failure) = single_threaded().block_on(super::worker::work(worker, diary)) {
            failure.complain(Format::Text);
        }
    };
    std::thread::Builder::new().name("worker".to_owned()).spawn(working).expect("the system gives a thread");
}

fn not_opened(error: &OpenError, dir: &Path) -> Failure {
    if let OpenError::Exposed(exposed) = error {
        return super::exposed(exposed, "server.dir");
    }
    let (words, hint) = (error.to_string(), format!("look at {}", dir.display()));
    if error.is_final() { Failure::final_end(words, hint) } else { Failure::server(words, hint) }
}

pub(super) fn failed(ended: Result<Result<(), EndError>, JoinError>) -> Failure {
    let error = match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) => return Failure::server("the server ended", "start it again"),
        Err(error) => resume_unwind(error.into_panic()),
    };
    let hint = match &error {
        EndError::Forgotten { .. } => {
            "do not start it as it is: bring back its newest data, or make it a new server"
        }
        EndError::Unreadable(_) => "do not start it as it is: run one version on all servers, or bring back a copy",
        error if error.is_final() => "do not start it as it is: keep a copy of its data directory, and report this",
        _ => return Failure::server(error.to_string(), "make room or mend the disk, then start the server again"),
    };
    Failure::final_end(error.to_string(), hint)
}
