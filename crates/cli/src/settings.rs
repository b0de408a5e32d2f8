//! Arguments as meant: parsed once, checked, and turned into values that cannot be wrong any more.

pub(crate) mod ring_file;
pub(crate) mod server;
pub(crate) mod work;

pub(crate) use ring_file::RingSettings;
