//! Every key of a server's configuration: the one list from which files, environment, flags, help and documents are made.
//!
//! The load-aware document writes some values in its own way. Those spellings are in [`DOCUMENT_KEYS`]; each sets a key of
//! ours, or nothing that matters here.

pub(in crate::settings) use primus_terminal::names::advice;

use super::value::Kind;

/// One value that can be configured.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its section and name in a file: `election.heartbeat`.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) fallback: Fallback,
    /// Its flag of `primus server`, without the dashes. `--set` reaches the others.
    pub(crate) flag: Option<&'static str>,
    pub(crate) about: &'static str,
}

/// What counts if nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// Somebody must say something.
    Missing,
    /// This.
    Is(&'static str),
    /// It depends on other values, in this way.
    Depends(&'static str),
}

/// A key of the load-aware document.
#[derive(Debug)]
pub(crate) struct DocumentKey {
    pub(crate) name: &'static str,
    /// The keys that it sets, to a length of time in seconds. With none it is accepted and means nothing here.
    pub(crate) sets: &'static [&'static str],
}

/// All keys, in the order in which people meet them.
pub(crate) const KEYS: &[Key] = &[
    Key {
        name: "server.id",
        kind: Kind::Number { least: 1, most: u64::MAX },
        fallback: Fallback::Missing,
        flag: Some("id"),
        about: "which server of the cluster this is",
    },
    Key {
        name: "server.address",
        kind: Kind::Address,
        fallback: Fallback::Depends("as cluster.servers says, else 127.0.0.1:7460"),
        flag: Some("address"),
        about: "where it listens for its peers",
    },
    Key {
        name: "server.api",
        kind: Kind::Address,
        fallback: Fallback::Depends(
            "as cluster.servers says, else one port above the address, or the next that all can use",
        ),
        flag: Some("api"),
        about: "where it listens for people and programs",
    },
    Key {
        name: "server.farm",
        kind: Kind::Name,
        fallback: Fallback::Is("primus"),
        flag: Some("farm"),
        about: "the name of the farm, the same on all servers",
    },
    Key {
        name: "server.dir",
        kind: Kind::Folder,
        fallback: Fallback::Depends("primus-data/FARM-ID"),
        flag: Some("dir"),
        about: "where it keeps its data",
    },
    Key {
        name: "server.chaos",
        kind: Kind::Truth,
        fallback: Fallback::Is("false"),
        flag: None,
        about: "may primus chaos cut its links, delay them and set its load?",
    },
    Key {
        name: "api.token_file",
        kind: Kind::File,
        fallback: Fallback::Is(""),
        flag: Some("token-file"),
        about: "a file that only this user can read, with the secret that every request to the API must show",
    },
    Key {
        name: "api.names",
        kind: Kind::Hosts,
        fallback: Fallback::Is(""),
        flag: None,
        about: "further names and addresses under which clients reach the API; it answers under no others",
    },
    Key {
        name: "cluster.servers",
        kind: Kind::Servers,
        fallback: Fallback::Is(""),
        flag: Some("cluster"),
        about: "all servers, this one included: the same list everywhere",
    },
    Key {
        name: "peers.peers",
        kind: Kind::Servers,
        fallback: Fallback::Is(""),
        flag: Some("peers"),
        about: "the other servers, if there is no cluster.servers",
    },
    Key {
        name: "election.algorithm",
        kind: Kind::Choice(&["bully", "ring"]),
        fallback: Fallback::Is("bully"),
        flag: Some("algorithm"),
        about: "how a leader is named",
    },
    Key {
        name: "election.rank",
        kind: Kind::Choice(&["load", "id", "address"]),
        fallback: Fallback::Depends("load; id for a ring"),
        flag: Some("rank"),
        about: "who should lead: the least loaded, the highest id or the greatest address",
    },
    Key {
        name: "election.preempt",
        kind: Kind::Truth,
        fallback: Fallback::Depends("true for rank id and address, false for load"),
        flag: Some("preempt"),
        about: "does a better server take over from a live leader?",
    },
    Key {
        name: "election.heartbeat",
        kind: Kind::Time,
        fallback: Fallback::Is("25ms"),
        flag: Some("heartbeat"),
        about: "how often a leader shows itself",
    },
    Key {
        name: "election.silence_min",
        kind: Kind::Time,
        fallback: Fallback::Depends("three heartbeats, at least 80ms, and the slowest measured round trip"),
        flag: Some("silence-min"),
        about: "how long a leader may be silent, however often it is heard",
    },
    Key {
        name: "election.silence_max",
        kind: Kind::Time,
        fallback: Fallback::Depends("1s, at least election.silence_min, and four measured round trips"),
        flag: Some("silence-max"),
        about: "how long a leader may be silent, however rarely it is heard",
    },
    Key {
        name: "election.startup",
        kind: Kind::TimeRange,
        fallback: Fallback::Is("50ms..100ms"),
        flag: Some("startup"),
        about: "how long a server that has just started waits for a leader before it holds an election",
    },
    Key {
        name: "election.asking",
        kind: Kind::Choice(&["at-once", "one-by-one"]),
        fallback: Fallback::Is("at-once"),
        flag: Some("asking"),
        about: "are better servers asked all at once, or one by one from the best down?",
    },
    Key {
        name: "election.answers",
        kind: Kind::Time,
        fallback: Fallback::Depends("20ms, and the slowest measured round trip"),
        flag: Some("answers"),
        about: "how long an election waits for answers of better servers: T",
    },
    Key {
        name: "election.victory",
        kind: Kind::Time,
        fallback: Fallback::Depends("three times election.answers; as often as there are servers, if one by one"),
        flag: Some("victory"),
        about: "how long a better server that answered may take to lead",
    },
    Key {
        name: "election.handover_margin",
        kind: Kind::Number { least: 1, most: 100 },
        fallback: Fallback::Is("15"),
        flag: Some("handover-margin"),
        about: "by how many points a leader's score must be worse than the best one before it hands over",
    },
    Key {
        name: "election.handover_dwell",
        kind: Kind::Time,
        fallback: Fallback::Is("10s"),
        flag: Some("handover-dwell"),
        about: "for how long it must be so much worse",
    },
    Key {
        name: "election.handover_cooldown",
        kind: Kind::Time,
        fallback: Fallback::Is("60s"),
        flag: Some("handover-cooldown"),
        about: "how long after a handover there is no other one",
    },
    Key {
        name: "election.least_tenure",
        kind: Kind::Time,
        fallback: Fallback::Is("30s"),
        flag: Some("least-tenure"),
        about: "how long a leader stays before it hands over",
    },
    Key {
        name: "guard.lease",
        kind: Kind::Time,
        fallback: Fallback::Is("1s"),
        flag: Some("lease"),
        about: "lease length: how long a holder may run without hearing from the leader, from 300ms; the leader's value counts",
    },
    Key {
        name: "groups",
        kind: Kind::Groups,
        fallback: Fallback::Is(""),
        flag: None,
        about: "further elections without a quorum, each under its own [[groups]]: see below",
    },
    Key {
        name: "farm.assignment",
        kind: Kind::Choice(&["balanced", "score", "round-robin", "random"]),
        fallback: Fallback::Is("balanced"),
        flag: Some("assignment"),
        about: "who gets a task: the freest worker, the least loaded as last heard, one after the other, or any",
    },
    Key {
        name: "farm.queue_max",
        kind: Kind::Number { least: 1, most: 100_000_000 },
        fallback: Fallback::Is("4000000"),
        flag: None,
        about: "how many tasks may wait; the leader's counts",
    },
    Key {
        name: "farm.state_max",
        kind: Kind::Size,
        fallback: Fallback::Is("1GiB"),
        flag: None,
        about: "how many bytes of keys, jobs and results there may be, up to 1536MiB; the leader's counts",
    },
    Key {
        name: "farm.results_max",
        kind: Kind::Number { least: 1, most: 100_000_000 },
        fallback: Fallback::Is("100000"),
        flag: None,
        about: "how many results are kept; the leader's counts",
    },
    Key {
        name: "farm.results_bytes",
        kind: Kind::Size,
        fallback: Fallback::Is("256MiB"),
        flag: None,
        about: "how many bytes of results are kept, the newest first; the leader's counts",
    },
    Key {
        name: "farm.results_age",
        kind: Kind::Time,
        fallback: Fallback::Is("24h"),
        flag: None,
        about: "for how long results are kept; the leader's counts",
    },
    Key {
        name: "neighbours",
        kind: Kind::Neighbours,
        fallback: Fallback::Is(""),
        flag: None,
        about: "farms that this one may lend workers to and borrow them from, each under its own [[neighbours]]: see below",
    },
    Key {
        name: "lending.saturated_at",
        kind: Kind::Number { least: 1, most: 100_000_000 },
        fallback: Fallback::Is("10"),
        flag: None,
        about: "with so many tasks waiting, those included that are handed out in advance, and no free slot the farm is saturated, and asks its neighbours for workers",
    },
    Key {
        name: "lending.saturated_for",
        kind: Kind::Time,
        fallback: Fallback::Is("200ms"),
        flag: None,
        about: "for how long it must be so",
    },
    Key {
        name: "lending.calm_below",
        kind: Kind::Number { least: 1, most: 100_000_000 },
        fallback: Fallback::Is("3"),
        flag: None,
        about: "with fewer tasks waiting it is calm, and sends borrowed workers home",
    },
    Key {
        name: "lending.calm_for",
        kind: Kind::Time,
        fallback: Fallback::Is("1s"),
        flag: None,
        about: "for how long it must be so",
    },
    Key {
        name: "lending.tasks_per_worker",
        kind: Kind::Number { least: 1, most: 100_000_000 },
        fallback: Fallback::Is("10"),
        flag: None,
        about: "for so many waiting tasks one worker is asked for",
    },
    Key {
        name: "lending.loan",
        kind: Kind::Time,
        fallback: Fallback::Is("60s"),
        flag: None,
        about: "how long a worker is lent",
    },
    Key {
        name: "lending.recall",
        kind: Kind::Time,
        fallback: Fallback::Is("10s"),
        flag: None,
        about: "how long what a worker runs may take to end when it is to go home; then it is stopped, and runs again",
    },
    Key {
        name: "lending.stay",
        kind: Kind::Time,
        fallback: Fallback::Is("1s"),
        flag: None,
        about: "how long a worker stays where it is, at least, unless an operator wants it otherwise",
    },
    Key {
        name: "lending.reserve",
        kind: Kind::Number { least: 0, most: 1024 },
        fallback: Fallback::Is("0"),
        flag: None,
        about: "how many idle workers are never lent",
    },
    Key {
        name: "lending.lent_max",
        kind: Kind::Number { least: 0, most: 1024 },
        fallback: Fallback::Is("1024"),
        flag: None,
        about: "how many workers are lent at once, at most; with 0 none ever is",
    },
    Key {
        name: "lending.order",
        kind: Kind::Choice(&["listed", "idle"]),
        fallback: Fallback::Is("listed"),
        flag: None,
        about: "which neighbour is asked first: the one that is named first, or the one with the most free slots",
    },
    Key {
        name: "load.source",
        kind: Kind::Source,
        fallback: Fallback::Is("system"),
        flag: Some("load"),
        about: "whose load counts: system, cgroup, process or file:PATH, which holds a score, or cpu = N and memory = N",
    },
    Key {
        name: "load.weights.cpu",
        kind: Kind::Number { least: 0, most: 1000 },
        fallback: Fallback::Is("50"),
        flag: None,
        about: "how much processors count in a score",
    },
    Key {
        name: "load.weights.tasks",
        kind: Kind::Number { least: 0, most: 1000 },
        fallback: Fallback::Is("30"),
        flag: None,
        about: "how much tasks count that run on this host: on a worker its own, on a server those of workers beside it",
    },
    Key {
        name: "load.weights.memory",
        kind: Kind::Number { least: 0, most: 1000 },
        fallback: Fallback::Is("20"),
        flag: None,
        about: "how much memory counts",
    },
    Key {
        name: "load.weights.tasks_full",
        kind: Kind::Number { least: 1, most: 1_000_000 },
        fallback: Fallback::Is("10"),
        flag: None,
        about: "how many tasks are full load",
    },
    Key {
        name: "hooks.leader_changed",
        kind: Kind::Command,
        fallback: Fallback::Is(""),
        flag: None,
        about: "a program and its arguments, run whenever a server begins to lead, with the event on its stdin",
    },
    Key {
        name: "hooks.timeout",
        kind: Kind::Time,
        fallback: Fallback::Is("10s"),
        flag: None,
        about: "how long a hook may run; then it is ended",
    },
    Key {
        name: "worker.slots",
        kind: Kind::Number { least: 0, most: 4096 },
        fallback: Fallback::Depends("0 for a server, which then runs no tasks; one per processor for a worker"),
        flag: Some("slots"),
        about: "how many tasks run here at once",
    },
    Key {
        name: "worker.beside",
        kind: Kind::Number { least: 1, most: u64::MAX },
        fallback: Fallback::Depends("the server itself for a server; none for a worker"),
        flag: None,
        about: "the server on the same host, in whose load the worker's tasks count",
    },
    Key {
        name: "worker.name",
        kind: Kind::Name,
        fallback: Fallback::Depends("server-ID for a server; the host's name for a worker"),
        flag: None,
        about: "what the worker is called; each worker of a farm has a name of its own",
    },
    Key {
        name: "worker.dir",
        kind: Kind::Folder,
        fallback: Fallback::Depends("worker in server.dir for a server; primus-data/NAME for a worker"),
        flag: None,
        about: "where the worker keeps results and outputs",
    },
    Key {
        name: "worker.allow",
        kind: Kind::Programs,
        fallback: Fallback::Is(""),
        flag: Some("allow"),
        about: "the programs that tasks may run, as they are submitted; * stands for all",
    },
    Key {
        name: "worker.allow_env",
        kind: Kind::Variables,
        fallback: Fallback::Is(""),
        flag: None,
        about: "variables that load code and that tasks may set although only certain programs are allowed",
    },
    Key {
        name: "worker.pass",
        kind: Kind::Variables,
        fallback: Fallback::Is(""),
        flag: None,
        about: "variables of the worker that tasks get, beside PATH, HOME, LANG, TZ and TMPDIR",
    },
    Key {
        name: "worker.user",
        kind: Kind::User,
        fallback: Fallback::Is(""),
        flag: None,
        about: "the user that tasks run as, by name or as UID:GID, if the worker is root",
    },
    Key {
        name: "worker.memory_max",
        kind: Kind::Size,
        fallback: Fallback::Is("0B"),
        flag: None,
        about: "how much memory of its own each process of a task may have; 0B: no limit",
    },
    Key {
        name: "worker.processes_max",
        kind: Kind::Number { least: 0, most: 4_194_304 },
        fallback: Fallback::Is("0"),
        flag: None,
        about: "how many processes and threads the user of a task may have in all; 0: no limit",
    },
    Key {
        name: "worker.file_max",
        kind: Kind::Size,
        fallback: Fallback::Is("0B"),
        flag: None,
        about: "how long a file may become that a task writes; 0B: no limit",
    },
    Key {
        name: "worker.output_max",
        kind: Kind::Size,
        fallback: Fallback::Is("10MiB"),
        flag: None,
        about: "how much of a task's output is kept",
    },
    Key {
        name: "worker.outputs_max",
        kind: Kind::Size,
        fallback: Fallback::Is("1GiB"),
        flag: None,
        about: "how much of all outputs is kept; the oldest go first",
    },
];

/// The keys that `primus worker` has flags for, and those flags: a worker needs less than a server, and says it shorter.
pub(crate) const WORKER_FLAGS: &[(&str, &str)] = &[
    ("worker.name", "name"),
    ("worker.slots", "slots"),
    ("worker.beside", "beside"),
    ("worker.allow", "allow"),
    ("worker.dir", "dir"),
    ("cluster.servers", "servers"),
    ("server.farm", "farm"),
    ("load.source", "load"),
];

/// What the load-aware document writes in its own way.
pub(crate) const DOCUMENT_KEYS: &[DocumentKey] = &[
    DocumentKey { name: "election.heartbeat_interval_secs", sets: &["election.heartbeat"] },
    DocumentKey { name: "election.failure_timeout_secs", sets: &["election.silence_min", "election.silence_max"] },
    DocumentKey { name: "election.election_timeout_secs", sets: &["election.answers"] },
    // Here silence ends with a timer, so nobody needs to look now and then.
    DocumentKey { name: "election.monitor_interval_secs", sets: &[] },
    DocumentKey { name: "server.cover_image", sets: &[] },
];

/// The key of this name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Every name that may stand in a file.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name).chain(DOCUMENT_KEYS.iter().map(|key| key.name))
}

impl Key {
    /// Its variable in the environment: `PRIMUS_ELECTION_HEARTBEAT`.
    pub(crate) fn variable(&self) -> String {
        format!("PRIMUS_{}", self.name.replace('.', "_").to_uppercase())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_flags_and_variables_are_unique() {
        let names: BTreeSet<&str> = names().collect();
        assert_eq!(names.len(), KEYS.len() + DOCUMENT_KEYS.len());
        let flags: Vec<&str> = KEYS.iter().filter_map(|key| key.flag).collect();
        assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len());
        let variables: BTreeSet<String> = KEYS.iter().map(Key::variable).collect();
        assert_eq!(variables.len(), KEYS.len());
        assert!(!variables.contains("PRIMUS_API"), "that is where clients find the farm");
    }

    #[test]
    fn defaults_are_good_values_and_document_keys_set_lengths_of_time() {
        for key in KEYS {
            if let Fallback::Is(text) = key.fallback {
                assert!(key.kind.read(text).is_ok(), "{}", key.name);
            }
        }
        assert!(WORKER_FLAGS.iter().all(|(name, _)| find(name).is_some()));
        for name in DOCUMENT_KEYS.iter().flat_map(|key| key.sets) {
            assert_eq!(find(name).unwrap().kind, Kind::Time, "{name}");
        }
    }

    #[test]
    fn the_document_for_people_lists_every_key() {
        let row = |key: &Key| {
            let default = match key.fallback {
                Fallback::Missing => "must be given".to_owned(),
                Fallback::Is("") => "none".to_owned(),
                Fallback::Is(text) => format!("`{text}`"),
                Fallback::Depends(text) => text.to_owned(),
            };
            let flag = key.flag.map(|flag| format!("`--{flag}`")).unwrap_or_default();
            format!("| `{}` | {default} | {flag} | {} |\n", key.name, key.about)
        };
        let expected: String = KEYS.iter().map(row).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains(&expected), "docs/configuration.md should hold these lines:\n{expected}");
        for key in DOCUMENT_KEYS {
            assert!(text.contains(&format!("`{}`", key.name)), "{} is not explained", key.name);
        }
    }

    #[test]
    fn the_nearest_name_is_meant_and_a_far_one_is_only_named() {
        for (word, expected) in [
            ("election.hartbeat", "did you mean election.heartbeat?"),
            ("election.Heartbeat", "did you mean election.heartbeat?"),
            ("elections.rank", "did you mean election.rank?"),
            ("server.adress", "did you mean server.address?"),
            ("election.failure_timeout_sec", "did you mean election.failure_timeout_secs?"),
            ("server.colour", "the nearest is server.chaos; look"),
        ] {
            assert_eq!(advice(word, names(), "look"), expected, "{word}");
        }
    }
}
