//! All nodes of a ring in one process, each with a connection or a socket of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use primus_core::ServerId;
use primus_terminal::failure::Failure;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::failure;
use crate::amqp::carrier::AmqpCarrier;
use crate::amqp::{BrokerError, Topology};
use crate::args::Transport;
use crate::dialect::queue;
use crate::member::{self, Order, Told};
use crate::settings::RingSettings;
use crate::tcp::{self, TcpCarrier};

/// So many orders wait for a node.
const ORDERS_MAX: usize = 16;
/// So many nodes connect at a time.
const CONNECTING_MAX: usize = 16;
/// How long nodes may take to end.
const GOODBYE: Duration = Duration::from_secs(2);

/// Nodes that can be reached.
#[derive(Debug)]
pub struct Crew {
    pub(super) orders: BTreeMap<ServerId, mpsc::Sender<Order>>,
    pub(super) told: mpsc::UnboundedReceiver<Told>,
    /// Members that others play.
    pub(super) strangers: BTreeSet<ServerId>,
    teller: mpsc::UnboundedSender<Told>,
    /// They end with the crew.
    nodes: JoinSet<()>,
}

impl Crew {
    /// All nodes but those at these positions (from 0), each of which can reach the others.
    ///
    /// # Errors
    /// If there are no sockets, or the broker does not want them.
    pub async fn assemble(
        settings: &RingSettings,
        transport: Transport,
        without: &BTreeSet<usize>,
    ) -> Result<Self, Failure> {
        let (teller, told) = mpsc::unbounded_channel();
        let (orders, strangers, nodes) = (BTreeMap::new(), BTreeSet::new(), JoinSet::new());
        let mut crew = Self { orders, told, strangers, teller, nodes };
        match transport {
            Transport::Amqp => crew.connect(settings, without).await?,
            Transport::Tcp => crew.listen(settings, without).await.map_err(|error| {
                Failure::server(
                    format!("sockets cannot be opened: {error}"),
                    "see how many files may be open: ulimit -n",
                )
            })?,
        }
        Ok(crew)
    }

    async fn connect(&mut self, settings: &RingSettings, without: &BTreeSet<usize>) -> Result<(), Failure> {
        let topology = Topology { broker: settings.broker.clone(), size: settings.members.len() };
        topology.set_up().await.map_err(|error| failure(&error))?;
        let ours = (0..settings.members.len()).filter(|place| !without.contains(place));
        let consumers = consumers(&topology).await?;
        // Before anything is thrown away that somebody waits for.
        if let Some(taken) = ours.clone().find(|place| is_consumed(&consumers, *place)) {
            return Err(failure(&BrokerError::Taken(queue(taken + 1))));
        }
        // What an earlier run left behind would be counted.
        topology.empty(ours.clone().map(|place| place + 1)).await.map_err(|error| failure(&error))?;
        let seats = ours.map(|place| settings.seat(place));
        let connecting = seats.map(|seat| async {
            let carrier = AmqpCarrier::connect(settings.broker.clone(), &seat).await;
            (seat, carrier)
        });
        let connected: Vec<_> = stream::iter(connecting).buffered(CONNECTING_MAX).collect().await;
        for (seat, carrier) in connected {
            let carrier = carrier.map_err(|error| failure(&error))?;
            self.employ(seat.members[seat.position], |orders, told| member::run(seat, carrier, orders, told));
        }
        let strangers = without.iter().filter(|place| is_consumed(&consumers, **place));
        self.strangers = strangers.map(|place| settings.members[*place]).collect();
        Ok(())
    }

    async fn listen(&mut self, settings: &RingSettings, without: &BTreeSet<usize>) -> io::Result<()> {
        let mut addresses: BTreeMap<ServerId, SocketAddr> = BTreeMap::new();
        let mut listeners: Vec<(usize, TcpListener)> = Vec::new();
        for (place, id) in settings.members.iter().enumerate() {
            let listener = tcp::listen().await?;
            addresses.insert(*id, listener.local_addr()?);
            listeners.push((place, listener));
        }
        let addresses = Arc::new(addresses);
        // The sockets of those who stay away are closed again: dialling them is refused, as with the dead.
        for (place, listener) in listeners.into_iter().filter(|(place, _)| !without.contains(place)) {
            let id = settings.members[place];
            let carrier = TcpCarrier::new(id, listener, Arc::clone(&addresses));
            self.employ(id, |orders, told| member::run(settings.seat(place), carrier, orders, told));
        }
        Ok(())
    }

    /// Lets all nodes finish what they are at, so that nothing is left in the queues, and end.
    pub async fn dismiss(mut self) {
        self.orders.clear();
        let ending = async { while self.nodes.join_next().await.is_some() {} };
        // Whoever hangs ends with the process.
        _ = timeout(GOODBYE, ending).await;
    }

    /// Hires a node: gives it a way to hear orders and one to tell what it does, and lets it run.
    fn employ<F>(&mut self, id: ServerId, run: impl FnOnce(mpsc::Receiver<Order>, mpsc::UnboundedSender<Told>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(ORDERS_MAX);
        self.orders.insert(id, sender);
        self.nodes.spawn(run(receiver, self.teller.clone()));
    }
}

/// How many consume each queue.
async fn consumers(topology: &Topology) -> Result<Vec<Option<u32>>, Failure> {
    let found = async {
        let connection = topology.broker.connect("primus ring run").await?;
        topology.consumers(&connection).await
    };
    found.await.map_err(|error| failure(&error))
}

/// Does somebody consume the queue of the node at this place (from 0)?
fn is_consumed(consumers: &[Option<u32>], place: usize) -> bool {
    consumers.get(place).copied().flatten().is_some_and(|count| count > 0)
}
