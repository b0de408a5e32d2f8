//! Runs of one cluster of whole servers: control on the real engine, farm and leases beside it, with clients that write keys, read,
//! look, and submit jobs in order. Nobody runs the jobs: workers are in [`crate::farm`].
//!
//! When the faults have ended, the servers must agree on a leader, and what clients ask for then must reach everybody.

use primus_core::election::Algorithm;
use primus_core::load::{Load, Score};
use primus_core::machine::Delay;
use primus_core::planted::Planted;
use primus_core::rank::RankBy;
use primus_server::control::Command;

use crate::chance::Chance;
use crate::driver::fault::{self, Fault};
use crate::driver::plan::{ClientsPlan, End, Plan, SYNC};
use crate::driver::{Event, What};
use crate::faults::{FAULTS_END_US, Kind, Kinds};
use crate::node::NodeId;
use crate::setup::Setup;
use crate::simulate::Happening;

/// How long messages take.
pub(crate) const DELAY: Delay = Delay { min_us: 100, max_us: 2_000 };
/// How long a sync takes on a disk that is busy or worn.
const SLOW_SYNC: Delay = Delay { min_us: 1_000, max_us: 100_000 };
const CLIENTS: ClientsPlan = ClientsPlan { every_us: 7_000, pairs_ppm: 250_000 };
/// Where loads are the matter, clients only see to it that something is written at all.
const QUIET_CLIENTS: ClientsPlan = ClientsPlan { every_us: 1_000_000, pairs_ppm: 0 };
/// How long there is something to judge when nothing goes wrong.
const CALM_END_US: u64 = 300_000;
/// The same, and when the leader is killed, if that is all that goes wrong: links have been measured by then.
const SLOW_END_US: u64 = 8_000_000;
const KILL_US: u64 = 4_000_000;
/// How long after the faults everybody may take to agree and to have everything.
const HEALING_US_MAX: u64 = 10_000_000;

/// How often loads change in noise: often, but some last for longer than the dwell time of a handover.
const NOISE_EVERY_US: usize = 5_000_000;
/// How long a server stays calm that takes turns: longer than a dwell time, and shorter than a cool-down.
const TURN_US: usize = 25_000_000;
/// The load around which loads change, in hundredths of a point.
const MIDDLE: u64 = 5_000;

/// The leader is one of many, and what happens to it matters most.
const FAULTS: [(usize, Fault); 16] = [
    (2, Fault::LeaderCrashes),
    (2, Fault::ServerCrashes),
    (1, Fault::FarmCrashes),
    (1, Fault::LeaderFreezes),
    (1, Fault::ServerFreezes),
    (1, Fault::LeaderIsolated),
    (1, Fault::LeaderUnheard),
    (1, Fault::LeaderWakesAlone),
    (2, Fault::Partition),
    (1, Fault::Bridge),
    (1, Fault::DiskFills),
    (1, Fault::ClockJumps),
    (1, Fault::LeaderTransfers),
    (1, Fault::LeaderResigns),
    (1, Fault::Election),
    (2, Fault::LoadChanges),
];

/// A cluster to be tried, with any number of seeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// How many servers.
    pub servers: u64,
    /// What goes wrong, drawn from the seed.
    pub faults: Kinds,
    /// Loads that change all the time, instead of clients.
    pub noise: Option<Noise>,
    /// Links that are slow, instead of those of a local network.
    pub slow: Option<Slow>,
    /// Whether the leader is killed once, and nothing else goes wrong but for the faults above.
    pub kill: bool,
    /// A known bug, to see whether it is found.
    pub planted: Planted,
}

/// How slow links are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slow {
    /// How long a message takes, one way.
    pub one_way_us: u64,
    /// By how much longer some take.
    pub jitter_us: u64,
}

/// Loads that change, for long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Noise {
    /// How they change.
    pub pattern: Pattern,
    /// How far a load may lie above or below the middle, in points.
    pub points: u32,
    /// For how many minutes.
    pub minutes: u64,
}

/// How loads change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Every few seconds, anyhow.
    Random,
    /// The first two servers take turns at being as loaded as can be and not at all, for longer than a handover takes to come
    /// about. All others are as loaded as can be.
    Turns,
}

impl Cluster {
    /// A cluster with clients and these faults.
    #[must_use]
    pub const fn new(servers: u64, faults: Kinds) -> Self {
        Self { servers, faults, noise: None, slow: None, kill: false, planted: Planted::NONE }
    }
}

impl Setup for Cluster {
    fn plan(&self, chance: &mut Chance) -> Plan {
        let mut plan = Plan::new(self.servers, &["farm"]);
        plan.server.election.algorithm = chance.pick(&[Algorithm::Bully, Algorithm::Bully, Algorithm::Ring]);
        plan.server.election.rank = chance.pick(&[RankBy::Id, RankBy::Load]);
        plan.server.snapshot_every = chance.pick(&[8, 40, 1_000]);
        plan.server.planted = self.planted;
        (plan.start_us, plan.clients) = (100_000, Some(CLIENTS));
        plan.faults_end_us = if self.faults == Kinds::NONE { CALM_END_US } else { FAULTS_END_US };
        plan.end = End::Healed { within_us: HEALING_US_MAX };
        plan.disturb(&self.faults, &FAULTS, 5, 2_000_000, chance);
        self.keep_some_dead(&mut plan, chance);
        if self.kill {
            add_kill(&mut plan, chance);
        }
        if let Some(noise) = self.noise {
            add_noise(&mut plan, noise, chance);
        }
        if let Some(slow) = self.slow {
            slow_down(&mut plan, slow);
        }
        plan
    }
}

impl Cluster {
    /// Less than half may stay dead.
    fn keep_some_dead(&self, plan: &mut Plan, chance: &mut Chance) {
        let kills = self.faults.is_on(Kind::Crashes, chance) && chance.happens(200_000);
        let mut servers = plan.servers(0);
        chance.shuffle(&mut servers);
        let dead = if kills { chance.between(0, (servers.len() as u64 - 1) / 2) } else { 0 };
        let dead = servers.into_iter().take(usize::try_from(dead).expect("a length fits"));
        let at_us = plan.faults_end_us + 1;
        plan.events.extend(dead.map(|id| (at_us, Event::Happening(Happening::Crash(id)))));
    }
}

impl Plan {
    /// Draws what goes wrong: on networks and disks, and with single hosts.
    pub(crate) fn disturb(
        &mut self,
        kinds: &Kinds,
        faults: &[(usize, Fault)],
        budget: u64,
        span_us_max: u64,
        chance: &mut Chance,
    ) {
        let end_us = self.faults_end_us;
        self.network = kinds.network(DELAY, end_us, chance);
        let share_ppm =
            if kinds.is_on(Kind::Disks, chance) { chance.pick(&[300_000, 700_000, 1_000_000]) } else { 0 };
        let skew_ppm = if kinds.is_on(Kind::Clocks, chance) { SKEW_PPM_MAX } else { 0 };
        for server in self.farms.iter_mut().flat_map(|farm| &mut farm.servers) {
            server.sync = if chance.happens(share_ppm) { SLOW_SYNC } else { SYNC };
            server.clock.slower_ppm = skewed(skew_ppm, chance);
        }
        self.events.extend(fault::draw(faults, kinds, budget, (end_us, span_us_max), chance));
    }
}

/// Clocks run wrong by this much at most.
const SKEW_PPM_MAX: u64 = 50_000;

/// Half of all clocks that are wrong are as wrong as may be: the ends of the range matter most.
pub(crate) fn skewed(max_ppm: u64, chance: &mut Chance) -> i64 {
    let drawn = chance.between(0, 2 * max_ppm);
    let ppm = chance.pick(&[drawn, drawn, 0, 2 * max_ppm]);
    i64::try_from(ppm).expect("it is small") - i64::try_from(max_ppm).expect("it is small")
}

/// The leader dies once, and comes back when all is over. By then everybody has measured its load, as real servers do.
fn add_kill(plan: &mut Plan, chance: &mut Chance) {
    plan.faults_end_us = plan.faults_end_us.max(SLOW_END_US);
    plan.is_failover = true;
    for server in plan.servers(0) {
        let score = chance.between(0, 10_000);
        let loads = [1, 2, 3].map(|quarter| (quarter * KILL_US / 4, load(server, score)));
        plan.events.extend(loads);
    }
    plan.events.push((KILL_US, Event::Fault(Fault::LeaderCrashes, plan.faults_end_us)));
}

/// Links are slow, and so is everything that depends on them.
fn slow_down(plan: &mut Plan, Slow { one_way_us, jitter_us }: Slow) {
    plan.faults_end_us = plan.faults_end_us.max(SLOW_END_US);
    plan.one_way_us = one_way_us;
    plan.network.delay = Delay { min_us: one_way_us, max_us: one_way_us + jitter_us };
}

/// Loads that change, and nothing else that matters.
fn add_noise(plan: &mut Plan, noise: Noise, chance: &mut Chance) {
    (plan.server.election.algorithm, plan.server.election.rank) = (Algorithm::Bully, RankBy::Load);
    plan.clients = Some(QUIET_CLIENTS);
    plan.faults_end_us = noise.minutes * 60_000_000;
    // Messages keep their order, as on a real link: why there will be another leader is said just before it is so.
    plan.network.delay = Delay { min_us: DELAY.max_us / 2, max_us: DELAY.max_us / 2 };
    let spread = u64::from(noise.points * 100).min(MIDDLE);
    let servers = plan.servers(0);
    match noise.pattern {
        Pattern::Random => add_random_loads(plan, &servers, spread, chance),
        Pattern::Turns => add_turns(plan, &servers, spread),
    }
}

fn add_random_loads(plan: &mut Plan, servers: &[NodeId], spread: u64, chance: &mut Chance) {
    for from_us in (0..plan.faults_end_us).step_by(NOISE_EVERY_US) {
        for server in servers {
            let hundredths = chance.between(MIDDLE - spread, MIDDLE + spread);
            plan.events.push((from_us + chance.below(NOISE_EVERY_US as u64), load(*server, hundredths)));
        }
    }
}

fn add_turns(plan: &mut Plan, servers: &[NodeId], spread: u64) {
    for (turn, from_us) in (0..plan.faults_end_us).step_by(TURN_US).enumerate() {
        for (place, server) in servers.iter().enumerate() {
            let is_calm = place == turn % 2;
            let hundredths = if is_calm { MIDDLE - spread } else { MIDDLE + spread };
            plan.events.push((from_us, load(*server, hundredths)));
        }
    }
}

/// The owner has measured this, in hundredths.
fn load(server: NodeId, hundredths: u64) -> Event {
    let score = Score::from_hundredths(u32::try_from(hundredths).expect("it is small"));
    Event::To(server, What::Command(Box::new(Command::Load(Load { score, ..Load::default() }))))
}
