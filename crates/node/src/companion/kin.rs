//! Processes that nobody may leave behind.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

/// Kills all children of this process and, because it adopts them, theirs; returns when there is none.
pub(super) fn kill_children() {
    loop {
        own_children().into_iter().for_each(kill);
        // Each death may have brought new children, and each may have forked before it was hit: look again.
        if wait(WaitOptions::empty()).is_err_and(|error| error != rustix::io::Errno::INTR) {
            return;
        }
    }
}

/// The same, but whoever leads this group is only killed: its parent wants to know how it ended.
pub(super) fn kill_children_but(group: Pid) {
    loop {
        let children = own_children();
        children.iter().for_each(|child| kill(*child));
        let others: Vec<Pid> = children.into_iter().filter(|child| *child != group).collect();
        if others.is_empty() {
            return;
        }
        for other in others {
            _ = rustix::process::waitpid(Some(other), WaitOptions::empty());
        }
    }
}

/// Kills those children of this process, and theirs, that have this in their environment; returns when there is none.
pub(crate) fn kill_children_with(variable: &str) {
    let is_meant = |child: &Pid| {
        let environment = fs::read(format!("/proc/{}/environ", child.as_raw_nonzero())).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    loop {
        let children: Vec<Pid> = own_children().into_iter().filter(is_meant).collect();
        if children.is_empty() {
            return;
        }
        for child in children {
            kill(child);
            _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
        }
    }
}

/// The system lists children by thread.
fn own_children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let listed = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let listed: Vec<String> = listed.collect();
    let words = listed.iter().flat_map(|words| words.split_whitespace());
    words.filter_map(|word| word.parse().ok().and_then(Pid::from_raw)).collect()
}

/// Kills every process of a session, and returns when none is left. A companion leads a session of its own, so this finds
/// the tasks of one that was killed itself.
pub(crate) fn kill_session(session: Pid) {
    loop {
        let members = members_of(session);
        if members.is_empty() {
            return;
        }
        members.into_iter().for_each(kill);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Takes leave of those dead children of this process that were in this session.
pub(crate) fn bury_session(session: Pid) {
    for child in own_children() {
        if session_of(child).is_some_and(|(_, own)| own == session) {
            _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
        }
    }
}

fn members_of(session: Pid) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).filter(|pid| is_alive_in(session, *pid).unwrap_or(false)).collect()
}

/// What is dead and only waits for its parent to notice cannot be killed again.
fn is_alive_in(session: Pid, pid: Pid) -> Option<bool> {
    let (is_dead, own_session) = session_of(pid)?;
    Some(!is_dead && own_session == session)
}

/// Is it dead, and in which session is it?
fn session_of(pid: Pid) -> Option<(bool, Pid)> {
    session_in(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

/// The same, from what the system says of it. What vanishes at this very moment is in session -1, which is none.
fn session_in(status: &str) -> Option<(bool, Pid)> {
    // The name of a program may contain anything, so look behind it.
    let mut words = status.rsplit_once(") ")?.1.split(' ');
    let is_dead = matches!(words.next()?, "Z" | "X");
    let session = words.nth(2)?.parse().ok().filter(|session| *session > 0)?;
    Some((is_dead, Pid::from_raw(session)?))
}

fn kill(pid: Pid) {
    // It may have gone by itself.
    _ = kill_process(pid, Signal::KILL);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_vanishes_while_one_looks_is_in_no_session() {
        let found = |status| session_in(status).map(|(is_dead, session)| (is_dead, session.as_raw_nonzero().get()));
        assert_eq!(found("7 (a) b) S 1 7 5 0 -1"), Some((false, 5)));
        assert_eq!(found("7 (sh) Z 1 7 5 0 -1"), Some((true, 5)));
        assert_eq!(found("7 (sh) X 0 -1 -1 0 -1"), None);
        assert_eq!(found("2 (kthreadd) S 0 0 0 0 -1"), None);
        assert_eq!(found(""), None);
    }
}
