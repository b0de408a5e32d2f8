//! Arguments as meant: parsed once, checked, and turned into values that cannot be wrong any more.

pub(crate) mod server;
pub(crate) mod work;
