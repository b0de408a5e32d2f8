//! Three servers in one process: real sockets, real disks.

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::{PATIENCE, eventually_async};
use primus_core::ServerId;
use primus_core::rank::RankBy;
use primus_node::credentials::Security;
use primus_node::handle::{Handle, Request, Unable};
use primus_node::link_faults::LinkFaults;
use primus_node::node::{self, Config};
use primus_node::store::{Identity, Store};
use primus_server::Plan;
use primus_server::register::Change;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Server {
    handle: Handle,
    task: JoinHandle<()>,
}

async fn start(config: Config, dir: &Path, listener: TcpListener) -> Server {
    let identity = Identity { cluster: config.cluster.clone(), server: config.plan.id };
    let opened = Store::open(&dir.join(config.plan.id.to_string()), &identity).expect("the store opens");
    let (ready, handle) = oneshot::channel();
    let task =
        tokio::spawn(async move { node::run(config, listener, opened, ready).await.expect("the disk works") });
    Server { handle: handle.await.expect("it starts"), task }
}

/// The servers of a cluster, none of them started.
async fn configured(count: u64) -> Vec<(Config, TcpListener)> {
    let mut listeners = BTreeMap::new();
    for id in 1..=count {
        listeners.insert(ServerId(id), TcpListener::bind("127.0.0.1:0").await.expect("a free port"));
    }
    let servers: BTreeMap<ServerId, SocketAddr> =
        listeners.iter().map(|(id, listener)| (*id, listener.local_addr().expect("it is bound"))).collect();
    let configured = |(id, listener)| {
        let mut plan = Plan::new(id, servers.clone());
        plan.election.rank = RankBy::Id;
        (Config { cluster: "test".to_owned(), plan, security: Security::None }, listener)
    };
    listeners.into_iter().map(configured).collect()
}

async fn cluster(dir: &Path, count: u64) -> Vec<(Config, Server)> {
    let mut all = Vec::new();
    for (config, listener) in configured(count).await {
        all.push((config.clone(), start(config, dir, listener).await));
    }
    all
}

async fn leader(servers: &[(Config, Server)]) -> usize {
    let leads = |(config, server): &(Config, Server)| {
        !server.task.is_finished() && server.handle.view.borrow().leader == Some(config.plan.id)
    };
    eventually_async("a leader", async || servers.iter().position(leads)).await
}

/// Asks whoever leads until it is done: on a busy host another one may lead meanwhile.
async fn until_done<T>(
    servers: &[(Config, Server)],
    ask: impl Fn(&Server, oneshot::Sender<Result<T, Unable>>),
) -> T {
    eventually_async("an answer", async || {
        let (reply, answer) = oneshot::channel();
        ask(&servers[leader(servers).await].1, reply);
        answer.await.ok()?.ok()
    })
    .await
}

async fn put(servers: &[(Config, Server)], key: &str, value: &str) -> u64 {
    let change = || [vec![Change::Put(key, value.as_bytes())]];
    until_done(servers, |server, reply| _ = server.handle.change(change(), true, reply)).await
}

async fn get(servers: &[(Config, Server)], key: &str) -> Option<Bytes> {
    let read = until_done(servers, |server, reply| {
        let (farm, key) = (server.handle.farm.clone(), key.to_owned());
        tokio::spawn(async move { _ = reply.send(farm.get(key).await) });
    });
    read.await.map(|(value, _)| value)
}

fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("primus-{name}-{}", std::process::id()));
    _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_survives_the_leader() {
    let dir = directory("three");
    let servers = cluster(&dir, 3).await;
    put(&servers, "a", "1").await;
    assert_eq!(get(&servers, "a").await, Some(Bytes::from_static(b"1")));
    servers[leader(&servers).await].1.task.abort();
    assert_eq!(get(&servers, "a").await, Some(Bytes::from_static(b"1")));
    put(&servers, "a", "2").await;
    assert_eq!(get(&servers, "a").await, Some(Bytes::from_static(b"2")));
    for (_, server) in &servers {
        server.task.abort();
    }
    _ = std::fs::remove_dir_all(&dir);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_away_for_long_gets_the_whole_state_in_pieces() {
    let dir = directory("away");
    let mut configured = configured(3).await;
    configured.iter_mut().for_each(|(config, _)| config.plan.snapshot_every = 20);
    let mut servers = Vec::new();
    for (config, listener) in configured {
        servers.push((config.clone(), start(config, &dir, listener).await));
    }
    // All of them must run once.
    leader(&servers).await;
    let (_, late) = servers.pop().expect("three servers");
    let peers = [1, 2].map(ServerId).into();
    late.handle.ask(Request::Cut(LinkFaults { peers, ..LinkFaults::default() }));
    let value = "x".repeat(100_000);
    for number in 0..60 {
        put(&servers, &format!("key {number}"), &value).await;
    }
    let index = put(&servers, "last", "word").await;
    late.handle.ask(Request::Cut(LinkFaults::default()));
    let mut view = late.handle.view.clone();
    let arrived = view.wait_for(|view| view.applied >= index);
    tokio::time::timeout(PATIENCE, arrived).await.expect("it catches up").expect("it runs");
    // It ranks best, so it leads soon; then it must know everything.
    servers.push((servers[0].0.clone(), late));
    servers[2].0.plan.id = ServerId(3);
    eventually_async("its leadership", async || (leader(&servers).await == 2).then_some(())).await;
    assert_eq!(get(&servers, "key 7").await, Some(Bytes::from(value.into_bytes())));
    servers.iter().for_each(|(_, server)| server.task.abort());
    _ = std::fs::remove_dir_all(&dir);
}
