//! End to end: farms that are neighbours, as people start them, look at them, lend workers and call them home.

mod common;

use common::place::{Farm, Place, Ran};
use common::{eventually, is_running};
use serde_json::{Value, json};

/// What this line says ends with this exit code, one line on stderr, and these words in it.
fn refused(place: &Place, line: &str, code: i32, words: &str) {
    let Ran { code: found, stdout, stderr } = place.primus(line);
    assert_eq!((found, stdout.as_str()), (Some(code), ""), "{line}: {stderr}");
    assert!(stderr.contains(words) && stderr.matches('\n').count() == 1, "{line}: {stderr}");
}

fn items(answer: &Value) -> Vec<Value> {
    answer["items"].as_array().expect("a list").clone()
}

/// Submits this and gives back the job.
fn submit(place: &Place, farm: &str, words: &str) -> String {
    let ran = place.primus(&format!("submit -o json --farm {farm} {words}"));
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    answer["job"].as_str().expect("a job has a name").to_owned()
}

/// Waits until this farm has heard of that many idle slots next door.
fn await_idle(place: &Place, farm: &str, other: &str, idle: u64) {
    eventually(&format!("{idle} idle slots in {other}"), || {
        let farms = items(&place.json(&format!("farms --farm {farm}")));
        farms.iter().find(|found| found["farm"] == other && found["idle"] == idle).map(|_| ())
    });
}

/// Waits until everybody is at home, as both farms have it.
fn await_all_home(place: &Place) {
    for farm in ["north", "south"] {
        eventually("everybody to be home", || {
            items(&place.json(&format!("loans --farm {farm}"))).is_empty().then_some(())
        });
    }
}

fn up<'a>(place: &'a Place, words: &str) -> Farm<'a> {
    let farm = place.up(&format!("--farms 2 --servers 1 {words}"));
    let names: Vec<&Value> =
        farm.ready["farms"].as_array().expect("all are listed").iter().map(|one| &one["farm"]).collect();
    assert_eq!(names, ["north", "south"]);
    farm
}

#[test]
fn farms_start_as_neighbours_that_know_each_other() {
    let place = Place::new();
    let farm = up(&place, "--workers 2");
    let ready = farm.ready.clone();
    assert_eq!((&ready["farm"], &ready["workers"][1]["name"]), (&json!("north"), &json!("n2")), "{ready}");
    let south = &ready["farms"][1];
    assert_eq!((&south["workers"][0]["name"], &south["leader"]), (&json!("s1"), &json!(1)), "{ready}");
    let mut known = place.known();
    known.sort();
    assert_eq!(known, ["north.json", "south.json"]);
    await_idle(&place, "north", "south", 2);
    await_idle(&place, "south", "north", 2);
    let own = &items(&place.json("farms --farm south"))[0];
    assert_eq!(
        (&own["farm"], &own["own"], &own["idle"], &own["lent"]),
        (&json!("south"), &json!(true), &json!(2), &json!(0))
    );
    assert_eq!(place.primus("loans --farm north").stdout, "everybody is at home\n");
    refused(&place, "farms", 2, "several farms run here: north, south; choose one with --farm NAME");
    let pids: Vec<u64> = ready["farms"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|farm| {
            ["servers", "workers"].into_iter().flat_map(|nodes| farm[nodes].as_array().expect("nodes are listed"))
        })
        .map(|node| node["pid"].as_u64().expect("it runs"))
        .collect();
    assert_eq!(pids.len(), 6);
    assert_eq!(farm.end(), "");
    assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
    assert_eq!(place.known(), Vec::<String>::new());
}

#[test]
fn a_folder_of_two_farms_resumes_both() {
    let place = Place::new();
    let farm = up(&place, "--workers 0 --dir both");
    assert_eq!(place.primus("kv put colour blue --farm south").code, Some(0));
    assert_eq!(farm.end(), "");
    let farm = place.up("--dir both");
    assert_eq!(farm.ready["farms"].as_array().map(Vec::len), Some(2), "{}", farm.ready);
    assert_eq!(place.primus("kv get colour --farm south").stdout, "blue\n");
    assert_eq!(farm.end(), "");
    refused(&place, "up --dir both --farms 3", 2, "both holds 2 farms, not 3; leave --farms out");
    refused(&place, "up --farms 0", 2, "--farms is '0'; give a whole number from 1 to 20");
}

#[test]
fn what_cannot_be_lent_or_recalled_is_refused_in_one_sentence() {
    let place = Place::new();
    let farm = up(&place, "--workers 1");
    await_idle(&place, "north", "south", 1);
    for (line, code, words) in [
        ("lend --to moon 1 --farm north", 2, "neighbour 'moon' does not exist; primus farms lists the neighbours"),
        ("lend --to north 1 --farm north", 2, "neighbour 'north' does not exist"),
        ("lend --to south 0 --farm north", 2, "N is '0'; give a whole number from 1 to 1024"),
        ("lend --to south -1 --farm north", 2, "N is '-1'"),
        ("lend --to south 1 --for 0s --farm north", 2, "--for is '0s'; give it a millisecond at least"),
        ("lend --to south 1 --for 48h --farm north", 2, "--for is '48h'"),
        ("lend 1 --farm north", 2, "--to"),
        ("recall 7 --farm north", 1, "loan 7 does not exist; primus loans lists those that last"),
        ("recall 7@south --farm north", 2, "only south can recall loan 7@south: the worker is its own"),
        ("recall x --farm north", 2, "'x' is not a loan; a loan is 3, or 3@south if south lends it"),
        ("recall --worker n1 --farm north", 1, "no worker 'n1' is lent"),
        ("recall --from moon --farm north", 2, "neighbour 'moon' does not exist"),
        ("chaos partition --from-farm moon --farm north", 2, "neighbour 'moon' does not exist"),
        ("chaos partition --farm north", 2, "<GROUPS>"),
        ("recall 7 --all --farm north", 2, "[LOAN] and --all say different things; leave one out"),
        ("recall --farm north", 2, "who is to come home is missing; name a loan, "),
        ("explain loan 7 --farm north", 1, "loan 7 does not exist"),
        ("explain loan --farm north", 2, "which loan is missing; write it like primus explain loan 3"),
        ("explain loan x --farm north", 2, "'x' is not a loan"),
        ("explain 1.1 7 --farm north", 2, "'7' is too much"),
    ] {
        refused(&place, line, code, words);
    }
    assert_eq!(place.primus("recall --all --farm north").stdout, "no worker is away\n");
    let job = submit(&place, "north", "-- sleep 60");
    eventually("a task to run", || (place.json("status --farm north")["running"] == 1).then_some(()));
    refused(&place, "lend --to south 1 --farm north", 4, "no worker is idle; try again when one has nothing to do");
    assert_eq!(place.primus(&format!("cancel {job} --farm north")).code, Some(0));
    assert_eq!(farm.end(), "");
}

#[test]
fn an_operator_lends_a_worker_and_calls_it_home() {
    let place = Place::new();
    let farm = up(&place, "--workers 2");
    await_idle(&place, "north", "south", 2);
    let answer = place.json("lend --to south 1 --for 60s --farm north");
    let loan = &items(&answer)[0];
    assert_eq!(
        (&loan["id"], &loan["why"], &loan["for_ms"]),
        (&json!("1"), &json!("operator"), &json!(60_000)),
        "{answer}"
    );
    let worker = loan["worker"].as_str().expect("a worker has a name").to_owned();
    let guest = eventually("the worker to arrive", || {
        let loans = items(&place.json("loans --farm south"));
        loans.into_iter().find(|loan| loan["state"] == "away")
    });
    assert_eq!(
        (&guest["id"], &guest["direction"], &guest["worker"]),
        (&json!("1@north"), &json!("borrowed"), &json!(worker))
    );
    eventually("both farms to be of one mind", || {
        let loans = items(&place.json("loans --farm north"));
        loans.iter().find(|loan| loan["state"] == "away").map(|_| ())
    });
    let works_for = |farm: &str, name: &str| {
        let status = place.json(&format!("status --farm {farm}"));
        let workers = status["workers"].as_array().expect("workers are a list").clone();
        let found = workers.into_iter().find(|one| one["name"] == name).expect("it is listed");
        (found["home"].clone(), found["farm"].clone())
    };
    assert_eq!(works_for("north", &worker), (json!("north"), json!("south")));
    assert_eq!(works_for("south", &format!("{worker}@north")), (json!("north"), json!("south")));
    let told = place.primus("explain loan 1 --farm north").stdout;
    let expected = format!("Worker {worker} of north works for south; it was lent ");
    assert!(
        told.starts_with(&expected)
            && told.contains("because an operator wanted it. It goes home when north recalls"),
        "{told}"
    );
    assert!(place.primus("explain loan 1@north --farm south").stdout.starts_with(&expected));
    // Three at once: two of south's own, and the one that it has borrowed.
    let job = submit(&place, "south", "--array 1-3 -- sleep 0.5");
    assert_eq!(place.primus(&format!("wait {job} --farm south")).code, Some(0));
    let tasks = items(&place.json(&format!("tasks --job {job} --farm south")));
    assert!(tasks.iter().any(|task| task["worker"] == json!(format!("{worker}@north"))), "{tasks:?}");
    let called = place.primus(&format!("recall --worker {worker} --farm north"));
    assert_eq!((called.code, called.stdout), (Some(0), format!("loan 1: {worker} is called home from south\n")));
    await_all_home(&place);
    assert_eq!(works_for("north", &worker), (json!("north"), json!("north")));
    let events = place.primus("events --farm north").stdout;
    assert!(events.contains(&format!("{worker} is home again from south (loan 1)")), "{events}");
    assert_eq!(farm.end(), "");
}

/// Neither hears the other, and the worker that north has lent is with south alone.
#[test]
fn farms_are_cut_off_from_each_other_and_mended() {
    let place = Place::new();
    let farm = up(&place, "--workers 1");
    await_idle(&place, "north", "south", 1);
    place.json("lend --to south 1 --for 3s --farm north");
    eventually("the worker to arrive", || {
        items(&place.json("loans --farm south")).into_iter().find(|loan| loan["state"] == "away")
    });
    assert_eq!(place.primus("drain s1 --farm south").code, Some(0));
    let job = submit(&place, "south", "-- seq 2000");
    assert_eq!(place.primus(&format!("wait {job} --farm south")).code, Some(0));
    let cut = place.primus("chaos partition --close 'n1|1' --from-farm south --farm north");
    assert_eq!((cut.code, cut.stdout.as_str()), (Some(0), "links are cut: n1|1, from south\n"), "{cut:?}");
    for (here, there) in [("north", "south"), ("south", "north")] {
        eventually("the other farm to be out of hearing", || {
            let farms = items(&place.json(&format!("farms --farm {here}")));
            farms.iter().find(|found| found["farm"] == there && found["heard"] == false).map(|_| ())
        });
    }
    eventually("the loan to be overdue", || {
        let events = place.primus("events --farm north").stdout;
        events.contains("n1 should be back from south by now (loan 1)").then_some(())
    });
    assert_eq!(items(&place.json("loans --farm north"))[0]["state"], "missing", "nobody says that it is dead");
    assert_eq!(items(&place.json("loans --farm south")).len(), 1, "it stays while its home is out of reach");
    assert_eq!(place.primus("chaos heal --farm north").code, Some(0));
    await_all_home(&place);
    let ran = place.primus(&format!("logs {job} --farm south"));
    assert!(ran.stdout.ends_with("\n2000\n"), "{ran:?}");
    let words = "are with worker n1 of north, which is not here any more: look into its folder, under away\n";
    assert!(ran.stderr.ends_with(words), "{ran:?}");
    assert_eq!(farm.end(), "");
}

/// The words of each line of a table, but for its head.
fn rows(table: &str) -> Vec<Vec<&str>> {
    table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect()
}

#[test]
fn farms_and_loans_are_shown_to_people_and_scripts() {
    let place = Place::new();
    let farm = up(&place, "--workers 2");
    await_idle(&place, "north", "south", 2);
    let ran = place.primus("lend --to south 5 --for 60s --farm north");
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(0), 3), "{ran:?}");
    let first = if ran.stdout.starts_with("loan 1: n1 goes to south until 2") { "n1" } else { "n2" };
    assert!(ran.stdout.starts_with(&format!("loan 1: {first} goes to south until 2")), "{ran:?}");
    assert!(ran.stdout.ends_with("3 of 5 stay: no more are idle\n"), "{ran:?}");
    for (farm, id) in [("north", "1"), ("south", "1@north")] {
        eventually("both to be away", || {
            let loans = items(&place.json(&format!("loans --farm {farm}")));
            (loans.len() == 2 && loans.iter().all(|loan| loan["state"] == "away")).then_some(())
        });
        let loans = items(&place.json(&format!("loans --farm {farm}")));
        let loan = loans.iter().find(|loan| loan["id"] == id).expect("the first one lasts");
        let [since, until] = ["since", "until"].map(|key| loan[key].as_str().expect("times are texts"));
        let table = place.primus(&format!("loans --farm {farm}")).stdout;
        let row = [id, first, "north", "south", since, until, "operator", "away"];
        assert!(rows(&table).iter().any(|shown| *shown == row), "{table}");
        let explained = place.json(&format!("explain loan {id} --farm {farm}"));
        assert_eq!((&explained["loan"]["id"], &explained["loan"]["why"]), (&json!(id), &json!("operator")));
        let words = explained["explanation"].as_str().expect("an explanation is a text");
        assert!(words.starts_with(&format!("Worker {first} of north works for south; it was lent ")), "{words}");
    }
    eventually("south to be heard", || {
        let table = place.primus("farms --farm north").stdout;
        (rows(&table) == [["north", "itself", "0", "0", "2", "0"], ["south", "yes", "2", "0", "2", "0"]])
            .then_some(())
    });
    let called = place.json("recall --from south --farm north");
    assert_eq!((&called["recalled"], items(&called).len()), (&json!(2), 2), "{called}");
    await_all_home(&place);
    let explained = place.primus("explain loan 1 --farm north").stdout;
    assert!(explained.starts_with("Loan 1 has ended: 2") && explained.contains("is home again"), "{explained}");
    for (line, code, name) in [
        ("recall 9 --farm north", 1, "not_found"),
        ("explain loan 9 --farm north", 1, "not_found"),
        ("lend --to moon 1 --farm north", 2, "usage"),
        ("lend --to south 0 --farm north", 2, "usage"),
    ] {
        let ran = place.primus(&format!("{line} -o json"));
        let error: Value = serde_json::from_str(&ran.stderr).unwrap_or_else(|_| panic!("{line}: {ran:?}"));
        assert_eq!(
            (ran.code, ran.stdout.as_str(), &error["error"]["code"]),
            (Some(code), "", &json!(name)),
            "{line}"
        );
    }
    assert_eq!(farm.end(), "");
}

#[test]
fn a_flooded_farm_gets_workers_and_everybody_comes_home() {
    let place = Place::new();
    let farm = up(&place, "--workers 2");
    await_idle(&place, "north", "south", 2);
    let job = submit(&place, "north", "--array 1-40 -- sleep 0.2");
    assert_eq!(place.primus(&format!("wait {job} --farm north")).code, Some(0));
    let tasks = items(&place.json(&format!("tasks --job {job} --limit 100 --farm north")));
    let abroad = tasks.iter().filter(|task| task["worker"].as_str().is_some_and(|name| name.ends_with("@south")));
    assert!(abroad.count() > 5, "{tasks:?}");
    await_all_home(&place);
    let events = place.primus("events --farm north").stdout;
    for words in ["the farm is saturated: ", "south is asked for ", "s1@south works here ", "the farm is calm"] {
        assert!(events.contains(words), "{words}: {events}");
    }
    for farm in ["north", "south"] {
        let status = place.json(&format!("status --farm {farm}"));
        let workers = status["workers"].as_array().expect("workers are a list");
        let own =
            workers.iter().filter(|one| one["home"] == farm && one["farm"] == farm && one["registered"] == true);
        assert_eq!(own.count(), 2, "{status}");
    }
    assert_eq!(farm.end(), "");
}
