//! Places in which farms run that no other test sees: a folder and a runtime directory each.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use super::{eventually, http, is_running, send};

/// What the file is called that holds the secret of servers without `primus up`.
const TOKEN: &str = "token";

/// A place in which farms run that no other test sees.
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
}

/// A farm that `primus up` runs; it is killed when the test ends, however it ends.
pub(crate) struct Farm<'a> {
    place: &'a Place,
    pub(crate) up: Child,
    stdout: BufReader<ChildStdout>,
    complaints: PathBuf,
    pub(crate) ready: Value,
    pub(crate) api: Vec<SocketAddr>,
}

/// How one call ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Place {
    pub(crate) fn new() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("primus-test-{}-{number}", std::process::id()));
        fs::create_dir_all(dir.join("run")).expect("a folder can be made");
        Self { dir }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_primus"));
        command.args(words).env_remove("PRIMUS_API").env_remove("PRIMUS_TOKEN").current_dir(&self.dir);
        command.env("XDG_RUNTIME_DIR", self.dir.join("run")).env("TMPDIR", &self.dir);
        command.env("XDG_DATA_HOME", self.dir.join("data-home"));
        if let Ok(token) = fs::read_to_string(self.dir.join(TOKEN)) {
            command.env("PRIMUS_TOKEN", token);
        }
        command
    }

    /// A line as one would type it; quotes stand around whole words only.
    pub(crate) fn primus(&self, line: &str) -> Ran {
        let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
        self.command(&words).output().expect("primus starts").into()
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        let ran = self.primus(&format!("{line} -o json"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{line}: {ran:?}");
        assert_eq!(ran.stdout.matches('\n').count(), 1, "{line}: {ran:?}");
        serde_json::from_str(&ran.stdout).expect("stdout is JSON")
    }

    pub(crate) fn up(&self, words: &str) -> Farm<'_> {
        self.up_with(words, &[])
    }

    /// The same, with these variables in the environment.
    pub(crate) fn up_with(&self, words: &str, environment: &[(&str, &str)]) -> Farm<'_> {
        let words: Vec<&str> = ["up", "-o", "json"].into_iter().chain(words.split_whitespace()).collect();
        let complaints = self.dir.join(format!("complaints-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let stderr = File::create(&complaints).expect("a file can be made");
        let mut command = self.command(&words);
        command.envs(environment.iter().copied());
        let mut up = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("primus starts");
        let mut stdout = BufReader::new(up.stdout.take().expect("stdout is a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("stdout can be read");
        // From here on whatever is left is tidied up, even if there is nothing to talk to.
        let mut farm = Farm { place: self, up, stdout, complaints, ready: Value::Null, api: Vec::new() };
        farm.ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}: {}", farm.complaints()));
        let address = |api: &Value| api.as_str()?.trim_start_matches("http://").parse().ok();
        let addresses = farm.ready["api"].as_array().and_then(|apis| apis.iter().map(address).collect());
        farm.api = addresses.expect("every server has an API");
        farm.know_tokens();
        farm
    }

    /// A file with a secret, for servers that `primus up` does not run, which commands and requests then show to those
    /// servers.
    pub(crate) fn token_file(&self, apis: &[SocketAddr]) -> PathBuf {
        let (file, token) = (self.dir.join(TOKEN), "0123456789abcdef".repeat(4));
        if !file.exists() {
            fs::write(&file, &token).expect("a file can be written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
        }
        apis.iter().for_each(|api| http::know(*api, &token));
        file
    }

    /// Files of farms that are known.
    pub(crate) fn known(&self) -> Vec<String> {
        let files = fs::read_dir(self.dir.join("run/primus")).into_iter().flatten().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Folders of farms that are or were there.
    pub(crate) fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("primus-")).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.dir);
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Farm<'_> {
    /// What it said on stderr so far.
    pub(crate) fn complaints(&self) -> String {
        fs::read_to_string(&self.complaints).unwrap_or_default()
    }

    /// From now on requests to its servers show their secrets.
    fn know_tokens(&self) {
        let farms = self.ready["farms"].as_array().cloned().unwrap_or_else(|| vec![self.ready.clone()]);
        for name in farms.iter().filter_map(|farm| farm["farm"].as_str()) {
            let file = fs::read(self.place.dir.join(format!("run/primus/{name}.json"))).expect("the farm is known");
            let known: Value = serde_json::from_slice(&file).expect("the file is JSON");
            let token = known["token"].as_str().expect("a farm has a secret");
            let apis = known["api"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let apis = apis.filter_map(|api| api.trim_start_matches("http://").parse().ok());
            apis.for_each(|api| http::know(api, token));
        }
    }

    pub(crate) fn api_of(&self, server: u64) -> SocketAddr {
        self.api[usize::try_from(server).expect("ids are small") - 1]
    }

    /// The processes of the servers that run.
    pub(crate) fn pids(&self) -> Vec<u64> {
        self.pids_of("servers")
    }

    /// The processes of the workers that run.
    pub(crate) fn worker_pids(&self) -> Vec<u64> {
        self.pids_of("workers")
    }

    fn pids_of(&self, nodes: &str) -> Vec<u64> {
        let name = self.ready["farm"].as_str().expect("a farm has a name");
        let file = fs::read(self.place.dir.join(format!("run/primus/{name}.json"))).expect("the farm is known");
        let farm: Value = serde_json::from_slice(&file).expect("the file is JSON");
        let nodes = farm[nodes].as_array().expect("nodes are a list");
        nodes.iter().filter_map(|node| node["pid"].as_u64()).collect()
    }

    /// The leader, once there is one that is not this one.
    pub(crate) fn leader_other_than(&self, old: u64) -> u64 {
        eventually("another leader", || {
            let leader = self.place.primus("leader -o json");
            let leader: Value = serde_json::from_str(&leader.stdout).ok()?;
            leader["leader"].as_u64().filter(|leader| *leader != old)
        })
    }

    pub(crate) fn wait_until_alive(&self, count: usize) {
        eventually("servers to be alive", || {
            let status = self.place.json("status");
            let servers = status["servers"].as_array()?;
            (servers.iter().filter(|server| server["alive"] == true).count() == count).then_some(())
        });
    }

    /// Ends it as Ctrl-C does, and looks whether anything is left. What did it say?
    pub(crate) fn end(mut self) -> String {
        let pids = self.pids();
        send(Signal::INT, &[u64::from(self.up.id())]);
        let status = self.up.wait().expect("up ends");
        assert!(status.success(), "{status}: {}", self.complaints());
        assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
        let mut rest = String::new();
        while self.stdout.read_line(&mut rest).expect("stdout can be read") > 0 {}
        assert_eq!(rest, "");
        self.complaints()
    }
}

impl Drop for Farm<'_> {
    fn drop(&mut self) {
        _ = self.up.kill();
        _ = self.up.wait();
    }
}
