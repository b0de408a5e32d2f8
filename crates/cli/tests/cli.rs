//! End to end: the real binary, its exit code, its stdout and its stderr.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// How one call of the binary ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Ran {
    /// It succeeded and complained about nothing.
    fn good(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// It succeeded and printed one object on one line.
    fn json(self) -> Value {
        let stdout = self.good();
        assert_eq!(stdout.matches('\n').count(), 1, "{stdout}");
        serde_json::from_str(&stdout).expect("stdout is JSON")
    }
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_primus"));
    command.args(words);
    command
}

fn run(words: &[&str]) -> Ran {
    command(words).output().expect("primus starts").into()
}

/// A line as one would type it; quotes stand around whole words only.
fn primus(line: &str) -> Ran {
    let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
    run(&words)
}

fn keys(object: &Value) -> BTreeSet<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// The worked example of the document, section 5.3, and its validation.
const RING_STORY: &str = include_str!("common/worked_example.txt");

#[test]
fn the_ring_of_section_5_3_is_told_line_by_line() {
    let story = primus("simulate ring --ids 5,3,7,1,4 --start 1 --seed 7").good();
    assert!(story.starts_with(RING_STORY), "{story}");
    assert!(story.ends_with("\nseed: 7\n"), "{story}");
}

#[test]
fn a_leader_dies_and_the_story_says_so() {
    let story = primus("simulate bully --nodes 1,2,3,4,5 --crash 5 --start 2").good();
    let beginning = "Node 5 leads\nNode 5 dies\nNode 2 suspects node 5\nNode 2 sends Election to nodes 3 and 4\n";
    assert!(story.starts_with(beginning), "{story}");
    assert!(
        story.contains(
            "\nNode 4 got no answer\nNode 4 is the leader and sends Coordinator to nodes 1, 2, 3 and 5\n"
        )
    );
    assert!(story.contains("\n✓ leader: node 4\n"), "{story}");
}

/// .5 led and died; .3 asks it in vain, then .4, which asks .5 in vain and leads.
#[test]
fn the_worked_example_of_bully_by_address_is_replayed_exactly() {
    let line = "simulate bully --rank address --nodes 172.18.0.3,172.18.0.4,172.18.0.5 --asking one-by-one \
                --crash 172.18.0.5 --unnoticed --start 172.18.0.3";
    for seed in 0..20 {
        let run = primus(&format!("{line} --seed {seed} -o json")).json();
        assert_eq!(run["leader"], "172.18.0.4", "{run}");
        let counted = ["election", "alive", "coordinator"].map(|kind| run["messages"]["by_type"][kind].as_u64());
        assert_eq!((counted, &run["messages"]["total"]), ([Some(3), Some(1), Some(2)], &6.into()), "{run}");
    }
    let story = primus(&format!("{line} --seed 1")).good();
    let steps = [
        "Node 172.18.0.5 leads\nNode 172.18.0.5 dies\n",
        "Node 172.18.0.3 sends Election to node 172.18.0.5\n",
        "Node 172.18.0.3 sends Election to node 172.18.0.4\n",
        "sends Alive to node 172.18.0.3",
        "Node 172.18.0.4 is the leader",
    ];
    let mut rest = story.as_str();
    for step in steps {
        rest = rest.split_once(step).unwrap_or_else(|| panic!("no {step:?} in order in {story}")).1;
    }
}

#[test]
fn a_partition_has_two_leaders_until_it_heals() {
    let story = primus("simulate bully --nodes 1,2,3 --partition '1,2|3@2s..5s'").good();
    for line in
        ["Links are cut at 2000 ms: 1–3 and 2–3", "Links are mended at 5000 ms: 1–3 and 2–3", "✓ leader: node 3"]
    {
        assert!(story.contains(&format!("\n{line}\n")), "{story}");
    }
    assert!(story.contains("2 at the same time at most"), "{story}");
    let lasting = primus("simulate bully --nodes 1,2,3 --partition '1,2|3' -o json").json();
    assert_eq!((&lasting["leader"], &lasting["leaders"]["most_at_once"]), (&Value::Null, &2.into()));
    assert_eq!(keys(&lasting["properties"]), ["termination"].into());
}

#[test]
fn the_examples_of_the_documents_elect_whom_they_must() {
    for (line, leader) in [
        ("ring --ids 5,3,7,1,4 --start 1", Value::from(1)),
        ("ring --ids 5,3,7", 3.into()),
        ("ring --ids 5,4,3,2,1 --start 1", 1.into()),
        ("ring --ids 100,42,7,999,13 --start all", 7.into()),
        ("ring --ids 100,42,7,999,13 --winner highest", 999.into()),
        ("bully --nodes 1,2,3 --rank load --loads 20,43,7", 3.into()),
        ("bully --nodes 1,2,3 --rank load --loads 20,20,20", 3.into()),
        ("bully --nodes a,b,c --rank load --loads 25.3,18.7,42.1", "b".into()),
        ("bully --nodes 172.18.0.10,172.18.0.9 --rank address", "172.18.0.10".into()),
        ("bully --nodes 172.18.0.9,172.18.0.10 --rank address --asking one-by-one", "172.18.0.10".into()),
        ("bully --nodes 1,2,3,4,5 --crash 5", 4.into()),
        ("bully --nodes 1,2,3 --crash 1 --preempt false --start 2", 3.into()),
    ] {
        for seed in 0..10 {
            let run = primus(&format!("simulate {line} --seed {seed} -o json")).json();
            assert_eq!(run["leader"], leader, "{line}: {run}");
            assert!(run["properties"].as_object().unwrap().values().all(|holds| *holds == Value::Bool(true)));
        }
    }
}

#[test]
fn the_worked_example_takes_eight_and_five_messages() {
    let run = primus("simulate ring --ids 5,3,7,1,4 --start 1 -o json").json();
    let by_type = serde_json::json!({"election": 8, "alive": 0, "coordinator": 0, "elected": 5});
    assert_eq!(run["messages"], serde_json::json!({"total": 13, "by_type": by_type}));
}

#[test]
fn equal_loads_elect_the_same_node_for_every_seed() {
    for seed in 0..50 {
        let run =
            primus(&format!("simulate bully --nodes 1,2,3 --rank load --loads 20,20,20 --seed {seed} -o json"));
        assert_eq!(run.json()["leader"], 3, "seed {seed}");
    }
}

#[test]
fn a_run_as_json_has_the_fields_of_the_contract() {
    let run = primus("simulate ring --ids 5,3 --start 1 --seed 18446744073709551615 -o json").json();
    let expected = ["leader", "leaders", "messages", "properties", "seed", "table", "trace", "virtual_ms"];
    assert_eq!(keys(&run), expected.into());
    assert_eq!(run["seed"], u64::MAX);
    assert!(run["virtual_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(run["table"][0], serde_json::json!({"node": 5, "leader": 3}));
    let expected = ["agreement", "correctness", "message_bound", "termination", "uniqueness"];
    assert_eq!(keys(&run["properties"]), expected.into());
}

#[test]
fn the_rules_of_assignment_are_compared() {
    let line = "simulate assignment --tasks 5000 --seed 7";
    let compared = primus(&format!("{line} -o json")).json();
    assert_eq!(
        (&compared["tasks"], &compared["seed"], &compared["heartbeat_ms"]),
        (&5000.into(), &7.into(), &2000.0.into())
    );
    let rules = compared["rules"].as_array().unwrap();
    let names: Vec<&str> = rules.iter().map(|rule| rule["rule"].as_str().unwrap()).collect();
    assert_eq!(names, ["balanced", "score", "round-robin", "random"]);
    let mean = |place: usize| rules[place]["mean_ms"].as_f64().unwrap();
    assert!(mean(0) <= mean(1) && mean(1) < mean(2) && mean(2) < mean(3), "{compared}");
    assert!(rules.iter().all(|rule| rule["p99_ms"].as_f64() < rule["makespan_ms"].as_f64()));
    let text = primus(line).good();
    assert!(text.starts_with("rule         mean response") && text.ends_with("seed: 7\n"), "{text}");
    assert_eq!(primus(line).good(), text);
}

#[test]
fn a_day_with_lending_is_compared_with_the_same_day_without() {
    let line = "simulate day --farms 5 --load bursts --turn 20s --task 500ms --day 10min --seed 7";
    let compared = primus(&format!("{line} -o json")).json();
    assert_eq!(
        (&compared["farms"], &compared["load"], &compared["seed"]),
        (&5.into(), &"bursts".into(), &7.into())
    );
    assert_eq!((&compared["thrash_max"], &compared["stay_ms"]), (&1.into(), &1000.into()));
    let [without, with] = ["without", "with"].map(|lending| &compared[lending]);
    assert_eq!(without["all"]["tasks"], with["all"]["tasks"], "both get the same tasks");
    let mean = |farm: &Value| farm["queue_mean"].as_f64().unwrap();
    assert!(2.0 * mean(&with["all"]) < mean(&without["all"]), "{compared}");
    for (without, with) in without["farms"].as_array().unwrap().iter().zip(with["farms"].as_array().unwrap()) {
        let expected = ["borrowed", "farm", "left", "queue_max", "queue_mean", "queue_p95", "tasks", "utilisation"];
        assert!(keys(with).is_superset(&expected.into()), "{with}");
        assert_eq!(without["farm"], with["farm"]);
        assert!(without["borrowed"] == 0 && with["borrowed"].as_u64() > Some(50), "{compared}");
        assert!((0.0..=1.0).contains(&with["utilisation"].as_f64().unwrap()));
    }
    let text = primus(line).good();
    assert!(text.starts_with("farm   lending  tasks") && text.ends_with("seed: 7\n"), "{text}");
    assert!(text.contains("\nall    with "), "{text}");
    assert_eq!(primus(line).good(), text);
}

#[test]
fn a_day_goes_by_the_rules_that_are_set() {
    let line = "simulate day --load one --day 10min --seed 7 -o json --set lending.lent_max";
    let loans = |most: u64| primus(&format!("{line}={most}")).json()["loans"].as_u64().unwrap();
    assert!(loans(0) == 0 && loans(1) > 0);
    // Whoever must stay for longer than it is lent changes farms too soon.
    let ran = primus("simulate day --load one --day 10min --seed 7 --set lending.stay=90s --set lending.loan=2s");
    assert_eq!(ran.code, Some(1), "{ran:?}");
}

#[test]
fn two_processes_make_the_same_run_of_a_seed() {
    let mut traces = BTreeSet::new();
    for line in ["bully --nodes a,b,c,d --rank load", "ring --ids 5,3,7,1,4"] {
        for seed in 0..40 {
            let line = format!("simulate {line} --faults all --seed {seed} -o json");
            let (one, other) = (primus(&line).json(), primus(&line).json());
            assert_eq!(one, other, "{line}");
            traces.insert(one["trace"].as_str().unwrap().to_string());
        }
    }
    assert_eq!(traces.len(), 80, "different seeds give different runs");
}

#[test]
fn a_fresh_seed_is_printed_and_gives_the_run_again() {
    let line = "simulate bully --nodes 1,2,3 --loss 0.3 -o json";
    let fresh = primus(line).json();
    assert_eq!(primus(&format!("{line} --seed {}", fresh["seed"])).json(), fresh);
    assert_ne!(primus(line).json()["seed"], fresh["seed"]);
}

#[test]
fn many_seeds_are_counted() {
    let survey = primus("simulate bully --nodes 1,2,3,4,5 --crash 5 --seeds 300 -o json").json();
    assert_eq!(
        (&survey["seeds"], &survey["failed"], &survey["first_failure"]),
        (&300.into(), &0.into(), &Value::Null)
    );
    let text = primus("simulate ring --ids 5,3,7 --faults all --seeds 100 --seed 1000").good();
    assert!(text.starts_with("✓ 100 seeds passed"), "{text}");
    assert!(text.ends_with("seeds: 1000 to 1099\n"), "{text}");
}

#[test]
fn a_diagram_consists_of_what_mermaid_knows() {
    for line in [
        "ring --ids 5,3,7,1,4 --loss 0.3",
        "bully --nodes a-1,b.2,[::1]:80 --rank load --faults all --seed 3",
        "bully --nodes 1,2,3,4 --crash 4 --partition '1,2|3@1s..2s'",
        "ring --ids 5",
    ] {
        let diagram = primus(&format!("simulate {line} -o mermaid")).good();
        let mut lines = diagram.lines();
        assert!(lines.next().unwrap().starts_with("%% seed "));
        assert_eq!(lines.next(), Some("sequenceDiagram"));
        lines.for_each(|line| assert!(is_mermaid(line), "{line}"));
    }
}

fn is_mermaid(line: &str) -> bool {
    let is_alias = |word: &str| word.strip_prefix('n').is_some_and(|number| number.parse::<u32>().is_ok());
    let Some(statement) = line.strip_prefix("    ") else { return false };
    if statement.contains(['#', ';']) {
        return false;
    }
    if let Some(rest) = statement.strip_prefix("participant ") {
        return rest.split_once(" as Node ").is_some_and(|(alias, title)| is_alias(alias) && !title.is_empty());
    }
    let Some((subject, text)) = statement.split_once(": ") else { return false };
    let has_text = !text.is_empty();
    if let Some(over) = subject.strip_prefix("Note over ") {
        return has_text && over.split(',').all(is_alias);
    }
    let ends = subject.split_once("->>").or_else(|| subject.split_once("-x"));
    has_text && ends.is_some_and(|(from, to)| is_alias(from) && is_alias(to))
}

#[test]
fn of_a_large_election_only_the_beginning_and_the_end_are_told() {
    let ids: Vec<String> = (1..=60).map(|id| id.to_string()).collect();
    let story = primus(&format!("simulate ring --ids {} --start 1", ids.join(","))).good();
    assert!(story.contains("… 61 further steps, not shown …"), "{story}");
    assert!(story.lines().count() < 120, "{story}");
    assert!(story.contains("✓ leader: node 1 (id 1)"), "{story}");
}

const MISTAKES: &[&str] = &[
    "simulate ring --ids 5,3,5",
    "simulate ring --ids=",
    "simulate ring --ids 5,,3",
    "simulate ring --ids five,3",
    "simulate ring --ids 99999999999999999999",
    "simulate ring --ids 5,3 --start 3",
    "simulate ring --ids 5,3 --start x",
    "simulate ring --ids 5,3 --loss 7",
    "simulate ring --ids 5,3 --loss -1",
    "simulate ring --ids 5,3 --delay 20..1ms",
    "simulate ring --ids 5,3 --delay never",
    "simulate ring --ids 5,3 --seeds 0",
    "simulate ring --ids 5,3 --seeds 1e9",
    "simulate ring --ids 5,3 --seed 99999999999999999999",
    "simulate ring --ids 5,3 --partition 1,2",
    "simulate ring --ids 5,3 --winner best",
    "simulate ring --ids 5,3 --seeds 3 -o mermaid",
    "simulate ring --ids 5,3 --unknown",
    "simulate ring --ids",
    "simulate ring",
    "simulate",
    "simulate bully --nodes 1,1",
    "simulate bully --nodes 1,2 --start 3",
    "simulate bully --nodes 1,2,3 --unnoticed",
    "simulate bully --nodes 1,2,3 --unnoticed --crash 3",
    "simulate bully --nodes 1,2 --crash 1",
    "simulate bully --nodes 1,2,3 --rank load --loads 1,2",
    "simulate bully --nodes 1,2,3 --rank load --loads 1,2,x",
    "simulate bully --nodes 1,2,3 --partition 1,2|9@2s..5s",
    "simulate bully --nodes 1,2,3 --partition 1,2|3@5s..2s",
    "simulate bully --nodes 1,2,3 --partition |",
    "simulate bully --nodes 172.18.0.9,nowhere --rank address",
    "simulate bully --nodes 1,2 --preempt maybe",
    "simulate day --farms 1",
    "simulate day --busy 100",
    "simulate day --load none",
    "simulate day --turn 1s",
    "simulate day --load bursts --turn 0s",
    "simulate day --day 2d",
    "simulate day --farms 100",
    "simulate day --workers 1000 --task 1ms",
    "simulate day --set server.id=1",
    "simulate day --day 1s -o mermaid",
    "bench",
    "bench simulate --nodes 0",
    "bench simulate --runs many",
    "bench failover --servers 2",
    "bench failover --runs 0",
    "bench failover --fault fire",
    "bench failover -o mermaid",
    "bench encryption --part fire",
    "bench encryption --runs 0",
    "demo --loud",
    "nonsense",
];

#[test]
fn a_mistake_is_one_sentence_and_exit_code_2() {
    for line in MISTAKES {
        let ran = primus(line);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{line}: {ran:?}");
        assert!(ran.stderr.starts_with("error: ") && ran.stderr.contains("; "), "{line}: {ran:?}");
        assert_eq!(ran.stderr.matches('\n').count(), 1, "{line}: {ran:?}");
        assert!(!ran.stderr.contains('\x1b'), "{line}: {ran:?}");
    }
}

#[test]
fn a_mistake_under_json_is_one_object() {
    for line in MISTAKES.iter().filter(|line| !line.contains("-o mermaid")) {
        let ran = primus(&format!("-o json {line}"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{line}: {ran:?}");
        assert_eq!(ran.stderr.matches('\n').count(), 1, "{line}: {ran:?}");
        let body: Value = serde_json::from_str(&ran.stderr).expect("stderr is JSON");
        assert_eq!(body["error"]["code"], "usage");
        assert_eq!(keys(&body["error"]), ["code", "hint", "message"].into());
        assert!(["message", "hint"].iter().all(|key| !body["error"][key].as_str().unwrap().is_empty()), "{body}");
    }
}

#[test]
fn strange_characters_do_not_reach_the_terminal() {
    let ran = run(&["simulate", "ring", "--ids", "1,\x1b[31m\n2"]);
    assert_eq!((ran.code, ran.stderr.matches('\n').count()), (Some(2), 1));
    assert!(!ran.stderr.contains('\x1b'), "{ran:?}");
}

#[test]
fn bare_primus_is_a_guide() {
    let guide = run(&[]).good();
    assert!(guide.starts_with("primus ") && guide.contains("primus demo"), "{guide}");
    assert_eq!(primus("-o json").json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(primus("--version").good(), format!("primus {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_groups_the_commands_and_its_examples_work() {
    let help = primus("--help").good();
    for line in ["try:", "  demo ", "  simulate ", "  up ", "use:", "  kv ", "operate:", "  status ", "  bench "] {
        assert!(help.contains(&format!("\n{line}")), "{help}");
    }
    let mut examples: Vec<String> = run(&[]).good().lines().filter_map(example).collect();
    for command in
        ["demo", "simulate", "simulate ring", "simulate bully", "bench", "bench simulate", "bench failover"]
    {
        let help = primus(&format!("{command} --help")).good();
        let found: Vec<String> = help.lines().filter_map(example).collect();
        assert!(!found.is_empty() && help.contains("\nExamples:\n"), "{command} has no example");
        examples.extend(found);
    }
    examples.sort();
    examples.dedup();
    // A bench measures a million nodes: that is no test. What needs a farm is tested where there is one.
    let runs_here =
        |line: &&String| !["bench", "up", "chaos", "run"].iter().any(|command| line.starts_with(command));
    for line in examples.iter().filter(runs_here) {
        primus(line).good();
    }
}

/// `  primus demo          what it does` is an example.
fn example(line: &str) -> Option<String> {
    let line = line.strip_prefix("  primus ")?;
    Some(line.split("   ").next()?.trim_end().to_string())
}

#[test]
fn the_demo_holds_and_its_commands_exist() {
    let tour = primus("demo").good();
    assert!(!tour.contains('✗') && tour.contains("\n✓ 25 of 25 claims held"), "{tour}");
    let (_, next) = tour.split_once("\nNext:").expect("it says what to try next");
    let commands = next.lines().filter_map(|line| line.trim().strip_prefix("primus "));
    let commands: Vec<&str> = commands.map(|line| line.split("   ").next().unwrap().trim_end()).collect();
    assert!(commands.len() > 3);
    let runs_here = |line: &&&str| line.starts_with("simulate") || line.starts_with('-');
    commands.iter().filter(runs_here).for_each(|line| _ = primus(line).good());
}

#[test]
fn the_demo_as_json_lists_its_claims() {
    let tour = primus("demo -o json").json();
    assert_eq!(keys(&tour), ["held", "scenes"].into());
    assert_eq!(tour["held"], true);
    for scene in tour["scenes"].as_array().unwrap() {
        assert_eq!(scene["held"], true, "{scene}");
        assert!(["title", "claim"].iter().all(|key| scene[key].is_string()), "{scene}");
    }
}

#[test]
fn a_bench_has_the_fields_of_the_contract() {
    for line in [
        "bench simulate --nodes 500 --runs 3 -o json",
        "bench simulate --nodes 500 --all-initiators --runs 3 -o json",
    ] {
        let bench = primus(line).json();
        assert_eq!((&bench["bench"], &bench["nodes"]), (&"simulate".into(), &500.into()));
        assert_eq!(bench["runs"].as_array().unwrap().len(), 3);
        for figure in ["median_ms", "p90_ms", "max_ms", "events_per_s", "messages", "bully_1000_ms"] {
            assert!(bench[figure].as_f64().unwrap() > 0.0, "{figure}: {bench}");
        }
    }
    assert!(primus("bench simulate --nodes 500 --runs 1").good().contains("events/s"));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    for line in ["demo", "simulate bully --nodes 1,2,3 --loss 0.5", "--help", "simulate ring --ids 1 --seeds 50"] {
        let words: Vec<&str> = line.split(' ').collect();
        let mut child =
            command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("primus starts");
        drop(child.stdout.take());
        let ran = Ran::from(child.wait_with_output().expect("primus ends"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{line}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has /dev/full");
    let words = ["simulate", "ring", "--ids", "5,3", "-o", "json"];
    let ran = Ran::from(command(&words).stdout(full).output().expect("primus starts"));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.starts_with(r#"{"error":{"code":"output","#), "{ran:?}");
}

#[test]
fn what_is_no_terminal_gets_no_colours() {
    for line in ["simulate bully --nodes 1,2,3 --crash 3", "demo", "--help"] {
        assert!(!primus(line).good().contains('\x1b'), "{line}");
    }
}
