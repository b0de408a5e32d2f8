//! End to end: the doors of the API. Web pages and other users of this host get nothing done and are told nothing, on every
//! route that there is; the user who runs the farm, and the holder of a secret, need to type nothing more than before.

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::broker::free_ports;
use common::eventually;
use common::http::{ask, exchange_bare, know, token};
use common::place::{Farm, Place};
use serde_json::{Value, json};

/// Nobody: a user that no farm belongs to.
const OTHER: &str = "65534";
const JSON: &str = "content-type: application/json\r\n";

/// Who sends a request.
#[derive(Clone, Copy, PartialEq)]
enum Sender {
    /// This process.
    Own,
    /// A process of another user.
    Other,
}

/// A way to ask that must not work: what it is, its fields after the secret's, the secret, and the answer's status.
type Attempt<'a> = (&'a str, String, Option<&'a str>, u16);

impl Sender {
    /// The answer to exactly these bytes.
    fn ask(self, api: SocketAddr, request: &str) -> String {
        if self == Self::Own {
            return exchange_bare(api, request.as_bytes()).expect("it answers");
        }
        let script = format!("exec 3<>/dev/tcp/{}/{}; cat >&3; cat <&3", api.ip(), api.port());
        let mut command = as_other_user();
        command.args(["bash", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("there is a setpriv");
        child.stdin.take().expect("stdin is a pipe").write_all(request.as_bytes()).expect("it reads");
        let ran = child.wait_with_output().expect("it ends");
        String::from_utf8(ran.stdout).expect("answers are text")
    }
}

fn as_other_user() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", OTHER, "--regid", OTHER, "--clear-groups"]).current_dir("/");
    command
}

/// This process can only become somebody else if it may be anybody.
fn senders() -> Vec<Sender> {
    match rustix::process::geteuid().is_root() {
        true => vec![Sender::Own, Sender::Other],
        false => vec![Sender::Own],
    }
}

fn status_of(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("an answer: {answer:?}"))
}

fn body_of(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default()
}

/// All routes, as the router itself lists them: method and path.
fn routes(api: SocketAddr) -> Vec<(String, String)> {
    let (status, index) = ask(api, "GET", "/v1", "").expect("it answers");
    assert_eq!(status, 200, "{index}");
    let text = |value: &Value| value.as_str().expect("a route is texts").to_owned();
    let rows = index["items"].as_array().expect("routes are a list");
    let routes: Vec<_> = rows.iter().map(|row| (text(&row["method"]), text(&row["path"]))).collect();
    assert!(routes.len() > 40, "{routes:?}");
    routes
}

/// A path of this route at which there is something.
fn concrete(path: &str) -> String {
    let thing = if path.starts_with("/v1/tasks") { "1.1" } else { "1" };
    path.replace("{id}", thing).replace("{name}", "w1").replace("{*key}", "colour")
}

/// A body with which this route would change something.
fn tempting(method: &str, path: &str, trap: &Path) -> String {
    let job = json!({ "command": ["touch", trap] }).to_string();
    match (method, path) {
        ("POST", "/v1/jobs") => job,
        ("POST", "/v1/kv") => json!({ "key": "colour", "value": "red" }).to_string(),
        ("PUT", _) => "red".to_owned(),
        ("POST", "/v1/leader/transfer") => json!({ "to": 2 }).to_string(),
        ("POST", "/v1/chaos/cut") => json!({ "peers": [1, 2, 3] }).to_string(),
        ("POST", "/v1/chaos/delay") => json!({ "peers": [1, 2, 3], "delay_ms": 1000 }).to_string(),
        ("POST", "/v1/chaos/load") => json!({ "score": 99 }).to_string(),
        ("POST", "/v1/workers/{name}/drain") => json!({ "draining": true }).to_string(),
        ("POST", "/v1/sessions/{id}") => {
            json!({ "number": 1, "wants": [{ "group": "g", "rank": "id" }], "wait_ms": 1 }).to_string()
        }
        ("POST", _) => "{}".to_owned(),
        _ => String::new(),
    }
}

/// The attempts on a server with this secret, each wrong in one way only.
fn attempts(api: SocketAddr, token: &str) -> Vec<Attempt<'_>> {
    let host = |host: &str| format!("host: {host}\r\n");
    let own = host(&api.to_string());
    let of = |fields: &str| format!("{own}{fields}\r\n");
    vec![
        ("no secret", format!("{own}{JSON}"), None, 401),
        ("wrong secret", format!("{own}{JSON}"), Some("0123456789abcdef0123456789abcdef"), 401),
        ("foreign host", host(&format!("evil.example:{}", api.port())) + JSON, Some(token), 421),
        ("foreign origin", of("origin: https://evil.example") + JSON, Some(token), 403),
        ("another port's origin", of("origin: http://127.0.0.1:9") + JSON, Some(token), 403),
        ("cross-site", of("sec-fetch-site: cross-site") + JSON, Some(token), 403),
        ("text/plain", of("content-type: text/plain;charset=UTF-8"), Some(token), 415),
        ("a form", of("content-type: application/x-www-form-urlencoded"), Some(token), 415),
    ]
}

fn request(method: &str, path: &str, fields: &str, token: Option<&str>, body: &str) -> String {
    let secret = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\n{fields}{secret}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// What an outsider could have changed.
fn state(api: SocketAddr) -> Value {
    let get = |path: &str| {
        eventually(path, || match ask(api, "GET", path, "").ok()? {
            (200, answer) => Some(answer),
            _ => None,
        })
    };
    let names = ["name", "draining", "farm"];
    let of_worker = |worker: &Value| names.map(|name| worker[name].clone());
    let workers = get("/v1/workers");
    let workers: Vec<[Value; 3]> =
        workers["items"].as_array().expect("workers are a list").iter().map(of_worker).collect();
    let leader = get("/v1/leader");
    json!({
        "leader": [leader["leader"], leader["term"]],
        "kv": get("/v1/kv"),
        "jobs": get("/v1/jobs"),
        "groups": get("/v1/groups"),
        "loans": get("/v1/loans"),
        "workers": workers,
    })
}

#[test]
fn nothing_changes_and_nothing_is_told_on_any_route() {
    let place = Place::new();
    let farm = place.up("--farm secretive");
    let trap = place.dir.join("trap");
    assert_eq!(place.primus("kv put colour blue").code, Some(0));
    assert_eq!(place.primus("run -- true").code, Some(0));
    let api = farm.api[0];
    let token = token(api).expect("up has made a secret");
    let (routes, before) = (routes(api), state(api));
    for sender in senders() {
        for (what, fields, secret, expected) in attempts(api, &token) {
            let answers = routes.iter().map(|(method, path)| {
                let body = tempting(method, path, &trap);
                let answer = sender.ask(api, &request(method, &concrete(path), &fields, secret, &body));
                judge_refusal(what, method, path, expected, &answer)
            });
            // The same words for every route: they cannot tell anything about what is there.
            let mut answers: Vec<String> = answers.flatten().collect();
            answers.dedup();
            assert_eq!(answers.len(), 1, "{what}: {answers:?}");
        }
    }
    assert_eq!(state(api), before);
    assert!(!trap.exists());
    farm.end();
}

/// Its body, if it must refuse.
fn judge_refusal(what: &str, method: &str, path: &str, expected: u16, answer: &str) -> Option<String> {
    if path == "/livez" && expected == 401 {
        assert_eq!((status_of(answer), body_of(answer)), (200, "alive\n"), "{what}");
        return None;
    }
    assert_eq!(status_of(answer), expected, "{what}: {method} {path}: {answer}");
    let body: Value = serde_json::from_str(body_of(answer)).unwrap_or_else(|_| panic!("{what}: {answer}"));
    let words = ["code", "message", "hint"].map(|name| body["error"][name].as_str().unwrap_or_default().to_owned());
    assert!(words.iter().all(|text| !text.is_empty()), "{what}: {answer}");
    assert!(
        !answer.contains("secretive") && !answer.contains("blue") && !answer.contains("w1"),
        "{what}: {answer}"
    );
    assert!(!answer.to_ascii_lowercase().contains("access-control-allow"), "{what}: {answer}");
    Some(body_of(answer).to_owned())
}

#[test]
fn the_secret_is_where_only_its_user_finds_it() {
    let place = Place::new();
    let farm = place.up("--farm north");
    let token = token(farm.api[0]).expect("up has made a secret");
    assert_eq!(token.len(), 64, "256 bits");
    let file = PathBuf::from(farm.ready["token_file"].as_str().expect("up says where it is"));
    for path in [&file, &place.dir.join("run/primus/north.json")] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        assert!(fs::read_to_string(path).unwrap().contains(&token));
    }
    for pid in farm.pids().into_iter().chain(farm.worker_pids()).chain([u64::from(farm.up.id())]) {
        for part in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{pid}/{part}")).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains(&token), "{part} of {pid}");
        }
    }
    let shown = place.primus("run -- env");
    assert!(!shown.stdout.contains(&token), "{shown:?}");
    assert!(!farm.ready.to_string().contains(&token) && !farm.complaints().contains(&token));
    for command in ["config show", "status -o json", "events", "farms -o json"] {
        assert!(!place.primus(command).stdout.contains(&token), "{command}");
    }
    if senders().contains(&Sender::Other) {
        let read = as_other_user().arg("cat").arg(&file).output().expect("there is a setpriv");
        assert!(!read.status.success() && read.stdout.is_empty(), "{read:?}");
    }
    farm.end();
}

#[test]
fn commands_find_the_secret_by_themselves_or_say_that_it_is_missing() {
    let place = Place::new();
    let farm = place.up("");
    let (api, secret) = (farm.api[1], token(farm.api[0]).expect("up has made a secret"));
    // The file of this user's farm is enough, whatever way leads to it.
    for line in ["status", "leader", "jobs", "kv put a b", "run -- true", "chaos load 1 5"] {
        for place_of in [String::new(), format!(" --api http://{api}"), format!(" --api localhost:{}", api.port())]
        {
            if line.starts_with("chaos") && !place_of.is_empty() {
                continue;
            }
            let line = line.replacen(" -- ", &format!("{place_of} -- "), 1);
            let line = if line.contains(" -- ") { line } else { format!("{line}{place_of}") };
            let ran = place.primus(&line);
            assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
        }
    }
    // Somebody who does not have that file is told what is missing, and what to do.
    let stranger = Place::new();
    for line in ["status", "leader", "jobs", "kv put a b", "kv get a", "events", "submit -- true", "drain w1"] {
        let at = format!("--api http://{api}");
        let line = line.replacen(" -- ", &format!(" {at} -- "), 1);
        let line = if line.contains(" -- ") { line } else { format!("{line} {at}") };
        let ran = stranger.primus(&line);
        assert_eq!(ran.code, Some(5), "{line}: {ran:?}");
        assert!(ran.stdout.is_empty() && ran.stderr.contains("PRIMUS_TOKEN"), "{line}: {ran:?}");
    }
    let run = stranger.primus(&format!("run --api http://{api} -- true"));
    assert!(run.code == Some(125) && run.stderr.contains("PRIMUS_TOKEN"), "{run:?}");
    // With it, everything works from anywhere; with a wrong one, nothing does.
    let words = ["kv", "put", "a", "c", "--api", &format!("http://{api}")];
    for (given, code) in [(secret.as_str(), 0), ("0123456789abcdef0123456789abcdef", 5), ("short", 2)] {
        let ran = stranger.command(&words).env("PRIMUS_TOKEN", given).output().expect("primus starts");
        assert_eq!(ran.status.code(), Some(code), "{given}: {ran:?}");
    }
    let chosen = place.command(&words).env("PRIMUS_TOKEN", "0123456789abcdef0123456789abcdef").output();
    assert_eq!(chosen.expect("primus starts").status.code(), Some(5), "what was set counts with --api");
    farm.end();
}

#[test]
fn other_programs_can_show_the_file() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 0");
    let file = farm.ready["token_file"].as_str().expect("up says where it is");
    let header = fs::read_to_string(file).expect("it is ours");
    assert_eq!(header.trim_end(), format!("Authorization: Bearer {}", token(farm.api[0]).expect("a secret")));
    // As `curl -H @FILE` sends it.
    let get = format!(
        "GET /v1/status HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{}\r\n\r\n",
        farm.api[0],
        header.trim_end()
    );
    assert_eq!(status_of(&exchange_bare(farm.api[0], get.as_bytes()).expect("it answers")), 200);
    farm.end();
}

/// A server of its own, with a worker beside it that runs anything.
struct Server {
    child: Child,
    api: SocketAddr,
    complaints: PathBuf,
}

impl Server {
    fn start(place: &Place, words: &[&str]) -> Self {
        let (links, api) = (free(), free());
        let cluster = format!("1@{links}/{api}");
        let complaints = place.dir.join("stderr");
        let parent = std::process::id().to_string();
        let own = ["server", "--id", "1", "--cluster", &cluster, "--slots", "2", "--allow", "*", "--dir", "data"];
        let own =
            own.into_iter().chain(["--parent", &parent, "--set", "server.chaos=true"]).chain(words.iter().copied());
        let mut command = place.command(&own.collect::<Vec<_>>());
        command.stdin(Stdio::null()).stderr(File::create(&complaints).expect("a file can be made"));
        let child = command.spawn().expect("primus starts");
        let server = Self { child, api, complaints };
        eventually("the server to listen", || {
            let alive = request("GET", "/livez", &format!("host: {api}\r\n"), None, "");
            exchange_bare(api, alive.as_bytes()).ok()
        });
        server
    }

    fn complaints(&self) -> String {
        fs::read_to_string(&self.complaints).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn free() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports()))
}

/// The requests of pages as browsers send them, to a server that asks for no secret.
#[test]
fn a_web_page_runs_nothing_even_where_there_is_no_secret() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let (api, trap) = (server.api, place.dir.join("trap"));
    eventually("a leader", || ask(api, "GET", "/v1/leader", "").ok()?.1["leader"].as_u64());
    let job = json!({ "command": ["touch", trap] }).to_string();
    let form = format!("{{\"command\":[\"touch\",{trap:?}],\"name\":\"a=\"}}\r\n");
    let page = "origin: https://evil.example\r\nsec-fetch-site: cross-site\r\n";
    let own = format!("host: {api}\r\n");
    let evil = format!(
        "host: evil.example:{}\r\norigin: http://evil.example:{0}\r\nsec-fetch-site: same-origin\r\n",
        api.port()
    );
    for (what, fields, body, status) in [
        ("fetch without a preflight", format!("{own}{page}content-type: text/plain;charset=UTF-8\r\n"), &job, 403),
        ("a form of plain text", format!("{own}{page}content-type: text/plain\r\n"), &form, 403),
        ("sendBeacon", format!("{own}{page}content-type: application/x-www-form-urlencoded\r\n"), &job, 403),
        ("an old browser", format!("{own}content-type: text/plain\r\n"), &job, 415),
        ("an old browser's form", format!("{own}content-type: application/x-www-form-urlencoded\r\n"), &job, 415),
        ("no kind at all", own.clone(), &job, 415),
        ("DNS rebinding", format!("{evil}{JSON}"), &job, 421),
    ] {
        let answer =
            exchange_bare(api, request("POST", "/v1/jobs", &fields, None, body).as_bytes()).expect("it answers");
        assert_eq!(status_of(&answer), status, "{what}: {answer}");
    }
    let rebound = exchange_bare(api, request("GET", "/v1/status", &evil, None, "").as_bytes()).expect("it answers");
    assert!(status_of(&rebound) == 421 && !rebound.contains("primus"), "{rebound}");
    for (path, body) in [
        ("/v1/kv", "{\"key\":\"a\",\"value\":\"b\"}"),
        ("/v1/leader/resign", ""),
        ("/v1/elections", ""),
        ("/v1/chaos/cut", "{\"peers\":[]}"),
        ("/v1/chaos/delay", "{\"peers\":[],\"delay_ms\":1}"),
        ("/v1/chaos/load", "{\"score\":99}"),
    ] {
        let fields = format!("{own}{page}content-type: text/plain;charset=UTF-8\r\n");
        let answer = exchange_bare(api, request("POST", path, &fields, None, body).as_bytes()).expect("it answers");
        assert_eq!(status_of(&answer), 403, "{path}: {answer}");
    }
    let (_, jobs) = ask(api, "GET", "/v1/jobs", "").expect("it answers");
    assert_eq!(jobs["items"], json!([]));
    // What is asked for as it should be is done.
    assert_eq!(ask(api, "POST", "/v1/jobs", &job).expect("it answers").0, 201);
    eventually("the job to run", || trap.exists().then_some(()));
    let said = server.complaints();
    assert!(
        said.contains("every user of this host can run commands as ") && said.contains("api.token_file"),
        "{said}"
    );
}

#[test]
fn a_file_holds_the_secret_of_a_configured_server() {
    let place = Place::new();
    let secret = "b".repeat(40);
    let file = place.dir.join("secret");
    fs::write(&file, format!("{secret}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&place, &["--token-file", "secret"]);
    assert_eq!(ask(server.api, "GET", "/v1/status", "").unwrap().0, 401);
    know(server.api, &secret);
    eventually("a leader", || ask(server.api, "GET", "/v1/leader", "").ok()?.1["leader"].as_u64());
    let words = ["run", "--api", &format!("http://{}", server.api), "--", "echo", "hello"];
    assert_eq!(place.command(&words).output().unwrap().status.code(), Some(125));
    let ran = place.command(&words).env("PRIMUS_TOKEN", &secret).output().unwrap();
    assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(0), &b"hello\n"[..]), "{ran:?}");
    assert!(!server.complaints().contains("every user"), "{}", server.complaints());
}

#[test]
fn a_secret_that_is_none_is_refused_in_one_line() {
    let place = Place::new();
    for (name, text, mode) in
        [("open", "b".repeat(40), 0o644), ("empty", String::new(), 0o600), ("short", "secret".to_owned(), 0o600)]
    {
        fs::write(place.dir.join(name), text).unwrap();
        fs::set_permissions(place.dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let server = "server --id 1 --cluster 1@127.0.0.1:1/127.0.0.1:2";
    let beyond = "server --id 1 --cluster 1@127.0.0.1:1/192.0.2.1:2";
    for (line, words) in [
        (format!("{server} --token-file open"), "other users can read or write; chmod 600 open"),
        (format!("{server} --token-file empty"), "is empty"),
        (format!("{server} --token-file short"), "fewer than 32 characters"),
        (format!("{server} --token-file nowhere"), "cannot be read"),
        (format!("{beyond} --insecure"), "name a file with a secret in api.token_file"),
        (format!("config check{} --token-file open", server.trim_start_matches("server")), "other users can read"),
    ] {
        let ran = place.primus(&line);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{line}: {ran:?}");
        assert!(ran.stderr.contains(words) && ran.stderr.matches('\n').count() == 1, "{line}: {ran:?}");
    }
}

/// Followers pass requests on to the leader; they have checked the secret.
#[test]
fn every_server_still_answers_for_the_farm() {
    let place = Place::new();
    let farm = place.up("");
    for (number, api) in farm.api.iter().enumerate() {
        let (status, answer) = ask(*api, "PUT", &format!("/v1/kv/{number}"), "x").expect("it answers");
        assert_eq!(status, 200, "{answer}");
        assert_eq!(ask(*api, "GET", &format!("/v1/kv/{number}"), "").expect("it answers").1["value"], "x");
        assert_eq!(ask(*api, "POST", "/v1/jobs", "{\"kind\":\"noop\"}").expect("it answers").0, 201);
        assert_eq!(ask(*api, "GET", "/v1/workers", "").expect("it answers").0, 200);
    }
    let leader = farm.ready["leader"].as_u64().expect("somebody leads");
    fields_of_servers_mean_nothing(&farm, leader);
    here_means_this_server_alone(farm.api_of(1 + leader % 3));
    farm.end();
}

/// A client cannot say that it stands beside another server, nor that a request came through one.
fn fields_of_servers_mean_nothing(farm: &Farm<'_>, leader: u64) {
    let other = 1 + leader % 3;
    let secret = token(farm.api[0]);
    let fields = |api: SocketAddr| {
        let proof = "0".repeat(64);
        format!("host: {api}\r\n{JSON}x-primus-passed-on: {other}\r\nx-primus-proof: {proof}\r\n")
    };
    let poll = json!({ "number": 1, "wait_ms": 1 }).to_string();
    for (asked, beside) in [(leader, leader), (other, other)] {
        let api = farm.api_of(asked);
        let text = request("POST", "/v1/sessions/7", &fields(api), secret.as_deref(), &poll);
        let answer = exchange_bare(api, text.as_bytes()).expect("it answers");
        let answer: Value = serde_json::from_str(body_of(&answer)).expect("it is JSON");
        assert_eq!(answer["server"], beside, "{answer}");
        // A request that another server had passed on would be refused here.
        let text = request("GET", "/v1/jobs", &fields(api), secret.as_deref(), "");
        assert_eq!(status_of(&exchange_bare(api, text.as_bytes()).expect("it answers")), 200);
        // Nor do they stand for the secret.
        let text = request("GET", "/v1/jobs", &fields(api), None, "");
        assert_eq!(status_of(&exchange_bare(api, text.as_bytes()).expect("it answers")), 401);
    }
}

/// Who has the secret may ask one server for what it can say by itself.
fn here_means_this_server_alone(follower: SocketAddr) {
    let secret = token(follower);
    for (fields, status) in [("", 200), ("x-primus-here: 1\r\n", 503)] {
        let fields = format!("host: {follower}\r\n{JSON}{fields}");
        let text = request("GET", "/v1/jobs", &fields, secret.as_deref(), "");
        assert_eq!(status_of(&exchange_bare(follower, text.as_bytes()).expect("it answers")), status);
    }
}

/// What is refused, and with which words: each row a mistake that was once taken, or answered in the framework's words.
#[test]
fn mistakes_are_refused_at_once_with_what_was_sent() {
    let place = Place::new();
    let farm = place.up("--servers 3 --workers 1");
    let leader = farm.ready["leader"].as_u64().expect("somebody leads");
    assert_eq!(place.primus("run -- true").code, Some(0));
    let before = jobs(farm.api[0]);
    for api in [farm.api_of(leader), farm.api_of(1 + leader % 3)] {
        for (method, path, body, words) in mistakes() {
            let (status, answer) = ask(api, method, path, body).expect("it answers");
            let error = &answer["error"];
            let message = error["message"].as_str().unwrap_or_default();
            assert_eq!((status, &error["code"]), (400, &json!("usage")), "{method} {path} {body:.80}: {answer}");
            assert!(message.contains(words), "{method} {path} {body:.80}: {message} has no {words:?}");
            let text = error.to_string();
            assert!(text.len() < 700, "{method} {path}: {text}");
            for framework in ["Failed to deserialize", "struct ", "documentation", "u64", "sequence"] {
                assert!(!text.contains(framework), "{method} {path} {body:.80}: {text}");
            }
        }
    }
    assert_eq!(jobs(farm.api[0]), before, "nothing was submitted or retried");
    farm.end();
}

fn jobs(api: SocketAddr) -> Value {
    ask(api, "GET", "/v1/jobs", "").expect("it answers").1
}

/// Method, path, body, and words of the answer.
type Mistake = (&'static str, &'static str, &'static str, &'static str);

/// Bodies that are not jobs, and words of the answer.
const NO_JOBS: &[(&str, &str)] = &[
    // An object is an object.
    ("[[\"echo\",\"x\"]]", "a list stands where an object belongs"),
    ("[]", "a list stands where an object belongs"),
    ("7", "7 stands where an object belongs"),
    ("{\"command\":[\"env\"],\"env\":{\"A\":\"1\",\"A\":\"2\"}}", "A is given twice"),
    ("{\"command\":[\"env\"],\"env\":[[\"A\",\"1\"]]}", "a list stands where an object belongs"),
    ("{\"command\":[\"a\"],\"command\":[\"b\"]}", "given twice"),
    // Own words for what is not JSON.
    ("{\"command\":[\"\\ud800\"]}", "it is not JSON at line 1"),
    ("{\"command\":", "it ends in the middle"),
    ("{\"command\":\"echo\"}", "\"echo\" stands where a list belongs"),
    ("{\"command\":[\"a\"],\"retries\":300}", "300 stands where a whole number within its limits belongs"),
    // What would only fail later.
    ("{\"command\":[\"\"]}", "the first word of the command is empty"),
    ("{\"command\":[\"true\"],\"cwd\":\"\"}", "cwd is empty"),
    ("{\"command\":[\"true\"],\"input\":\"x\"}", "input belongs to a kind"),
    ("{\"kind\":\"\"}", "kind is empty"),
];

const NO_REQUESTS: &[Mistake] = &[
    ("POST", "/v1/jobs/1/retry", "{\"zzz\":1}", "the field \"zzz\" is unknown"),
    ("POST", "/v1/jobs/1/retry", "{\"failed_onyl\":true}", "the field \"failed_onyl\" is unknown"),
    ("POST", "/v1/jobs/1/retry", "{\"failed_only\":\"yes\"}", "failed_only is \"yes\", not true or false"),
    ("POST", "/v1/tasks/1.1/retry", "{\"failed_only\":true}", "the field \"failed_only\" is unknown"),
    ("POST", "/v1/jobs/1/cancel", "{\"zzz\":1}", "the field \"zzz\" is unknown"),
    ("POST", "/v1/kv", "{\"key\":\"a\",\"value\":\"b\",\"ttl\":1}", "unknown field `ttl`"),
    ("POST", "/v1/kv", "[\"a\",\"b\"]", "a list stands where an object belongs"),
    ("POST", "/v1/workers/w1/drain", "{\"draining\":true,\"zzz\":1}", "the field \"zzz\" is unknown"),
    ("POST", "/v1/workers/w1/drain", "[true]", "a list stands where an object belongs"),
    ("POST", "/v1/loans", "{\"to\":\"south\",\"count\":\"2\"}", "count is \"2\", not a whole number"),
    ("POST", "/v1/loans/recall", "{\"all\":true,\"zzz\":1}", "the field \"zzz\" is unknown"),
    ("POST", "/v1/loans/recall", "{\"all\":true,\"worker\":\"w1\"}", "said twice"),
    ("POST", "/v1/leader/transfer", "{\"to\":\"2\"}", "to is \"2\", not a whole number"),
    ("POST", "/v1/leader/transfer", "{\"to\":2,\"now\":true}", "the field \"now\" is unknown"),
    ("POST", "/v1/leader/transfer", "{}", "to is missing"),
    ("POST", "/v1/chaos/cut", "{\"peers\":[-1]}", "peers is [-1], not a list of whole numbers"),
    ("POST", "/v1/chaos/cut", "{\"peers\":[9]}", "server 9 does not exist"),
    ("POST", "/v1/chaos/cut", "{\"peers\":[],\"zzz\":1}", "the field \"zzz\" is unknown"),
    ("POST", "/v1/chaos/load", "{\"score\":-1}", "score is -1"),
    ("POST", "/v1/chaos/load", "{\"score\":100.5}", "score is 100.5"),
    ("POST", "/v1/chaos/load", "{\"score\":1e308}", "not a number from 0 to 100"),
    ("POST", "/v1/sessions/7", "{\"number\":1,\"zzz\":1}", "unknown field `zzz`"),
    ("POST", "/v1/sessions/7", "[1]", "a list stands where an object belongs"),
    ("POST", "/v1/sessions/7", "{\"number\":1,\"holds\":[[\"g\",1]]}", "a list stands where an object belongs"),
    (
        "POST",
        "/v1/sessions/7",
        "{\"number\":1,\"wants\":[{\"group\":\"g\",\"rank\":\"id\",\"holders\":0}]}",
        "holders is 0",
    ),
    (
        "POST",
        "/v1/sessions/7",
        "{\"number\":1,\"wants\":[{\"group\":\"../x\",\"rank\":\"id\"}]}",
        "a part without a name",
    ),
    (
        "POST",
        "/v1/sessions/7",
        "{\"number\":1,\"wants\":[{\"group\":\".\",\"rank\":\"id\"}]}",
        "a part without a name",
    ),
    ("POST", "/v1/sessions/7", "{\"number\":1,\"holds\":[{\"group\":\"/\",\"term\":1}]}", "a part without a name"),
    ("POST", "/v1/sessions/7", "{\"number\":1,\"ended\":[{\"group\":\"a b\",\"term\":1}]}", "has no ' '"),
    ("POST", "/v1/kv?batch=x", "{\"key\":\"a\",\"value\":\"b\"}", "batch is \"x\""),
    ("GET", "/v1/jobs?limit=-1", "", "limit is \"-1\""),
    ("GET", "/v1/kv?limit=0", "", "limit is \"0\", not a whole number from 1 to 10000"),
    ("GET", "/v1/jobs?limit=1&limit=2", "", "limit is given twice"),
    ("GET", "/v1/jobs?colour=red", "", "the parameter \"colour\" is unknown"),
    ("GET", "/v1/tasks?stat=failed", "", "the parameter \"stat\" is unknown"),
    ("GET", "/v1/events?after=x", "", "after is \"x\""),
    ("GET", "/v1/jobs/1/wait?timeout_ms=soon", "", "timeout_ms is \"soon\""),
    ("GET", "/v1/tasks/1.1/output?stream=both", "", "stream \"both\" does not exist"),
    ("GET", "/v1/kv/%ff", "", "not valid UTF-8"),
];

fn mistakes() -> Vec<Mistake> {
    let claim = json!({ "number": 1, "holds": [{ "group": "x".repeat(100_000), "term": 1 }] }).to_string();
    let long = ("POST", "/v1/sessions/7", &*claim.leak(), "1 to 64 letters, this one 100000");
    let jobs = NO_JOBS.iter().map(|(body, words)| ("POST", "/v1/jobs", *body, *words));
    jobs.chain(NO_REQUESTS.iter().copied()).chain([long]).collect()
}

#[test]
fn a_key_belongs_to_one_job_and_to_no_other() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 1");
    let submit = |body: &str| common::http::submit(farm.api[0], "once", &serde_json::from_str(body).expect("JSON"));
    let first = submit("{\"command\":[\"echo\",\"a\"]}").expect("it answers");
    assert_eq!((first.0, &first.1["job"]), (201, &json!("1")));
    // The same job, however it is written.
    let again = submit("{ \"retries\":0, \"command\" : [\"echo\",\"a\"] }").expect("it answers");
    assert_eq!((again.0, &again.1["job"]), (200, &json!("1")));
    let (status, other) = submit("{\"command\":[\"echo\",\"b\"]}").expect("it answers");
    assert_eq!((status, &other["error"]["code"]), (422, &json!("other_job")), "{other}");
    let typed = |word: &str| place.primus(&format!("submit --key once -- echo {word}"));
    let ran = typed("b");
    assert!(
        ran.code == Some(2) && ran.stderr.contains("job 1 was submitted under this Idempotency-Key"),
        "{ran:?}"
    );
    let items = jobs(farm.api[0]);
    assert_eq!(items["items"].as_array().map(Vec::len), Some(1), "{items}");
    farm.end();
}

#[test]
fn what_somebody_names_a_job_cannot_turn_a_line_round() {
    let place = Place::new();
    let farm = place.up("--servers 1 --workers 1");
    let job = json!({ "command": ["true"], "name": "photo\u{202e}gpj.exe\u{1b}[2J" }).to_string();
    assert_eq!(ask(farm.api[0], "POST", "/v1/jobs", &job).expect("it answers").0, 201);
    for line in ["jobs", "tasks", "task 1.1", "status", "events"] {
        let ran = place.primus(line);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.stdout.contains(['\u{202e}', '\u{1b}']), "{line}: {ran:?}");
    }
    assert!(place.primus("jobs").stdout.contains("photo\\u{202e}gpj.exe\\u{1b}[2J"));
    farm.end();
}
