//! A worker that runs until it is killed.

use std::path::Path;
use std::time::Duration;

use primus_core::ledger::Work;
use primus_node::executor::{Ended, Executor, Kinds};
use tokio::runtime::Builder;

use crate::stage::{STUBBORN, TASKS, assignment, marked, settings};

/// Its tasks carry the name of its folder as a mark.
pub(crate) fn run(dir: &Path) {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(work(dir));
}

async fn work(dir: &Path) {
    let mut settings = settings(dir);
    settings.patience = Duration::from_secs(1);
    let (executor, mut ended) = Executor::start(settings, Kinds::default()).unwrap();
    for index in 1..=TASKS {
        executor.run(assignment(index, Work::Command(marked(STUBBORN, dir.to_str().unwrap()))));
    }
    let mut beat = tokio::time::interval(Duration::from_millis(50));
    loop {
        tokio::select! {
            _ = beat.tick() => executor.renew(),
            Some(Ended::Abandoned(held)) = ended.recv() => println!("abandoned {held}"),
        }
    }
}
