//! End to end: farms of real processes, killed, frozen, cut off and started again.
//!
//! Every test has a folder and a runtime directory of its own. Nothing here waits for a time, only for conditions.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::place::{Farm, Place, Ran};
use common::{eventually, is_running};
use serde_json::Value;

#[test]
fn a_failover_is_measured_and_leaves_nothing_behind() {
    let place = Place::new();
    for (fault, servers, figures) in
        [("kill", 3, &["delay_ms"][..]), ("kill", 3, &[]), ("freeze", 3, &["noticed_max_ms"])]
    {
        let delay = if figures.contains(&"delay_ms") { " --delay 25ms" } else { "" };
        let bench = place.json(&format!("bench failover --servers {servers} --fault {fault} --runs 2{delay}"));
        assert_eq!((&bench["bench"], &bench["fault"]), (&"failover".into(), &fault.into()));
        assert_eq!(bench["algorithm"], "bully");
        assert_eq!((&bench["servers"], bench["runs"].as_array().map(Vec::len)), (&servers.into(), Some(2)));
        let always = ["median_ms", "p90_ms", "max_ms", "silence_ms", "round_trip_ms"];
        assert!(figures.iter().chain(&always).all(|figure| bench[figure].as_f64() > Some(0.0)), "{bench}");
        assert_eq!(bench.as_object().map(serde_json::Map::len), Some(12 + figures.len()), "{bench}");
        let terms = bench["terms"].as_array().expect("one for each run");
        assert!(terms.len() == 2 && terms.iter().all(|terms| terms.as_u64() > Some(0)), "{bench}");
        assert!(delay.is_empty() || bench["round_trip_ms"].as_f64() >= Some(50.0), "{bench}");
    }
    assert!(place.known().is_empty() && place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn transfers_idle_servers_records_and_stability_are_measured() {
    let place = Place::new();
    for (line, runs) in [
        ("bench transfer --runs 2", 2),
        ("bench idle --servers 3 --runs 1", 1),
        ("bench log -n 2000 --runs 2", 2),
        ("bench stability --minutes 0.02", 3),
    ] {
        let ran = place.primus(&format!("{line} -o json"));
        let bench: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{line}: {ran:?}"));
        assert_eq!(bench["bench"], line.split(' ').nth(1).unwrap());
        assert_eq!(bench["runs"].as_array().map(Vec::len), Some(runs), "{bench}");
        assert!(["median_ms", "p90_ms", "max_ms"].iter().all(|figure| bench[figure].is_f64()), "{bench}");
        for refused in bench["refused"].as_array().into_iter().flatten() {
            assert!(refused["leader_stays"] == true && refused["code"] != "", "{bench}");
        }
    }
    assert!(place.known().is_empty() && place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn encrypted_links_are_measured_beside_plain_ones() {
    let place = Place::new();
    let bench = place.json("bench encryption --part log,tasks,failover --runs 1 -n 500 --tasks 10");
    assert_eq!((&bench["bench"], bench["runs"].as_array().map(Vec::len)), (&"encryption".into(), Some(3)));
    let figures = bench["figures"].as_array().expect("one for each figure");
    let names: Vec<&str> = figures.iter().filter_map(|row| row["figure"].as_str()).collect();
    assert_eq!(names, ["log", "tasks", "kill, median", "kill, longest", "freeze, median", "freeze, longest"]);
    for row in figures {
        assert!(["plain", "encrypted", "ratio"].iter().all(|name| row[name].as_f64() > Some(0.0)), "{row}");
        assert!(row["met"].is_boolean() && row["aim"].is_string(), "{row}");
    }
    assert!(place.known().is_empty() && place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn lending_is_measured_and_leaves_nothing_behind() {
    let place = Place::new();
    let bench = place.json("bench lending -n 60 --task-ms 100");
    assert_eq!((&bench["bench"], &bench["n"], &bench["task_ms"]), (&"lending".into(), &60.into(), &100.into()));
    assert_eq!((&bench["servers"], &bench["workers"]), (&3.into(), &4.into()), "{bench}");
    assert_eq!((&bench["lost"], &bench["rerun"]), (&0.into(), &0.into()), "{bench}");
    assert_eq!(bench["runs"].as_array().map(Vec::len), Some(1), "{bench}");
    for figure in ["median_ms", "p90_ms", "max_ms", "alone_ms", "makespan_ratio", "utilisation", "all_home_ms"] {
        assert!(bench[figure].as_f64() > Some(0.0), "{figure}: {bench}");
    }
    assert!(bench["first_borrowed_task_ms"].is_f64() && bench["borrowed_tasks"].as_u64() > Some(0), "{bench}");
    assert!(bench["thrash_max"].as_u64() >= Some(1), "{bench}");
    let ran = place.primus("bench lending -n 4 --task-ms 1 -o json");
    assert!(ran.code == Some(1) && ran.stderr.contains("the farm was never saturated"), "{ran:?}");
    for line in ["bench lending -n 0", "bench lending -n 10001", "bench lending --task-ms 0"] {
        assert_eq!(place.primus(line).code, Some(2), "{line}");
    }
    assert!(place.known().is_empty() && place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn what_keeps_processors_busy_ends_with_its_bench() {
    let place = Place::new();
    let words = ["bench", "stability", "--busy", "--minutes", "5"];
    let mut bench = place.command(&words).stdout(Stdio::null()).spawn().unwrap();
    let burners = eventually("busy processes", || {
        let found = processes(&format!("burn\0--parent\0{}", bench.id()));
        (!found.is_empty()).then_some(found)
    });
    bench.kill().unwrap();
    bench.wait().unwrap();
    eventually("them to end", || (!burners.iter().any(|pid| is_running(*pid))).then_some(()));
    eventually("the farm to end", || (place.known().is_empty() && place.left().is_empty()).then_some(()));
}

#[test]
fn what_others_notice_under_pressure_is_measured_and_leaves_nothing_behind() {
    let place = Place::new();
    let loads = ["lists-and-cancels", "bulk", "workers", "followers", "slow"];
    let sizes = "--seconds 1 --beside 1 --keys 3000 --tasks 1000 --clients 7";
    let bench = place.json(&format!("bench pressure --load {} {sizes}", loads.join(",")));
    assert_eq!((&bench["bench"], bench["runs"].as_array().map(Vec::len)), (&"pressure".into(), Some(loads.len())));
    assert!(["median_ms", "p90_ms", "max_ms"].iter().all(|figure| bench[figure].as_f64() > Some(0.0)), "{bench}");
    let rows = bench["loads"].as_array().expect("a row for each load");
    for (row, load) in rows.iter().zip(loads) {
        assert_eq!(row["load"], load, "{row}");
        assert!(row["done"].as_u64() > Some(0) && row["leader_changes"].is_u64(), "{row}");
        let others = &row["others"];
        assert!(others["count"].as_u64() > Some(0) && others["failed"].is_u64(), "{row}");
        assert!(others["slowest_ms"].as_f64() >= others["median_ms"].as_f64(), "{row}");
        assert!(row["longest_turn_ms"].as_f64() > Some(0.0), "{row}");
        let memory = row["memory"].as_array().expect("one for each server");
        assert!(memory.len() == 3 && memory.iter().all(|of| of["before_mib"].as_f64() > Some(1.0)), "{row}");
        assert_eq!(row["met"] == true, row["missed"].as_array().is_some_and(Vec::is_empty), "{row}");
    }
    for line in ["--load fire", "--seconds 0", "--keys 0", "--tasks 4000001", "--clients 2", "-o mermaid"] {
        assert_eq!(place.primus(&format!("bench pressure {line}")).code, Some(2), "{line}");
    }
    assert!(place.known().is_empty() && place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn under_pressure_the_end_of_a_guarded_command_is_noticed() {
    let place = Place::new();
    let words = "bench pressure --load followers --clients 3 --seconds 3 --beside 0 -o json";
    let mut bench = place.command(&words.split(' ').collect::<Vec<_>>());
    let bench = bench.stdout(Stdio::piped()).spawn().unwrap();
    let command = eventually("the guarded command", || guarded(&place));
    assert!(Command::new("kill").args(["-9", &command.to_string()]).status().unwrap().success());
    let ran = bench.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&ran.stdout).expect("stdout is JSON");
    let row = &said["loads"][0];
    assert_eq!((&row["guarded_ended"], &row["met"]), (&true.into(), &false.into()), "{said}");
    assert!(row["missed"].to_string().contains("the guarded command ended"), "{said}");
}

#[test]
fn what_a_farm_is_pressed_with_ends_with_its_bench() {
    let place = Place::new();
    let words = "bench pressure --load slow --clients 30 --seconds 300";
    let mut bench = place.command(&words.split(' ').collect::<Vec<_>>()).stdout(Stdio::null()).spawn().unwrap();
    let command = eventually("the guarded command", || guarded(&place));
    bench.kill().unwrap();
    bench.wait().unwrap();
    eventually("the guarded command to end", || (!is_running(command)).then_some(()));
    eventually("the farm to end", || (place.known().is_empty() && place.left().is_empty()).then_some(()));
    let guard = format!("guard\0--parent\0{}", bench.id());
    assert_eq!(processes(&guard), Vec::<u64>::new());
}

/// The command that a bench of this place guards.
fn guarded(place: &Place) -> Option<u64> {
    let here = fs::canonicalize(&place.dir).ok();
    processes("sleep\x001000000").into_iter().find(|pid| fs::read_link(format!("/proc/{pid}/cwd")).ok() == here)
}

/// All processes whose command line says this.
fn processes(words: &str) -> Vec<u64> {
    let pids = fs::read_dir("/proc").expect("there is /proc").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(words)))
        .collect()
}

#[test]
fn many_values_are_imported_whoever_is_asked() {
    let place = Place::new();
    let farm = place.up("");
    let lines: String = (0..1000).map(|n| format!("{{\"key\":\"n/{n}\",\"value\":\"v{n}\"}}\n")).collect();
    fs::write(place.dir.join("values"), &lines).unwrap();
    for api in farm.ready["api"].as_array().unwrap() {
        let api = api.as_str().unwrap();
        assert_eq!(place.json(&format!("kv import values --batch 7 --api {api}"))["written"], 1000);
    }
    assert_eq!(place.json("kv import values")["written"], 1000);
    assert_eq!(place.json("kv list n/")["items"].as_array().map(Vec::len), Some(1000));
    assert_eq!(place.json("kv get n/999")["value"], "v999");
    fs::write(place.dir.join("wrong"), format!("{lines}nonsense\n")).unwrap();
    let ran = place.primus("kv import wrong -o json");
    assert!(ran.code == Some(2) && ran.stderr.contains("line 1001: "), "{ran:?}");
    assert_eq!(place.primus("kv import absent").code, Some(2));
}

#[test]
fn a_dead_server_is_not_made_the_leader() {
    let place = Place::new();
    let farm = place.up("");
    let leader = farm.ready["leader"].as_u64().unwrap();
    let dead = leader % 3 + 1;
    place.json(&format!("chaos kill {dead}"));
    let ran = place.primus(&format!("transfer {dead} -o json"));
    assert!(ran.code == Some(1) && ran.stderr.starts_with("{\"error\":{\"code\":\"dead\","), "{ran:?}");
    assert_eq!(farm.leader_other_than(0), leader);
}

#[test]
fn the_demo_plays_with_real_servers_and_leaves_nothing_behind() {
    let place = Place::new();
    let tour = place.json("demo");
    let scenes = tour["scenes"].as_array().expect("scenes are a list");
    for word in [
        "chaos kill w1",
        "chaos kill leader",
        "chaos freeze",
        "chaos partition",
        "chaos heal",
        "submit",
        "wait",
        "chaos kill leader --farm north",
        "loans",
    ] {
        let command = format!("primus {word}");
        assert!(scenes.iter().any(|scene| scene["command"].as_str().unwrap().starts_with(&command)), "{tour}");
    }
    assert!(place.known().is_empty() && place.left().is_empty(), "{:?}", place.left());
}

#[test]
fn a_demo_without_servers_fails_and_says_why() {
    let place = Place::new();
    let ran: Ran = place.command(&["demo"]).env("TMPDIR", "/dev/null").output().expect("primus starts").into();
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stdout.contains("✗ no farm could be started: "), "{ran:?}");
    assert!(ran.stdout.contains("\n✗ 4 of 25 claims held"), "{ran:?}");
}

#[test]
fn a_bench_that_is_killed_takes_its_farm_along() {
    let place = Place::new();
    let mut bench = place.command(&["bench", "failover", "--runs", "1000"]).stdout(Stdio::null()).spawn().unwrap();
    eventually("the farm", || (place.known().len() == 1 && !place.left().is_empty()).then_some(()));
    bench.kill().unwrap();
    bench.wait().unwrap();
    eventually("the farm to end", || (place.known().is_empty() && place.left().is_empty()).then_some(()));
}

#[test]
fn a_bench_without_a_farm_says_so() {
    let place = Place::new();
    let mut command = place.command(&["bench", "failover", "--runs", "1", "-o", "json"]);
    let ran: Ran = command.env("TMPDIR", "/dev/null").output().expect("primus starts").into();
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert_eq!(ran.stderr.matches('\n').count(), 1, "{ran:?}");
    assert!(ran.stderr.starts_with("{\"error\":{\"code\":\"bench\","), "{ran:?}");
}

#[test]
fn a_farm_outlives_its_leader_and_takes_it_back() {
    let place = Place::new();
    let farm = place.up("");
    let first = farm.ready["leader"].as_u64().unwrap();
    assert_eq!(farm.ready["ready"], true);
    assert_eq!(farm.ready["api"].as_array().unwrap().len(), 3);
    assert_eq!(place.json("leader")["leader"], first);
    assert_eq!(place.json("kv put colour blue")["key"], "colour");

    let killed = place.json("chaos kill leader");
    assert_eq!((&killed["server"], &killed["chaos"]), (&first.into(), &"kill".into()));
    let second = farm.leader_other_than(first);
    assert_eq!(place.primus("kv get colour").stdout, "blue\n");
    assert_eq!(place.primus(&format!("chaos kill {first}")).code, Some(1));
    let diary = Path::new(farm.ready["dir"].as_str().unwrap()).join(format!("server-{second}.log"));
    let noted = format!(" warn {second}: server {first} is suspected (link_lost)\n");
    eventually("the server to write it down", || fs::read_to_string(&diary).ok()?.contains(&noted).then_some(()));

    let again = place.json(&format!("chaos restart {first}"));
    assert_ne!(again["pid"], killed["pid"]);
    farm.wait_until_alive(3);
    let said = farm.end();
    assert!(said.contains(&format!("server {first} has ended")), "{said}");
    assert!(place.known().is_empty(), "{:?}", place.known());
}

#[test]
fn a_ring_of_servers_is_led_by_the_highest_id_that_is_alive() {
    let place = Place::new();
    let farm = place.up("--servers 5 --algorithm ring");
    // Between two leaders there is none, and the command says so by its code.
    let leads = |wanted: u64| {
        let needle = format!("\"leader\":{wanted},");
        eventually("the right leader", || place.primus("leader -o json").stdout.contains(&needle).then_some(()));
    };
    leads(5);
    assert_eq!(place.json("kv put colour red")["key"], "colour");
    place.json("chaos kill 5");
    leads(4);
    place.json("chaos freeze 4");
    leads(3);
    assert_eq!(place.primus("kv get colour").stdout, "red\n");
    place.json("chaos thaw 4");
    place.json("chaos restart 5");
    // The better takes over from the worse once it has everything.
    leads(5);
    place.json("chaos partition '5|1,2,3,4'");
    let elsewhere = farm.ready["servers"][0]["api"].as_str().unwrap();
    eventually("the majority's own leader", || {
        place.primus(&format!("leader --api {elsewhere} -o json")).stdout.contains("\"leader\":4,").then_some(())
    });
    eventually("the lone server to be shown as cut off", || {
        place.primus("status").stdout.contains("server 5 is cut off").then_some(())
    });
    place.json("chaos heal");
    leads(5);
    assert_eq!(place.primus("kv get colour").stdout, "red\n");
    everybody_elects_at_once(&place, &farm);
    leads(5);
    farm.end();
}

/// Five start an election at the same moment; all of them must end with one leader.
fn everybody_elects_at_once(place: &Place, farm: &Farm<'_>) {
    let apis = farm.ready["api"].as_array().expect("it lists its servers");
    let elect = |api: &Value| {
        let api = api.as_str().expect("an address is a text");
        place.command(&["elect", "--api", api]).spawn().expect("it starts")
    };
    let started: Vec<_> = apis.iter().map(elect).collect();
    started.into_iter().for_each(|mut child| assert!(child.wait().expect("it ends").success()));
    eventually("all to follow one leader", || {
        let leader = |api: &Value| {
            let said = place.primus(&format!("leader --api {} -o json", api.as_str()?)).stdout;
            serde_json::from_str::<Value>(&said).ok()?["leader"].as_u64()
        };
        let leaders: Vec<_> = apis.iter().map(leader).collect();
        leaders.iter().all(|leader| *leader == Some(5)).then_some(())
    });
}

#[test]
fn values_are_put_listed_and_deleted() {
    let place = Place::new();
    let _farm = place.up("--servers 1");
    for line in ["kv put a/1 one", "kv put a/2 'two'", "kv put b -3"] {
        assert_eq!(place.primus(line).code, Some(0), "{line}");
    }
    assert_eq!(place.primus("kv list a/").stdout, "a/1  one\na/2  two\n");
    assert_eq!(place.json("kv list")["items"].as_array().unwrap().len(), 3);
    assert_eq!(place.json("kv get b")["value"], "-3");
    assert_eq!(place.primus("kv delete b").code, Some(0));
    let gone = place.primus("kv get b -o json");
    assert_eq!(gone.code, Some(1));
    assert!(gone.stderr.starts_with(r#"{"error":{"code":"not_found""#), "{gone:?}");
    let odd = ["kv", "put", "odd key?ü", "x\n\u{1b}[31my"];
    assert!(place.command(&odd).output().unwrap().status.success());
    assert_eq!(Ran::from(place.command(&["kv", "get", odd[2]]).output().unwrap()).stdout, format!("{}\n", odd[3]));
}

#[test]
fn a_frozen_leader_is_replaced_and_comes_back_as_a_follower() {
    let place = Place::new();
    let farm = place.up("--farm north");
    let first = farm.ready["leader"].as_u64().unwrap();
    place.json("chaos freeze leader");
    let second = farm.leader_other_than(first);
    assert_eq!(place.primus("kv put colour green").code, Some(0));
    place.json(&format!("chaos thaw {first}"));
    farm.wait_until_alive(3);
    eventually("the old leader to follow", || {
        let api = farm.ready["servers"][first as usize - 1]["api"].as_str()?;
        let view = place.primus(&format!("leader --api {api} -o json"));
        (serde_json::from_str::<Value>(&view.stdout).ok()?["leader"] != first).then_some(())
    });
    assert_ne!(second, first);
    let told = place.primus("events");
    assert!(told.stdout.contains(" leads in term "), "{told:?}");
    // A frozen server must not keep the farm from ending.
    place.json(&format!("chaos freeze {first}"));
    let pids = farm.pids();
    farm.end();
    assert!(!pids.into_iter().any(is_running));
}

#[test]
fn leadership_is_handed_over_on_request() {
    let place = Place::new();
    let farm = place.up("");
    let first = farm.ready["leader"].as_u64().unwrap();
    let next = first % 3 + 1;
    assert_eq!(place.json(&format!("transfer {next}"))["leader"], next);
    assert_eq!(place.json("elect")["started"], true);
    assert_eq!(place.primus("transfer 9").code, Some(1));
    assert_eq!(place.primus("transfer x").code, Some(2));
    let before = farm.leader_other_than(0);
    assert_ne!(place.json("resign")["leader"], before);
}

#[test]
fn a_leader_that_is_cut_off_is_replaced_until_links_are_mended() {
    let place = Place::new();
    let farm = place.up("");
    let first = farm.ready["leader"].as_u64().unwrap();
    let others: Vec<String> = (1..=3).filter(|id| *id != first).map(|id: u64| id.to_string()).collect();
    place.json(&format!("chaos partition '{}|{first}'", others.join(",")));
    farm.leader_other_than(first);
    assert_eq!(place.primus("kv put colour red").code, Some(0));
    place.json("chaos heal");
    farm.wait_until_alive(3);
    assert_eq!(place.primus("kv get colour").stdout, "red\n");
    assert_eq!(place.json("chaos load 2 85")["server"], 2);
}

#[test]
fn without_a_majority_there_is_no_leader() {
    let place = Place::new();
    let farm = place.up("--servers 2");
    place.json("chaos kill leader");
    let none = eventually("the leader to be missed", || {
        let ran = place.primus("leader -o json");
        (ran.code == Some(4)).then_some(ran)
    });
    assert_eq!(serde_json::from_str::<Value>(&none.stdout).unwrap()["leader"], Value::Null);
    let refused = place.primus("kv put colour blue --timeout 100ms");
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(4), ""), "{refused:?}");
    assert!(farm.end().starts_with("warning: two servers tolerate no loss"));
}

#[test]
fn no_server_survives_a_killed_up_and_the_next_one_tidies() {
    let place = Place::new();
    let mut farm = place.up("");
    place.json("chaos freeze 1");
    let (pids, dir) = (farm.pids(), farm.ready["dir"].as_str().unwrap().to_string());
    farm.up.kill().expect("up can be killed");
    farm.up.wait().expect("up ends");
    eventually("all servers to end", || (!pids.iter().any(|pid| is_running(*pid))).then_some(()));
    assert_eq!(place.primus("chaos kill 1").code, Some(3));
    assert!(Path::new(&dir).exists());
    let next = place.up("--servers 1");
    assert!(!Path::new(&dir).exists());
    next.end();
    assert!(place.known().is_empty(), "{:?}", place.known());
}

#[test]
fn a_kept_folder_resumes() {
    let place = Place::new();
    let farm = place.up("--dir kept --farm north --servers 3");
    assert_eq!(place.primus("kv put colour blue").code, Some(0));
    let second = place.primus("up --dir kept");
    assert_eq!(second.code, Some(2), "{second:?}");
    farm.end();
    assert_eq!(place.primus("up --dir kept --servers 5").code, Some(2));
    let farm = place.up("--dir kept");
    assert_eq!((&farm.ready["farm"], farm.pids().len()), (&"north".into(), 3));
    assert_eq!(place.primus("kv get colour").stdout, "blue\n");
    farm.end();
    assert!(place.dir.join("kept/farm.json").exists());
}

#[test]
fn bad_input_is_refused_with_the_right_code() {
    let place = Place::new();
    for line in
        ["leader --farm north", "chaos kill leader", "leader --api 127.0.0.1:1", "kv get x --api 127.0.0.1:1"]
    {
        let ran = place.primus(&format!("{line} -o json"));
        assert_eq!(ran.code, Some(3), "{line}: {ran:?}");
        assert!(ran.stderr.starts_with(r#"{"error":{"code":"unreachable""#), "{ran:?}");
    }
    let north = place.up("--servers 1 --farm north");
    for line in [
        "chaos kill 7",
        "chaos kill boss",
        "chaos partition 1",
        "chaos load 1 101",
        "up --farm north",
        "up --farm a/b",
        "up --servers 0",
        "up --dir ''",
        "up --for 5",
        "leader -o mermaid",
        "leader --api https://x",
        "kv put x y --timeout soon",
        "events --after x",
    ] {
        let ran = place.primus(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{line}: {ran:?}");
    }
    let south = place.up("--servers 1 --farm south");
    let several = place.primus("leader");
    assert_eq!(several.code, Some(2));
    assert!(several.stderr.contains("several farms run here: north, south"), "{several:?}");
    assert_eq!(place.json("leader --farm south")["farm"], "south");
    let api = north.ready["api"][0].as_str().unwrap();
    let by_environment = place.command(&["leader", "-o", "json"]).env("PRIMUS_API", api).output().unwrap();
    assert!(Ran::from(by_environment).stdout.contains(r#""farm":"north""#));
    south.end();
    assert_eq!(place.primus("leader").code, Some(0));
}

#[test]
fn a_farm_ends_after_its_time() {
    let place = Place::new();
    let ran = place.primus("up --servers 1 --for 100ms");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.starts_with("farm local: one server and 2 workers, server 1 leads\n"), "{ran:?}");
    let ran = place.primus("up --servers 1 --workers 0 --for 100ms");
    assert!(ran.stdout.starts_with("farm local: one server, server 1 leads\n"), "{ran:?}");
    assert!(place.known().is_empty());
}

#[test]
fn events_are_followed_while_leaders_change() {
    let place = Place::new();
    let farm = place.up("");
    let mut follower =
        place.command(&["events", "--follow", "-o", "json"]).stdout(Stdio::piped()).spawn().expect("primus starts");
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next_leader = || loop {
        let line = lines.next().expect("the stream goes on").expect("stdout can be read");
        let event: Value = serde_json::from_str(&line).expect("one object per line");
        if let Some(leader) = event["leader"].as_u64() {
            return leader;
        }
    };
    let first = next_leader();
    // Sooner or later that is the server that is followed; then another one takes over.
    let killed = place.json("chaos kill leader")["server"].as_u64().unwrap();
    let mut seen = first;
    while seen == killed {
        seen = next_leader();
    }
    assert_eq!(seen, farm.leader_other_than(killed));
    follower.kill().expect("it still runs");
    follower.wait().expect("it ends");
}
