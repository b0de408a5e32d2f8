//! Explorations: every state that a small setting can reach, visited by stateright.
//!
//! There are six settings: an election ([`elections`]), the founding of a cluster ([`founding`]), three whole servers on a model of the log ([`servers`]), two guards that
//! want the same ([`leases`]), two farms that lend workers ([`loans`]), and what a guest does for one ([`guests`]). What they have
//! in common is the [`frame`]. Nothing depends on this package: only its own tests use it, so that the checker is in nothing that
//! ships.

pub mod elections;
pub mod founding;
pub mod frame;
pub mod guests;
mod host;
pub mod leases;
pub mod loans;
pub mod servers;
