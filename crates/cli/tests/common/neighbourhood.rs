//! Several farms that are neighbours, in one place: what their ledgers say, and what is done to them.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::http::{ask, events, submit};
use super::place::{Farm, Place};
use super::{eventually, eventually_or, send};

/// Farms that `primus up` runs as neighbours.
pub(crate) struct Neighbourhood<'a> {
    place: &'a Place,
    up: Farm<'a>,
    pub(crate) ledgers: Ledgers,
}

/// What the ledgers of all farms say.
pub(crate) struct Ledgers {
    pub(crate) farms: Vec<Member>,
}

/// One of the farms.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) api: Vec<SocketAddr>,
    /// What its own workers are called.
    pub(crate) workers: BTreeSet<String>,
}

impl Member {
    fn new(ready: &Value) -> Self {
        let list = |key: &str| ready[key].as_array().expect("a farm lists what it has").iter();
        let address = |api: &Value| api.as_str()?.trim_start_matches("http://").parse().ok();
        Self {
            name: text(&ready["farm"]),
            api: list("api").map(|api| address(api).expect("every server has an API")).collect(),
            workers: list("workers").map(|worker| text(&worker["name"])).collect(),
        }
    }
}

impl Ledgers {
    /// Of farms that were started one by one.
    pub(crate) fn of(farms: &[&Farm<'_>]) -> Self {
        Self { farms: farms.iter().map(|farm| Member::new(&farm.ready)).collect() }
    }

    /// Waits until all farms hear each other and have all their workers.
    pub(crate) fn await_start(&self) {
        for farm in &self.farms {
            eventually(&format!("{} to hear its neighbours", farm.name), || {
                let known = self.items(&farm.name, "/v1/farms");
                let is_heard =
                    |other: &Member| known.iter().any(|farm| farm["farm"] == other.name && farm["heard"] == true);
                self.farms.iter().all(is_heard).then_some(())
            });
        }
        self.await_all_home(&BTreeSet::new());
    }

    pub(crate) fn member(&self, farm: &str) -> &Member {
        self.farms.iter().find(|member| member.name == farm).expect("the farm is one of them")
    }

    /// What a farm's leader says, as soon as there is one that answers.
    pub(crate) fn get(&self, farm: &str, path: &str) -> Value {
        let mut servers = self.member(farm).api.iter().cycle();
        eventually(&format!("{farm} to answer {path}"), || {
            match ask(*servers.next().expect("a circle has no end"), "GET", path, "") {
                Ok((200, answer)) => Some(answer),
                Ok((503, _)) | Err(_) => None,
                Ok((status, answer)) => panic!("{farm}: {path}: {status} {answer}"),
            }
        })
    }

    pub(crate) fn items(&self, farm: &str, path: &str) -> Vec<Value> {
        let answer = self.get(farm, path);
        answer["items"].as_array().unwrap_or_else(|| panic!("{path}: no list: {answer}")).clone()
    }

    pub(crate) fn loans(&self, farm: &str) -> Vec<Value> {
        self.items(farm, "/v1/loans")
    }

    pub(crate) fn workers(&self, farm: &str) -> Vec<Value> {
        self.items(farm, "/v1/workers")
    }

    /// Submits a job, again and again until it is acknowledged. What is it called?
    pub(crate) fn submit(&self, farm: &str, key: &str, body: &Value) -> String {
        let mut servers = self.member(farm).api.iter().cycle();
        eventually("a job to be acknowledged", || {
            match submit(*servers.next().expect("a circle has no end"), key, body) {
                Ok((200 | 201, answer)) => Some(text(&answer["job"])),
                Ok((503, _)) | Err(_) => None,
                Ok((status, answer)) => panic!("submit: {status} {answer}"),
            }
        })
    }

    /// Runs this with a number from 1 on in place of `{}`, so often. By whom was each done?
    pub(crate) fn run(&self, farm: &str, key: &str, count: usize, command: &[&str]) -> BTreeSet<String> {
        let lines: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
        let job = self.submit(farm, key, &json!({ "command": command, "lines": lines }));
        eventually(&format!("job {job} to end"), || {
            (self.get(farm, &format!("/v1/jobs/{job}"))["open"] == 0).then_some(())
        });
        let tasks = self.items(farm, &format!("/v1/tasks?job={job}&limit=1000"));
        assert!(tasks.len() == count && tasks.iter().all(|task| task["state"] == "done"), "{tasks:?}");
        tasks.iter().map(|task| text(&task["worker"])).collect()
    }

    /// The server that leads a farm now, as far as anybody knows.
    pub(crate) fn leader(&self, farm: &str) -> String {
        eventually("a leader", || {
            let views = self.member(farm).api.iter().filter_map(|api| {
                let (_, view) = ask(*api, "GET", "/v1/leader", "").ok()?;
                Some((view["term"].as_u64()?, view["leader"].as_u64()?))
            });
            views.max().map(|(_, leader)| leader.to_string())
        })
    }

    /// What all servers of all farms have told, with the farm, in the order in which it happened.
    pub(crate) fn events(&self) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        for farm in &self.farms {
            let told = farm.api.iter().flat_map(|api| events(*api).expect("a server tells what happened"));
            all.extend(told.map(|event| (farm.name.clone(), event)));
        }
        // Times as they are written sort like times; what one server tells stays in its order.
        all.sort_by_key(|(_, event)| text(&event["time"]));
        all
    }

    /// Waits until both sides of every loan say that it has ended, and everybody works for its own farm; but for the dead,
    /// who are nobody's.
    pub(crate) fn await_all_home(&self, dead: &BTreeSet<String>) {
        for farm in &self.farms {
            let expected: BTreeSet<&String> = farm.workers.difference(dead).collect();
            eventually_or(&format!("everybody to be home in {}", farm.name), || {
                let (loans, workers) = (self.loans(&farm.name), self.workers(&farm.name));
                let names: BTreeSet<String> = workers.iter().map(|worker| text(&worker["name"])).collect();
                let all_are_home =
                    loans.is_empty() && workers.iter().all(is_at_home) && names.iter().eq(expected.iter().copied());
                if all_are_home { Ok(()) } else { Err(format!("{loans:?} {workers:?}")) }
            });
        }
    }
}

impl<'a> Neighbourhood<'a> {
    /// Starts them.
    pub(crate) fn up(place: &'a Place, words: &str) -> Self {
        let up = place.up(words);
        let farms = up.ready["farms"].as_array().expect("all are listed").iter().map(Member::new).collect();
        let started = Self { place, up, ledgers: Ledgers { farms } };
        started.ledgers.await_start();
        started
    }

    /// The process of a server or worker.
    pub(crate) fn pid(&self, farm: &str, node: &str) -> u64 {
        let file = fs::read(self.place.dir.join(format!("run/primus/{farm}.json"))).expect("the farm is known");
        let known: Value = serde_json::from_slice(&file).expect("the file is JSON");
        let nodes = ["servers", "workers"].map(|nodes| known[nodes].as_array().expect("nodes are a list"));
        let is_meant = |one: &&Value| one["name"] == node || node.parse::<u64>().is_ok_and(|id| one["id"] == id);
        let found = nodes.into_iter().flatten().find(is_meant);
        found.and_then(|found| found["pid"].as_u64()).unwrap_or_else(|| panic!("{node} of {farm} runs: {known}"))
    }

    /// Kills these, each a farm and one of its nodes, so quickly that none of them has time to notice.
    pub(crate) fn kill(&self, victims: &[(String, String)]) {
        let pids: Vec<u64> = victims.iter().map(|(farm, node)| self.pid(farm, node)).collect();
        send(Signal::KILL, &pids);
    }

    pub(crate) fn restart(&self, victims: &[(String, String)]) {
        for (farm, node) in victims {
            let ran = self.place.primus(&format!("chaos restart {node} --farm {farm}"));
            assert_eq!(ran.code, Some(0), "{ran:?}: {}", self.up.complaints());
        }
    }

    pub(crate) fn end(self) -> String {
        self.up.end()
    }
}

fn is_at_home(worker: &Value) -> bool {
    worker["home"] == worker["farm"] && worker["registered"] == true && worker["alive"] == true
}

/// A text of an answer.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is a text")).to_owned()
}
