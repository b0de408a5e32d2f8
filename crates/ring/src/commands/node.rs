//! `primus ring node`: one node of a ring over AMQP, until its process ends.

use std::future::Future;
use std::time::Duration;

use primus_lab::simulate::Observer;
use primus_simulate::output::narration::Narrator;
use primus_simulate::output::text;
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::{Format, Verdict, json as lines, screen};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::{failure, runtime};
use crate::amqp::carrier::AmqpCarrier;
use crate::amqp::{BrokerError, control};
use crate::args::RingNodeArgs;
use crate::member::{self, Event, Order, Told};
use crate::output;
use crate::settings::RingSettings;

const ORDERS_MAX: usize = 16;
/// A node that was killed may still be known to the broker for a moment.
const TAKEN_PATIENCE: Duration = Duration::from_secs(2);
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// Runs the node that the arguments name.
pub(super) fn run(args: &RingNodeArgs, format: Format) -> Result<Verdict, Failure> {
    let settings = RingSettings::read(&args.file.config)?;
    let position = settings.position(&args.index)?;
    runtime().block_on(async {
        let mut terminate = signal(SignalKind::terminate()).expect("signals can be heard");
        tokio::select! {
            ended = play(&settings, position, format) => ended,
            _ = terminate.recv() => Ok(Verdict::Held),
            _ = tokio::signal::ctrl_c() => Ok(Verdict::Held),
        }
    })
}

async fn play(settings: &RingSettings, position: usize, format: Format) -> Result<Verdict, Failure> {
    let seat = settings.seat(position);
    let carrier = patiently(|| AmqpCarrier::connect(settings.broker.clone(), &seat)).await;
    let carrier = carrier.map_err(|error| failure(&error))?;
    let (orders, receiver) = mpsc::channel(ORDERS_MAX);
    let (teller, mut told) = mpsc::unbounded_channel();
    let first = if position == settings.initiator { Order::Start } else { Order::Boot };
    orders.try_send(first).expect("nobody else has given an order yet");
    let mut diary =
        Diary { settings, position, format, narrator: Narrator::new(usize::MAX, false), since: Instant::now() };
    let serving = control::serve(settings.broker.clone(), position + 1, orders);
    let playing = member::run(seat, carrier, receiver, teller);
    let writing = async {
        while let Some(told) = told.recv().await {
            if !diary.write(&told)? {
                break;
            }
        }
        Ok(Verdict::Held)
    };
    tokio::select! {
        () = serving => Ok(Verdict::Held),
        () = playing => Ok(Verdict::Held),
        written = writing => written,
    }
}

async fn patiently<T, F: Future<Output = Result<T, BrokerError>>>(
    mut attempt: impl FnMut() -> F,
) -> Result<T, BrokerError> {
    let until = Instant::now() + TAKEN_PATIENCE;
    loop {
        match attempt().await {
            Err(BrokerError::Taken(_)) if Instant::now() < until => sleep(TRY_AGAIN).await,
            ended => return ended,
        }
    }
}

/// Writes down what the node goes through.
struct Diary<'a> {
    settings: &'a RingSettings,
    position: usize,
    format: Format,
    narrator: Narrator,
    since: Instant,
}

impl Diary<'_> {
    /// Is anybody still reading?
    fn write(&mut self, told: &Told) -> Result<bool, Failure> {
        match self.format {
            Format::Json => self.write_json(told),
            Format::Text | Format::Mermaid => self.write_text(told),
        }
    }

    fn write_json(&self, told: &Told) -> Result<bool, Failure> {
        let time = format!("{:.3}", jiff::Timestamp::now());
        for mut object in output::events(&told.event) {
            object["time"] = time.as_str().into();
            object["node"] = json!(self.position + 1);
            object["id"] = told.node.0.into();
            if !screen::stream(&lines::line(&object))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write_text(&mut self, told: &Told) -> Result<bool, Failure> {
        let node = format!("Node {}", self.position + 1);
        let lines = match &told.event {
            Event::Ready => vec![format!("{node} (id {}) is there", told.node)],
            Event::Cut(reason) => vec![format!("{node} is cut off: {}", on_one_line(reason))],
            Event::Dropped(reason) => vec![format!("{node} drops what is not a message: {}", on_one_line(reason))],
            Event::Sent(..) => Vec::new(),
            Event::Step(input, outputs, _) => {
                let at_us = u64::try_from(told.at.duration_since(self.since).as_micros()).unwrap_or(u64::MAX);
                self.narrator.on_step(at_us, told.node.into(), input, outputs);
                let beats = self.narrator.take();
                beats.iter().flat_map(|beat| text::beat_lines(&self.settings.cast, beat)).collect()
            }
        };
        let all: String = lines.into_iter().map(|line| line + "\n").collect();
        if all.is_empty() { Ok(true) } else { screen::stream(&all) }
    }
}
