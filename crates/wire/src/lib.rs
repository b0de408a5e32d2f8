//! What travels on the links, as bytes. Pure: it reads from buffers and writes to buffers, never from sockets.
//!
//! [`frame`] cuts a stream into frames; [`native`] is what primus servers say in them, [`work`] what servers and
//! workers say.

pub mod frame;
pub mod native;
pub mod work;
