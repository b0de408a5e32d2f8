//! `primus worker`: runs tasks for a farm, until its process ends. A server with slots does the same beside itself.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::time::SystemTime;

use primus_core::NodeId;
use primus_core::ledger::LoanId;
use primus_node::executor::{Kinds, Settings};
use primus_node::load::Meter;
use primus_node::worker::{self, Config, Happening, WorkerError};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Verdict;
use super::diagnostics::{Diary, Level, Note};
use super::server::{end_with, raise_file_limit};
use crate::args::{Place, WorkerArgs};
use crate::client::{Client, strange_answer};
use crate::output::failure::Failure;
use crate::settings::server::WorkerSettings;
use crate::settings::server::layers::Sources;

/// The folder in which commands run that say nothing else.
const HOME: &str = "home";

/// Runs the worker that the file describes.
pub(crate) fn run(args: &WorkerArgs) -> Result<Verdict, Failure> {
    let sources: Sources = super::config::sources(args.config.clone(), args.overrides.0.clone());
    let mut settings = WorkerSettings::read(&sources)?;
    let diary = Diary::new(args.log_format)?;
    if let Some(parent) = args.parent {
        end_with(parent, Signal::KILL)?;
    }
    if settings.servers.is_empty() {
        (settings.farm, settings.servers) = ask_for_servers(args)?;
        settings.check_beside()?;
    }
    raise_file_limit();
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
pub(super) async fn work(settings: WorkerSettings, diary: Diary) -> Result<(), Failure> {
    let (name, dir) = (settings.name.clone(), settings.dir.display().to_string());
    let config = config(settings)?;
    let (tell, happenings) = mpsc::unbounded_channel();
    // A task of its own, because it wakes often.
    let running = tokio::spawn(worker::run(config, Kinds::default(), tell));
    tokio::spawn(write_down(name, happenings, diary));
    let failed = |error: WorkerError| Failure::server(error.to_string(), format!("look at {dir}"));
    running.await.map_err(|error| std::panic::resume_unwind(error.into_panic()))?.map_err(failed)
}

fn config(settings: WorkerSettings) -> Result<Config, Failure> {
    let WorkerSettings { farm, name, slots, beside, dir, servers, allow, output_max, outputs_max, load, weights } =
        settings;
    let unusable = |error: io::Error| {
        Failure::server(format!("{} cannot be used: {error}", dir.display()), "choose another worker.dir")
    };
    fs::create_dir_all(dir.join(HOME)).map_err(unusable)?;
    let dir = fs::canonicalize(&dir).map_err(unusable)?;
    let program = std::env::current_exe().map_err(unusable)?;
    let load = Meter::open(&load).map_err(|error| {
        Failure::usage(format!("load.source is {load}, but {error}"), "choose system or process")
    })?;
    let mut executor = Settings::new(&name, dir.clone(), (program, vec!["companion".into()]));
    executor.home = dir.join(HOME);
    executor.allow = allow;
    executor.output_len_max = output_max;
    executor.outputs_len_max = outputs_max;
    Ok(Config { cluster: farm, name, slots, servers, executor, load: Some(load), weights, beside })
}

/// The farm's name and servers, as one of them says.
fn ask_for_servers(args: &WorkerArgs) -> Result<(String, BTreeMap<NodeId, SocketAddr>), Failure> {
    let named = args.overrides.0.iter().find(|one| one.key == "server.farm").map(|one| one.text.clone());
    let farm = if args.api.is_none() { named } else { None };
    let status = Client::find(&Place { api: args.api.clone(), farm })?.latest("/v1/status")?;
    let server = |server: &Value| Some((NodeId(server["id"].as_u64()?), server["address"].as_str()?.parse().ok()?));
    let servers = status["servers"].as_array().and_then(|servers| servers.iter().map(server).collect());
    let farm = status["farm"].as_str().map(str::to_owned);
    farm.zip(servers).ok_or_else(strange_answer)
}

/// What happens to it, a line each on stderr.
async fn write_down(worker: String, mut happenings: mpsc::UnboundedReceiver<Happening>, diary: Diary) {
    while let Some(happening) = happenings.recv().await {
        diary.add(note(&worker, &happening));
    }
}

fn note(worker: &str, happening: &Happening) -> Note {
    let (level, words, facts) = match happening {
        Happening::Serves(NodeId(server), term) => {
            let facts = json!({ "kind": "serves", "leader": server, "term": term });
            (Level::Info, format!("serve {server} term {term}"), facts)
        }
        Happening::LostLeader(NodeId(server)) => {
            (Level::Info, format!("lost {server}"), json!({ "kind": "leader_lost", "previous": server }))
        }
        Happening::Refused(NodeId(server), reason) => {
            let facts = json!({ "kind": "link_refused", "by": server, "reason": reason });
            (Level::Warn, format!("refused by {server}: {reason}"), facts)
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
        Happening::RefusedAbroad(farm, NodeId(server), reason) => {
            let facts = json!({ "kind": "link_refused", "farm": farm, "by": server, "reason": reason });
            (Level::Warn, format!("refused by {server} of {farm}: {reason}"), facts)
        }
    };
    Note { time: SystemTime::now(), level, who: ("worker", worker.into()), words, facts }
}
