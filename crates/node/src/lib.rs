//! primus as a library: put a server into your program, and know who leads.
//!
//! Three programs that are told of each other elect a leader, agree on values, and run what only one of them may run:
//!
//! ```no_run
//! use primus_node::server::{Server, Settings};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = [(1, "10.0.0.1:7460".parse()?), (2, "10.0.0.2:7460".parse()?), (3, "10.0.0.3:7460".parse()?)];
//! let server = Server::start(Settings::new("north", 1, servers, "/var/lib/north")).await?;
//!
//! // Who leads, in which term, and why; every change is announced.
//! let mut leadership = server.leadership();
//! leadership.wait_for(|now| now.leader.is_some()).await?;
//!
//! // Any server can be asked. What is acknowledged is on the disks of a majority.
//! server.put("colour", "green").await?;
//! assert_eq!(server.get("colour").await?.as_deref(), Some(b"green".as_slice()));
//!
//! // Runs at one of them at a time, and moves when that one ends.
//! server.group("nightly").guard(async |turn| println!("my turn, in term {}", turn.term())).await?;
//!
//! server.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`server`] starts and stops a server; a [`handle::Handle`] of it can be cloned: `put`, `get`, `submit`, `group`.
//! - [`group`] guards a future: it runs while this process holds a lease, and is dropped before another one may begin.
//! - [`worker`] runs tasks of the farm inside your program, also of kinds of your own ([`executor::Kinds`]).
//!
//! The examples run by themselves: `three_nodes`, `leader_only_cron`, `write_your_own_election`, `own_kind`.
//!
//! Below that is the shell, where the machines meet disks, sockets and clocks. Nothing here decides anything about elections
//! or the log; machines do. [`node`] is the loop; [`links`] connects servers, [`store`] keeps the log on disk.

pub mod budget;
pub mod clock;
pub mod companion;
pub mod cuts;
mod dialling;
pub mod disk;
pub mod elections;
mod entering;
pub mod events;
pub mod executor;
pub mod farm;
pub mod files;
pub mod group;
pub mod guarded;
pub mod handle;
pub mod heard;
pub mod hooks;
pub mod jobs;
mod late;
mod leases;
pub mod links;
pub mod load;
pub mod meters;
mod neighbours;
pub mod node;
mod outgoing;
pub mod outputs;
mod parked;
pub mod private;
mod questions;
mod reads;
mod requests;
pub mod results;
pub mod server;
pub mod sockets;
pub mod steps;
pub mod store;
mod strangers;
mod timers;
pub mod umask;
pub mod watched;
pub mod worker;
