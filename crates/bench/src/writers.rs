//! Clients that write without pause, one per server, and note when each write was acknowledged. A server that does not lead
//! refuses them, so the first acknowledgement of a new leader can be told from the last one of the old.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use primus_client::http::{Request, Session};
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;

use primus_local::TemporaryFarm;
use primus_local::answers::{believes, place};
use primus_local::chaos;

/// So many writes must have been acknowledged by the leader before and after.
const ACKNOWLEDGEMENTS: usize = 20;
const ANSWER_TIME: Duration = Duration::from_secs(2);
const WAITING_TIME: Duration = Duration::from_secs(10);
/// How long a client waits that was refused.
const REFUSED_PAUSE: Duration = Duration::from_micros(200);
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// The clients of a farm.
pub(crate) struct Writers(Vec<Writer>);

/// A client of one server.
pub(crate) struct Writer {
    pub(crate) id: u64,
    pub(crate) api: String,
    is_active: AtomicBool,
    has_ended: AtomicBool,
    times: Mutex<Vec<Instant>>,
}

impl Writers {
    /// One for each server; none writes yet.
    pub(crate) fn of(farm: &TemporaryFarm) -> Self {
        Self(farm.servers().iter().map(|server| Writer::new(server.id, place(&server.api))).collect())
    }

    /// Lets those write that are chosen, while this goes on.
    pub(crate) fn during<T>(&self, action: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            self.0.iter().for_each(|writer| _ = scope.spawn(|| writer.run()));
            // Whatever happens in here, the writers must end.
            let done = action();
            self.0.iter().for_each(Writer::end);
            done
        })
    }

    /// The client of whoever leads.
    pub(crate) fn leader(&self) -> Result<&Writer, Failure> {
        let reign = self.0.iter().filter_map(|writer| believes(&writer.api)).max_by_key(|reign| reign.term);
        let writer = reign.and_then(|reign| self.0.iter().find(|writer| writer.id == reign.leader));
        writer.ok_or_else(|| Failure::no_leader("no server leads", "see whether the host is overloaded"))
    }

    /// The one after this one, in the order of the ids.
    pub(crate) fn next(&self, writer: &Writer) -> &Writer {
        let place = self.0.iter().position(|other| other.id == writer.id).unwrap_or(0);
        &self.0[(place + 1) % self.0.len()]
    }

    /// Lets only these write, from now on.
    pub(crate) fn only<const N: usize>(&self, active: [&Writer; N]) {
        for writer in &self.0 {
            let is_active = active.iter().any(|active| active.id == writer.id);
            writer.is_active.store(is_active, Ordering::Relaxed);
            writer.times().clear();
        }
    }
}

impl Writer {
    fn new(id: u64, api: &str) -> Self {
        let flag = || AtomicBool::new(false);
        Self { id, api: api.to_string(), is_active: flag(), has_ended: flag(), times: Mutex::default() }
    }

    fn run(&self) {
        let mut session = Session::new(&self.api, ANSWER_TIME);
        let path = format!("/v1/kv/bench/writers/{}", self.id);
        let request = Request { method: "PUT", path: &path, body: b"written" };
        while !self.has_ended.load(Ordering::Relaxed) {
            if !self.is_active.load(Ordering::Relaxed) {
                thread::sleep(IDLE_PAUSE);
            } else if matches!(session.status(&request), Ok(200)) {
                self.times().push(Instant::now());
            } else {
                thread::sleep(REFUSED_PAUSE);
            }
        }
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn times(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.times.lock().expect("nobody panics while holding this")
    }

    /// Waits until this server has acknowledged some writes.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        chaos::wait(WAITING_TIME, "writes to be acknowledged", || {
            Ok((self.times().len() >= ACKNOWLEDGEMENTS).then_some(()))
        })
    }

    /// When writes were acknowledged.
    pub(crate) fn acknowledged(&self) -> Vec<Instant> {
        self.times().clone()
    }

    pub(crate) fn forget_until(&self, time: Instant) {
        self.times().retain(|acknowledged| *acknowledged >= time);
    }

    /// How long nobody acknowledged anything between the last write here and the first one there.
    pub(crate) fn gap_ms(&self, successor: &Self) -> Result<f64, Failure> {
        let (last, first) = (self.times().last().copied(), successor.times().first().copied());
        let gap = first.zip(last).map(|(first, last)| first.saturating_duration_since(last));
        gap.map(|gap| rounded(gap.as_secs_f64() * 1000.0)).ok_or_else(nothing_written)
    }
}

pub(crate) fn nothing_written() -> Failure {
    Failure::failed("refused", "no write was acknowledged", "see whether the host is overloaded")
}
