//! The part of the demo that is no simulation: servers and workers as real processes, killed, frozen and cut off.
//!
//! Every claim is computed from what the servers themselves answer, and the last ones from their histories and from what
//! the system says about processes and files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use primus_client::farms::{self, Farm, Started};
use primus_terminal::failure::Failure;

use super::lending::{self, Pair};
use super::simulated::Shown;
use super::{guard, work};
use primus_local::TemporaryFarm;
use primus_local::answers;
use primus_local::answers::LeaderTerm;
use primus_local::chaos::{self, Done};

pub(super) const SERVERS: u64 = 3;
pub(super) const WORKERS: u64 = 2;
const KEY: &str = "demo/colour";
/// How long all servers may take to answer the same after the network has healed.
const AGREEING_TIME: Duration = Duration::from_secs(5);
/// What somebody tries to write to a leader that is cut off.
const LOST_KEY: &str = "demo/cut-off";

/// One thing that happens to the farm.
pub(super) struct Act {
    pub(super) title: &'static str,
    /// What one would type, once it is known whom it concerns.
    pub(super) command: fn(&RealTour) -> String,
    play: fn(&mut RealTour) -> Result<Shown, Failure>,
}

pub(super) const ACTS: &[Act] = &[
    Act {
        title: "Real processes: three servers elect a leader",
        command: |_| "primus up --rank id".into(),
        play: start,
    },
    Act {
        title: "A write: acknowledged when a majority has it on disk",
        command: |_| format!("primus kv put {KEY} blue"),
        play: write,
    },
    Act {
        title: "The leader is killed, as kill -9 does, and started again",
        command: |_| "primus chaos kill leader".into(),
        play: kill,
    },
    Act {
        title: "The leader is frozen: its connections stay, and it says nothing",
        command: |_| "primus chaos freeze leader".into(),
        play: freeze,
    },
    Act {
        title: "It goes on, and believes for a moment that it leads",
        command: |play| format!("primus chaos thaw {}", play.fallen),
        play: thaw,
    },
    Act {
        title: "The leader is cut off from the others: with a quorum only one side can lead",
        command: |play| format!("primus chaos partition '{}'", play.groups()),
        play: partition,
    },
    Act { title: "The network heals", command: |_| "primus chaos heal".into(), play: heal },
    Act {
        title: "Tasks: sixty commands, each run where there is room",
        command: |_| work::command(),
        play: work::submit,
    },
    Act {
        title: "A worker is killed while it works: what it had runs elsewhere",
        command: |_| "primus chaos kill w1".into(),
        play: work::kill_worker,
    },
    Act {
        title: "The leader is killed, too: what runs goes on",
        command: |_| "primus chaos kill leader".into(),
        play: work::kill_leader,
    },
    Act {
        title: "Nothing is lost, and nothing counts twice",
        command: |play| format!("primus wait {}", play.job),
        play: work::count,
    },
    Act {
        title: "Exactly one at a time: the host that runs a guarded command is frozen",
        command: |_| guard::command(),
        play: guard::freeze_supervisor,
    },
    Act {
        title: "Never two leaders in one term, say the histories of all servers",
        command: |_| "primus events".into(),
        play: histories,
    },
    Act { title: "The farm ends", command: |_| END.into(), play: end },
    Act {
        title: "Two farms that are neighbours: either may borrow idle workers of the other",
        command: |_| lending::command(),
        play: lending::start,
    },
    Act {
        title: "North is flooded, and south lends it workers",
        command: |_| lending::flooding(),
        play: lending::flood,
    },
    Act {
        title: "North's leader is killed meanwhile: the next one carries the loans on",
        command: |_| "primus chaos kill leader --farm north".into(),
        play: lending::kill_leader,
    },
    Act {
        title: "The queue drains, north is calm, and everybody goes home",
        command: |_| "primus loans --farm north; primus loans --farm south".into(),
        play: lending::come_home,
    },
    Act {
        title: "Nothing is lost, and nothing ran twice",
        command: |play| format!("primus wait {} --farm north", play.pair_job()),
        play: lending::count,
    },
    Act {
        title: "Never two leaders in one term, in either farm",
        command: |_| "primus events --farm north; primus events --farm south".into(),
        play: lending::histories,
    },
    Act { title: "Both farms end", command: |_| END.into(), play: lending::end },
];

const END: &str = "kill -TERM, as Ctrl-C would";

/// The farm, and what is known of it so far.
#[derive(Default)]
pub(super) struct RealTour {
    farm: Option<TemporaryFarm>,
    reign: Option<LeaderTerm>,
    /// The last leader that something happened to.
    fallen: u64,
    seen: Vec<LeaderTerm>,
    /// What was submitted.
    pub(super) job: String,
    /// Two farms, at the end.
    pub(super) pair: Option<Pair>,
}

impl Act {
    /// Lets it happen. What cannot even be tried is a claim that did not hold.
    pub(super) fn play(&self, play: &mut RealTour) -> Result<Shown, Shown> {
        (self.play)(play).map_err(|failure| Shown {
            lines: Vec::new(),
            claim: failure.message().to_string(),
            held: false,
        })
    }
}

impl RealTour {
    pub(super) fn farm(&self) -> Result<&TemporaryFarm, Failure> {
        self.farm
            .as_ref()
            .ok_or_else(|| Failure::failed("dead", "the farm of the demo has not started", "start one: primus up"))
    }

    pub(super) fn pair(&mut self) -> Result<&mut Pair, Failure> {
        self.pair.as_mut().ok_or_else(|| {
            Failure::failed("dead", "the farms of the demo have not started", "start them: primus up")
        })
    }

    /// What was submitted to the first of two farms.
    fn pair_job(&self) -> &str {
        self.pair.as_ref().map_or("", |pair| pair.job.as_str())
    }

    /// On a busy host somebody else may lead meanwhile.
    pub(super) fn settle(&mut self) -> Result<(), Failure> {
        self.reign = Some(self.farm()?.settled()?);
        Ok(())
    }

    pub(super) fn leader(&self) -> u64 {
        self.reign.map_or(0, |reign| reign.leader)
    }

    /// Notes who leads now. Is it another one, in a later term?
    pub(super) fn is_succeeded_by(&mut self, new: LeaderTerm) -> bool {
        let old = self.reign.replace(new);
        self.fallen = old.map_or(0, |old| old.leader);
        self.seen.push(new);
        old.is_some_and(|old| new.leader != old.leader && new.term > old.term)
    }

    /// The leader alone on one side.
    fn groups(&self) -> String {
        let others = (1..=SERVERS).filter(|id| *id != self.leader()).map(|id| id.to_string());
        format!("{}|{}", others.collect::<Vec<_>>().join(","), self.leader())
    }
}

fn start(play: &mut RealTour) -> Result<Shown, Failure> {
    let started = Instant::now();
    let farm = TemporaryFarm::start_with_workers("demo", SERVERS, WORKERS, 1)?;
    let reign = farm.settled()?;
    let lines = vec![format!("ready after {:.0} ms, processes included", ms(started))];
    let agree = farm.servers().iter().all(|server| answers::believes(&server.api) == Some(reign));
    let LeaderTerm { leader, term } = reign;
    (play.farm, play.reign) = (Some(farm), Some(reign));
    play.seen.push(reign);
    let claim = format!("server {leader} leads in term {term}, and all {SERVERS} servers say so");
    Ok(Shown { lines, claim, held: agree })
}

fn write(play: &mut RealTour) -> Result<Shown, Failure> {
    let farm = play.farm()?;
    let started = Instant::now();
    farm.write(KEY, "blue")?;
    let lines = vec![format!("acknowledged after {:.1} ms", ms(started))];
    let is_there = |server: &&Started| answers::value(&server.api, KEY).as_deref() == Some("blue");
    let count = farm.servers().iter().filter(is_there).count();
    let claim = format!("{count} of {SERVERS} servers, asked one by one, answer 'blue'");
    Ok(Shown { lines, claim, held: count as u64 == SERVERS })
}

fn kill(play: &mut RealTour) -> Result<Shown, Failure> {
    let (new, ms) = fell(play, chaos::kill_at_once)?;
    let is_new = play.is_succeeded_by(new);
    let farm = play.farm()?;
    let is_there = farm.read(KEY)? == "blue";
    chaos::restart(&farm.now()?, &play.fallen.to_string())?;
    let follows = farm.settled()?;
    let (fallen, LeaderTerm { leader, term }) = (play.fallen, new);
    let lines = vec![
        format!("server {leader} leads in term {term}, {ms:.1} ms from the kill to the first write"),
        format!("server {fallen} runs again; all follow server {}", follows.leader),
    ];
    let claim = format!("another server leads, in a later term, and 'blue' is {}there", still(is_there));
    play.reign = Some(follows);
    Ok(Shown { lines, claim, held: is_new && is_there })
}

fn freeze(play: &mut RealTour) -> Result<Shown, Failure> {
    let (new, ms) = fell(play, chaos::freeze)?;
    let is_new = play.is_succeeded_by(new);
    let is_there = answers::value(&api(&play.farm()?.now()?, new.leader), KEY).as_deref() == Some("blue");
    let LeaderTerm { leader, term } = new;
    let lines =
        vec![format!("server {leader} leads in term {term}, {ms:.1} ms from the freeze to the first write")];
    let claim = format!("another server leads, in a later term, and 'blue' is {}there", still(is_there));
    Ok(Shown { lines, claim, held: is_new && is_there })
}

fn thaw(play: &mut RealTour) -> Result<Shown, Failure> {
    let (farm, old) = (play.farm()?, play.fallen);
    let started = Instant::now();
    chaos::thaw(&farm.now()?, &old.to_string())?;
    farm.wait_until_noticed(old)?;
    let lines = vec![format!("after {:.1} ms it no longer says that it leads", ms(started))];
    let now = farm.settled()?;
    let agrees = answers::believes(&api(&farm.now()?, old)) == Some(now);
    let is_later = play.reign.is_some_and(|reign| now.term >= reign.term);
    let claim = format!("all follow server {} in term {}, server {old} included", now.leader, now.term);
    play.reign = Some(now);
    Ok(Shown { lines, claim, held: agrees && is_later })
}

fn partition(play: &mut RealTour) -> Result<Shown, Failure> {
    play.settle()?;
    let (groups, old) = (play.groups(), play.leader());
    let farm = play.farm()?;
    let started = Instant::now();
    chaos::partition(&farm.now()?, Some(&groups), false, &[])?;
    let new = farm.write_without(old, KEY, "green")?;
    let ms = ms(started);
    let accepted = answers::accepts(&api(&farm.now()?, old), LOST_KEY, "red");
    let LeaderTerm { leader, term } = new;
    let lines = vec![format!("server {leader} leads in term {term}, {ms:.1} ms from the cut to the first write")];
    let claim = format!(
        "the majority has another leader, and server {old}, alone, acknowledged {}",
        if accepted { "a write" } else { "nothing" }
    );
    let held = play.is_succeeded_by(new) && !accepted;
    Ok(Shown { lines, claim, held })
}

fn heal(play: &mut RealTour) -> Result<Shown, Failure> {
    let farm = play.farm()?;
    chaos::heal(&farm.now()?)?;
    let is_green = |server: &Started| answers::value(&server.api, KEY).as_deref() == Some("green");
    // The best-ranked server takes over again by itself, and nobody answers for a moment while it does.
    let agreed = || farm.settled().map(|now| farm.servers().iter().all(is_green).then_some(now));
    let agreed = chaos::wait(AGREEING_TIME, "all servers to answer the same", agreed);
    let agree = agreed.is_ok();
    let now = agreed.or_else(|_| farm.settled())?;
    let is_gone = farm.servers().iter().all(|server| answers::value(&server.api, LOST_KEY).is_none());
    let LeaderTerm { leader, term } = now;
    let claim = format!(
        "all follow server {leader} in term {term}; what the majority wrote is {}there",
        still(agree && is_gone)
    );
    play.reign = Some(now);
    play.seen.push(now);
    Ok(Shown { lines: Vec::new(), claim, held: agree && is_gone })
}

fn histories(play: &mut RealTour) -> Result<Shown, Failure> {
    let Terms { leaders, told } = Terms::of(play.farm()?, &play.seen);
    let lines = leaders.iter().map(|(term, leaders)| format!("term {term}: server {}", joined(leaders))).collect();
    let most = leaders.values().map(BTreeSet::len).max().unwrap_or(0);
    let claim = format!("{} terms with a leader, {most} in each at most, as {told} servers tell", leaders.len());
    // There were five at least: at the start, after both kills, the freeze and the cut.
    Ok(Shown { lines, claim, held: most == 1 && leaders.len() >= 5 && told as u64 == SERVERS })
}

/// Who has led a farm in each term.
pub(super) struct Terms {
    pub(super) leaders: BTreeMap<u64, BTreeSet<u64>>,
    /// How many servers say so.
    pub(super) told: usize,
}

impl Terms {
    /// As its servers tell. What we have seen ourselves must fit, too.
    pub(super) fn of(farm: &TemporaryFarm, seen: &[LeaderTerm]) -> Self {
        let told: Vec<_> = farm.servers().iter().filter_map(|server| answers::history(&server.api)).collect();
        let changes = told.iter().flatten().filter(|event| event["kind"] == "leader_changed");
        let mut leaders: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for reign in changes.filter_map(LeaderTerm::of).chain(seen.iter().copied()) {
            leaders.entry(reign.term).or_default().insert(reign.leader);
        }
        Self { leaders, told: told.len() }
    }
}

/// As people list them.
pub(super) fn joined<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(" and ")
}

fn end(play: &mut RealTour) -> Result<Shown, Failure> {
    let last = play.farm()?.now()?;
    drop(play.farm.take());
    ended(&[last])
}

/// Looks whether anything is left of farms that have ended.
pub(super) fn ended(last: &[Farm]) -> Result<Shown, Failure> {
    let processes = |farm: &Farm| {
        let servers = farm.servers.iter().filter_map(|server| server.pid);
        servers.chain(farm.workers.iter().filter_map(|worker| worker.pid)).chain([farm.pid]).collect::<Vec<_>>()
    };
    let left: BTreeSet<u32> = last.iter().flat_map(processes).filter(|pid| farms::is_alive(*pid)).collect();
    let known = Farm::all()?;
    let has_files = |farm: &Farm| farm.dir.exists() || known.iter().any(|known| known.name == farm.name);
    let has_files = last.iter().any(has_files);
    let files = if has_files { "files are left" } else { "no file is left" };
    let claim = format!("{} processes are left, and {files}", left.len());
    Ok(Shown { lines: Vec::new(), claim, held: left.is_empty() && !has_files })
}

/// What can be done to one server.
type Fault = fn(&Farm, &str) -> Result<Done, Failure>;

/// Does this to the leader. Who leads next, and after how many milliseconds was a write accepted?
fn fell(play: &mut RealTour, fault: Fault) -> Result<(LeaderTerm, f64), Failure> {
    play.settle()?;
    let (farm, old) = (play.farm()?, play.leader());
    let now = farm.now()?;
    let started = Instant::now();
    fault(&now, &old.to_string())?;
    let new = farm.write_without(old, "demo/first-write", "accepted")?;
    Ok((new, ms(started)))
}

fn api(farm: &Farm, id: u64) -> String {
    farm.servers.iter().find(|server| server.id == id).map(|server| server.api.clone()).unwrap_or_default()
}

pub(super) fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

fn still(is_there: bool) -> &'static str {
    if is_there { "still " } else { "not " }
}
