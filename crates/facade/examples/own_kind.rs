//! A worker that can do something which no other worker can: it counts primes for tasks of the kind `primes`.
//!
//! Alone, it starts a farm of its own and has something counted. With a name and a folder it joins the farm that runs, as
//! `primus worker` does, beside ordinary workers:
//!
//! ```text
//! cargo run -p primus-farm --example own_kind
//!
//! primus up --workers 0
//! cargo run -p primus-farm --example own_kind -- counter ./counter
//! primus submit --kind primes --input 1000000 --wait
//! primus logs 1
//! ```

use std::error::Error;
use std::net::TcpListener;

use primus_farm::{Client, Job, Server, Task, WorkerBuilder};

/// To count further takes too long.
const LIMIT_MAX: usize = 100_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.as_slice() {
        [] => run().await,
        [name, folder] => join(name, folder).await,
        _ => Err("say NAME FOLDER, or nothing".into()),
    }
}

/// A farm of its own.
pub(crate) async fn run() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("primus-own-kind-{}", std::process::id()));
    let address = TcpListener::bind("127.0.16.5:0")?.local_addr()?;
    let server = Server::builder("primes", 1, [(1, address)], dir.join("server")).start().await?;
    let worker = with_primes(server.worker("counter", dir.join("counter"))).start().await?;
    let job = server.client().submit(Job::kind("primes", "1000000")).await?;
    assert!(job.wait().await?.is_success());
    let [task] = job.results().await?.try_into().map_err(|_| "the job has one task")?;
    print!("primes up to a million: {}", task.stdout);
    assert_eq!(task.stdout, "78498\n");
    worker.stop().await?;
    server.stop().await?;
    Ok(std::fs::remove_dir_all(&dir)?)
}

/// Works for the farm that runs, until the process ends.
pub(crate) async fn join(name: &str, folder: &str) -> Result<(), Box<dyn Error>> {
    let builder = Client::find()?.worker(name, folder).await?.slots(2);
    let mut worker = with_primes(builder).start().await?;
    let mut events = worker.events();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            eprintln!("{event}");
        }
    });
    Ok(worker.ended().await?)
}

/// The worker needs no companion, because it runs no commands.
fn with_primes(worker: WorkerBuilder) -> WorkerBuilder {
    worker.blocking_kind("primes", primes)
}

/// How many primes there are up to the number that the job was submitted with or, if it had none, the task's own argument.
fn primes(task: Task) -> Result<String, String> {
    let text = task.text();
    let limit: usize = text.trim().parse().map_err(|_| format!("{text:?} is not a number"))?;
    if limit > LIMIT_MAX {
        return Err(format!("{limit} is too far: {LIMIT_MAX} is the limit"));
    }
    Ok(format!("{}\n", count_primes(limit)))
}

fn count_primes(limit: usize) -> usize {
    let mut is_prime = vec![true; limit + 1];
    let mut count = 0;
    for number in 2..=limit {
        if is_prime[number] {
            count += 1;
            (number * number..=limit).step_by(number).for_each(|multiple| is_prime[multiple] = false);
        }
    }
    count
}
