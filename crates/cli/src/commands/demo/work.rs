//! The part of the demo in which the farm works: tasks run, a worker and the leader are killed, and the count is exact.
//!
//! Every task leaves a line in a file when it begins, so that starts can be counted beside what the ledger says.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use primus_client::{Client, Patience, pages};
use primus_terminal::failure::Failure;
use serde_json::{Value, json};

use super::real::{RealTour, ms};
use super::simulated::Shown;
use primus_local::TemporaryFarm;
use primus_local::chaos;

const TASKS: u64 = 60;
/// How long everything may take.
const WORKING_TIME: Duration = Duration::from_secs(30);
/// So many must be done before something happens, so that work is under way.
const FIRST: u64 = 6;

/// What one would type to submit them.
pub(super) fn command() -> String {
    format!("primus submit --array 1-{TASKS} -- sh -c 'echo $PRIMUS_TASK >> starts; sleep 0.05'")
}

pub(super) fn submit(play: &mut RealTour) -> Result<Shown, Failure> {
    let farm = play.farm()?;
    let file = starts(farm)?;
    let script = "echo $PRIMUS_TASK >> \"$0\"; sleep 0.05";
    let wanted = json!({ "command": ["/bin/sh", "-c", script, file], "array": format!("1-{TASKS}") });
    let started = Instant::now();
    let job = farm.submit(&wanted)?;
    let lines = vec![format!("acknowledged as one job after {:.1} ms", ms(started))];
    play.job = job;
    let farm = play.farm()?;
    wait_for_done(farm, &play.job, FIRST)?;
    // One of them may have been slow to come back after the network was cut.
    let both = || workers(farm, &play.job).map(|workers| (workers.len() == 2).then_some(workers));
    let workers = chaos::wait(WORKING_TIME, "both workers to work", both).or_else(|_| workers(farm, &play.job))?;
    let claim = format!("the first {FIRST} are done, by {}", workers.join(" and "));
    Ok(Shown { lines, claim, held: workers.len() == 2 })
}

pub(super) fn kill_worker(play: &mut RealTour) -> Result<Shown, Failure> {
    let farm = play.farm()?;
    let victim = "w1";
    let now = farm.now()?;
    chaos::kill_at_once(&now, victim)?;
    let started = Instant::now();
    let before = job(farm, &play.job)?["done"].as_u64().unwrap_or(0);
    wait_for_done(farm, &play.job, before + FIRST)?;
    let lines = vec![format!("{FIRST} more were done within {:.0} ms, by the other one", ms(started))];
    chaos::restart(&now, victim)?;
    let after = job(farm, &play.job)?;
    let claim = format!("work goes on: {} of {TASKS} are done, none has failed", after["done"]);
    Ok(Shown { lines, claim, held: after["failed"] == 0 && after["lost"] == 0 })
}

pub(super) fn kill_leader(play: &mut RealTour) -> Result<Shown, Failure> {
    play.settle()?;
    let (farm, old) = (play.farm()?, play.leader().to_string());
    let now = farm.now()?;
    let before = job(farm, &play.job)?["done"].as_u64().unwrap_or(0);
    chaos::kill_at_once(&now, &old)?;
    let started = Instant::now();
    wait_for_done(farm, &play.job, before + FIRST)?;
    let lines = vec![format!("{FIRST} more were done within {:.0} ms, for another leader", ms(started))];
    chaos::restart(&now, &old)?;
    let reign = farm.settled()?;
    let is_new = play.is_succeeded_by(reign);
    let claim = format!("server {} leads, in a later term, and the workers work for it", reign.leader);
    Ok(Shown { lines, claim, held: is_new })
}

pub(super) fn count(play: &mut RealTour) -> Result<Shown, Failure> {
    let farm = play.farm()?;
    wait_for_done(farm, &play.job, TASKS)?;
    let job = job(farm, &play.job)?;
    let told = fs::read_to_string(starts(farm)?).unwrap_or_default();
    let begun = told.lines().count() as u64;
    let mut distinct: Vec<&str> = told.lines().collect();
    distinct.sort_unstable();
    distinct.dedup();
    let lines = vec![format!("{} began again, because the worker that ran it died", begun.saturating_sub(TASKS))];
    let [done, failed, lost] = ["done", "failed", "lost"].map(|count| job[count].as_u64().unwrap_or(u64::MAX));
    let claim = format!("{TASKS} submitted, {done} done, {failed} failed, {lost} lost; each has one result");
    let all_began = distinct.len() as u64 == TASKS;
    Ok(Shown { lines, claim, held: (done, failed, lost) == (TASKS, 0, 0) && all_began })
}

fn client(farm: &TemporaryFarm) -> Result<Client, Failure> {
    Ok(Client::of(&farm.now()?))
}

/// Where tasks leave a line when they begin. It goes with the farm's folder.
fn starts(farm: &TemporaryFarm) -> Result<PathBuf, Failure> {
    Ok(farm.now()?.dir.join("starts"))
}

fn job(farm: &TemporaryFarm, job: &str) -> Result<Value, Failure> {
    Ok(client(farm)?.read(&format!("/v1/jobs/{job}"), Patience::WhileNoLeader(WORKING_TIME))?)
}

/// Who has done something of it.
fn workers(farm: &TemporaryFarm, job: &str) -> Result<Vec<String>, Failure> {
    let path = format!("/v1/tasks?job={job}&state=done");
    let client = client(farm)?;
    let answer = pages::all(&path, |page| client.read(page, Patience::WhileNoLeader(WORKING_TIME)))?;
    let tasks = answer["items"].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> =
        tasks.iter().filter_map(|task| task["worker"].as_str()).map(str::to_owned).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

fn wait_for_done(farm: &TemporaryFarm, id: &str, wanted: u64) -> Result<(), Failure> {
    chaos::wait(WORKING_TIME, "tasks to be done", || {
        let done = job(farm, id)?["done"].as_u64().unwrap_or(0);
        Ok((done >= wanted.min(TASKS)).then_some(()))
    })
}
