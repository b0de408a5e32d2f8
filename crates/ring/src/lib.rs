//! A ring of real nodes, which elects a leader and keeps no log.
//!
//! [`member`] is the loop of one member, whatever carries its messages: [`tcp`] between sockets of one host, [`amqp`] through
//! a broker, where foreign members can take part. The machine itself is in `primus-core`.

pub mod amqp;
pub mod member;
pub mod tcp;
