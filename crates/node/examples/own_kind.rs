//! A worker that can do something which no other worker can: `own_kind FARM NAME FOLDER ID@ADDRESS…`.
//!
//! It joins a farm as `primus worker` does, beside ordinary workers, and counts primes for tasks of the kind `primes`. The
//! addresses are those of the farm's servers; `primus status` shows them.
//!
//! ```text
//! primus up --workers 0
//! cargo run -p primus-node --example own_kind -- local counter ./counter 1@127.0.0.1:7460 …
//! primus submit --kind primes --input 1000000 --wait
//! primus logs 1
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use primus_core::ServerId;
use primus_core::load::Weights;
use primus_node::companion;
use primus_node::executor::{Answer, Call, Kinds, Settings};
use primus_node::worker::{self, Config};
use tokio::runtime::Builder;
use tokio::sync::broadcast::error::RecvError;

/// To count further takes longer than anybody waits.
const LIMIT_MAX: usize = 100_000_000;

type Companion = (PathBuf, Vec<OsString>);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // A worker needs a second process that owns the commands it runs; this program plays that part, too.
    if words == ["companion"] {
        return Ok(companion::run()?);
    }
    work(&words, (std::env::current_exe()?, vec!["companion".into()]))
}

/// Works until the process ends.
pub(crate) fn work(words: &[String], companion: Companion) -> Result<(), Box<dyn Error>> {
    let mut kinds = Kinds::default();
    kinds.add("primes", primes);
    let config = config(words, companion)?;
    let (tell, mut happenings) = worker::happenings();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::spawn(async move {
            loop {
                match happenings.recv().await {
                    Ok(happening) => eprintln!("{happening:?}"),
                    Err(RecvError::Lagged(count)) => eprintln!("{count} more"),
                    Err(RecvError::Closed) => return,
                }
            }
        });
        // A task of its own, because it wakes often.
        Ok(tokio::spawn(worker::run(config, kinds, tell)).await??)
    })
}

fn config(words: &[String], companion: Companion) -> Result<Config, Box<dyn Error>> {
    let [farm, name, folder, servers @ ..] = words else { return Err("say FARM NAME FOLDER ID@ADDRESS…".into()) };
    let mut known = BTreeMap::new();
    for server in servers {
        let (id, address) = server.split_once('@').ok_or("a server is ID@ADDRESS, such as 1@127.0.0.1:7460")?;
        known.insert(ServerId(id.parse()?), address.parse::<SocketAddr>()?);
    }
    std::fs::create_dir_all(folder)?;
    let executor = Settings::new(name, std::fs::canonicalize(folder)?, companion);
    let (load, weights, beside) = (None, Weights::DEFAULT, None);
    let (cluster, name) = (farm.clone(), name.clone());
    Ok(Config { cluster, name, slots: 2, servers: known, executor, load, weights, beside })
}

/// How many primes there are up to the number that the job was submitted with or, if it had none, the task's own argument.
async fn primes(call: Call) -> Answer {
    let text =
        if call.input.is_empty() { call.argument } else { String::from_utf8_lossy(&call.input).into_owned() };
    let limit: usize = text.trim().parse().map_err(|_| format!("{text:?} is no number"))?;
    if limit > LIMIT_MAX {
        return Err(format!("{limit} is too far: {LIMIT_MAX} is the limit"));
    }
    // The worker's own thread must not be kept busy, or others think that it hangs.
    let count = tokio::task::spawn_blocking(move || count_primes(limit)).await;
    let count = count.map_err(|_| "the count did not come to an end".to_owned())?;
    Ok(format!("{count}\n").into_bytes())
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
