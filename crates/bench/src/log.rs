//! `primus bench log`: how many small records a farm acknowledges per second, and how often its disk can sync.
//!
//! The records take the way that users' records take: `POST /v1/kv`, as `primus kv import` sends them.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use primus_client::http;
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::Value;

use crate::args::LogArgs;
use crate::processes::cpu_ms_of_servers;
use crate::report::{Found, Runs, Spread, flag, measured, milliseconds};
use crate::watch::longest_turn_ms;
use primus_local::TemporaryFarm;
use primus_local::answers::place;
use primus_local::home::SERVERS_MAX;

const SERVERS: u64 = 3;
const RECORDS: u64 = 500_000;
pub(crate) const RECORDS_MAX: u64 = 1_000_000_000;
/// One by one, this share of the records is written.
const SINGLE_SHARE: u64 = 5;
pub(crate) const BATCH: u64 = 100;
const BATCH_MAX: u64 = 4000;
const RUNS: u64 = 5;
const RUNS_MAX: u64 = 10_000;
/// Key and value together.
const RECORD_LEN: usize = 100;
/// How many keys are written again and again.
const KEYS: usize = 1000;
/// How many clients write at the same time.
const CLIENTS: u64 = 2;
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Unless somebody says how many, no run starts after this; a bench ends within 45 s.
const BUDGET_MS: f64 = 30_000.0;
const SYNCING: Duration = Duration::from_secs(1);
const PAGE: [u8; 4096] = [7; 4096];

/// What was found.
#[derive(Serialize)]
struct Log {
    servers: u64,
    record_bytes: usize,
    clients: u64,
    #[serde(flatten)]
    batches: Figure,
    single: Figure,
    /// How often the disk alone can make a page durable.
    fsyncs_per_s: f64,
    longest_turn_ms: f64,
}

/// One way to write.
#[derive(Serialize)]
struct Figure {
    batch: u64,
    records: u64,
    #[serde(flatten)]
    spread: Spread,
    records_per_s: f64,
    /// How many records are acknowledged in the time of one sync.
    records_per_fsync: f64,
    /// Processor time of all servers together, which a busy host changes least; known on Linux only.
    cpu_us_per_record: Option<f64>,
}

/// Measures and prints.
pub(crate) fn log(args: &LogArgs, format: Format) -> Result<Verdict, Failure> {
    let servers = flag("--servers", &args.servers, SERVERS, 1, SERVERS_MAX)?;
    let records = flag("-n", &args.records, RECORDS, 100, RECORDS_MAX)?;
    let batch = flag("--batch", &args.batch, BATCH, 1, BATCH_MAX)?;
    let runs = Runs::typed(&args.runs, RUNS, RUNS_MAX, BUDGET_MS)?;
    measured(format, || measure(servers, records, batch, runs))
}

fn measure(servers: u64, records: u64, batch: u64, runs: Runs) -> Result<Log, Failure> {
    let fsyncs_per_s = fsyncs_per_s().map_err(|error| {
        Failure::failed("storage", format!("the disk cannot be measured: {error}"), "look at the temporary folder")
    })?;
    let farm = TemporaryFarm::start("bench", servers)?;
    farm.settled()?;
    let started = Instant::now();
    let repeat = |batch, records, share| -> Result<Figure, Failure> {
        let cpu_before = cpu_ms_of_servers(&farm);
        let times = runs.within(share).repeat(started, |_| run(&farm, records, batch))?;
        let cpu_ms = cpu_ms_of_servers(&farm).zip(cpu_before).map(|(after, before)| after - before);
        let cpu_us_per_record = cpu_ms.map(|ms| rounded(ms * 1000.0 / (records * times.len() as u64) as f64));
        Ok(Figure { cpu_us_per_record, ..Figure::of(batch, records, times, fsyncs_per_s) })
    };
    let batches = repeat(batch, records, 0.5)?;
    let single = repeat(1, records / SINGLE_SHARE, 1.0)?;
    let longest_turn_ms = longest_turn_ms(&farm)?;
    Ok(Log { servers, record_bytes: RECORD_LEN, clients: CLIENTS, batches, single, fsyncs_per_s, longest_turn_ms })
}

impl Figure {
    fn of(batch: u64, records: u64, times: Vec<f64>, fsyncs_per_s: f64) -> Self {
        let spread = Spread::of(times);
        let records_per_s = (records as f64 / spread.median_ms * 1000.0).round();
        let records_per_fsync = rounded(records_per_s / fsyncs_per_s);
        Self { batch, records, spread, records_per_s, records_per_fsync, cpu_us_per_record: None }
    }
}

/// All clients write their part; the time ends when the last record of all is acknowledged.
pub(crate) fn run(farm: &TemporaryFarm, records: u64, batch: u64) -> Result<f64, Failure> {
    let leader = farm.settled()?.leader;
    let server = farm.servers().iter().find(|server| server.id == leader);
    let api = server.map(|server| place(&server.api).to_string()).unwrap_or_default();
    let texts: Vec<Vec<u8>> = (0..CLIENTS).map(lines).collect();
    let share = |client: u64| records / CLIENTS + u64::from(client < records % CLIENTS);
    let started = Instant::now();
    thread::scope(|scope| {
        let clients = (0..CLIENTS).zip(&texts).map(|(client, text)| {
            let api = &api;
            scope.spawn(move || write(api, text, share(client), batch))
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().try_for_each(|client| client.join().unwrap_or_else(|_| Err(refused("it panicked"))))
    })?;
    Ok(milliseconds(started))
}

fn write(api: &str, text: &[u8], records: u64, batch: u64) -> Result<(), Failure> {
    let line_len = text.len() / KEYS;
    let mut body = Repeated { text, place: 0, left: records as usize * line_len };
    let response = http::upload(api, &format!("/v1/kv?batch={batch}"), http::LINES, &mut body, ANSWER_TIME);
    let answer = response.map_err(|trouble| refused(&format!("{trouble:?}")))?.bytes();
    let answer: Value = answer.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    if answer["written"] == records { Ok(()) } else { Err(refused(&answer.to_string())) }
}

fn refused(why: &str) -> Failure {
    Failure::failed("refused", format!("records were not acknowledged: {why}"), "see whether the leader changed")
}

/// A line for each of a client's keys, all of one length.
fn lines(client: u64) -> Vec<u8> {
    let line = |number: usize| {
        let key = format!("bench/{client}/{number:06}");
        let value = "v".repeat(RECORD_LEN - key.len());
        format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}\n").into_bytes()
    };
    (0..KEYS).flat_map(line).collect()
}

/// The same text again and again, so that making it up costs nothing.
struct Repeated<'a> {
    text: &'a [u8],
    place: usize,
    left: usize,
}

impl Read for Repeated<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(self.left).min(self.text.len() - self.place);
        buffer[..len].copy_from_slice(&self.text[self.place..self.place + len]);
        self.left -= len;
        self.place = (self.place + len) % self.text.len();
        Ok(len)
    }
}

/// Where farms keep their data, too: a page is written and made durable, again and again.
fn fsyncs_per_s() -> io::Result<f64> {
    let path = std::env::temp_dir().join(format!("primus-fsync-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let measured = (|| {
        let started = Instant::now();
        let mut count = 0_u32;
        while started.elapsed() < SYNCING {
            file.write_all_at(&PAGE, u64::from(count) * PAGE.len() as u64)?;
            file.sync_data()?;
            count += 1;
        }
        Ok((f64::from(count) / started.elapsed().as_secs_f64()).round())
    })();
    std::fs::remove_file(&path)?;
    measured
}

impl Found for Log {
    const BENCH: &'static str = "log";

    fn text(&self) -> String {
        let Self { servers, record_bytes, batches, single, fsyncs_per_s, longest_turn_ms, .. } = self;
        format!(
            "log           {servers} servers, records of {record_bytes} bytes
batches       {}
one by one    {}
disk          {fsyncs_per_s:.0} syncs per second
longest turn  {longest_turn_ms:.1} ms of a control loop
",
            line(batches),
            line(single),
        )
    }
}

fn line(figure: &Figure) -> String {
    let Figure { batch, records, spread, records_per_s, records_per_fsync, cpu_us_per_record } = figure;
    let cpu = cpu_us_per_record.map_or_else(String::new, |us| format!(", {us:.1} µs of processor time each"));
    let all: Vec<String> = spread.runs.iter().map(|ms| format!("{ms:.0}")).collect();
    format!(
        "{records_per_s:.0} records per second, {records_per_fsync:.0} in the time of one sync; batches of {batch}, \
         {records} records in {} ms{cpu}",
        all.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_length_that_is_claimed_and_repeat_in_whole_lines() {
        let text = lines(1);
        let first: Value = serde_json::from_slice(text.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        let len = |name: &str| first[name].as_str().unwrap().len();
        assert_eq!(len("key") + len("value"), RECORD_LEN);
        let line_len = text.len() / KEYS;
        let mut read = Vec::new();
        Repeated { text: &text, place: 0, left: 2500 * line_len }.read_to_end(&mut read).unwrap();
        assert_eq!(read.iter().filter(|byte| **byte == b'\n').count(), 2500);
        assert!(read.ends_with(b"\n"));
    }
}
