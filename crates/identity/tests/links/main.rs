//! Names on links, end to end but in memory: both ends of handshakes, and whatever bytes a link may bring.

#[cfg(test)]
mod any_bytes;
#[cfg(test)]
mod handshakes;
#[cfg(test)]
mod pair;
