//! A farm of servers and workers that have certificates, without `primus up`: a file for each, and one founding file for all.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use primus_identity::authority::{Authority, AuthorityCertificate, Request, pem_of};
use primus_identity::certificate::Validity;
use primus_identity::config::{self, Credentials};
use primus_identity::hash::ShortHash;
use primus_identity::keys::Keys;
use primus_identity::name::{Name, dial_any};
use primus_identity::rustls::{ClientConfig, ClientConnection, Stream};
use primus_identity::trust::Trust;
use primus_identity::verify::HostClock;
use primus_identity::{CertificateDer, UnixTime};
use primus_node::founding_file::{FoundingAuthority, FoundingFile};
use primus_wire::native::{self, Answer};
use serde::Serialize;

use super::broker::free_ports;
use super::place::{Place, Ran};
use super::{eventually, eventually_or};

/// What the farm is called.
pub(crate) const FARM: &str = "north";
const SERVERS: usize = 3;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Servers 1, 2 and 3, and whatever else was started; all are killed at the end.
pub(crate) struct Secured<'a> {
    place: &'a Place,
    /// Where servers listen.
    pub(crate) links: Vec<SocketAddr>,
    apis: Vec<SocketAddr>,
    /// Where others find them.
    found: Vec<SocketAddr>,
    founding: Option<PathBuf>,
    /// True if it was begun without one.
    is_plain: bool,
    nodes: Vec<(String, Child)>,
    /// What else stands in the environment of nodes that are started from now on.
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl<'a> Secured<'a> {
    /// A farm from this founding file, or a plain one; others reach a server where `found` says.
    pub(crate) fn new(place: &'a Place, founding: Option<&Path>, found: impl Fn(SocketAddr) -> SocketAddr) -> Self {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let ports: Vec<u16> = (0..SERVERS).map(|_| free_ports()).collect();
        let links: Vec<_> = ports.iter().map(|port| local(*port)).collect();
        let apis = ports.iter().map(|port| local(port + 1)).collect();
        let found = links.iter().map(|address| found(*address)).collect();
        Self {
            place,
            links,
            apis,
            found,
            founding: founding.map(Path::to_owned),
            is_plain: founding.is_none(),
            nodes: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// A farm that is told of no founding file.
    pub(crate) fn untold(place: &'a Place) -> Self {
        let mut farm = Self::new(place, None, |address| address);
        farm.is_plain = false;
        farm
    }

    pub(crate) fn start_all(&mut self) {
        (1..=SERVERS).for_each(|id| self.start_server(id));
        ["w1", "w2"].into_iter().for_each(|name| self.start_worker(name));
    }

    /// Each server knows its own address, and of the others where they are found.
    pub(crate) fn start_server(&mut self, id: usize) {
        let address = |place: usize| if place + 1 == id { self.links[place] } else { self.found[place] };
        let list: Vec<String> =
            (0..SERVERS).map(|place| format!("{}@{}/{}", place + 1, address(place), self.apis[place])).collect();
        let (id, dir, list) = (id.to_string(), format!("server-{id}"), list.join(","));
        self.start(&dir, &["server", "--farm", FARM, "--id", &id, "--dir", &dir, "--cluster", &list]);
    }

    pub(crate) fn start_worker(&mut self, name: &str) {
        self.start_worker_in(name, name);
    }

    /// The same in another folder, whose name it goes by here.
    pub(crate) fn start_worker_in(&mut self, dir: &str, name: &str) {
        let list = self.list();
        self.start(
            dir,
            &["worker", "--farm", FARM, "--name", name, "--dir", dir, "--allow", "*", "--servers", &list],
        );
    }

    /// Kills everything, as a power cut would, and starts it again.
    pub(crate) fn restart_all(&mut self) {
        let names: Vec<String> = self.nodes.iter().map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.kill(name));
        for name in names {
            match name.strip_prefix("server-") {
                Some(id) => self.start_server(id.parse().expect("it is a number")),
                None => self.start_worker(&name),
            }
        }
    }

    fn list(&self) -> String {
        let list = (1..).zip(&self.found).map(|(id, address)| format!("{id}@{address}"));
        list.collect::<Vec<_>>().join(",")
    }

    fn start(&mut self, name: &str, words: &[&str]) {
        let mut command = self.place.command(words);
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        match &self.founding {
            Some(file) => command.arg("--founding").arg(file),
            None if self.is_plain => command.arg("--insecure"),
            None => &mut command,
        };
        self.spawn(name, command);
    }

    /// Starts a node that is told this, and nothing of the farm.
    pub(crate) fn start_told(&mut self, name: &str, words: &[&str], environment: &[(&str, &str)]) {
        let mut command = self.place.command(words);
        command.envs(environment.iter().copied());
        self.spawn(name, command);
    }

    fn spawn(&mut self, name: &str, mut command: Command) {
        let parent = std::process::id().to_string();
        command.args(["--parent", &parent]).stdin(Stdio::null()).stdout(Stdio::null());
        let log = OpenOptions::new().append(true).create(true).open(self.place.dir.join(format!("{name}.log")));
        command.stderr(log.expect("a file can be made"));
        self.nodes.push((name.to_owned(), command.spawn().expect("primus starts")));
    }

    /// From now on nodes start without it.
    pub(crate) fn forget_founding(&mut self) {
        fs::remove_file(self.founding.take().expect("there is one")).expect("it is there");
    }

    /// Runs a worker to its end.
    pub(crate) fn run_worker(&self, name: &str, more: &[&str]) -> Ran {
        self.run_worker_in(name, name, more)
    }

    /// The same in another folder.
    pub(crate) fn run_worker_in(&self, dir: &str, name: &str, more: &[&str]) -> Ran {
        let list = self.list();
        let words = ["worker", "--farm", FARM, "--name", name, "--dir", dir, "--servers", &list];
        self.place.command(&[&words, more].concat()).output().expect("primus starts").into()
    }

    /// Kills it, as an accident would.
    pub(crate) fn kill(&mut self, name: &str) {
        let place = self.nodes.iter().position(|(other, _)| other == name).expect("it runs");
        let (_, mut node) = self.nodes.remove(place);
        node.kill().expect("it runs");
        node.wait().expect("it was started here");
    }

    /// Waits until it ends by itself. With which code, and what has it said?
    pub(crate) fn ends(&mut self, name: &str) -> (Option<i32>, String) {
        let place = self.nodes.iter().position(|(other, _)| other == name).expect("it runs");
        let code = eventually("its end", || self.nodes[place].1.try_wait().expect("it was started here")).code();
        self.nodes.remove(place);
        (code, self.log(name))
    }

    /// The same once, at one server.
    pub(crate) fn primus_at(&self, id: usize, line: &str) -> String {
        let ran = self.ask(self.apis[id - 1], line);
        assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        ran.stdout
    }

    /// A command for this server; what stands behind two hyphens is another one's.
    fn ask(&self, api: SocketAddr, line: &str) -> Ran {
        let at = format!("--api http://{api}");
        match line.split_once(" -- ") {
            Some((own, command)) => self.place.primus(&format!("{own} {at} -- {command}")),
            None => self.place.primus(&format!("{line} {at}")),
        }
    }

    /// What the farm says to a command that it refuses.
    pub(crate) fn refusal(&self, line: &str) -> String {
        let tries = self.apis.iter().map(|api| self.ask(*api, line));
        tries.map(|ran| ran.stderr).collect()
    }

    /// A command about this farm, as soon as it works at the first server that answers.
    pub(crate) fn primus(&self, line: &str) -> String {
        let attempt = || {
            let tries = self.apis.iter().map(|api| self.ask(*api, line));
            let tries: Vec<Ran> = tries.collect();
            match tries.iter().find(|ran| ran.code == Some(0)) {
                Some(ran) => Ok(ran.stdout.clone()),
                None => Err(format!("{tries:?}\n{}", self.logs())),
            }
        };
        eventually_or(line, attempt)
    }

    /// Where the API of this server is.
    pub(crate) fn api(&self, id: usize) -> String {
        format!("http://{}", self.apis[id - 1])
    }

    /// Runs a task, whose words come back.
    pub(crate) fn runs(&self, word: &str) {
        let api = self.apis[0];
        let others = &self.apis[1..];
        let attempt = || {
            for api in std::iter::once(&api).chain(others) {
                let url = format!("http://{api}");
                let ran: Ran = self
                    .place
                    .command(&["run", "--api", &url, "--", "echo", word])
                    .output()
                    .expect("primus starts")
                    .into();
                if ran.code == Some(0) {
                    assert_eq!(ran.stdout.trim(), word);
                    return Ok(());
                }
            }
            Err(self.logs())
        };
        eventually_or("a task", attempt);
    }

    /// True if it has ended by itself.
    pub(crate) fn has_ended(&mut self, name: &str) -> bool {
        let (_, node) = self.nodes.iter_mut().find(|(other, _)| other == name).expect("it was started");
        node.try_wait().expect("it was started here").is_some()
    }

    pub(crate) fn leader(&self) -> usize {
        let shown = self.primus("leader -o json");
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("stdout is JSON");
        usize::try_from(shown["leader"].as_u64().expect("it leads")).expect("it is small")
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.place.dir.join(format!("{name}.log"))).unwrap_or_default()
    }

    /// What all servers and workers have said.
    pub(crate) fn logs(&self) -> String {
        ["server-1", "server-2", "server-3", "w1", "w2"].map(|name| format!("{name}: {}", self.log(name))).concat()
    }

    /// What all servers have said.
    pub(crate) fn logs_of_servers(&self) -> String {
        ["server-1", "server-2", "server-3"].map(|name| self.log(name)).concat()
    }
}

impl Drop for Secured<'_> {
    fn drop(&mut self) {
        for (_, node) in &mut self.nodes {
            _ = node.kill();
            _ = node.wait();
        }
    }
}

/// A founding file, made by `primus init`.
pub(crate) fn founded(place: &Place, name: &str) -> PathBuf {
    let ran = place.primus(&format!("init --farm {FARM} --out {name}"));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    place.dir.join(name)
}

/// What the authority of a founding file is recognised by.
pub(crate) fn hash(founding: &Path, farm: &str) -> ShortHash {
    let file = FoundingFile::read(founding, farm).expect("it is one");
    file.certificate().expect("its links are encrypted").hash().short()
}

/// The authority of a founding file.
pub(crate) fn authority(founding: &Path) -> Authority {
    match FoundingFile::read(founding, FARM).expect("it is one").authority {
        Some(FoundingAuthority::Whole(authority)) => *authority,
        other => panic!("it has a key: {other:?}"),
    }
}

/// A certificate for this name, good for ten days from a day before this time on.
pub(crate) fn certificate(authority: &Authority, name: &Name, now: UnixTime) -> (Keys, CertificateDer<'static>) {
    issued(authority, name, Validity::since_yesterday(now, 10))
}

/// A certificate for this name, good for this time.
pub(crate) fn issued(authority: &Authority, name: &Name, validity: Validity) -> (Keys, CertificateDer<'static>) {
    let keys = Keys::generate().expect("there is randomness");
    let request = Request { name, key: &keys.public_key(), api: &[], serial: 77 };
    let der = authority.issue(&request, validity).expect("it is its farm");
    (keys, der)
}

/// Puts them where a node has its own.
pub(crate) fn keep(dir: &Path, authority: &AuthorityCertificate, (keys, der): &(Keys, CertificateDer<'_>)) {
    let folder = dir.join("tls");
    fs::create_dir_all(&folder).expect("a folder can be made");
    for (name, text) in
        [("key.pem", keys.secret_pem()), ("authority.pem", authority.pem()), ("certificate.pem", pem_of(der))]
    {
        fs::write(folder.join(name), text).expect("a file can be written");
    }
}

/// Everything that went over relays.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Vec<u8>>>);

impl Record {
    /// A relay to this address; what goes over it is recorded.
    pub(crate) fn relay(&self, to: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let record = self.clone();
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let Ok(callee) = TcpStream::connect(to) else { continue };
                let ends = [(&caller, &callee), (&callee, &caller)];
                for (from, to) in ends.map(|(from, to)| (from.try_clone(), to.try_clone())) {
                    let (record, from, to) = (record.clone(), from.expect("it is open"), to.expect("it is open"));
                    thread::spawn(move || record.copy(from, to));
                }
            }
        });
        address
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 << 10];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            self.0.lock().expect("nobody panics here").extend_from_slice(&buffer[..len]);
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        _ = to.shutdown(std::net::Shutdown::Both);
        _ = from.shutdown(std::net::Shutdown::Both);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("nobody panics here").len()
    }

    /// Do these bytes stand in it?
    pub(crate) fn holds(&self, text: &str) -> bool {
        let record = self.0.lock().expect("nobody panics here");
        record.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// How a node of this name dials.
pub(crate) fn dialling(authority: &Authority, name: &Name) -> Arc<ClientConfig> {
    let (keys, der) = certificate(authority, name, UnixTime::now());
    let credentials = Credentials::new(der, authority.certificate(), &keys).expect("it was issued for it");
    let trust = Trust::new(FARM, vec![authority.certificate().clone()], Vec::new()).expect("it is its farm");
    config::dialling(&credentials, &Arc::new(trust), FARM, Arc::new(HostClock))
}

/// A connection to a server that begins to listen soon. It waits for answers only so long.
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let tcp = eventually("a connection", || TcpStream::connect(address).ok());
    tcp.set_read_timeout(Some(PATIENCE)).expect("it is open");
    tcp
}

/// What a server answers to a hello that is not what the certificate says.
pub(crate) fn greet(
    mut tcp: impl Read + Write,
    config: Arc<ClientConfig>,
    hello: &impl Serialize,
) -> std::io::Result<Answer> {
    let mut tls = ClientConnection::new(config, dial_any()).expect("the name is one");
    let mut stream = Stream::new(&mut tls, &mut tcp);
    let (mut said, mut arrived) = (BytesMut::new(), BytesMut::new());
    native::put(&mut said, hello).expect("it is short");
    stream.write_all(&said)?;
    loop {
        if let Some(answer) = native::take(&mut arrived).expect("it is an answer") {
            return Ok(answer);
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            len => arrived.extend_from_slice(&buffer[..len]),
        }
    }
}
