//! Explorations of a founding: three servers that list each other, in any kind of time.
//!
//! What a server says arrives in order, at any moment. A budget says how often a process dies, a disk is lost, a list is edited, a
//! server is told to found alone, or a word of a dead process arrives nevertheless, whatever else has arrived before.
//!
//! Left out, to keep the number of states small:
//!
//! - A process that dies is followed by another one at once. A process that starts late is one whose words arrive late.
//! - A write is durable before anything else happens, unless its process dies first. Until then nothing is said, so that the others
//!   do not notice; with the bug that says it before, its words are under way when it dies.
//! - Links are there wherever one of two servers lists the other one.
//!
//! A cluster *can acknowledge* from the moment at which the disks of a majority are founded, and what it has acknowledged is lost
//! only if most of its disks are. What must always hold is that no other cluster can acknowledge from then on. And wherever nothing
//! is under way, all are founded or say what a person has to do.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use primus_core::founding::{Claim, Command, Disks, Founding, Notice, Phase, Reason, Record, StoreId};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{ServerId, Token};
use primus_lab::story::founding::{rules, server, store};

use self::Chance::{Alone, Crash, Edit, Late, Wipe};
use crate::frame::{Course, Milestone, Setting};

/// Three servers without a cluster.
#[derive(Debug, Clone)]
pub struct Servers {
    /// Have they agreed, and all started again?
    pub have_agreed: bool,
    /// Have servers 1 and 2 read a list since that names only them?
    pub have_edited: bool,
    /// Have they old data?
    pub are_old: bool,
    /// One that never runs.
    pub absent: Option<ServerId>,
    /// A bug that is to be found.
    pub planted: Planted,
}

/// What happens only so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Chance {
    /// A process dies, and another one takes its place.
    Crash,
    /// The same, and its disk is lost.
    Wipe,
    /// A process starts again with another list.
    Edit,
    /// Somebody tells a server to found by itself.
    Alone,
    /// A word of a dead process arrives.
    Late,
}

/// All three are founded.
pub const ALL_FOUNDED: Milestone = Milestone("all are founded");
/// A process died whose disk was empty.
pub const EMPTY_CRASHED: Milestone = Milestone("settles after the crash of an empty one");
/// A process died that had agreed.
pub const AGREED_CRASHED: Milestone = Milestone("settles after the crash of one that had agreed");
/// A process died that was founded.
pub const FOUNDED_CRASHED: Milestone = Milestone("settles after the crash of a founded one");
/// A process died before its write was durable.
pub const WRITER_CRASHED: Milestone = Milestone("settles after the crash of one that was writing");
/// A wiped disk is refused by founded ones.
pub const REFUSED: Milestone = Milestone("a wiped one is refused");
/// A server that had agreed agreed on other disks.
pub const AGREED_AGAIN: Milestone = Milestone("settles after one has agreed again");
/// Lists stay different, and a server says so.
pub const LISTS_DIFFERED: Milestone = Milestone("lists differ in the end");
/// A late word arrived.
pub const LATE_WORD: Milestone = Milestone("settles after a late word");

const ONE_CLUSTER: &str = "of what was acknowledged there is one cluster";
const NEVER_CHANGES: &str = "a founded disk stays what it is";
const ALL_END: &str = "where nothing is under way, all are founded or say what to do";

/// One state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scene {
    hosts: [Host; 3],
    /// From each to each, in order.
    words: [[Vec<Arc<Claim>>; 3]; 3],
    /// Words of dead processes.
    late: Vec<Word>,
    /// Clusters that could acknowledge something, and have not lost most of their disks.
    acknowledged: Vec<Arc<Record>>,
    course: Course<Chance>,
}

/// A server: its process, and its disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Host {
    machine: Arc<Founding>,
    list: BTreeSet<ServerId>,
    store: StoreId,
    disks: u8,
    phase: Phase,
    writing: Option<Arc<Write>>,
    /// What this disk was founded for, as soon as its server acts on it.
    acts_for: Option<Arc<Record>>,
    remembers: Option<Disks>,
    runs: bool,
}

/// What is on its way to a disk, and what is said afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Write {
    token: Token,
    phase: Phase,
    after: Vec<(usize, Claim)>,
}

/// What somebody said to somebody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word {
    from: usize,
    to: usize,
    claim: Arc<Claim>,
}

/// Something that happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The first word from one to another arrives.
    Deliver(usize, usize),
    /// A word of a dead process arrives.
    Late(Word),
    /// A write is durable.
    Sync(usize),
    /// A process dies.
    Crash(usize),
    /// A process dies, and its disk is lost.
    Wipe(usize),
    /// A process starts again with this list.
    Edit(usize, BTreeSet<ServerId>),
    /// A server founds by itself.
    Alone(usize),
}

impl Setting for Servers {
    type Scene = Scene;
    type Action = Action;
    type Chance = Chance;

    fn open(&self, course: Course<Chance>) -> Scene {
        let hosts = [0, 1, 2].map(|place| self.host(place));
        let mut scene =
            Scene { hosts, words: Default::default(), late: Vec::new(), acknowledged: Vec::new(), course };
        for place in 0..3 {
            scene.hosts[place].runs = self.absent != Some(id(place));
            scene.connect(place);
        }
        scene
    }

    fn urgent(&self, scene: &Scene, actions: &mut Vec<Action>) {
        if let Some(place) = scene.hosts.iter().position(|host| host.writing.is_some()) {
            actions.push(Action::Sync(place));
            scene.course.offer(Crash, actions, [Action::Crash(place)]);
        }
    }

    fn events(&self, scene: &Scene, actions: &mut Vec<Action>) {
        let pairs = pairs().filter(|(from, to)| !scene.words[*from][*to].is_empty());
        actions.extend(pairs.map(|(from, to)| Action::Deliver(from, to)));
    }

    fn choices(&self, scene: &Scene, actions: &mut Vec<Action>) {
        let running = || (0..3).filter(|place| scene.hosts[*place].runs);
        scene.course.offer(Crash, actions, running().map(Action::Crash));
        scene.course.offer(Wipe, actions, running().map(Action::Wipe));
        scene.course.offer(Edit, actions, running().flat_map(|place| scene.edits(place)));
        scene.course.offer(Alone, actions, running().map(Action::Alone));
        let mut late = scene.late.clone();
        late.dedup();
        scene.course.offer(Late, actions, late.into_iter().map(Action::Late));
    }

    fn act(&self, scene: &mut Scene, action: Action) {
        match action {
            Action::Deliver(from, to) => scene.deliver(from, to),
            Action::Late(word) => scene.deliver_late(&word),
            Action::Sync(place) => scene.sync(place),
            Action::Crash(place) => scene.crash(place, self.planted),
            Action::Wipe(place) => scene.wipe(place, self.planted),
            Action::Edit(place, list) => scene.edit(place, list, self.planted),
            Action::Alone(place) => {
                scene.course.spend(Alone);
                scene.step(place, Input::Command(Command::Alone));
            }
        }
        if scene.is_founded_by_all() {
            scene.course.pass(ALL_FOUNDED);
        }
    }

    fn course(scene: &Scene) -> &Course<Chance> {
        &scene.course
    }

    fn judge(&self, scene: &Scene) -> Option<&'static str> {
        (self.has_settled(scene) && !self.ends_well(scene)).then_some(ALL_END)
    }

    fn has_settled(&self, scene: &Scene) -> bool {
        scene.is_quiet()
    }
}

impl Servers {
    fn host(&self, place: usize) -> Host {
        let all: BTreeSet<_> = (0..3).map(id).collect();
        let others = all.iter().filter(|other| **other != id(place));
        let remembers = self.are_old.then(|| others.map(|other| (*other, first(*other))).collect());
        let store = first(id(place));
        let record = rules(self.planted).record(all.iter().map(|id| (*id, first(*id))).collect());
        let list = if self.have_edited && place < 2 { (0..2).map(id).collect() } else { all };
        let phase = if self.have_agreed { Phase::Agreed(record) } else { Phase::Empty };
        let machine = make(place, store, &list, remembers.as_ref(), phase.clone(), self.planted);
        let (writing, acts_for) = (None, None);
        Host { machine, list, store, disks: 1, phase, writing, acts_for, remembers, runs: true }
    }

    /// A late word can hide what a peer says now until the link breaks: such scenes are judged by what they acknowledge only.
    fn ends_well(&self, scene: &Scene) -> bool {
        let is_plain =
            !scene.course.plans(Edit) && !scene.course.plans(Alone) && !self.have_edited && !self.are_old;
        let waiting = || scene.hosts.iter().filter(|host| host.runs && host.acts_for.is_none());
        let reasons: Vec<_> = waiting().filter_map(|host| host.machine.reason()).collect();
        let is_refused = |reason: &Reason| matches!(reason, Reason::Belongs { .. });
        match () {
            () if scene.course.plans(Late) || reasons.is_empty() => true,
            () if is_plain => reasons.len() < 3 && reasons.iter().all(is_refused),
            () => reasons.iter().any(Reason::is_lasting),
        }
    }
}

impl Scene {
    fn is_quiet(&self) -> bool {
        let is_silent = pairs().all(|(from, to)| self.words[from][to].is_empty());
        is_silent && self.hosts.iter().all(|host| host.writing.is_none())
    }

    fn is_founded_by_all(&self) -> bool {
        let [first, others @ ..] = &self.hosts;
        first.acts_for.is_some() && others.iter().all(|host| host.acts_for == first.acts_for)
    }

    fn linked(&self, place: usize) -> Vec<usize> {
        let lists = |one: usize, other: usize| self.hosts[one].list.contains(&id(other));
        let runs = |peer: usize| self.hosts[place].runs && self.hosts[peer].runs;
        let is_linked =
            |peer: &usize| *peer != place && runs(*peer) && (lists(place, *peer) || lists(*peer, place));
        (0..3).filter(is_linked).collect()
    }

    /// All others, or all but one of them.
    fn edits(&self, place: usize) -> Vec<Action> {
        let all: BTreeSet<_> = (0..3).map(id).collect();
        let without = |other: usize| all.iter().copied().filter(|member| *member != id(other)).collect();
        let lists = (0..3).filter(|other| *other != place).map(without).chain([all.clone()]);
        let other_lists = lists.filter(|list| *list != self.hosts[place].list);
        other_lists.map(|list| Action::Edit(place, list)).collect()
    }

    fn deliver(&mut self, from: usize, to: usize) {
        let claim = self.words[from][to].remove(0);
        self.step(to, Input::Message { from: id(from), message: Arc::unwrap_or_clone(claim) });
    }

    fn deliver_late(&mut self, word: &Word) {
        self.course.spend(Late);
        self.course.pass(LATE_WORD);
        let place = self.late.iter().position(|late| late == word).expect("only what was said can arrive");
        let Word { from, to, claim } = self.late.remove(place);
        self.forget_late();
        self.step(to, Input::Message { from: id(from), message: Arc::unwrap_or_clone(claim) });
    }

    /// What cannot arrive any more makes no difference.
    fn forget_late(&mut self) {
        if !self.course.may(Late) {
            self.late.clear();
        }
        self.late.sort();
    }

    fn sync(&mut self, place: usize) {
        let host = &mut self.hosts[place];
        let Some(write) = host.writing.take() else { return };
        if let (Phase::Agreed(_), Phase::Agreed(_)) = (&host.phase, &write.phase) {
            self.course.pass(AGREED_AGAIN);
        }
        self.course.must(NEVER_CHANGES, host.phase.founded().is_none());
        let Write { token, phase, after } = Arc::unwrap_or_clone(write);
        host.phase = phase;
        for (to, claim) in after {
            self.words[place][to].push(Arc::new(claim));
        }
        self.step(place, Input::Persisted(token));
    }

    fn crash(&mut self, place: usize, planted: Planted) {
        self.course.spend(Crash);
        let host = &self.hosts[place];
        self.course.pass(match (&host.writing, &host.phase) {
            (Some(_), _) => WRITER_CRASHED,
            (None, Phase::Empty) => EMPTY_CRASHED,
            (None, Phase::Agreed(_)) => AGREED_CRASHED,
            (None, Phase::Founded(_)) => FOUNDED_CRASHED,
        });
        self.restart(place, planted);
    }

    fn wipe(&mut self, place: usize, planted: Planted) {
        self.course.spend(Wipe);
        let host = &mut self.hosts[place];
        host.disks += 1;
        host.store = store(id(place), host.disks);
        (host.phase, host.acts_for, host.remembers) = (Phase::Empty, None, None);
        let is_there = |(member, store): (&ServerId, &StoreId)| self.hosts[place_of(*member)].store == *store;
        self.acknowledged.retain(|record| {
            let left = record.members.iter().filter(|disk| is_there(*disk)).count();
            // Of an even number, half of the disks may still have what was acknowledged.
            2 * left >= record.members.len()
        });
        self.restart(place, planted);
    }

    fn edit(&mut self, place: usize, list: BTreeSet<ServerId>, planted: Planted) {
        self.course.spend(Edit);
        self.disconnect(place);
        self.hosts[place].list = list;
        self.begin(place, planted);
    }

    fn restart(&mut self, place: usize, planted: Planted) {
        self.disconnect(place);
        self.begin(place, planted);
    }

    /// The process is gone, its links break, and what was on them is lost or late.
    fn disconnect(&mut self, place: usize) {
        for peer in self.linked(place) {
            self.words[peer][place].clear();
            let words = std::mem::take(&mut self.words[place][peer]);
            self.late.extend(words.into_iter().map(|claim| Word { from: place, to: peer, claim }));
            self.step(peer, Input::LinkDown(id(place)));
        }
        self.forget_late();
    }

    fn begin(&mut self, place: usize, planted: Planted) {
        let host = &mut self.hosts[place];
        host.writing = None;
        let (list, remembers) = (&host.list, host.remembers.as_ref());
        host.machine = make(place, host.store, list, remembers, host.phase.clone(), planted);
        for peer in self.linked(place) {
            self.step(peer, Input::LinkUp(id(place)));
        }
        self.connect(place);
    }

    fn connect(&mut self, place: usize) {
        self.step(place, Input::Command(Command::Start));
        for peer in self.linked(place) {
            self.step(place, Input::LinkUp(id(peer)));
        }
    }

    fn step(&mut self, place: usize, input: Input<Founding>) {
        if !self.hosts[place].runs {
            return;
        }
        let mut out = Outbox::new();
        Arc::make_mut(&mut self.hosts[place].machine).step(Moment::START, input, &mut out);
        for output in out.drain() {
            match output {
                Output::Send { to, message } => self.words[place][place_of(to)].push(Arc::new(message)),
                Output::Persist { token, records } => self.persist(place, token, records),
                Output::SendAfter { to, message, .. } => self.say_after(place, place_of(to), message),
                Output::Notify(Notice::Founded(record)) => self.found(place, record),
                Output::Notify(Notice::Waiting(reason)) => self.note(place, &reason),
                Output::Set { .. } | Output::Cancel(_) | Output::Ignore(_) => {}
            }
        }
    }

    fn persist(&mut self, place: usize, token: Token, mut records: Vec<Phase>) {
        let phase = records.pop().expect("a phase is written");
        self.hosts[place].writing = Some(Arc::new(Write { token, phase, after: Vec::new() }));
    }

    fn say_after(&mut self, place: usize, to: usize, claim: Claim) {
        let write = self.hosts[place].writing.as_mut().expect("such a word waits for a write");
        Arc::make_mut(write).after.push((to, claim));
    }

    fn note(&mut self, place: usize, reason: &Reason) {
        match reason {
            Reason::Belongs { .. } if self.hosts[place].disks > 1 => self.course.pass(REFUSED),
            Reason::ListsDiffer { .. } => self.course.pass(LISTS_DIFFERED),
            _ => {}
        }
    }

    /// From now on it votes, and writes what the leader of its cluster says.
    fn found(&mut self, place: usize, record: Record) {
        let record = Arc::new(record);
        self.hosts[place].acts_for = Some(Arc::clone(&record));
        let acts = |(member, store): &(&ServerId, &StoreId)| {
            let host = &self.hosts[place_of(**member)];
            host.store == **store && host.acts_for.as_ref() == Some(&record)
        };
        let acting = record.members.iter().filter(acts).count();
        if 2 * acting > record.members.len() && !self.acknowledged.contains(&record) {
            self.course.must(ONE_CLUSTER, self.acknowledged.is_empty());
            self.acknowledged.push(record);
        }
    }
}

fn make(
    place: usize,
    store: StoreId,
    list: &BTreeSet<ServerId>,
    remembers: Option<&Disks>,
    phase: Phase,
    planted: Planted,
) -> Arc<Founding> {
    let server = server(id(place), store, list, remembers.cloned());
    Arc::new(Founding::new(server, phase, Arc::new(rules(planted))))
}

/// The disk that a server has at first.
fn first(id: ServerId) -> StoreId {
    store(id, 1)
}

fn id(place: usize) -> ServerId {
    ServerId(place as u64 + 1)
}

fn place_of(id: ServerId) -> usize {
    usize::try_from(id.0 - 1).expect("there are three")
}

fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deliver(from, to) => write!(f, "deliver {} {}", id(*from), id(*to)),
            Self::Late(Word { from, to, claim }) => write!(f, "late {} {} {claim}", id(*from), id(*to)),
            Self::Sync(place) => write!(f, "sync {}", id(*place)),
            Self::Crash(place) => write!(f, "crash {0}, start {0}", id(*place)),
            Self::Wipe(place) => write!(f, "crash {0}, wipe {0}, start {0}", id(*place)),
            Self::Edit(place, list) => {
                write!(f, "crash {0}, list {0}", id(*place))?;
                list.iter().try_for_each(|member| write!(f, " {member}"))?;
                write!(f, ", start {}", id(*place))
            }
            Self::Alone(place) => write!(f, "alone {}", id(*place)),
        }
    }
}
