//! The shell: where the machines meet disks, sockets and clocks.
//!
//! Nothing here decides anything about elections or the log; machines do. The shell carries out their outputs and brings
//! them their inputs. Start with [`node`], the loop; [`links`] connects servers, [`store`] keeps the log on disk. A ring
//! without a log has a loop of its own, [`ring`], and may speak through a broker, [`amqp`].

pub mod amqp;
pub mod clock;
pub mod companion;
pub mod cuts;
pub mod disk;
pub mod elections;
mod entering;
pub mod events;
pub mod executor;
pub mod farm;
pub mod guarded;
pub mod handle;
pub mod hooks;
pub mod links;
pub mod load;
pub mod meters;
pub mod node;
mod outgoing;
pub mod outputs;
mod parked;
mod reads;
pub mod results;
pub mod ring;
pub mod sockets;
pub mod store;
mod strangers;
mod timers;
pub mod worker;
