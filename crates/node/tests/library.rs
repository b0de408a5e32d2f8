//! Servers inside a program.

mod common;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use common::{PATIENCE, eventually_async};
use primus_core::ledger::{Expansion, GroupRank, JobId, Spec, Work};
use primus_node::group::Unguarded;
use primus_node::handle::{Handle, Unable};
use primus_node::server::{KEY_LEN_MAX, Server, Settings, StartError, VALUE_LEN_MAX};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The last part of the next farm's address.
static NEXT: AtomicU8 = AtomicU8::new(1);

/// Three servers with a directory that is removed with them.
struct Farm {
    dir: PathBuf,
    addresses: Vec<(u64, SocketAddr)>,
    servers: Vec<Server>,
}

impl Farm {
    async fn start(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("primus-library-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&dir);
        // An address that nothing else has: a port of 127.0.0.1 may be taken by a caller while its server is down.
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = Ipv4Addr::new(127, 1 + high % 200, low, NEXT.fetch_add(1, Ordering::Relaxed));
        let listeners: Vec<_> = (1..=3).map(|id| (id, TcpListener::bind((host, 0)).expect("a port"))).collect();
        let address = |listener: &TcpListener| listener.local_addr().expect("it is bound");
        let addresses = listeners.iter().map(|(id, listener)| (*id, address(listener))).collect();
        drop(listeners);
        let mut farm = Self { dir, addresses, servers: Vec::new() };
        for id in 1..=3 {
            farm.servers.push(Server::start(farm.settings(id)).await.expect("it starts"));
        }
        farm
    }

    fn settings(&self, id: u64) -> Settings {
        Settings::new("library", id, self.addresses.clone(), self.dir.join(id.to_string()))
    }

    /// The place of whoever leads.
    async fn leader(&self) -> usize {
        let mut leadership = self.servers[0].leadership();
        let leader = timeout(PATIENCE, leadership.wait_for(|now| now.leader.is_some())).await.expect("a leader");
        let leader = leader.expect("it runs").leader;
        self.servers.iter().position(|server| Some(server.id()) == leader).expect("one of them")
    }

    async fn follower(&self) -> Handle {
        let leader = self.leader().await;
        self.servers[(leader + 1) % self.servers.len()].handle().clone()
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        self.servers.clear();
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Holds the group until told to end; says under which term.
async fn hold(handle: Handle, group: &'static str, until: oneshot::Receiver<()>) -> oneshot::Receiver<u64> {
    let (tell, told) = oneshot::channel();
    let (mut tell, mut until) = (Some(tell), Some(until));
    tokio::spawn(async move {
        let hold = |turn: primus_node::group::Turn| {
            let (tell, until) = (tell.take(), until.take());
            async move {
                tell.map(|tell| tell.send(turn.term()));
                if let Some(until) = until {
                    _ = until.await;
                }
            }
        };
        handle.group(group).guard(hold).await
    });
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_passes_everything_on() {
    let farm = Farm::start("passes-on").await;
    let follower = farm.follower().await;
    follower.put("key", "value").await.expect("it is written");
    for server in &farm.servers {
        assert_eq!(server.get("key").await.expect("it is read").as_deref(), Some(b"value".as_slice()));
    }
    follower.delete("key").await.expect("it is forgotten");
    assert_eq!(farm.servers[0].get("key").await, Ok(None));
    let spec = Spec {
        name: "nothing".to_owned(),
        work: Work::Kind { name: "noop".to_owned(), input: Vec::new() },
        expansion: Expansion::One,
        retries: 0,
        timeout_ms: None,
        is_once: false,
        priority: 0,
        cpus: 1,
    };
    for server in &farm.servers {
        assert_eq!(server.submit(spec.clone(), Some("once")).await, Ok(JobId(1)), "under a key it is taken once");
    }
    let longest = vec![7; VALUE_LEN_MAX];
    follower.put("long", longest.clone()).await.expect("the longest value passes");
    assert_eq!(follower.get("long").await.expect("it is read").as_deref(), Some(longest.as_slice()));
    assert_eq!(follower.put("long", vec![7; VALUE_LEN_MAX + 1]).await, Err(Unable::TooLong));
    assert_eq!(follower.put(&"k".repeat(KEY_LEN_MAX + 1), "").await, Err(Unable::TooLong));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_go_on_while_leaders_come_and_go() {
    let mut farm = Farm::start("writes").await;
    let follower = farm.follower().await;
    for number in 0..200 {
        if number == 100 {
            let leader = farm.leader().await;
            assert_ne!(farm.servers[leader].id(), follower.id());
            farm.servers.remove(leader);
        }
        // What may have been written is written again: it is the same.
        eventually_async("a write", async || follower.put("number", number.to_string()).await.ok()).await;
        assert_eq!(
            follower.get("number").await.expect("it is read").as_deref(),
            Some(number.to_string().as_bytes())
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_ends_or_is_dropped_gives_the_group_back_at_once() {
    let farm = Farm::start("gives-back").await;
    let (end, until) = oneshot::channel();
    let first = hold(farm.servers[0].handle().clone(), "one", until).await;
    let first = timeout(PATIENCE, first).await.expect("it is granted").expect("it runs");
    let second = farm.servers[1].group("one").guard(async |turn| turn.term());
    let second = tokio::spawn(second);
    end.send(()).expect("it runs");
    let second = timeout(PATIENCE, second).await.expect("it is granted").expect("it runs").expect("it ends");
    assert!(second > first, "terms grow");

    let (started, has_started) = oneshot::channel();
    let mut started = Some(started);
    let held = farm.servers[2].group("one").guard(move |_| {
        started.take().map(|started| started.send(()));
        std::future::pending::<()>()
    });
    let held = tokio::spawn(held);
    timeout(PATIENCE, has_started).await.expect("it is granted").expect("it runs");
    held.abort();
    let next = farm.servers[0].group("one").guard(async |turn| turn.remaining());
    let remaining = timeout(PATIENCE, next).await.expect("it is granted").expect("it ends");
    assert!(remaining > Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_run_at_once_than_the_group_has_room_for() {
    let mut farm = Farm::start("room").await;
    let (running, most, last) =
        (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    for server in &farm.servers {
        let id = server.id().0;
        for number in 0..2 {
            let (running, most, last) = (Arc::clone(&running), Arc::clone(&most), Arc::clone(&last));
            let group = server.group("two").holders(2).rank(GroupRank::Name).name(format!("{id}.{number}"));
            tokio::spawn(group.guard(move |_| {
                let running = Counted::new(Arc::clone(&running), &most);
                last.store(id, Ordering::SeqCst);
                async move {
                    let _running = running;
                    std::future::pending::<()>().await;
                }
            }));
        }
    }
    let is_full = async || (running.load(Ordering::SeqCst) == 2).then_some(());
    eventually_async("two to get it", is_full).await;
    // Whoever held it through a server that is killed loses it, and others get it.
    let victim = last.swap(0, Ordering::SeqCst);
    farm.servers.retain(|server| server.id().0 != victim);
    eventually_async("others to get it", async || (last.load(Ordering::SeqCst) != 0).then_some(())).await;
    eventually_async("two to get it", is_full).await;
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

struct Counted(Arc<AtomicU64>);

impl Counted {
    fn new(running: Arc<AtomicU64>, most: &AtomicU64) -> Self {
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Self(running)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused() {
    let farm = Farm::start("refused").await;
    let server = &farm.servers[0];
    let strange = server.group("a b").guard(async |_| ()).await;
    assert_eq!(strange, Err(Unguarded::Name("a b".to_owned())));
    assert_eq!(server.group("a").holders(0).guard(async |_| ()).await, Err(Unguarded::Holders(0)));
    let (_end, until) = oneshot::channel();
    let held = hold(server.handle().clone(), "agreed", until).await;
    timeout(PATIENCE, held).await.expect("it is granted").expect("it runs");
    let other = timeout(PATIENCE, farm.servers[1].group("agreed").holders(2).guard(async |_| ())).await;
    assert!(matches!(other, Ok(Err(Unguarded::Refused(_)))), "{other:?}");
    let twice = Server::start(farm.settings(1)).await;
    assert!(matches!(twice, Err(StartError::Store(_))), "{twice:?}");
    let stranger = Server::start(Settings { dir: farm.dir.join("9"), ..farm.settings(9) }).await;
    assert!(matches!(stranger, Err(StartError::NotAmongServers(_))), "{stranger:?}");
    let taken = Server::start(Settings { dir: farm.dir.join("other"), ..farm.settings(1) }).await;
    assert!(matches!(taken, Err(StartError::Listen(..))), "{taken:?}");
}
