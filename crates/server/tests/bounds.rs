//! What a stranger can say on a server's link, as if it came from a peer: nothing of it reaches the engine or an election,
//! and nothing of it is written down.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use primus_core::bounds::{LEAP_MAX, NUMBER_MAX};
use primus_core::election::{bully, ring};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::rank::Standing;
use primus_core::{Round, ServerId};
use primus_replica::Consensus;
use primus_replica::message::{Entry, Kind, Message as Raft, Snapshot};
use primus_server::control::{Command, Message, Notice, Timer};
use primus_server::words::Words;
use primus_server::{Plan, Server, any_election};

const LIAR: ServerId = ServerId(2);

fn plan() -> Plan {
    let address = |id: u64| (ServerId(id), SocketAddr::from(([127, 0, 0, 1], 7000 + id as u16)));
    Plan::new(ServerId(1), BTreeMap::from([address(1), address(2), address(3)]))
}

fn server() -> Server {
    let mut server = plan().server(Vec::new());
    step(&mut server, Input::Command(Command::Boot));
    server
}

fn step(server: &mut Server, input: Input<Server>) -> Vec<Output<Server>> {
    let mut out = Outbox::new();
    server.step(Moment::START, input, &mut out);
    out.drain().collect()
}

fn hears(server: &mut Server, message: Message<any_election::Message>) -> Vec<Output<Server>> {
    step(server, Input::Message { from: LIAR, message })
}

fn raft(kind: Kind, term: u64) -> Raft {
    Raft {
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

fn is_refused(outputs: &[Output<Server>]) -> bool {
    matches!(outputs, [Output::Notify(Notice::Strange(LIAR, _))])
}

#[test]
fn no_forged_message_reaches_the_engine() {
    let kinds = [
        Kind::Append,
        Kind::AppendResponse,
        Kind::RequestVote,
        Kind::RequestVoteResponse,
        Kind::Snapshot,
        Kind::Heartbeat,
        Kind::HeartbeatResponse,
        Kind::TimeoutNow,
        Kind::ReadIndex,
        Kind::ReadIndexResponse,
        Kind::RequestPreVote,
        Kind::RequestPreVoteResponse,
    ];
    let mut server = server();
    for term in [LEAP_MAX + 1, NUMBER_MAX, NUMBER_MAX + 1, u64::MAX - 1, u64::MAX] {
        for kind in kinds {
            let outputs = hears(&mut server, Message::Replica(raft(kind, term)));
            assert!(is_refused(&outputs), "{kind:?} of term {term}: {outputs:?}");
        }
    }
    let gap =
        Raft { index: 7, entries: vec![Entry { index: 8, term: 1, data: Bytes::new() }], ..raft(Kind::Append, 1) };
    let nameless = raft(Kind::ReadIndex, 0);
    let beyond = Raft { commit: 26, ..raft(Kind::Heartbeat, 1) };
    let own = Raft { term: 0, ..raft(Kind::Append, 1) };
    for forged in [gap, nameless, beyond, own] {
        let outputs = hears(&mut server, Message::Replica(forged.clone()));
        assert!(is_refused(&outputs), "{forged:?}: {outputs:?}");
    }
    assert_eq!(server.replica().view().2.0, 0, "its term is what it was");
    // Whoever says it, the next election takes place.
    let outputs = step(&mut server, Input::Timer(Timer::Leaderless));
    assert!(outputs.iter().any(|output| matches!(output, Output::Send { .. })), "{outputs:?}");
}

#[test]
fn no_forged_round_reaches_an_election() {
    let mut server = server();
    for round in [LEAP_MAX + 1, u64::MAX].map(Round) {
        for kind in [bully::Kind::Election, bully::Kind::Alive, bully::Kind::Coordinator] {
            let message = bully::Message { kind, round, standing: Standing::Id };
            let outputs = hears(&mut server, Message::Election(any_election::Message::Bully(message)));
            assert!(is_refused(&outputs), "{outputs:?}");
        }
    }
    let token = ring::Message::Election { round: Round(u64::MAX), candidate: None };
    assert!(
        !is_refused(&hears(&mut server, Message::Election(any_election::Message::Ring(token)))),
        "only ignored"
    );
}

#[test]
fn a_leader_that_goes_on_speaking_of_more_than_there_is_shows_that_the_disk_is_old() {
    let mut server = server();
    let beat = Raft { commit: 26, ..raft(Kind::Heartbeat, 1) };
    let mut told = Vec::new();
    for _ in 0..1000 {
        told.extend(hears(&mut server, Message::Replica(beat.clone())));
    }
    assert!(
        told.iter().all(|output| matches!(output, Output::Notify(Notice::Strange(..)))),
        "a burst says nothing"
    );
    for _ in 0..20 {
        step(&mut server, Input::Timer(Timer::Tick));
        told.extend(hears(&mut server, Message::Replica(beat.clone())));
    }
    let is_it = |output: &Output<Server>| {
        matches!(output, Output::Notify(Notice::Forgotten { leader: LIAR, index: 26, last: 0 }))
    };
    assert!(told.iter().any(is_it), "{:?}", told.last());
}

#[test]
fn a_state_that_is_none_is_refused_at_the_door() {
    let state = |data: &'static [u8]| {
        let snapshot = Some(Snapshot { index: 9, term: 1, data: Bytes::from_static(data) });
        Words::Control(Message::Replica(Raft { snapshot, ..raft(Kind::Snapshot, 1) }))
    };
    assert!(state(b"garbage").objection().is_some());
    assert!(state(&[0, 0, 0, 0, 0, 0, 0, 9, 1]).objection().is_some());
    assert_eq!(state(&[0; 9]).objection(), None);
}

/// Numbers for those who want to find out what a server does with them.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Small numbers, and those at every limit.
    fn number(&mut self) -> u64 {
        match self.below(12) {
            0 => u64::MAX - self.below(2),
            1 => NUMBER_MAX + self.below(3) - 1,
            2 => LEAP_MAX + self.below(8),
            3 => 1 << self.below(64),
            _ => self.below(6),
        }
    }

    fn raft(&mut self) -> Raft {
        const KINDS: [Kind; 12] = [
            Kind::Append,
            Kind::AppendResponse,
            Kind::RequestVote,
            Kind::RequestVoteResponse,
            Kind::Snapshot,
            Kind::Heartbeat,
            Kind::HeartbeatResponse,
            Kind::TimeoutNow,
            Kind::ReadIndex,
            Kind::ReadIndexResponse,
            Kind::RequestPreVote,
            Kind::RequestPreVoteResponse,
        ];
        let kind = KINDS[self.below(12) as usize];
        let (index, log_term) = (self.number(), self.number());
        let mut entries = Vec::new();
        for place in 0..self.below(4) {
            let is_next = self.below(8) > 0;
            let index = if is_next { index.saturating_add(place + 1) } else { self.number() };
            let term = if is_next { log_term.max(1) } else { self.number() };
            entries.push(Entry { index, term, data: Bytes::from_static(b"x") });
        }
        let snapshot = (self.below(4) == 0 || kind == Kind::Snapshot).then(|| Snapshot {
            index: self.number(),
            term: self.number(),
            data: Bytes::from_static(&[0; 9]),
        });
        Raft {
            kind,
            term: self.number(),
            log_term,
            index,
            entries,
            commit: self.number(),
            commit_term: self.number(),
            snapshot,
            request_snapshot: if self.below(10) == 0 { self.number() } else { 0 },
            reject: self.below(3) == 0,
            reject_hint: self.number(),
            context: Bytes::from_static(if self.below(3) == 0 { b"CampaignTransfer" } else { b"" }),
        }
    }
}

/// Two peers that say whatever comes to their minds, a clock and a disk. The engine must not panic.
#[test]
fn whatever_peers_say_a_server_goes_on() {
    for seed in 0..300 {
        let (mut dice, mut server) = (Dice(seed), server());
        let mut written = Vec::new();
        for _ in 0..300 {
            let input = match dice.below(12) {
                0 => Input::Timer(
                    [Timer::Tick, Timer::Leaderless, Timer::Retry, Timer::Silence][dice.below(4) as usize],
                ),
                1 => Input::Command(Command::Propose(vec![Bytes::from_static(b"y")])),
                2 | 3 if !written.is_empty() => Input::Persisted(written.remove(0)),
                _ => Input::Message { from: ServerId(2 + dice.below(2)), message: Message::Replica(dice.raft()) },
            };
            for output in step(&mut server, input) {
                if let Output::Persist { token, .. } = output {
                    written.push(token);
                }
            }
        }
    }
}
