//! `primus worker`: runs tasks for a farm, until its process ends. A server with slots does the same beside itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use primus_client::farms::founding_of;
use primus_client::{Client, strange_answer};
use primus_core::ledger::LoanId;
use primus_core::{Place, ServerId, Term};
use primus_local::common_founding;
use primus_node::credentials;
use primus_node::executor::{Kinds, Settings, User};
use primus_node::load::Meter;
use primus_node::worker::{self, Config, Happening, WorkerError};
use primus_node::{files, private, umask};
use primus_terminal::Verdict;
use primus_terminal::failure::Failure;
use rustix::process::{Signal, geteuid};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::diagnostics::{Level, Log, Note};
use super::server::end_with;
use crate::args::WorkerArgs;
use crate::settings::server::WorkerSettings;
use crate::settings::server::layers::Sources;

/// The folder in which commands run that say nothing else.
const HOME: &str = "home";
/// A folder through which others can go, but in which they see nothing.
const PASSABLE: u32 = 0o711;

/// Runs the worker that the file describes.
pub(crate) fn run(args: &WorkerArgs) -> Result<Verdict, Failure> {
    let sources: Sources = super::config::sources(args.config.clone(), args.overrides.0.clone());
    let mut settings = WorkerSettings::read(&sources)?;
    let diary = Log::new(args.log_format)?;
    umask::restrict();
    if let Some(parent) = args.parent {
        end_with(parent, Signal::KILL)?;
    }
    if settings.servers.is_empty() {
        (settings.farm, settings.servers) = ask_for_servers(args)?;
        settings.check_beside()?;
    }
    if settings.founding.is_none() && !args.insecure && !credentials::is_named(&settings.dir) {
        // A farm that primus up runs for this user has a file of its own.
        let running = founding_of(&settings.farm, settings.servers.values().cloned());
        let common = || common_founding::of(&settings.farm, &settings.servers);
        settings.founding = Some(running.map_or_else(common, Ok)?);
    }
    files::raise_limit();
    let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).expect("signals can be heard");
        tokio::select! {
            ended = work(settings, diary) => Err(ended.err().unwrap_or_else(|| Failure::server("the worker ended", "see above"))),
            _ = terminate.recv() => Ok(Verdict::Held),
            _ = tokio::signal::ctrl_c() => Ok(Verdict::Held),
        }
    })
}

/// Works until the process ends.
pub(super) async fn work(settings: WorkerSettings, diary: Log) -> Result<(), Failure> {
    let (name, dir) = (settings.name.clone(), settings.dir.display().to_string());
    warn_of_tasks(&settings, diary);
    let config = config(settings)?;
    let (tell, happenings) = worker::happenings();
    let failed = |error: WorkerError| match &error {
        WorkerError::Credentials(error) => super::not_believed(error),
        WorkerError::Barred(_) => Failure::not_allowed(
            error.to_string(),
            "start it with the founding file of this farm in cluster.founding",
        ),
        _ => Failure::server(error.to_string(), format!("look at {dir}")),
    };
    let mut worker = worker::start(config, Kinds::default(), tell).await.map_err(failed)?;
    tokio::spawn(write_down(name, happenings, diary));
    worker.ended().await.map_err(failed)
}

/// Tasks that run as the worker's own user can do whatever it can.
fn warn_of_tasks(settings: &WorkerSettings, diary: Log) {
    if settings.allow.is_empty() || settings.user.is_some() {
        return;
    }
    let dir = settings.dir.display().to_string();
    diary.add(Note {
        time: SystemTime::now(),
        level: Level::Warn,
        who: ("worker", settings.name.clone().into()),
        words: format!("tasks run as the user of this process and can read and change its data in {dir}; worker.user gives them another user"),
        facts: json!({ "kind": "tasks_as_own_user", "dir": dir }),
    });
}

fn config(settings: WorkerSettings) -> Result<Config, Failure> {
    let WorkerSettings { farm, name, slots, beside, dir, servers, founding, load, weights, .. } = settings.clone();
    let unusable = |error: io::Error| {
        Failure::server(format!("{} cannot be used: {error}", dir.display()), "choose another worker.dir")
    };
    if settings.user.is_some() {
        passable_folder(&dir).map_err(unusable)?;
    }
    private::folder(&dir).map_err(unusable)?;
    private::check(&dir).map_err(|exposed| super::exposed(&exposed, "worker.dir"))?;
    private::folder(&dir.join(HOME)).map_err(unusable)?;
    let dir = fs::canonicalize(&dir).map_err(unusable)?;
    let user = settings.user.as_deref().map(|user| make_room_for(user, &dir)).transpose()?;
    let program = std::env::current_exe().map_err(unusable)?;
    let load = Meter::open(&load).map_err(|error| {
        Failure::usage(format!("load.source is {load}, but {error}"), "choose system or process")
    })?;
    let companion = (program, vec!["companion".into()]);
    let executor = Settings { user, home: dir.join(HOME), ..executor(settings, dir, companion) };
    Ok(Config { cluster: farm, name, slots, servers, executor, load: Some(load), weights, beside, founding })
}

/// How tasks run.
fn executor(settings: WorkerSettings, dir: PathBuf, companion: (PathBuf, Vec<OsString>)) -> Settings {
    let WorkerSettings { name, allow, allow_env, pass, limits, output_max, outputs_max, .. } = settings;
    // By this name another user finds the program, too, wherever it lies.
    let exec = Some((PathBuf::from("/proc/self/exe"), vec!["companion".into(), "limit".into()]));
    let usual = Settings::new(&name, dir, companion);
    Settings {
        allow,
        allow_env,
        pass,
        limits,
        exec,
        output_len_max: output_max,
        outputs_len_max: outputs_max,
        ..usual
    }
}

/// Makes a folder, and what leads to it, through which others can go.
fn passable_folder(dir: &Path) -> io::Result<()> {
    let missing: Vec<&Path> =
        dir.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        fs::create_dir(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(PASSABLE))?;
    }
    Ok(())
}

/// Tasks of another user have a folder of their own inside the worker's, and must be able to get there.
fn make_room_for(name: &str, dir: &Path) -> Result<User, Failure> {
    let is = format!("worker.user is '{name}'");
    if !geteuid().is_root() {
        return Err(Failure::usage(format!("{is}, but only root can run tasks as another user"), "leave it out"));
    }
    let user = User::find(name)
        .map_err(|error| Failure::usage(format!("{is}, but {error}"), "choose a user of this host"))?;
    let home = dir.join(HOME);
    let opened = chown(&home, Some(user.uid), Some(user.gid))
        // Others may pass, and see nothing.
        .and_then(|()| fs::set_permissions(dir, Permissions::from_mode(PASSABLE)));
    opened.map_err(|error| {
        Failure::usage(
            format!("{is}, but {} cannot be given to it: {error}", home.display()),
            "choose another worker.dir",
        )
    })?;
    match user.obstacle(&home) {
        Some(closed) => Err(Failure::usage(
            format!("{is}, which cannot reach {} because {} is closed to it", home.display(), closed.display()),
            "choose another worker.dir, or open that folder with chmod o+x",
        )),
        None => Ok(user),
    }
}

/// The farm's name and servers, as one of them says.
fn ask_for_servers(args: &WorkerArgs) -> Result<(String, BTreeMap<ServerId, Place>), Failure> {
    let named = args.overrides.0.iter().find(|one| one.key == "server.farm").map(|one| one.text.clone());
    let farm = if args.api.is_none() { named } else { None };
    let status = Client::find(args.api.as_deref(), farm.as_deref())?.latest("/v1/status")?;
    let server =
        |server: &Value| Some((ServerId(server["id"].as_u64()?), server["address"].as_str()?.parse().ok()?));
    let servers = status["servers"].as_array().and_then(|servers| servers.iter().map(server).collect());
    let farm = status["farm"].as_str().map(str::to_owned);
    farm.zip(servers).ok_or_else(|| strange_answer().into())
}

/// What happens to it, a line each on stderr.
async fn write_down(worker: String, mut happenings: broadcast::Receiver<Happening>, diary: Log) {
    loop {
        match happenings.recv().await {
            Ok(happening) => diary.add(note(&worker, &happening)),
            Err(RecvError::Lagged(count)) => diary.add(missed(&worker, count)),
            Err(RecvError::Closed) => return,
        }
    }
}

/// So much happened faster than it could be written down.
fn missed(worker: &str, count: u64) -> Note {
    Note {
        time: SystemTime::now(),
        level: Level::Warn,
        who: ("worker", worker.into()),
        words: format!("{count} more lines are left out: more happened than could be written down"),
        facts: json!({ "kind": "left_out", "count": count }),
    }
}

fn note(worker: &str, happening: &Happening) -> Note {
    let (level, words, facts) = match happening {
        Happening::Serves(ServerId(server), Term(term)) => {
            let facts = json!({ "kind": "serves", "leader": server, "term": term });
            (Level::Info, format!("serve {server} term {term}"), facts)
        }
        Happening::LostLeader(ServerId(server)) => {
            (Level::Info, format!("lost {server}"), json!({ "kind": "leader_lost", "previous": server }))
        }
        Happening::Refused(ServerId(server), reason) => {
            let facts = json!({ "kind": "link_refused", "by": server, "reason": reason });
            (Level::Warn, format!("refused by {server}: {reason}"), facts)
        }
        Happening::Unresolved(ServerId(server), sentence) => {
            let facts = json!({ "kind": "unresolved", "server": server, "reason": sentence });
            (Level::Warn, format!("no link to {server}: {sentence}"), facts)
        }
        Happening::Lent(farm, LoanId(loan)) => {
            let facts = json!({ "kind": "lent", "to": farm, "loan": loan });
            (Level::Info, format!("lent to {farm} under loan {loan}"), facts)
        }
        Happening::Home(LoanId(loan)) => {
            (Level::Info, format!("home again after loan {loan}"), json!({ "kind": "home", "loan": loan }))
        }
        Happening::CannotGo(farm, reason) => {
            let facts = json!({ "kind": "cannot_go", "to": farm, "reason": reason });
            (Level::Warn, format!("cannot work for {farm}: {reason}"), facts)
        }
        Happening::RefusedAbroad(farm, ServerId(server), reason) => {
            let facts = json!({ "kind": "link_refused", "farm": farm, "by": server, "reason": reason });
            (Level::Warn, format!("refused by {server} of {farm}: {reason}"), facts)
        }
    };
    Note { time: SystemTime::now(), level, who: ("worker", worker.into()), words, facts }
}
