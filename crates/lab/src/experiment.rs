//! An election as people ask for it: who takes part, who starts, what goes wrong. From this and a seed comes one run,
//! and a report that says which properties held.

use std::collections::BTreeMap;
use std::sync::Arc;

use primus_core::ServerId;
use primus_core::election::bully::{self, Asking, Bully};
use primus_core::election::ring::{self, Ring};
use primus_core::election::{Command, Election, Reminders};
use primus_core::load::Score;
use primus_core::machine::{Delay, Input, Machine, Moment, Outbox};
use primus_core::rank::RankBy;

use crate::chance::Chance;
use crate::invariants::message_bound::Bound;
use crate::invariants::{self, Evidence, Property, fixed_rank};
use crate::network::Network;
use crate::simulate::{self, Happening, Observer, Outcome, Setup};
use crate::{faults, oracle};

/// How long messages take unless somebody says otherwise.
pub const DELAY: Delay = Delay::between_ms(1, 20);
/// How long a network whose only fault is loss stays faulty, at least.
pub const LOSS_ENDS_US: u64 = 10_000_000;

const T_PROCESS_US: u64 = 10_000;

/// One election to be tried, with any number of seeds.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The algorithm and its nodes.
    pub contest: Contest,
    /// Who starts.
    pub starts: Starts,
    /// Who dies when. In a Bully election the first of them leads until then.
    pub crashes: Vec<(ServerId, u64)>,
    /// Does no node notice a death by itself? Those who start then ask the dead in vain (Bully by address).
    pub unnoticed: bool,
    /// Who cannot talk to whom when.
    pub partitions: Vec<Partition>,
    /// How long messages take.
    pub delay: Delay,
    /// How many of a million messages are lost.
    pub loss_ppm: u32,
    /// Faults of all kinds, drawn from the seed.
    pub all_faults: bool,
}

/// An algorithm and its nodes.
#[derive(Debug, Clone)]
pub enum Contest {
    /// The best-ranked wins.
    Bully {
        /// What they agreed on.
        rules: Arc<bully::Rules>,
        /// Their loads; drawn from the seed where none is given.
        scores: BTreeMap<ServerId, Score>,
    },
    /// The lowest or the highest id wins.
    Ring {
        /// Ids in ring order.
        members: Arc<[ServerId]>,
        /// What they agreed on.
        rules: Arc<ring::Rules>,
    },
}

/// Who starts the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Starts {
    /// All nodes are started at random moments.
    Cold,
    /// These, at the beginning; after a crash, these notice it first.
    These(Vec<ServerId>),
}

/// Groups of nodes that cannot talk to each other. A node in no group can talk to all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// The groups.
    pub groups: Vec<Vec<ServerId>>,
    /// From when.
    pub from_us: u64,
    /// Until when; for ever if nobody says.
    pub until_us: Option<u64>,
}

/// What one run came to, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed that gives this run again.
    pub seed: u64,
    /// What happened.
    pub outcome: Outcome,
    /// The properties that apply, and whether they hold.
    pub properties: BTreeMap<Property, bool>,
}

impl Report {
    /// The first property that does not hold.
    #[must_use]
    pub fn violation(&self) -> Option<Property> {
        self.properties.iter().find(|(_, holds)| !**holds).map(|(property, _)| *property)
    }
}

/// Times that fit messages of this delay.
#[must_use]
pub fn tuned_bully(mut rules: bully::Rules, delay: Delay) -> bully::Rules {
    let answers = bully::answer_time(delay.max_us, T_PROCESS_US);
    // One by one, the winner may have to wait once for each better-ranked peer.
    let patience = if rules.asking == Asking::OneByOne { rules.ids().count() as u64 } else { 2 };
    rules.victory = answers.times(patience.max(2));
    rules.answers = answers;
    rules.reminders = Some(reminders(delay.max_us));
    rules
}

/// Times that fit messages of this delay.
#[must_use]
pub fn tuned_ring(rules: ring::Rules, members: usize, delay: Delay) -> ring::Rules {
    let lap_us = delay.max_us.saturating_mul(members as u64);
    // The token travels at most twice round, the announcement once.
    let round = Delay { min_us: lap_us * 3 + 50_000, max_us: lap_us * 4 + 100_000 };
    ring::Rules { round, reminders: Some(reminders(lap_us)), ..rules }
}

/// An announcement that takes this long to reach everybody is repeated after that.
const fn reminders(announcement_us: u64) -> Reminders {
    let every_us = 200_000 + 2 * announcement_us;
    let silence_us = 4 * every_us;
    Reminders {
        every: Delay { min_us: every_us, max_us: every_us },
        silence: Delay { min_us: silence_us, max_us: silence_us + every_us },
    }
}

impl Experiment {
    /// An election in which nothing goes wrong.
    #[must_use]
    pub fn new(contest: Contest, starts: Starts) -> Self {
        let (crashes, partitions) = (Vec::new(), Vec::new());
        let (unnoticed, all_faults) = (false, false);
        Self { contest, starts, crashes, unnoticed, partitions, delay: DELAY, loss_ppm: 0, all_faults }
    }

    /// Makes the run of this seed.
    pub fn run<O: Observer<Bully> + Observer<Ring>>(&self, seed: u64, observer: &mut O) -> Report {
        match &self.contest {
            Contest::Bully { rules, scores } => self.run_bully(rules, scores, seed, observer),
            Contest::Ring { members, rules } => self.run_ring(members, rules, seed, observer),
        }
    }

    fn run_bully<O: Observer<Bully>>(
        &self,
        rules: &Arc<bully::Rules>,
        given: &BTreeMap<ServerId, Score>,
        seed: u64,
        observer: &mut O,
    ) -> Report {
        let mut chance = Chance::new(seed);
        let scores: BTreeMap<ServerId, Score> =
            rules.ids().map(|id| (id, given.get(&id).copied().unwrap_or_else(|| any_score(&mut chance)))).collect();
        let nodes = rules.ids().map(|id| with_score(Bully::new(id, Arc::clone(rules)), scores[&id])).collect();
        let leader = self.crashes.first().map(|(leader, _)| *leader);
        let prepared = self.prepare(nodes, leader, chance, seed);
        let mut watch = fixed_rank::Watch::default();
        let outcome = simulate::run(prepared.setup, &mut (observer, &mut watch));
        let live: Vec<ServerId> = outcome.table.iter().map(|(node, _)| *node).collect();
        let may_stay = !rules.preempt || rules.rank_by() == RankBy::Load;
        let properties = invariants::judge(&Evidence {
            outcome: &outcome,
            faults_ended: prepared.faults_ended,
            best: oracle::best_by_rank(rules, &scores, &live)
                .filter(|_| prepared.best_must_lead && (!may_stay || self.is_undisturbed())),
            bound: self.is_undisturbed().then(|| self.bully_bound(rules, &scores)),
            changed_ranks: (rules.rank_by() == RankBy::Load).then_some(watch.changed),
        });
        Report { seed, outcome, properties }
    }

    fn run_ring<O: Observer<Ring>>(
        &self,
        members: &Arc<[ServerId]>,
        rules: &Arc<ring::Rules>,
        seed: u64,
        observer: &mut O,
    ) -> Report {
        let member = |position| Ring::new(position, Arc::clone(members), Arc::clone(rules));
        let nodes = (0..members.len()).map(member).collect();
        let prepared = self.prepare(nodes, None, Chance::new(seed), seed);
        let outcome = simulate::run(prepared.setup, observer);
        let live: Vec<ServerId> = outcome.table.iter().map(|(node, _)| *node).collect();
        let is_single = matches!(&self.starts, Starts::These(nodes) if nodes.len() == 1);
        let properties = invariants::judge(&Evidence {
            outcome: &outcome,
            faults_ended: prepared.faults_ended,
            best: oracle::best_in_ring(rules, &live)
                .filter(|_| prepared.best_must_lead && (rules.preempt || self.is_undisturbed())),
            bound: self.is_undisturbed().then_some(Bound::Ring { n: members.len() as u64, is_single }),
            changed_ranks: None,
        });
        Report { seed, outcome, properties }
    }

    /// Nothing goes wrong, by plan or by chance.
    const fn is_undisturbed(&self) -> bool {
        self.crashes.is_empty() && self.partitions.is_empty() && self.loss_ppm == 0 && !self.all_faults
    }

    fn bully_bound(&self, rules: &bully::Rules, scores: &BTreeMap<ServerId, Score>) -> Bound {
        let ids: Vec<ServerId> = rules.ids().collect();
        let best = oracle::best_by_rank(rules, scores, &ids);
        Bound::Bully {
            n: ids.len() as u64,
            ranks_known: rules.rank_by() != RankBy::Load,
            best_starts: matches!(&self.starts, Starts::These(nodes) if nodes.len() == 1 && nodes.first().copied() == best),
            one_by_one: rules.asking == Asking::OneByOne,
        }
    }

    fn prepare<M: Election>(
        &self,
        nodes: Vec<M>,
        leader: Option<ServerId>,
        mut chance: Chance,
        seed: u64,
    ) -> Prepared<M> {
        let ids: Vec<ServerId> = nodes.iter().map(Election::id).collect();
        let mut schedule = self.beginnings(&ids);
        schedule.extend(self.crashes.iter().map(|(node, at_us)| (*at_us, Happening::Crash((*node).into()))));
        schedule.extend(self.partitions.iter().flat_map(Partition::happenings));
        let faulty_until_us = LOSS_ENDS_US.max(10 * self.silence_us());
        let mut network = Network { loss_ppm: self.loss_ppm, faulty_until_us, ..Network::reliable(self.delay) };
        let mut clock_skew_ppm = Vec::new();
        let mut faults_ended = self.partitions.iter().all(|partition| partition.until_us.is_some());
        if self.all_faults {
            let plan = faults::plan(&ids, self.delay, matches!(self.contest, Contest::Bully { .. }), &mut chance);
            schedule.extend(plan.schedule);
            (network, clock_skew_ppm) = (plan.network, plan.clock_skew_ppm);
            faults_ended &= plan.ends;
        }
        let is_resignation =
            |(_, happening): &(u64, Happening)| matches!(happening, Happening::Command(_, Command::Resign));
        let best_must_lead = !schedule.iter().any(is_resignation);
        let (detection, repair_us, patience_us) = (self.detection(), self.repair_us(), 60 * self.silence_us());
        let setup =
            Setup { nodes, leader, network, schedule, clock_skew_ppm, detection, repair_us, patience_us, seed };
        Prepared { setup, faults_ended, best_must_lead }
    }

    /// How the election begins: cold, by command, or because the leader is missed.
    fn beginnings(&self, ids: &[ServerId]) -> Vec<(u64, Happening)> {
        let command =
            |at_us, node: &ServerId, command: Command| (at_us, Happening::Command((*node).into(), command));
        match (&self.starts, self.crashes.first(), &self.contest) {
            (Starts::Cold, Some(_), Contest::Bully { .. }) => Vec::new(),
            (Starts::Cold, ..) => ids.iter().map(|id| command(0, id, Command::Boot)).collect(),
            (Starts::These(first), Some((leader, at_us)), Contest::Bully { .. }) => {
                let notice = if self.unnoticed { Command::Start } else { Command::Suspect(*leader) };
                first.iter().map(|id| command(at_us + 1, id, notice.clone())).collect()
            }
            (Starts::These(first), ..) => first.iter().map(|id| command(0, id, Command::Start)).collect(),
        }
    }

    /// Lost messages are repaired by reminders, and that takes a while. A crash alone loses nothing that anybody needs.
    fn repair_us(&self) -> u64 {
        let may_lose = self.loss_ppm > 0 || !self.partitions.is_empty() || self.all_faults;
        if may_lose { 4 * self.silence_us() } else { 0 }
    }

    /// After this long without a word from its leader a follower acts: the slowest of all repairs, and so the measure of
    /// all times here. It grows with the delay of messages and with the size of a ring.
    fn silence_us(&self) -> u64 {
        let reminders = match &self.contest {
            Contest::Bully { rules, .. } => rules.reminders,
            Contest::Ring { rules, .. } => rules.reminders,
        };
        reminders.map_or(1_000_000, |reminders| reminders.silence.max_us)
    }

    /// Where somebody is told to notice first, the others are slow to.
    fn detection(&self) -> Option<Delay> {
        match (&self.starts, self.crashes.is_empty()) {
            _ if self.unnoticed => None,
            (Starts::These(_), false) => Some(Delay::between_ms(150, 200)),
            _ => Some(Delay::between_ms(0, 50)),
        }
    }
}

/// A run that is ready to start, and what is known of it.
struct Prepared<M> {
    setup: Setup<M>,
    faults_ended: bool,
    /// False if a leader may give leadership up and rightly stay without it.
    best_must_lead: bool,
}

impl Partition {
    fn happenings(&self) -> Vec<(u64, Happening)> {
        let mut all = Vec::new();
        for (from, to) in self.pairs() {
            all.push((self.from_us, Happening::Cut(from.into(), to.into())));
            all.extend(self.until_us.map(|until_us| (until_us, Happening::Mend(from.into(), to.into()))));
        }
        all
    }

    fn pairs(&self) -> impl Iterator<Item = (ServerId, ServerId)> + '_ {
        let groups = self.groups.iter().enumerate();
        groups.clone().flat_map(move |(mine, group)| {
            let others = groups.clone().filter(move |(theirs, _)| *theirs != mine).flat_map(|(_, other)| other);
            others.flat_map(move |to| group.iter().map(move |from| (*from, *to)))
        })
    }
}

fn any_score(chance: &mut Chance) -> Score {
    Score::from_hundredths(chance.between(0, 10_000) as u32)
}

fn with_score(mut node: Bully, score: Score) -> Bully {
    node.step(Moment::START, Input::Command(Command::Score(score)), &mut Outbox::new());
    node
}
