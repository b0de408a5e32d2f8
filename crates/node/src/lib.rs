//! The shell of primus, where its machines meet disks, sockets and clocks. Nothing here decides anything about elections, the log
//! or tasks; machines do. Programs that want servers, workers or clients use the package `primus-farm`, which hides all this.
//!
//! - [`server`] starts and stops a server; a [`handle::Handle`] of it can be cloned: `put`, `get`, `submit`, `job`, `group`. What
//!   only the leader knows is asked over the servers' own links.
//! - [`node`] is control's loop; [`links`] connects servers, [`store`] keeps the log on disk, [`farm`] is the thread of the ledger.
//! - [`group`] guards a future: it runs while this process holds a lease, and is dropped before another one may begin.
//! - [`worker`] runs tasks: commands through a [`companion`], calls of [`executor::Kinds`] inside the process.

pub mod budget;
pub mod clock;
pub mod companion;
pub mod credentials;
mod dialling;
pub mod disk;
mod door;
pub mod elections;
pub mod events;
pub mod executor;
pub mod farm;
pub mod files;
mod fleet;
pub mod founding;
pub mod founding_file;
pub mod group;
pub mod guarded;
pub mod handle;
pub mod heard;
pub mod hooks;
mod introductions;
mod invitations;
pub mod jobs;
pub mod joining;
mod late;
pub mod leader_search;
mod leases;
mod line;
pub mod link_faults;
pub mod links;
pub mod load;
pub mod meters;
mod names;
pub mod neighbours;
pub mod node;
mod outgoing;
pub mod outputs;
mod pending_writes;
pub mod private;
mod proposal_queue;
mod questions;
mod reads;
pub mod request_links;
mod requests;
pub mod results;
pub mod server;
pub mod session;
pub mod sockets;
pub mod steps;
pub mod store;
mod timers;
pub mod umask;
mod unidentified;
pub mod watched;
pub mod worker;
