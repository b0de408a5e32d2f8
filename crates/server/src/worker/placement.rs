//! How a worker goes to another farm, and comes home: its placement decides, and here it is carried out.
//!
//! As soon as it is decided that the worker goes, nothing is begun at home any more. It has gone when that is on disk and the
//! folder for the other farm is open.

use primus_core::FarmId;
use primus_core::farm::worker::{self, Relation};
use primus_core::ledger::LoanId;
use primus_core::loan::placement::{self, Place};
use primus_core::loan::{Placement, WorkerMessage};
use primus_core::machine::{Input, Machine, Outbox, Output, Token};
use primus_core::planted::Bug;

use super::Worker;
use super::session::{Call, Session};
use super::words::{FarmAddress, Happening, Notice, Record, Servers, Timer, Write};

/// How many farms beside its own a worker has sessions with, at most: for one it works, others may not have recorded its results.
const FARMS_MAX: usize = 16;

/// What must be on disk before the placement goes on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Move {
    /// The write of the epoch, and whether it is durable.
    token: Token,
    is_written: bool,
    /// The farm whose folder is needed; none if the worker has a session with it, or stays at home.
    to: Option<FarmAddress>,
    /// What is kept there, or why it cannot be used.
    opened: Option<Result<Vec<worker::Record>, String>>,
}

impl Move {
    /// Is everything ready?
    const fn is_ready(&self) -> bool {
        self.is_written && (self.to.is_none() || self.opened.is_some())
    }
}

/// What the placement hears.
impl Worker {
    /// Tells the placement what has changed, and what leaders say of loans.
    pub(super) fn attend(&mut self, out: &mut Outbox<Self>) {
        let leader = self.home().leader();
        if leader != self.home_leader {
            self.home_leader = leader;
            self.command(placement::Command::Home(leader), out);
        }
        for call in self.home().take_heard() {
            self.on_call(call, out);
        }
        for (farm, call) in self.take_heard_abroad() {
            let leader = self.sessions.get(&farm).and_then(Session::leader);
            if self.away == Some(farm) && leader == Some(call.from) {
                self.command(placement::Command::Abroad(call.word), out);
            }
        }
        if let Some(loan) = self.stranded.take() {
            self.command(placement::Command::Abroad(WorkerMessage::Return { loan, within_ms: 0 }), out);
        }
        self.note_idle(out);
    }

    fn take_heard_abroad(&mut self) -> Vec<(FarmId, Call)> {
        let heard = |(farm, session): (&FarmId, &mut Session)| {
            let farm = *farm;
            session.take_heard().into_iter().map(move |call| (farm, call))
        };
        self.sessions.iter_mut().flat_map(heard).collect()
    }

    /// A leader of its own farm says something.
    fn on_call(&mut self, call: Call, out: &mut Outbox<Self>) {
        let Call { from, word, servers } = call;
        if let WorkerMessage::Redirect { farm, loan, .. } = &word {
            if let Some(reason) = self.objection_to(farm, &servers) {
                // A leader that has heard that does not call again.
                return self.cannot_go(farm.clone(), *loan, reason, out);
            }
            self.called_to = servers;
        }
        self.decide(Input::Message { from, message: word }, out);
    }

    /// Why it cannot even try to work for a farm.
    fn objection_to(&self, farm: &str, servers: &Servers) -> Option<String> {
        if self.is_draining {
            return Some("this worker takes nothing new".to_owned());
        }
        if servers.is_empty() {
            return Some("nobody has said where its servers are".to_owned());
        }
        let is_too_much = self.session_with(farm).is_none() && self.sessions.len() > FARMS_MAX;
        is_too_much.then(|| format!("{FARMS_MAX} farms have not recorded all its results yet"))
    }

    /// The session with another farm, if there is one.
    fn session_with(&self, name: &str) -> Option<FarmId> {
        let mut abroad = self.sessions.iter().filter(|(farm, _)| **farm != FarmId::OWN);
        abroad.find(|(_, session)| session.name() == name).map(|(farm, _)| *farm)
    }

    fn command(&mut self, command: placement::Command, out: &mut Outbox<Self>) {
        self.decide(Input::Command(command), out);
    }

    /// Whether something runs must be known before anything is decided.
    pub(super) fn decide(&mut self, input: Input<Placement>, out: &mut Outbox<Self>) {
        self.note_idle(out);
        self.step_placement(input, out);
    }

    fn note_idle(&mut self, out: &mut Outbox<Self>) {
        let current = self.sessions.get(&self.away.unwrap_or(FarmId::OWN));
        let is_idle = current.is_none_or(|session| session.work().is_idle());
        if std::mem::replace(&mut self.is_idle, is_idle) != is_idle {
            self.step_placement(Input::Command(placement::Command::Idle(is_idle)), out);
        }
    }

    fn step_placement(&mut self, input: Input<Placement>, out: &mut Outbox<Self>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.placement.step(self.now, input, &mut outbox);
        for output in outbox.drain() {
            self.obey(output, out);
        }
        self.outbox = outbox;
        let (now, is_left) = (self.now, !self.is_at_home());
        self.home().leave(now, is_left, out);
    }

    /// May it begin with tasks of its own farm? One that is about to go must not: its leader has lent it because nothing ran.
    fn is_at_home(&self) -> bool {
        match self.placement.place() {
            Place::Home | Place::Staying { .. } => true,
            Place::Going { .. } => self.rules.planted.is(Bug::RoomClosedTooLate),
            Place::Away { .. } | Place::Returning { .. } => false,
        }
    }
}

/// What the placement wants.
impl Worker {
    fn obey(&mut self, output: Output<Placement>, out: &mut Outbox<Self>) {
        match output {
            Output::Send { to, message } => self.home().say_placement(to, message),
            Output::Persist { token, records } => self.write_epoch(token, &records, out),
            Output::Set { timer, delay } => out.set(Timer::Placement(timer), delay),
            Output::Cancel(timer) => out.cancel(Timer::Placement(timer)),
            Output::Notify(placement::Notice::Go { farm, loan }) => self.go(farm, loan, out),
            Output::Notify(placement::Notice::Finish) => self.finish(out),
            Output::Notify(placement::Notice::Stop) => self.stop(out),
            Output::Notify(placement::Notice::ComeHome) => self.come_home(out),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }

    /// It takes nothing new from the other farm.
    fn finish(&mut self, out: &mut Outbox<Self>) {
        let now = self.now;
        if let Some(session) = self.session_away() {
            session.tell(now, worker::Command::Open(false), out);
        }
    }

    /// What still runs for the other farm has had time enough.
    fn stop(&mut self, out: &mut Outbox<Self>) {
        let now = self.now;
        if let Some(session) = self.session_away() {
            session.abandon_all(now, out);
        }
    }

    /// The session with the farm that it works for. There is none if that farm cannot be served.
    fn session_away(&mut self) -> Option<&mut Session> {
        self.sessions.get_mut(&self.away?)
    }

    /// Writes down that a call is followed, or that it will not be; the folder for the farm is opened meanwhile.
    fn write_epoch(&mut self, token: Token, records: &[placement::Record], out: &mut Outbox<Self>) {
        let to = self.farm_to_open();
        to.iter().for_each(|farm| out.notify(Notice::Open(farm.clone())));
        let records = records.iter().map(|record| Record::Epoch(record.epoch)).collect();
        out.persist(Write::Epoch(token), records);
        self.moving = Some(Move { token, is_written: false, to, opened: None });
    }

    /// The farm that the worker is called to, unless it has a session with it.
    fn farm_to_open(&mut self) -> Option<FarmAddress> {
        let Place::Going { farm, .. } = self.placement.place() else { return None };
        let farm = FarmAddress { name: farm.clone(), servers: std::mem::take(&mut self.called_to) };
        self.session_with(&farm.name).is_none().then_some(farm)
    }

    pub(super) fn on_epoch_written(&mut self, token: Token, out: &mut Outbox<Self>) {
        match &mut self.moving {
            Some(moving) if moving.token <= token => moving.is_written = true,
            _ => return out.ignore("a write of an epoch that nothing waits for"),
        }
        self.go_on(out);
    }

    pub(super) fn on_opened(
        &mut self,
        name: &str,
        opened: Result<Vec<worker::Record>, String>,
        out: &mut Outbox<Self>,
    ) {
        match &mut self.moving {
            Some(moving) if moving.to.as_ref().is_some_and(|to| to.name == name) => moving.opened = Some(opened),
            _ => return out.ignore("a folder that nobody has asked for"),
        }
        self.go_on(out);
    }

    fn go_on(&mut self, out: &mut Outbox<Self>) {
        let Some(token) = self.moving.as_ref().filter(|moving| moving.is_ready()).map(|moving| moving.token) else {
            return;
        };
        self.decide(Input::Persisted(token), out);
        // If it stays after all, what was opened for the farm must not be in its own way the next time.
        if let Some(to) = self.moving.take().and_then(|moving| moving.to) {
            out.notify(Notice::Close(to.name));
        }
    }

    fn go(&mut self, name: String, loan: LoanId, out: &mut Outbox<Self>) {
        out.notify(Notice::Happened(Happening::Lent(name.clone(), loan)));
        let (now, relation, is_open) = (self.now, Relation::Lent(loan), !self.is_draining);
        let farm = self.session_with(&name).unwrap_or_else(|| self.next_farm());
        self.away = Some(farm);
        if let Some(session) = self.session_away() {
            session.tell(now, worker::Command::Open(is_open), out);
            return session.set_relation(now, relation, out);
        }
        let Some(Move { to: Some(address), opened: Some(opened), .. }) = self.moving.take() else { return };
        match opened {
            Ok(records) => {
                self.begin(farm, address, records, relation, out);
                self.tell_load(out);
                if let Some(session) = self.session_away().filter(|_| !is_open) {
                    session.tell(now, worker::Command::Open(false), out);
                }
            }
            Err(reason) => self.strand(name, loan, reason, out),
        }
    }

    /// It has gone, and cannot work there: it comes home at the end of the turn.
    fn strand(&mut self, farm: String, loan: LoanId, reason: String, out: &mut Outbox<Self>) {
        self.cannot_go(farm, loan, reason, out);
        self.stranded = Some(loan);
    }

    pub(super) fn on_cannot_begin(&mut self, farm: FarmId, reason: String, out: &mut Outbox<Self>) {
        if farm == FarmId::OWN {
            return out.ignore("its own farm is always served");
        }
        let Some(session) = self.sessions.remove(&farm) else {
            return out.ignore("a farm that it has parted with");
        };
        session.end(out);
        if self.away == Some(farm) {
            let loan = self.placement.epoch();
            self.strand(session.name().to_owned(), loan, reason, out);
        }
    }

    /// Its own leader should not lend it again soon.
    fn cannot_go(&mut self, farm: String, loan: LoanId, reason: String, out: &mut Outbox<Self>) {
        if let Some(leader) = self.home().leader() {
            self.home().say_placement(leader, WorkerMessage::CannotGo { loan });
        }
        out.notify(Notice::Happened(Happening::CannotGo(farm, reason)));
    }

    fn come_home(&mut self, out: &mut Outbox<Self>) {
        let now = self.now;
        if let Some(session) = self.session_away() {
            session.set_relation(now, Relation::Over, out);
        }
        self.away = None;
        out.notify(Notice::Happened(Happening::Home(self.placement.epoch())));
    }

    /// A farm that has recorded everything is not needed any more, unless the worker works for it or is about to.
    pub(super) fn part(&mut self, out: &mut Outbox<Self>) {
        let (place, away) = (self.placement.place(), self.away);
        let is_called_to = |name: &str| matches!(place, Place::Going { farm, .. } if farm == name);
        self.sessions.retain(|farm, session| {
            let is_needed = *farm == FarmId::OWN || away == Some(*farm) || is_called_to(session.name());
            let stays = is_needed || !session.is_settled();
            if !stays {
                session.end(out);
                out.notify(Notice::Part(*farm));
            }
            stays
        });
    }
}
