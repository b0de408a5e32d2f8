//! End to end: certificates while a farm runs. Authorities change, nodes renew their certificates by themselves, and those who are
//! revoked or bear another's name are turned away.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::place::Place;
use common::secured::{FARM, Secured, authority, founded, issued, keep};
use common::{eventually, eventually_or};
use primus_core::ServerId;
use primus_identity::certificate::{Certificate, DAY, Validity};
use primus_identity::name::Name;
use primus_identity::rustls::pki_types::pem::PemObject;
use primus_identity::{CertificateDer, UnixTime};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("stdout is JSON")
}

/// What stands in a file of a node's folder.
fn kept(place: &Place, node: &str, file: &str) -> String {
    fs::read_to_string(place.dir.join(node).join("tls").join(file)).unwrap_or_default()
}

fn certificate(place: &Place, node: &str) -> Certificate {
    let der = CertificateDer::from_pem_slice(kept(place, node, "certificate.pem").as_bytes());
    Certificate::read(&der.expect("it is a certificate")).expect("it is one of primus")
}

fn ago(days: u32) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()) - DAY * days)
}

/// The worker that runs this task.
fn worker_of(farm: &Secured<'_>, task: &str) -> Option<String> {
    let task = json(&farm.primus(&format!("task {task} -o json")));
    task["worker"].as_str().filter(|_| task["state"] == "running").map(str::to_owned)
}

#[test]
fn the_ledger_gets_the_authority_of_the_founding_and_no_server_keeps_its_key() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let hash = authority(&founding).certificate().hash().to_string();
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_all();
    eventually("the authority", || {
        let shown = json(&farm.primus("cert show -o json"));
        Some(()).filter(|()| shown["authorities"][0]["authority"] == *hash)
    });
    for node in ["server-1", "server-2", "server-3"] {
        eventually("a folder without that key", || {
            Some(()).filter(|()| kept(&place, node, "founding.pem").is_empty())
        });
    }
    assert!(kept(&place, "w1", "founding.pem").is_empty());
}

#[test]
fn the_authority_is_rotated_while_tasks_run_and_one_server_is_away() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let first = authority(&founding).certificate().pem();
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_all();
    farm.runs("hello");
    let leader = farm.leader();
    let away = (1..=3).find(|id| *id != leader).expect("there are three");
    farm.kill(&format!("server-{away}"));
    let term = json(&farm.primus("leader -o json"))["term"].clone();
    farm.primus_at(leader, "submit --array 1-20 -- sleep 0.3");
    farm.primus_at(leader, "cert rotate");
    eventually_or("the refusal to finish", || {
        let said = farm.refusal("cert finish");
        let words = format!("server {away} must show a certificate of the new authority first");
        if said.contains(&words) { Ok(()) } else { Err(said) }
    });
    // It has not heard of the new authority; the one that it knows vouches for that.
    farm.start_server(away);
    farm.primus("cert finish");
    let shown = json(&farm.primus("cert show -o json"));
    let newest = shown["authorities"].as_array().expect("a list");
    assert_eq!(newest.len(), 1, "{shown}");
    for node in ["server-1", "server-2", "server-3", "w1", "w2"] {
        eventually(node, || Some(()).filter(|()| !kept(&place, node, "trusted.pem").contains(first.trim())));
        assert!(!kept(&place, node, "authority.pem").contains(first.trim()), "{node}");
    }
    farm.primus("wait 2");
    let job = json(&farm.primus("job 2 -o json"));
    assert_eq!(job["done"], 20, "{job}");
    let now = json(&farm.primus("leader -o json"));
    assert_eq!((&now["term"], &now["leader"]), (&term, &leader.into()), "the leader has not changed");
    // Also with the file of the founding nothing goes back to the first authority.
    farm.restart_all();
    farm.runs("again");
    farm.forget_founding();
    farm.restart_all();
    farm.runs("for the third time");
}

#[test]
fn a_revoked_worker_loses_its_link_and_its_task_runs_elsewhere() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_all();
    farm.runs("hello");
    farm.primus_at(1, "submit -- sleep 300");
    let first = eventually("a worker that runs the task", || worker_of(&farm, "2.1"));
    eventually("its key", || Some(()).filter(|()| farm.primus("workers -o json").contains("sha256:")));
    farm.primus(&format!("cert revoke {first}"));
    let said = farm.ends(&first);
    assert_eq!(said.0, Some(5), "{}", said.1);
    assert!(said.1.contains("was revoked: let the node join again, if it may"), "{}", said.1);
    eventually_or("another worker that runs it", || match worker_of(&farm, "2.1") {
        Some(now) if now != first => Ok(()),
        _ => Err([farm.primus("task 2.1 -o json"), farm.primus("workers -o json"), farm.logs()].concat()),
    });
    // It does not come back, whatever it tries.
    let again = farm.run_worker(&first, &[]);
    assert_eq!(again.code, Some(5), "{again:?}");
    assert!(again.stderr.contains("was revoked"), "{again:?}");
    farm.primus("cancel 2");
}

#[test]
fn a_name_belongs_to_one_key_until_it_is_forgotten() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_all();
    farm.runs("hello");
    let keys = || json(&farm.primus("workers -o json"))["items"].clone();
    eventually("the keys of both", || {
        let workers = keys();
        let all = workers.as_array()?;
        Some(()).filter(|()| all.len() == 2 && all.iter().all(|worker| worker["key"].is_string()))
    });
    farm.kill("w1");
    let file = founding.to_str().expect("it is text");
    let ran = farm.run_worker_in("elsewhere", "w1", &["--founding", file]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stderr.contains("w1 is another worker: primus workers forget w1, or choose a name"), "{ran:?}");
    farm.primus("workers forget w1");
    farm.start_worker_in("elsewhere", "w1");
    eventually("the other w1", || {
        let workers = json(&farm.primus("workers -o json"))["items"].clone();
        let found = workers.as_array()?.iter().find(|worker| worker["name"] == "w1")?.clone();
        Some(()).filter(|()| found["alive"] == true && found["key"].is_string())
    });
    // And the one that was forgotten does not come back under that name.
    let before = farm.run_worker("w1", &[]);
    assert_eq!(before.code, Some(5), "{before:?}");
}

#[test]
fn certificates_that_are_old_are_renewed_by_the_leader() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let north = authority(&founding);
    let names = [
        ("w1", Name::worker(FARM, "w1").expect("it is a name")),
        ("server-2", Name::server(FARM, ServerId(2)).expect("it is a name")),
    ];
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    (1..=3).for_each(|id| farm.start_server(id));
    farm.start_worker("w2");
    farm.runs("hello");
    farm.kill("server-2");
    let validity = Validity::since_yesterday(ago(40), 365);
    let old = names.map(|(node, name)| {
        keep(&place.dir.join(node), north.certificate(), &issued(&north, &name, validity));
        (node, certificate(&place, node))
    });
    // These have no file that could renew them.
    farm.forget_founding();
    farm.start_server(2);
    farm.start_worker("w1");
    for (node, before) in old {
        let now = eventually(node, || Some(certificate(&place, node)).filter(|now| now.serial != before.serial));
        assert_eq!((&now.name, &now.key), (&before.name, &before.key));
        assert!(now.validity.from > before.validity.from && now.serial < 1000, "{now:?}");
    }
    farm.restart_all();
    farm.runs("again");
}

#[test]
fn a_revoked_server_is_heard_no_more() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_all();
    farm.runs("hello");
    let leader = farm.leader();
    let revoked = (1..=3).find(|id| *id != leader).expect("there are three");
    farm.primus(&format!("cert revoke server/{revoked}"));
    let words = format!("the certificate of server {revoked} of farm north");
    eventually_or("the end of its links, and the reason", || {
        let (log, status) =
            (farm.log(&format!("server-{leader}")), json(&farm.primus_at(leader, "status -o json")));
        let servers = status["servers"].as_array().expect("a list");
        let is_gone = servers.iter().any(|server| server["id"] == revoked && server["alive"] == false);
        if is_gone && log.contains(&words) { Ok(()) } else { Err(format!("{status}\n{log}")) }
    });
    eventually_or("the reason where it is", || {
        let log = farm.log(&format!("server-{revoked}"));
        if log.contains(&words) { Ok(()) } else { Err(log) }
    });
    assert_eq!(farm.leader(), leader);
    farm.runs("without it");
}

/// A library that moves the wall clock of a process by so many seconds as `AHEAD` says; other clocks stay.
const MOVED_CLOCK: &str = r#"
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static long ahead;
__attribute__((constructor)) static void read_ahead(void) {
    const char *text = getenv("AHEAD");
    ahead = text ? atol(text) : 0;
}
int clock_gettime(clockid_t id, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, id, time);
    if (!failed && id == CLOCK_REALTIME) time->tv_sec += ahead;
    return (int)failed;
}
"#;

fn moved_clock(place: &Place) -> PathBuf {
    let (source, library) = (place.dir.join("clock.c"), place.dir.join("clock.so"));
    fs::write(&source, MOVED_CLOCK).expect("a file can be written");
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(made.expect("there is a C compiler, as for building primus").success());
    library
}

#[test]
fn a_host_whose_clock_is_wrong_by_years_works_with_its_farm() {
    const YEAR: i64 = 365 * 24 * 3600;
    [-30, 3].into_iter().for_each(|years| works_with_a_clock_ahead(years * YEAR));
}

fn works_with_a_clock_ahead(seconds: i64) {
    let place = Place::new();
    let library = moved_clock(&place);
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_server(1);
    farm.start_server(2);
    let library = library.to_str().expect("it is text").to_owned();
    farm.environment = vec![("LD_PRELOAD", library), ("AHEAD", seconds.to_string())];
    // They get their first certificates by that clock.
    farm.start_server(3);
    farm.start_worker("w1");
    farm.runs("hello");
    let year = |node: &str| farm.log(node).chars().take(4).collect::<String>();
    assert_ne!(year("w1"), year("server-1"), "its clock is wrong");
    // And they begin again with it.
    for node in ["server-3", "w1"] {
        farm.kill(node);
    }
    farm.start_server(3);
    farm.start_worker("w1");
    farm.runs("again");
    // From now on that server is needed for a majority.
    farm.kill("server-2");
    farm.runs("with that one");
}

/// Each node of a farm of `primus up` that has a certificate, by its folder.
fn folders(dir: &std::path::Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let (mut found, mut next): (Vec<PathBuf>, Vec<PathBuf>) =
        (Vec::new(), inside.filter(|path| path.is_dir()).collect());
    while let Some(folder) = next.pop() {
        if folder.ends_with("tls") {
            found.push(folder);
            continue;
        }
        let inside = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        next.extend(inside.filter(|path| path.is_dir()));
    }
    found
}

#[test]
fn a_lent_worker_renews_its_certificate_over_its_links_to_home() {
    let place = Place::new();
    let _farm = place.up("--farms 2 --servers 1 --workers 1 --dir farms");
    let lend = || Some(()).filter(|()| place.primus("lend --to south 1 --farm north").code == Some(0));
    eventually("a worker to lend", lend);
    let guest = || {
        let workers = place.json("workers --farm south")["items"].clone();
        workers.as_array()?.iter().find(|worker| worker["home"] == "north" && worker["alive"] == true).cloned()
    };
    eventually("the guest", guest);
    let serial = || {
        let read = |folder: PathBuf| {
            let der = CertificateDer::from_pem_slice(&fs::read(folder.join("certificate.pem")).ok()?).ok()?;
            Certificate::read(&der).ok()
        };
        let mut all = folders(&place.dir.join("farms")).into_iter().filter_map(read);
        all.find(|found| found.name.farm() == "north" && found.name.worker_name().is_some())
            .map(|found| found.serial)
    };
    let before = eventually("its certificate", serial);
    place.json("cert rotate --farm north");
    eventually("another one", || serial().filter(|now| *now != before));
    eventually("the end of the rotation", || {
        Some(()).filter(|()| place.primus("cert finish --farm north").code == Some(0))
    });
    assert!(guest().is_some(), "it is still lent");
    // The neighbour knows the first authority only, and that vouches for the second one.
    assert_eq!(place.primus("run --farm south -- echo hello").stdout, "hello\n");
}
