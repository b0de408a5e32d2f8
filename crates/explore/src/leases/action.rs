//! What can happen to two servers and two guards.

use primus_core::lease::guard;

use super::FREE_GROUP;
use crate::frame::actions;

actions! {
    /// Something that happens.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    Action {
        Poll(guard: usize, server: usize, is_older: bool) "{}guard {guard} asks server {server}", older(*is_older);
        Answer(guard: usize, is_older: bool) "{}guard {guard} is answered", older(*is_older);
        Confirmed(server: usize) "server {server} is confirmed";
        Tick(server: usize) "server {server} ticks";
        Fire(guard: usize, timer: guard::Timer) "guard {guard} timer {timer}";
        Elect "server 1 leads";
        Resign(guard: usize) "guard {guard} gives up";
        Wish "guard 1 wants {FREE_GROUP}";
        Freeze(process: Process) "{process} freezes";
        Thaw "and goes on";
        Pass(drift: Option<(Process, i64)>) "a tick passes{}", drifting(*drift);
    }
}

actions! {
    /// One of the four.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    Process {
        Server(place: usize) "server {place}";
        Guard(place: usize) "guard {place}";
    }
}

/// A newer question may have overtaken it.
const fn older(is_older: bool) -> &'static str {
    if is_older { "overtaken: " } else { "" }
}

/// One clock may gain or lose a tick.
fn drifting(drift: Option<(Process, i64)>) -> String {
    match drift {
        None => String::new(),
        Some((process, 1..)) => format!(", two for {process}"),
        Some((process, _)) => format!(", but not for {process}"),
    }
}
