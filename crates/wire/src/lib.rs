//! What travels on the links, as bytes. Pure: it reads from buffers and writes to buffers, never from sockets.
//!
//! [`frame`] cuts a stream into frames; [`native`] is what primus servers say in them, [`work`] what servers and
//! workers say, and [`join`] what a joiner asks for.

pub mod frame;
pub mod join;
pub mod native;
pub mod work;
