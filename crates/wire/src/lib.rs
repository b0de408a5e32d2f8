//! What travels on the links, as bytes. Pure: it reads from buffers and writes to buffers, never from sockets.
//!
//! [`frame`] cuts a stream into frames; [`native`] is what primus servers say in them, [`work`] what servers and
//! workers say. [`ring_amqp`] is a dialect: what members of a ring say through the queues of a broker.

pub mod frame;
pub mod native;
pub mod ring_amqp;
pub mod work;
