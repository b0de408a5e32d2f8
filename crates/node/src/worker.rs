//! A running worker: the loop in which its machine meets servers, disks, executors and a clock.
//!
//! What the worker does is decided by `primus_server::worker`; here is what arrives, and `driver.rs` carries out what the machine
//! wants. The same loop tells the executors that the worker is well: if it hangs, what runs is killed.

mod away_files;
mod driver;
mod files;
mod handle;
mod identity;
mod links;
mod session;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use primus_core::load::{Usage, Weights};
use primus_core::planted::Planted;
use primus_core::{Place, ServerId};
use primus_identity::name::Node;
use primus_identity::refusal::Refusal;
use primus_server::worker::{FarmAddress, Rules, Worker};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::yield_now;
use tokio::time::sleep_until;

pub use primus_server::worker::Happening;

use self::driver::{Driver, Prepared};
use self::handle::Order;
pub use self::handle::WorkerHandle;
use self::session::Setting;
use crate::credentials::{CredentialsError, Security};
use crate::executor::{self, Kinds};
use crate::load::Meter;
use crate::results::{OpenError, Results, WriteError};

const COMPANIONS_MAX: usize = 4;
/// How many happenings may wait for those who watch a worker. Beyond that the oldest goes, and they hear how many they missed.
const HAPPENINGS_MAX: usize = 256;

/// What a worker is told when it starts.
#[derive(Debug)]
pub struct Config {
    /// The cluster that it works for.
    pub cluster: String,
    /// Its name, which no other worker of that cluster has.
    pub name: String,
    /// How much it can run at once.
    pub slots: u16,
    /// All servers, and where they are reached.
    pub servers: BTreeMap<ServerId, Place>,
    /// How tasks run here. Its folder is where results and outputs are kept.
    pub executor: executor::Settings,
    /// What measures this host; without it only the tasks that run here count in its load.
    pub load: Option<Meter>,
    /// How much each part of a load counts.
    pub weights: Weights,
    /// The server on the same host, in whose load it counts what runs here.
    pub beside: Option<ServerId>,
    /// The file that the farm began with; a worker that has a certificate needs none.
    pub founding: Option<PathBuf>,
}

/// Why a worker ended.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// Its results cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its results cannot be kept.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Its folder cannot be used.
    #[error("{} cannot be used ({source}): give it to the user that runs this worker", dir.display())]
    Directory {
        /// The worker's directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It cannot prove who it is.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// No server lets it in, and trying again changes nothing.
    #[error("all servers and this worker refuse each other: {0}")]
    Barred(Refusal),
    /// It cannot start the companion, which owns commands.
    #[error("the companion cannot be started ({0}): look whether this program can start itself")]
    Executor(io::Error),
    /// The companion died again and again.
    #[error("the companion died several times in a row: look at what kills it, then start this worker again")]
    NoCompanion,
}

/// Where a worker tells what happens to it, and where that can be heard. A worker waits for nobody who watches it: those who are
/// too slow hear how many happenings they missed ([`broadcast::error::RecvError::Lagged`]), and then those that are left.
#[must_use]
pub fn happenings() -> (broadcast::Sender<Happening>, broadcast::Receiver<Happening>) {
    broadcast::channel(HAPPENINGS_MAX)
}

/// Starts a worker on a thread of its own: the handle drains and stops it. What happens to it is told there; see [`happenings`].
///
/// # Errors
/// If it cannot begin: see [`WorkerError`].
///
/// # Panics
/// If the system gives no thread.
pub async fn start(
    config: Config,
    kinds: Kinds,
    happenings: broadcast::Sender<Happening>,
) -> Result<WorkerHandle, WorkerError> {
    WorkerHandle::start(config, kinds, happenings).await
}

/// Runs a worker until its process ends, as [`start`] does. To be called inside a tokio runtime with time and io; it should have a
/// thread of its own.
///
/// # Errors
/// If it must not go on: see [`WorkerError`].
pub async fn run(
    config: Config,
    kinds: Kinds,
    happenings: broadcast::Sender<Happening>,
) -> Result<(), WorkerError> {
    run_with(Planted::NONE, config, kinds, happenings).await
}

/// The same with a known bug, to see whether tests find it.
///
/// # Errors
/// See [`run`].
pub async fn run_with(
    planted: Planted,
    config: Config,
    kinds: Kinds,
    happenings: broadcast::Sender<Happening>,
) -> Result<(), WorkerError> {
    let (_work, orders) = watch::channel(Order::Work);
    drive(begin(planted, config, kinds, happenings)?, orders).await
}

/// Opens the worker's folder, and begins to dial its servers.
fn begin(
    planted: Planted,
    config: Config,
    kinds: Kinds,
    happenings: broadcast::Sender<Happening>,
) -> Result<(Driver, Inputs), WorkerError> {
    let directory = config.executor.directory.clone();
    let (results, records) = Results::open(&directory)?;
    let unusable = |source| WorkerError::Directory { dir: directory.clone(), source };
    let store = identity::of(&directory).map_err(unusable)?;
    let security = secure(&config, &directory)?;
    let epoch = away_files::epoch(&directory).map_err(unusable)?;
    let visited = away_files::visited(&directory).map_err(unusable)?;
    let (loads, measured) = watch::channel(Usage::Unknown);
    if let Some(meter) = config.load {
        meter.watch(move |usage| loads.send(usage).is_ok());
    }
    let mut executor = config.executor;
    executor.companions = companions_for(config.slots);
    let own = FarmAddress { name: config.cluster, servers: config.servers };
    let rules = Rules {
        farm: own.name.clone(),
        name: config.name.clone(),
        slots: config.slots,
        beside: config.beside,
        weights: config.weights,
        planted,
    };
    let setting = Setting { executor, kinds, store, security };
    let home = setting.at_home(&own, &config.name, results)?;
    let (prepare, prepared) = mpsc::unbounded_channel();
    let mut driver = Driver::new(Worker::new(rules, epoch, records), setting, home, (prepare, happenings));
    driver.start(visited)?;
    Ok((driver, Inputs { prepared, measured }))
}

/// Proves who the worker is, if its farm wants that.
fn secure(config: &Config, directory: &Path) -> Result<Security, CredentialsError> {
    Security::open(directory, &config.cluster, &Node::Worker(config.name.clone()), config.founding.as_deref())
}

/// One for each slot, but no more than there are cores to run them; a few are always enough.
fn companions_for(slots: u16) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    usize::from(slots).min(cores).clamp(1, COMPANIONS_MAX)
}

/// Where what does not come from a session arrives.
struct Inputs {
    prepared: mpsc::UnboundedReceiver<Prepared>,
    /// The newest only.
    measured: watch::Receiver<Usage>,
}

/// The loop. In a turn it takes what has arrived, as far as there is time; then the worker says what that came to. It ends when
/// the owner wants that, and nothing is left to do.
async fn drive(
    (mut driver, mut inputs): (Driver, Inputs),
    mut orders: watch::Receiver<Order>,
) -> Result<(), WorkerError> {
    loop {
        let due = driver.due();
        tokio::select! {
            biased;
            arrived = driver.next() => {
                let (farm, arrival) = arrived?;
                driver.take(farm, arrival);
            }
            Some(prepared) = inputs.prepared.recv() => driver.on_prepared(prepared)?,
            Ok(()) = inputs.measured.changed() => {
                let usage = *inputs.measured.borrow_and_update();
                driver.on_measured(usage);
            }
            Ok(()) = orders.changed() => {
                let order = *orders.borrow_and_update();
                driver.on_order(order);
            }
            () = sleep_until(due) => {}
        }
        driver.take_more()?;
        driver.fire_timers();
        driver.end_turn();
        if let Some(refusal) = driver.barred.take() {
            return Err(WorkerError::Barred(refusal));
        }
        if driver.is_over() {
            driver.close().await;
            return Ok(());
        }
        // The links have this thread, too.
        yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::broadcast::error::TryRecvError;

    use super::*;

    #[test]
    fn who_watches_too_slowly_hears_how_much_was_missed_and_the_worker_waits_for_nobody() {
        let (tell, mut heard) = happenings();
        for number in 0..=HAPPENINGS_MAX as u64 {
            assert!(tell.send(Happening::LostLeader(ServerId(number))).is_ok());
        }
        assert_eq!(heard.try_recv(), Err(TryRecvError::Lagged(1)));
        for number in 1..=HAPPENINGS_MAX as u64 {
            assert_eq!(heard.try_recv(), Ok(Happening::LostLeader(ServerId(number))));
        }
        assert_eq!(heard.try_recv(), Err(TryRecvError::Empty));
    }
}
