//! Whole clusters under all faults. `PRIMUS_RUNS` says how many seeds, `PRIMUS_SEED_OFFSET` where they begin.

use primus_lab::cluster::Cluster;
use primus_lab::tally;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

fn check(cluster: Cluster) {
    let first = setting("PRIMUS_SEED_OFFSET", 0);
    let seeds = first..first + setting("PRIMUS_RUNS", 50);
    for seed in seeds.clone() {
        let report = cluster.run(seed);
        assert_eq!(report.violation, None, "{cluster:?}, seed {seed}: {report:?}");
    }
    tally::add("runs", seeds.count());
}

#[test]
fn a_cluster_without_faults_elects_a_leader_and_writes() {
    check(Cluster { servers: 3, all_faults: false });
}

#[test]
fn three_servers_survive_all_faults() {
    check(Cluster { servers: 3, all_faults: true });
}

#[test]
fn five_servers_survive_all_faults() {
    check(Cluster { servers: 5, all_faults: true });
}
