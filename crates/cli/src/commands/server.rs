//! `primus server`: one server of a cluster, until its process ends.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use primus_api as api;
use primus_core::Place;
use primus_local::common_founding;
use primus_node::credentials;
pub(super) use primus_node::files::raise_limit as raise_file_limit;
use primus_node::handle::Handle;
use primus_node::node::EndError;
use primus_node::server::{STOP_TIME, Server, Settings, StartError, listen};
use primus_node::store::OpenError;
use primus_node::{umask, watched};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use rustix::process::{Signal, geteuid};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

pub(super) use primus_terminal::parent::end_with;

use super::diagnostics::{self, Level, Log, Note};
use crate::args::{LogFormat, ServerArgs};
use crate::settings::server::{ServerSettings, WorkerSettings};

/// Runs the server that the file describes.
pub(crate) fn run(args: &ServerArgs) -> Result<Verdict, Failure> {
    let settings = super::config::read(&args.choices).settle()?;
    umask::restrict();
    if let Some(parent) = args.parent {
        end_with(parent, Signal::KILL)?;
    }
    single_threaded().block_on(async { serve(start(settings, args.log_format).await?).await })
}

/// Starts a server on threads of its own, with its API and, if it has slots, a worker beside it.
pub(super) async fn start(mut settings: ServerSettings, log_format: LogFormat) -> Result<Server, Failure> {
    let diary = Log::new(log_format)?;
    if !settings.is_insecure {
        find_founding(&mut settings)?;
    }
    // What a part of it says when it fails is said once, at its end.
    watched::hush();
    let prepared = Server::prepare(of_library(&settings)).map_err(|error| not_started(error, &settings))?;
    let web = listen(settings.api_listen)
        .map_err(|error| cannot_listen(settings.api_listen, "server.api or api.listen", &error))?;
    let server = prepared.start().await.map_err(|error| not_started(error, &settings))?;
    work(settings.worker.clone(), diary);
    say_who_can_use(&settings, diary);
    serve_api(settings, web, server.handle().clone(), diary);
    Ok(server)
}

/// On loopback nobody needs to name a founding file, neither the farm's own nor those of its neighbours.
fn find_founding(settings: &mut ServerSettings) -> Result<(), Failure> {
    let ServerSettings { farm, dir, founding, authorities, plan, worker, .. } = settings;
    if founding.is_none() && !credentials::is_named(dir) {
        *founding = Some(common_founding::of(farm, &plan.servers)?);
        worker.iter_mut().for_each(|worker| worker.founding.clone_from(founding));
    }
    for neighbour in &plan.lending.neighbours {
        let is_local = neighbour.servers.values().all(Place::is_loopback);
        if is_local && neighbour.authority.is_none() && !authorities.contains_key(&neighbour.name) {
            let file = common_founding::of(&neighbour.name, &neighbour.servers)?;
            authorities.insert(neighbour.name.clone(), file);
        }
    }
    Ok(())
}

fn of_library(settings: &ServerSettings) -> Settings {
    let ServerSettings { farm, dir, founding, authorities, listen, load, hook, plan, .. } = settings.clone();
    Settings { farm, dir, listen: Some(listen), load, hook, many_files: true, founding, authorities, plan }
}

fn single_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("the system gives a runtime")
}

fn cannot_listen(address: SocketAddr, keys: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot listen on {address}: {error}"), format!("choose another {keys}"))
}

/// Until somebody wants it to end; then another server leads first, if one can.
async fn serve(mut server: Server) -> Result<Verdict, Failure> {
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be heard");
    tokio::select! {
        ended = server.ended() => return Err(failed(ended)),
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    let handle = server.handle().clone();
    tokio::select! {
        ended = server.ended() => return Err(failed(ended)),
        _ = timeout(STOP_TIME, handle.step_down()) => {}
        // To ask twice means not to wait.
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(Verdict::Held)
}

/// The API has a thread of its own: however busy it is, the server's loop is not late.
fn serve_api(settings: ServerSettings, web: std::net::TcpListener, handle: Handle, diary: Log) {
    let happenings = (Arc::clone(&handle.history), Arc::clone(&handle.steps));
    let id = settings.id;
    let api = api::Settings {
        farm: settings.farm,
        listens: settings.api_listen,
        names: settings.names,
        token: settings.token,
        servers: settings.servers,
        algorithm: settings.plan.election.algorithm,
        rank: settings.plan.election.rank,
        queue_max: settings.plan.farm.limits.waiting,
        lease_us: settings.plan.lease_us,
        lending: settings.plan.lending.rules,
        has_chaos: settings.chaos,
    };
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
fn say_who_can_use(settings: &ServerSettings, diary: Log) {
    if settings.token.is_some() {
        return;
    }
    let (api, user) = (settings.api_listen, user_name());
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
fn work(worker: Option<WorkerSettings>, diary: Log) {
    let Some(worker) = worker else { return };
    let working = move || {
        if let Err(failure) = single_threaded().block_on(super::worker::work(worker, diary)) {
            failure.complain(Format::Text);
        }
    };
    std::thread::Builder::new().name("worker".to_owned()).spawn(working).expect("the system gives a thread");
}

fn not_started(error: StartError, settings: &ServerSettings) -> Failure {
    match error {
        StartError::NotAmongServers(_) => Failure::usage(error.to_string(), "add it to cluster.servers"),
        StartError::NoListen(..) => Failure::usage(error.to_string(), "name it in server.listen"),
        StartError::Load(error) => {
            Failure::usage(format!("load.source is {}, but {error}", settings.load), "choose system or process")
        }
        StartError::Store(error) => not_opened(&error, &settings.dir),
        StartError::Credentials(error) => super::not_believed(&error),
        StartError::Security(error) => Failure::usage(error.to_string(), "see primus init --help"),
        StartError::Listen(address, error) => cannot_listen(address, "server.address or server.listen", &error),
        StartError::Ended(error) => failed(Err(error)),
    }
}

fn not_opened(error: &OpenError, dir: &Path) -> Failure {
    if let OpenError::Exposed(exposed) = error {
        return super::exposed(exposed, "server.dir");
    }
    let (words, hint) = (error.to_string(), format!("look at {}", dir.display()));
    if error.is_final() { Failure::final_end(words, hint) } else { Failure::server(words, hint) }
}

pub(super) fn failed(ended: Result<(), EndError>) -> Failure {
    let Err(error) = ended else { return Failure::server("the server ended", "start it again") };
    let hint = match &error {
        EndError::Forgotten { .. } => {
            "do not start it as it is: bring back its newest data, or make it a new server"
        }
        EndError::NoAddress { .. } => {
            return Failure::usage(
                error.to_string(),
                "the members of a cluster count, and the file says where they are",
            );
        }
        EndError::OtherMembers(_) => return Failure::server(error.to_string(), "correct cluster.servers, too"),
        EndError::Unreadable(_) => "do not start it as it is: run one version on all servers, or bring back a copy",
        error if error.is_final() => "do not start it as it is: keep a copy of its data directory, and report this",
        _ => return Failure::server(error.to_string(), "make room or mend the disk, then start the server again"),
    };
    Failure::final_end(error.to_string(), hint)
}
