//! `primus ring`: a ring of real nodes, which elects a leader and keeps no log.
//!
//! [`member`] is the loop of one member, whatever carries its messages: [`tcp`] between sockets of one host, [`amqp`] through
//! a broker, where foreign members can take part. The machine itself is in `primus-core`. Around that are the commands:
//! [`args`] as typed, [`settings`] from the ring's file, [`commands`] that run nodes, and what people see of them.

pub mod amqp;
pub mod args;
pub mod commands;
pub mod member;
mod output;
pub mod settings;
pub mod tcp;
