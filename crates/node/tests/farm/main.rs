//! Whole farms in one process: three servers and two workers, each on a thread of its own, with real sockets, real disks and
//! real commands.

mod bounds;
mod changes;
mod envoys;
mod loans;
mod planted;
mod stage;
mod work;
