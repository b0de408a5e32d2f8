//! Configurations as people write them, and what is made of them.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use primus_core::election::Algorithm;
use primus_core::election::bully::Asking;
use primus_core::ledger::Limits;
use primus_core::loan::lending;
use primus_core::machine::Delay;
use primus_core::rank::RankBy;
use primus_server::groups::GroupPlan;
use primus_server::plan::{ElectionPlan, Neighbour};

use super::layers::Override;
use super::*;

/// As the load-aware document has it.
const DOCUMENT: &str = r#"
[server]
id = 1
address = "127.0.0.1:8001"
cover_image = "cover.png"

[peers]
peers = [
    { id = 2, address = "127.0.0.1:8002" },
    { id = 3, address = "127.0.0.1:8003" },
]

[election]
heartbeat_interval_secs = 1
election_timeout_secs = 2
failure_timeout_secs = 3
monitor_interval_secs = 1
"#;

const NATIVE: &str = r#"
[server]
id = 2
farm = "north"

[cluster]
servers = [
    { id = 1, address = "127.0.0.1:7460", api = "127.0.0.1:7461" },
    { id = 2, address = "127.0.0.1:7470" },
]

[election]
heartbeat = "50ms"
"#;

/// What a file, variables and flags mean together.
fn configured(text: &str, environment: &[(&str, &str)], flags: &[(&str, &str, &str)]) -> Configuration {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("primus-settings-{}-{number}.toml", std::process::id()));
    fs::write(&file, text).expect("a file can be written");
    let owned = |text: &str| text.to_owned();
    let sources = Sources {
        file: Some(file.clone()),
        environment: environment.iter().map(|(name, text)| (owned(name), owned(text))).collect(),
        flags: flags
            .iter()
            .map(|(flag, key, text)| Override { flag: owned(flag), key: owned(key), text: owned(text) })
            .collect(),
    };
    let configuration = Configuration::read(&sources, false);
    fs::remove_file(file).expect("a file can be removed");
    configuration
}

fn settled(text: &str) -> ServerSettings {
    configured(text, &[], &[]).settle().unwrap_or_else(|failure| panic!("{}", failure.words()))
}

/// All mistakes, one per line, without the file's name.
fn mistakes(text: &str) -> String {
    let Err(failure) = configured(text, &[], &[]).settle() else { panic!("{text} has no mistake") };
    let line = |mistake: &primus_shapes::refusal::Mistake| {
        let line = mistake.line.map(|line| format!("{line}: ")).unwrap_or_default();
        format!("{line}{}; {}\n", mistake.message, mistake.hint)
    };
    failure.mistakes().iter().map(line).collect()
}

#[test]
fn a_file_of_the_load_aware_document_works_unchanged() {
    let settings = settled(DOCUMENT);
    let plan = &settings.plan;
    assert_eq!(plan.servers.len(), 3);
    assert_eq!(plan.election.silence.heartbeat_us, 1_000_000);
    assert_eq!(
        (plan.election.silence.floor_us, plan.election.silence.ceiling_us),
        (3_000_000, 3_000_000),
        "T is fixed"
    );
    assert_eq!(plan.election.answers, Some(Delay::exactly_ms(2000)));
    assert!(
        plan.election.silence.is_floor_fixed && plan.election.silence.is_ceiling_fixed,
        "and nothing is added to it"
    );
    assert_eq!(settings.dir, PathBuf::from("primus-data/primus-1"));
}

#[test]
fn apis_without_a_place_are_in_nobodys_way_and_all_servers_agree_where_they_are() {
    let first = settled(DOCUMENT);
    let ports: Vec<u16> = first.servers.values().map(|places| places.api.port()).collect();
    assert_eq!(ports, [8004, 8005, 8006]);
    let second = DOCUMENT.replace("8002", "8009").replace("8001", "8002").replace("8009", "8001");
    let second = second.replace("id = 2,", "id = 9,").replace("id = 1\n", "id = 2\n").replace("id = 9,", "id = 1,");
    assert_eq!(settled(&second).servers, first.servers);
}

#[test]
fn one_list_for_all_servers_says_where_this_one_listens() {
    let settings = settled(NATIVE);
    assert_eq!(settings.listen.to_string(), "127.0.0.1:7470");
    assert_eq!(settings.api_listen.to_string(), "127.0.0.1:7471");
    assert_eq!(settings.farm, "north");
    assert_eq!(settings.plan.election.silence.heartbeat_us, 50_000);
    assert_eq!(settings.plan.election.silence.floor_us, 150_000, "three heartbeats");
}

#[test]
fn where_it_listens_need_not_be_where_it_is_reached() {
    let told = "listen = \"127.0.0.1:9\"\n[api]\nlisten = \"[::1]:9\"\n[cluster]";
    let settings = settled(&NATIVE.replace("[cluster]", told));
    assert_eq!(
        (settings.listen.to_string().as_str(), settings.api_listen.to_string().as_str()),
        ("127.0.0.1:9", "[::1]:9")
    );
    assert_eq!(settings.servers[&ServerId(2)].address.to_string(), "127.0.0.1:7470");
    let named = NATIVE.replace("127.0.0.1:7470", "LocalHost:7470");
    let settings = settled(&named);
    assert_eq!(
        (settings.listen.to_string().as_str(), settings.api.to_string().as_str()),
        ("127.0.0.1:7470", "localhost:7471")
    );
    // As files said it before there was a key for it.
    let open = NATIVE.replace("id = 2\n", "id = 2\naddress = \"0.0.0.0:7470\"\n");
    let sources = configured(&open, &[], &[("--founding", "cluster.founding", "f")]);
    let settings = sources.settle().unwrap();
    assert_eq!(settings.listen.to_string(), "0.0.0.0:7470");
    assert_eq!(settings.servers[&ServerId(2)].address.to_string(), "127.0.0.1:7470");
}

#[test]
fn names_are_not_ranked() {
    let named = NATIVE.replace("127.0.0.1:7470", "localhost:7470");
    let configuration = configured(&named, &[], &[("--rank", "election.rank", "address")]);
    let words = configuration.settle().unwrap_err().words();
    let sentence = "election.rank is address, but server 2 is reached at localhost:7470, a name";
    assert!(words.contains(sentence) && words.contains("or rank by id"), "{words}");
}

#[test]
fn what_nobody_says_is_as_the_machines_have_it() {
    let plan = settled("[server]\nid = 1").plan;
    let usual = Plan::new(plan.id, plan.servers.clone());
    assert_eq!(plan, Plan { election: ElectionPlan { preempt: Some(false), ..usual.election.clone() }, ..usual });
}

#[test]
fn a_hook_is_a_program_with_arguments_or_a_mistake() {
    let hook = |text: &str| settled(&format!("[server]\nid = 1\n[hooks]\n{text}")).hook;
    assert_eq!(hook("timeout = \"2s\""), None);
    let expected = Hook { command: vec!["notify".to_owned(), "a b".to_owned()], timeout: Duration::from_secs(10) };
    assert_eq!(hook("leader_changed = [\"notify\", \"a b\"]"), Some(expected));
    for (text, what) in [
        ("[]", "is empty; give a program, "),
        ("[\"\"]", "begins with '', which is not a program's name or path; give a program, "),
        ("[\"notify all\"]", "begins with 'notify all', which is not a program's name or path; "),
        ("[\"notify\", \"a\\u0000\"]", "holds a zero byte; "),
        ("[1]", "holds something that is not text; write it like leader_changed = ["),
        ("\"notify\"", "is a text; write it like leader_changed = ["),
    ] {
        let said = mistakes(&format!("[server]\nid = 1\n[hooks]\nleader_changed = {text}"));
        assert!(said.starts_with(&format!("4: hooks.leader_changed {what}")), "{text}: {said}");
    }
}

#[test]
fn how_much_a_farm_keeps_is_configured() {
    let farm = "[farm]\nqueue_max = 7\nresults_max = 8\nresults_bytes = \"3MiB\"\nresults_age = \"2h\"\n\
                state_max = \"5MiB\"\n";
    let plan = settled(&format!("{NATIVE}{farm}")).plan;
    assert_eq!((plan.farm.state_max, settled(NATIVE).plan.farm.state_max), (5 << 20, 1 << 30));
    assert_eq!(plan.farm.limits, Limits { waiting: 7, results: 8, results_len: 3 << 20, age_ms: 2 * 3600 * 1000 });
}

#[test]
fn how_servers_ask_and_how_long_they_wait_at_the_start_can_be_configured() {
    let text = "[server]\nid = 1\n[election]\nasking = \"one-by-one\"\nanswers = \"3s\"\nstartup = \"3.1s..3500ms\"
[cluster]\nservers = [{ id = 1, address = \"127.0.0.1:7460\" }, { id = 2, address = \"127.0.0.1:7470\" },
{ id = 3, address = \"127.0.0.1:7480\" }, { id = 4, address = \"127.0.0.1:7490\" }]";
    let plan = settled(text).plan;
    assert_eq!((plan.election.asking, plan.election.answers), (Asking::OneByOne, Some(Delay::exactly_ms(3000))));
    assert_eq!(plan.election.startup, Delay::between_ms(3100, 3500));
    let shown = configured(text, &[], &[]);
    let victory = shown.entries().find(|(key, _)| key.name == "election.victory").expect("it is shown").1;
    assert_eq!(
        (victory.text.as_str(), plan.election.victory),
        ("12s", None),
        "each of four may have to be waited for"
    );
    let wrong = "[server]\nid = 1\n[election]\nasking = \"all\"\nstartup = \"3s..1s\"";
    let expected = "\
4: election.asking is 'all'; choose one of at-once, one-by-one
5: election.startup is '3s..1s'; write it like 2s or 3100ms..3500ms, from 1ms to 24h
";
    assert_eq!(mistakes(wrong), expected);
}

#[test]
fn what_is_configured_does_not_follow_the_links() {
    let silence = |text: &str| settled(&format!("[server]\nid = 1\n[election]\n{text}")).plan.election.silence;
    let fixed = |text: &str| (silence(text).is_floor_fixed, silence(text).is_ceiling_fixed);
    assert_eq!(fixed(""), (false, false));
    assert_eq!(fixed("silence_min = \"200ms\""), (true, false));
    assert_eq!(fixed("silence_max = \"2s\""), (false, true));
}

#[test]
fn a_ring_compares_ids_and_may_be_preempted() {
    let plan = settled("[server]\nid = 1\n[election]\nalgorithm = \"ring\"").plan;
    assert_eq!((plan.election.rank, plan.election.preempt), (RankBy::Id, Some(true)));
}

#[test]
fn flags_come_before_the_environment_that_before_the_file_that_before_defaults() {
    let file = "[server]\nid = 1\n[election]\nheartbeat = \"30ms\"\nanswers = \"31ms\"\nvictory = \"99ms\"";
    let environment = [("PRIMUS_ELECTION_HEARTBEAT", "40ms"), ("PRIMUS_ELECTION_ANSWERS", "41ms"), ("HOME", "/x")];
    let flags = [("--heartbeat", "election.heartbeat", "50ms")];
    let configuration = configured(file, &environment, &flags);
    let mut found = BTreeMap::new();
    for (key, given) in configuration.entries() {
        let origin = given.origin.to_string();
        found.insert(key.name, (given.text, origin.rsplit(['/', '-']).next().unwrap_or_default().to_owned()));
    }
    for (key, text, origin) in [
        ("election.heartbeat", "50ms", "heartbeat"),
        ("election.answers", "41ms", "environment PRIMUS_ELECTION_ANSWERS"),
        ("election.silence_min", "150ms", "default"),
        ("election.rank", "load", "default"),
    ] {
        assert_eq!(found[key], (text.to_owned(), origin.to_owned()), "{key}");
    }
    assert_eq!(found["election.victory"].0, "99ms");
    assert!(found["election.victory"].1.ends_with(".toml:6"), "{:?}", found["election.victory"]);
    assert_eq!(configuration.settle().unwrap().plan.election.silence.heartbeat_us, 50_000);
}

#[test]
fn all_mistakes_are_found_at_once_with_their_lines() {
    let text = r#"[server]
id = 0
adress = "127.0.0.1:7460"
api = 7461

[election]
hartbeat = "25ms"
heartbeat = 25
answers = "soon"
rank = "beauty"
election_timeout_secs = -1

[load]
source = "moon"
"#;
    let expected = "\
2: server.id is '0'; give a whole number from 1
3: key 'server.adress' does not exist; did you mean server.address?
4: server.api is a number; write it like api = \"127.0.0.1:7460\"
7: key 'election.hartbeat' does not exist; did you mean election.heartbeat?
8: election.heartbeat is a number; write it like heartbeat = \"25ms\"
9: election.answers is 'soon'; write it like 25ms or 2s, from 1ms to 24h
10: election.rank is 'beauty'; choose one of load, id, address
11: election.election_timeout_secs is '-1'; give seconds, such as 1 or 0.5
14: load.source is 'moon'; choose system, cgroup, process or file:PATH
";
    assert_eq!(mistakes(text), expected);
}

#[test]
fn groups_are_configured_one_by_one_and_have_all_servers_as_members_unless_somebody_says_otherwise() {
    let groups = r#"
[[groups]]
name = "router"
authority = "none"
algorithm = "bully"
rank = "address"

[[groups]]
name = "scrapper.2"
algorithm = "ring"
members = [2]
"#;
    let plan = settled(&format!("{NATIVE}{groups}")).plan;
    let facts = |group: &GroupPlan| (group.name.clone(), group.algorithm, group.rank, group.members.len());
    let facts: Vec<_> = plan.groups.iter().map(facts).collect();
    let router = ("router".to_owned(), Algorithm::Bully, RankBy::Address, 2);
    assert_eq!(facts, [router, ("scrapper.2".to_owned(), Algorithm::Ring, RankBy::Id, 1)]);
    let variable = [("PRIMUS_GROUPS", "bd@1,router=ring")];
    let plan = configured(NATIVE, &variable, &[]).settle().unwrap().plan;
    let names: Vec<&str> = plan.groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["bd", "router"]);
}

#[test]
fn every_mistake_in_a_group_says_what_to_do() {
    for (lines, expected) in [
        ("algorithm = \"ring\"", "holds a group without a name; write name = \"router\", for example"),
        ("name = 7", "holds a group whose name is a number; use 1 to 64 letters, digits, ., _ and -"),
        ("name = \"a/b\"", "holds a group whose name is 'a/b'; use 1 to 64 letters, digits, ., _ and -"),
        ("name = \"a\"\nrnk = \"id\"", "holds a group with 'rnk'; did you mean rank?"),
        ("name = \"a\"\nrank = 1", "holds 'a', whose rank is a number; write it as a text in quotes"),
        ("name = \"a\"\nrank = \"best\"", "holds 'a', whose rank is 'best'; choose one of load, id, address"),
        (
            "name = \"a\"\nauthority = \"quorum\"",
            "holds 'a', whose authority is 'quorum'; write none, or leave the group out: a lease, granted by a quorum, \
             needs no configuration",
        ),
        ("name = \"a\"\nmembers = 1", "holds 'a', whose members is a number; list ids of servers"),
        ("name = \"a\"\nmembers = []", "holds 'a', which has no members; name servers by their ids, each once"),
        ("name = \"a\"\nmembers = [1, \"x\"]", "holds 'a', whose members are not all ids: 'x'; "),
        ("name = \"a\"\nmembers = [0]", "holds 'a', whose members are not all ids: '0'; "),
        ("name = \"a\"\nmembers = [1, 1]", "holds 'a', which has server 1 twice; "),
        ("name = \"a\"\nmembers = [1, 9]", "holds 'a', which has server 9, and there is none; "),
        ("name = \"a\"\n[[groups]]\nname = \"a\"", "holds two groups called 'a'; give each its own name"),
    ] {
        let found = mistakes(&format!("{NATIVE}[[groups]]\n{lines}"));
        assert!(found.starts_with(&format!("14: groups {expected}")), "{lines}\n  gives {found}  not {expected}");
        assert_eq!(found.lines().count(), 1, "{lines}\n  gives {found}");
    }
    let found = mistakes(&format!("{NATIVE}[groups]\nname = \"a\""));
    assert_eq!(found, "14: groups is a table; write [[groups]] above each group\n");
}

const NEIGHBOURS: &str = r#"
[[neighbours]]
name = "south"
servers = [
    { id = 1, address = "127.0.0.1:7560", api = "127.0.0.1:7561" },
    { id = 2, address = "127.0.0.1:7570" },
]

[[neighbours]]
name = "west"
servers = [{ id = 1, address = "127.0.0.1:7660" }]
"#;

#[test]
fn neighbours_are_configured_one_by_one_and_asked_in_that_order() {
    let plan = settled(&format!("{NATIVE}{NEIGHBOURS}")).plan;
    let facts = |neighbour: &Neighbour| (neighbour.name.clone(), neighbour.servers.len());
    let found: Vec<_> = plan.lending.neighbours.iter().map(facts).collect();
    assert_eq!(found, [("south".to_owned(), 2), ("west".to_owned(), 1)]);
    assert_eq!(plan.lending.neighbours[0].servers[&ServerId(2)].to_string(), "127.0.0.1:7570");
    let variable = [("PRIMUS_NEIGHBOURS", "east=1@127.0.0.1:7760+3@127.0.0.1:7770")];
    let plan = configured(&format!("{NATIVE}{NEIGHBOURS}"), &variable, &[]).settle().unwrap().plan;
    assert_eq!(plan.lending.neighbours.iter().map(facts).collect::<Vec<_>>(), [("east".to_owned(), 2)]);
}

#[test]
fn every_mistake_in_a_neighbour_says_what_to_do() {
    let one = "servers = [{ id = 1, address = \"127.0.0.1:9\" }]";
    for (lines, expected) in [
        (one.to_owned(), "holds a farm without a name; write name = \"south\", for example"),
        (format!("name = 7\n{one}"), "holds a farm whose name is a number; write it as a text in quotes"),
        (
            format!("name = \"w@s\"\n{one}"),
            "holds a farm whose name is 'w@s'; use up to 40 letters, digits, - and _, ",
        ),
        (format!("name = \"s\"\nsevers = 1\n{one}"), "holds a farm with 'severs'; did you mean servers?"),
        (
            format!("name = \"s\"\ncolour = \"red\"\n{one}"),
            "holds a farm with 'colour'; the nearest is name; a neighbour has name, servers and authority",
        ),
        ("name = \"s\"".to_owned(), "holds 's', which has no servers; list all of them, as that farm itself does"),
        ("name = \"s\"\nservers = []".to_owned(), "holds 's', which has no servers; "),
        ("name = \"s\"\nservers = 1".to_owned(), "holds 's', whose list of servers is a number; "),
        (
            "name = \"s\"\nservers = [{ id = 1 }]".to_owned(),
            "holds 's', whose list of servers holds server 1 without an address; say where others reach it",
        ),
        (
            "name = \"s\"\nservers = [{ id = 1, address = \"[::1]:1\" }, { id = 1, address = \"[::1]:2\" }]"
                .to_owned(),
            "holds 's', which has two servers with the id 1; give each its own",
        ),
        (
            "name = \"s\"\nservers = [{ id = 1, address = \"[::1]:1\" }, { id = 2, address = \"[::1]:1\" }]"
                .to_owned(),
            "names [::1]:1 twice; say of each server once where it is",
        ),
        (
            format!("name = \"north\"\n{one}"),
            "holds 'north', which is this farm itself; name other farms only, or mend",
        ),
        (
            format!("name = \"s\"\n{}", one.replace(":9", ":7460")),
            "holds 's', with 127.0.0.1:7460, where a server of this farm is reached; say where that farm's own servers are",
        ),
        (
            format!("name = \"s\"\n{one}\n[[neighbours]]\nname = \"s\"\n{}", one.replace(":9", ":8")),
            "holds two farms called 's'; give each its own name",
        ),
        (
            format!("name = \"s\"\n{one}\n[[neighbours]]\nname = \"t\"\n{one}"),
            "names 127.0.0.1:9 twice; say of each server once where it is",
        ),
    ] {
        let found = mistakes(&format!("{NATIVE}[[neighbours]]\n{lines}"));
        assert!(
            found.starts_with(&format!("14: neighbours {expected}")),
            "{lines}\n  gives {found}  not {expected}"
        );
        assert_eq!(found.lines().count(), 1, "{lines}\n  gives {found}");
    }
    let found = mistakes(&format!("{NATIVE}[neighbours]\nname = \"a\""));
    assert_eq!(found, "14: neighbours is a table; write [[neighbours]] above each of them\n");
    let many: String = (1..=65)
        .map(|n| format!("[[neighbours]]\nname = \"f{n}\"\n{}\n", one.replace(":9", &format!(":{n}"))))
        .collect();
    assert_eq!(mistakes(&format!("{NATIVE}{many}")), "14: neighbours holds 65 farms; leave it at 64\n");
}

#[test]
fn when_a_farm_borrows_and_lends_is_configured() {
    let lending = "[lending]\nsaturated_at = 5\nsaturated_for = \"100ms\"\ncalm_below = 2\ncalm_for = \"300ms\"\n\
                   tasks_per_worker = 4\nloan = \"5s\"\nrecall = \"2s\"\nstay = \"1500ms\"\nreserve = 1\nlent_max = 7\norder = \"idle\"";
    let expected = lending::Rules {
        saturated_at: 5,
        saturated_ms: 100,
        calm_below: 2,
        calm_ms: 300,
        tasks_per_worker: 4,
        loan_ms: 5000,
        recall_ms: 2000,
        stay_ms: 1500,
        reserve: 1,
        lent_max: 7,
        order: lending::Order::Idle,
        ..lending::Rules::default()
    };
    assert_eq!(settled(&format!("{NATIVE}{lending}")).plan.lending.rules, expected);
    let variable = [("PRIMUS_LENDING_LENT_MAX", "0")];
    assert_eq!(configured(NATIVE, &variable, &[]).settle().unwrap().plan.lending.rules.lent_max, 0);
    let found = mistakes(&format!("{NATIVE}[lending]\ncalm_below = 11"));
    assert_eq!(
        found,
        "15: lending.calm_below is 11, but lending.saturated_at is 10: a farm could be saturated and calm at once; \
         make lending.calm_below at most lending.saturated_at\n"
    );
}

#[test]
fn a_worker_whose_name_could_be_another_farms_is_refused() {
    let found = mistakes(&format!("{NATIVE}[worker]\nname = \"w1@south\"\nslots = 1"));
    assert_eq!(
        found,
        "15: worker.name is 'w1@south'; use up to 40 letters, digits, - and _, a letter or digit first\n"
    );
}

/// What is wrong, with a file that is otherwise fine.
#[test]
fn every_mistake_says_what_to_do() {
    const PEERS: &str = "[server]\nid = 1\naddress = \"127.0.0.1:1\"\n[peers]\npeers = ";
    let peers = |list: &str| format!("{PEERS}[{list}]");
    let election = |lines: &str| format!("[server]\nid = 1\n[election]\n{lines}");
    for (text, expected) in [
        (String::new(), "server.id is missing; write id = 1 under [server], or --id on the command line\n"),
        ("[server".to_owned(), "1: this is not TOML"),
        ("load = 1\n[server]\nid = 1".to_owned(), "1: load holds keys, not a value; write [load] above them\n"),
        (
            "[sever]\nid = 1\n[server]\nid = 1".to_owned(),
            "1: section 'sever' does not exist; did you mean server?\n",
        ),
        (peers("{ id = 2, address = \"127.0.0.1:1\" }"), "5: 127.0.0.1:1 is taken twice"),
        (peers("{ id = 1, address = \"127.0.0.1:9\" }"), "5: two servers have the id 1: this one at 127.0.0.1:1"),
        (
            peers("{ id = 2, address = \"127.0.0.1:7\" }, { id = 2, address = \"127.0.0.1:9\" }"),
            "5: two servers have the id 2; give each its own\n",
        ),
        (
            peers("{ id = 2, adress = \"127.0.0.1:7\" }"),
            "5: peers.peers holds a server with 'adress'; did you mean address?",
        ),
        (peers("{ id = 0, address = \"127.0.0.1:7\" }"), "5: peers.peers holds a server without a good id; "),
        (peers("{ id = 2 }"), "5: peers.peers holds server 2 without an address; "),
        (peers("2"), "5: peers.peers holds something that is not a server; "),
        (
            NATIVE.replace("id = 2\n", "id = 4\n"),
            "7: cluster.servers names 1, 2 but not this server, 4; add server 4",
        ),
        (format!("{NATIVE}[peers]\npeers = []"), "7: cluster.servers and peers.peers both say"),
        (
            NATIVE.replace("id = 2\n", "id = 2\naddress = \"127.0.0.1:9\"\n"),
            "4: server.address is 127.0.0.1:9, but cluster.servers says 127.0.0.1:7470; ",
        ),
        (
            election("heartbeat = \"25ms\"\nheartbeat_interval_secs = 1"),
            "5: election.heartbeat_interval_secs and election.heartbeat say the same in two ways; leave one out\n",
        ),
        (
            election("silence_max = \"2s\"\nfailure_timeout_secs = 3"),
            "4: election.silence_max and election.failure_timeout_secs say the same in two ways",
        ),
        (
            election("silence_min = \"20ms\""),
            "4: election.silence_min is 20ms, but election.heartbeat is 25ms; make election.silence_min longer",
        ),
        (election("silence_min = \"2s\"\nsilence_max = \"1s\""), "5: election.silence_max is 1s, but"),
        (election("algorithm = \"ring\"\nrank = \"load\""), "5: a ring compares ids and nothing else; "),
        (
            "[server]\nid = 1\n[load.weights]\ncpu = 0\ntasks = 0\nmemory = 0".to_owned(),
            "4: load.weights: all weights are zero",
        ),
        (
            "[server]\nid = 1\n[worker]\nslots = 2\nbeside = 2".to_owned(),
            "5: worker.beside is 2, but the slots of a server are its own; leave it out, ",
        ),
        (
            "[server]\nid = 1\naddress = \"0.0.0.0:7460\"\napi = \"127.0.0.1:7461\"".to_owned(),
            "3: server.address is 0.0.0.0:7460, which other hosts can reach, and links are not encrypted; make a founding",
        ),
        ("[server]\nid = 1\naddress = \"127.0.0.1:65535\"".to_owned(), "no port above 127.0.0.1:65535 is free"),
        (
            "[server]\nid = 1\naddress = \"127.0.0.1:7\"\napi = \"127.0.0.1:7\"".to_owned(),
            "3: 127.0.0.1:7 is taken twice: for the links of server 1 and the API of server 1; give each its own port\n",
        ),
    ] {
        let found = mistakes(&text);
        assert!(found.starts_with(expected), "{text}\n  gives {found}  not {expected}");
        assert_eq!(found.lines().count(), 1, "{text}\n  gives {found}");
    }
}

#[test]
fn mistakes_of_variables_and_flags_name_them() {
    let environment = [("PRIMUS_ELECTION_HEARTBEET", "1s"), ("PRIMUS_ELECTION_RANK", "best"), ("PRIMUS_PORT", "x")];
    let flags = [
        ("--set", "election.hartbeat", "1s"),
        ("--answers", "election.answers", "20ms"),
        ("--set", "election.answers", "30ms"),
    ];
    let words = configured("[server]\nid = 1", &environment, &flags).settle().unwrap_err().words();
    for part in [
        "has 4 mistakes: ",
        "PRIMUS_ELECTION_HEARTBEET: is not a variable of primus",
        "PRIMUS_ELECTION_RANK: election.rank is 'best'",
        "--set: key 'election.hartbeat' does not exist",
        "--set: election.answers is given twice, by --answers too",
    ] {
        assert!(words.contains(part), "{words} does not say {part}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let sources = Sources { file: Some("/nowhere/x.toml".into()), ..Sources::default() };
    let words = Configuration::read(&sources, false).settle().unwrap_err().words();
    assert!(words.contains("cannot read /nowhere/x.toml: "), "{words}");
}

#[test]
fn a_worker_stands_beside_a_server_that_exists() {
    let beside = |id: &str| {
        let flag = |key: &str, text: &str| Override { flag: "--set".into(), key: key.into(), text: text.into() };
        let servers = flag("cluster.servers", "1@127.0.0.1:7460,2@127.0.0.1:7470");
        let sources = Sources { flags: vec![servers, flag("worker.beside", id)], ..Sources::default() };
        WorkerSettings::read(&sources).map(|settings| settings.beside).map_err(|failure| failure.words())
    };
    assert_eq!(beside("2"), Ok(Some(ServerId(2))));
    let words = beside("7").unwrap_err();
    assert!(words.starts_with("worker.beside is 7, but the farm has not got that server"), "{words}");
}
