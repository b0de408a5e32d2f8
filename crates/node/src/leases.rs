//! The thread of a server's leases. It does little, so it is never late: a lease that is not renewed in time ends what it
//! guards. What is granted is agreed on through the farm, which may be busy; what is renewed is not.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use primus_core::lease::lessor::{self, Lessor, Tick};
use primus_core::lease::{Answer, Message, Poll};
use primus_core::ledger::Entry;
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{ServerId, SessionId, Term};
use primus_server::Plan;
use primus_server::farm::Ticket;
use primus_server::leases::{Command, Leases, Notice};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::budget::Weight;
use crate::clock::now;
use crate::farm::ToControl;
use crate::handle::{Reply, Request, Unable};
use crate::meters::Meters;
use crate::reads::Read;
use crate::requests::Requests;
use crate::timers::{Timers, drawn};
use crate::watched::{Broken, watch};

/// How many inputs are taken before timers are looked at, at most.
const INPUTS_MAX: usize = 1024;
/// The lessor does not look at the clock more often.
const TICK_MIN: Duration = Duration::from_millis(1);

pub(crate) type Look = Box<dyn FnOnce(Result<&Lessor, Unable>) + Send>;

/// What arrives.
pub(crate) enum Arrived {
    /// The leader changed. Who leads is in a channel of its own, in which only the newest counts.
    Leader,
    /// What control or the farm says.
    ToFarm(Command),
    Poll(SessionId, Poll, Reply<Answer>),
    Vacate(Reply<()>),
    Look(Look),
}

/// How it is told, with the weight of what is asked while it waits.
pub(crate) type Teller = mpsc::UnboundedSender<(Arrived, Option<Weight>)>;
/// The other end.
pub(crate) type Hearer = mpsc::UnboundedReceiver<(Arrived, Option<Weight>)>;

/// Whom it talks to.
pub(crate) struct Ends {
    /// Control: what it is asked, and what is wished for.
    pub(crate) requests: Requests,
    pub(crate) wishes: mpsc::UnboundedSender<ToControl>,
    /// The farm.
    pub(crate) farm: mpsc::UnboundedSender<(Term, Vec<Entry>)>,
    pub(crate) failures: mpsc::UnboundedSender<Broken>,
    pub(crate) meters: Arc<Meters>,
}

/// Starts the thread. It ends when nobody tells it anything any more.
///
/// # Panics
/// If the system gives no thread.
pub(crate) fn start(plan: &Plan, ends: Ends, arrived: Hearer, leader: watch::Receiver<(Option<ServerId>, Term)>) {
    let rules = lessor::Rules { lease_us: plan.lease_us, planted: Planted::NONE };
    let leases = Leases::new(plan.id, rules);
    let running = move || {
        let runtime = Builder::new_current_thread().enable_time().build().expect("the system gives a runtime");
        runtime.block_on(async {
            let failures = ends.failures.clone();
            let (confirm, confirmed) = mpsc::unbounded_channel();
            let driver = Driver {
                leases,
                outbox: Outbox::new(),
                leader,
                timers: Timers::default(),
                last_ticket: 0,
                vacating: BTreeMap::new(),
                polls: BTreeMap::new(),
                confirm,
                ends,
            };
            // A task of its own: whatever wakes the future that a runtime was started with costs a system call more.
            if let Ok(Err(broken)) = tokio::spawn(watch("leases", driver.run(arrived, confirmed))).await {
                _ = failures.send(broken);
            }
        });
    };
    thread::Builder::new().name("leases".to_owned()).spawn(running).expect("the system gives a thread");
}

/// The machine, and everything that carries out what it wants.
struct Driver {
    leases: Leases,
    outbox: Outbox<Leases>,
    leader: watch::Receiver<(Option<ServerId>, Term)>,
    timers: Timers<Tick>,
    last_ticket: u64,
    vacating: BTreeMap<Ticket, Reply<()>>,
    /// Sessions, each with the number of its question: one that asks again has given up the older question.
    polls: BTreeMap<SessionId, (u64, Reply<Answer>)>,
    /// Where the answers of majorities go.
    confirm: mpsc::UnboundedSender<u64>,
    ends: Ends,
}

impl Driver {
    async fn run(mut self, mut arrived: Hearer, mut confirmed: mpsc::UnboundedReceiver<u64>) {
        loop {
            let due = self.timers.next().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                biased;
                Some(question) = confirmed.recv() => self.command(Command::Confirmed(question)),
                next = arrived.recv() => match next {
                    Some((next, _)) => self.take(next),
                    None => return,
                },
                () = sleep_until(due) => {}
            }
            for _ in 0..INPUTS_MAX {
                while let Ok(question) = confirmed.try_recv() {
                    self.command(Command::Confirmed(question));
                }
                match arrived.try_recv() {
                    Ok((next, _)) => self.take(next),
                    Err(_) => break,
                }
            }
            while let Some((_, tick)) = self.timers.take_due(Instant::now()) {
                self.step(Input::Timer(tick));
            }
        }
    }

    fn take(&mut self, arrived: Arrived) {
        self.look_for_leader();
        match arrived {
            Arrived::Leader => {}
            Arrived::ToFarm(command) => self.command(command),
            Arrived::Poll(from, poll, reply) => {
                self.polls.insert(from, (poll.number, reply));
                self.step(Input::Message { from, message: Message::Poll(poll) });
            }
            Arrived::Vacate(reply) => {
                self.last_ticket += 1;
                self.vacating.insert(Ticket(self.last_ticket), reply);
                self.command(Command::Vacate(Ticket(self.last_ticket)));
            }
            Arrived::Look(look) => look(self.leases.lessor().map_err(Unable::from)),
        }
    }

    fn look_for_leader(&mut self) {
        if self.leader.has_changed().unwrap_or(false) {
            let (leader, term) = *self.leader.borrow_and_update();
            self.command(Command::Leader(leader, term));
            self.refuse_polls();
        }
    }

    /// Sessions must ask elsewhere, or again.
    fn refuse_polls(&mut self) {
        let refusal = self.leases.refusal();
        std::mem::take(&mut self.polls).into_values().for_each(|(_, reply)| _ = reply.send(Err(refusal.into())));
    }

    fn command(&mut self, command: Command) {
        self.step(Input::Command(command));
    }

    fn step(&mut self, input: Input<Leases>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.leases.step(now(), input, &mut outbox);
        for output in outbox.drain() {
            match output {
                Output::Send { to, message: Message::Answer(answer) } => self.answer(to, answer),
                Output::Set { timer, delay } => self.timers.set(timer, Instant::now() + drawn(delay).max(TICK_MIN)),
                Output::Cancel(timer) => self.timers.cancel(timer),
                Output::Notify(notice) => self.on_notice(notice),
                Output::Send { .. } | Output::Ignore(_) => {}
            }
        }
        self.outbox = outbox;
    }

    fn answer(&mut self, session: SessionId, answer: Answer) {
        if let Some((_, reply)) = self.polls.remove(&session).filter(|(number, _)| *number == answer.number) {
            _ = reply.send(Ok(answer));
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        // Whoever does not listen any more is about to end.
        match notice {
            Notice::Want(term, entries) => _ = self.ends.farm.send((term, entries)),
            Notice::Confirm(question) => self.ask_majority(question),
            Notice::Vacant(ticket, result) => {
                let reply = self.vacating.remove(&ticket);
                reply.into_iter().for_each(|reply| _ = reply.send(result.map_err(Unable::from)));
            }
            Notice::Elsewhere(session, refusal) => {
                let poll = self.polls.remove(&session);
                poll.into_iter().for_each(|(_, reply)| _ = reply.send(Err(refusal.into())));
            }
            Notice::Guarded(is_guarded) => _ = self.ends.wishes.send(ToControl::Guarded(is_guarded)),
            Notice::Transfer(to, reason) => _ = self.ends.wishes.send(ToControl::Transfer(to, reason)),
            Notice::OldToken => self.ends.meters.old_terms.add(1),
        }
    }

    /// A read that reads nothing: it is answered when a majority has said that this server leads.
    fn ask_majority(&self, question: u64) {
        let (reply, answer) = oneshot::channel();
        // The lessor asks once in a while, so that weighs nothing.
        self.ends.requests.ask(Request::Confirm(Read::new(reply, Weight::default())));
        let confirm = self.confirm.clone();
        tokio::spawn(async move {
            if let Ok(Ok(_)) = answer.await {
                _ = confirm.send(question);
            }
        });
    }
}

impl fmt::Debug for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leader => "leader",
            Self::ToFarm(_) => "told",
            Self::Poll(..) => "poll",
            Self::Vacate(_) => "vacate",
            Self::Look(_) => "look",
        })
    }
}
