//! Groups of servers in virtual time: each elects, loses its leader in every way, and agrees again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};

use primus_core::ServerId;
use primus_core::election::Algorithm;
use primus_core::load::Score;
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::rank::RankBy;
use primus_server::groups::{Command, GroupPlan, Groups, Notice, Said, Timer};
use primus_server::{Plan, Reason};

/// How long a message takes.
const TRAVEL_US: u64 = 200;
const SECOND_US: u64 = 1_000_000;

/// Servers with their groups, on links that can be cut.
struct Stage {
    now_us: u64,
    servers: BTreeMap<u64, Groups>,
    timers: BTreeMap<(u64, Timer), u64>,
    /// By the time when they arrive, and a number.
    under_way: BTreeMap<(u64, u64), (u64, u64, Said)>,
    sent: u64,
    /// They take no step; what is for them waits.
    frozen: BTreeSet<u64>,
    cut: BTreeSet<(u64, u64)>,
    /// What makes messages late and lost, if anything does.
    weather: Option<Chance>,
    notices: Vec<(u64, Notice)>,
}

/// Chance that a seed gives again: a linear congruential generator is enough for choosing what goes wrong.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn group(name: &str, algorithm: Algorithm, rank: RankBy, members: &[u64]) -> GroupPlan {
    let members = members.iter().map(|id| ServerId(*id)).collect();
    GroupPlan { name: name.to_owned(), algorithm, rank, asking: None, members }
}

fn server(id: u64, count: u64, groups: &[GroupPlan]) -> Groups {
    let at = |id: u64| SocketAddr::from((Ipv4Addr::LOCALHOST, 7000 + u16::try_from(id).expect("few servers")));
    let servers = (1..=count).map(|id| (ServerId(id), at(id)));
    Plan { groups: groups.to_vec(), ..Plan::new(ServerId(id), servers) }.elections()
}

impl Stage {
    fn new(count: u64, groups: &[GroupPlan]) -> Self {
        let mut stage = Self {
            now_us: 1,
            servers: (1..=count).map(|id| (id, server(id, count, groups))).collect(),
            timers: BTreeMap::new(),
            under_way: BTreeMap::new(),
            sent: 0,
            frozen: BTreeSet::new(),
            cut: BTreeSet::new(),
            weather: None,
            notices: Vec::new(),
        };
        (1..=count).for_each(|id| stage.step(id, Input::Command(Command::Boot)));
        stage
    }

    fn step(&mut self, id: u64, input: Input<Groups>) {
        let Some(groups) = self.servers.get_mut(&id) else { return };
        let mut out = Outbox::new();
        groups.step(Moment(self.now_us), input, &mut out);
        for output in out.drain() {
            self.carry_out(id, output);
        }
    }

    fn carry_out(&mut self, id: u64, output: Output<Groups>) {
        match output {
            Output::Send { to, message } => {
                self.sent += 1;
                let late_us = self.weather.as_mut().map_or(0, |weather| weather.below(20_000));
                if self.weather.as_mut().is_none_or(|weather| weather.below(10) > 0) {
                    let due_us = self.now_us + TRAVEL_US + late_us;
                    self.under_way.insert((due_us, self.sent), (id, to.0, message));
                }
            }
            // Whoever has the lower id is the first, so that everything is the same every time.
            Output::Set { timer, delay } => {
                _ = self.timers.insert((id, timer), self.now_us + delay.min_us + id);
            }
            Output::Cancel(timer) => _ = self.timers.remove(&(id, timer)),
            Output::Notify(notice) => self.notices.push((id, notice)),
            Output::Ignore(_) | Output::Persist { .. } | Output::SendAfter { .. } => {}
        }
    }

    /// Lets time pass.
    fn pass(&mut self, length_us: u64) {
        let until_us = self.now_us + length_us;
        while let Some(next_us) = self.next_us().filter(|next_us| *next_us <= until_us) {
            self.now_us = self.now_us.max(next_us);
            self.deliver();
            self.fire();
        }
        self.now_us = until_us;
    }

    fn next_us(&self) -> Option<u64> {
        let timers = self.timers.iter().filter(|((id, _), _)| !self.frozen.contains(id));
        let arrivals = self.under_way.iter().filter(|(_, (_, to, _))| !self.frozen.contains(to));
        timers.map(|(_, due_us)| *due_us).chain(arrivals.map(|((due_us, _), _)| *due_us)).min()
    }

    fn deliver(&mut self) {
        let is_here = |(due_us, _): &(u64, u64), to: &u64| *due_us <= self.now_us && !self.frozen.contains(to);
        let arrived = self.under_way.iter().filter(|(due, (_, to, _))| is_here(due, to)).map(|(due, _)| *due);
        for due in arrived.collect::<Vec<_>>() {
            let Some((from, to, message)) = self.under_way.remove(&due) else { continue };
            if !self.cut.contains(&(from, to)) {
                self.step(to, Input::Message { from: ServerId(from), message });
            }
        }
    }

    fn fire(&mut self) {
        let due = self.timers.iter().filter(|((id, _), due)| **due <= self.now_us && !self.frozen.contains(id));
        for (id, timer) in due.map(|(timer, _)| *timer).collect::<Vec<_>>() {
            if self.timers.remove(&(id, timer)).is_some() {
                self.step(id, Input::Timer(timer));
            }
        }
    }

    /// The process dies; the others notice at once.
    fn kill(&mut self, id: u64) {
        self.servers.remove(&id);
        self.timers.retain(|(of, _), _| *of != id);
        let rest: Vec<u64> = self.servers.keys().copied().collect();
        rest.into_iter().for_each(|other| self.step(other, Input::Command(Command::Gone(ServerId(id)))));
    }

    fn start(&mut self, id: u64, groups: Groups) {
        self.servers.insert(id, groups);
        self.step(id, Input::Command(Command::Boot));
    }

    fn cut_off(&mut self, id: u64) {
        let others: Vec<u64> = self.servers.keys().copied().filter(|other| *other != id).collect();
        self.cut.extend(others.into_iter().flat_map(|other| [(id, other), (other, id)]));
    }

    /// Whom each live server takes for the leader of this group.
    fn leaders(&self, name: &str) -> Vec<(u64, Option<u64>)> {
        let leader = |groups: &Groups| groups.views().find(|view| view.0.name == name).and_then(|view| view.1);
        self.servers.iter().map(|(id, groups)| (*id, leader(groups).map(|leader| leader.0))).collect()
    }

    fn all_follow(&self, name: &str, leader: u64) {
        assert!(self.leaders(name).iter().all(|(_, seen)| *seen == Some(leader)), "{:?}", self.leaders(name));
    }

    /// Changes of leaders since the last time, as the events tell them: server, group, leader, reason.
    fn changes(&mut self) -> Vec<(u64, String, u64, Reason)> {
        let notices = std::mem::take(&mut self.notices).into_iter();
        let change = |(id, notice): (u64, Notice)| {
            let leader = notice.leader.filter(|leader| Some(*leader) != notice.previous)?;
            Some((id, notice.group, leader.0, notice.reason))
        };
        notices.filter_map(change).collect()
    }
}

/// The groups of the tests: one on all servers, one on two of them.
fn groups() -> [GroupPlan; 2] {
    let router = group("router", Algorithm::Bully, RankBy::Address, &[1, 2, 3]);
    [router, group("scrapper", Algorithm::Ring, RankBy::Id, &[1, 3])]
}

fn settled() -> Stage {
    let mut stage = Stage::new(3, &groups());
    stage.pass(SECOND_US);
    ["router", "scrapper"].into_iter().for_each(|name| stage.all_follow(name, 3));
    stage.changes();
    stage
}

#[test]
fn each_group_elects_its_own_leader_and_others_know_it_too() {
    let mut stage = Stage::new(3, &groups());
    stage.pass(SECOND_US);
    stage.all_follow("router", 3);
    stage.all_follow("scrapper", 3);
    assert!(stage.changes().iter().all(|(.., leader, reason)| (*leader, *reason) == (3, Reason::Start)));
}

#[test]
fn nothing_changes_while_nothing_happens_and_few_messages_are_sent() {
    let mut stage = settled();
    let before = stage.sent;
    stage.pass(10 * SECOND_US);
    assert_eq!(stage.changes(), []);
    let per_second = (stage.sent - before) / 10;
    assert!((80..120).contains(&per_second), "a star of pings, a few others: {per_second}");
}

#[test]
fn a_dead_leader_is_followed_by_the_next_at_once_and_takes_over_when_it_is_back() {
    let mut stage = settled();
    stage.kill(3);
    stage.pass(30_000);
    assert_eq!(stage.leaders("router"), [(1, Some(2)), (2, Some(2))]);
    assert_eq!(stage.leaders("scrapper").first(), Some(&(1, Some(1))), "alone in its ring");
    stage.pass(SECOND_US);
    stage.all_follow("scrapper", 1);
    let changes = stage.changes();
    assert!(changes.iter().all(|(.., reason)| *reason == Reason::LinkLost), "{changes:?}");
    stage.start(3, server(3, 3, &groups()));
    stage.pass(3 * SECOND_US);
    stage.all_follow("router", 3);
    stage.all_follow("scrapper", 3);
    for (id, _, leader, reason) in stage.changes() {
        // Whoever has just started may have led before it heard of the other.
        assert!(leader == 3 && (id == 3 || reason == Reason::Rank), "{id} {leader} {reason}");
    }
}

#[test]
fn a_frozen_leader_is_missed_soon_and_leads_again_when_it_is_thawed() {
    let mut stage = settled();
    stage.frozen.insert(3);
    stage.pass(200_000);
    assert_eq!(stage.leaders("router")[..2], [(1, Some(2)), (2, Some(2))]);
    assert_eq!(stage.leaders("scrapper").first(), Some(&(1, Some(1))));
    stage.pass(5 * SECOND_US);
    assert!(stage.changes().iter().all(|(.., reason)| *reason == Reason::Silence));
    stage.frozen.clear();
    stage.pass(SECOND_US);
    stage.all_follow("router", 3);
    stage.all_follow("scrapper", 3);
    let changes = stage.changes();
    assert!(changes.iter().all(|(.., leader, reason)| (*leader, *reason) == (3, Reason::Rank)), "{changes:?}");
    stage.pass(10 * SECOND_US);
    assert_eq!(stage.changes(), []);
}

#[test]
fn two_sides_of_a_partition_have_a_leader_each_and_agree_when_it_heals() {
    let mut stage = settled();
    stage.cut_off(3);
    stage.pass(5 * SECOND_US);
    assert_eq!(stage.leaders("router"), [(1, Some(2)), (2, Some(2)), (3, Some(3))]);
    assert_eq!(stage.leaders("scrapper"), [(1, Some(1)), (2, Some(1)), (3, Some(3))]);
    stage.cut.clear();
    stage.pass(2 * SECOND_US);
    stage.all_follow("router", 3);
    stage.all_follow("scrapper", 3);
    assert_eq!(stage.changes().last().map(|change| (change.2, change.3)), Some((3, Reason::Rank)));
}

#[test]
fn a_ring_goes_on_without_a_member_that_is_frozen() {
    let mut stage = Stage::new(3, &[group("bd", Algorithm::Ring, RankBy::Id, &[1, 2, 3])]);
    stage.pass(SECOND_US);
    stage.frozen.insert(1);
    stage.pass(3 * SECOND_US);
    stage.kill(3);
    stage.pass(3 * SECOND_US);
    assert_eq!(stage.leaders("bd")[1], (2, Some(2)));
    stage.frozen.clear();
    stage.pass(3 * SECOND_US);
    stage.all_follow("bd", 2);
}

#[test]
fn the_least_loaded_leads_a_group_by_load_and_keeps_it() {
    let mut stage = Stage::new(3, &[group("bd", Algorithm::Bully, RankBy::Load, &[1, 2, 3])]);
    let load = |stage: &mut Stage, id, percent| {
        stage.step(id, Input::Command(Command::Score(Score::from_percent(percent))));
    };
    [(1, 50.0), (2, 10.0), (3, 70.0)].into_iter().for_each(|(id, percent)| load(&mut stage, id, percent));
    stage.pass(SECOND_US);
    stage.all_follow("bd", 2);
    load(&mut stage, 2, 90.0);
    stage.pass(3 * SECOND_US);
    stage.all_follow("bd", 2);
    stage.kill(2);
    stage.pass(SECOND_US);
    stage.all_follow("bd", 1);
}

#[test]
fn what_no_member_would_say_changes_nothing() {
    let mut stage = settled();
    let (sent, before) = (stage.sent, stage.servers[&3].clone());
    let foreign = |group: &str| Said::Election {
        group: group.to_owned(),
        message: primus_server::any_election::Message::Ring(primus_core::election::ring::Message::Elected {
            round: primus_core::Round(1000),
            leader: ServerId(2),
            lap: 0,
        }),
        reason: Reason::Rank,
    };
    for (from, said) in
        [(2, foreign("scrapper")), (1, foreign("scrapper")), (1, foreign("other")), (9, foreign("router"))]
    {
        stage.step(3, Input::Message { from: ServerId(from), message: said });
    }
    assert_eq!((stage.sent, stage.changes()), (sent, vec![]));
    assert!(before.views().eq(stage.servers[&3].views()));
}

/// Servers die and come back, freeze and thaw, are cut off and mended, and every tenth message is lost.
fn go_wrong(stage: &mut Stage, count: u64, plans: &[GroupPlan], chance: &mut Chance) {
    let id = 1 + chance.below(count);
    match chance.below(6) {
        0 if stage.servers.contains_key(&id) => stage.kill(id),
        0 | 1 if !stage.servers.contains_key(&id) => stage.start(id, server(id, count, plans)),
        2 => _ = stage.frozen.insert(id),
        3 => _ = stage.frozen.remove(&id),
        4 => stage.cut_off(id),
        5 => stage.cut.retain(|(from, to)| ![*from, *to].contains(&id)),
        _ => {}
    }
    stage.pass(chance.below(1_500_000));
}

/// Nothing goes wrong any more.
fn heal(stage: &mut Stage, count: u64, plans: &[GroupPlan]) {
    stage.weather = None;
    stage.frozen.clear();
    stage.cut.clear();
    for id in 1..=count {
        if !stage.servers.contains_key(&id) {
            stage.start(id, server(id, count, plans));
        }
    }
}

#[test]
fn whatever_went_wrong_all_agree_on_the_best_once_it_is_over() {
    let everybody: Vec<u64> = (1..=5).collect();
    let plans = [
        group("address", Algorithm::Bully, RankBy::Address, &everybody),
        group("load", Algorithm::Bully, RankBy::Load, &everybody),
        group("pair", Algorithm::Ring, RankBy::Id, &[2, 4]),
        group("ring", Algorithm::Ring, RankBy::Id, &everybody),
    ];
    for seed in 0..40 {
        let mut stage = Stage::new(5, &plans);
        let mut chance = Chance(seed);
        stage.weather = Some(Chance(!seed));
        (0..30).for_each(|_| go_wrong(&mut stage, 5, &plans, &mut chance));
        heal(&mut stage, 5, &plans);
        stage.pass(10 * SECOND_US);
        for (name, best) in [("address", 5), ("pair", 4), ("ring", 5)] {
            let leaders = stage.leaders(name);
            assert!(leaders.iter().all(|(_, leader)| *leader == Some(best)), "seed {seed}: {name} {leaders:?}");
        }
        let leaders = stage.leaders("load");
        assert!(leaders.iter().all(|(_, leader)| *leader == leaders[0].1), "seed {seed}: {leaders:?}");
        stage.changes();
        stage.pass(10 * SECOND_US);
        assert_eq!(stage.changes(), [], "seed {seed}: it stays so");
    }
}

/// What the servers that were asked for an election are told of its result: server, leader, who led before, reason.
fn results(stage: &mut Stage) -> Vec<(u64, Option<u64>, Option<u64>, Reason)> {
    let notices = std::mem::take(&mut stage.notices).into_iter().filter(|(_, notice)| notice.is_result);
    let number = |id: Option<ServerId>| id.map(|id| id.0);
    notices.map(|(id, notice)| (id, number(notice.leader), number(notice.previous), notice.reason)).collect()
}

#[test]
fn an_election_that_is_asked_for_confirms_the_best_whoever_is_asked() {
    for (name, asked) in [("router", 1), ("router", 2), ("router", 3), ("scrapper", 1), ("scrapper", 3)] {
        let mut stage = settled();
        stage.step(asked, Input::Command(Command::Elect(name.to_owned())));
        stage.pass(SECOND_US);
        let told: Vec<_> = stage.notices.iter().filter(|(id, _)| *id == asked).map(|(_, one)| one.leader).collect();
        assert!(told.iter().all(Option::is_some), "nobody was deposed: {told:?}");
        assert_eq!(results(&mut stage), [(asked, Some(3), Some(3), Reason::Start)], "{name} at {asked}");
        stage.all_follow(name, 3);
    }
}

#[test]
fn an_election_that_is_asked_for_moves_leadership_to_the_least_loaded() {
    let by_load = group("router", Algorithm::Bully, RankBy::Load, &[1, 2, 3]);
    for asked in 1..=3 {
        let mut stage = Stage::new(3, std::slice::from_ref(&by_load));
        stage.pass(SECOND_US);
        stage.all_follow("router", 3);
        for (id, points) in [(1, 50), (2, 20), (3, 90)] {
            stage.step(id, Input::Command(Command::Score(Score::from_hundredths(points * 100))));
        }
        stage.pass(SECOND_US);
        stage.all_follow("router", 3);
        stage.changes();
        stage.step(asked, Input::Command(Command::Elect("router".to_owned())));
        stage.pass(SECOND_US);
        stage.all_follow("router", 2);
        assert_eq!(results(&mut stage), [(asked, Some(2), Some(3), Reason::Elected)], "asked at {asked}");
        let score = |id, points: u32| (ServerId(id), Score::from_hundredths(points * 100));
        assert_eq!(stage.servers[&asked].scores("router"), [score(1, 50), score(2, 20), score(3, 90)]);
    }
}

#[test]
fn only_a_member_holds_an_election() {
    let mut stage = settled();
    stage.step(2, Input::Command(Command::Elect("scrapper".to_owned())));
    stage.step(2, Input::Command(Command::Elect("nobody".to_owned())));
    stage.pass(SECOND_US);
    assert_eq!(stage.notices, []);
}
