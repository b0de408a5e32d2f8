//! `primus bench lead`: how soon a guarded command runs elsewhere when something happens to the host that runs it, and whether
//! it ever ran twice at once.
//!
//! Three real servers, a `primus lead` attached to each, and a command that writes down every millisecond that it is alive, with
//! its term. From those lines alone everything is computed: a takeover ends with the first line of a greater term, and an overlap
//! would be a line of an older term behind it, from whatever process.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use primus_client::http::Request;
use primus_client::{Client, Patience, farms};
use primus_node::clock::now_us;
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use rustix::process::{Signal, kill_process};
use serde::Serialize;

use crate::args::{LeadArgs, LeadFault, LeadVictim, Manner};
use crate::report::{Found, Runs, Spread, measured};
use primus_local::TemporaryFarm;
use primus_local::answers::LeaderTerm;
use primus_local::chaos;

const SERVERS: u64 = 3;
const RUNS: u64 = 10;
const RUNS_MAX: u64 = 1000;
/// Unless somebody says how many, no run starts after this; a bench ends within 45 s.
const BUDGET_MS: f64 = 35_000.0;
const WAITING_TIME: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(2);
/// A command that was alive this recently is alive.
const FRESH_US: u64 = 30_000;
/// How long after a takeover an old command could still be seen.
const AFTERMATH: Duration = Duration::from_millis(300);

/// What was found.
#[derive(Serialize)]
struct Lead {
    fault: &'static str,
    /// What each run hit.
    victims: Vec<&'static str>,
    manner: &'static str,
    lease: String,
    servers: u64,
    #[serde(flatten)]
    spread: Spread,
    /// The longest time for which two ran at once.
    overlap_ms: f64,
    /// How often the command was started.
    starts: usize,
}

/// Measures and prints. That two ran at once is a failure.
pub(crate) fn lead(args: &LeadArgs, format: Format) -> Result<Verdict, Failure> {
    let runs = Runs::typed(&args.runs, RUNS, RUNS_MAX, BUDGET_MS)?;
    measured(format, || measure(args, runs))
}

fn measure(args: &LeadArgs, runs: Runs) -> Result<Lead, Failure> {
    let started = Instant::now();
    let mut farm = GuardedFarm::start(args)?;
    let done = runs.repeat(started, |number| {
        let usual = args.fault.victims();
        let victim = args.victim.unwrap_or_else(|| usual[number % usual.len()]);
        Ok((farm.take_over(args.fault, victim)?, victim.name()))
    })?;
    let (times, victims): (Vec<f64>, Vec<&str>) = done.into_iter().unzip();
    let beats = farm.beats()?;
    Ok(Lead {
        fault: args.fault.name(),
        victims,
        manner: args.manner.name(),
        lease: args.lease.clone(),
        servers: SERVERS,
        spread: Spread::of(times),
        overlap_ms: overlap_ms(&beats),
        starts: beats.len(),
    })
}

/// A farm with a `primus lead` beside each server.
struct GuardedFarm {
    farm: TemporaryFarm,
    /// One beside each server.
    leads: BTreeMap<u64, Child>,
    folder: PathBuf,
    manner: Manner,
}

/// When a term's commands were first and last alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    first_us: u64,
    last_us: u64,
    server: u64,
}

impl GuardedFarm {
    fn start(args: &LeadArgs) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("primus-lead-{}", std::process::id()));
        fs::create_dir_all(&folder)
            .map_err(|error| system(&format!("{} cannot be made: {error}", folder.display())))?;
        // By load nobody takes leadership back by itself.
        let farm = TemporaryFarm::start_leasing("bench", SERVERS, &args.lease)?;
        let mut bench = Self { farm, leads: BTreeMap::new(), folder, manner: args.manner };
        for server in 1..=SERVERS {
            bench.start_lead(server)?;
        }
        Ok(bench)
    }

    fn start_lead(&mut self, server: u64) -> Result<(), Failure> {
        let failed = |error: std::io::Error| system(&format!("primus lead cannot be started: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let servers = self.farm.servers();
        let api = servers.iter().find(|one| one.id == server).map(|one| one.api.clone()).unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(["lead", "--api", &api, "--name", &format!("s{server}"), "--grace", "200ms", "--"]);
        command.arg(program).args([
            "bench",
            "beat",
            "--server",
            &server.to_string(),
            "--manner",
            self.manner.name(),
        ]);
        command.arg("--file").arg(self.folder.join("beats"));
        // A group of its own: what is typed at this terminal is for the bench.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.leads.insert(server, command.spawn().map_err(failed)?);
        Ok(())
    }

    /// Waits until all is well and the command runs beside the leader.
    fn settled(&self) -> Result<(LeaderTerm, u64), Failure> {
        chaos::wait(WAITING_TIME, "the command to run beside the leader", || {
            let reign = self.farm.settled()?;
            let last = self.beats()?.into_iter().next_back();
            let is_beside =
                |(_, span): &(u64, Span)| span.server == reign.leader && now_us() < span.last_us + FRESH_US;
            Ok(last.filter(is_beside).map(|(term, _)| (reign, term)))
        })
    }

    /// One run: how long until the command runs again, under a greater term.
    fn take_over(&mut self, fault: LeadFault, victim: LeadVictim) -> Result<f64, Failure> {
        let (reign, term) = self.settled()?;
        let victims = self.victims(reign.leader, victim)?;
        let began_us = now_us();
        match fault {
            LeadFault::Kill => victims.iter().for_each(|pid| signal(*pid, Signal::KILL)),
            LeadFault::Freeze => victims.iter().for_each(|pid| signal(*pid, Signal::STOP)),
            LeadFault::Partition => self.cut_off(reign.leader)?,
            LeadFault::Release => self.resign()?,
        }
        // A companion that was killed is replaced under the same term: the command just starts again.
        let is_next =
            |found: u64, span: &Span| found > term || victim == LeadVictim::Companion && span.first_us > began_us;
        let next = self.wait_for_beat(term, began_us, is_next);
        thread::sleep(AFTERMATH);
        self.mend(fault, victim, reign.leader, &victims)?;
        Ok(rounded((next? - began_us) as f64 / 1000.0))
    }

    fn wait_for_beat(
        &self,
        term: u64,
        began_us: u64,
        is_next: impl Fn(u64, &Span) -> bool,
    ) -> Result<u64, Failure> {
        let until = Instant::now() + WAITING_TIME;
        while Instant::now() < until {
            let spans = self.starts_since(began_us)?;
            if let Some((_, span)) = spans.iter().find(|(found, span)| is_next(*found, span)) {
                return Ok(span.first_us);
            }
            thread::sleep(LOOK);
        }
        Err(Failure::failed(
            "too_slow",
            format!("no host runs the command after term {term}"),
            "see whether the host is overloaded",
        ))
    }

    /// Every process's first beat since then, with its term.
    fn starts_since(&self, began_us: u64) -> Result<Vec<(u64, Span)>, Failure> {
        let mut processes: BTreeMap<u32, (u64, Span)> = BTreeMap::new();
        for Beat { us, term, server, process } in self.lines()? {
            let first = || (term, Span { first_us: us, last_us: us, server });
            processes.entry(process).or_insert_with(first).1.last_us = us;
        }
        let mut starts: Vec<(u64, Span)> =
            processes.into_values().filter(|(_, span)| span.first_us >= began_us).collect();
        starts.sort_by_key(|(_, span)| span.first_us);
        Ok(starts)
    }

    fn victims(&self, leader: u64, victim: LeadVictim) -> Result<Vec<u32>, Failure> {
        let now = self.farm.now()?;
        let server = now.servers.iter().find(|server| server.id == leader).and_then(|server| server.pid);
        let lead = self.leads.get(&leader).map(Child::id);
        let companion = || lead.and_then(first_child);
        let found = match victim {
            LeadVictim::Server => vec![server],
            LeadVictim::Lead => vec![lead],
            LeadVictim::Both => vec![server, lead],
            LeadVictim::Companion => vec![companion()],
        };
        let found: Option<Vec<u32>> = found.into_iter().collect();
        found.ok_or_else(|| system("a process that should be there is not"))
    }

    fn cut_off(&self, leader: u64) -> Result<(), Failure> {
        let others: Vec<String> = (1..=SERVERS).filter(|id| *id != leader).map(|id| id.to_string()).collect();
        let sides = format!("{leader}|{}", others.join(","));
        chaos::partition(&self.farm.now()?, Some(&sides), false, &[]).map(|_| ())
    }

    fn resign(&self) -> Result<(), Failure> {
        let request = Request::post("/v1/leader/resign", b"");
        Client::of(&self.farm.now()?).write(request, Patience::Once(WAITING_TIME))?;
        Ok(())
    }

    fn mend(&mut self, fault: LeadFault, victim: LeadVictim, leader: u64, victims: &[u32]) -> Result<(), Failure> {
        match fault {
            LeadFault::Freeze => victims.iter().for_each(|pid| signal(*pid, Signal::CONT)),
            LeadFault::Partition => _ = chaos::heal(&self.farm.now()?)?,
            LeadFault::Release => {}
            LeadFault::Kill => {
                if matches!(victim, LeadVictim::Server | LeadVictim::Both) {
                    chaos::restart(&self.farm.now()?, &leader.to_string())?;
                }
                if matches!(victim, LeadVictim::Lead | LeadVictim::Both) {
                    self.leads.remove(&leader).map(|mut lead| lead.wait());
                    self.start_lead(leader)?;
                }
            }
        }
        Ok(())
    }

    fn lines(&self) -> Result<Vec<Beat>, Failure> {
        let file = self.folder.join("beats");
        match fs::read_to_string(&file) {
            Ok(text) => Ok(text.lines().filter_map(Beat::read).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(system(&format!("{} cannot be read: {error}", file.display()))),
        }
    }

    /// When each term's commands were alive.
    fn beats(&self) -> Result<BTreeMap<u64, Span>, Failure> {
        let mut spans: BTreeMap<u64, Span> = BTreeMap::new();
        for Beat { us, term, server, .. } in self.lines()? {
            let span = spans.entry(term).or_insert(Span { first_us: us, last_us: us, server });
            (span.first_us, span.last_us) = (span.first_us.min(us), span.last_us.max(us));
        }
        Ok(spans)
    }
}

impl Drop for GuardedFarm {
    fn drop(&mut self) {
        for lead in self.leads.values_mut() {
            signal(lead.id(), Signal::CONT);
            signal(lead.id(), Signal::TERM);
        }
        for lead in self.leads.values_mut() {
            let until = Instant::now() + Duration::from_secs(3);
            while matches!(lead.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(LOOK);
            }
            _ = lead.kill();
            _ = lead.wait();
        }
        _ = fs::remove_dir_all(&self.folder);
    }
}

/// A line of a command that is alive.
struct Beat {
    us: u64,
    term: u64,
    server: u64,
    process: u32,
}

impl Beat {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (us, term, server, process) = (number()?, number()?, number()?, number()?);
        Some(Self { us, term, server, process: u32::try_from(process).ok()? })
    }
}

/// The longest time for which commands of two terms were alive.
fn overlap_ms(spans: &BTreeMap<u64, Span>) -> f64 {
    let overlap = |(term, span): (&u64, &Span)| {
        let later = spans.range(term + 1..).map(|(_, later)| span.last_us.saturating_sub(later.first_us));
        later.max().unwrap_or(0)
    };
    rounded(spans.iter().map(overlap).max().unwrap_or(0) as f64 / 1000.0)
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = farms::process(pid) {
        // It may have gone by itself.
        _ = kill_process(pid, signal);
    }
}

/// The first child of a process: of `primus lead` its companion.
fn first_child(pid: u32) -> Option<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    listed.split_whitespace().next()?.parse().ok()
}

fn system(message: &str) -> Failure {
    Failure::failed("system", message, "see whether the host is overloaded")
}

impl LeadFault {
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Partition => "partition",
            Self::Release => "release",
        }
    }

    /// Whom it hits, in turn, if nobody says.
    const fn victims(self) -> &'static [LeadVictim] {
        match self {
            Self::Kill => &[LeadVictim::Server, LeadVictim::Lead, LeadVictim::Both],
            Self::Freeze => &[LeadVictim::Server, LeadVictim::Lead, LeadVictim::Both],
            Self::Partition | Self::Release => &[LeadVictim::Server],
        }
    }
}

impl LeadVictim {
    const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Lead => "lead",
            Self::Both => "both",
            Self::Companion => "companion",
        }
    }
}

impl Found for Lead {
    const BENCH: &'static str = "lead";

    fn text(&self) -> String {
        let Self { fault, manner, lease, servers, spread, overlap_ms, starts, .. } = self;
        let runs = spread.runs.len();
        format!(
            "lead         {servers} servers, fault: {fault}, command: {manner}, lease: {lease}, {runs} runs, from the fault to the next start
{}overlap      two ran at once for {overlap_ms:.1} ms at most, in {starts} terms
",
            spread.text(),
        )
    }

    fn is_good(&self) -> bool {
        self.overlap_ms == 0.0
    }
}
