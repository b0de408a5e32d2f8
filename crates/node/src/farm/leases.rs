//! Leases in reality: the lessor meets sessions that wait for answers, the log, and a clock that goes on while a host sleeps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use primus_core::ServerId;
use primus_core::SessionId;
use primus_core::lease::lessor::{Command, Notice, Rules, Tick};
use primus_core::lease::{Answer, Lessor, Message, Poll};
use primus_core::ledger::{Effect, Entry, Groups};
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_server::Reason;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::clock::now;
use crate::handle::{Reply, Request, Unable};
use crate::meters::Meters;
use crate::timers::drawn;

/// The lessor of this server, and who waits for it.
pub(super) struct Leases {
    lessor: Lessor,
    outbox: Outbox<Lessor>,
    /// How the control thread is asked whether this server leads, and where its answers arrive.
    requests: mpsc::UnboundedSender<Request>,
    confirm: mpsc::UnboundedSender<u64>,
    confirmed: mpsc::UnboundedReceiver<u64>,
    tick: Option<Instant>,
    /// Sessions that wait for answers to these questions.
    waiting: BTreeMap<SessionId, (u64, Reply<Answer>)>,
    /// Who waits until nothing is held beside this server.
    vacating: Vec<Reply<()>>,
    /// Whom this server wants to hand over to then, and why.
    handover: Option<(ServerId, Reason)>,
    /// What the lessor wants to write.
    pub(super) proposed: Vec<Entry>,
    meters: Arc<Meters>,
}

impl Leases {
    pub(super) fn new(
        id: ServerId,
        rules: Rules,
        requests: mpsc::UnboundedSender<Request>,
        meters: Arc<Meters>,
    ) -> Self {
        let (confirm, confirmed) = mpsc::unbounded_channel();
        Self {
            lessor: Lessor::new(id, rules),
            outbox: Outbox::new(),
            requests,
            confirm,
            confirmed,
            tick: None,
            waiting: BTreeMap::new(),
            vacating: Vec::new(),
            handover: None,
            proposed: Vec::new(),
            meters,
        }
    }

    pub(super) const fn lessor(&self) -> &Lessor {
        &self.lessor
    }

    /// When it wants to look at the clock again.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.tick
    }

    /// The next question that a majority has answered.
    pub(super) async fn confirmed(&mut self) -> u64 {
        self.confirmed.recv().await.expect("a sender is kept")
    }

    pub(super) fn on_confirmed(&mut self, question: u64) {
        self.step(Input::Command(Command::Confirmed(question)));
    }

    pub(super) fn on_time(&mut self, now: Instant) {
        if self.tick.take_if(|due| *due <= now).is_some() {
            self.step(Input::Timer(Tick));
        }
    }

    pub(super) fn lead(&mut self, groups: Groups) {
        self.step(Input::Command(Command::Lead(groups)));
    }

    /// Another server leads, or nobody: those who wait must ask there.
    pub(super) fn follow(&mut self, unable: Unable) {
        self.step(Input::Command(Command::Follow));
        self.tick = None;
        self.proposed.clear();
        std::mem::take(&mut self.waiting).into_values().for_each(|(_, reply)| _ = reply.send(Err(unable)));
        std::mem::take(&mut self.vacating).into_iter().for_each(|reply| _ = reply.send(Err(unable)));
        self.handover = None;
    }

    /// What a batch of the log came to.
    pub(super) fn on_effects(&mut self, effects: &[Effect]) {
        let is_ours = |effect: &&Effect| matches!(effect, Effect::Granted { .. } | Effect::Released { .. });
        let effects: Vec<Effect> = effects.iter().filter(is_ours).cloned().collect();
        if self.lessor.is_leading() && !effects.is_empty() {
            self.step(Input::Command(Command::Applied(effects)));
        }
    }

    pub(super) fn on_poll(&mut self, session: SessionId, poll: Poll, reply: Reply<Answer>) {
        // Whoever asks again has given up the older question.
        self.waiting.insert(session, (poll.number, reply));
        self.step(Input::Message { from: session, message: Message::Poll(poll) });
    }

    /// What is held beside this server is to end, because another one will lead; the answer comes when it has.
    pub(super) fn vacate(&mut self, reply: Reply<()>) {
        self.vacating.push(reply);
        self.step(Input::Command(Command::Vacate(true)));
    }

    /// The same, for the leader's own sake. It may say so again and again.
    pub(super) fn hand_over(&mut self, to: ServerId, reason: Reason) {
        if self.handover.replace((to, reason)).is_none() {
            self.step(Input::Command(Command::Vacate(true)));
        }
    }

    /// Whom the leader can hand over to now.
    pub(super) fn take_handover(&mut self) -> Option<(ServerId, Reason)> {
        self.handover.take_if(|_| !self.lessor.holds_beside())
    }

    /// No other server leads after all.
    pub(super) fn stay(&mut self) {
        self.step(Input::Command(Command::Vacate(false)));
    }

    fn step(&mut self, input: Input<Lessor>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.lessor.step(now(), input, &mut outbox);
        outbox.drain().for_each(|output| self.carry_out(output));
        self.outbox = outbox;
    }

    fn carry_out(&mut self, output: Output<Lessor>) {
        match output {
            Output::Send { to, message: Message::Answer(answer) } => self.answer(SessionId(to.0), answer),
            Output::Set { delay, .. } => {
                self.tick = Some(Instant::now() + drawn(delay).max(Duration::from_millis(1)));
            }
            Output::Cancel(_) => self.tick = None,
            Output::Notify(Notice::Propose(entries)) => self.proposed.extend(entries),
            Output::Notify(Notice::Confirm(question)) => self.ask(question),
            Output::Notify(Notice::Vacant) => {
                std::mem::take(&mut self.vacating).into_iter().for_each(|reply| _ = reply.send(Ok(())));
            }
            Output::Notify(Notice::OldToken) => self.meters.old_terms.add(1),
            Output::Send { .. } | Output::Ignore(_) => {}
        }
    }

    fn answer(&mut self, session: SessionId, answer: Answer) {
        if let Some((_, reply)) = self.waiting.remove(&session).filter(|(number, _)| *number == answer.number) {
            // Whoever asked may have gone away.
            _ = reply.send(Ok(answer));
        }
    }

    /// A read that reads nothing: it is answered when a majority has said that this server leads.
    fn ask(&self, question: u64) {
        let (reply, answer) = oneshot::channel();
        _ = self.requests.send(Request::Confirm(reply));
        let confirm = self.confirm.clone();
        tokio::spawn(async move {
            if let Ok(Ok(())) = answer.await {
                _ = confirm.send(question);
            }
        });
    }
}
