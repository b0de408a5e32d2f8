//! Free ports below those that the kernel hands out by itself.
//!
//! A dead port among the kernel's own can connect to itself, and any program may be given it at any moment.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use primus_terminal::failure::Failure;

use crate::chance;

const LOWEST: u16 = 15_000;
/// Where the kernel's own ports usually begin.
const KERNELS_OWN: u16 = 32_768;

/// So many ports that nobody listens on, in ascending order.
pub(crate) fn free(count: usize) -> Result<Vec<u16>, Failure> {
    let range: Vec<u16> = (LOWEST..kernels_own()).collect();
    // Two farms that start at once should not try the same ports.
    let chance = chance() as usize % range.len();
    let candidates = range[chance..].iter().chain(&range[..chance]);
    // All are held until all are found.
    let held: Vec<(u16, TcpListener)> =
        candidates.filter_map(|port| Some((*port, listen(*port)?))).take(count).collect();
    let mut ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
    ports.sort_unstable();
    if ports.len() < count {
        return Err(Failure::failed("ports", format!("{count} free ports cannot be found"), "end other programs"));
    }
    Ok(ports)
}

/// Is nobody listening there?
pub(crate) fn is_free(port: u16) -> bool {
    listen(port).is_some()
}

fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

fn kernels_own() -> u16 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|port| port.parse().ok());
    // Some hosts give nearly all ports to the kernel; then there is nothing to choose from.
    first.filter(|first| *first > LOWEST + 1_000).unwrap_or(KERNELS_OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_free_different_and_below_the_kernels_own() {
        let ports = free(50).unwrap();
        assert!(ports.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ports.iter().all(|port| *port < kernels_own()));
    }
}
