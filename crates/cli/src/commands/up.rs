//! `primus up`: a farm of real processes on this host, or several that are neighbours, until it is interrupted.
//!
//! Servers and workers are children of this process and end with it, however it ends: each asks the kernel to be killed when its
//! parent dies. That promise is kept for the thread that started them, so everything here happens on the main thread.

mod preset;

use std::path::Path;

use preset::Preset;
use primus_client::farms::{self, Farm, Started, StartedWorker};
use primus_local::Wanted;
use primus_local::fleet::{Fleet, Settings};
use primus_local::home::{SERVERS_MAX, SLOTS_MAX, WORKERS_MAX};
use primus_local::running::{Stop, choice, start, stay};
use primus_local::several::{FARMS_MAX, homes};
use primus_node::umask;
use primus_terminal::amounts::{length, number};
use primus_terminal::failure::Failure;
use primus_terminal::screen::{self, FAINT, STRONG, styled};
use primus_terminal::{Format, Verdict};
use rustix::process::Signal;
use serde::Serialize;

use super::server::end_with;
use crate::args::UpArgs;
use crate::settings::server::groups::{self, GroupEntry};
use crate::settings::server::keys::KEYS;
use crate::settings::server::slot::Key;

/// What scripts see when every farm has a leader: the first farm, and all of them if there are several.
#[derive(Serialize)]
struct Ready<'a> {
    ready: bool,
    #[serde(flatten)]
    first: ReadyFarm<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    farms: &'a [ReadyFarm<'a>],
}

#[derive(Clone, Serialize)]
struct ReadyFarm<'a> {
    farm: &'a str,
    leader: u64,
    dir: String,
    /// The file that holds what the servers ask for.
    token_file: Option<&'a Path>,
    api: &'a [String],
    servers: &'a [Started],
    workers: &'a [StartedWorker],
}

/// Starts the farms, and ends with them.
pub(super) fn run(args: &UpArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let for_time = args.for_time.as_deref().map(|text| length("--for", text)).transpose()?;
    umask::restrict();
    let stop = Stop::listen()?;
    if let Some(parent) = args.parent {
        // A signal that we hear, so that the servers and their data go too.
        end_with(parent, Signal::TERM)?;
    }
    farms::tidy()?;
    let homes = homes(&wanted(args)?)?;
    let fleets = homes.iter().map(|home| Fleet::new(home, settings(args, home.servers)?));
    let mut fleets = fleets.collect::<Result<Vec<_>, _>>()?;
    if homes.iter().any(|home| home.servers == 2) {
        screen::complain("warning: two servers tolerate no loss; if one dies, no server leads");
    }
    let Some(leaders) = start(&mut fleets, &stop)? else { return Ok(Verdict::Held) };
    announce(&fleets, &leaders, format)?;
    stay(&mut fleets, &stop, for_time)?;
    // All at once, so that nobody waits for the others' ends.
    fleets.iter().for_each(Fleet::ask_to_end);
    Ok(Verdict::Held)
}

/// Which farms were asked for.
fn wanted(args: &UpArgs) -> Result<Wanted, Failure> {
    let within = |flag: &str, text: &Option<String>, least: u64, most: u64| {
        text.as_deref().map(|text| number(flag, text, least, most)).transpose()
    };
    Ok(Wanted {
        farms: within("--farms", &args.farms, 1, FARMS_MAX)?,
        servers: within("--servers", &args.servers, 1, SERVERS_MAX)?,
        workers: within("--workers", &args.workers, 0, WORKERS_MAX)?,
        slots: within("--slots", &args.slots, 1, SLOTS_MAX)?,
        dir: args.dir.clone(),
        farm: args.farm.clone(),
    })
}

/// What so many servers of a farm have in common.
fn settings(args: &UpArgs, servers: u64) -> Result<Settings, Failure> {
    let groups: String = groups::typed(&args.groups, servers)?.iter().map(GroupEntry::toml).collect();
    // Which node it is says its file; a variable would say the same to all of them.
    let is_common = |key: &&Key| {
        ["election.", "guard.", "lending.", "load."].iter().any(|section| key.name.starts_with(section))
    };
    let hidden = KEYS.iter().filter(|key| !is_common(key)).map(|key| key.variable()).collect();
    Ok(Settings { servers: Preset::new(args)?.toml() + &groups, hidden, is_insecure: args.insecure })
}

fn announce(fleets: &[Fleet<'_>], leaders: &[u64], format: Format) -> Result<(), Failure> {
    let farms: Vec<(&Farm, u64)> = fleets.iter().map(|fleet| &fleet.farm).zip(leaders.iter().copied()).collect();
    let all: Vec<ReadyFarm<'_>> = farms.iter().map(|(farm, leader)| ReadyFarm::new(farm, *leader)).collect();
    let first = all.first().cloned().expect("there is a farm");
    let ready = Ready { ready: true, first, farms: if all.len() > 1 { &all } else { &[] } };
    format.show(|| text(&farms), &ready)?;
    Ok(())
}

impl<'a> ReadyFarm<'a> {
    fn new(farm: &'a Farm, leader: u64) -> Self {
        Self {
            farm: &farm.name,
            leader,
            dir: farm.dir.to_string_lossy().into_owned(),
            token_file: farm.token_file.as_deref(),
            api: &farm.api,
            servers: &farm.servers,
            workers: &farm.workers,
        }
    }
}

fn text(farms: &[(&Farm, u64)]) -> String {
    let listed: String = farms.iter().map(|(farm, leader)| farm_text(farm, *leader)).collect();
    let is_only = Farm::all().is_ok_and(|farms| farms.len() <= 1);
    let hints = match farms {
        [(farm, leader)] => only_hints(&choice(farm, is_only), *leader),
        several => neighbour_hints(several),
    };
    format!("{listed}In another terminal:\n{hints}\nCtrl-C ends it all.\n")
}

fn only_hints(choice: &str, leader: u64) -> String {
    format!(
        "  primus run{choice} -- echo hello
  primus status --watch{choice}
  primus kv put colour blue{choice}
  primus chaos kill leader{choice}
  primus chaos restart {leader}{choice}
"
    )
}

/// How to see workers go to another farm and come back.
fn neighbour_hints(farms: &[(&Farm, u64)]) -> String {
    let [first, second] = [0, 1].map(|place| farms.get(place).map_or("", |(farm, _)| farm.name.as_str()));
    format!(
        "  primus submit --farm {first} --array 1-200 -- sleep 0.2
  primus loans --farm {first}
  primus farms --farm {second}
  primus status --watch --farm {first}
  primus chaos kill leader --farm {first}
"
    )
}

fn farm_text(farm: &Farm, leader: u64) -> String {
    let fate = if farm.temporary { "removed at the end" } else { "kept" };
    let servers: String = farm.servers.iter().map(|server| server_line(server, leader)).collect();
    let workers: String = farm.workers.iter().map(worker_line).collect();
    let servers = format!("{servers}{workers}");
    let count = count(farm.servers.len(), "server") + &and_count(farm.workers.len(), "worker");
    let name = styled(STRONG, &farm.name);
    let dir = farm.dir.display();
    let fate = styled(FAINT, &format!("({fate})"));
    let curl = curl(farm);
    format!(
        "farm {name}: {count}, server {leader} leads

{servers}
data: {dir} {fate}
{curl}
"
    )
}

/// How other programs show the secret, which itself is printed nowhere.
fn curl(farm: &Farm) -> String {
    let (Some(file), Some(api)) = (&farm.token_file, farm.api.first()) else { return String::new() };
    format!("api: curl -H @{} {api}/v1/status {}\n", file.display(), styled(FAINT, "(only you can read that file)"))
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("one {noun}") } else { format!("{number} {noun}s") }
}

fn and_count(number: usize, noun: &str) -> String {
    if number == 0 { String::new() } else { format!(" and {}", count(number, noun)) }
}

fn worker_line(worker: &StartedWorker) -> String {
    let pid = worker.pid.map_or_else(|| "dead".to_string(), |pid| format!("pid {pid}"));
    format!("  worker {}  {pid}\n", worker.name)
}

fn server_line(server: &Started, leader: u64) -> String {
    let Started { id, pid, address, api } = server;
    let pid = pid.map_or_else(|| "dead".to_string(), |pid| format!("pid {pid}"));
    let role = if *id == leader { "  leads" } else { "" };
    format!("  server {id}  {pid:<11}  links {address}  api {api}{role}\n")
}
