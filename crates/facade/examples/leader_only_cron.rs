//! A job that ticks on exactly one of three servers, moves when that one ends, and never runs twice at once.
//!
//! ```text
//! cargo run -p primus-farm --example leader_only_cron
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use primus_farm::{GroupRank, Server, Turn};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await
}

/// What the job did: the server and the term of each tick.
type Ticks = Arc<Mutex<Vec<(u64, u64)>>>;

/// The whole example.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("primus-leader-only-cron-{}", std::process::id()));
    let addresses = free_addresses()?;
    let (ticks, running) = (Ticks::default(), Arc::new(AtomicU64::new(0)));
    let start = async |id: u64| -> Result<Server, Box<dyn Error>> {
        let server = Server::builder("cron", id, addresses.clone(), dir.join(id.to_string())).start().await?;
        tokio::spawn(tick_when_leading(&server, Arc::clone(&ticks), Arc::clone(&running)));
        Ok(server)
    };
    let mut servers = BTreeMap::new();
    for (id, _) in &addresses {
        servers.insert(*id, start(*id).await?);
    }
    // One ends in good order, and comes back.
    let first = ten_more(&ticks).await;
    servers.remove(&first).ok_or("a stranger ticks")?.stop().await?;
    let second = ten_more(&ticks).await;
    assert_ne!(first, second, "it has moved");
    servers.insert(first, start(first).await?);

    // The next one ends as if it had been killed.
    let third = ten_more(&ticks).await;
    drop(servers.remove(&third).ok_or("a stranger ticks")?);
    assert_ne!(third, ten_more(&ticks).await, "it has moved again");

    let (servers_seen, terms): (Vec<u64>, Vec<u64>) =
        ticks.lock().expect("nobody panics while holding this").iter().copied().unzip();
    assert!(terms.is_sorted(), "terms only grow, so what is written to can refuse older ones: {terms:?}");
    println!("ticked at {servers_seen:?}");
    for server in servers.into_values() {
        server.stop().await?;
    }
    assert_eq!(running.load(Ordering::SeqCst), 0);
    Ok(std::fs::remove_dir_all(&dir)?)
}

/// Takes part for as long as the server runs. A group of this rank follows leadership.
fn tick_when_leading(server: &Server, ticks: Ticks, running: Arc<AtomicU64>) -> impl Future<Output = ()> + use<> {
    let id = server.id().0;
    let group = server.group("nightly").rank(GroupRank::Leader);
    async move {
        let ended = group.guard(|turn| tick(id, turn, Arc::clone(&ticks), Running::new(&running))).await;
        println!("server {id}: {ended:?}");
    }
}

async fn tick(id: u64, turn: Turn, ticks: Ticks, _running: Running) {
    loop {
        ticks.lock().expect("nobody panics while holding this").push((id, turn.term()));
        sleep(Duration::from_millis(10)).await;
    }
}

/// Who ticks next, when there are ten more of its ticks.
async fn ten_more(ticks: &Ticks) -> u64 {
    let before = ticks.lock().expect("nobody panics while holding this").len();
    loop {
        sleep(Duration::from_millis(5)).await;
        let ticks = ticks.lock().expect("nobody panics while holding this");
        if ticks.len() >= before + 10 {
            return ticks[ticks.len() - 1].0;
        }
    }
}

/// Counts those who run, from the moment at which the job begins until it has been dropped.
struct Running(Arc<AtomicU64>);

impl Running {
    fn new(count: &Arc<AtomicU64>) -> Self {
        assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0, "somebody else still runs");
        Self(Arc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn free_addresses() -> Result<Vec<(u64, SocketAddr)>, Box<dyn Error>> {
    // Not 127.0.0.1: callers get their ports there, and one could take that of a server which is down.
    let listeners = (1..=3).map(|id| Ok((id, TcpListener::bind("127.0.16.1:0")?)));
    let listeners: Vec<(u64, TcpListener)> = listeners.collect::<std::io::Result<_>>()?;
    let addresses = listeners.iter().map(|(id, listener)| Ok((*id, listener.local_addr()?)));
    Ok(addresses.collect::<std::io::Result<_>>()?)
}
