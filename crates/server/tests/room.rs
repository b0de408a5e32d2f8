//! Control when there is no room: what a leader refuses, and what a follower leaves out.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::load::Load;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_replica::Consensus;
use primus_replica::message::{Entry, Kind, Message as Raft, Snapshot};
use primus_replica::replica;
use primus_server::control::{Command, Message, Notice, Timer};
use primus_server::farm::Refusal;
use primus_server::room::{Disks, Room};
use primus_server::{Plan, Server};

const ME: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
const BEHIND: Room = Room { disks: Disks::Free, full_at: None, is_behind: true };

fn started(servers: u64) -> Server {
    let address = |id: u64| (ServerId(id), SocketAddr::from(([127, 0, 0, 1], 7000 + id as u16)));
    let mut server = Plan::new(ME, (1..=servers).map(address).collect::<BTreeMap<_, _>>()).server([]);
    step(&mut server, Input::Command(Command::Boot));
    server
}

/// Takes a step, with a disk that writes at once. What came of it?
fn step(server: &mut Server, input: Input<Server>) -> Vec<Output<Server>> {
    let (mut out, mut all, mut next) = (Outbox::new(), Vec::new(), vec![input]);
    while let Some(input) = next.pop() {
        server.step(Moment::START, input, &mut out);
        for output in out.drain() {
            if let Output::Persist { token, .. } = output {
                next.push(Input::Persisted(token));
            }
            all.push(output);
        }
    }
    all
}

/// The only server of its cluster, which leads.
fn leading() -> Server {
    let mut server = started(1);
    for _ in 0..100 {
        if server.leader() == Some(ME) {
            return server;
        }
        step(&mut server, Input::Timer(Timer::Leaderless));
    }
    panic!("nobody leads");
}

fn tell(server: &mut Server, room: Room) {
    assert_eq!(step(server, Input::Command(Command::Room(room))).len(), 0);
}

/// Writes. Why is that refused, if it is?
fn refusal(server: &mut Server, brings_content: bool) -> Option<Refusal> {
    let entries = vec![Bytes::from_static(b"x")];
    let outputs = step(server, Input::Command(Command::Write(entries.clone(), brings_content)));
    let refusals = outputs.into_iter().filter_map(|output| match output {
        Output::Notify(Notice::NoRoom(refusal, refused)) => {
            assert_eq!(refused, entries);
            Some(refusal)
        }
        _ => None,
    });
    refusals.last()
}

#[test]
fn a_leader_refuses_writes_for_want_of_room_and_says_which() {
    let mut server = leading();
    let full = |disks| Room { disks, ..Room::default() };
    for (room, expected) in [
        (Room::default(), [None, None]),
        (full(Disks::OwnFull), [Some(Refusal::DiskFull); 2]),
        (full(Disks::MostFull), [Some(Refusal::DisksFull); 2]),
        (BEHIND, [Some(Refusal::Busy); 2]),
        (Room { full_at: Some(5), ..Room::default() }, [Some(Refusal::StateFull(5)), None]),
        (Room::default(), [None, None]),
    ] {
        tell(&mut server, room);
        let before = server.replica().extent().0;
        assert_eq!([true, false].map(|brings| refusal(&mut server, brings)), expected, "{room:?}");
        let taken = expected.iter().filter(|refusal| refusal.is_none()).count() as u64;
        assert_eq!(server.replica().extent().0, before + taken, "{room:?}");
    }
}

#[test]
fn what_the_farm_itself_wants_is_not_refused() {
    let mut server = leading();
    let (before, _) = server.replica().extent();
    tell(&mut server, Room { disks: Disks::OwnFull, full_at: Some(5), is_behind: true });
    step(&mut server, Input::Command(Command::Propose(vec![Bytes::from_static(b"x")])));
    assert_eq!(server.replica().extent().0, before + 1);
}

#[test]
fn who_does_not_lead_says_so_whatever_room_there_is() {
    let mut server = started(3);
    tell(&mut server, BEHIND);
    let outputs = step(&mut server, Input::Command(Command::Write(vec![Bytes::from_static(b"x")], true)));
    let is_told = |output: &Output<Server>| {
        matches!(output, Output::Notify(Notice::Refused(replica::Refusal::NotLeading, _)))
    };
    assert!(outputs.iter().any(is_told), "{outputs:?}");
}

fn raft(kind: Kind) -> Raft {
    Raft {
        kind,
        term: 1,
        log_term: 0,
        index: 0,
        entries: Vec::new(),
        commit: 0,
        commit_term: 0,
        snapshot: None,
        request_snapshot: 0,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
    }
}

fn append() -> Raft {
    Raft { entries: vec![Entry { index: 1, term: 1, data: Bytes::from_static(b"x") }], ..raft(Kind::Append) }
}

fn hears(server: &mut Server, message: Raft) -> Vec<Output<Server>> {
    step(server, Input::Message { from: OTHER, message: Message::Replica(message) })
}

fn answers(outputs: &[Output<Server>]) -> usize {
    let answer = |output: &&Output<Server>| matches!(output, Output::Send { .. } | Output::SendAfter { .. });
    outputs.iter().filter(answer).count()
}

#[test]
fn a_follower_that_is_behind_takes_nothing_of_the_log_and_hears_its_leader() {
    let mut server = started(3);
    hears(&mut server, raft(Kind::Heartbeat));
    assert_eq!(server.leader(), Some(OTHER));
    tell(&mut server, BEHIND);
    let state = Snapshot { index: 5, term: 1, data: Bytes::new() };
    for message in [append(), Raft { snapshot: Some(state), ..raft(Kind::Snapshot) }] {
        let outputs = hears(&mut server, message);
        assert!(matches!(outputs[..], [Output::Ignore(_)]), "{outputs:?}");
    }
    assert_eq!(server.replica().extent().0, 0);
    let beats = (0..3).map(|_| answers(&hears(&mut server, raft(Kind::Heartbeat)))).sum::<usize>();
    assert!(beats > 0, "it says that it lives");
    tell(&mut server, Room::default());
    assert!(answers(&hears(&mut server, append())) > 0);
    assert_eq!(server.replica().extent().0, 1);
}

#[test]
fn disks_are_full_when_no_majority_can_write() {
    let mut server = started(3);
    let full = |is_disk_full| Load { is_disk_full, ..Load::default() };
    let mut say = |from, is_full| {
        let message = Message::Loads(vec![(from, full(is_full))], Vec::new());
        step(&mut server, Input::Message { from, message });
    };
    say(OTHER, true);
    say(ServerId(3), false);
    assert!(!server.are_disks_full(|_| true), "two of three have room");
    assert!(server.are_disks_full(|_| false), "and one of them is not here");
    step(&mut server, Input::Command(Command::Load(full(true))));
    assert!(server.are_disks_full(|_| true), "one of three has room");
    step(&mut server, Input::Command(Command::Load(full(false))));
    let message = Message::Loads(vec![(OTHER, full(false))], Vec::new());
    step(&mut server, Input::Message { from: OTHER, message });
    assert!(!server.are_disks_full(|_| false), "where no disk is full, nobody has to be counted");
}
