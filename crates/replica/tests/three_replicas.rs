//! Three replicas in one process: messages in order, disks that are slow on purpose.

mod common;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::machine::Input;
use primus_replica::consensus::Consensus;
use primus_replica::message::{Kind, Message, Record};
use primus_replica::replica::Tick;
use primus_replica::{Command, Notice, Replica, Role};

type World = common::World<Replica>;

/// More ticks than any replica waits before it campaigns by itself.
const BACKSTOP_TICKS: usize = 60;

fn text(words: &[&'static str]) -> Vec<Bytes> {
    words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect()
}

/// A message that says nothing else.
fn words(kind: Kind, term: u64) -> Message {
    Message {
        kind,
        term,
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

fn propose(world: &mut World, id: u64, word: &'static str) {
    world.command(id, Command::Propose(vec![Bytes::from_static(word.as_bytes())]));
}

#[test]
fn the_one_that_is_told_to_campaign_leads_and_replicates() {
    let mut world = World::new(3);
    world.command(2, Command::Campaign);
    assert_eq!(world.leaders(), [2]);
    propose(&mut world, 2, "a");
    propose(&mut world, 2, "b");
    world.step(2, Input::Timer(Tick));
    world.settle();
    for id in 1..=3 {
        assert_eq!(world.host(id).committed, text(&["a", "b"]), "replica {id}");
    }
}

#[test]
fn a_vote_waits_for_the_disk() {
    let mut world = World::new(3);
    world.is_disk_fast = false;
    world.command(2, Command::Campaign);
    // Pre-votes promise nothing and need no disk; the candidate's own vote does.
    assert!(world.leaders().is_empty());
    while world.sync(2) {}
    world.settle();
    assert!(world.leaders().is_empty(), "the others' votes are not durable yet");
    assert!(world.host(1).waiting.iter().any(|(_, _, message)| message.kind == Kind::RequestVoteResponse));
    while world.sync(1) {
        world.settle();
    }
    assert_eq!(world.leaders(), [2]);
}

#[test]
fn a_leader_stays_although_no_disk_takes_anything() {
    let mut world = World::new(3);
    world.command(2, Command::Campaign);
    world.is_disk_fast = false;
    propose(&mut world, 2, "later");
    for _ in 0..4 * BACKSTOP_TICKS {
        (1..=3).for_each(|id| world.step(id, Input::Timer(Tick)));
        world.settle();
    }
    assert_eq!(world.leaders(), [2], "it is heard, and hears the others");
    assert!(world.hosts.iter().all(|host| host.committed.is_empty()), "nobody has it on disk");
    assert!(world.hosts.iter().all(|host| host.writing.len() == 1), "what has nothing to write does not pile up");
    world.is_disk_fast = true;
    world.settle();
    world.step(2, Input::Timer(Tick));
    world.settle();
    for id in 1..=3 {
        assert_eq!(world.host(id).committed, text(&["later"]), "replica {id}");
    }
}

#[test]
fn a_sign_of_life_waits_for_the_term_that_it_speaks_of() {
    let mut world = World::new(3);
    world.command(2, Command::Campaign);
    world.is_disk_fast = false;
    let heartbeat = Message { context: Bytes::from_static(b"a read"), ..words(Kind::Heartbeat, 7) };
    world.step(1, Input::Message { from: ServerId(3), message: heartbeat });
    let answers = |world: &World| world.under_way.iter().filter(|(.., message)| message.term == 7).count();
    assert_eq!(answers(&world), 0, "a restart would forget the term");
    assert!(world.sync(1));
    assert_eq!(answers(&world), 1);
}

#[test]
fn voters_that_believe_in_a_leader_refuse_until_they_forget_it() {
    let mut world = World::new(3);
    world.command(3, Command::Campaign);
    world.crash(3);
    world.command(2, Command::Campaign);
    assert!(world.leaders().is_empty(), "1 still believes in 3");
    world.command(1, Command::ForgetLeader);
    world.command(2, Command::Campaign);
    assert_eq!(world.leaders(), [2]);
    assert_eq!(world.host(2).replica.as_ref().unwrap().view().2.0, 2, "the next term, not the one after");
}

#[test]
fn an_entry_that_a_majority_has_on_disk_survives_any_crash() {
    let mut world = World::new(3);
    world.command(3, Command::Campaign);
    propose(&mut world, 3, "kept");
    for id in 1..=3 {
        world.crash(id);
    }
    for id in 1..=3 {
        world.restart(id);
    }
    world.command(1, Command::Campaign);
    assert_eq!(world.leaders(), [1]);
    assert_eq!(world.host(1).committed, text(&["kept"]));
}

#[test]
fn a_candidate_with_a_shorter_log_loses() {
    let mut world = World::new(3);
    world.command(3, Command::Campaign);
    world.crash(1);
    propose(&mut world, 3, "unknown to 1");
    world.crash(3);
    world.restart(1);
    world.command(2, Command::ForgetLeader);
    world.command(1, Command::Campaign);
    assert!(world.leaders().is_empty());
    world.command(2, Command::Campaign);
    assert_eq!(world.leaders(), [2]);
    assert_eq!(world.host(1).committed, text(&["unknown to 1"]));
}

#[test]
fn reads_and_transfers_go_through_the_leader() {
    let mut world = World::new(3);
    world.command(3, Command::Campaign);
    world.command(3, Command::Read(7));
    let readable = world.host(3).notices.iter().any(|notice| matches!(notice, Notice::Readable(7, 1)));
    assert!(readable, "{:?}", world.host(3).notices);
    world.command(3, Command::Transfer(ServerId(1)));
    assert_eq!(world.leaders(), [1]);
}

#[test]
fn only_the_leader_may_order_a_campaign() {
    let mut world = World::new(3);
    world.command(3, Command::Campaign);
    let order = words(Kind::TimeoutNow, 1);
    world.step(1, Input::Message { from: ServerId(2), message: order });
    world.settle();
    assert_eq!(world.leaders(), [3]);
}

#[test]
fn a_follower_that_is_too_far_behind_gets_the_whole_state() {
    let mut world = World::new(3);
    world.command(3, Command::Campaign);
    world.crash(1);
    for word in ["a", "b", "c", "d", "e", "f"] {
        propose(&mut world, 3, word);
    }
    world.command(3, Command::Compact(7, Bytes::from_static(b"abcdef")));
    world.restart(1);
    for _ in 0..4 {
        world.step(3, Input::Timer(Tick));
        world.settle();
    }
    let restored = world.host(1).notices.iter().find_map(|notice| match notice {
        Notice::Restored(snapshot) => Some(snapshot.data.clone()),
        _ => None,
    });
    assert_eq!(restored, Some(Bytes::from_static(b"abcdef")));
    propose(&mut world, 3, "g");
    assert!(world.host(1).replica.as_ref().unwrap().log().last() >= 8);
}

#[test]
fn a_state_that_got_lost_is_sent_again() {
    let mut world = World::new(3);
    world.command(1, Command::Campaign);
    world.crash(3);
    ["a", "b", "c"].into_iter().for_each(|word| propose(&mut world, 1, word));
    world.command(1, Command::Compact(4, Bytes::from_static(b"abc")));
    world.restart(3);
    let mut sent = 0;
    for _ in 0..3 * BACKSTOP_TICKS {
        world.step(1, Input::Timer(Tick));
        while let Some((from, to, message)) = world.under_way.pop_front() {
            let is_state = message.kind == Kind::Snapshot;
            sent += u32::from(is_state);
            if !is_state || sent > 1 {
                world.step(to.0, Input::Message { from, message });
            }
            while (1..=3).any(|id| world.sync(id)) {}
        }
    }
    assert_eq!(sent, 2);
    assert!(world.host(3).notices.iter().any(|notice| matches!(notice, Notice::Restored(_))));
}

#[test]
fn nobody_campaigns_before_its_new_state_is_durable() {
    let mut world = World::new(3);
    world.command(1, Command::Campaign);
    world.crash(3);
    ["a", "b", "c"].into_iter().for_each(|word| propose(&mut world, 1, word));
    world.command(1, Command::Compact(4, Bytes::from_static(b"abc")));
    world.restart(3);
    world.is_disk_fast = false;
    world.command(1, Command::Propose(vec![Bytes::from_static(b"d")]));
    for _ in 0..2 * BACKSTOP_TICKS {
        world.step(1, Input::Timer(Tick));
        world.settle();
        while world.sync(1) || world.sync(2) {}
    }
    assert!(world.host(3).notices.iter().any(|notice| matches!(notice, Notice::Restored(_))));
    // It would look for entries that are gone.
    world.command(3, Command::Campaign);
    (0..3 * BACKSTOP_TICKS).for_each(|_| world.step(3, Input::Timer(Tick)));
    assert_eq!(world.host(3).replica.as_ref().map(|replica| replica.view().0), Some(Role::Follower));
    world.is_disk_fast = true;
    world.settle();
    world.command(3, Command::Campaign);
    assert_eq!(world.leaders(), [1], "pre-vote still protects a live leader");
}

#[test]
fn a_snapshot_never_carries_a_token_that_is_not_written_yet() {
    let mut world = World::new(1);
    world.command(1, Command::Campaign);
    propose(&mut world, 1, "a");
    world.is_disk_fast = false;
    world.step(1, Input::Command(Command::Propose(vec![Bytes::from_static(b"b")])));
    let (writing, _) = world.host(1).writing.back().expect("an entry to write").clone();
    world.step(1, Input::Command(Command::Compact(2, Bytes::from_static(b"a"))));
    let (token, records) = world.host(1).writing.back().expect("a snapshot to write").clone();
    assert!(matches!(records.as_slice(), [Record::Snapshot(_)]));
    assert!(token < writing, "{token:?} would say that {writing:?} is durable");
}
