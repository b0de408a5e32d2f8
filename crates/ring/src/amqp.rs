//! Ring over AMQP: how members reach a broker, and what they need to find there.
//!
//! Nothing here decides anything: [`carrier`] carries out what the loop of [`crate::member`] wants, [`control`] lets people
//! ask members how they are, and what members say is in [`crate::dialect`]. A password is in no text that this module makes;
//! texts of the broker never contain one.

pub mod carrier;
pub mod control;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use lapin::options::{
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions,
    QueuePurgeOptions,
};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::FieldTable;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{Channel, Connection, ConnectionProperties, ErrorKind, ExchangeKind};
use thiserror::Error;
use tokio::time::timeout;

use crate::dialect::{EXCHANGE, queue};

/// How long a broker may take to answer anything.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// A member that says nothing for about twice as long is dead for the broker.
const HEARTBEAT_S: u16 = 5;

const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const RESOURCE_LOCKED: u16 = 405;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// Where a broker is, and who we are there.
#[derive(Debug, Clone)]
pub struct Broker {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whose rights we have.
    pub user: String,
    /// What proves it.
    pub password: Secret,
    /// Which part of the broker is ours.
    pub vhost: String,
    /// Encrypted, and whom to trust then.
    pub tls: Option<Tls>,
}

/// Whom to trust.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Certificates beside those of the system, as PEM.
    pub authorities: Option<String>,
}

/// A text that nobody gets to see.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why a broker did not do what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BrokerError {
    /// Nobody answers, or nobody who speaks AMQP.
    #[error("no broker answers at {place}: {why}")]
    Unreachable {
        /// Host and port.
        place: String,
        /// What the system says.
        why: String,
    },
    /// The broker knows better.
    #[error("the broker at {place} refuses user '{user}' in vhost '{vhost}': {why}")]
    Refused {
        /// Host and port.
        place: String,
        /// Who asked.
        user: String,
        /// Where.
        vhost: String,
        /// What it says.
        why: String,
    },
    /// Somebody else plays that node.
    #[error("somebody else consumes the queue {0}")]
    Taken(String),
    /// Something of that name is there already, and is different.
    #[error("the broker has something else of that name: {0}")]
    Different(String),
    /// The connection broke.
    #[error("the connection to the broker was lost: {0}")]
    Lost(String),
}

/// A broker on this host as it comes.
impl Default for Broker {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: 5672,
            user: "guest".to_owned(),
            password: Secret("guest".to_owned()),
            vhost: "/".to_owned(),
            tls: None,
        }
    }
}

impl Broker {
    /// Host and port.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Connects under this name.
    ///
    /// # Errors
    /// If there is no broker, or it does not want us.
    pub async fn connect(&self, name: &str) -> Result<Connection, BrokerError> {
        let tls = self.tls.clone().unwrap_or_default();
        let tls = OwnedTLSConfig { identity: None, cert_chain: tls.authorities };
        let properties = ConnectionProperties::default().with_connection_name(name.into());
        let runtime = lapin::runtime::default_runtime().map_err(|error| self.error(&error))?;
        let connecting = Connection::connect_uri_with_config(self.uri(), properties, tls, runtime);
        match timeout(ANSWER_TIME, connecting).await {
            Ok(connected) => connected.map_err(|error| self.error(&error)),
            Err(_) => Err(self.unreachable("it takes too long")),
        }
    }

    fn uri(&self) -> AMQPUri {
        let userinfo = AMQPUserInfo { username: self.user.clone(), password: self.password.0.clone() };
        AMQPUri {
            scheme: if self.tls.is_some() { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
            authority: AMQPAuthority { userinfo, host: self.host.clone(), port: self.port },
            vhost: self.vhost.clone(),
            query: AMQPQueryString { heartbeat: Some(HEARTBEAT_S), ..AMQPQueryString::default() },
        }
    }

    fn unreachable(&self, why: &str) -> BrokerError {
        BrokerError::Unreachable { place: self.place(), why: why.to_owned() }
    }

    /// Whose fault an error is.
    pub(crate) fn error(&self, error: &lapin::Error) -> BrokerError {
        match error.kind() {
            ErrorKind::IOError(error) => self.unreachable(&error.to_string()),
            ErrorKind::ProtocolError(error) => match error.get_id() {
                ACCESS_REFUSED | NOT_ALLOWED => BrokerError::Refused {
                    place: self.place(),
                    user: self.user.clone(),
                    vhost: self.vhost.clone(),
                    why: error.get_message().to_string(),
                },
                PRECONDITION_FAILED => BrokerError::Different(error.get_message().to_string()),
                _ => BrokerError::Lost(error.get_message().to_string()),
            },
            ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => {
                self.unreachable("the server there does not speak AMQP 0-9-1")
            }
            _ => BrokerError::Lost(error.to_string()),
        }
    }
}

/// A request that takes too long is as good as lost.
pub(crate) async fn in_time<T>(
    request: impl Future<Output = lapin::Result<T>>,
    explain: impl FnOnce(&lapin::Error) -> BrokerError,
) -> Result<T, BrokerError> {
    match timeout(ANSWER_TIME, request).await {
        Ok(result) => result.map_err(|error| explain(&error)),
        Err(_) => Err(BrokerError::Lost("it does not answer".to_owned())),
    }
}

/// The AMQP code of an error, if the broker sent one.
pub(crate) fn code_of(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

/// Exchange, queues and bindings of a ring. Making them twice changes nothing.
#[derive(Debug, Clone)]
pub struct Topology {
    /// Where.
    pub broker: Broker,
    /// For so many nodes.
    pub size: usize,
}

impl Topology {
    /// Makes what is missing.
    ///
    /// # Errors
    /// If the broker does not do it.
    pub async fn set_up(&self) -> Result<(), BrokerError> {
        let connection = self.broker.connect("primus ring setup").await?;
        let explain = |error: &lapin::Error| self.broker.error(error);
        let channel = in_time(connection.create_channel(), explain).await?;
        self.declare_exchange(&channel).await?;
        for position in 1..=self.size {
            in_time(declare_queue(&channel, position), explain).await?;
        }
        self.close(&connection).await
    }

    /// Throws away what waits in the queues of these positions (from 1).
    ///
    /// # Errors
    /// If the broker does not do it.
    pub async fn empty(&self, positions: impl Iterator<Item = usize>) -> Result<(), BrokerError> {
        let connection = self.broker.connect("primus ring run").await?;
        let explain = |error: &lapin::Error| self.broker.error(error);
        let channel = in_time(connection.create_channel(), explain).await?;
        for position in positions {
            in_time(channel.queue_purge(queue(position).into(), QueuePurgeOptions::default()), explain).await?;
        }
        self.close(&connection).await
    }

    /// Takes everything down, with the messages that are still there.
    ///
    /// # Errors
    /// If the broker does not do it.
    pub async fn take_down(&self) -> Result<(), BrokerError> {
        let connection = self.broker.connect("primus ring setup --delete").await?;
        let explain = |error: &lapin::Error| self.broker.error(error);
        let channel = in_time(connection.create_channel(), explain).await?;
        for position in 1..=self.size {
            let deleting = channel.queue_delete(queue(position).into(), QueueDeleteOptions::default());
            in_time(deleting, explain).await?;
        }
        in_time(channel.exchange_delete(EXCHANGE.into(), ExchangeDeleteOptions::default()), explain).await?;
        self.close(&connection).await
    }

    /// How many consume each queue; nothing where there is no queue.
    ///
    /// # Errors
    /// If the broker does not say.
    pub async fn consumers(&self, connection: &Connection) -> Result<Vec<Option<u32>>, BrokerError> {
        let mut looker = Looker::new(&self.broker);
        let mut found = Vec::new();
        for position in 1..=self.size {
            found.push(looker.consumers(connection, &queue(position)).await?);
        }
        Ok(found)
    }

    async fn declare_exchange(&self, channel: &Channel) -> Result<(), BrokerError> {
        in_time(declare_exchange(channel), |error| self.broker.error(error)).await
    }

    async fn close(&self, connection: &Connection) -> Result<(), BrokerError> {
        in_time(connection.close(200, "done".into()), |error| self.broker.error(error)).await
    }
}

pub(crate) async fn declare_exchange(channel: &Channel) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions { durable: false, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(EXCHANGE.into(), ExchangeKind::Direct, options, FieldTable::default()).await
}

pub(crate) async fn declare_queue(channel: &Channel, position: usize) -> lapin::Result<()> {
    let options = QueueDeclareOptions { durable: false, ..QueueDeclareOptions::default() };
    let name = queue(position);
    channel.queue_declare(name.as_str().into(), options, FieldTable::default()).await?;
    let options = QueueBindOptions::default();
    channel
        .queue_bind(name.as_str().into(), EXCHANGE.into(), name.as_str().into(), options, FieldTable::default())
        .await
}

/// Looks at queues. Asking for one that is not there costs the channel, so it has one of its own.
#[derive(Debug)]
pub(crate) struct Looker {
    broker: Broker,
    channel: Option<Channel>,
}

impl Looker {
    pub(crate) fn new(broker: &Broker) -> Self {
        Self { broker: broker.clone(), channel: None }
    }

    /// How many consume this queue, if it is there.
    pub(crate) async fn consumers(
        &mut self,
        connection: &Connection,
        queue: &str,
    ) -> Result<Option<u32>, BrokerError> {
        let explain = |error: &lapin::Error| self.broker.error(error);
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => in_time(connection.create_channel(), explain).await?,
        };
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let asking = channel.queue_declare(queue.into(), options, FieldTable::default());
        match timeout(ANSWER_TIME, asking).await {
            Ok(Ok(found)) => {
                self.channel = Some(channel);
                Ok(Some(found.consumer_count()))
            }
            Ok(Err(error)) if code_of(&error) == Some(NOT_FOUND) => Ok(None),
            // Somebody's own queue: that somebody is there.
            Ok(Err(error)) if code_of(&error) == Some(RESOURCE_LOCKED) => Ok(Some(1)),
            Ok(Err(error)) => Err(self.broker.error(&error)),
            Err(_) => Err(BrokerError::Lost("it does not answer".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_in_no_text() {
        let broker = Broker { password: Secret("xyzzy".to_owned()), ..Broker::default() };
        assert!(!format!("{broker:?}").contains("xyzzy"));
        let error = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(!broker.error(&error.into()).to_string().contains("xyzzy"));
    }
}
