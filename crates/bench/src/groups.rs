//! `primus bench groups`: many groups with several candidates each: what it costs to keep them, and how soon another candidate
//! holds what a dead one held.
//!
//! Real processes: three servers, and as many candidates as asked for, each of which would like to hold every group and writes down
//! what it was granted. The holders of a share of all groups are killed with one of them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use primus_core::lease::Candidacy;
use primus_core::lease::guard::{self, Notice};
use primus_core::ledger::groups::GROUPS_MAX;
use primus_core::ledger::{GroupRank, GroupRules};
use primus_local::TemporaryFarm;
use primus_node::clock::now_us;
use primus_node::session::{Session, Transport};
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::parent::end_with;
use primus_terminal::{Format, Verdict};
use rustix::process::Signal;
use serde::Serialize;
use tokio::runtime::Builder;

use crate::args::{GroupsArgs, HoldArgs};
use crate::processes::cpu_ms;
use crate::report::{Found, Spread, flag, measured};

const SERVERS: u64 = 3;
const GROUPS: u64 = 1000;
const CANDIDATES: u64 = 5;
const WAITING_TIME: Duration = Duration::from_secs(30);
/// How long the cost of renewals is watched.
const WATCHED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

/// What was found.
#[derive(Serialize)]
struct Groups {
    groups: u64,
    candidates: u64,
    lease: String,
    servers: u64,
    /// Until all groups were held, from the start of the candidates.
    all_held_ms: f64,
    /// Of one processor, all servers together, while nothing changes: with all groups held, and what of it is due to them.
    servers_percent: Option<f64>,
    renewals_percent: Option<f64>,
    /// The same, all candidates together.
    candidates_percent: Option<f64>,
    /// How many groups the dead one held; each is a run.
    moved: usize,
    #[serde(flatten)]
    spread: Spread,
}

/// Measures and prints.
pub(crate) fn groups(args: &GroupsArgs, format: Format) -> Result<Verdict, Failure> {
    let groups = flag("--groups", &args.groups, GROUPS, 1, GROUPS_MAX as u64)?;
    let candidates = flag("--candidates", &args.candidates, CANDIDATES, 2, 50)?;
    measured(format, || measure(groups, candidates, &args.lease))
}

fn measure(groups: u64, candidates: u64, lease: &str) -> Result<Groups, Failure> {
    let farm = TemporaryFarm::start_leasing("bench", SERVERS, lease)?;
    farm.settled()?;
    let folder = Folder::new()?;
    let servers: Vec<u32> = farm.now()?.servers.iter().filter_map(|server| server.pid).collect();
    let [idle_percent, _] = percent([&servers, &[]]);
    let started_us = now_us();
    let mut holders: Vec<Holder> = Vec::new();
    for candidate in 0..candidates {
        holders.push(Holder::start(&farm, &folder, candidate, candidates, groups)?);
    }
    let all_held_us = wait(|| {
        let held = folder.grants();
        (held.len() as u64 == groups).then(|| held.values().map(|grant| grant.us).max().unwrap_or(0))
    })?;
    let pids: Vec<u32> = holders.iter().map(|holder| holder.0.id()).collect();
    let [servers_percent, candidates_percent] = percent([&servers, &pids]);
    let before = folder.grants();
    // Whoever came first holds the most. It is killed when it goes.
    let held_by = |candidate: &u64| before.values().filter(|grant| grant.candidate == *candidate).count();
    let dead = (0..candidates).max_by_key(held_by).unwrap_or(0);
    let began_us = now_us();
    drop(holders.remove(usize::try_from(dead).unwrap_or(0)));
    let lost: Vec<String> =
        before.iter().filter(|(_, grant)| grant.candidate == dead).map(|(group, _)| group.clone()).collect();
    let times = wait(|| {
        let now = folder.grants();
        let next = |group: &String| now.get(group).filter(|grant| grant.candidate != dead).map(|grant| grant.us);
        lost.iter().map(next).collect::<Option<Vec<u64>>>()
    })?;
    let ms = |us: u64| rounded(us.saturating_sub(began_us) as f64 / 1000.0);
    Ok(Groups {
        groups,
        candidates,
        lease: lease.to_owned(),
        servers: SERVERS,
        all_held_ms: rounded(all_held_us.saturating_sub(started_us) as f64 / 1000.0),
        servers_percent,
        renewals_percent: servers_percent.zip(idle_percent).map(|(busy, idle)| rounded(busy - idle)),
        candidates_percent,
        moved: lost.len(),
        spread: Spread::of(times.into_iter().map(ms).collect()),
    })
}

fn wait<T>(mut look: impl FnMut() -> Option<T>) -> Result<T, Failure> {
    let until = Instant::now() + WAITING_TIME;
    while Instant::now() < until {
        if let Some(found) = look() {
            return Ok(found);
        }
        thread::sleep(LOOK);
    }
    Err(Failure::failed("too_slow", "not every group finds a holder", "see whether the host is overloaded"))
}

/// How much of one processor each of these sets of processes takes while nothing changes.
fn percent(sets: [&[u32]; 2]) -> [Option<f64>; 2] {
    let used = |pids: &[u32]| pids.iter().map(|pid| cpu_ms(*pid)).sum::<Option<f64>>();
    let (began, before) = (Instant::now(), sets.map(used));
    thread::sleep(WATCHED);
    let ms = began.elapsed().as_secs_f64() * 1000.0;
    let after = sets.map(used);
    [0, 1].map(|place| Some(rounded((after[place]? - before[place]?) / ms * 100.0)))
}

/// A candidate for every group, as a process.
struct Holder(Child);

impl Holder {
    fn start(
        farm: &TemporaryFarm,
        folder: &Folder,
        candidate: u64,
        candidates: u64,
        groups: u64,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed("system", format!("no process can be started: {error}"), "make room, then try again")
        };
        let apis: Vec<&str> = farm.servers().iter().map(|server| server.api.as_str()).collect();
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["bench", "hold", "--api", &apis.join(","), "--parent", &std::process::id().to_string()]);
        let numbers = [("--candidate", candidate), ("--candidates", candidates), ("--groups", groups)];
        numbers.iter().for_each(|(flag, number)| _ = command.arg(flag).arg(number.to_string()));
        command.arg("--file").arg(folder.0.join(candidate.to_string()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().map_err(failed)?))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Where candidates write down what they were granted.
struct Folder(PathBuf);

/// The last grant of a group.
struct Grant {
    us: u64,
    token: u64,
    candidate: u64,
}

impl Folder {
    fn new() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("primus-groups-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| {
            Failure::failed("system", format!("{} cannot be made: {error}", folder.display()), "make room")
        })?;
        Ok(Self(folder))
    }

    /// The newest grant of each group.
    fn grants(&self) -> BTreeMap<String, Grant> {
        let mut grants: BTreeMap<String, Grant> = BTreeMap::new();
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            for (group, grant) in text.lines().filter_map(Grant::read) {
                if grants.get(&group).is_none_or(|known| known.token < grant.token) {
                    grants.insert(group, grant);
                }
            }
        }
        grants
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

impl Grant {
    fn read(line: &str) -> Option<(String, Self)> {
        let mut words = line.split(' ');
        let (us, token, candidate) =
            (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((words.next()?.to_owned(), Self { us, token, candidate }))
    }
}

/// `primus bench hold`: a candidate for every group, until its parent ends.
pub(crate) fn hold<T: Transport<Refusal = Failure>>(
    args: &HoldArgs,
    leases: impl Fn(&str) -> Result<T, Failure>,
) -> Result<Verdict, Failure> {
    end_with(args.parent, Signal::KILL)?;
    let failed = |error: std::io::Error| {
        Failure::failed("hold", format!("it cannot be written down: {error}"), "look at --file")
    };
    let mut file = OpenOptions::new().append(true).create(true).open(&args.file).map_err(failed)?;
    let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
    runtime.block_on(async {
        let mut session = Session::new(leases(&args.api)?);
        session.tell(guard::Command::Want((0..args.groups).map(|group| candidacy(args, group)).collect()));
        loop {
            let mut lines = String::new();
            while let Some(notice) = session.take_notice() {
                match notice {
                    Notice::Granted(group, token, _) => {
                        lines += &format!("{} {token} {} {group}\n", now_us(), args.candidate);
                    }
                    Notice::Recalled(group) | Notice::Lost(group) => session.tell(guard::Command::Ended(group)),
                    Notice::Renewed(..) | Notice::Refused(..) => {}
                }
            }
            file.write_all(lines.as_bytes()).map_err(failed)?;
            session.turn().await?;
        }
    })
}

/// Each is the best for its share of the groups.
fn candidacy(args: &HoldArgs, group: u64) -> Candidacy {
    let rules = GroupRules { rank: GroupRank::Id, holders: 1 };
    let id = (args.candidate + group) % args.candidates;
    Candidacy { group: format!("group-{group}"), rules, name: format!("candidate-{}", args.candidate), id }
}

impl Found for Groups {
    const BENCH: &'static str = "groups";

    fn text(&self) -> String {
        let Self { groups, candidates, lease, servers, all_held_ms, moved, spread, .. } = self;
        let percent = |percent: Option<f64>| {
            percent.map_or_else(|| "unknown".to_owned(), |percent| format!("{percent:.1} %"))
        };
        format!(
            "groups       {groups} groups, {candidates} candidates each, {servers} servers, lease: {lease}
all held     after {all_held_ms:.0} ms
renewals     {} of a processor for all servers, of {} in all; {} for all candidates
a candidate dies that held {moved}: until each is held again
median       {:.1} ms, 90 % within {:.1} ms, max {:.1} ms
",
            percent(self.renewals_percent),
            percent(self.servers_percent),
            percent(self.candidates_percent),
            spread.median_ms,
            spread.p90_ms,
            spread.max_ms,
        )
    }
}
