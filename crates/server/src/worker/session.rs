//! What a worker has to do with one farm: whom it serves there, and what it says.
//!
//! A worker has a link to every server of the farm, so that a new leader can say so at once; it serves the leader of the
//! newest term.

use std::collections::{BTreeMap, BTreeSet};

use primus_core::farm;
use primus_core::farm::worker::{Command, Notice, REPORTS_MAX, Relation, Timer, Worker as Work};
use primus_core::ledger::Held;
use primus_core::loan::WorkerMessage;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::{FarmId, ServerId, Term};

use super::words::{self, Happening, Message, Peer, Record, Servers, Write};
use super::{Timer as WorkerTimer, Worker};

/// A worker's session with one farm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Session {
    farm: FarmId,
    name: String,
    work: Work,
    outbox: Outbox<Work>,
    /// The servers that it has a link to. What others say was on its way when their link was dropped.
    linked: BTreeSet<ServerId>,
    /// The servers that lead, as they say themselves, and in which terms.
    leads: BTreeMap<ServerId, Term>,
    /// The newest term that any of them named.
    newest: Term,
    /// The leader that the worker was last told to serve.
    serves: Option<(ServerId, Term)>,
    /// Is the worker with another farm, so that nothing is begun here?
    is_left: bool,
    /// Is there room for results on the disk?
    has_disk_room: bool,
    /// Could anything be begun when its machine was last told?
    has_room: bool,
    /// What was said to servers in this turn.
    said: BTreeMap<ServerId, Vec<Message>>,
    /// What servers have said about loans in this turn.
    heard: Vec<Call>,
}

/// What a server says about loans, and where the servers of the farm are that it speaks of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) from: ServerId,
    pub(super) word: WorkerMessage,
    pub(super) servers: Servers,
}

impl Session {
    /// A session with the farm of this number and name.
    pub(super) const fn new(farm: FarmId, name: String, work: Work) -> Self {
        Self {
            farm,
            name,
            work,
            outbox: Outbox::new(),
            linked: BTreeSet::new(),
            leads: BTreeMap::new(),
            newest: Term(0),
            serves: None,
            is_left: false,
            has_disk_room: true,
            has_room: true,
            said: BTreeMap::new(),
            heard: Vec::new(),
        }
    }

    /// What the farm is called.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What is done for the farm, to look at.
    pub(super) const fn work(&self) -> &Work {
        &self.work
    }

    /// Does the farm know all results?
    pub(super) fn is_settled(&self) -> bool {
        self.work.unrecorded() == 0
    }

    /// The leader that has welcomed the worker.
    pub(super) fn leader(&self) -> Option<ServerId> {
        self.work.serves().map(|(leader, _)| leader)
    }

    /// What servers have said about loans.
    pub(super) fn take_heard(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.heard)
    }

    pub(super) fn step(&mut self, now: Moment, input: Input<Work>, out: &mut Outbox<Worker>) {
        let mut outbox = std::mem::take(&mut self.outbox);
        self.work.step(now, input, &mut outbox);
        for output in outbox.drain() {
            self.pass_on(output, out);
        }
        self.outbox = outbox;
    }

    pub(super) fn tell(&mut self, now: Moment, command: Command, out: &mut Outbox<Worker>) {
        self.step(now, Input::Command(command), out);
    }

    fn pass_on(&mut self, output: Output<Work>, out: &mut Outbox<Worker>) {
        let farm = self.farm;
        match output {
            Output::Send { to, message } => self.say(to, message),
            Output::Persist { token, records } => {
                let records = records.into_iter().map(Record::Result).collect();
                out.persist(Write::Results(farm, token), records);
            }
            Output::Set { timer, delay } => out.set(WorkerTimer::Work(farm, timer), delay),
            Output::Cancel(timer) => out.cancel(WorkerTimer::Work(farm, timer)),
            Output::Notify(Notice::Start(assignment)) => out.notify(words::Notice::Start(farm, assignment)),
            Output::Notify(Notice::Kill(held)) => out.notify(words::Notice::Kill(farm, held)),
            Output::Ignore(reason) => out.ignore(reason),
        }
    }

    /// Reports that are said in a row leave as one.
    fn say(&mut self, to: ServerId, message: farm::Message) {
        let said = self.said.entry(to).or_default();
        match (said.last_mut(), message) {
            (Some(Message::Work(farm::Message::Ended(all))), farm::Message::Ended(more))
                if all.len() + more.len() <= REPORTS_MAX =>
            {
                all.extend(more);
            }
            (_, message) => said.push(Message::Work(message)),
        }
    }

    /// Says where the worker is.
    pub(super) fn say_placement(&mut self, to: ServerId, word: WorkerMessage) {
        self.said.entry(to).or_default().push(Message::Placement(word));
    }

    /// What was said in this turn leaves.
    pub(super) fn flush(&mut self, out: &mut Outbox<Worker>) {
        let farm = self.farm;
        while let Some((server, said)) = self.said.pop_first() {
            said.into_iter().for_each(|message| out.send(Peer { farm, server }, message));
        }
    }
}

/// Who leads.
impl Session {
    pub(super) fn on_link_up(&mut self, now: Moment, server: ServerId, out: &mut Outbox<Worker>) {
        self.linked.insert(server);
        self.step(now, Input::LinkUp(server), out);
    }

    pub(super) fn on_link_down(&mut self, now: Moment, server: ServerId, out: &mut Outbox<Worker>) {
        self.linked.remove(&server);
        self.on_follows(now, server, out);
    }

    pub(super) fn on_message(
        &mut self,
        now: Moment,
        (server, message): (ServerId, Message),
        out: &mut Outbox<Worker>,
    ) {
        if !self.linked.contains(&server) {
            return out.ignore("what was on its way when the link was dropped");
        }
        match message {
            Message::Work(message) => self.step(now, Input::Message { from: server, message }, out),
            Message::Leads(term) => {
                self.leads.insert(server, term);
                self.serve_newest(now, out);
            }
            Message::Follows => self.on_follows(now, server, out),
            Message::Call(word, servers) => self.heard.push(Call { from: server, word, servers }),
            Message::Placement(_) => out.ignore("what only workers say"),
        }
    }

    /// The leader of the newest term is the one to serve. An older one has been deposed, and may not know it yet.
    fn serve_newest(&mut self, now: Moment, out: &mut Outbox<Worker>) {
        let leads = self.leads.iter().map(|(server, term)| (*server, *term));
        let Some((server, term)) = leads.max_by_key(|(_, term)| *term) else { return };
        if term < self.newest || self.serves == Some((server, term)) {
            return;
        }
        self.newest = term;
        self.serves = Some((server, term));
        self.tell(now, Command::Serve(server), out);
        self.show(Happening::Serves(server, term), out);
    }

    fn on_follows(&mut self, now: Moment, server: ServerId, out: &mut Outbox<Worker>) {
        self.leads.remove(&server);
        self.lose(now, server, out);
    }

    fn lose(&mut self, now: Moment, server: ServerId, out: &mut Outbox<Worker>) {
        if self.serves.take_if(|(leader, _)| *leader == server).is_some() {
            self.step(now, Input::LinkDown(server), out);
            self.show(Happening::LostLeader(server), out);
        }
    }

    /// The worker stood still for so long that its leaders may have given it up: it begins with nothing before one has
    /// welcomed it again, on another link.
    pub(super) fn on_pause(&mut self, now: Moment, out: &mut Outbox<Worker>) {
        self.linked.clear();
        let leaders = std::mem::take(&mut self.leads);
        leaders.into_keys().for_each(|leader| self.lose(now, leader, out));
    }

    /// Who leads other farms is nothing to those who watch.
    fn show(&self, happening: Happening, out: &mut Outbox<Worker>) {
        if self.farm == FarmId::OWN {
            out.notify(words::Notice::Happened(happening));
        }
    }

    pub(super) fn on_refused(&self, server: ServerId, reason: String, out: &mut Outbox<Worker>) {
        out.notify(words::Notice::Happened(if self.farm == FarmId::OWN {
            Happening::Refused(server, reason)
        } else {
            Happening::RefusedAbroad(self.name.clone(), server, reason)
        }));
    }
}

/// What may be begun.
impl Session {
    /// From now on the worker is with another farm and begins with nothing here, or it is back.
    pub(super) fn leave(&mut self, now: Moment, is_left: bool, out: &mut Outbox<Worker>) {
        self.is_left = is_left;
        self.look_for_room(now, out);
    }

    /// There is room for results on the disk, or not.
    pub(super) fn on_disk_room(&mut self, now: Moment, has_room: bool, out: &mut Outbox<Worker>) {
        self.has_disk_room = has_room;
        self.look_for_room(now, out);
    }

    /// What would have no place for its result is not begun.
    fn look_for_room(&mut self, now: Moment, out: &mut Outbox<Worker>) {
        let has_room = !self.is_left && self.has_disk_room;
        if std::mem::replace(&mut self.has_room, has_room) != has_room {
            self.tell(now, Command::Room(has_room), out);
        }
    }

    /// The worker stands otherwise to this farm from now on.
    pub(super) fn set_relation(&mut self, now: Moment, relation: Relation, out: &mut Outbox<Worker>) {
        self.tell(now, Command::Relation(relation), out);
    }

    /// Ends all that has not ended. Others may have it.
    pub(super) fn abandon_all(&mut self, now: Moment, out: &mut Outbox<Worker>) {
        let unfinished: Vec<Held> = self.work.unfinished().collect();
        for held in unfinished {
            out.notify(words::Notice::Kill(self.farm, held));
            self.tell(now, Command::Abandoned(held), out);
        }
    }

    /// Nothing more is heard of this session.
    pub(super) fn end(&self, out: &mut Outbox<Worker>) {
        for timer in [Timer::Beat, Timer::Gather, Timer::Tell] {
            out.cancel(WorkerTimer::Work(self.farm, timer));
        }
    }
}
