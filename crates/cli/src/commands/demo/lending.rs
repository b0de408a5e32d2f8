//! The last part of the demo: two farms, of which one is flooded and borrows the workers of the other, while its leader dies.
//!
//! What is claimed comes from the ledgers and histories of both farms, and from a file in which every task leaves a line when it
//! begins.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use primus_client::pages;
use primus_core::ledger::loans::home_of;
use primus_node::events::Kind;
use primus_terminal::failure::Failure;
use serde_json::{Value, json};

use super::real::{RealTour, SERVERS, Terms, WORKERS, ended, joined, ms};
use super::simulated::Shown;
use primus_local::TemporaryFarm;
use primus_local::answers::{LeaderTerm, time_ms};
use primus_local::chaos;

const TASKS: u64 = 60;
const TASK_S: &str = "0.1";
/// How long everything may take.
const WAITING_TIME: Duration = Duration::from_secs(30);
/// Shorter than usual, so that nobody waits for the end.
const SOON: [(&str, &str); 2] = [("PRIMUS_LENDING_CALM_FOR", "250ms"), ("PRIMUS_LENDING_STAY", "250ms")];

/// Two farms that are neighbours, and what is known of them so far.
pub(super) struct Pair {
    north: TemporaryFarm,
    south: TemporaryFarm,
    /// What the name of each ends with, so that no other farm is called like it.
    ending: String,
    /// Who led north and south, as far as we have seen.
    seen: [Vec<LeaderTerm>; 2],
    /// What was submitted to north, and when, in milliseconds since 1970.
    pub(super) job: String,
    flooded_ms: f64,
}

/// What one would type to start them.
pub(super) fn command() -> String {
    let variables: String = SOON.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    format!("{variables}primus up --farms 2 --rank id")
}

pub(super) fn start(play: &mut RealTour) -> Result<Shown, Failure> {
    let started = Instant::now();
    let [north, south] = TemporaryFarm::start_neighbours("demo", SERVERS, WORKERS, &SOON)?;
    let reigns = [north.settled()?, south.settled()?];
    let ending = north.now()?.name.trim_start_matches("north").to_owned();
    let seen = reigns.map(|reign| vec![reign]);
    let pair = Pair { north, south, ending, seen, job: String::new(), flooded_ms: 0.0 };
    let pair = play.pair.insert(pair);
    let met = || Ok((hears(&pair.north, &pair.south)? && hears(&pair.south, &pair.north)?).then_some(()));
    chaos::wait(WAITING_TIME, "both farms to hear each other", met)?;
    let processes = 2 * (SERVERS + WORKERS);
    let lines = vec![format!("ready after {:.0} ms, {processes} processes included", ms(started))];
    let [north, south] = reigns.map(|reign| reign.leader);
    let claim = format!(
        "server {north} leads north, server {south} leads south, and each has heard that {WORKERS} workers of the other are idle"
    );
    Ok(Shown { lines, claim, held: true })
}

/// Has the one heard that all workers of the other have nothing to do?
fn hears(farm: &TemporaryFarm, other: &TemporaryFarm) -> Result<bool, Failure> {
    let (farms, name) = (farm.ask("/v1/farms")?, other.now()?.name);
    Ok(items(&farms).iter().any(|farm| farm["farm"] == name && farm["idle"] == WORKERS))
}

/// What one would type to flood one of them.
pub(super) fn flooding() -> String {
    format!(
        "primus submit --farm north --array 1-{TASKS} -- sh -c 'echo $PRIMUS_TASK >> starts; exec sleep {TASK_S}'"
    )
}

pub(super) fn flood(play: &mut RealTour) -> Result<Shown, Failure> {
    let pair = play.pair()?;
    let script = format!("echo $PRIMUS_TASK >> \"$0\"; exec sleep {TASK_S}");
    let command = json!(["/bin/sh", "-c", script, pair.starts()?]);
    pair.flooded_ms = SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |now| now.as_secs_f64() * 1000.0);
    pair.job = pair.north.submit(&json!({ "command": command, "array": format!("1-{TASKS}") }))?;
    let guests = chaos::wait(WAITING_TIME, "workers of south to work for north", || {
        let guests = pair.guests(0)?;
        Ok((guests.len() as u64 == WORKERS || pair.is_done()?).then_some(guests))
    })?;
    let lines = pair.told(&["saturated", "loan_asked", "lent", "borrowed"]);
    let work = joined(guests.iter().map(|(guest, task)| format!("{guest} of south runs task {task}")));
    Ok(Shown { lines, claim: format!("{work}, for north"), held: guests.len() as u64 == WORKERS })
}

pub(super) fn kill_leader(play: &mut RealTour) -> Result<Shown, Failure> {
    let pair = play.pair()?;
    // On a busy host somebody else may lead meanwhile.
    let old = pair.north.settled()?;
    let now = pair.north.now()?;
    let started = Instant::now();
    chaos::kill_at_once(&now, &old.leader.to_string())?;
    let new = pair.north.write_without(old.leader, "demo/first-write", "accepted")?;
    let lines = vec![format!("{:.1} ms from the kill to the first write", ms(started))];
    pair.seen[0].extend([old, new]);
    let guests = chaos::wait(WAITING_TIME, "workers of south to work for the next leader", || {
        let guests = pair.guests(new.term)?;
        Ok((guests.len() as u64 == WORKERS || pair.is_done()?).then_some(guests))
    })?;
    let loans = pair.south.happened().iter().filter(|event| event["kind"] == "lent").count() as u64;
    let LeaderTerm { leader, term } = new;
    let claim = format!(
        "server {leader} leads north in term {term}, {} work for it, too, and no worker was lent anew",
        joined(guests.keys())
    );
    let is_new = leader != old.leader && term > old.term;
    Ok(Shown { lines, claim, held: is_new && guests.len() as u64 == WORKERS && loans == WORKERS })
}

pub(super) fn come_home(play: &mut RealTour) -> Result<Shown, Failure> {
    let pair = play.pair()?;
    chaos::wait(WAITING_TIME, "all tasks to end", || Ok(pair.is_done()?.then_some(())))?;
    let is_alone = |farm: &TemporaryFarm| Ok::<_, Failure>(items(&farm.ask("/v1/loans")?).is_empty());
    chaos::wait(WAITING_TIME, "everybody to be home", || {
        Ok((is_alone(&pair.north)? && is_alone(&pair.south)?).then_some(()))
    })?;
    let home = at_home(&pair.north)? + at_home(&pair.south)?;
    let lines = pair.told(&["calm", "loan_home"]);
    let claim = format!("{home} of {} workers are at home, and no loan lasts, say both ledgers", 2 * WORKERS);
    Ok(Shown { lines, claim, held: home as u64 == 2 * WORKERS })
}

/// How many of its own workers are registered with this farm, and work for it.
fn at_home(farm: &TemporaryFarm) -> Result<usize, Failure> {
    let (status, name) = (farm.ask("/v1/status")?, farm.now()?.name);
    let is_home = |worker: &&Value| {
        worker["home"] == name.as_str() && worker["farm"] == name.as_str() && worker["registered"] == true
    };
    Ok(status["workers"].as_array().into_iter().flatten().filter(is_home).count())
}

pub(super) fn count(play: &mut RealTour) -> Result<Shown, Failure> {
    let pair = play.pair()?;
    let job = pair.north.ask(&format!("/v1/jobs/{}", pair.job))?;
    let [done, lost] = ["done", "lost"].map(|count| job[count].as_u64().unwrap_or(u64::MAX));
    let abroad = pair.tasks()?.iter().filter(|task| guest(task).is_some()).count();
    let told = fs::read_to_string(pair.starts()?).unwrap_or_default();
    let (starts, begun) = (told.lines().count(), told.lines().collect::<BTreeSet<_>>().len());
    let lines = vec![format!("{abroad} of them ran on workers of south")];
    let twice = starts - begun;
    let claim = format!("{TASKS} submitted, {done} done, {lost} lost, {twice} run twice");
    Ok(Shown { lines, claim, held: (done, lost, twice, begun as u64) == (TASKS, 0, 0, TASKS) })
}

pub(super) fn histories(play: &mut RealTour) -> Result<Shown, Failure> {
    let Pair { north, south, seen, .. } = play.pair()?;
    let [north, south] = [(north, &seen[0]), (south, &seen[1])].map(|(farm, seen)| Terms::of(farm, seen));
    let line = |farm: &str, terms: &Terms| {
        let term = |(term, leaders): (&u64, &BTreeSet<u64>)| format!("term {term} server {}", joined(leaders));
        format!("{farm}: {}", terms.leaders.iter().map(term).collect::<Vec<_>>().join(", "))
    };
    let lines = vec![line("north", &north), line("south", &south)];
    let most = north.leaders.values().chain(south.leaders.values()).map(BTreeSet::len).max().unwrap_or(0);
    let [terms, told] = [north.leaders.len() + south.leaders.len(), north.told + south.told];
    let claim = format!("{terms} terms with a leader, {most} in each at most, as {told} servers tell");
    // One of them is dead.
    let have_all_told = told as u64 == 2 * SERVERS - 1;
    Ok(Shown { lines, claim, held: most == 1 && north.leaders.len() >= 2 && have_all_told })
}

pub(super) fn end(play: &mut RealTour) -> Result<Shown, Failure> {
    let Pair { north, south, .. } = play.pair()?;
    let last = [north.now()?, south.now()?];
    drop(play.pair.take());
    ended(&last)
}

impl Pair {
    /// Where tasks leave a line when they begin. It goes with the farm's folder.
    fn starts(&self) -> Result<PathBuf, Failure> {
        Ok(self.north.now()?.dir.join("starts"))
    }

    fn is_done(&self) -> Result<bool, Failure> {
        Ok(self.north.ask(&format!("/v1/jobs/{}", self.job))?["open"] == 0)
    }

    fn tasks(&self) -> Result<Vec<Value>, Failure> {
        let path = format!("/v1/tasks?job={}&fields=task,worker,attempt", self.job);
        Ok(items(&pages::all(&path, |page| self.north.ask(page))?).to_vec())
    }

    /// Which workers of south have had something to do for north's leader of this term or a later one, and a task of each.
    fn guests(&self, term: u64) -> Result<BTreeMap<String, String>, Failure> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_late = |task: &&Value| handed_out_in(task).is_some_and(|handed_out| handed_out >= term);
        let tasks = self.tasks()?;
        Ok(tasks.iter().filter(is_late).filter_map(|task| Some((guest(task)?, text(&task["task"])))).collect())
    }

    /// What has happened since north was flooded, as both farms tell it, of these kinds, in the order of time.
    fn told(&self, kinds: &[&str]) -> Vec<String> {
        let of =
            |name: &'static str, farm: &TemporaryFarm| farm.happened().into_iter().map(move |event| (name, event));
        let mut events: Vec<_> = of("north", &self.north).chain(of("south", &self.south)).collect();
        events.retain(|(_, event)| kinds.iter().any(|kind| event["kind"] == *kind));
        events.sort_by_key(|(_, event)| event["time"].as_str().map(str::to_owned));
        let line = |(farm, event): &(&str, Value)| {
            let seconds = (time_ms(event)? - self.flooded_ms) / 1000.0;
            Some(format!("{seconds:.2} s  {farm}: {}", Kind::read(event)?.to_string().replace(&self.ending, "")))
        };
        events.iter().filter_map(line).collect()
    }
}

/// The worker of another farm that has this task, by the name that it has at home.
fn guest(task: &Value) -> Option<String> {
    home_of(task["worker"].as_str()?).map(|(worker, _)| worker.to_owned())
}

/// In which term a task was handed out.
fn handed_out_in(task: &Value) -> Option<u64> {
    task["attempt"].as_str()?.split('-').next()?.parse().ok()
}

fn items(answer: &Value) -> &[Value] {
    answer["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}
