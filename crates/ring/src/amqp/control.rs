//! How people ask members of a ring over AMQP how they are, and tell them to start: each of ours has a second queue,
//! `node.N.control`, beside the document's own. Foreign members have none, and their queues get nothing but messages of the
//! ring.

use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, Consumer};
use primus_core::ServerId;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Broker, BrokerError, in_time};
use crate::dialect::queue;
use crate::member::{Order, View};

const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// A queue of the broker's own making: what is sent there comes back on the channel that asked.
const REPLIES: &str = "amq.rabbitmq.reply-to";

/// What people want to know, or to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// How do you see things?
    Tell,
    /// Start an election, then say how you see things.
    Start,
}

/// How a member sees things, and how it saw them before it was told to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Its position, from 1.
    pub position: usize,
    /// ASLEEP, CANDIDATE, LEADER or FOLLOWER.
    pub state: String,
    /// The latest election that it knows of.
    pub round: u64,
    /// Whom it takes for the leader.
    pub leader: Option<u64>,
    /// Its state before.
    pub before: String,
}

fn control_queue(position: usize) -> String {
    format!("{}.control", queue(position))
}

/// Answers for the member at this position (from 1), for as long as it takes orders.
pub async fn serve(broker: Broker, position: usize, orders: mpsc::Sender<Order>) {
    while !orders.is_closed() {
        // The member itself says when the broker is away.
        if let Ok((connection, channel, consumer)) = open(&broker, position).await {
            answer_all(&channel, consumer, position, &orders).await;
            drop(connection);
        }
        sleep(AGAIN_AFTER).await;
    }
}

async fn open(broker: &Broker, position: usize) -> Result<(Connection, Channel, Consumer), BrokerError> {
    let name = control_queue(position);
    let explain = |error: &lapin::Error| broker.error(error);
    let connection = broker.connect(&format!("primus ring {name}")).await?;
    let channel = in_time(connection.create_channel(), explain).await?;
    let own = QueueDeclareOptions { auto_delete: true, ..QueueDeclareOptions::default() };
    in_time(channel.queue_declare(name.as_str().into(), own, FieldTable::default()), explain).await?;
    let options = BasicConsumeOptions { no_ack: true, exclusive: true, ..BasicConsumeOptions::default() };
    let consuming = channel.basic_consume(name.as_str().into(), "".into(), options, FieldTable::default());
    let consumer = in_time(consuming, explain).await?;
    Ok((connection, channel, consumer))
}

async fn answer_all(channel: &Channel, mut consumer: Consumer, position: usize, orders: &mpsc::Sender<Order>) {
    while let Some(Ok(delivery)) = consumer.next().await {
        let Some(answer) = answered(&delivery, position, orders).await else { continue };
        if let Some(reply_to) = delivery.properties.reply_to() {
            let body = serde_json::to_vec(&answer).expect("plain texts become JSON");
            let options = BasicPublishOptions::default();
            let properties = BasicProperties::default();
            _ = channel.basic_publish("".into(), reply_to.clone(), options, &body, properties).await;
        }
    }
}

async fn answered(delivery: &Delivery, position: usize, orders: &mpsc::Sender<Order>) -> Option<Answer> {
    let request: Request = serde_json::from_slice(&delivery.data).ok()?;
    let before = view(orders).await?;
    let now = match request {
        Request::Tell => before,
        Request::Start => {
            orders.send(Order::Start).await.ok()?;
            view(orders).await?
        }
    };
    let leader = now.leader.map(|ServerId(id)| id);
    let (state, before) = (now.state.to_owned(), before.state.to_owned());
    Some(Answer { position, state, round: now.round.0, leader, before })
}

async fn view(orders: &mpsc::Sender<Order>) -> Option<View> {
    let (sender, receiver) = oneshot::channel();
    orders.send(Order::Tell(sender)).await.ok()?;
    receiver.await.ok()
}

/// Asks these members (positions from 1) and gathers what they answer within this time.
///
/// # Errors
/// If the broker does not pass the question on.
pub async fn ask(
    broker: &Broker,
    connection: &Connection,
    positions: &[usize],
    request: Request,
    patience: Duration,
) -> Result<Vec<Answer>, BrokerError> {
    let explain = |error: &lapin::Error| broker.error(error);
    let channel = in_time(connection.create_channel(), explain).await?;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let consuming = channel.basic_consume(REPLIES.into(), "".into(), options, FieldTable::default());
    let mut replies = in_time(consuming, explain).await?;
    let body = serde_json::to_vec(&request).expect("a word becomes JSON");
    for position in positions {
        let properties = BasicProperties::default()
            .with_reply_to(REPLIES.into())
            .with_expiration(patience.as_millis().to_string().into());
        let key = control_queue(*position).into();
        let options = BasicPublishOptions::default();
        in_time(channel.basic_publish("".into(), key, options, &body, properties), explain).await?;
    }
    let until = Instant::now() + patience;
    let mut answers: Vec<Answer> = Vec::new();
    while answers.len() < positions.len() {
        let Ok(Some(Ok(delivery))) = timeout_at(until, replies.next()).await else { break };
        answers.extend(serde_json::from_slice::<Answer>(&delivery.data).ok());
    }
    answers.sort_by_key(|answer| answer.position);
    Ok(answers)
}
