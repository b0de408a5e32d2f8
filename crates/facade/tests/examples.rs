//! Every example, run as its users run it. `submit_jobs` and the other half of `own_kind` want a farm with an API: the tests of the
//! command line have one.

#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../examples/farm_in_a_program.rs"]
mod farm_in_a_program;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../examples/leader_only_cron.rs"]
mod leader_only_cron;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../examples/own_kind.rs"]
mod own_kind;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../examples/three_servers.rs"]
mod three_servers;
#[allow(dead_code, reason = "its main is for those who run it by hand")]
#[path = "../examples/write_your_own_election.rs"]
mod write_your_own_election;

use std::error::Error;
use std::time::Duration;

use tokio::time::timeout;

async fn ends(example: impl Future<Output = Result<(), Box<dyn Error>>>) {
    timeout(Duration::from_secs(30), example).await.expect("it ends").expect("it works");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_in_one_program() {
    ends(three_servers::run()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_farm_in_one_program() {
    ends(farm_in_a_program::run()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_only_one_runs() {
    ends(leader_only_cron::run()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_a_kind_of_its_own() {
    ends(own_kind::run()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_of_ones_own() {
    ends(write_your_own_election::run()).await;
}
