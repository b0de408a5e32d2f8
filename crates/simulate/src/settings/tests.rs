//! What arguments mean, and what is said of those that mean nothing.

use primus_core::ServerId;
use primus_lab::experiment::{Contest, Partition, Starts};

use super::*;
use crate::args::{SimulateArgs, Simulated};

/// What is typed, and what is said of it.
const MISTAKES: &[(&str, &str)] = &[
    ("ring --ids 5,3,5", "'5' appears twice in --ids; every node needs a name of its own"),
    ("ring --ids 5,3,05", "'05' appears twice in --ids; every node needs a name of its own"),
    ("ring --ids=", "the ring is empty; give at least one id: --ids 5,3,7"),
    ("ring --ids 5,,3", "--ids has an empty place between commas; write it like 1,2,3"),
    ("ring --ids 5,x", "'x' in --ids is not an id; ids are whole numbers from 0, such as 5,3,7"),
    ("ring --ids -5,3", "'-5' in --ids is not an id; ids are whole numbers from 0, such as 5,3,7"),
    ("ring --ids 5,3 --start 3", "--start names '3', which is not there; positions in this ring go from 1 to 2"),
    ("ring --ids 5,3 --start 0", "--start names '0', which is not there; positions in this ring go from 1 to 2"),
    ("ring --ids 5,3 --start 1,1", "--start names 1 twice; name every node once at most"),
    ("ring --ids 5,3 --crash 1,2", "--crash leaves no node alive; name fewer nodes"),
    ("ring --ids 5,3 --crash 1@soon", "'soon' is not a moment of a run; write it like 250ms or 2s, up to 24h"),
    ("ring --ids 5,3 --loss 7", "--loss is '7'; give a share from 0 to 1, such as 0.1 for one in ten"),
    ("ring --ids 5,3 --delay 20..1ms", "--delay '20..1ms' begins with the longer time; put the shorter one first"),
    ("ring --ids 5,3 --delay 5", "--delay is '5'; write it like 5ms, 1..20ms or 1ms..2s"),
    ("ring --ids 5,3 --delay 2h", "--delay '2h' is too long; stay within 60 s"),
    ("ring --ids 5,3 --seeds 0", "--seeds is '0'; give a whole number from 1 to 1000000000"),
    ("ring --ids 5,3 --seed -1", "--seed is '-1'; give a whole number from 0 to 18446744073709551615"),
    (
        "ring --ids 5,3 --faults all --loss 0",
        "--faults all draws the loss of messages from the seed, so --loss would not count; leave one of the two out",
    ),
    (
        "ring --ids 5,3 --partition 1",
        "--partition '1' is malformed; write groups with | between them and when, such as '1,2|3@2s..5s'",
    ),
    (
        "ring --ids 5,3 --partition 1|",
        "--partition '1|' is malformed; write groups with | between them and when, such as '1,2|3@2s..5s'",
    ),
    (
        "ring --ids 5,3 --partition 1|2@2s",
        "--partition '1|2@2s' is malformed; write groups with | between them and when, such as '1,2|3@2s..5s'",
    ),
    (
        "ring --ids 5,3 --partition 1|2@5s..2s",
        "--partition '1|2@5s..2s' ends before it begins; put the earlier moment first: @2s..5s",
    ),
    ("ring --ids 5,3 --partition 1|1", "--partition names 1 twice; name every node once at most"),
    (
        "bully --nodes a,b",
        "'a' in --nodes is not an id; ids are whole numbers from 0; other names need --rank load or --rank address",
    ),
    ("bully --nodes 1,2 --partition 1|x", "--partition names 'x', which is not there; the nodes are 1 and 2"),
    (
        "bully --nodes 1,2 --rank address",
        "'1' is not an address; with --rank address write IP addresses, such as 172.18.0.9 or [::1]:80",
    ),
    (
        "bully --nodes ::ffff:10.0.0.1,10.0.0.1 --rank address",
        "'::ffff:10.0.0.1' and '10.0.0.1' are one address; every node needs an address of its own",
    ),
    ("bully --nodes 1,2 --loads 3,4", "--loads count only where nodes are ranked by them; add --rank load"),
    (
        "bully --nodes 1,2 --rank load --loads 3",
        "1 loads do not match 2 nodes; give one load for each node, in the order of --nodes",
    ),
    (
        "bully --nodes 1,2 --rank load --loads 3,400",
        "'400' in --loads is not a load; give numbers from 0 to 100, such as 25.3",
    ),
    (
        "bully --nodes a|b,c --rank load",
        "'a|b' is not a name; names consist of letters, digits and the characters - _ . : [ ]",
    ),
    (
        "bully --nodes 1,2,3 --crash 2",
        "node 2 cannot lead before it dies, because node 3 ranks better; crash 3 first, or add --preempt false",
    ),
    (
        "bully --nodes 1,2,3 --crash 3 --start 3",
        "node 3 cannot notice its own death; name somebody else in --start",
    ),
    (
        "bully --nodes 1,2 --rank load --preempt true --crash 1",
        "whether node 1 may lead first depends on loads that are not known; give --loads, or --preempt false",
    ),
];

fn settings(line: &str) -> Result<Simulation, Failure> {
    let words = ["primus", "simulate"].into_iter().chain(line.split(' '));
    match SimulateArgs::read(&words.collect::<Vec<_>>()).expect("the words make sense").what {
        Simulated::Election(algorithm) => Simulation::new(&algorithm),
        other => panic!("{other:?}"),
    }
}

fn ids(simulation: &Simulation) -> Vec<u64> {
    simulation.cast.ids().map(|id| id.0).collect()
}

#[test]
fn in_a_ring_one_points_at_positions() {
    let simulation = settings("ring --ids 5,3,7 --start 1,3 --crash 2@1s --partition 1|2,3@2s..").unwrap();
    assert_eq!(simulation.experiment.starts, Starts::These(vec![ServerId(5), ServerId(7)]));
    assert_eq!(simulation.experiment.crashes, [(ServerId(3), 1_000_000)]);
    let groups = vec![vec![ServerId(5)], vec![ServerId(3), ServerId(7)]];
    assert_eq!(simulation.experiment.partitions, [Partition { groups, from_us: 2_000_000, until_us: None }]);
}

#[test]
fn in_a_bully_election_one_points_at_names() {
    let simulation = settings("bully --nodes b,a --rank load --loads 3,2.5 --start a --crash b").unwrap();
    assert_eq!(ids(&simulation), [1, 2]);
    assert_eq!(simulation.experiment.starts, Starts::These(vec![ServerId(2)]));
    assert_eq!(simulation.experiment.crashes, [(ServerId(1), 0)]);
    let Contest::Bully { scores, .. } = &simulation.experiment.contest else { panic!("no Bully") };
    assert_eq!(scores[&ServerId(2)].hundredths(), 250);
}

#[test]
fn integers_are_ids_where_they_can_be() {
    assert_eq!(ids(&settings("bully --nodes 30,10,20").unwrap()), [30, 10, 20]);
    assert_eq!(ids(&settings("bully --nodes 30,10,20 --rank load").unwrap()), [30, 10, 20]);
    assert_eq!(ids(&settings("bully --nodes 30,x,20 --rank load").unwrap()), [1, 2, 3]);
    assert_eq!(ids(&settings("bully --nodes 10.0.0.9,10.0.0.7:80 --rank address").unwrap()), [1, 2]);
}

#[test]
fn all_start_or_all_that_survive() {
    assert_eq!(
        settings("ring --ids 5,3 --start all").unwrap().experiment.starts,
        Starts::These(vec![ServerId(5), ServerId(3)])
    );
    let survivors = settings("bully --nodes 1,2,3 --crash 3 --start all").unwrap().experiment.starts;
    assert_eq!(survivors, Starts::These(vec![ServerId(1), ServerId(2)]));
    assert_eq!(settings("ring --ids 5,3").unwrap().experiment.starts, Starts::Cold);
}

#[test]
fn whoever_dies_first_leads_first() {
    let simulation = settings("bully --nodes 1,2,3 --crash 2@5s,3@1s").unwrap();
    assert_eq!(simulation.experiment.crashes, [(ServerId(3), 1_000_000), (ServerId(2), 5_000_000)]);
}

#[test]
fn seeds_begin_where_one_says() {
    assert_eq!(settings("ring --ids 1 --seed 7").unwrap().seeds, Seeds::One(7));
    assert_eq!(settings("ring --ids 1 --seeds 10").unwrap().seeds, Seeds::Many(0..10));
    assert_eq!(settings("ring --ids 1 --seeds 10 --seed 5").unwrap().seeds, Seeds::Many(5..15));
}

#[test]
fn what_means_nothing_is_explained() {
    for (line, explanation) in MISTAKES {
        assert_eq!(settings(line).unwrap_err().words(), *explanation, "{line}");
    }
}

#[test]
fn too_many_nodes_are_refused_before_they_are_looked_at() {
    let many = vec!["1"; BULLY_MAX + 1].join(",");
    assert!(
        settings(&format!("bully --nodes {many}")).unwrap_err().words().starts_with("--nodes lists 1001 nodes")
    );
}

#[test]
fn no_seed_lies_beyond_the_last() {
    let failure = settings("ring --ids 1 --seed 18446744073709551615 --seeds 2").unwrap_err();
    assert_eq!(failure.words(), "fewer than 2 seeds follow 18446744073709551615; choose a smaller --seed");
}
