//! The workers of an exploration of loans: what each hears and says, and what its links carry.

use std::collections::VecDeque;

use primus_core::farm::{self, Assignment};
use primus_core::ledger::{Attempt, CommandLine, Held, JobId, LoanId, TaskId, Work};
use primus_core::loan::WorkerMessage;
use primus_core::loan::placement::Place;
use primus_core::machine::{Input, Output};
use primus_core::planted::Planted;
use primus_core::{ServerId, Term};
use primus_server::worker::{Command, Happening, Message, Notice, Peer, Worker};

use super::action::Action;
use super::scene::{Scene, TICK_MS};
use super::{BORROWER, Farm, LATE_CALL, LENDER};
use crate::host::{Effects, Host, call, hears, meets};

/// A worker, and what is on its way from and to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) host: Host,
    /// Does it reach its own farm, and the other one?
    pub(super) links: [bool; 2],
    /// What its own leader has said,
    pub(super) down: VecDeque<WorkerMessage>,
    /// what it has said itself,
    pub(super) up: VecDeque<WorkerMessage>,
    /// and what the other leader has.
    pub(super) abroad: VecDeque<WorkerMessage>,
    /// It is about to introduce itself abroad, under this loan.
    pub(super) greeting: Option<LoanId>,
}

impl Member {
    pub(super) fn new(worker: usize, planted: Planted) -> Self {
        Self {
            host: Host::new(format!("w{}", worker + 1), TICK_MS * 1000, planted),
            links: [true; 2],
            down: VecDeque::new(),
            up: VecDeque::new(),
            abroad: VecDeque::new(),
            greeting: None,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.host.name()
    }

    /// Does it run something, for whichever farm?
    pub(super) fn is_busy(&self) -> bool {
        self.host.runs(false).or(self.host.runs(true)).is_some()
    }

    /// It is away, and takes nothing new there.
    pub(super) fn is_returning(&self) -> bool {
        matches!(self.host.place(), Some(Place::Returning { .. }))
    }

    pub(super) fn deliveries(&self, worker: usize, actions: &mut Vec<Action>) {
        actions.extend((!self.down.is_empty()).then_some(Action::Call(worker)));
        actions.extend((!self.up.is_empty()).then_some(Action::WorkerMessage(worker)));
        actions.extend((!self.abroad.is_empty()).then_some(Action::Abroad(worker)));
        actions.extend(self.greeting.map(|_| Action::Greeting(worker)));
        actions.extend(self.host.writes(true).then_some(Action::Synced(worker)));
    }

    pub(super) fn call(&mut self, word: WorkerMessage) {
        if self.host.is_alive() && self.links[LENDER] && self.down.back() != Some(&word) {
            self.down.push_back(word);
        }
    }

    pub(super) fn call_from_abroad(&mut self, word: WorkerMessage) {
        if self.host.is_away() && self.links[BORROWER] && self.abroad.back() != Some(&word) {
            self.abroad.push_back(word);
        }
    }

    pub(super) fn greet(&mut self) {
        self.greeting = self.host.away_under().filter(|_| self.links[BORROWER]);
    }

    pub(super) fn forget(&mut self, farm: Farm) {
        if farm == LENDER {
            self.down.clear();
            self.up.clear();
        } else {
            self.abroad.clear();
            self.greeting = None;
        }
    }

    pub(super) fn die(&mut self, is_synced: bool) {
        self.host.die(is_synced);
        [LENDER, BORROWER].into_iter().for_each(|farm| self.forget(farm));
    }

    /// The leader of a farm, if the worker has anything to do with that farm.
    fn peer(&self, farm: Farm, leader: ServerId) -> Option<Peer> {
        if farm == LENDER { Some(Host::home(leader)) } else { self.host.abroad(leader) }
    }
}

/// What workers hear.
impl Scene {
    pub(super) fn start(&mut self, worker: usize) {
        let effects = self.members[worker].host.start();
        self.carry_out(worker, effects);
    }

    pub(super) fn on_call(&mut self, worker: usize) {
        let Some(word) = self.members[worker].down.pop_front() else { return };
        let knows = |loan: &LoanId| self.members[worker].host.knows(*loan);
        if matches!(&word, WorkerMessage::Redirect { loan, .. } if knows(loan)) {
            self.course.pass(LATE_CALL);
        }
        self.worker_turns(worker, LENDER, |leader| [hears(leader, call(word))]);
    }

    pub(super) fn on_abroad(&mut self, worker: usize) {
        let Some(word) = self.members[worker].abroad.pop_front() else { return };
        self.worker_turns(worker, BORROWER, |leader| [hears(leader, call(word))]);
    }

    pub(super) fn on_synced(&mut self, worker: usize) {
        let effects = self.members[worker].host.sync(true);
        self.carry_out(worker, effects);
    }

    /// The leader of a farm welcomes it.
    pub(super) fn meet(&mut self, farm: Farm, worker: usize) {
        let term = Term(self.leader(farm).0);
        self.worker_turns(worker, farm, |leader| meets(leader, term));
    }

    /// Its link to the leader of a farm is gone.
    pub(super) fn part(&mut self, farm: Farm, worker: usize) {
        self.worker_turns(worker, farm, |leader| [Input::LinkDown(leader)]);
    }

    /// The leader of a farm gives it something.
    pub(super) fn occupy(&mut self, farm: Farm, worker: usize) {
        let term = Term(self.leader(farm).0);
        let run = Message::Work(farm::Message::Run(term, vec![task()]));
        if !self.members[worker].is_busy() {
            self.worker_turns(worker, farm, |leader| [hears(leader, run)]);
        }
    }

    /// What it runs for a farm ends, and nothing is to be told of it.
    pub(super) fn end(&mut self, farm: Farm, worker: usize) {
        if let Some(held) = self.members[worker].host.runs(farm == BORROWER) {
            let abandoned = |leader: Peer| Input::Command(Command::Abandoned(leader.farm, held));
            self.worker_turns(worker, farm, |leader| [abandoned(leader)]);
        }
    }

    pub(super) fn pass_time_of(&mut self, worker: usize) {
        self.members[worker].host.now = self.now();
        while let Some(timer) = self.members[worker].host.due() {
            let effects = self.members[worker].host.fire(timer);
            self.carry_out(worker, effects);
        }
    }

    fn worker_turns<const N: usize>(
        &mut self,
        worker: usize,
        farm: Farm,
        inputs: impl FnOnce(Peer) -> [Input<Worker>; N],
    ) {
        let leader = self.leader(farm);
        let member = &mut self.members[worker];
        let Some(peer) = member.peer(farm, leader) else { return };
        let effects = member.host.turn(inputs(peer));
        self.carry_out(worker, effects);
    }

    fn carry_out(&mut self, worker: usize, effects: Effects) {
        let member = &mut self.members[worker];
        for effect in effects {
            match effect {
                Output::Send { message: Message::Placement(word), .. } if member.up.back() != Some(&word) => {
                    member.up.push_back(word);
                }
                Output::Notify(Notice::Happened(Happening::Lent(..))) => member.greet(),
                Output::Notify(Notice::Happened(Happening::Home(_))) => member.forget(BORROWER),
                _ => {}
            }
        }
    }
}

/// Something to do. All tasks are alike, and a worker has one at a time.
fn task() -> Assignment {
    Assignment {
        held: Held { task: TaskId { job: JobId(1), index: 1 }, attempt: Attempt { term: Term(1), sequence: 1 } },
        work: Work::Command(CommandLine::default()),
        argument: String::new(),
        number: 1,
        timeout_ms: None,
        cpus: 1,
        is_once: false,
    }
}
