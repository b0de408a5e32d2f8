//! A RabbitMQ for tests: the one that `./x test` has started for all of them (`PRIMUS_AMQP`), or one of their own.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::{eventually, is_running};

/// Names the port of a broker that runs already.
const GIVEN: &str = "PRIMUS_AMQP";
/// Names the folder of that broker.
const GIVEN_DIR: &str = "PRIMUS_AMQP_DIR";
/// AMQP, Erlang's distribution, its port mapper, AMQP over TLS.
const PORTS: u16 = 4;
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
/// A broker takes its time on a busy host.
const START_TIME: Duration = Duration::from_secs(120);
const VHOSTS: u32 = 64;

/// A part of the broker that no other test sees.
#[derive(Debug)]
pub(crate) struct Vhost {
    pub(crate) port: u16,
    pub(crate) name: String,
}

/// A broker that all tests share.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    port: u16,
    dir: PathBuf,
}

impl Common {
    /// The port for AMQP over TLS, and the file of the authority to trust.
    pub(crate) fn tls(&self) -> (u16, PathBuf) {
        let authority = self.dir.join("authority.pem");
        assert!(authority.exists(), "openssl is missing; to install it: sudo apt-get install openssl");
        (self.port + PORTS - 1, authority)
    }
}

/// A virtual host of the common broker.
pub(crate) fn vhost() -> Vhost {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let Common { port, .. } = common();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    assert!(number < VHOSTS, "there are {VHOSTS} virtual hosts");
    Vhost { port, name: format!("t{number}") }
}

/// The broker that all tests share.
pub(crate) fn common() -> Common {
    static COMMON: OnceLock<Common> = OnceLock::new();
    COMMON.get_or_init(find_or_start).clone()
}

fn find_or_start() -> Common {
    let given = std::env::var(GIVEN).ok().and_then(|port| port.parse().ok());
    if let Some((port, dir)) = given.zip(std::env::var_os(GIVEN_DIR)) {
        return Common { port, dir: dir.into() };
    }
    let broker = Broker::start();
    let common = Common { port: broker.port, dir: broker.dir.clone() };
    // It ends with this process.
    std::mem::forget(broker);
    common
}

/// A broker of one's own, to be stopped and started.
#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) port: u16,
    dir: PathBuf,
    process: Option<Child>,
}

impl Broker {
    /// Starts one in a folder of its own.
    pub(crate) fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let hint = "rabbitmq-server is missing; to install it: sudo apt-get install rabbitmq-server";
        assert!(Path::new(SERVER).exists(), "{hint}");
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        sweep(folder);
        let dir = folder.join(format!("broker-{}-{number}", std::process::id()));
        let mut broker = Self { port: free_ports(), dir, process: None };
        broker.go_on();
        broker
    }

    /// Starts it again where it was.
    pub(crate) fn go_on(&mut self) {
        fs::create_dir_all(&self.dir).expect("a folder can be made");
        // What it said last time must not be taken for what it says now.
        _ = fs::remove_file(self.dir.join("log/output"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common/broker.sh");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "bash"]).arg(script).arg(&self.dir).arg(self.port.to_string());
        self.process = Some(spawned(command));
        let until = Instant::now() + START_TIME;
        while !self.log().contains("completed with") {
            assert!(Instant::now() < until, "no broker: {}", self.log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills it, as kill -9 does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            _ = process.kill();
            _ = process.wait();
        }
        eventually("the broker's ports to be free", || {
            (0..PORTS).all(|more| is_free(self.port + more)).then_some(())
        });
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log/output")).unwrap_or_default()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
        _ = fs::remove_dir_all(&self.dir);
    }
}

/// Removes what brokers of earlier processes left behind: nobody tidies up after the common one.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("broker-").and_then(|rest| rest.split('-').next()?.parse().ok());
        if owner.is_some_and(|owner| !is_running(owner)) {
            _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Processes that end with their parent end, in truth, with the thread that started them: this one stays.
fn spawned(mut command: Command) -> Child {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        _ = sender.send(child);
        loop {
            thread::park();
        }
    });
    receiver.recv().expect("the thread answers").expect("there is a setpriv")
}

/// The first of four ports that nobody listens on, below those that the kernel gives away.
pub(crate) fn free_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 1000).expect("a small number") * 9;
    let mut candidates = (0..1000).map(|_| 20_000 + (start + NEXT.fetch_add(PORTS, Ordering::Relaxed)) % 12_000);
    candidates.find(|port| (0..PORTS).all(|more| is_free(port + more))).expect("there are free ports")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
