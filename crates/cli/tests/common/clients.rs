//! Clients that read and write until a test is over, and the judgement on what they saw.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, io, thread};

use primus_lab::chance::Chance;
use primus_lab::history::{self, Action, Operation, Outcome};

use super::eventually;
use super::http::{ANSWER_TIME, ask, events};

const KEYS: u64 = 4;

/// What all clients did.
pub(crate) struct Clients<'a> {
    /// The servers; a place is a number in this list.
    api: &'a [SocketAddr],
    seed: u64,
    began: Instant,
    operations: Mutex<Vec<Operation>>,
    /// When the newest acknowledged write began, at each place.
    acknowledged_us: Vec<AtomicU64>,
    unanswered: AtomicUsize,
    stop: AtomicBool,
}

/// Who led in which term, as any server ever said.
#[derive(Default)]
pub(crate) struct Leaders(BTreeMap<u64, BTreeSet<u64>>);

impl<'a> Clients<'a> {
    pub(crate) fn new(api: &'a [SocketAddr], seed: u64) -> Self {
        Self {
            api,
            seed,
            began: Instant::now(),
            operations: Mutex::default(),
            acknowledged_us: api.iter().map(|_| AtomicU64::new(0)).collect(),
            unanswered: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        }
    }

    /// Does this while so many clients work. Whatever happens meanwhile, the clients must end, or the test never would.
    pub(crate) fn while_they_work<T>(&self, count: u64, act: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let _stop = StopAtEnd(&self.stop);
            for number in 0..count {
                scope.spawn(move || self.work(Chance::new(self.seed ^ (number << 32)), number));
            }
            act()
        })
    }

    /// One client, until the test is over: it reads and writes at random, and moves on to another server at times. It
    /// stays where somebody says no, because whoever moves with every no soon waits at a frozen server.
    fn work(&self, mut chance: Chance, client: u64) {
        let (mut place, mut is_silent) = (0, false);
        for number in 0u64.. {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if number == 0 || is_silent || chance.happens(50_000) {
                place = usize::try_from(chance.below(self.api.len() as u64)).expect("servers are few");
            }
            let key = chance.below(KEYS);
            let asked = Instant::now();
            let is_served = match chance.happens(500_000) {
                true => self.put(place, key, format!("{client}.{number}")),
                false => self.get(place, key),
            };
            is_silent = asked.elapsed() >= ANSWER_TIME;
            if !is_served {
                // Whoever cannot serve says so at once; asking without end would only keep others from their work.
                thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Was it acknowledged?
    pub(crate) fn put(&self, place: usize, key: u64, value: String) -> bool {
        let start_us = self.now_us();
        let answer = ask(self.api[place], "PUT", &format!("/v1/kv/{key}"), &value);
        let outcome = match &answer {
            Ok((200, _)) => Outcome::Ok,
            Ok((503, body)) => match body["error"]["code"].as_str() {
                Some("no_leader" | "busy") => Outcome::Failed,
                _ => Outcome::Unknown,
            },
            Ok((status, body)) => panic!("put: {status} {body}"),
            // Nobody was there to hear it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Outcome::Failed,
            Err(_) => Outcome::Unknown,
        };
        self.note(key, start_us, Action::Put(value, outcome));
        if outcome == Outcome::Ok {
            self.acknowledged_us[place].fetch_max(start_us, Ordering::Relaxed);
        }
        outcome == Outcome::Ok
    }

    /// Was it answered?
    pub(crate) fn get(&self, place: usize, key: u64) -> bool {
        let start_us = self.now_us();
        let value = match ask(self.api[place], "GET", &format!("/v1/kv/{key}"), "") {
            Ok((200, body)) => Some(body["value"].as_str().expect("a value is text").to_string()),
            Ok((404, _)) => None,
            Ok((503, _)) | Err(_) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            Ok((status, body)) => panic!("get: {status} {body}"),
        };
        self.note(key, start_us, Action::Get(value));
        true
    }

    fn note(&self, key: u64, start_us: u64, action: Action) {
        let operation = Operation { key: key.to_string(), start_us, end_us: self.now_us(), action };
        self.operations.lock().expect("no client panics while noting").push(operation);
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        count(&self.operations.lock().expect("no client panics while noting"), outcome)
    }

    /// The longest time between two acknowledgements.
    pub(crate) fn longest_gap(&self) -> Duration {
        let operations = self.operations.lock().expect("no client panics while noting");
        let is_ok = |operation: &&Operation| matches!(operation.action, Action::Put(_, Outcome::Ok));
        let mut ends_us: Vec<u64> = operations.iter().filter(is_ok).map(|operation| operation.end_us).collect();
        ends_us.sort_unstable();
        let longest_us = ends_us.windows(2).map(|pair| pair[1] - pair[0]).max();
        Duration::from_micros(longest_us.expect("there were writes"))
    }

    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).expect("tests are short")
    }

    /// When the newest write began that this place acknowledged.
    pub(crate) fn acknowledged_us(&self, place: usize) -> u64 {
        self.acknowledged_us[place].load(Ordering::Relaxed)
    }

    /// A write must be acknowledged that began after now, by one of these.
    pub(crate) fn wait_for_a_write(&self, places: impl IntoIterator<Item = usize> + Clone) {
        let now_us = self.now_us();
        let is_later = || places.clone().into_iter().any(|place| self.acknowledged_us(place) > now_us);
        eventually("a write to be acknowledged", || is_later().then_some(()));
    }

    /// Reads every key once more at every server, then looks for what must not be.
    pub(crate) fn judge(&self, mut leaders: Leaders) {
        for (place, api) in self.api.iter().enumerate() {
            for key in 0..KEYS {
                eventually("a last read", || self.get(place, key).then_some(()));
            }
            eventually("the last events", || leaders.ask(*api));
        }
        let (seed, operations) = (self.seed, self.operations.lock().expect("no client panics while noting"));
        self.tell(&operations, &leaders);
        if let Err(violation) = history::check(&operations) {
            let file = std::env::temp_dir().join(format!("primus-history-{seed}.txt"));
            let lines: String = operations.iter().map(|operation| format!("{operation:?}\n")).collect();
            fs::write(&file, lines).expect("a file can be written");
            panic!("seed {seed}: {violation}; all operations: {}", file.display());
        }
        for (term, leaders) in &leaders.0 {
            assert_eq!(leaders.len(), 1, "seed {seed}: servers {leaders:?} led in term {term}");
        }
    }

    fn tell(&self, operations: &[Operation], leaders: &Leaders) {
        let [ok, unknown, failed] =
            [Outcome::Ok, Outcome::Unknown, Outcome::Failed].map(|kind| count(operations, kind));
        let (reads, unanswered) =
            (operations.len() - ok - unknown - failed, self.unanswered.load(Ordering::Relaxed));
        println!(
            "seed {}: {} operations: {reads} reads answered, {unanswered} not; writes: {ok} acknowledged, {unknown} \
             unknown, {failed} failed; {} terms with a leader; {:.1} s",
            self.seed,
            operations.len() + unanswered,
            leaders.0.len(),
            self.began.elapsed().as_secs_f64()
        );
        assert!(ok > 0 && reads > 0, "nothing was tested");
    }
}

impl Leaders {
    /// Adds what this server says; none if it does not answer.
    pub(crate) fn ask(&mut self, api: SocketAddr) -> Option<()> {
        for event in events(api).ok()? {
            if let (Some(leader), Some(term)) = (event["leader"].as_u64(), event["term"].as_u64()) {
                self.0.entry(term).or_default().insert(leader);
            }
        }
        Some(())
    }
}

/// Stops others when it goes, however that happens.
pub(crate) struct StopAtEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn count(operations: &[Operation], wanted: Outcome) -> usize {
    let is_wanted =
        |operation: &&Operation| matches!(operation.action, Action::Put(_, outcome) if outcome == wanted);
    operations.iter().filter(is_wanted).count()
}

/// The seed that `PRIMUS_SEED` says, else a new one.
pub(crate) fn seed() -> u64 {
    number_from("PRIMUS_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
        now.as_secs() * 1000 + u64::from(now.subsec_millis())
    })
}

pub(crate) fn number_from(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a whole number, not {text:?}")))
}
