//! Farms for tests, in folders that vanish with them.
#![allow(dead_code, unused_imports, reason = "every test program uses its part of this")]

#[path = "../../../node/tests/common/mod.rs"]
mod patience;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};

use primus_farm::Server;
use tokio::time::timeout;

pub(crate) use patience::{PATIENCE, eventually_async};

/// The last part of the next farm's address.
static NEXT: AtomicU8 = AtomicU8::new(1);

/// Servers with a folder that is removed with them.
pub(crate) struct Farm {
    pub(crate) dir: PathBuf,
    pub(crate) addresses: Vec<(u64, SocketAddr)>,
    pub(crate) servers: Vec<Server>,
}

impl Farm {
    pub(crate) async fn start(name: &str, count: u64) -> Self {
        let dir = std::env::temp_dir().join(format!("primus-facade-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&dir);
        let mut farm = Self { dir, addresses: free_addresses(count), servers: Vec::new() };
        for (id, _) in farm.addresses.clone() {
            let builder = Server::builder(name, id, farm.addresses.clone(), farm.dir.join(id.to_string()));
            farm.servers.push(builder.start().await.expect("it starts"));
        }
        farm
    }

    /// The place of the server that leads.
    pub(crate) async fn leader(&self) -> usize {
        let mut leadership = self.servers[0].leadership();
        let leader =
            timeout(PATIENCE, leadership.wait_for(|now| now.id.is_some())).await.expect("a leader in time");
        let leader = leader.expect("it runs").id;
        self.servers.iter().position(|server| Some(server.id()) == leader).expect("one of them")
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        self.servers.clear();
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Addresses that nothing else has: a port of 127.0.0.1 may be taken by a caller while its server is down.
pub(crate) fn free_addresses(count: u64) -> Vec<(u64, SocketAddr)> {
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = Ipv4Addr::new(127, 1 + high % 200, low, NEXT.fetch_add(1, Ordering::Relaxed));
    let listeners: Vec<_> = (1..=count).map(|id| (id, TcpListener::bind((host, 0)).expect("a port"))).collect();
    listeners.iter().map(|(id, listener)| (*id, listener.local_addr().expect("it is bound"))).collect()
}
