//! The farm of a server: the thread on which the ledger is kept, workers are spoken to and tasks are handed out.
//!
//! It may be busy; the control thread ([`crate::node`]) must not. So control passes what the log says on unread, in order,
//! and this thread makes sense of it. What it does, the machine [`primus_server::farm`] decides; `run.rs` is the loop that drives
//! it, and here is how others talk to it.

mod arrivals;
mod carry_out;
mod fleet;
mod news;
mod outputs;
mod replies;
mod run;
mod shares;
mod start;
mod starts;
mod worker_links;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use primus_core::SessionId;
use primus_core::farm::foreman::Foreman;
use primus_core::lease::{Answer, Lessor, Poll};
use primus_core::ledger::roll::{Change, Denial, Done};
use primus_core::ledger::{Attempt, Effect, Entry, Groups, Held, Roll};
use primus_core::loan::Lending;
use primus_core::loan::lending::{CannotLend, LendOrder};
use primus_core::{ServerId, Term};
use primus_server::Reason;
pub use primus_server::farm::Awaited;
use primus_server::farm::Farm;
use primus_server::gave_way::GaveWay;
use primus_server::leases;
use primus_server::record::{BATCH_LEN_MAX, Draft};
use primus_server::register::{Listing, Page};
use primus_wire::work::Part;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub(crate) use self::start::start;
use self::starts::Starts;
pub use self::worker_links::CallingWorker;
use crate::budget::{Budget, Weight};
use crate::handle::{Reply, Request, Unable};
use crate::leases::{Arrived, Teller};
use crate::neighbours::Neighbourhood;
use crate::outputs::Stream;
use crate::reads::Read;
use crate::requests::Requests;

/// How much of an output can be read at once.
pub const OUTPUT_LEN_MAX: usize = 256 << 10;
/// How many bytes of what is asked of the farm may wait, and what a question takes beside its content.
pub(crate) const UNASKED_LEN_MAX: u32 = 64 << 20;
const ASK_LEN: usize = 256;
/// How many bytes of the log may wait to be applied. Beyond that a leader takes no writes, and a follower nothing of the log.
pub(crate) const UNAPPLIED_LEN_MAX: u32 = 128 << 20;
/// How long a worker may take to answer.
const OUTPUT_TIME: Duration = Duration::from_secs(5);

/// A way to talk to the farm of a running server.
#[derive(Debug, Clone)]
pub struct FarmHandle {
    requests: Requests,
    asks: mpsc::UnboundedSender<(FarmRequest, Weight)>,
    leases: Teller,
    unasked: Budget,
    starts: Arc<Starts>,
    roll: watch::Receiver<Arc<Roll>>,
    neighbourhood: watch::Receiver<Arc<Neighbourhood>>,
}

type Look = Box<dyn FnOnce(Result<&Farm, Unable>) + Send>;
type LookHere = Box<dyn FnOnce(&Farm) + Send>;

/// What can be asked of a farm. A number says how far the log must be applied.
enum FarmRequest {
    Enter(Draft, Reply<Vec<Effect>>),
    Look(u64, Look),
    LookHere(LookHere),
    Ended(u64, Vec<Awaited>, Reply<()>),
    Output(String, Part, Reply<Option<Bytes>>),
    Lend(LendOrder, Reply<Result<Vec<Effect>, CannotLend>>),
}

/// What the control thread tells the farm, in the order of the log.
#[derive(Debug)]
pub(crate) enum ToFarm {
    /// Records of the log that hold changes of the register, or a batch or a piece of one, each with its place in the log.
    Committed(Vec<(u64, Bytes)>, Weight),
    /// This one leads, as far as this server knows. If it is this server itself, it has to wait for [`ToFarm::Lead`].
    Leader(Option<ServerId>),
    /// This server leads in this term, and has applied everything that was agreed on before.
    Lead(Term),
    /// The log can be cut here: write the whole state down, with those who gave way.
    Snapshot(u64, GaveWay),
    /// The whole state, up to this place in the log, came from elsewhere.
    Restored(u64, Bytes, Weight),
    /// The clock of this server shows this time, in milliseconds since 1970.
    Clock(ServerId, u64, Weight),
}

/// What the farm wants of the control thread.
#[derive(Debug)]
pub(crate) enum ToControl {
    /// Append these records, if this server still leads in this term.
    Enter(Term, Vec<Bytes>),
    /// This is the whole state up to this index.
    Compact(u64, Bytes),
    /// Something is guarded beside this server, or not any more.
    Guarded(bool),
    /// Nothing is, so that one can take over, for this reason.
    Transfer(ServerId, Reason),
    /// So many tasks run beside this server.
    Tasks(u32),
    /// The state up to this index cannot be read: the server must not go on.
    Unreadable(u64),
}

impl ToControl {
    /// For those who measure what takes how long.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Enter(..) => "records of the farm",
            Self::Compact(..) => "cutting the log",
            Self::Guarded(_) | Self::Transfer(..) | Self::Tasks(_) | Self::Unreadable(_) => "a word of the farm",
        }
    }
}

impl FarmHandle {
    /// Writes these entries into the log, as one batch: all of them take place at once, or none. Says what came of it when
    /// it is acknowledged and applied.
    ///
    /// # Errors
    /// If this server does not lead, or the batch is too long, or leadership was lost meanwhile.
    pub async fn enter(&self, entries: Vec<Entry>) -> Result<Vec<Effect>, Unable> {
        // Here, by the caller's thread, because the farm's own is the one that is busy.
        let draft = Draft::new(&entries);
        drop(entries);
        if draft.len() > BATCH_LEN_MAX {
            return Err(Unable::TooLong);
        }
        let len = draft.len();
        self.ask_long(len, |reply| FarmRequest::Enter(draft, reply)).await
    }

    /// Changes who is who. Says what came of it when it is acknowledged and applied, or why it is refused.
    ///
    /// # Errors
    /// As [`FarmHandle::enter`].
    pub async fn change_roll(&self, change: Change) -> Result<Result<Done, Denial>, Unable> {
        let effects = self.enter(vec![Entry::Roll(change)]).await?;
        let mut outcomes = effects.into_iter().filter_map(|effect| match effect {
            Effect::Roll(outcome) => Some(outcome),
            _ => None,
        });
        outcomes.next().ok_or(Unable::Unknown)
    }

    /// Who is who, as far as this server has applied the log.
    #[must_use]
    pub fn roll(&self) -> Arc<Roll> {
        Arc::clone(&self.roll.borrow())
    }

    /// Which farms are neighbours, as this server knows them.
    #[must_use]
    pub fn neighbourhood(&self) -> Arc<Neighbourhood> {
        Arc::clone(&self.neighbourhood.borrow())
    }

    /// The same, for those who want to hear of every change: links are closed whose peers are not welcome any more.
    #[must_use]
    pub fn watch_roll(&self) -> watch::Receiver<Arc<Roll>> {
        self.roll.clone()
    }

    /// Lends idle workers to a neighbour, as an operator wants it. Says what came of it, or why nobody can go.
    ///
    /// # Errors
    /// If this server does not lead, or leadership was lost meanwhile.
    pub async fn lend(&self, order: LendOrder) -> Result<Result<Vec<Effect>, CannotLend>, Unable> {
        self.ask(|reply| FarmRequest::Lend(order, reply)).await
    }

    /// Looks at the ledger and at what the leader has handed out, between two steps. It must be short: page what is long. All
    /// that was acknowledged before is there: a leader that was deposed and does not know it yet says nothing.
    ///
    /// # Errors
    /// If this server does not lead.
    pub async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Foreman) -> T + Send + 'static,
    ) -> Result<T, Unable> {
        self.look_at(|farm| look(farm.foreman())).await
    }

    /// The value of a key, and where in the log it was set. All that was acknowledged before is there.
    ///
    /// # Errors
    /// If this server does not lead.
    pub async fn get(&self, key: String) -> Result<Option<(Bytes, u64)>, Unable> {
        self.look_at(move |farm| farm.register().get(&key)).await
    }

    /// A page of keys, with their values. All that was acknowledged before is there.
    ///
    /// # Errors
    /// If this server does not lead.
    pub async fn list(&self, listing: Listing) -> Result<Page, Unable> {
        self.look_at(move |farm| farm.register().page(&listing)).await
    }

    /// Looks at what this server knows, whether it leads or not: it may be behind.
    ///
    /// # Errors
    /// If the server is about to end.
    pub async fn look_here<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Foreman) -> T + Send + 'static,
    ) -> Result<T, Unable> {
        self.ask(|reply| FarmRequest::LookHere(Box::new(|farm| _ = reply.send(Ok(look(farm.foreman())))))).await
    }

    /// For how long a worker has had this attempt, at least: of what a former leader handed out, this one knows it only
    /// since it leads. Nothing if this server does not know.
    #[must_use]
    pub fn age(&self, attempt: Attempt) -> Option<Duration> {
        self.starts.age(attempt, Instant::now())
    }

    /// Waits until each of these has ended, or is unknown.
    ///
    /// # Errors
    /// If this server does not lead, or does not any more: then the next leader can be asked.
    pub async fn ended(&self, awaited: Vec<Awaited>) -> Result<(), Unable> {
        let (index, weight) = self.confirm().await?;
        self.ask_weighed(weight, |reply| FarmRequest::Ended(index, awaited, reply)).await
    }

    /// Waits until it is sure that this server leads. The answer says how far the farm must have applied the log to know of
    /// everything that was acknowledged before, and brings back what the question weighs: it waits twice, and weighs once.
    async fn confirm(&self) -> Result<(u64, Weight), Unable> {
        let (reply, answer) = oneshot::channel();
        let weight = self.unasked.take(ASK_LEN).ok_or(Unable::Busy)?;
        // Whoever does not answer any more is about to end.
        self.requests.ask(Request::Confirm(Read::new(reply, weight)));
        answer.await.unwrap_or(Err(Unable::Unknown))
    }

    /// A part of an attempt's full output, at most [`OUTPUT_LEN_MAX`] bytes, from the worker that has it; empty at its end.
    /// Nothing if there is no such file: then the output was short and is in the result, is still to come, or was deleted
    /// for want of room. Any server can be asked.
    ///
    /// # Errors
    /// If the worker is not here, or does not answer.
    pub async fn output(
        &self,
        worker: &str,
        held: Held,
        stream: Stream,
        offset: u64,
        len_max: usize,
    ) -> Result<Option<Bytes>, Unable> {
        let len_max = u32::try_from(len_max.min(OUTPUT_LEN_MAX)).expect("the limit fits");
        let part = Part { held, stream, offset, len_max };
        let answer = self.ask(|reply| FarmRequest::Output(worker.to_owned(), part, reply));
        timeout(OUTPUT_TIME, answer).await.unwrap_or(Err(Unable::NoWorker))
    }

    /// What a session holds, and until when. The answer comes when there is something new, or after a while.
    ///
    /// # Errors
    /// If this server does not lead, or does not any more: then the next leader must be asked.
    pub async fn poll(&self, session: SessionId, poll: Poll) -> Result<Answer, Unable> {
        self.ask_leases(|reply| Arrived::Poll(session, poll, reply)).await
    }

    /// Looks at who holds which group, and who would like to.
    ///
    /// # Errors
    /// If this server does not lead.
    pub async fn look_at_leases<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Groups, &Lessor) -> T + Send + 'static,
    ) -> Result<T, Unable> {
        let held = self.look(|foreman| foreman.ledger().groups().clone()).await?;
        let look = |reply: Reply<T>| {
            let look =
                move |lessor: Result<&Lessor, Unable>| _ = reply.send(lessor.map(|lessor| look(&held, lessor)));
            Arrived::Look(Box::new(look))
        };
        self.ask_leases(look).await
    }

    /// Looks at who is lent and borrowed, and at what is known of other farms.
    ///
    /// # Errors
    /// If this server does not lead.
    pub async fn look_at_loans<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Foreman, &Lending) -> T + Send + 'static,
    ) -> Result<T, Unable> {
        self.look_at(|farm| look(farm.foreman(), farm.lending())).await
    }

    async fn look_at<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Farm) -> T + Send + 'static,
    ) -> Result<T, Unable> {
        let (index, weight) = self.confirm().await?;
        self.ask_weighed(weight, |reply| FarmRequest::Look(index, Box::new(|farm| _ = reply.send(farm.map(look)))))
            .await
    }

    /// Before another server is made the leader: ends what is held beside this one, and waits until it has ended. Nobody gets
    /// it again until another server leads, or [`FarmHandle::stay`] is called.
    ///
    /// # Errors
    /// If this server does not lead.
    pub async fn vacate(&self) -> Result<(), Unable> {
        self.ask_leases(Arrived::Vacate).await
    }

    /// No other server leads after all.
    pub fn stay(&self) {
        _ = self.leases.send((Arrived::ToFarm(leases::Command::Stay), None));
    }

    async fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> FarmRequest) -> Result<T, Unable> {
        self.ask_long(0, ask).await
    }

    async fn ask_leases<T>(&self, ask: impl FnOnce(Reply<T>) -> Arrived) -> Result<T, Unable> {
        let (reply, answer) = oneshot::channel();
        let weight = self.unasked.take(ASK_LEN).ok_or(Unable::Busy)?;
        // Whoever does not answer any more is about to end.
        _ = self.leases.send((ask(reply), Some(weight)));
        answer.await.unwrap_or(Err(Unable::Unknown))
    }

    async fn ask_long<T>(&self, len: usize, ask: impl FnOnce(Reply<T>) -> FarmRequest) -> Result<T, Unable> {
        let weight = self.unasked.take(ASK_LEN + len).ok_or(Unable::Busy)?;
        self.ask_weighed(weight, ask).await
    }

    async fn ask_weighed<T>(&self, weight: Weight, ask: impl FnOnce(Reply<T>) -> FarmRequest) -> Result<T, Unable> {
        let (reply, answer) = oneshot::channel();
        // Whoever does not answer any more is about to end.
        _ = self.asks.send((ask(reply), weight));
        answer.await.unwrap_or(Err(Unable::Unknown))
    }
}

impl fmt::Debug for FarmRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enter(..) => "enter",
            Self::Look(..) | Self::LookHere(_) => "look",
            Self::Ended(..) => "ended",
            Self::Output(..) => "output",
            Self::Lend(..) => "lend",
        })
    }
}
