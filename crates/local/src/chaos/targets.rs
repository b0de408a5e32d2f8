//! Whom something is done to, as people name it: a server, a worker, the leader, groups of them.

use std::collections::BTreeSet;

use primus_client::Client;
use primus_client::farms::{Farm, Started, StartedWorker};
use primus_core::ledger::loans::home_of;
use primus_terminal::amounts::{number, quoted};
use primus_terminal::failure::Failure;

use super::Done;

/// Whom it is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Server(Started),
    Worker(StartedWorker),
}

impl Node {
    /// As people say it.
    pub(super) fn who(&self) -> String {
        match self {
            Self::Server(server) => format!("server {}", server.id),
            Self::Worker(worker) => format!("worker {}", worker.name),
        }
    }

    /// What its files are called.
    pub(super) fn files(&self) -> String {
        match self {
            Self::Server(server) => server.node(),
            Self::Worker(worker) => worker.name.clone(),
        }
    }

    pub(super) const fn pid(&self) -> Option<u32> {
        match self {
            Self::Server(server) => server.pid,
            Self::Worker(worker) => worker.pid,
        }
    }

    /// Its process by now.
    pub(super) fn current_pid(&self, farm: &Farm) -> Result<Option<u32>, Failure> {
        let now = farm.again()?;
        Ok(match self {
            Self::Server(server) => now.servers.iter().find(|other| other.id == server.id).and_then(|now| now.pid),
            Self::Worker(worker) => {
                now.workers.iter().find(|other| other.name == worker.name).and_then(|now| now.pid)
            }
        })
    }

    pub(super) fn done(&self, farm: &Farm, chaos: &'static str, pid: u32, text: String) -> Done {
        let (server, worker) = match self {
            Self::Server(server) => (Some(server.id), None),
            Self::Worker(worker) => (None, Some(worker.name.clone())),
        };
        Done { server, worker, pid: Some(pid), ..Done::of(farm, chaos, text) }
    }
}

/// Who stays together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Group {
    pub(super) servers: BTreeSet<u64>,
    pub(super) workers: BTreeSet<String>,
}

/// The server or worker that is meant.
pub(super) fn find(farm: &Farm, target: &str) -> Result<Node, Failure> {
    if let Some(worker) = farm.workers.iter().find(|worker| worker.name == target) {
        return Ok(Node::Worker(worker.clone()));
    }
    let workers: String = farm.workers.iter().map(|worker| format!(", {}", worker.name)).collect();
    server_of(farm, target, &workers).cloned().map(Node::Server)
}

pub(super) fn find_server<'a>(farm: &'a Farm, target: &str) -> Result<&'a Started, Failure> {
    server_of(farm, target, "")
}

/// The server that is meant by an id or by `leader`; others that could have been meant are named, too.
fn server_of<'a>(farm: &'a Farm, target: &str, others: &str) -> Result<&'a Started, Failure> {
    let unknown = || {
        let ids: Vec<String> = farm.servers.iter().map(|server| server.id.to_string()).collect();
        let hint = format!("choose one of {}{others}, or leader", ids.join(", "));
        let noun = if others.is_empty() { "server" } else { "server or worker" };
        Failure::usage(format!("{noun} {} does not exist in {}", quoted(target), farm.name), hint)
    };
    let id = match target {
        "leader" => leader(farm)?,
        _ => number("TARGET", target, 1, u64::MAX).map_err(|_| unknown())?,
    };
    farm.servers.iter().find(|server| server.id == id).ok_or_else(unknown)
}

fn leader(farm: &Farm) -> Result<u64, Failure> {
    let (leader, _) = Client::of(farm).leader()?;
    leader.leader.ok_or_else(|| Failure::no_leader("no server leads at the moment", "try again, or name an id"))
}

pub(super) fn all(farm: &Farm) -> BTreeSet<u64> {
    farm.servers.iter().map(|server| server.id).collect()
}

pub(super) fn pair(farm: &Farm, text: &str) -> Result<BTreeSet<u64>, Failure> {
    let ids = text.split(',').map(|word| Ok(find_server(farm, word.trim())?.id));
    let ids: BTreeSet<u64> = ids.collect::<Result<_, Failure>>()?;
    if ids.len() < 2 {
        let hint = "name two servers or more, such as 1,2, or all";
        return Err(Failure::usage(format!("{} has no link to delay", quoted(text)), hint));
    }
    Ok(ids)
}

/// Groups of servers and workers: `1,w1|2,3`.
pub(super) fn groups(farm: &Farm, text: &str) -> Result<Vec<Group>, Failure> {
    let hint = "write it like '1,2|3' or 'w1|1,2,3', in quotes, each of them once at most";
    let mut seen = BTreeSet::new();
    let mut groups = Vec::new();
    for words in text.split('|') {
        let mut group = Group::default();
        for word in words.split(',') {
            let node = member(farm, word.trim())?;
            if !seen.insert(node.who()) {
                return Err(Failure::usage(format!("{} names {} twice", quoted(text), node.who()), hint));
            }
            match node {
                Node::Server(server) => _ = group.servers.insert(server.id),
                Node::Worker(worker) => _ = group.workers.insert(worker.name),
            }
        }
        groups.push(group);
    }
    if groups.len() < 2 {
        return Err(Failure::usage(format!("{} is only one group", quoted(text)), hint));
    }
    Ok(groups)
}

/// Who can be in a group. Workers of other farms that work here can, too.
fn member(farm: &Farm, word: &str) -> Result<Node, Failure> {
    match home_of(word) {
        Some((worker, home)) if !worker.is_empty() && home != farm.name => {
            Ok(Node::Worker(StartedWorker { name: word.to_owned(), pid: None }))
        }
        _ => find(farm, word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn farm() -> Farm {
        let server = |id| Started { id, pid: Some(1), address: String::new(), api: String::new() };
        Farm {
            name: "north".to_string(),
            pid: 1,
            began: 0,
            dir: "/nowhere".into(),
            temporary: true,
            api: Vec::new(),
            token: None,
            token_file: None,
            servers: (1..=3).map(server).collect(),
            workers: vec![StartedWorker { name: "w1".to_string(), pid: None }],
        }
    }

    #[test]
    fn groups_as_people_write_them() {
        let group = |servers: &[u64], workers: &[&str]| Group {
            servers: servers.iter().copied().collect(),
            workers: workers.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(groups(&farm(), "1, 2|3").unwrap(), [group(&[1, 2], &[]), group(&[3], &[])]);
        assert_eq!(groups(&farm(), "w1,1|2,3").unwrap(), [group(&[1], &["w1"]), group(&[2, 3], &[])]);
        let guest = [group(&[], &["n1@south"]), group(&[1], &[])];
        assert_eq!(groups(&farm(), "n1@south|1").unwrap(), guest);
        for text in ["", "1,2", "1|", "1,1|2", "1|1", "1|4", "a|b", "|", "w1|w1", "w2|1", "w1@north|1", "@south|1"]
        {
            assert!(groups(&farm(), text).is_err(), "{text}");
        }
    }

    #[test]
    fn servers_whose_links_are_delayed_as_people_write_them() {
        assert_eq!(pair(&farm(), "1, 3").unwrap(), BTreeSet::from([1, 3]));
        assert_eq!(all(&farm()), BTreeSet::from([1, 2, 3]));
        for text in ["", "1", "1,1", "1,4", "w1,1", "1|2"] {
            assert!(pair(&farm(), text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_unknown_target_names_the_known_ones() {
        for target in ["7", "0", "-1", "boss", ""] {
            assert!(find(&farm(), target).unwrap_err().words().ends_with("choose one of 1, 2, 3, w1, or leader"));
            let words = find_server(&farm(), target).unwrap_err().words();
            assert!(words.ends_with("choose one of 1, 2, 3, or leader"), "{words}");
        }
        assert_eq!(find(&farm(), "w1").unwrap().who(), "worker w1");
    }
}
