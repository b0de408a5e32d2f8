//! What carries a member's messages through the broker: it consumes its own queue, alone, and publishes into the others'.
//!
//! Every message is confirmed by the broker before it counts as sent, and acknowledged to it only when all that follows from
//! it has been sent. Messages expire with the round that they belong to. When the connection breaks, it is made again.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, Consumer};
use primus_core::ServerId;
use primus_core::election::ring;
use tokio::time::sleep;

use super::{ACCESS_REFUSED, Broker, BrokerError, Looker, code_of, declare_exchange, declare_queue, in_time};
use crate::dialect::{EXCHANGE, Message, queue};
use crate::member::{Arrival, Carrier, Cut, Seat};

/// How many messages the broker may send before one is acknowledged.
const PREFETCH: u16 = 32;
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Less than members wait for each other after their connections broke.
const BACKOFF_MAX: Duration = Duration::from_millis(500);

/// Messages through a broker.
#[derive(Debug)]
pub struct AmqpCarrier {
    broker: Broker,
    /// From 1, as queues are named.
    position: usize,
    id: ServerId,
    positions: BTreeMap<ServerId, usize>,
    members: Vec<ServerId>,
    expiry_ms: u64,
    session: Option<Session>,
}

/// What lasts as long as one connection.
#[derive(Debug)]
struct Session {
    consumer: Consumer,
    channel: Channel,
    looker: Looker,
    connection: Connection,
}

impl AmqpCarrier {
    /// Connects the member that takes this seat.
    ///
    /// # Errors
    /// If the broker cannot be reached or does not want it, or somebody else takes the seat.
    pub async fn connect(broker: Broker, seat: &Seat) -> Result<Self, BrokerError> {
        let members = seat.members.to_vec();
        let mut carrier = Self {
            broker,
            position: seat.position + 1,
            id: members[seat.position],
            positions: members.iter().copied().zip(1..).collect(),
            members,
            expiry_ms: seat.rules.round.max_us.div_ceil(1000),
            session: None,
        };
        carrier.session = Some(carrier.open().await?);
        Ok(carrier)
    }

    async fn open(&self) -> Result<Session, BrokerError> {
        let name = queue(self.position);
        let explain = |error: &lapin::Error| self.broker.error(error);
        let connection = self.broker.connect(&format!("primus ring {name}")).await?;
        let channel = self.prepared(&connection).await?;
        in_time(channel.confirm_select(ConfirmSelectOptions::default()), explain).await?;
        in_time(channel.basic_qos(PREFETCH, BasicQosOptions::default()), explain).await?;
        let alone = BasicConsumeOptions { exclusive: true, ..BasicConsumeOptions::default() };
        let consuming = channel.basic_consume(name.as_str().into(), "".into(), alone, FieldTable::default());
        let taken = |error: &lapin::Error| match code_of(error) {
            Some(ACCESS_REFUSED) => BrokerError::Taken(name.clone()),
            _ => self.broker.error(error),
        };
        let consumer = in_time(consuming, taken).await?;
        Ok(Session { consumer, channel, looker: Looker::new(&self.broker), connection })
    }

    /// A channel, with the own queue there. A queue that somebody made in another way will do.
    async fn prepared(&self, connection: &Connection) -> Result<Channel, BrokerError> {
        let explain = |error: &lapin::Error| self.broker.error(error);
        let channel = in_time(connection.create_channel(), explain).await?;
        let made = in_time(
            async {
                declare_exchange(&channel).await?;
                declare_queue(&channel, self.position).await
            },
            explain,
        );
        match made.await {
            Ok(()) => Ok(channel),
            Err(BrokerError::Different(_)) => {
                let channel = in_time(connection.create_channel(), explain).await?;
                let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
                let name = queue(self.position);
                in_time(channel.queue_declare(name.into(), passive, FieldTable::default()), explain).await?;
                Ok(channel)
            }
            Err(error) => Err(error),
        }
    }

    fn session(&mut self) -> Result<&mut Session, Cut> {
        self.session.as_mut().ok_or_else(|| Cut("the connection is closed".to_owned()))
    }

    /// The connection is of no use any more.
    fn cut(&mut self, error: &BrokerError) -> Cut {
        self.session = None;
        Cut(error.to_string())
    }

    /// Makes sense of what came out of the queue.
    fn understood(&self, delivery: Delivery) -> Arrival<Delivery> {
        match Message::read(&delivery.data) {
            Err(reason) => Arrival::Garbage(reason.to_string(), delivery),
            Ok(message) if !self.positions.contains_key(&message.candidate) => {
                Arrival::Garbage(format!("candidate_id {} is not the id of a member", message.candidate), delivery)
            }
            Ok(message) => match self.sender(message.sender) {
                Some(from) => Arrival::Message(from, message.meaning(), delivery),
                None => {
                    Arrival::Garbage(format!("sender_id {} is not the id of a member", message.sender), delivery)
                }
            },
        }
    }

    /// The document does not say whether `sender_id` is an id or a position: both are understood.
    fn sender(&self, sender: ServerId) -> Option<ServerId> {
        if self.positions.contains_key(&sender) {
            return Some(sender);
        }
        let place = usize::try_from(sender.0).ok()?.checked_sub(1)?;
        self.members.get(place).copied()
    }
}

impl Carrier for AmqpCarrier {
    type Receipt = Delivery;

    async fn receive(&mut self) -> Result<Arrival<Delivery>, Cut> {
        let broker = self.broker.clone();
        match self.session()?.consumer.next().await {
            Some(Ok(delivery)) => Ok(self.understood(delivery)),
            Some(Err(error)) => Err(self.cut(&broker.error(&error))),
            None => Err(self.cut(&BrokerError::Lost("the broker ended the consumer".to_owned()))),
        }
    }

    async fn settle(&mut self, receipt: Delivery) -> Result<(), Cut> {
        let broker = self.broker.clone();
        let acknowledged = in_time(receipt.acker.ack(BasicAckOptions::default()), |error| broker.error(error));
        acknowledged.await.map(|_| ()).map_err(|error| self.cut(&error))
    }

    async fn is_there(&mut self, peer: ServerId) -> Result<bool, Cut> {
        let Some(position) = self.positions.get(&peer).copied() else { return Ok(false) };
        let session = self.session()?;
        let found = session.looker.consumers(&session.connection, &queue(position)).await;
        found.map(|consumers| consumers.is_some_and(|count| count > 0)).map_err(|error| self.cut(&error))
    }

    async fn send(&mut self, to: ServerId, message: &ring::Message) -> Result<(), Cut> {
        let (Some(position), Ok(message)) = (self.positions.get(&to).copied(), Message::new(self.id, message))
        else {
            return Ok(());
        };
        let body = message.write(&format!("{:.3}", jiff::Timestamp::now()));
        let properties = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_expiration(self.expiry_ms.to_string().into());
        let broker = self.broker.clone();
        let channel = self.session()?.channel.clone();
        let published = in_time(
            async {
                let options = BasicPublishOptions::default();
                let key = queue(position).into();
                channel.basic_publish(EXCHANGE.into(), key, options, &body, properties).await?.await
            },
            |error| broker.error(error),
        );
        // A broker that refuses a message has no room for it; the machine says it again when its timer runs out.
        published.await.map(|_| ()).map_err(|error| self.cut(&error))
    }

    async fn mend(&mut self) {
        let mut backoff = BACKOFF_MIN;
        while self.session.is_none() {
            match self.open().await {
                Ok(session) => self.session = Some(session),
                Err(_) => sleep(backoff).await,
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }
}
