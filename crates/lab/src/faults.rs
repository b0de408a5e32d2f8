//! What goes wrong in a run, drawn from its seed.
//!
//! Every kind of fault has a budget and is on in about half of the runs, so that some runs combine all of them and
//! others stress one alone. All faults end at [`FAULTS_END_US`], save one kind: in a few runs a link stays cut in one
//! direction or a pair stays apart for ever, and then only termination is judged.
//!
//! Here are the faults of elections, and what the faults of whole clusters ([`crate::cluster`]) share with them.

use std::collections::BTreeSet;

use primus_core::ServerId;
use primus_core::election::Command;
use primus_core::load::Score;
use primus_core::machine::Delay;

use crate::chance::Chance;
use crate::network::Network;
use crate::simulate::Happening;

/// When the last fault has ended.
pub const FAULTS_END_US: u64 = 4_000_000;

const CRASHES_MAX: u64 = 4;
const PAUSES_MAX: u64 = 3;
const PARTITIONS_MAX: u64 = 3;
const COMMANDS_MAX: u64 = 4;
const SCORE_CHANGES_MAX: u64 = 20;
const SKEW_PPM_MAX: u64 = 50_000;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Messages get lost.
    Loss,
    /// Messages arrive twice.
    Duplication,
    /// Messages arrive much later than others that were sent after them.
    Lateness,
    /// Links are cut: whole sides, one direction, some pairs, one server alone.
    Partitions,
    /// Processes die, and what was not synced may be gone.
    Crashes,
    /// Processes stand still for a while.
    Pauses,
    /// Disks are slow.
    Disks,
    /// Clocks run at different rates.
    Clocks,
    /// Owners command elections and transfers, and loads change.
    Commands,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Loss,
        Self::Duplication,
        Self::Lateness,
        Self::Partitions,
        Self::Crashes,
        Self::Pauses,
        Self::Disks,
        Self::Clocks,
        Self::Commands,
    ];
}

/// Which kinds of faults a run may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kinds {
    /// Every kind, each in about half of the runs.
    All,
    /// These, in every run.
    These(BTreeSet<Kind>),
}

impl Kinds {
    /// No faults at all.
    pub const NONE: Self = Self::These(BTreeSet::new());

    pub(crate) fn is_on(&self, kind: Kind, chance: &mut Chance) -> bool {
        match self {
            Self::All => chance.happens(500_000),
            Self::These(kinds) => kinds.contains(&kind),
        }
    }

    /// What becomes of messages until then.
    pub(crate) fn network(&self, delay: Delay, faulty_until_us: u64, chance: &mut Chance) -> Network {
        let mut share = |kind, most| if self.is_on(kind, chance) { chance.between(1, most) as u32 } else { 0 };
        Network {
            delay,
            loss_ppm: share(Kind::Loss, 300_000),
            duplication_ppm: share(Kind::Duplication, 200_000),
            lateness_ppm: share(Kind::Lateness, 200_000),
            late_by: Delay { min_us: 1_000, max_us: 400_000 },
            faulty_until_us,
        }
    }
}

/// All faults of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What happens when.
    pub schedule: Vec<(u64, Happening)>,
    /// How messages travel meanwhile.
    pub network: Network,
    /// How wrong each clock runs.
    pub clock_skew_ppm: Vec<i64>,
    /// Do all faults end?
    pub ends: bool,
}

/// Draws the faults of a run among these nodes. A partition may last only if the election can live with it: a ring needs
/// every member to reach the next.
#[must_use]
pub fn plan(nodes: &[ServerId], delay: Delay, may_last: bool, chance: &mut Chance) -> Plan {
    let mut draw = Draw { nodes, chance, schedule: Vec::new() };
    let network = Kinds::All.network(delay, FAULTS_END_US, draw.chance);
    let clock_skew_ppm = draw.clock_skew();
    let ends = !(may_last && draw.chance.happens(100_000) && draw.lasting_partition());
    draw.often(Kind::Crashes, CRASHES_MAX, Draw::crash);
    draw.often(Kind::Pauses, PAUSES_MAX, Draw::pause);
    draw.often(Kind::Partitions, PARTITIONS_MAX, Draw::partition);
    draw.often(Kind::Commands, COMMANDS_MAX, Draw::command);
    draw.often(Kind::Commands, SCORE_CHANGES_MAX, Draw::score_change);
    let mut schedule = draw.schedule;
    keep_one_alive(&mut schedule, nodes);
    Plan { schedule, network, clock_skew_ppm, ends }
}

/// Faults as they are drawn, one by one.
struct Draw<'a> {
    nodes: &'a [ServerId],
    chance: &'a mut Chance,
    schedule: Vec<(u64, Happening)>,
}

impl Draw<'_> {
    /// A run without a kind has none of it, the others from one up to the budget.
    fn often(&mut self, kind: Kind, budget: u64, fault: impl Fn(&mut Self)) {
        let times = if Kinds::All.is_on(kind, self.chance) { self.chance.between(1, budget) } else { 0 };
        (0..times).for_each(|_| fault(self));
    }

    fn node(&mut self) -> ServerId {
        self.chance.pick(self.nodes)
    }

    fn moment(&mut self) -> u64 {
        self.chance.below(FAULTS_END_US)
    }

    /// A moment and a later one, both before the end.
    fn span(&mut self) -> (u64, u64) {
        let from_us = self.moment();
        let length_us = self.chance.between(10_000, 2_000_000);
        (from_us, (from_us + length_us).min(FAULTS_END_US))
    }

    fn clock_skew(&mut self) -> Vec<i64> {
        if !Kinds::All.is_on(Kind::Clocks, self.chance) {
            return Vec::new();
        }
        let skew = |chance: &mut Chance| chance.between(0, 2 * SKEW_PPM_MAX) as i64 - SKEW_PPM_MAX as i64;
        self.nodes.iter().map(|_| skew(self.chance)).collect()
    }

    fn crash(&mut self) {
        let node = self.node();
        let (down_us, up_us) = self.span();
        self.schedule.push((down_us, Happening::Crash(node.into())));
        if self.chance.happens(700_000) {
            self.schedule.push((up_us, Happening::Restart(node.into())));
        }
    }

    fn pause(&mut self) {
        let node = self.node();
        let (from_us, until_us) = self.span();
        self.schedule.push((from_us, Happening::Pause(node.into())));
        self.schedule.push((until_us, Happening::Resume(node.into())));
    }

    fn partition(&mut self) {
        let (from_us, until_us) = self.span();
        for (from, to) in partition(self.nodes, self.chance) {
            self.schedule.push((from_us, Happening::Cut(from.into(), to.into())));
            self.schedule.push((until_us, Happening::Mend(from.into(), to.into())));
        }
    }

    /// One node can be heard by one other node only, for ever: the partial partition in which Bully elections have been
    /// seen to wait for a winner that nobody could reach. Impossible among fewer than three.
    fn lasting_partition(&mut self) -> bool {
        if self.nodes.len() < 3 {
            return false;
        }
        let mut shuffled = self.nodes.to_vec();
        self.chance.shuffle(&mut shuffled);
        let (hidden, others) = (shuffled[0], &shuffled[2..]);
        for other in others {
            // After everything else has been mended.
            self.schedule.push((FAULTS_END_US + 1, Happening::Cut(hidden.into(), (*other).into())));
            self.schedule.push((FAULTS_END_US + 1, Happening::Cut((*other).into(), hidden.into())));
        }
        true
    }

    fn command(&mut self) {
        let (at_us, node) = (self.moment(), self.node());
        let command = if self.chance.happens(500_000) { Command::Start } else { Command::Resign };
        self.schedule.push((at_us, Happening::Command(node.into(), command)));
    }

    fn score_change(&mut self) {
        let (at_us, node) = (self.moment(), self.node());
        let score = Score::from_hundredths(self.chance.between(0, 10_000) as u32);
        self.schedule.push((at_us, Happening::Command(node.into(), Command::Score(score))));
    }
}

/// Whole (two sides), one-way (one side hears the other), or partial (some pairs only): who does not reach whom.
pub(crate) fn partition<N: Copy>(nodes: &[N], chance: &mut Chance) -> Vec<(N, N)> {
    let sides: Vec<(N, bool)> = nodes.iter().map(|node| (*node, chance.happens(500_000))).collect();
    let is_one_way = chance.happens(300_000);
    let pairs_ppm = if chance.happens(300_000) { 400_000 } else { 1_000_000 };
    let pairs = sides.iter().flat_map(|from| sides.iter().map(move |to| (*from, *to)));
    let across = pairs.filter(|((_, here), (_, there))| here != there && !(is_one_way && *here));
    across.filter(|_| chance.happens(pairs_ppm)).map(|((from, _), (to, _))| (from, to)).collect()
}

/// An election among the dead proves nothing: the first node always comes back.
fn keep_one_alive(schedule: &mut Vec<(u64, Happening)>, nodes: &[ServerId]) {
    if let Some(first) = nodes.first() {
        schedule.push((FAULTS_END_US, Happening::Restart((*first).into())));
    }
    schedule.sort_by_key(|(at_us, _)| *at_us);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans() -> impl Iterator<Item = Plan> {
        let nodes: Vec<ServerId> = (1..=5).map(ServerId).collect();
        (0..300).map(move |seed| plan(&nodes, Delay::between_ms(1, 20), true, &mut Chance::new(seed)))
    }

    #[test]
    fn every_kind_of_fault_occurs() {
        let all: Vec<Happening> = plans().flat_map(|plan| plan.schedule).map(|(_, happening)| happening).collect();
        let has = |wanted: fn(&Happening) -> bool| assert!(all.iter().any(wanted));
        has(|h| matches!(h, Happening::Crash(_)));
        has(|h| matches!(h, Happening::Restart(_)));
        has(|h| matches!(h, Happening::Pause(_)));
        has(|h| matches!(h, Happening::Cut(..)));
        has(|h| matches!(h, Happening::Command(_, Command::Resign)));
        has(|h| matches!(h, Happening::Command(_, Command::Start)));
        has(|h| matches!(h, Happening::Command(_, Command::Score(_))));
        assert!(plans().any(|plan| plan.network.loss_ppm > 0 && plan.network.duplication_ppm > 0));
        assert!(plans().any(|plan| plan.network.lateness_ppm > 0 && !plan.clock_skew_ppm.is_empty()));
        assert!(plans().any(|plan| !plan.ends));
    }

    #[test]
    fn what_is_cut_is_mended_unless_the_plan_says_that_it_does_not_end() {
        for plan in plans().filter(|plan| plan.ends) {
            let mut cut = BTreeSet::new();
            for (at_us, happening) in plan.schedule {
                assert!(at_us <= FAULTS_END_US);
                match happening {
                    Happening::Cut(from, to) => _ = cut.insert((from, to)),
                    Happening::Mend(from, to) => _ = cut.remove(&(from, to)),
                    _ => {}
                }
            }
            assert!(cut.is_empty());
        }
    }
}
