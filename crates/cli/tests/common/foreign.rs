//! Foreign members of a ring over AMQP: written from the document alone, in plain AMQP and JSON, without our codecs.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::broker::Vhost;

/// Whoever speaks AMQP.
pub(crate) struct Foreigner {
    runtime: Runtime,
    channel: Channel,
    _connection: Connection,
}

/// Messages as they came out of a queue.
pub(crate) struct Queue {
    consumer: Consumer,
}

impl Foreigner {
    pub(crate) fn new(vhost: &Vhost) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let url = format!("amqp://guest:guest@127.0.0.1:{}/{}", vhost.port, vhost.name);
        let connecting = async {
            let connection = Connection::connect(&url, ConnectionProperties::default()).await?;
            let channel = connection.create_channel().await?;
            Ok::<_, lapin::Error>((connection, channel))
        };
        let (connection, channel) = runtime.block_on(connecting).expect("the broker is there");
        Self { runtime, channel, _connection: connection }
    }

    /// Puts these bytes into the ring's exchange, for this node.
    pub(crate) fn publish(&self, node: usize, body: &[u8]) {
        let key = format!("node.{node}");
        let options = BasicPublishOptions::default();
        let properties = BasicProperties::default();
        let publishing = self.channel.basic_publish(
            "leader.election.ring".into(),
            key.as_str().into(),
            options,
            body,
            properties,
        );
        self.runtime.block_on(publishing).expect("it is published");
    }

    /// `{"type":"ELECTION","candidate_id":5,…}`.
    pub(crate) fn say(&self, node: usize, kind: &str, candidate: u64, sender: u64) {
        let text = format!(
            r#"{{"type": "{kind}", "candidate_id": {candidate}, "sender_id": {sender}, "timestamp": "2025-10-29T12:00:00.000000"}}"#
        );
        self.publish(node, text.as_bytes());
    }

    /// Begins to play this node.
    pub(crate) fn consume(&self, node: usize) -> Queue {
        let options = BasicConsumeOptions::default();
        let queue = format!("node.{node}");
        let consuming =
            self.channel.basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default());
        Queue { consumer: self.runtime.block_on(consuming).expect("it can be consumed") }
    }

    /// The next message within this time.
    pub(crate) fn next(&self, queue: &mut Queue, patience: Duration) -> Option<Value> {
        self.runtime.block_on(async {
            let delivery = timeout(patience, queue.consumer.next()).await.ok()??.ok()?;
            delivery.ack(BasicAckOptions::default()).await.ok()?;
            Some(serde_json::from_slice(&delivery.data).expect("what nodes say is JSON"))
        })
    }

    /// How many messages wait there for a consumer, and how many consume.
    pub(crate) fn look(&self, node: usize) -> (u32, u32) {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = format!("node.{node}");
        let looking = self.channel.queue_declare(queue.as_str().into(), options, FieldTable::default());
        let found = self.runtime.block_on(looking).expect("the queue is there");
        (found.message_count(), found.consumer_count())
    }
}
