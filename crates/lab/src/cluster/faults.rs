//! What goes wrong in a run of a cluster. Single faults are drawn as for elections ([`crate::faults`]); here are those that
//! only clusters know, and the rule that a majority comes back in the end.

use primus_core::ServerId;
use primus_core::load::{Load, Score};
use primus_core::machine::Delay;
use primus_server::control::{Command, Reason};

use super::{Noise, Pattern, Slow};
use crate::chance::Chance;
use crate::faults::{Draw, FAULTS_END_US, Kind, Kinds};
use crate::simulate::{Happening, Network};

const CRASHES_MAX: u64 = 5;
const PAUSES_MAX: u64 = 3;
const PARTITIONS_MAX: u64 = 3;
const COMMANDS_MAX: u64 = 10;
/// How long messages take.
const DELAY: Delay = Delay { min_us: 100, max_us: 2_000 };
/// How long a sync takes: on a good disk, and on one that is busy or worn.
const SYNC: Delay = Delay { min_us: 50, max_us: 2_000 };
const SLOW_SYNC: Delay = Delay { min_us: 1_000, max_us: 100_000 };
/// How long there is something to judge when nothing goes wrong.
const CALM_END_US: u64 = 300_000;
/// The same, and when the leader is killed, if that is all that goes wrong: links have been measured by then.
const SLOW_END_US: u64 = 8_000_000;
const KILL_US: u64 = 4_000_000;

/// How often loads change in noise: often, but some last for longer than the dwell time of a handover.
const NOISE_EVERY_US: usize = 5_000_000;
/// How long a server stays calm that takes turns: longer than a dwell time, and shorter than a cool-down.
const TURN_US: usize = 25_000_000;
/// The load around which loads change, in hundredths of a point.
const MIDDLE: u64 = 5_000;

/// All faults of one run.
#[derive(Debug)]
pub(super) struct Plan {
    /// What happens to whom.
    pub(super) schedule: Vec<(u64, Happening)>,
    /// What happens to whoever leads at that moment, and until when.
    pub(super) strokes: Vec<(u64, Stroke, u64)>,
    /// What owners command.
    pub(super) commands: Vec<(u64, ServerId, Command)>,
    pub(super) network: Network,
    pub(super) clock_skew_ppm: Vec<i64>,
    /// How long a sync takes on each host.
    pub(super) syncs: Vec<Delay>,
    /// When all of this is over.
    pub(super) end_us: u64,
}

/// What can happen to a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stroke {
    Crash,
    Pause,
    /// Nobody hears it, and it hears nobody.
    Isolate,
}

impl Plan {
    /// The leader dies once, and comes back when all is over. By then everybody has measured its load, as real servers do.
    pub(super) fn add_kill(&mut self, servers: &[ServerId], chance: &mut Chance) {
        self.end_us = self.end_us.max(SLOW_END_US);
        let loads = |server: &ServerId| {
            let score = chance.between(0, 10_000);
            [1, 2, 3].map(|quarter| (quarter * KILL_US / 4, *server, load(score)))
        };
        self.commands.extend(servers.iter().flat_map(loads));
        self.strokes.push((KILL_US, Stroke::Crash, self.end_us));
    }

    /// Links are slow, and so is everything that depends on them.
    pub(super) fn slow_down(&mut self, slow: Slow) {
        let Slow { one_way_us, jitter_us } = slow;
        self.end_us = self.end_us.max(SLOW_END_US);
        self.network.delay = Delay { min_us: one_way_us, max_us: one_way_us + jitter_us };
    }

    /// Loads that change, and nothing else that matters.
    pub(super) fn add_noise(&mut self, servers: &[ServerId], noise: Noise, chance: &mut Chance) {
        let spread = u64::from(noise.points * 100).min(MIDDLE);
        self.end_us = noise.minutes * 60_000_000;
        // Messages keep their order, as on a real link: why there will be another leader is said just before it is so.
        self.network.delay = Delay { min_us: DELAY.max_us / 2, max_us: DELAY.max_us / 2 };
        match noise.pattern {
            Pattern::Random => self.add_random_loads(servers, spread, chance),
            Pattern::Turns => self.add_turns(servers, spread),
        }
    }

    fn add_random_loads(&mut self, servers: &[ServerId], spread: u64, chance: &mut Chance) {
        for from_us in (0..self.end_us).step_by(NOISE_EVERY_US) {
            for server in servers {
                let hundredths = chance.between(MIDDLE - spread, MIDDLE + spread);
                self.commands.push((from_us + chance.below(NOISE_EVERY_US as u64), *server, load(hundredths)));
            }
        }
    }

    fn add_turns(&mut self, servers: &[ServerId], spread: u64) {
        for (turn, from_us) in (0..self.end_us).step_by(TURN_US).enumerate() {
            for (place, server) in servers.iter().enumerate() {
                let is_calm = place == turn % 2;
                let hundredths = if is_calm { MIDDLE - spread } else { MIDDLE + spread };
                self.commands.push((from_us, *server, load(hundredths)));
            }
        }
    }
}

/// Draws the faults of a run among these servers.
pub(super) fn plan(servers: &[ServerId], kinds: &Kinds, chance: &mut Chance) -> Plan {
    let mut draw = Draw { nodes: servers, kinds, chance, schedule: Vec::new() };
    let network = draw.network(DELAY);
    let clock_skew_ppm = draw.clock_skew();
    let syncs = slow_disks(&mut draw);
    let mut strokes = Vec::new();
    for _ in 0..draw.times(Kind::Crashes, CRASHES_MAX) {
        crash(&mut draw, &mut strokes);
    }
    for _ in 0..draw.times(Kind::Pauses, PAUSES_MAX) {
        stroke_or(Draw::pause, Stroke::Pause, &mut draw, &mut strokes);
    }
    for _ in 0..draw.times(Kind::Partitions, PARTITIONS_MAX) {
        partition(&mut draw, &mut strokes);
    }
    let times = draw.times(Kind::Commands, COMMANDS_MAX);
    let commands = (0..times).map(|_| command(&mut draw)).collect();
    let end_us = if *kinds == Kinds::NONE { CALM_END_US } else { FAULTS_END_US };
    bring_a_majority_back(&mut draw, end_us);
    Plan { schedule: draw.schedule, strokes, commands, network, clock_skew_ppm, syncs, end_us }
}

/// Some disks are slow, or all of them.
fn slow_disks(draw: &mut Draw<'_>) -> Vec<Delay> {
    let share_ppm = if draw.is_on(Kind::Disks) { draw.chance.pick(&[300_000, 700_000, 1_000_000]) } else { 0 };
    draw.nodes.iter().map(|_| if draw.chance.happens(share_ppm) { SLOW_SYNC } else { SYNC }).collect()
}

/// One server, the leader, or the power of all.
fn crash(draw: &mut Draw<'_>, strokes: &mut Vec<(u64, Stroke, u64)>) {
    if draw.chance.happens(200_000) {
        let (from_us, until_us) = draw.span();
        for server in draw.nodes {
            draw.schedule.push((from_us, Happening::Crash((*server).into())));
            let up_us = draw.chance.between(from_us, until_us);
            draw.schedule.push((up_us, Happening::Restart((*server).into())));
        }
        return;
    }
    stroke_or(Draw::crash, Stroke::Crash, draw, strokes);
}

/// Two sides, one direction or some pairs; the leader alone; or two sides that only one server can reach.
fn partition(draw: &mut Draw<'_>, strokes: &mut Vec<(u64, Stroke, u64)>) {
    if draw.chance.happens(200_000) {
        bridge(draw);
    } else {
        stroke_or(Draw::partition, Stroke::Isolate, draw, strokes);
    }
}

fn bridge(draw: &mut Draw<'_>) {
    let span = draw.span();
    let mut shuffled = draw.nodes.to_vec();
    draw.chance.shuffle(&mut shuffled);
    let (left, right) = shuffled[1..].split_at((shuffled.len() - 1) / 2);
    for (one, other) in left.iter().flat_map(|one| right.iter().map(move |other| (*one, *other))) {
        draw.cut((one, other), span);
        draw.cut((other, one), span);
    }
}

/// The leader is one of many, and what happens to it matters most.
fn stroke_or<'a>(
    fault: impl Fn(&mut Draw<'a>),
    stroke: Stroke,
    draw: &mut Draw<'a>,
    strokes: &mut Vec<(u64, Stroke, u64)>,
) {
    if draw.chance.happens(400_000) {
        let (from_us, until_us) = draw.span();
        strokes.push((from_us, stroke, until_us));
    } else {
        fault(draw);
    }
}

fn command(draw: &mut Draw<'_>) -> (u64, ServerId, Command) {
    let (at_us, server, other) = (draw.moment(), draw.node(), draw.node());
    let command = match draw.chance.below(4) {
        0 => Command::Elect(server),
        1 => Command::Transfer(Some(other), Reason::Operator),
        2 => Command::Transfer(None, Reason::Resigned),
        _ => Command::Load(Score::from_hundredths(draw.chance.between(0, 10_000) as u32).into()),
    };
    (at_us, server, command)
}

/// The owner has measured this, in hundredths.
fn load(hundredths: u64) -> Command {
    Command::Load(Load { score: Score::from_hundredths(hundredths as u32), ..Load::default() })
}

/// Less than half may stay dead.
fn bring_a_majority_back(draw: &mut Draw<'_>, end_us: u64) {
    let mut servers = draw.nodes.to_vec();
    draw.chance.shuffle(&mut servers);
    let spared =
        if draw.chance.happens(200_000) { draw.chance.between(0, (servers.len() as u64 - 1) / 2) } else { 0 };
    let spared = usize::try_from(spared).expect("a length fits");
    draw.schedule
        .extend(servers.into_iter().skip(spared).map(|server| (end_us, Happening::Restart(server.into()))));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plans(kinds: &Kinds) -> impl Iterator<Item = Plan> {
        let servers: Vec<ServerId> = (1..=5).map(ServerId).collect();
        (0..200).map(move |seed| plan(&servers, kinds, &mut Chance::new(seed)))
    }

    #[test]
    fn every_kind_of_fault_occurs() {
        let all: Vec<Plan> = plans(&Kinds::All).collect();
        let has = |wanted: &dyn Fn(&Plan) -> bool| assert!(all.iter().any(wanted) && !all.iter().all(wanted));
        for stroke in [Stroke::Crash, Stroke::Pause, Stroke::Isolate] {
            has(&|plan| plan.strokes.iter().any(|(_, one, _)| *one == stroke));
        }
        has(&|plan| plan.schedule.iter().any(|(_, happening)| matches!(happening, Happening::Crash(_))));
        has(&|plan| plan.schedule.iter().any(|(_, happening)| matches!(happening, Happening::Pause(_))));
        has(&|plan| plan.schedule.iter().any(|(_, happening)| matches!(happening, Happening::Cut(..))));
        has(&|plan| plan.network.loss_ppm > 0);
        has(&|plan| plan.network.duplication_ppm > 0);
        has(&|plan| plan.network.lateness_ppm > 0);
        has(&|plan| !plan.clock_skew_ppm.is_empty());
        has(&|plan| plan.syncs.contains(&SLOW_SYNC));
        has(&|plan| !plan.commands.is_empty());
    }

    #[test]
    fn a_kind_that_is_named_is_on_in_every_run_and_the_others_in_none() {
        for plan in plans(&Kinds::These(BTreeSet::from([Kind::Loss]))) {
            assert!(plan.network.loss_ppm > 0);
            assert_eq!((plan.network.duplication_ppm, plan.network.lateness_ppm), (0, 0));
            assert!(plan.strokes.is_empty() && plan.commands.is_empty() && plan.clock_skew_ppm.is_empty());
            assert!(plan.schedule.iter().all(|(_, happening)| matches!(happening, Happening::Restart(_))));
        }
    }
}
