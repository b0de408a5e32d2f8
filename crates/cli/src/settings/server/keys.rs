//! Every key of a server's configuration: the one table from which files, environment, flags, help and typed values are made.
//!
//! A key is one declaration: its help text, then `name: Kind = fallback, flag "name";`. The kind ([`super::kind`]) says how a
//! value is read, within which bounds, and what type it has in the code; variable and name in a file follow from section and
//! name. So a new key is one declaration here, its row in docs/configuration.md (a test prints the row), and the line that
//! uses its field, such as `values.election.heartbeat`. A default that depends on other values is `Depends`, and
//! [`super::rules`] gives it; what must hold between values is checked there, too.
//!
//! The load-aware document writes some values in its own way. Those spellings are in [`DOCUMENT_KEYS`]; each sets keys of
//! ours, or nothing that matters here.

use std::sync::LazyLock;

use primus_core::election::Algorithm;
use primus_core::election::bully::Asking;
use primus_core::farm::assign::Rule;
use primus_core::loan::lending::Order;
use primus_core::rank::RankBy;
use primus_terminal::failure::Failure;

use super::groups::Groups;
use super::kind::{
    Address, Beside, Choice, Command, File, Folder, Hosts, Id, Name, Number, Programs, Reached, Servers, Size,
    Source, Time, TimeRange, Truth, User, Variables,
};
use super::neighbours::Neighbours;
use super::slot::Fallback::{Depends, Is, Missing};
use super::slot::{AnySlot, Gathered, Key, Settled, Slot, State};

/// Makes a struct of each section, with a field for each key, and [`Values`] of all sections.
macro_rules! sections {
    ($($section:ident: $Section:ident in $prefix:literal {
        $($(#[doc = $about:literal])+ $key:ident: $kind:ty = $fallback:expr $(, flag $flag:literal)?;)+
    })+) => {
        $(
            pub(crate) struct $Section<S: State> {
                $(pub(crate) $key: S::Of<$kind>,)+
            }

            impl $Section<Gathered> {
                /// The values, if there are no mistakes.
                pub(super) fn settled(&self) -> Result<$Section<Settled>, Failure> {
                    Ok($Section { $($key: self.$key.settled()?,)+ })
                }
            }
        )+

        /// All values, section by section.
        pub(crate) struct Values<S: State> {
            $(pub(crate) $section: $Section<S>,)+
        }

        impl Values<Gathered> {
            /// All slots, in the order of the table.
            pub(super) fn slots(&self) -> Vec<&dyn AnySlot> {
                vec![$($(&self.$section.$key,)+)+]
            }

            pub(super) fn slots_mut(&mut self) -> Vec<&mut dyn AnySlot> {
                vec![$($(&mut self.$section.$key,)+)+]
            }

            /// The slot of the key of this name, which came from outside.
            pub(super) fn slot(&mut self, name: &str) -> Option<&mut dyn AnySlot> {
                self.slots_mut().into_iter().find(|slot| slot.key().name == name)
            }

            /// The values, if there are no mistakes.
            pub(super) fn settled(&self) -> Result<Values<Settled>, Failure> {
                Ok(Values { $($section: self.$section.settled()?,)+ })
            }
        }

        impl Default for Values<Gathered> {
            fn default() -> Self {
                Self { $($section: $Section { $($key: Slot::new(const {
                    let name = concat!($prefix, stringify!($key));
                    &Key::new::<$kind>(name, $fallback, &[$($flag)?], concat!($($about),+))
                }),)+ },)+ }
            }
        }
    };
}

// In the order in which people meet them.
sections! {
    server: Server in "server." {
        /// which server of the cluster this is
        id: Id = Missing, flag "id";
        /// where its peers reach it, by number or by name
        address: Reached = Depends("as cluster.servers says, else 127.0.0.1:7460"), flag "address";
        /// where it listens for its peers, if that is not where they reach it
        listen: Address = Depends("server.address, if that is a number, or a name of this host's loopback"), flag "listen";
        /// where people and programs reach it, by number or by name
        api: Reached =
            Depends("as cluster.servers says, else one port above the address, or the next that all can use"), flag "api";
        /// the name of the farm, the same on all servers
        farm: Name = Is("primus"), flag "farm";
        /// where it keeps its data
        dir: Folder = Depends("primus-data/FARM-ID"), flag "dir";
        /// may primus chaos cut its links, delay them and set its load?
        chaos: Truth = Is("false");
    }
    api: Api in "api." {
        /// where the API listens, if that is not where people and programs reach it
        listen: Address = Depends("server.api, if that is a number, or a name of this host's loopback"), flag "api-listen";
        /// a file that only this user can read, with the secret that every request to the API must show
        token_file: File = Is(""), flag "token-file";
        /// further names and addresses under which clients reach the API; it answers under no others
        names: Hosts = Is("");
    }
    cluster: Cluster in "cluster." {
        /// all servers, this one included: the same list everywhere
        servers: Servers = Is(""), flag "cluster";
        /// the file that the farm began with, from primus init: links are encrypted then, and this one proves who it is
        founding: File = Is(""), flag "founding";
    }
    peers: Peers in "peers." {
        /// the other servers, unless cluster.servers lists them
        peers: Servers = Is(""), flag "peers";
    }
    election: Election in "election." {
        /// how a leader is named
        algorithm: Choice<Algorithm> = Is("bully"), flag "algorithm";
        /// who should lead: the least loaded, the highest id or the greatest address
        rank: Choice<RankBy> = Depends("load; id for a ring"), flag "rank";
        /// does a better server take over from a live leader?
        preempt: Truth = Depends("true for rank id and address, false for load"), flag "preempt";
        /// how often a leader shows itself
        heartbeat: Time = Is("25ms"), flag "heartbeat";
        /// how long a leader may be silent, however often it is heard
        silence_min: Time = Depends("three heartbeats, at least 80ms, and the slowest measured round trip"),
            flag "silence-min";
        /// how long a leader may be silent, however rarely it is heard
        silence_max: Time = Depends("1s, at least election.silence_min, and four measured round trips"),
            flag "silence-max";
        /// how long a server that has just started waits for a leader before it holds an election
        startup: TimeRange = Is("50ms..100ms"), flag "startup";
        /// are better servers asked all at once, or one by one from the best down?
        asking: Choice<Asking> = Is("at-once"), flag "asking";
        /// how long an election waits for answers of better servers: T
        answers: Time = Depends("20ms, and the slowest measured round trip"), flag "answers";
        /// how long a better server that answered may take to lead
        victory: Time = Depends("three times election.answers; as often as there are servers, if one by one"),
            flag "victory";
        /// by how many points a leader's score must be worse than the best one before it hands over
        handover_margin: Number<u32, 1, 100> = Is("15"), flag "handover-margin";
        /// for how long it must be so much worse
        handover_dwell: Time = Is("10s"), flag "handover-dwell";
        /// how long a leader waits after a handover before the next one
        handover_cooldown: Time = Is("60s"), flag "handover-cooldown";
        /// how long a leader stays before it hands over
        least_tenure: Time = Is("30s"), flag "least-tenure";
    }
    guard: Guard in "guard." {
        /// lease length: how long a holder may run without hearing from the leader, from 300ms; the leader's
        /// value counts
        lease: Time = Is("1s"), flag "lease";
    }
    elections: Elections in "" {
        /// further elections without a quorum, each under its own [[groups]]: see below
        groups: Groups = Is("");
    }
    farm: Farm in "farm." {
        /// who gets a task: the freest worker, the least loaded as last heard, one after the other, or any
        assignment: Choice<Rule> = Is("balanced"), flag "assignment";
        /// how many tasks may wait; the leader's counts
        queue_max: Number<u64, 1, 100_000_000> = Is("4000000");
        /// how many bytes of keys, jobs and results there may be, up to 1536MiB; the leader's counts
        state_max: Size = Is("1GiB");
        /// how many results are kept; the leader's counts
        results_max: Number<usize, 1, 100_000_000> = Is("100000");
        /// how many bytes of results are kept, the newest first; the leader's counts
        results_bytes: Size = Is("256MiB");
        /// for how long results are kept; the leader's counts
        results_age: Time = Is("24h");
    }
    neighbourhood: Neighbourhood in "" {
        /// farms that this one may lend workers to and borrow them from, each under its own [[neighbours]]: see
        /// below
        neighbours: Neighbours = Is("");
    }
    lending: Lending in "lending." {
        /// with so many tasks waiting, those included that are handed out in advance, and no free slot the farm
        /// is saturated, and asks its neighbours for workers
        saturated_at: Number<u64, 1, 100_000_000> = Is("10");
        /// for how long it must be so
        saturated_for: Time = Is("200ms");
        /// with fewer tasks waiting it is calm, and sends borrowed workers home
        calm_below: Number<u64, 1, 100_000_000> = Is("3");
        /// for how long it must be so
        calm_for: Time = Is("1s");
        /// for so many waiting tasks one worker is asked for
        tasks_per_worker: Number<u64, 1, 100_000_000> = Is("10");
        /// how long a worker is lent
        loan: Time = Is("60s");
        /// how long what a worker runs may take to end when it is to go home; then it is stopped, and runs
        /// again
        recall: Time = Is("10s");
        /// how long a worker stays where it is, at least, unless an operator wants it otherwise
        stay: Time = Is("1s");
        /// how many idle workers are never lent
        reserve: Number<u32, 0, 1024> = Is("0");
        /// how many workers are lent at once, at most; with 0 none ever is
        lent_max: Number<u32, 0, 1024> = Is("1024");
        /// which neighbour is asked first: the one that is named first, or the one with the most free slots
        order: Choice<Order> = Is("listed");
    }
    load: Load in "load." {
        /// whose load counts: system, cgroup, process or file:PATH, which holds a score, or cpu = N and memory
        /// = N
        source: Source = Is("system"), flag "load";
    }
    weights: LoadWeights in "load.weights." {
        /// how much processors count in a score
        cpu: Number<u32, 0, 1000> = Is("50");
        /// how much tasks count that run on this host: on a worker its own, on a server those of workers beside
        /// it
        tasks: Number<u32, 0, 1000> = Is("30");
        /// how much memory counts
        memory: Number<u32, 0, 1000> = Is("20");
        /// how many tasks are full load
        tasks_full: Number<u32, 1, 1_000_000> = Is("10");
    }
    hooks: Hooks in "hooks." {
        /// a program and its arguments, run whenever a server begins to lead, with the event on its stdin
        leader_changed: Command = Is("");
        /// how long a hook may run; then it is ended
        timeout: Time = Is("10s");
    }
    worker: Worker in "worker." {
        /// how many tasks run here at once
        slots: Number<u16, 0, 4096> =
            Depends("0 for a server, which then runs no tasks; one per processor for a worker"), flag "slots";
        /// the server on the same host, in whose load the worker's tasks count
        beside: Beside = Depends("the server itself for a server; none for a worker");
        /// what the worker is called; each worker of a farm has a name of its own
        name: Name = Depends("server-ID for a server; the host's name for a worker");
        /// where the worker keeps results and outputs
        dir: Folder = Depends("worker in server.dir for a server; primus-data/NAME for a worker");
        /// the programs that tasks may run, as they are submitted; * stands for all
        allow: Programs = Is(""), flag "allow";
        /// variables that load code and that tasks may set although only certain programs are allowed
        allow_env: Variables = Is("");
        /// variables of the worker that tasks get, beside PATH, HOME, LANG, TZ and TMPDIR
        pass: Variables = Is("");
        /// the user that tasks run as, by name or as UID:GID, if the worker is root
        user: User = Is("");
        /// how much memory of its own each process of a task may have; 0B: no limit
        memory_max: Size = Is("0B");
        /// how many processes and threads the user of a task may have in all; 0: no limit
        processes_max: Number<u64, 0, 4_194_304> = Is("0");
        /// how long a file may become that a task writes; 0B: no limit
        file_max: Size = Is("0B");
        /// how much of a task's output is kept
        output_max: Size = Is("10MiB");
        /// how much of all outputs is kept; the oldest go first
        outputs_max: Size = Is("1GiB");
    }
}

/// All keys.
pub(crate) static KEYS: LazyLock<Vec<&'static Key>> =
    LazyLock::new(|| Values::default().slots().into_iter().map(AnySlot::key).collect());

/// The keys that `primus worker` has flags for, and those flags: a worker needs less than a server, and says it shorter.
pub(crate) fn worker_flags() -> [(&'static Key, &'static str); 9] {
    let Values { worker, cluster, server, load, .. } = Values::default();
    [
        (worker.name.key, "name"),
        (worker.slots.key, "slots"),
        (worker.beside.key, "beside"),
        (worker.allow.key, "allow"),
        (worker.dir.key, "dir"),
        (cluster.servers.key, "servers"),
        (server.farm.key, "farm"),
        (cluster.founding.key, "founding"),
        (load.source.key, "load"),
    ]
}

/// A key of the load-aware document.
pub(crate) struct DocumentKey {
    pub(crate) name: &'static str,
    /// The keys that it sets, to a length of time in seconds. With none it is accepted and means nothing here.
    pub(crate) sets: fn(&mut Values<Gathered>) -> Vec<&mut Slot<Time>>,
}

/// What the load-aware document writes in its own way.
pub(crate) const DOCUMENT_KEYS: &[DocumentKey] = &[
    DocumentKey { name: "election.heartbeat_interval_secs", sets: |values| vec![&mut values.election.heartbeat] },
    DocumentKey {
        name: "election.failure_timeout_secs",
        sets: |values| vec![&mut values.election.silence_min, &mut values.election.silence_max],
    },
    DocumentKey { name: "election.election_timeout_secs", sets: |values| vec![&mut values.election.answers] },
    // Here silence ends with a timer, so nobody needs to look now and then.
    DocumentKey { name: "election.monitor_interval_secs", sets: |_| Vec::new() },
    DocumentKey { name: "server.cover_image", sets: |_| Vec::new() },
];

/// Every name that may stand in a file.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name).chain(DOCUMENT_KEYS.iter().map(|key| key.name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use primus_terminal::names::advice;

    use super::*;

    #[test]
    fn names_flags_and_variables_are_unique() {
        let names: BTreeSet<&str> = names().collect();
        assert_eq!(names.len(), KEYS.len() + DOCUMENT_KEYS.len());
        let flags: Vec<&str> = KEYS.iter().filter_map(|key| key.flag).collect();
        assert_eq!(flags.iter().collect::<BTreeSet<_>>().len(), flags.len());
        let variables: BTreeSet<String> = KEYS.iter().map(|key| key.variable()).collect();
        assert_eq!(variables.len(), KEYS.len());
        assert!(!variables.contains("PRIMUS_API"), "that is where clients find the farm");
    }

    #[test]
    fn defaults_are_good_values() {
        let mut values = Values::default();
        for slot in values.slots_mut() {
            slot.fall_back_plainly();
            assert_eq!(slot.given().is_some(), matches!(slot.key().fallback, Is(_)), "{}", slot.key().name);
        }
    }

    #[test]
    fn the_document_for_people_lists_every_key() {
        let row = |key: &&Key| {
            let default = match key.fallback {
                Missing => "must be given".to_owned(),
                Is("") => "none".to_owned(),
                Is(text) => format!("`{text}`"),
                Depends(text) => text.to_owned(),
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
