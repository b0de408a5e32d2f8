//! `primus ring`: a ring of real nodes, through RabbitMQ or over sockets.

mod crew;
mod election;
mod node;
mod status;

use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use crate::amqp::{BrokerError, Topology};
use crate::args::{RealRing, RealRingArgs, RingSetupArgs};
use crate::settings::RingSettings;

pub use crew::Crew;
pub use election::{Election, hold};

/// Runs what the arguments ask for.
///
/// # Errors
/// If the arguments make no sense, or the ring cannot be reached.
pub fn run(args: &RealRingArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    match &args.what {
        RealRing::Setup(args) => setup(args, format),
        RealRing::Node(args) => node::run(args, format),
        RealRing::Run(args) => election::run(args, format),
        RealRing::Status(file) => status::status(file, format),
        RealRing::Start(args) => status::start(args, format),
    }
}

fn setup(args: &RingSetupArgs, format: Format) -> Result<Verdict, Failure> {
    let settings = RingSettings::read(&args.file.config)?;
    let (place, size) = (settings.broker.place(), settings.members.len());
    let topology = Topology { broker: settings.broker, size };
    let done = runtime()
        .block_on(async { if args.delete { topology.take_down().await } else { topology.set_up().await } });
    done.map_err(|error| failure(&error))?;
    let (word, done) = if args.delete { ("gone from", "deleted") } else { ("there at", "ready") };
    let queues =
        if size == 1 { "the queue node.1".to_owned() } else { format!("the queues node.1 to node.{size}") };
    let text = || format!("the exchange leader.election.ring and {queues} are {word} {place}\n");
    format.show(text, &json!({done: true, "broker": place, "nodes": size}))?;
    Ok(Verdict::Held)
}

/// What runs a ring, on this thread.
///
/// # Panics
/// If the system gives no runtime.
#[must_use]
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("the system gives a runtime")
}

/// What a broker's refusal means to the person who typed the command.
#[must_use]
pub fn failure(error: &BrokerError) -> Failure {
    let message = error.to_string();
    match error {
        BrokerError::Unreachable { .. } => {
            Failure::unreachable(message, "look at rabbitmq.host and rabbitmq.port, and whether RabbitMQ runs")
        }
        BrokerError::Refused { .. } => {
            Failure::not_allowed(message, "look at rabbitmq.user, its password, rabbitmq.vhost and its permissions")
        }
        BrokerError::Taken(_) => {
            Failure::not_now("taken", message, "end the program that consumes it, or choose another --index")
        }
        BrokerError::Different(_) => {
            Failure::failed("different", message, "primus ring setup --delete takes it down, if it is not needed")
        }
        BrokerError::Lost(_) => Failure::failed("broker", message, "try again"),
    }
}
