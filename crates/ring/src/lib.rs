//! `primus ring`: a ring of real nodes, which elects a leader and keeps no log.
//!
//! [`member`] is the loop of one member, whatever carries its messages: [`tcp`] between sockets of one host, [`amqp`] through
//! a broker, where foreign members can take part: [`dialect`] is what they say. The machine itself is in `primus-core`. Around
//! that are the commands: [`args`] as typed, [`settings`] from the ring's file, [`commands`] that run nodes, and what people
//! see of them.

#[cfg(feature = "nodes")]
pub mod amqp;
#[cfg(feature = "nodes")]
pub mod args;
#[cfg(feature = "nodes")]
pub mod commands;
pub mod dialect;
#[cfg(feature = "nodes")]
pub mod member;
#[cfg(feature = "nodes")]
mod output;
#[cfg(feature = "nodes")]
pub mod settings;
#[cfg(feature = "nodes")]
pub mod tcp;
