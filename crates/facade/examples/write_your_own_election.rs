//! An election algorithm of one's own: the alphabetically first name that lives leads. It is tried in the laboratory first,
//! in hundreds of runs with crashes and partitions, and then it leads a real cluster.
//!
//! ```text
//! cargo run -p primus-farm --example write_your_own_election
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::net::TcpListener;

use primus_farm::election::{Actions, Election, Event, Trial};
use primus_farm::{Server, ServerId};
use serde::{Deserialize, Serialize};

/// Every server knows all names, and is told by the others who seems to be dead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ByName {
    id: ServerId,
    /// In the order in which they come.
    names: BTreeMap<String, ServerId>,
    suspected: BTreeSet<ServerId>,
}

/// All that is ever said: I lead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
struct Leads;

impl ByName {
    const fn new(id: ServerId, names: BTreeMap<String, ServerId>) -> Self {
        Self { id, names, suspected: BTreeSet::new() }
    }

    fn live(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.names.values().copied().filter(|id| !self.suspected.contains(id))
    }

    /// The first live name leads; if that is this one, all others are told.
    fn decide(&self, actions: &mut Actions<Leads>) {
        let first = self.live().next();
        if first == Some(self.id) {
            self.names.values().filter(|peer| **peer != self.id).for_each(|peer| actions.send(*peer, Leads));
        }
        actions.elect(first);
    }
}

impl Election for ByName {
    type Message = Leads;

    fn on(&mut self, event: Event<Leads>, actions: &mut Actions<Leads>) {
        match event {
            // A quorum has the last word.
            Event::Ratified(leader) => {
                self.suspected.remove(&leader);
                return actions.elect(Some(leader));
            }
            // It could not lead: another server must, until a quorum says otherwise.
            Event::Resign => _ = self.suspected.insert(self.id),
            Event::Suspect(peer) => _ = self.suspected.insert(peer),
            Event::Trust(peer) if self.suspected.remove(&peer) => {}
            // It may be the last word of a server that has died since. To believe it was this example's first bug: the
            // laboratory found it with its 23rd seed.
            Event::Message { from, .. } if self.suspected.contains(&from) => return,
            Event::Message { .. } => {}
            Event::Start => _ = self.suspected.remove(&self.id),
            _ => return,
        }
        self.decide(actions);
    }

    fn better(&self) -> Vec<ServerId> {
        self.live().take_while(|id| *id != self.id).collect()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await
}

/// The whole example.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    // Five servers; the two that come first die, and one is cut off for a while. Of those who live, caesar comes first.
    let trial = Trial::new(1..=5, |id| ByName::new(id, names()));
    trial
        .crash(number("anton"))
        .crash(number("berta"))
        .isolate(number("dora"))
        .winner(number("caesar"))
        .run(0..500)?;
    println!("500 runs in the laboratory, and every property held");
    lead_a_cluster().await
}

fn names() -> BTreeMap<String, ServerId> {
    ["dora", "berta", "anton", "emil", "caesar"].into_iter().map(str::to_owned).zip((1..).map(ServerId)).collect()
}

fn number(name: &str) -> u64 {
    names()[name].0
}

/// The same election, unchanged, with sockets and disks. A quorum ratifies whom it names.
async fn lead_a_cluster() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("primus-own-election-{}", std::process::id()));
    let listeners: Vec<TcpListener> =
        (1..=5).map(|_| TcpListener::bind("127.0.16.3:0")).collect::<std::io::Result<_>>()?;
    let addresses = (1..).zip(&listeners).map(|(id, listener)| Ok((id, listener.local_addr()?)));
    let addresses: Vec<_> = addresses.collect::<std::io::Result<_>>()?;
    drop(listeners);
    let mut servers = BTreeMap::new();
    for (id, _) in &addresses {
        let server = Server::builder("names", *id, addresses.clone(), dir.join(id.to_string()));
        servers.insert(*id, server.elect_with(|id| ByName::new(id, names())).start().await?);
    }
    for expected in ["anton", "berta"] {
        for server in servers.values() {
            let leader = server.leadership().wait_for(|now| now.id == Some(names()[expected])).await;
            leader.ok_or("a server has ended")?;
        }
        println!("{expected} leads");
        // As if its process had been killed.
        servers.remove(&number(expected));
    }
    let caesar = names()["caesar"];
    servers[&1].leadership().wait_for(|now| now.id == Some(caesar)).await.ok_or("a server has ended")?;
    println!("caesar leads");
    servers[&4].client().put("still", "works").await?;
    drop(servers);
    Ok(std::fs::remove_dir_all(&dir)?)
}
