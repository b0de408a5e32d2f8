//! Three servers in one program: one of them leads, all of them can be asked, and when the leader dies another one leads.
//!
//! ```text
//! cargo run -p primus-farm --example three_servers
//! ```

use std::error::Error;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use primus_farm::{Leader, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run().await
}

/// The whole example.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("primus-three-servers-{}", std::process::id()));
    let mut servers = start_three("three", &dir).await?;
    let first = leader_after(&servers[0], 0).await?;
    println!("server {} leads in term {}, because of: {}", shown(first), first.term, first.reason);

    // Any server can be asked; those that follow pass it on.
    for server in &servers {
        let (client, own) = (server.client(), server.id().to_string());
        client.put("last writer", own.clone()).await?;
        assert_eq!(client.get("last writer").await?.as_deref(), Some(own.as_bytes()));
    }

    // Dropping a server ends it at once, as if it had been killed.
    let place = servers.iter().position(|server| Some(server.id()) == first.id).ok_or("no server leads")?;
    drop(servers.remove(place));
    let second = leader_after(&servers[0], first.term).await?;
    println!("server {} leads in term {}, because of: {}", shown(second), second.term, second.reason);
    assert_ne!(second.id, first.id);
    let value = servers[0].client().get("last writer").await?;
    assert_eq!(value.as_deref(), Some(b"3".as_slice()), "nothing is lost");

    // Stopping a server lets another one lead first.
    for server in servers {
        server.stop().await?;
    }
    Ok(std::fs::remove_dir_all(&dir)?)
}

fn shown(leader: Leader) -> String {
    leader.id.map_or_else(|| "none".to_owned(), |id| id.to_string())
}

/// The next leader after this term, as a server sees it.
async fn leader_after(server: &Server, term: u64) -> Result<Leader, Box<dyn Error>> {
    let leader = server.leadership().wait_for(|now| now.id.is_some() && now.term > term).await;
    Ok(leader.ok_or("the server has ended")?)
}

/// Three servers of one farm, on free ports of this host.
async fn start_three(farm: &str, dir: &Path) -> Result<Vec<Server>, Box<dyn Error>> {
    let addresses = free_addresses()?;
    let mut servers = Vec::new();
    for (id, _) in &addresses {
        let own = dir.join(id.to_string());
        servers.push(Server::builder(farm, *id, addresses.clone(), own).start().await?);
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
