//! Runs of whole clusters: the control machine of every server, Raft engine included, with disks that can be slow and lose
//! what they have not written, links that can be cut, and processes that crash, restart and stand still.
//!
//! After every step the history is checked: one leader per term, the same entry at the same index everywhere, nothing that
//! was acknowledged lost. After the faults have ended a leader must come, and what is proposed then must be committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use primus_core::NodeId;
use primus_core::machine::{Delay, Input, Machine, Outbox, Output, Token};
use primus_core::rank::RankBy;
use primus_replica::message::{Entry, Record};
use primus_replica::{Consensus, Role, Term};
use primus_server::any_election;
use primus_server::control::{Command, Message, Notice, Timer};
use primus_server::{Plan, Server};

use crate::chance::Chance;
use crate::queue::Queue;

type Words = Message<any_election::Message>;

const FAULTS_END_US: u64 = 5_000_000;
/// How long after the faults a leader may take to come, and an entry to be committed.
const HEALED_US: u64 = 10_000_000;
const PROPOSALS_EVERY_US: u64 = 7_000;

/// A cluster to be tried, with any number of seeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cluster {
    /// How many servers.
    pub servers: u64,
    /// Faults of all kinds, drawn from the seed.
    pub all_faults: bool,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What went wrong first, if anything did.
    pub violation: Option<String>,
    /// How many leaderships there were.
    pub terms_led: usize,
    /// How many proposals were acknowledged.
    pub acknowledged: usize,
    /// When it ended.
    pub virtual_us: u64,
    /// Steps taken.
    pub steps: u64,
}

impl Cluster {
    /// Makes the run of this seed.
    #[must_use]
    pub fn run(&self, seed: u64) -> Report {
        let mut run = Run::new(*self, seed);
        run.plan();
        while run.history.violation.is_none() && !run.is_over() && run.next_event() {}
        run.judge();
        Report {
            violation: run.history.violation,
            terms_led: run.history.leaders.len(),
            acknowledged: run.history.acknowledged.len(),
            virtual_us: run.now_us,
            steps: run.steps,
        }
    }
}

/// A server's process and its disk.
#[derive(Debug)]
struct Host {
    process: Option<Server>,
    /// Grows with every start, so that what belongs to a dead process is known.
    incarnation: u32,
    disk: Vec<Record>,
    writing: VecDeque<(Token, Vec<Record>)>,
    waiting: Vec<(Token, NodeId, Words)>,
    timers: BTreeMap<Timer, u64>,
    /// What waits while the process stands still.
    backlog: Option<Vec<Event>>,
    /// How far this process has applied.
    applied: u64,
}

#[derive(Debug, Clone)]
enum Event {
    Deliver {
        from: NodeId,
        to: NodeId,
        message: Words,
    },
    Timer {
        at: NodeId,
        timer: Timer,
        number: u64,
    },
    Synced {
        at: NodeId,
        incarnation: u32,
    },
    /// A peer's process is found to be gone.
    Gone {
        at: NodeId,
        peer: NodeId,
    },
    Up {
        at: NodeId,
        peer: NodeId,
    },
    Propose,
    Crash(NodeId),
    Restart(NodeId),
    Pause(NodeId),
    Resume(NodeId),
    Cut(NodeId, NodeId),
    Mend(NodeId, NodeId),
}

/// What happened, as everybody together saw it.
#[derive(Debug, Default)]
struct History {
    leaders: BTreeMap<Term, NodeId>,
    committed: BTreeMap<u64, (u64, Bytes)>,
    acknowledged: BTreeSet<Bytes>,
    violation: Option<String>,
}

struct Run {
    cluster: Cluster,
    hosts: BTreeMap<NodeId, Host>,
    queue: Queue<Event>,
    chance: Chance,
    now_us: u64,
    next_number: u64,
    cut: BTreeSet<(NodeId, NodeId)>,
    loss_ppm: u32,
    disk_us: u64,
    proposals: u64,
    /// What was proposed after the faults, and has to come through.
    last_words: Option<Bytes>,
    history: History,
    steps: u64,
}

impl Run {
    fn new(cluster: Cluster, seed: u64) -> Self {
        let host = |_| Host {
            process: None,
            incarnation: 0,
            disk: Vec::new(),
            writing: VecDeque::new(),
            waiting: Vec::new(),
            timers: BTreeMap::new(),
            backlog: None,
            applied: 0,
        };
        Self {
            cluster,
            hosts: (1..=cluster.servers).map(|id| (NodeId(id), host(id))).collect(),
            queue: Queue::new(),
            chance: Chance::new(seed),
            now_us: 0,
            next_number: 0,
            cut: BTreeSet::new(),
            loss_ppm: 0,
            disk_us: 1_000,
            proposals: 0,
            last_words: None,
            history: History::default(),
            steps: 0,
        }
    }

    /// Draws what goes wrong.
    fn plan(&mut self) {
        let ids: Vec<NodeId> = self.hosts.keys().copied().collect();
        for id in &ids {
            let at_us = self.chance.between(0, 100_000);
            self.queue.push(at_us, Event::Restart(*id));
        }
        self.queue.push(PROPOSALS_EVERY_US, Event::Propose);
        if !self.cluster.all_faults {
            return;
        }
        self.loss_ppm = if self.chance.happens(500_000) { self.chance.between(0, 100_000) as u32 } else { 0 };
        self.disk_us = if self.chance.happens(300_000) { 60_000 } else { 3_000 };
        for _ in 0..self.chance.between(0, 12) {
            self.plan_fault(&ids);
        }
        for id in ids {
            self.queue.push(FAULTS_END_US, Event::Restart(id));
            self.queue.push(FAULTS_END_US, Event::Resume(id));
        }
    }

    fn plan_fault(&mut self, ids: &[NodeId]) {
        let from_us = self.chance.between(100_000, FAULTS_END_US);
        let until_us = (from_us + self.chance.between(1_000, 2_000_000)).min(FAULTS_END_US);
        let id = self.chance.pick(ids);
        match self.chance.below(4) {
            0 => self.queue.push(from_us, Event::Pause(id)),
            1 => self.plan_partition(ids, from_us, until_us),
            _ => self.queue.push(from_us, Event::Crash(id)),
        }
        self.queue.push(until_us, Event::Resume(id));
        self.queue.push(until_us, Event::Restart(id));
    }

    /// Two sides, in both directions or in one.
    fn plan_partition(&mut self, ids: &[NodeId], from_us: u64, until_us: u64) {
        let sides: BTreeMap<NodeId, bool> = ids.iter().map(|id| (*id, self.chance.happens(500_000))).collect();
        let is_one_way = self.chance.happens(300_000);
        for (from, to) in ids.iter().flat_map(|from| ids.iter().map(move |to| (*from, *to))) {
            if sides[&from] != sides[&to] && !(is_one_way && sides[&from]) {
                self.queue.push(from_us, Event::Cut(from, to));
                self.queue.push(until_us, Event::Mend(from, to));
            }
        }
    }

    /// Everybody is up and agrees, and what was said last is known to all.
    fn is_over(&self) -> bool {
        let heard = |words: &Bytes| self.history.acknowledged.contains(words);
        self.now_us > self.end_us() + HEALED_US || self.last_words.as_ref().is_some_and(heard)
    }

    const fn end_us(&self) -> u64 {
        if self.cluster.all_faults { FAULTS_END_US } else { 300_000 }
    }

    fn next_event(&mut self) -> bool {
        let Some((at_us, event)) = self.queue.pop() else { return false };
        self.now_us = at_us;
        let at = match &event {
            Event::Deliver { to, .. } => Some(*to),
            Event::Timer { at, .. } | Event::Synced { at, .. } | Event::Gone { at, .. } | Event::Up { at, .. } => {
                Some(*at)
            }
            _ => None,
        };
        if let Some(backlog) = at.and_then(|at| self.host(at).backlog.as_mut()) {
            backlog.push(event);
            return true;
        }
        self.on_event(event);
        true
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver { from, to, message } => {
                if !self.cut.contains(&(from, to)) {
                    self.step(to, Input::Message { from, message });
                }
            }
            Event::Timer { at, timer, number } => {
                if self.host(at).timers.get(&timer) == Some(&number) {
                    self.host(at).timers.remove(&timer);
                    self.step(at, Input::Timer(timer));
                }
            }
            Event::Synced { at, incarnation } => self.on_synced(at, incarnation),
            Event::Gone { at, peer } => {
                // Only a refusal counts, and a cut link cannot refuse.
                if self.host(peer).process.is_none() && !self.cut.contains(&(peer, at)) {
                    self.step(at, Input::Command(Command::Gone(peer)));
                }
            }
            Event::Up { at, peer } => self.step(at, Input::LinkUp(peer)),
            Event::Propose => self.on_propose(),
            Event::Crash(id) => self.crash(id),
            Event::Restart(id) => self.restart(id),
            Event::Pause(id) => self.host(id).backlog = Some(Vec::new()),
            Event::Resume(id) => self.resume(id),
            Event::Cut(from, to) => _ = self.cut.insert((from, to)),
            Event::Mend(from, to) => {
                self.cut.remove(&(from, to));
                self.queue.push(self.now_us + 1_000, Event::Up { at: to, peer: from });
            }
        }
    }

    fn host(&mut self, id: NodeId) -> &mut Host {
        self.hosts.get_mut(&id).expect("every server has a host")
    }

    /// Messages first, then timers: a pause of one's own is nobody else's silence.
    fn resume(&mut self, id: NodeId) {
        let Some(mut backlog) = self.host(id).backlog.take() else { return };
        backlog.sort_by_key(|event| matches!(event, Event::Timer { .. }));
        backlog.into_iter().for_each(|event| self.queue.push(self.now_us, event));
    }

    /// Any prefix of what was being written may have reached the disk; the rest is gone.
    fn crash(&mut self, id: NodeId) {
        let unsynced = self.host(id).writing.len() as u64;
        let kept = self.chance.between(0, unsynced);
        let host = self.host(id);
        host.process = None;
        host.backlog = None;
        host.timers.clear();
        host.waiting.clear();
        let written: Vec<_> = host.writing.drain(..).take(kept as usize).collect();
        host.disk.extend(written.into_iter().flat_map(|(_, records)| records));
        for peer in self.peers(id) {
            let at_us = self.now_us + self.chance.between(50, 3_000);
            self.queue.push(at_us, Event::Gone { at: peer, peer: id });
        }
    }

    fn restart(&mut self, id: NodeId) {
        if self.host(id).process.is_some() {
            return;
        }
        let process = server(id, self.cluster.servers, self.host(id).disk.clone());
        let host = self.host(id);
        host.incarnation += 1;
        host.applied = 0;
        host.process = Some(process);
        self.step(id, Input::Command(Command::Boot));
        for peer in self.peers(id) {
            self.queue.push(self.now_us + 1_000, Event::Up { at: peer, peer: id });
            self.queue.push(self.now_us + 1_500, Event::Gone { at: id, peer });
        }
    }

    fn peers(&self, id: NodeId) -> Vec<NodeId> {
        self.hosts.keys().copied().filter(|peer| *peer != id).collect()
    }

    /// A client asks whoever leads to write something, now and then.
    fn on_propose(&mut self) {
        self.queue.push(self.now_us + PROPOSALS_EVERY_US, Event::Propose);
        let leads =
            |host: &Host| host.process.as_ref().is_some_and(|server| server.replica().view().0 == Role::Leader);
        let leaders: Vec<NodeId> = self
            .hosts
            .iter()
            .filter(|(_, host)| leads(host) && host.backlog.is_none())
            .map(|(id, _)| *id)
            .collect();
        if leaders.is_empty() {
            return;
        }
        self.proposals += 1;
        let words = Bytes::from(format!("{}", self.proposals).into_bytes());
        if self.now_us > self.end_us() {
            self.last_words = Some(words.clone());
        }
        let leader = self.chance.pick(&leaders);
        self.step(leader, Input::Command(Command::Propose(words)));
    }

    fn on_synced(&mut self, at: NodeId, incarnation: u32) {
        let host = self.host(at);
        if host.incarnation != incarnation {
            return;
        }
        // One sync makes everything durable that was handed in before it ended.
        let Some((token, _)) = host.writing.back() else { return };
        let token = *token;
        let written: Vec<_> = host.writing.drain(..).flat_map(|(_, records)| records).collect();
        host.disk.extend(written);
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut host.waiting).into_iter().partition(|(after, ..)| *after <= token);
        host.waiting = waiting;
        ready.into_iter().for_each(|(_, to, message)| self.send(at, to, message));
        self.step(at, Input::Persisted(token));
    }

    fn step(&mut self, id: NodeId, input: Input<Server>) {
        let now_us = self.now_us;
        let Some(server) = self.host(id).process.as_mut() else { return };
        server.at(now_us);
        let mut out = Outbox::new();
        server.step(input, &mut out);
        self.steps += 1;
        for output in out.drain() {
            self.carry_out(id, output);
        }
    }

    fn carry_out(&mut self, id: NodeId, output: Output<Server>) {
        match output {
            Output::Send { to, message } => self.send(id, to, message),
            Output::SendAfter { token, to, message } => self.host(id).waiting.push((token, to, message)),
            Output::Persist { token, records } => self.persist(id, token, records),
            Output::Set { timer, delay } => self.set_timer(id, timer, delay),
            Output::Cancel(timer) => _ = self.host(id).timers.remove(&timer),
            Output::Notify(notice) => self.on_notice(id, notice),
            Output::Ignore(_) => {}
        }
    }

    fn persist(&mut self, id: NodeId, token: Token, records: Vec<Record>) {
        let disk_us = self.disk_us;
        let at_us = self.now_us + self.chance.between(50, disk_us);
        let host = self.host(id);
        host.writing.push_back((token, records));
        let incarnation = host.incarnation;
        self.queue.push(at_us, Event::Synced { at: id, incarnation });
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Words) {
        if self.now_us < self.end_us() && self.chance.happens(self.loss_ppm) {
            return;
        }
        let at_us = self.now_us + self.chance.between(100, 2_000);
        self.queue.push(at_us, Event::Deliver { from, to, message });
    }

    fn set_timer(&mut self, id: NodeId, timer: Timer, delay: Delay) {
        self.next_number += 1;
        let number = self.next_number;
        self.host(id).timers.insert(timer, number);
        let at_us = self.now_us + self.chance.between(delay.min_us, delay.max_us);
        self.queue.push(at_us, Event::Timer { at: id, timer, number });
    }

    fn on_notice(&mut self, id: NodeId, notice: Notice) {
        match notice {
            Notice::Leader(Some(leader), term, _) if leader == id => self.history.lead(id, term),
            Notice::Committed(entries) => {
                let leads = self.host(id).process.as_ref().is_some_and(|server| server.leader() == Some(id));
                self.host(id).applied = entries.last().map_or(0, |entry| entry.index);
                self.history.commit(id, &entries, leads);
            }
            _ => {}
        }
    }

    fn judge(&mut self) {
        let is_heard = self.last_words.as_ref().is_some_and(|words| self.history.acknowledged.contains(words));
        if self.history.violation.is_none() && !is_heard {
            self.history.violation = Some("liveness: no entry was committed after the faults had ended".to_owned());
        }
        let known: BTreeSet<&Bytes> = self.history.committed.values().map(|(_, data)| data).collect();
        let lost = self.history.acknowledged.iter().find(|words| !known.contains(words)).cloned();
        if let Some(lost) = lost {
            self.history.violation.get_or_insert(format!("durability: {lost:?} was acknowledged and is lost"));
        }
    }
}

impl History {
    fn lead(&mut self, id: NodeId, term: Term) {
        let first = *self.leaders.entry(term).or_insert(id);
        if first != id {
            self.violation.get_or_insert(format!("election safety: {first} and {id} both led in term {}", term.0));
        }
    }

    /// Entries are acknowledged by the leader that has seen them committed.
    fn commit(&mut self, id: NodeId, entries: &[Entry], leads: bool) {
        for entry in entries {
            let now = (entry.term, entry.data.clone());
            let first = self.committed.entry(entry.index).or_insert_with(|| now.clone());
            if *first != now {
                let message = format!("state machine safety: {id} committed another entry at {}", entry.index);
                self.violation.get_or_insert(message);
            }
            if leads && !entry.data.is_empty() {
                self.acknowledged.insert(entry.data.clone());
            }
        }
    }
}

fn server(id: NodeId, count: u64, records: Vec<Record>) -> Server {
    let servers = (1..=count).map(|id| (NodeId(id), SocketAddr::from(([127, 0, 0, 1], 7460)))).collect();
    let mut plan = Plan::new(id, servers);
    plan.rank = RankBy::Id;
    plan.server(records)
}
