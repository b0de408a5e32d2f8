//! One member of a ring in reality, whatever carries its messages: the loop that brings the machine its inputs and carries
//! out its outputs.
//!
//! Before anything is sent, the loop looks whether the successor is there, and tells the machine to suspect it if not: a
//! queue takes messages for the dead, and does not tell. Now and then it looks again, so that a member that came back is
//! trusted, and a leader that died is missed. [`crate::tcp`] carries messages between sockets, [`crate::amqp`] through a
//! broker.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use primus_core::election::ring::{Message, Ring, Rules};
use primus_core::election::{Command, Election, MessageKind, Timer};
use primus_core::machine::{Delay, Input, Machine, Outbox, Output};
use primus_core::timers::Timers;
use primus_core::{Moment, Round, ServerId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};

/// How often a member looks whether those are there on whom it relies.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// How long a member waits for others to come back, too, when its own connection is back.
const GRACE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// No more waits to be sent; what is older is not worth sending.
const UNSENT_MAX: usize = 64;
/// After so many messages in a row the clock has its turn.
const IN_A_ROW_MAX: u32 = 64;
/// So many of those who are suspected are looked at at a time.
const SUSPECTS_MAX: usize = 16;

/// Which place of which ring a member takes.
#[derive(Debug, Clone)]
pub struct Seat {
    /// From 0.
    pub position: usize,
    /// All ids, in ring order.
    pub members: Arc<[ServerId]>,
    /// What they have agreed on.
    pub rules: Arc<Rules>,
}

/// What an owner can ask of a member.
#[derive(Debug)]
pub enum Order {
    /// Start an election now.
    Start,
    /// Start one soon, unless a leader is heard of before.
    Boot,
    /// Say how you see things.
    Tell(oneshot::Sender<View>),
}

/// How a member sees things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// ASLEEP, CANDIDATE, LEADER or FOLLOWER.
    pub state: &'static str,
    /// The latest election.
    pub round: Round,
    /// Whom it takes for the leader.
    pub leader: Option<ServerId>,
}

/// Something that a member tells its owner.
#[derive(Debug, Clone)]
pub struct Told {
    /// Which member.
    pub node: ServerId,
    /// When.
    pub at: Instant,
    /// What.
    pub event: Event,
}

/// What happens to a member.
#[derive(Debug, Clone)]
pub enum Event {
    /// It can be reached from now on.
    Ready,
    /// Its machine took a step; afterwards it sees things this way.
    Step(Box<Input<Ring>>, Vec<Output<Ring>>, View),
    /// A message of this kind has left, to that member.
    Sent(MessageKind, ServerId),
    /// Something arrived that is no message for this ring, for this reason.
    Dropped(String),
    /// It cannot be reached any more, for this reason.
    Cut(String),
}

/// The connection is gone, for this reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut(pub String);

/// Something that arrived; the receipt goes back once it has been dealt with.
#[derive(Debug)]
pub enum Arrival<R> {
    /// From a member of this ring.
    Message(ServerId, Message, R),
    /// No message for this ring, for this reason.
    Garbage(String, R),
}

/// Whatever carries messages between members.
pub trait Carrier {
    /// Says which arrival has been dealt with.
    type Receipt;

    /// Waits for the next arrival. Giving up waiting loses nothing.
    fn receive(&mut self) -> impl Future<Output = Result<Arrival<Self::Receipt>, Cut>>;
    /// It has been dealt with, and need not come again.
    fn settle(&mut self, receipt: Self::Receipt) -> impl Future<Output = Result<(), Cut>>;
    /// Can this member be reached?
    fn is_there(&mut self, peer: ServerId) -> impl Future<Output = Result<bool, Cut>>;
    /// Sends, for sure, or says that it could not.
    fn send(&mut self, to: ServerId, message: &Message) -> impl Future<Output = Result<(), Cut>>;
    /// Waits until there is a connection again.
    fn mend(&mut self) -> impl Future<Output = ()>;
}

/// A member that runs.
#[derive(Debug)]
struct Member<C> {
    id: ServerId,
    seat: Seat,
    machine: Ring,
    carrier: C,
    /// Those whom the machine was told to suspect.
    suspected: BTreeSet<ServerId>,
    timers: Timers<Timer, Instant>,
    began: Instant,
    unsent: VecDeque<(ServerId, Message)>,
    patient_until: Instant,
    /// Messages heard since anything else was done.
    in_a_row: u32,
    /// The suspect that was looked at last.
    looked_at: ServerId,
    told: mpsc::UnboundedSender<Told>,
}

/// What a member has to do next.
#[derive(Debug)]
enum Next<R> {
    Obey(Order),
    Hear(Result<Arrival<R>, Cut>),
    LookAtTheClock,
    LookRound,
    End,
}

/// Runs a member until its owner drops `orders`.
pub async fn run<C: Carrier>(
    seat: Seat,
    carrier: C,
    mut orders: mpsc::Receiver<Order>,
    told: mpsc::UnboundedSender<Told>,
) {
    let mut member = Member::new(seat, carrier, told);
    member.tell(Event::Ready);
    let mut watch = interval(WATCH_EVERY);
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let done = match member.next(&mut orders, &mut watch).await {
            Next::Obey(order) => member.on_order(order).await,
            Next::Hear(arrival) => member.on_arrival(arrival).await,
            Next::LookAtTheClock => member.on_time().await,
            Next::LookRound => member.look_round().await,
            Next::End => return,
        };
        if let Err(cut) = done
            && !member.mend(cut, &mut orders).await
        {
            return;
        }
    }
}

impl<C: Carrier> Member<C> {
    fn new(seat: Seat, carrier: C, told: mpsc::UnboundedSender<Told>) -> Self {
        let machine = Ring::new(seat.position, Arc::clone(&seat.members), Arc::clone(&seat.rules));
        Self {
            id: seat.members[seat.position],
            seat,
            machine,
            carrier,
            suspected: BTreeSet::new(),
            timers: Timers::default(),
            began: Instant::now(),
            unsent: VecDeque::new(),
            patient_until: Instant::now(),
            in_a_row: 0,
            looked_at: ServerId(0),
            told,
        }
    }

    async fn next(&mut self, orders: &mut mpsc::Receiver<Order>, watch: &mut Interval) -> Next<C::Receipt> {
        let due = self.timers.next();
        let may_hear = self.in_a_row < IN_A_ROW_MAX;
        let next = tokio::select! {
            biased;
            order = orders.recv() => order.map_or(Next::End, Next::Obey),
            // What has arrived counts before the clock: a member that was frozen must not judge before it has listened.
            arrival = self.carrier.receive(), if may_hear => Next::Hear(arrival),
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => Next::LookAtTheClock,
            _ = watch.tick() => Next::LookRound,
            () = std::future::ready(()), if !may_hear => Next::LookAtTheClock,
        };
        self.in_a_row = if matches!(next, Next::Hear(_)) { self.in_a_row + 1 } else { 0 };
        next
    }

    async fn on_order(&mut self, order: Order) -> Result<(), Cut> {
        match order {
            Order::Tell(answer) => {
                // Whoever asked may have gone.
                _ = answer.send(self.view());
                Ok(())
            }
            Order::Boot => self.step(Input::Command(Command::Boot)).await,
            Order::Start => {
                self.skip_the_dead().await?;
                self.step(Input::Command(Command::Start)).await
            }
        }
    }

    async fn on_arrival(&mut self, arrival: Result<Arrival<C::Receipt>, Cut>) -> Result<(), Cut> {
        let receipt = match arrival? {
            Arrival::Garbage(reason, receipt) => {
                self.tell(Event::Dropped(reason));
                receipt
            }
            Arrival::Message(from, message, receipt) => {
                self.skip_the_dead().await?;
                self.step(Input::Message { from, message }).await?;
                receipt
            }
        };
        // Only now: if this process dies before what follows has been sent, the broker keeps the message.
        self.carrier.settle(receipt).await
    }

    async fn on_time(&mut self) -> Result<(), Cut> {
        if self.timers.next().is_none_or(|due| due > Instant::now()) {
            return Ok(());
        }
        self.skip_the_dead().await?;
        match self.timers.take_due(Instant::now()) {
            Some((_, timer)) => self.step(Input::Timer(timer)).await,
            None => Ok(()),
        }
    }

    /// The next member that is not suspected.
    fn successor(&self) -> ServerId {
        let (before, after) = self.seat.members.split_at(self.seat.position + 1);
        let mut others = after.iter().chain(before);
        others.find(|member| !self.suspected.contains(member)).copied().unwrap_or(self.id)
    }

    /// Makes sure that the successor is there, whoever it is then.
    async fn skip_the_dead(&mut self) -> Result<(), Cut> {
        loop {
            let successor = self.successor();
            if successor == self.id || self.awaited(successor).await? {
                return Ok(());
            }
            self.suspect(successor).await?;
        }
    }

    /// Is it there, or will it be soon? After a connection was lost, all the others are on their way back, too.
    async fn awaited(&mut self, peer: ServerId) -> Result<bool, Cut> {
        loop {
            if self.carrier.is_there(peer).await? {
                return Ok(true);
            }
            if Instant::now() >= self.patient_until {
                return Ok(false);
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    async fn suspect(&mut self, peer: ServerId) -> Result<(), Cut> {
        self.suspected.insert(peer);
        self.step(Input::Command(Command::Suspect(peer))).await
    }

    /// Looks at the successor, the leader and some who are suspected.
    async fn look_round(&mut self) -> Result<(), Cut> {
        if Instant::now() < self.patient_until {
            return Ok(());
        }
        let mut peers = self.next_suspects();
        peers.insert(self.successor());
        peers.extend(self.machine.leader());
        peers.remove(&self.id);
        for peer in peers {
            match (self.carrier.is_there(peer).await?, self.suspected.contains(&peer)) {
                (false, false) => self.suspect(peer).await?,
                (true, true) => {
                    self.suspected.remove(&peer);
                    self.step(Input::Command(Command::Trust(peer))).await?;
                }
                (true, false) | (false, true) => {}
            }
        }
        Ok(())
    }

    /// Those whose turn it is: in a large ring of which little is left, looking at all would take too long.
    fn next_suspects(&mut self) -> BTreeSet<ServerId> {
        let after = self.suspected.range((Bound::Excluded(self.looked_at), Bound::Unbounded));
        let peers: Vec<ServerId> = after.chain(&self.suspected).copied().take(SUSPECTS_MAX).collect();
        self.looked_at = peers.last().copied().unwrap_or(self.looked_at);
        peers.into_iter().collect()
    }

    async fn step(&mut self, input: Input<Ring>) -> Result<(), Cut> {
        self.think(input);
        self.flush().await
    }

    /// The time since this member began: a ring measures nothing, so any clock will do.
    fn now(&self) -> Moment {
        Moment(u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Lets the machine take a step; what it wants to send waits.
    fn think(&mut self, input: Input<Ring>) {
        let mut out = Outbox::new();
        self.machine.step(self.now(), input.clone(), &mut out);
        let outputs: Vec<Output<Ring>> = out.drain().collect();
        for output in outputs.iter().cloned() {
            match output {
                Output::Send { to, message } => self.unsent.push_back((to, message)),
                Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay)),
                Output::Cancel(timer) => self.timers.cancel(timer),
                Output::Notify(_) | Output::Ignore(_) => {}
            }
        }
        // The oldest are of the least use: the machine repeats what it knows when its timers run out.
        self.unsent.drain(..self.unsent.len().saturating_sub(UNSENT_MAX));
        let view = self.view();
        self.tell(Event::Step(Box::new(input), outputs, view));
    }

    async fn flush(&mut self) -> Result<(), Cut> {
        while let Some((to, message)) = self.unsent.front().copied() {
            // Right after a connection came back, the queues of the others may still be missing.
            let is_there = Instant::now() >= self.patient_until || self.awaited(to).await?;
            if is_there {
                self.carrier.send(to, &message).await?;
                self.tell(Event::Sent(Ring::kind_of(&message), to));
            }
            self.unsent.pop_front();
            if !is_there && self.suspected.insert(to) {
                // The machine says it to the next one.
                self.think(Input::Command(Command::Suspect(to)));
            }
        }
        Ok(())
    }

    /// Waits for a new connection, with all that is known kept. False if nobody wants this member any more.
    async fn mend(&mut self, cut: Cut, orders: &mut mpsc::Receiver<Order>) -> bool {
        self.tell(Event::Cut(cut.0));
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    None => return false,
                    Some(Order::Tell(answer)) => _ = answer.send(self.view()),
                    Some(Order::Boot) => self.think(Input::Command(Command::Boot)),
                    Some(Order::Start) => self.think(Input::Command(Command::Start)),
                },
                () = self.carrier.mend() => break,
            }
        }
        self.patient_until = Instant::now() + GRACE;
        self.tell(Event::Ready);
        // If it is cut again at once, the loop notices.
        _ = self.flush().await;
        true
    }

    fn view(&self) -> View {
        View { state: self.machine.state(), round: self.machine.round(), leader: self.machine.leader() }
    }

    fn tell(&self, event: Event) {
        // An owner that does not listen does not want to know.
        _ = self.told.send(Told { node: self.id, at: Instant::now(), event });
    }
}

/// One length from the range.
fn drawn(delay: Delay) -> Duration {
    Duration::from_micros(delay.drawn(getrandom::u64().unwrap_or(0)))
}
