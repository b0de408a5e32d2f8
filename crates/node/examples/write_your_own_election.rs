//! An election algorithm of one's own: the alphabetically first name that lives leads. It is tried in the laboratory first,
//! in hundreds of runs with crashes and partitions, and then it leads a real cluster.
//!
//! ```text
//! cargo run -p primus-node --example write_your_own_election
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::net::TcpListener;

use primus_core::ServerId;
use primus_core::election::{Command, Election, MessageKind, Notice, Timer};
use primus_core::machine::{Delay, Input, Machine, Moment, Never, Outbox};
use primus_lab::chance::Chance;
use primus_lab::invariants::{Evidence, Property, judge};
use primus_lab::network::Network;
use primus_lab::simulate::{self, Happening, Setup};
use primus_node::server::{Server, Settings};
use serde::{Deserialize, Serialize};

/// Everybody knows all names, and is told by its owner who seems to be dead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ByName {
    id: ServerId,
    /// In the order in which they come.
    names: BTreeMap<String, ServerId>,
    suspected: BTreeSet<ServerId>,
    leader: Option<ServerId>,
    is_starting: bool,
}

/// All that is ever said: I lead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Leads;

impl ByName {
    fn new(id: ServerId, names: BTreeMap<String, ServerId>) -> Self {
        Self { id, names, suspected: BTreeSet::new(), leader: None, is_starting: false }
    }

    fn live(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.names.values().copied().filter(|id| !self.suspected.contains(id))
    }

    /// The first live name leads; if that is this one, everybody is told.
    fn decide(&mut self, out: &mut Outbox<Self>) {
        let first = self.live().next();
        if first == Some(self.id) {
            self.names.values().filter(|peer| **peer != self.id).for_each(|peer| out.send(*peer, Leads));
        }
        self.follow(first, out);
    }

    fn follow(&mut self, leader: Option<ServerId>, out: &mut Outbox<Self>) {
        (self.leader, self.is_starting) = (leader, false);
        out.notify(match leader {
            Some(leader) if leader == self.id => Notice::Lead,
            Some(leader) => Notice::Follow(leader),
            None => Notice::Undefined,
        });
    }
}

impl Machine for ByName {
    type Peer = ServerId;
    type Message = Leads;
    type Command = Command;
    type Timer = Timer;
    type Record = Never;
    type Token = Never;
    type Barrier = Never;
    type Notice = Notice;

    fn step(&mut self, _: Moment, input: Input<Self>, out: &mut Outbox<Self>) {
        match input {
            Input::Command(Command::Boot) => {
                self.is_starting = true;
                return out.set(Timer::Startup, Delay::between_ms(50, 100));
            }
            // A quorum has the last word.
            Input::Command(Command::Ratified(leader)) => {
                self.suspected.remove(&leader);
                return self.follow(Some(leader), out);
            }
            // It could not lead: somebody else must, until a quorum says otherwise.
            Input::Command(Command::Resign) => _ = self.suspected.insert(self.id),
            Input::Command(Command::Suspect(peer)) => _ = self.suspected.insert(peer),
            Input::Command(Command::Trust(peer)) => {
                if !self.suspected.remove(&peer) {
                    return out.ignore("nothing new");
                }
            }
            // It may be the last word of somebody who has died since. To believe it was this example's first bug: the
            // laboratory found it with its 23rd seed.
            Input::Message { from, .. } if self.suspected.contains(&from) => return out.ignore("an old word"),
            Input::Message { .. } => {}
            Input::Command(Command::Start) | Input::Timer(Timer::Startup) => _ = self.suspected.remove(&self.id),
            _ => return out.ignore("what this election does not need"),
        }
        self.decide(out);
    }
}

impl Election for ByName {
    fn id(&self) -> ServerId {
        self.id
    }

    fn leader(&self) -> Option<ServerId> {
        self.leader
    }

    fn is_electing(&self) -> bool {
        self.is_starting
    }

    fn better(&self) -> Option<ServerId> {
        self.live().take_while(|id| *id != self.id).next()
    }

    fn better_count(&self) -> usize {
        self.live().take_while(|id| *id != self.id).count()
    }

    fn preempts(&self) -> bool {
        true
    }

    fn kind_of(_: &Leads) -> MessageKind {
        MessageKind::Coordinator
    }
}

impl fmt::Display for Leads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("leads")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await
}

/// The whole example.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    (0..500).for_each(try_in_the_laboratory);
    println!("500 runs in the laboratory, and every property held");
    lead_a_cluster().await
}

fn names() -> BTreeMap<String, ServerId> {
    ["dora", "berta", "anton", "emil", "caesar"].into_iter().map(str::to_owned).zip((1..).map(ServerId)).collect()
}

/// Five nodes; the two that come first die, and one is cut off for a while. All chance comes from the seed.
fn try_in_the_laboratory(seed: u64) {
    let mut chance = Chance::new(seed);
    let [anton, berta, dora] = [ServerId(3), ServerId(2), ServerId(1)];
    let mut schedule: Vec<_> =
        names().into_values().map(|id| (0, Happening::Command(id.into(), Command::Boot))).collect();
    schedule.extend([anton, berta].map(|id| (chance.below(2_000_000), Happening::Crash(id.into()))));
    let (from_us, until_us) = (chance.below(1_000_000), 1_000_000 + chance.below(2_000_000));
    for peer in names().into_values().filter(|id| *id != dora) {
        for (one, other) in [(dora, peer), (peer, dora)].map(|(one, other)| (one.into(), other.into())) {
            schedule.extend([(from_us, Happening::Cut(one, other)), (until_us, Happening::Mend(one, other))]);
        }
    }
    let setup = Setup {
        nodes: names().into_values().map(|id| ByName::new(id, names())).collect(),
        leader: None,
        network: Network::reliable(Delay::between_ms(1, 20)),
        schedule,
        clock_skew_ppm: Vec::new(),
        detection: Some(Delay::between_ms(0, 50)),
        repair_us: 100_000,
        patience_us: 10_000_000,
        seed,
    };
    let outcome = simulate::run(setup, &mut ());
    // Of those who live, caesar comes first.
    let best = Some(ServerId(5));
    let evidence = Evidence { outcome: &outcome, faults_ended: true, best, bound: None, changed_ranks: None };
    let properties = judge(&evidence);
    assert!(properties.values().all(|holds| *holds), "seed {seed}: {properties:?} {outcome:?}");
    assert!(properties.contains_key(&Property::Uniqueness) && properties.contains_key(&Property::Correctness));
}

/// The same machine, unchanged, with sockets and disks. A quorum ratifies whom it names.
async fn lead_a_cluster() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("primus-own-election-{}", std::process::id()));
    let listeners: Vec<TcpListener> =
        (1..=5).map(|_| TcpListener::bind("127.0.16.3:0")).collect::<std::io::Result<_>>()?;
    let addresses = (1..).zip(&listeners).map(|(id, listener)| Ok((id, listener.local_addr()?)));
    let addresses: Vec<_> = addresses.collect::<std::io::Result<_>>()?;
    drop(listeners);
    let mut servers = BTreeMap::new();
    for (id, _) in &addresses {
        let mut settings = Settings::new("names", *id, addresses.clone(), dir.join(id.to_string()));
        settings.plan.elect_with(|plan| ByName::new(plan.id, names()));
        servers.insert(ServerId(*id), Server::start(settings).await?);
    }
    for expected in ["anton", "berta"] {
        let leader = names()[expected];
        for server in servers.values() {
            server.leadership().wait_for(|now| now.leader == Some(leader)).await?;
        }
        println!("{expected} leads");
        // As if its process had been killed.
        servers.remove(&leader);
    }
    let caesar = names()["caesar"];
    servers[&ServerId(1)].leadership().wait_for(|now| now.leader == Some(caesar)).await?;
    println!("caesar leads");
    servers[&ServerId(4)].put("still", "works").await?;
    drop(servers);
    Ok(std::fs::remove_dir_all(&dir)?)
}
