//! End to end: `primus simulate`, told by the real binary. The same seed gives the same run in every process.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

/// All simulations that have a trace, with flags that let something happen in most runs.
const TRACED: [&str; 6] = [
    "bully --nodes a,b,c,d --rank load --faults all",
    "ring --ids 5,3,7,1,4 --faults all",
    "cluster --servers 5 --faults all",
    "farm --servers 3 --workers 4 --faults all",
    "lending --farms 2 --faults all",
    "leases --servers 3 --faults all",
];
const WHOLE: [&str; 4] = ["cluster", "farm", "lending --farms 2", "leases"];

fn simulate(line: &str) -> Output {
    let words = line.split(' ').filter(|word| !word.is_empty());
    Command::new(env!("CARGO_BIN_EXE_primus")).arg("simulate").args(words).output().expect("primus starts")
}

/// It succeeded and complained about nothing.
fn good(line: &str) -> String {
    let ran = simulate(line);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), stderr.as_ref()), (Some(0), ""), "{line}");
    String::from_utf8(ran.stdout).expect("output is UTF-8")
}

fn json(line: &str) -> Value {
    serde_json::from_str(&good(&format!("{line} -o json"))).expect("stdout is JSON")
}

#[test]
fn two_processes_print_the_same_run_of_a_seed_byte_for_byte() {
    for what in TRACED {
        let mut traces = BTreeSet::new();
        for seed in 0..5 {
            let line = format!("{what} --seed {seed} -o json");
            let (one, other) = (good(&line), good(&line));
            assert_eq!(one, other, "{line}");
            let run: Value = serde_json::from_str(&one).expect("stdout is JSON");
            let trace = run["trace"].as_str().expect("a run has a trace").to_owned();
            assert_eq!(trace.len(), 16, "{trace}");
            traces.insert(trace);
        }
        assert_eq!(traces.len(), 5, "{what}: different seeds give different runs");
    }
}

#[test]
fn two_processes_tell_and_draw_the_same_run_of_a_seed() {
    for what in WHOLE {
        for format in ["text", "mermaid"] {
            let line = format!("{what} --faults all --seed 3 -o {format}");
            assert_eq!(good(&line), good(&line), "{line}");
        }
    }
}

#[test]
fn runs_of_whole_servers_share_the_fields_of_the_contract() {
    for what in WHOLE {
        let run = json(&format!("{what} --seed 7"));
        assert_eq!(run["setup"], what.split(' ').next().unwrap(), "{run}");
        assert_eq!((&run["seed"], &run["violation"]), (&7.into(), &Value::Null));
        assert!(run["virtual_ms"].as_f64() > Some(0.0) && run["messages"]["total"].as_u64() > Some(0), "{run}");
        let properties = run["properties"].as_object().expect("an object");
        assert!(properties.len() > 5 && properties.values().all(|holds| *holds == true), "{run}");
        let farms = run["farms"].as_array().expect("a list");
        assert!(farms.iter().all(|farm| (1..=3).contains(&farm["leader"].as_u64().unwrap_or(0))), "{run}");
        let leader = if farms.len() == 1 { farms[0]["leader"].clone() } else { Value::Null };
        assert_eq!(run["leader"], leader, "of several farms, each has its own");
    }
}

#[test]
fn each_setup_judges_what_it_is_about() {
    let has = |what: &str, property: &str| json(&format!("{what} --seed 7"))["properties"].get(property).is_some();
    assert!(has("cluster", "durability") && !has("cluster", "endings") && !has("cluster", "holders"));
    assert!(has("farm", "endings") && !has("farm", "homecoming") && !has("farm", "holders"));
    assert!(has("lending --farms 2", "homecoming") && has("lending --farms 2", "help"));
    assert!(has("leases", "holders") && !has("leases", "homecoming"));
}

#[test]
fn a_run_of_whole_servers_is_told_in_words_and_ends_with_its_verdicts() {
    for (what, deed) in [
        ("cluster --faults crashes", "server 1 dies"),
        ("farm", "has done task 1.1"),
        ("lending --farms 2", "of north borrows "),
        ("leases --guards 2 --groups 1", "guard 1 holds g1 with token "),
    ] {
        let stories: String = (0..8).map(|seed| good(&format!("{what} --seed {seed}"))).collect();
        assert!(stories.contains(deed), "{what}: {stories}");
        let story = good(&format!("{what} --seed 7"));
        assert!(story.contains(" leads in term "), "{story}");
        let (_, verdicts) = story.split_once("\nseed: 7\n").expect("it says the seed");
        assert!(verdicts.lines().count() > 5 && verdicts.lines().all(|line| line.starts_with("✓ ")), "{story}");
        assert!(story.lines().count() < 400, "{what} is not bounded");
    }
}

#[test]
fn diagrams_of_whole_servers_are_bounded_and_consist_of_what_mermaid_knows() {
    for what in WHOLE {
        for faults in ["none", "all"] {
            let diagram = good(&format!("{what} --faults {faults} --seed 7 -o mermaid"));
            let mut lines = diagram.lines();
            assert_eq!((lines.next(), lines.next()), (Some("%% seed 7"), Some("sequenceDiagram")));
            let rest: Vec<&str> = lines.collect();
            assert!(rest.len() < 400, "{what} is not bounded");
            assert!(rest.iter().any(|line| line.contains("->>")), "{diagram}");
            rest.into_iter().for_each(|line| assert!(is_mermaid(line), "{line}"));
        }
    }
}

fn is_mermaid(line: &str) -> bool {
    let is_alias = |word: &str| word.strip_prefix('n').is_some_and(|number| number.parse::<u32>().is_ok());
    let Some(statement) = line.strip_prefix("    ") else { return false };
    if statement.contains(['#', ';']) {
        return false;
    }
    if let Some(rest) = statement.strip_prefix("participant ") {
        return rest.split_once(" as ").is_some_and(|(alias, title)| is_alias(alias) && !title.is_empty());
    }
    let Some((subject, text)) = statement.split_once(": ") else { return false };
    if let Some(over) = subject.strip_prefix("Note over ") {
        return !text.is_empty() && over.split(',').all(is_alias);
    }
    let ends = subject.split_once("->>").or_else(|| subject.split_once("-x"));
    !text.is_empty() && ends.is_some_and(|(from, to)| is_alias(from) && is_alias(to))
}

#[test]
fn many_seeds_of_whole_servers_are_counted() {
    for what in WHOLE {
        let survey = json(&format!("{what} --faults all --seeds 8 --seed 100"));
        assert_eq!((&survey["seeds"], &survey["failed"]), (&8.into(), &0.into()), "{what}");
        assert_eq!(survey["first_failure"], Value::Null);
        let text = good(&format!("{what} --seeds 3"));
        assert!(text.starts_with("✓ 3 seeds passed") && text.ends_with("seeds: 0 to 2\n"), "{text}");
    }
}

#[test]
fn a_flag_of_the_comparisons_says_where_they_are() {
    for (line, command) in [
        ("farm --tasks 5000", "primus simulate assignment"),
        ("farm --heartbeat 2s --seed 7", "primus simulate assignment"),
        ("lending --load bursts", "primus simulate day"),
        ("lending --day 1h", "primus simulate day"),
    ] {
        let ran = simulate(line);
        let stderr = String::from_utf8(ran.stderr).expect("output is UTF-8");
        assert_eq!(ran.status.code(), Some(2), "{line}: {stderr}");
        assert!(stderr.contains("means nothing here; ") && stderr.contains(command), "{line}: {stderr}");
    }
}

#[test]
fn whole_servers_say_what_is_wrong_with_their_flags() {
    for line in [
        "cluster --servers 26",
        "cluster --workers 3",
        "farm --workers 0",
        "farm --faults fire",
        "lending --farms 1",
        "lending --farms 6",
        "leases --guards many",
        "leases --groups 0",
        "leases --faults all,loss",
        "farm --seeds 0",
        "lending --seeds 3 -o mermaid",
    ] {
        let ran = simulate(line);
        let stderr = String::from_utf8(ran.stderr).expect("output is UTF-8");
        assert_eq!((ran.status.code(), ran.stdout.len()), (Some(2), 0), "{line}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains("; "), "{line}: {stderr}");
    }
}
