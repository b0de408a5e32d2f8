//! The control machine by itself: one input, what comes out.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::Term;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_replica::message::{Kind, Message as ReplicaMessage};
use primus_server::control::{Message, Notice};
use primus_server::plan::{Plan, Server};

fn heartbeat(term: u64) -> ReplicaMessage {
    ReplicaMessage {
        kind: Kind::Heartbeat,
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

/// What a server tells its owner about leaders when another one's heartbeat comes.
fn leaders_told(server: &mut Server, from: ServerId, term: u64) -> Vec<(Option<ServerId>, Term)> {
    let mut out = Outbox::new();
    server.step(Moment::START, Input::Message { from, message: Message::Replica(heartbeat(term)) }, &mut out);
    let notices = out.drain().filter_map(|output| match output {
        Output::Notify(Notice::Leader(leader, term, _)) => Some((leader, term)),
        _ => None,
    });
    notices.collect()
}

#[test]
fn a_leader_that_leads_again_in_a_new_term_is_told_of() {
    let at = |id: u16| (ServerId(u64::from(id)), SocketAddr::from((Ipv4Addr::LOCALHOST, 7000 + id)));
    let mut server = Plan::new(ServerId(1), BTreeMap::from([at(1), at(2), at(3)])).server([]);
    assert_eq!(leaders_told(&mut server, ServerId(2), 3), [(Some(ServerId(2)), Term(3))]);
    assert_eq!(leaders_told(&mut server, ServerId(2), 3), []);
    // Nobody told this server that the leader was deposed in between.
    assert_eq!(leaders_told(&mut server, ServerId(2), 5), [(Some(ServerId(2)), Term(5))]);
}
