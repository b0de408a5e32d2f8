//! primus in your program: servers that elect a leader and agree, workers that run tasks, and a client for both.
//!
//! # A farm in one program
//!
//! A *server* votes and keeps the ledger of jobs; a *worker* runs tasks. Both have threads of their own, so whatever your program
//! does, they are not late. Usually there are three servers on three hosts; one alone is a farm, too:
//!
//! ```
//! use primus_farm::{Job, Server};
//!
//! # fn free_address() -> std::io::Result<std::net::SocketAddr> { std::net::TcpListener::bind("127.0.0.1:0")?.local_addr() }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = std::env::temp_dir().join(format!("primus-farm-page-{}", std::process::id()));
//! # let address = free_address()?;
//! let server = Server::builder("north", 1, [(1, address)], dir.join("server")).start().await?;
//!
//! // A worker beside it knows a kind of task. A handler may take its time; `blocking_kind` may also block.
//! let worker = server.worker("counter", dir.join("worker"));
//! let worker = worker.kind("shout", async |task| Ok(task.text().to_uppercase())).start().await?;
//!
//! // One task for each line, run by whichever worker has room, and run again if a worker dies.
//! let job = server.client().submit(Job::kind("shout", "").lines(["one", "two"])).await?;
//! assert!(job.wait().await?.is_success());
//! let said: Vec<String> = job.results().await?.into_iter().map(|task| task.stdout).collect();
//! assert_eq!(said, ["ONE", "TWO"]);
//!
//! worker.drain().await?;
//! server.stop().await?;
//! # Ok(std::fs::remove_dir_all(&dir)?)
//! # }
//! ```
//!
//! # Three servers
//!
//! Each program is told of all servers. One of them leads; all of them can be asked, because what a server cannot answer travels
//! to the leader over the servers' own links. What is acknowledged is on the disks of a majority.
//!
//! ```no_run
//! use primus_farm::{Network, Place, Server};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let at = |address: &str| address.parse::<Place>();
//! let servers = [(1, at("10.0.0.1:7460")?), (2, at("10.0.0.2:7460")?), (3, at("host-3.example:7460")?)];
//! let server = Server::builder("north", 1, servers, "/var/lib/north").network(Network::Lan).start().await?;
//!
//! // Who leads, in which term, and why; every change is announced.
//! let leader = server.leadership().wait_for(|now| now.id.is_some()).await;
//! println!("{leader:?}");
//!
//! // Small values on which all servers agree.
//! let client = server.client();
//! client.put("colour", "green").await?;
//! assert_eq!(client.get("colour").await?.as_deref(), Some(b"green".as_slice()));
//! # Ok(())
//! # }
//! ```
//!
//! # Only one at a time
//!
//! A [`Group`] guards a future: it runs in one of the candidates, and is dropped before another candidate may begin, whichever
//! process freezes, dies or is cut off.
//!
//! ```no_run
//! # use primus_farm::Server;
//! # async fn example(server: Server) -> Result<(), Box<dyn std::error::Error>> {
//! server.group("nightly").guard(async |turn| println!("my turn, in term {}", turn.term())).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # A client that is not a server
//!
//! [`Client::find`] finds the farm as the commands do, and asks over HTTP. Its calls are those of [`Server::client`].
//!
//! ```no_run
//! use primus_farm::{Client, Job};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::find()?;
//! let job = client.submit(Job::command(["convert", "{}", "{}.png"]).lines(["a.jpg", "b.jpg"]).retries(2)).await?;
//! println!("job {}: {:?}", job.id(), job.wait().await?);
//!
//! // A worker of that farm, in this program. One that runs commands needs a companion: see `companion`.
//! let worker = client.worker("mine", "./mine").await?.blocking_kind("sum", |task| Ok(task.text().len().to_string()));
//! worker.start().await?.ended().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # An election of your own
//!
//! [`election`] tries an algorithm of yours in a laboratory, in hundreds of runs with crashes and partitions, and then has it
//! lead a real farm.
//!
//! # Examples
//!
//! Each runs by itself (`cargo run -p primus-farm --example NAME`): `three_servers`, `farm_in_a_program`, `leader_only_cron`,
//! `own_kind`, `write_your_own_election`; `submit_jobs` wants a farm that runs, such as that of `primus up`.

mod client;
mod companion;
pub mod election;
mod group;
mod handle;
mod job;
mod leadership;
mod server;
mod settings;
mod trouble;
mod worker;

pub use client::{Client, ConnectError, ValueError};
pub use companion::companion;
pub use group::{Group, GuardError};
pub use handle::{JobError, JobHandle, JobReport, TaskReport, TaskState};
pub use job::{Job, SubmitError};
pub use leadership::{Leader, Leadership};
pub use primus_core::ServerId;
pub use primus_core::ledger::{GroupRank, JobId, TaskId};
pub use primus_core::place::{Place, PlaceError};
pub use primus_node::group::Turn;
pub use server::{Server, ServerBuilder, StartError, StopError};
pub use settings::{LoadSource, Network, Rank};
pub use worker::{Task, Worker, WorkerBuilder, WorkerError, WorkerEvent, WorkerEvents};
