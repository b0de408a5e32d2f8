//! `primus bench ring`: how fast a ring of real nodes elects, through a broker or over sockets, beside the simulator's counts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use primus_core::ServerId;
use primus_core::election::MessageKind;
use primus_lab::simulate::Counts;
use primus_node::files;
use primus_ring::amqp::{Broker, Topology};
use primus_ring::args::Transport;
use primus_ring::commands::{Crew, Election, failure, hold, runtime};
use primus_ring::settings::RingSettings;
use primus_simulate::output::text::counts;
use primus_terminal::amounts::number;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use serde::Serialize;

use crate::args::RingArgs;
use crate::report::{Found, Runs, Spread, show};
use crate::simulate::{self, shuffled};

const NODES: u64 = 100;
const NODES_MAX: u64 = 1000;
const RUNS: u64 = 20;
const RUNS_MAX: u64 = 1000;
/// Unless somebody says how many, no run starts that would not end within this; a bench ends within 45 s.
const BUDGET_MS: f64 = 35_000.0;
/// No election of so few nodes takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was found.
#[derive(Serialize)]
struct RealRing {
    transport: &'static str,
    nodes: u64,
    initiators: u64,
    #[serde(flatten)]
    spread: Spread,
    messages: u64,
    election: u64,
    elected: u64,
    /// What the simulator counts for the same ids.
    simulated_messages: u64,
    messages_per_s: f64,
}

/// Measures and prints.
pub(crate) fn ring(args: &RingArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let settings = settings(args)?;
    let runs = Runs::typed(&args.runs, RUNS, RUNS_MAX, BUDGET_MS)?;
    files::raise_limit();
    show(&found(&settings, args.transport, runs)?, format)
}

fn found(settings: &RingSettings, transport: Transport, runs: Runs) -> Result<RealRing, Failure> {
    let (times, messages) = runtime().block_on(measure(settings, transport, runs)).map_err(Failure::into_bench)?;
    let simulated = simulate::ring(&settings.members, false).messages;
    if messages != simulated {
        let message = format!("it took {} messages, the simulator {}", counts(&messages), counts(&simulated));
        return Err(Failure::bench(message, "give the host less to do, and try again"));
    }
    let spread = Spread::of(times);
    Ok(RealRing {
        transport: transport.name(),
        nodes: settings.members.len() as u64,
        initiators: 1,
        messages: messages.total(),
        election: messages.of(MessageKind::Election),
        elected: messages.of(MessageKind::Elected),
        simulated_messages: simulated.total(),
        messages_per_s: (messages.total() as f64 / spread.median_ms * 1000.0).round(),
        spread,
    })
}

/// The ring of a file, or one of so many nodes.
fn settings(args: &RingArgs) -> Result<RingSettings, Failure> {
    let file = args.config.as_deref().map(RingSettings::read).transpose()?;
    let nodes = args.nodes.as_deref().map(|text| number("--nodes", text, 1, NODES_MAX)).transpose()?;
    match (file, nodes) {
        (Some(file), None) => Ok(file),
        (file, nodes) => {
            let broker = file.map_or_else(Broker::default, |file| file.broker);
            Ok(RingSettings::of(&shuffled(nodes.unwrap_or(NODES)), broker))
        }
    }
}

async fn measure(settings: &RingSettings, transport: Transport, runs: Runs) -> Result<(Vec<f64>, Counts), Failure> {
    let topology = Topology { broker: settings.broker.clone(), size: settings.members.len() };
    let is_ours = transport == Transport::Amqp && is_missing(&topology).await?;
    let measured = elections(settings, transport, runs).await;
    // Queues that were there before are somebody's.
    if is_ours {
        topology.take_down().await.map_err(|error| failure(&error))?;
    }
    measured
}

async fn is_missing(topology: &Topology) -> Result<bool, Failure> {
    let look = async {
        let connection = topology.broker.connect("primus bench ring").await?;
        topology.consumers(&connection).await
    };
    let consumers = look.await.map_err(|error| failure(&error))?;
    Ok(consumers.iter().all(Option::is_none))
}

async fn elections(
    settings: &RingSettings,
    transport: Transport,
    runs: Runs,
) -> Result<(Vec<f64>, Counts), Failure> {
    let started = Instant::now();
    let mut crew = Crew::assemble(settings, transport, &BTreeSet::new()).await?;
    let (mut times, mut messages) = (Vec::new(), Counts::default());
    while runs.is_due(times.len(), started) {
        // The simulator's ring is started by its first node, too.
        let held = hold(&mut crew, &settings.members, &settings.members[..1], PATIENCE).await?;
        check(&held, &settings.members)?;
        times.push(held.elapsed_ms());
        messages = *held.messages();
    }
    crew.dismiss().await;
    Ok((times, messages))
}

/// An election that went wrong measures nothing.
fn check(held: &Election, members: &Arc<[ServerId]>) -> Result<(), Failure> {
    let lowest = members.iter().min().copied();
    match held.report.violation() {
        None if held.report.outcome.agreed_leader() == lowest => Ok(()),
        _ => Err(Failure::bench("the ring did not elect its lowest id", "give the host less to do, and try again")),
    }
}

impl Found for RealRing {
    const BENCH: &'static str = "ring";

    fn text(&self) -> String {
        let Self { transport, nodes, messages, election, elected, simulated_messages, messages_per_s, .. } = self;
        format!(
            "ring         {nodes} nodes over {transport}, one initiator
messages     {messages} ({election} election, {elected} elected); the simulator counts {simulated_messages}
messages/s   {messages_per_s:.0}
{}",
            self.spread.text(),
        )
    }
}
