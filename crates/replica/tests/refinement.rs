//! Engine and model refine one specification: seeded schedules of everything that can go wrong, every step judged.
//!
//! That the judge can say no is shown with traces of the engine that were tampered with.

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::machine::Input;
use primus_replica::message::{Kind, Message, Record};
use primus_replica::replica::Tick;
use primus_replica::specification::{Cause, Event, Specification, View};
use primus_replica::{Command, ModelReplica, Replica, Role};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use common::{Member, World};

const SEEDS: u64 = 150;
const STEPS: u64 = 1_500;
/// The engine gives a transfer up after as many ticks as its backstop has.
const TRANSFER_TICKS: usize = 64;

/// A group and what happens to it next.
struct Run<R> {
    world: World<R>,
    chance: Xoshiro256PlusPlus,
    proposals: u64,
}

impl<R: Member> Run<R> {
    fn new(seed: u64) -> Self {
        let count = if seed.is_multiple_of(3) { 5 } else { 3 };
        let mut world = World::new(count);
        world.is_disk_fast = false;
        Self { world, chance: Xoshiro256PlusPlus::seed_from_u64(seed), proposals: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.chance.next_u64() % bound.max(1) as u64) as usize
    }

    fn replica(&mut self) -> u64 {
        self.below(self.world.hosts.len()) as u64 + 1
    }

    fn leader_or_any(&mut self) -> u64 {
        self.world.leaders().last().copied().unwrap_or(1)
    }

    /// Any message may be next, any may be lost or come twice, and any process may die with what it had not written.
    fn happen(&mut self) {
        let (id, dice) = (self.replica(), self.below(1000));
        match dice {
            0..480 => self.deliver(dice),
            480..800 => _ = self.world.sync(id),
            800..812 => self.world.crash(id),
            812..850 => self.revive(id),
            850..900 => self.world.step(id, Input::Timer(Tick)),
            900..915 => self.world.step(id, Input::Command(Command::ForgetLeader)),
            915..935 => self.world.step(id, Input::Command(Command::Campaign)),
            935..945 => {
                let leader = self.leader_or_any();
                self.world.step(leader, Input::Command(Command::Transfer(ServerId(id))));
            }
            945..955 => self.world.step(id, Input::Command(Command::Read(dice as u64))),
            _ => self.propose(),
        }
    }

    fn deliver(&mut self, dice: usize) {
        let place = self.below(self.world.under_way.len());
        let Some((from, to, message)) = self.world.under_way.get(place).cloned() else { return };
        if !dice.is_multiple_of(20) {
            self.world.under_way.remove(place);
        }
        if !dice.is_multiple_of(25) {
            self.world.step(to.0, Input::Message { from, message });
        }
    }

    fn revive(&mut self, id: u64) {
        if self.world.host(id).replica.is_none() {
            self.world.restart(id);
        }
    }

    fn propose(&mut self) {
        self.proposals += 1;
        let (leader, data) = (self.leader_or_any(), Bytes::from(self.proposals.to_string()));
        self.world.step(leader, Input::Command(Command::Propose(vec![data])));
    }

    /// Faults end: everybody is up, nothing is lost any more, and somebody is told to campaign until one leads.
    fn heal(&mut self) {
        let count = self.world.hosts.len() as u64;
        self.world.is_disk_fast = true;
        (1..=count).for_each(|id| self.revive(id));
        self.world.settle();
        for id in (1..=count).cycle().take(40) {
            (1..=count).for_each(|id| self.world.command(id, Command::ForgetLeader));
            self.world.command(id, Command::Campaign);
            for _ in 0..3 {
                (1..=count).for_each(|id| self.tick(id));
            }
            if self.world.leaders().len() == 1 {
                return;
            }
        }
        panic!("nobody leads, although everybody is there: {:?}", self.world.leaders());
    }

    fn tick(&mut self, id: u64) {
        self.world.step(id, Input::Timer(Tick));
        self.world.settle();
    }

    /// What is proposed now comes through, everywhere and in the same order.
    fn agree(&mut self) {
        let leader = self.leader_or_any();
        // A transfer that nobody took up is forgotten meanwhile.
        (0..TRANSFER_TICKS).for_each(|_| self.tick(leader));
        self.world.command(leader, Command::Propose(vec![Bytes::from_static(b"last words")]));
        self.tick(leader);
        let first = self.world.host(1).committed.clone();
        assert_eq!(first.last(), Some(&Bytes::from_static(b"last words")));
        assert!(self.world.hosts.iter().all(|host| host.committed == first), "all have the same");
    }
}

/// Everything that happened in one schedule.
fn run<R: Member>(seed: u64) -> Vec<(ServerId, Event)> {
    let mut run = Run::<R>::new(seed);
    (0..STEPS).for_each(|_| run.happen());
    run.heal();
    run.agree();
    run.world.trace
}

/// What must have happened in some schedule, lest the rules hold for want of cases.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Reached {
    leaders: usize,
    commits: usize,
    commits_of_older_terms: usize,
    overwritten: usize,
    transfers: usize,
    restarts: usize,
}

impl Reached {
    fn note(&mut self, before: &View, event: &Event) {
        match event {
            Event::Step(cause, after) => {
                let leads = after.role == Role::Leader;
                self.leaders += usize::from(leads && before.role != Role::Leader);
                self.commits += usize::from(leads && after.commit > before.commit);
                let oldest = after.entries.get(before.commit as usize).map_or(after.term, |entry| entry.term);
                let is_old = leads && after.commit > before.commit && oldest < after.term;
                self.commits_of_older_terms += usize::from(is_old);
                self.overwritten += usize::from(!after.entries.starts_with(&before.entries));
                let is_order = matches!(cause, Cause::Message(_, message) if message.kind == Kind::TimeoutNow);
                self.transfers += usize::from(is_order && after.term > before.term);
            }
            Event::Restart(_) => self.restarts += 1,
            Event::Durable(_) | Event::Left(..) => {}
        }
    }

    fn everything(self) -> bool {
        let Self { leaders, commits, commits_of_older_terms, overwritten, transfers, restarts } = self;
        [leaders, commits, commits_of_older_terms, overwritten, transfers, restarts].iter().all(|count| *count > 0)
    }
}

/// Shows each event with what its replica was before.
fn walk(trace: &[(ServerId, Event)], mut look: impl FnMut(ServerId, &View, &Event)) {
    let mut now: BTreeMap<ServerId, View> = BTreeMap::new();
    for (id, event) in trace {
        look(*id, now.entry(*id).or_default(), event);
        if let Event::Step(_, after) | Event::Restart(after) = event {
            now.insert(*id, after.clone());
        }
    }
}

fn refine<R: Member>(name: &str) {
    let mut reached = Reached::default();
    let mut events = 0;
    for seed in 0..SEEDS {
        println!("{name}, seed {seed}");
        let trace = run::<R>(seed);
        events += trace.len();
        walk(&trace, |_, before, event| reached.note(before, event));
    }
    println!("{name}: {events} events in {SEEDS} schedules; {reached:?}");
    assert!(reached.everything(), "{reached:?}");
}

#[test]
fn the_engine_keeps_to_the_specification() {
    refine::<Replica>("engine");
}

#[test]
fn the_model_keeps_to_the_specification() {
    refine::<ModelReplica>("model");
}

/// Traces of the engine, each changed at the first place that fits: what the judge says of it.
fn tamper(change: impl Fn(ServerId, &View, &Event) -> Option<Vec<Event>>) -> &'static str {
    for seed in 0..SEEDS {
        let mut changed = Vec::new();
        let mut is_done = false;
        walk(&run::<Replica>(seed), |id, before, event| {
            let instead = if is_done { None } else { change(id, before, event) };
            is_done |= instead.is_some();
            changed.extend(instead.unwrap_or_else(|| vec![event.clone()]).into_iter().map(|event| (id, event)));
        });
        let voters = if seed.is_multiple_of(3) { 5 } else { 3 };
        let mut judge = Specification::new((1..=voters).map(ServerId).collect());
        let verdict = changed.iter().find_map(|(id, event)| judge.allow(*id, event).err());
        if is_done {
            return verdict.unwrap_or("nothing");
        }
    }
    panic!("no schedule has a place for this")
}

/// The same step, with another end.
fn end_otherwise(event: &Event, change: impl Fn(&Cause, &mut View) -> bool) -> Option<Vec<Event>> {
    let Event::Step(cause, after) = event else { return None };
    let mut after = after.clone();
    change(cause, &mut after).then(|| vec![Event::Step(cause.clone(), after)])
}

#[test]
fn a_vote_that_changes_is_noticed() {
    let verdict = tamper(|id, before, event| {
        end_otherwise(event, |_, after| {
            let has_voted = before.term == after.term && before.vote.is_some_and(|vote| vote != id);
            after.vote = Some(id);
            has_voted
        })
    });
    assert_eq!(verdict, "a vote is changed within a term");
}

#[test]
fn a_vote_for_one_that_knows_less_is_noticed() {
    let verdict = tamper(|_, before, event| {
        let Event::Step(Cause::Message(from, message), after) = event else { return None };
        let is_vote = message.kind == Kind::RequestVote && after.vote == Some(*from) && before.last() > 0;
        let shorter = Message { index: 0, log_term: 0, ..message.clone() };
        is_vote.then(|| vec![Event::Step(Cause::Message(*from, shorter), after.clone())])
    });
    assert_eq!(verdict, "a vote for one that knows less");
}

#[test]
fn a_vote_that_leaves_before_it_is_durable_is_noticed() {
    let verdict = tamper(|_, before, event| {
        let Event::Durable(records) = event else { return None };
        let vote = before.vote.map(|vote| vote.0);
        let is_vote = |record: &Record| matches!(record, Record::HardState(state) if Some(state.vote) == vote);
        (before.role == Role::Follower && records.iter().any(is_vote)).then(Vec::new)
    });
    assert_eq!(verdict, "a vote that is not durable");
}

#[test]
fn an_older_terms_entry_that_is_committed_by_counting_is_noticed() {
    let verdict = tamper(|_, before, event| {
        end_otherwise(event, |_, after| {
            let is_counting = after.role == Role::Leader && after.commit > before.commit + 1;
            let oldest = after.entries.get(before.commit as usize).map_or(after.term, |entry| entry.term);
            after.commit = before.commit + 1;
            is_counting && oldest < after.term
        })
    });
    assert_eq!(verdict, "an older term's entry is committed by counting");
}

#[test]
fn a_commit_that_is_not_on_a_majoritys_disks_is_noticed() {
    let verdict = tamper(|_, before, event| {
        end_otherwise(event, |cause, after| {
            let is_new = after.role == Role::Leader && after.last() > before.commit + 1;
            let is_counting = after.commit > before.commit && after.last() > after.commit;
            after.commit = after.last();
            is_new && is_counting && matches!(cause, Cause::Message(..) | Cause::Persisted)
        })
    });
    assert_eq!(verdict, "a commit without a majority's disks");
}

#[test]
fn an_acknowledgement_of_what_was_never_written_is_noticed() {
    let verdict = tamper(|_, before, event| {
        let Event::Durable(records) = event else { return None };
        let is_entry = |record: &Record| matches!(record, Record::Append(_));
        (before.role == Role::Follower && records.iter().any(is_entry)).then(Vec::new)
    });
    assert_eq!(verdict, "an acknowledgement of what is not durable");
}

#[test]
fn a_leader_that_overwrites_and_a_term_that_goes_back_are_noticed() {
    let verdict = tamper(|_, before, event| {
        end_otherwise(event, |_, after| {
            let leads = before.role == Role::Leader && after.role == Role::Leader && before.last() > 1;
            after.entries.pop();
            leads && before.entries != after.entries
        })
    });
    assert_eq!(verdict, "a leader overwrites its log");
    let verdict = tamper(|_, before, event| {
        end_otherwise(event, |_, after| {
            after.term = before.term.saturating_sub(1);
            before.term > 1
        })
    });
    assert_eq!(verdict, "a term goes back");
}

#[test]
fn a_campaign_that_another_than_the_leader_ordered_is_noticed() {
    let verdict = tamper(|id, before, event| {
        let Event::Step(Cause::Message(from, message), after) = event else { return None };
        let is_order = message.kind == Kind::TimeoutNow && after.term > before.term;
        let another = (1..).map(ServerId).find(|other| other != from && *other != id)?;
        is_order.then(|| vec![Event::Step(Cause::Message(another, message.clone()), after.clone())])
    });
    assert_eq!(verdict, "only the leader may order a campaign");
}

#[test]
fn a_leader_without_a_majoritys_votes_is_noticed() {
    let verdict = tamper(|id, before, event| {
        end_otherwise(event, |cause, after| {
            let is_vote = matches!(cause, Cause::Message(_, message)
                if message.kind == Kind::RequestVoteResponse && !message.reject && message.term == before.term);
            let is_open = before.role == Role::Candidate && after.role == Role::Candidate && after.vote == Some(id);
            (after.role, after.leader) = (Role::Leader, Some(id));
            is_vote && is_open
        })
    });
    assert_eq!(verdict, "a leader without a majority's durable votes");
}
