//! Replicas in one process, each with a disk, judged at every step by the specification.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::machine::{Delay, Input, Moment, Outbox, Output, Token};
use primus_replica::message::{Entry, Message, Record};
use primus_replica::specification::{Cause, Event, Observable, Specification};
use primus_replica::{Command, ModelReplica, Notice, Replica, Role, Settings};

/// A replica with its disk.
pub(crate) struct Host<R> {
    pub(crate) replica: Option<R>,
    /// What is durable, and what is still being written.
    disk: Vec<Record>,
    pub(crate) writing: VecDeque<(Token, Vec<Record>)>,
    pub(crate) waiting: Vec<(Token, ServerId, Message)>,
    pub(crate) committed: Vec<Bytes>,
    pub(crate) notices: Vec<Notice>,
}

pub(crate) struct World<R> {
    pub(crate) hosts: Vec<Host<R>>,
    pub(crate) under_way: VecDeque<(ServerId, ServerId, Message)>,
    /// Does the disk finish its writes by itself?
    pub(crate) is_disk_fast: bool,
    /// Everything that happened, in order, and who says whether it was allowed.
    pub(crate) trace: Vec<(ServerId, Event)>,
    judge: Specification,
}

/// A replica that these tests can make.
pub(crate) trait Member: Observable {
    fn make(id: u64, count: u64, records: Vec<Record>) -> Self;
}

impl Member for Replica {
    fn make(id: u64, count: u64, records: Vec<Record>) -> Self {
        let settings = Settings {
            id: ServerId(id),
            voters: (1..=count).map(ServerId).collect(),
            tick: Delay::exactly_ms(25),
            backstop_ticks: 40 + 4 * id as usize,
            keep_entries: 2,
        };
        Self::new(settings, records)
    }
}

impl Member for ModelReplica {
    fn make(id: u64, count: u64, records: Vec<Record>) -> Self {
        let voters: Arc<[ServerId]> = (1..=count).map(ServerId).collect();
        Self::new(ServerId(id), voters, records)
    }
}

impl<R: Member> World<R> {
    pub(crate) fn new(count: u64) -> Self {
        let hosts = (1..=count).map(|id| Host {
            replica: Some(R::make(id, count, Vec::new())),
            disk: Vec::new(),
            writing: VecDeque::new(),
            waiting: Vec::new(),
            committed: Vec::new(),
            notices: Vec::new(),
        });
        Self {
            hosts: hosts.collect(),
            under_way: VecDeque::new(),
            is_disk_fast: true,
            trace: Vec::new(),
            judge: Specification::new((1..=count).map(ServerId).collect()),
        }
    }

    pub(crate) fn host(&mut self, id: u64) -> &mut Host<R> {
        &mut self.hosts[id as usize - 1]
    }

    /// The specification has the last word on everything that happens.
    fn note(&mut self, id: u64, event: Event) {
        let verdict = self.judge.allow(ServerId(id), &event);
        self.trace.push((ServerId(id), event));
        if let Err(rule) = verdict {
            let tail = self.trace.iter().rev().take(12).rev();
            let tail: Vec<_> = tail.map(|(id, event)| format!("{id}: {event:?}")).collect();
            panic!("replica {id}: {rule}\n{}", tail.join("\n"));
        }
    }

    pub(crate) fn step(&mut self, id: u64, input: Input<R>) {
        let Some(replica) = self.host(id).replica.as_mut() else { return };
        let mut out = Outbox::new();
        let cause = Cause::from(&input);
        replica.step(Moment::START, input, &mut out);
        let after = replica.observe();
        self.note(id, Event::Step(cause, after));
        for output in out.drain() {
            match output {
                Output::Send { to, message } => self.send(id, to, message),
                Output::SendAfter { token, to, message } => self.host(id).waiting.push((token, to, message)),
                Output::Persist { token, records } => self.host(id).writing.push_back((token, records)),
                Output::Notify(Notice::Committed(entries)) => {
                    let data = entries.into_iter().map(|entry: Entry| entry.data).filter(|data| !data.is_empty());
                    self.host(id).committed.extend(data);
                }
                Output::Notify(notice) => self.host(id).notices.push(notice),
                Output::Set { .. } | Output::Cancel(_) | Output::Ignore(_) => {}
            }
        }
    }

    fn send(&mut self, id: u64, to: ServerId, message: Message) {
        self.note(id, Event::Left(to, message.clone()));
        self.under_way.push_back((ServerId(id), to, message));
    }

    pub(crate) fn command(&mut self, id: u64, command: Command) {
        self.step(id, Input::Command(command));
        self.settle();
    }

    pub(crate) fn sync(&mut self, id: u64) -> bool {
        let Some((token, records)) = self.host(id).writing.pop_front() else { return false };
        self.host(id).disk.extend(records.clone());
        self.note(id, Event::Durable(records));
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.host(id).waiting).into_iter().partition(|(after, ..)| *after <= token);
        self.host(id).waiting = waiting;
        ready.into_iter().for_each(|(_, to, message)| self.send(id, to, message));
        self.step(id, Input::Persisted(token));
        true
    }

    pub(crate) fn settle(&mut self) {
        loop {
            let mut is_busy = false;
            while let Some((from, to, message)) = self.under_way.pop_front() {
                is_busy = true;
                self.step(to.0, Input::Message { from, message });
            }
            for id in 1..=self.hosts.len() as u64 {
                is_busy |= self.is_disk_fast && self.sync(id);
            }
            if !is_busy {
                return;
            }
        }
    }

    /// What was not durable is gone, and so is everything that waited for it.
    pub(crate) fn crash(&mut self, id: u64) {
        let host = self.host(id);
        host.replica = None;
        host.writing.clear();
        host.waiting.clear();
    }

    pub(crate) fn restart(&mut self, id: u64) {
        let count = self.hosts.len() as u64;
        let host = self.host(id);
        let replica = R::make(id, count, host.disk.clone());
        let after = replica.observe();
        host.replica = Some(replica);
        host.committed.clear();
        self.note(id, Event::Restart(after));
    }

    pub(crate) fn leaders(&self) -> Vec<u64> {
        let view = |host: &Host<R>| host.replica.as_ref().map(|replica| replica.view().0);
        let leads = (1..).zip(&self.hosts).filter(|(_, host)| view(host) == Some(Role::Leader));
        leads.map(|(id, _)| id).collect()
    }
}
