//! Three servers in one program: one of them leads, all of them can be asked, and when the leader dies another one leads.
//!
//! ```text
//! cargo run -p primus-node --example three_nodes
//! ```

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use primus_node::handle::Leadership;
use primus_node::server::{Server, Settings};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await
}

/// The whole example.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("primus-three-nodes-{}", std::process::id()));
    let mut servers = start_three("three", &dir).await?;
    let first = leader_after(&servers[0], 0).await?;
    println!("server {:?} leads in term {}, because of: {}", first.leader, first.term.0, first.reason.name());

    // Any server can be asked; those that follow pass it on.
    for server in &servers {
        server.put("last writer", server.id().to_string()).await?;
        assert_eq!(server.get("last writer").await?.as_deref(), Some(server.id().to_string().as_bytes()));
    }

    // Dropping a server ends it at once, as if it had been killed.
    let place = servers.iter().position(|server| Some(server.id()) == first.leader).ok_or("nobody leads")?;
    drop(servers.remove(place));
    let second = leader_after(&servers[0], first.term.0).await?;
    println!("server {:?} leads in term {}, because of: {}", second.leader, second.term.0, second.reason.name());
    assert_ne!(second.leader, first.leader);
    assert_eq!(servers[0].get("last writer").await?.as_deref(), Some(b"3".as_slice()), "nothing is lost");

    // Stopping it lets another one lead first.
    for server in servers {
        server.stop().await?;
    }
    Ok(std::fs::remove_dir_all(&dir)?)
}

/// The next leader after this term, as a server sees it.
async fn leader_after(server: &Server, term: u64) -> Result<Leadership, Box<dyn Error>> {
    let mut leadership = server.leadership();
    let leader = leadership.wait_for(|now| now.leader.is_some() && now.term.0 > term).await?;
    Ok(*leader)
}

/// Three servers of one farm, on free ports of this host.
async fn start_three(farm: &str, dir: &Path) -> Result<Vec<Server>, Box<dyn Error>> {
    let addresses = free_addresses()?;
    let mut servers = Vec::new();
    for (id, _) in &addresses {
        let own: PathBuf = dir.join(id.to_string());
        servers.push(Server::start(Settings::new(farm, *id, addresses.clone(), own)).await?);
    }
    Ok(servers)
}

fn free_addresses() -> Result<Vec<(u64, SocketAddr)>, Box<dyn Error>> {
    // Not 127.0.0.1: callers get their ports there, and one could take that of a server which is down.
    let listeners = (1..=3).map(|id| Ok((id, TcpListener::bind("127.0.16.2:0")?)));
    let listeners: Vec<(u64, TcpListener)> = listeners.collect::<std::io::Result<_>>()?;
    let addresses = listeners.iter().map(|(id, listener)| Ok((*id, listener.local_addr()?)));
    Ok(addresses.collect::<std::io::Result<_>>()?)
}
