//! The servers and workers of a farm as child processes: started, watched, started again, stopped.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{io, thread};

use primus_client::Client;
use primus_client::farms::{self, Farm, Started, StartedWorker, began};
use primus_core::text::escape;
use primus_node::{private, umask};
use primus_shapes::token::{self, Token};
use primus_terminal::failure::{FINAL, Failure};
use rustix::process::{Signal, kill_process};

use crate::founding::Founding;
use crate::home::Home;
use crate::{ports, quoted};

/// How long a node may take to end by itself.
const END_TIME: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
/// Longer buffers go back to the system when they are freed. By itself the C library comes to keep ever longer ones, and a
/// server that once took a large submission stays large.
const MALLOC_THRESHOLD: &str = "MALLOC_MMAP_THRESHOLD_";
/// What the file is called that holds the secret of all servers.
const TOKEN: &str = "api.token";
/// When a node's log is longer than this, in bytes, it begins anew; one that is as long is kept beside it.
const LOG_LEN_MAX: u64 = 4 << 20;
/// How often to look how long the logs are.
const LOG_EVERY: Duration = Duration::from_secs(1);
/// What the file of all workers is called.
const WORKERS: &str = "workers";

/// What all nodes of a farm have in common beside who they are.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Further sections of every server's configuration, as TOML.
    pub servers: String,
    /// The environment variables that must not reach the nodes.
    pub hidden: Vec<String>,
    /// True if links are not to be encrypted.
    pub is_insecure: bool,
}

/// All nodes, and what others know of them. It stops them when it goes.
#[derive(Debug)]
pub struct Fleet<'a> {
    /// The farm, as others on this host find it.
    pub farm: Farm,
    home: &'a Home,
    settings: Settings,
    founding: Founding,
    /// What the servers' files say about other farms.
    neighbours: String,
    /// In the order of the farm's servers, then of its workers; none for a dead one.
    children: Vec<Option<Child>>,
    /// When it was last looked how long the logs are.
    logs_seen: Instant,
}

/// A node that ended although nobody asked it to.
#[derive(Debug)]
pub struct Death {
    /// As people say it: `server 1`, `worker w1`.
    who: String,
    /// What `primus chaos` calls it.
    target: String,
    status: ExitStatus,
    last_words: Option<String>,
}

impl<'a> Fleet<'a> {
    /// Makes the farm known, without starting anything.
    ///
    /// # Errors
    /// If the system gives no random bytes, or another farm of this name runs here.
    pub fn new(home: &'a Home, settings: Settings) -> Result<Self, Failure> {
        let founding = Founding::of(home, settings.is_insecure)?;
        let pid = std::process::id();
        let server = |id| Started { id, pid: None, address: String::new(), api: String::new() };
        let token = Token::fresh().map_err(|error| {
            Failure::failed("system", format!("the system gives no random bytes: {error}"), "try again")
        })?;
        let farm = Farm {
            name: home.name.clone(),
            pid,
            began: began(pid),
            dir: home.dir.clone(),
            temporary: home.temporary,
            api: Vec::new(),
            token: Some(token),
            token_file: Some(home.dir.join(TOKEN)),
            servers: (1..=home.servers).map(server).collect(),
            workers: (1..=home.workers).map(|number| worker(home.initial, number)).collect(),
        };
        farm.announce()?;
        let children = (0..farm.servers.len() + farm.workers.len()).map(|_| None).collect();
        Ok(Self { farm, home, settings, founding, neighbours: String::new(), children, logs_seen: Instant::now() })
    }

    /// How many ports its servers need.
    pub(crate) fn ports(&self) -> usize {
        self.farm.servers.len() * 2
    }

    /// Its servers will listen on these.
    pub(crate) fn take_ports(&mut self, free: &[u16]) {
        // Ports ascend with ids, so that a rank by address means the same after every start.
        for (server, pair) in self.farm.servers.iter_mut().zip(free.chunks(2)) {
            server.address = format!("127.0.0.1:{}", pair[0]);
            server.api = format!("http://127.0.0.1:{}", pair[1]);
        }
        self.farm.api = self.farm.servers.iter().map(|server| server.api.clone()).collect();
        self.farm.make_known();
    }

    /// Starts all servers, then all workers. These are its neighbours, as files say it.
    pub(crate) fn start(&mut self, neighbours: String) -> Result<(), Failure> {
        self.neighbours = neighbours;
        self.write_configuration().map_err(|error| self.storage(&error))?;
        for place in 0..self.children.len() {
            // What an earlier farm was asked is not asked of this one, and what was wrong may have been mended.
            _ = fs::remove_file(farms::restart_request(&self.home.dir, &self.node(place)));
            _ = fs::remove_file(farms::end_note(&self.home.dir, &self.node(place)));
            self.spawn(place)?;
        }
        Ok(self.farm.update()?)
    }

    fn write_configuration(&self) -> io::Result<()> {
        if let (Some(token), Some(file)) = (&self.farm.token, &self.farm.token_file) {
            token.write(file)?;
        }
        for server in &self.farm.servers {
            private::write(&self.config_file(&server.node()), self.server_config(server.id))?;
        }
        private::write(&self.config_file(WORKERS), self.workers_config())
    }

    /// Notes which nodes have ended.
    pub fn reap(&mut self) -> Vec<Death> {
        let mut deaths = Vec::new();
        for place in 0..self.children.len() {
            let Some(Ok(Some(status))) = self.children[place].as_mut().map(Child::try_wait) else { continue };
            self.children[place] = None;
            self.set_pid(place, None);
            let last_words = last_complaint(&farms::log_file(&self.home.dir, &self.node(place)));
            let death = Death { who: self.who(place), target: self.target(place), status, last_words };
            if death.is_final() {
                // If it cannot be written, whoever restarts the server sees it end again.
                _ = fs::write(farms::end_note(&self.home.dir, &self.node(place)), death.cause());
            }
            deaths.push(death);
        }
        if !deaths.is_empty() {
            // Nobody can be told if this fails, and the farm goes on.
            _ = self.farm.update();
        }
        deaths
    }

    /// Starts again what somebody asked for.
    ///
    /// # Errors
    /// If a node cannot be started.
    pub fn serve_requests(&mut self) -> Result<(), Failure> {
        for place in 0..self.children.len() {
            let is_asked = fs::remove_file(farms::restart_request(&self.home.dir, &self.node(place))).is_ok();
            if is_asked && !farms::end_note(&self.home.dir, &self.node(place)).exists() {
                if let Some(child) = &mut self.children[place] {
                    end(child);
                }
                self.spawn(place)?;
                self.farm.update()?;
            }
        }
        Ok(())
    }

    /// No log grows for ever.
    pub fn turn_logs_over(&mut self) {
        if self.logs_seen.elapsed() < LOG_EVERY {
            return;
        }
        self.logs_seen = Instant::now();
        for place in 0..self.children.len() {
            // What cannot be done now is tried again.
            _ = turn_over(&farms::log_file(&self.home.dir, &self.node(place)), LOG_LEN_MAX);
        }
    }

    /// Asks all nodes to end.
    pub fn ask_to_end(&self) {
        for child in self.children.iter().flatten() {
            if let Some(pid) = farms::process(child.id()) {
                _ = kill_process(pid, Signal::TERM);
                // One that is frozen would not hear it.
                _ = kill_process(pid, Signal::CONT);
            }
        }
    }

    /// Stops all nodes: politely, then not.
    pub(crate) fn stop(&mut self) {
        self.ask_to_end();
        let until = Instant::now() + END_TIME;
        let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        let mut children: Vec<&mut Child> = self.children.iter_mut().flatten().collect();
        while children.iter_mut().any(|child| is_running(child)) && Instant::now() < until {
            thread::sleep(PAUSE);
        }
        children.into_iter().for_each(end);
        self.children.iter_mut().for_each(|child| *child = None);
        (0..self.children.len()).for_each(|place| self.set_pid(place, None));
    }

    /// Has nobody else taken our ports?
    pub(crate) fn ports_are_free(&self) -> bool {
        let places = self.farm.servers.iter().flat_map(|server| [&server.address, &server.api]);
        let mut ports = places.filter_map(|place| place.rsplit_once(':')?.1.parse().ok());
        ports.all(ports::is_free)
    }

    /// A way to talk to them.
    pub(crate) fn client(&self) -> Client {
        Client::of(&self.farm)
    }

    /// The worker at this place, if there is one.
    fn worker(&self, place: usize) -> Option<&StartedWorker> {
        self.farm.workers.get(place.checked_sub(self.farm.servers.len())?)
    }

    /// What the node at this place is called where its files are.
    fn node(&self, place: usize) -> String {
        self.worker(place).map_or_else(|| self.farm.servers[place].node(), |worker| worker.name.clone())
    }

    /// All share one host, so workers are dealt out to servers in turn: the first stands beside the first.
    fn server_beside(&self, place: usize) -> u64 {
        // Workers come after all servers, so the remainder starts anew with the first of them.
        self.farm.servers[place % self.farm.servers.len()].id
    }

    fn target(&self, place: usize) -> String {
        self.worker(place).map_or_else(|| self.farm.servers[place].id.to_string(), |worker| worker.name.clone())
    }

    fn who(&self, place: usize) -> String {
        let noun = if self.worker(place).is_some() { "worker" } else { "server" };
        format!("{noun} {}", self.target(place))
    }

    fn set_pid(&mut self, place: usize, pid: Option<u32>) {
        let servers = self.farm.servers.len();
        match place.checked_sub(servers) {
            Some(place) => self.farm.workers[place].pid = pid,
            None => self.farm.servers[place].pid = pid,
        }
    }

    fn spawn(&mut self, place: usize) -> Result<(), Failure> {
        // What its tasks make is as open as if this process had not been more careful.
        let spawned = self.command(place).and_then(|mut command| umask::as_before(|| command.spawn()));
        let child = spawned.map_err(|error| {
            Failure::failed(
                "system",
                format!("{} cannot be started: {error}", self.who(place)),
                "make room, then try again",
            )
        })?;
        self.set_pid(place, Some(child.id()));
        self.children[place] = Some(child);
        Ok(())
    }

    fn command(&self, place: usize) -> io::Result<Command> {
        let node = self.node(place);
        let log = farms::log_file(&self.home.dir, &node);
        let log = private::append(&log)?;
        let mut command = Command::new(std::env::current_exe()?);
        if self.worker(place).is_some() {
            command.arg("worker").arg("--config").arg(self.config_file(WORKERS));
            command.arg("--name").arg(&node).arg("--dir").arg(self.home.dir.join(&node));
            command.arg("--beside").arg(self.server_beside(place).to_string());
        } else {
            command.arg("server").arg("--config").arg(self.config_file(&node));
            if std::env::var_os(MALLOC_THRESHOLD).is_none() {
                command.env(MALLOC_THRESHOLD, "131072");
            }
        }
        command.arg("--parent").arg(std::process::id().to_string());
        self.settings.hidden.iter().for_each(|variable| _ = command.env_remove(variable));
        // What this user may do elsewhere is none of the tasks' business.
        command.env_remove(token::VARIABLE).env_remove("PRIMUS_API");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // Ctrl-C is for us; we stop them in good order.
        command.process_group(0);
        Ok(command)
    }

    fn config_file(&self, node: &str) -> PathBuf {
        self.home.dir.join(format!("{node}.toml"))
    }

    fn server_config(&self, id: u64) -> String {
        format!(
            "[server]\nid = {id}\nfarm = {}\ndir = {}\nchaos = true\n\n[api]\ntoken_file = {}\n\n{}{}{}",
            quoted(&self.farm.name),
            quoted(&self.home.dir.join(format!("server-{id}")).to_string_lossy()),
            quoted(&self.home.dir.join(TOKEN).to_string_lossy()),
            self.cluster_config(),
            self.settings.servers,
            self.neighbours,
        )
    }

    /// What the files of other farms say of this one.
    pub(crate) fn as_neighbour(&self) -> String {
        let authority = self.founding.authority.as_ref();
        let authority = authority.map(|path| format!("authority = {}\n", quoted(&path.to_string_lossy())));
        let (name, authority) = (quoted(&self.farm.name), authority.unwrap_or_default());
        format!("\n[[neighbours]]\nname = {name}\n{authority}{}", self.servers_list())
    }

    fn workers_config(&self) -> String {
        format!(
            "[server]\nfarm = {}\n\n{}\n[worker]\nslots = {}\nallow = [\"*\"]\n",
            quoted(&self.farm.name),
            self.cluster_config(),
            self.home.slots,
        )
    }

    fn cluster_config(&self) -> String {
        let founding = quoted(&self.founding.file.to_string_lossy());
        format!("[cluster]\nfounding = {founding}\n{}", self.servers_list())
    }

    fn servers_list(&self) -> String {
        let server = |server: &Started| {
            let (address, api) = (quoted(&server.address), quoted(server.api.trim_start_matches("http://")));
            format!("  {{ id = {}, address = {address}, api = {api} }},\n", server.id)
        };
        let servers: String = self.farm.servers.iter().map(server).collect();
        format!("servers = [\n{servers}]\n")
    }

    fn storage(&self, error: &io::Error) -> Failure {
        let message = format!("{} cannot be written to: {error}", self.home.dir.display());
        Failure::failed("storage", message, "make room, or choose another folder with --dir")
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        self.stop();
        self.farm.forget();
    }
}

impl Death {
    /// What happened, and what to do; `choice` says in which farm, if there are several.
    pub fn sentence(&self, choice: &str) -> String {
        if self.is_final() {
            return self.cause();
        }
        format!("{}; primus chaos restart {}{choice} starts it again", self.cause(), self.target)
    }

    /// Must it not be started again as it is?
    fn is_final(&self) -> bool {
        self.status.code() == Some(FINAL.into())
    }

    /// The farm could not start because of it.
    pub(crate) fn failure(&self) -> Failure {
        Failure::failed("dead", self.cause(), "mend that, then try again")
    }

    fn cause(&self) -> String {
        let last_words = self.last_words.as_ref().map(|words| format!(": {words}")).unwrap_or_default();
        format!("{} has ended ({}){last_words}", self.who, self.status)
    }
}

fn worker(initial: char, number: u64) -> StartedWorker {
    StartedWorker { name: format!("{initial}{number}"), pid: None }
}

/// Kills it, if it still runs, and waits for its end.
fn end(child: &mut Child) {
    _ = child.kill();
    _ = child.wait();
}

fn last_complaint(file: &Path) -> Option<String> {
    let text = fs::read(file).ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    // What begins with a time tells what happened, not why the node ended.
    let is_complaint =
        |line: &&str| !line.trim().is_empty() && !line.starts_with(|first: char| first.is_ascii_digit());
    text.lines().rev().find(is_complaint).map(|line| escape(line).into_owned())
}

/// Begins a log anew when it has become too long. What was in it stays beside it until the next time. Its node goes on
/// writing to the same file, at its new end.
fn turn_over(log: &Path, len_max: u64) -> io::Result<()> {
    if fs::metadata(log).is_ok_and(|log| log.len() > len_max) {
        let old = log.with_extension("log.old");
        _ = fs::remove_file(&old);
        let mut kept = OpenOptions::new().write(true).create_new(true).mode(0o600).open(old)?;
        io::copy(&mut File::open(log)?, &mut kept)?;
        OpenOptions::new().write(true).open(log)?.set_len(0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_anew_and_one_older_is_kept() {
        let dir = std::env::temp_dir().join(format!("primus-logs-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let log = dir.join("server-1.log");
        let mut node = OpenOptions::new().append(true).create(true).open(&log).unwrap();
        for round in 0..3 {
            io::Write::write_all(&mut node, format!("{round}").repeat(100).as_bytes()).unwrap();
            turn_over(&log, 100).unwrap();
            assert_eq!(fs::metadata(&log).unwrap().len(), 100, "not too long yet");
            io::Write::write_all(&mut node, b"x").unwrap();
            turn_over(&log, 100).unwrap();
            assert_eq!(fs::metadata(&log).unwrap().len(), 0);
            let old = fs::read_to_string(dir.join("server-1.log.old")).unwrap();
            assert_eq!(old, format!("{round}").repeat(100) + "x");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
