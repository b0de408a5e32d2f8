//! What this server says of itself: how loaded it is, whether its disk has room, and what its clock shows.

use std::time::Duration;

use primus_core::ServerId;
use primus_core::load::{Load, Score, Usage};
use primus_core::machine::Input;
use primus_server::control::Command;
use primus_server::groups;
use primus_server::room::Room;
use primus_server::words::Words;
use tokio::time::Instant;

use super::Running;
use crate::budget::Budget;
use crate::companion::wall_clock_us;
use crate::farm::ToFarm;

/// How often the leader hears what a server's clock shows. The leader reads its own whenever it tells the time.
const CLOCK_EVERY: Duration = Duration::from_secs(4);
/// How many words about the clocks of all servers may wait for the farm: a peer says them as often as it likes.
const CLOCKS_MAX: u32 = 64;

/// What this server says of itself.
pub(super) struct Own {
    /// What was measured last, and how many tasks run here.
    pub(super) usage: Usage,
    pub(super) tasks: u32,
    pub(super) overridden: Option<Score>,
    /// Was the leader told that there is no room here?
    pub(super) is_full: bool,
    /// How much room there is, as control was last told.
    room: Room,
    /// When it was told what the clock shows.
    pub(super) clock_told: Instant,
    /// How many words about clocks may still wait for the farm.
    clocks: Budget,
}

impl Own {
    /// Nothing was measured yet.
    pub(super) fn new() -> Self {
        Self {
            usage: Usage::Unknown,
            tasks: 0,
            overridden: None,
            is_full: false,
            room: Room::default(),
            clock_told: Instant::now(),
            clocks: Budget::new(CLOCKS_MAX),
        }
    }

    /// What the farm is told of a clock. It is said again and again, so what has no room is lost.
    fn clock(&self, server: ServerId, shows_ms: u64) -> Option<ToFarm> {
        self.clocks.take(1).map(|weight| ToFarm::Clock(server, shows_ms, weight))
    }
}

impl Running {
    pub(super) fn on_load(&mut self) {
        let load = self.config.plan.farm.weights.load(self.own.usage, self.own.tasks);
        // Whatever somebody pretends, the parts are as they were measured and counted.
        let score = self.own.overridden.unwrap_or(load.score);
        self.own.is_full = self.shown.meters.disk_full.get();
        self.shown.state.load = Load { score, is_disk_full: self.own.is_full, ..load };
        self.step(Input::Command(Command::Load(self.shown.state.load)));
        self.others.elections.tell(Input::Command(groups::Command::Score(score)));
        if self.own.clock_told.elapsed() >= CLOCK_EVERY {
            self.tell_clock();
        }
    }

    /// The leader tells the time, and compares the clocks of all.
    pub(super) fn tell_clock(&mut self) {
        self.own.clock_told = Instant::now();
        let shows_ms = wall_clock_us() / 1000;
        self.pass_clock_on(self.config.plan.id, shows_ms);
        if let Some(leader) = self.shown.state.leader.filter(|leader| *leader != self.config.plan.id) {
            self.links.send(leader, Words::Clock(shows_ms));
        }
    }

    pub(super) fn pass_clock_on(&mut self, server: ServerId, shows_ms: u64) {
        self.own.clock(server, shows_ms).into_iter().for_each(|told| self.others.tell_farm_soon(told));
    }

    /// A server whose disk is full says so at once, because the leader must know whether a majority can write. It takes
    /// nothing new while it would only wait.
    pub(super) fn look_for_room(&mut self) {
        if self.shown.meters.disk_full.get() != self.own.is_full {
            self.on_load();
        }
        let is_up = |peer| self.shown.state.peers.get(&peer).is_some_and(|view| view.is_up);
        self.shown.meters.disks_full.set(self.server.are_disks_full(is_up));
    }

    /// Control hears how much room there is before it hears what needs some.
    pub(super) fn tell_room(&mut self) {
        let meters = &self.shown.meters;
        let room = Room {
            disks: meters.disks(),
            full_at: meters.state_full.get().then_some(self.config.plan.farm.state_max),
            is_behind: self.others.is_farm_behind(),
        };
        if self.own.room != room {
            self.own.room = room;
            self.step(Input::Command(Command::Room(room)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_peer_that_says_again_and_again_what_its_clock_shows_fills_no_queue() {
        let own = Own::new();
        let mut waiting: Vec<ToFarm> = (0..10 * CLOCKS_MAX).filter_map(|_| own.clock(ServerId(2), 7)).collect();
        assert_eq!(waiting.len(), CLOCKS_MAX as usize);
        waiting.pop();
        assert!(own.clock(ServerId(2), 8).is_some(), "there is room again");
    }
}
