//! What this server says of itself: how loaded it is, whether its disk has room, and what its clock shows.

use std::time::Duration;

use primus_core::load::{Load, Score, Usage};
use primus_core::machine::Input;
use primus_server::control::Command;
use primus_server::groups;
use primus_server::room::Room;
use primus_server::words::Words;
use tokio::time::Instant;

use super::Running;
use crate::companion::wall_clock_us;
use crate::farm::Told;

/// How often the leader hears what a server's clock shows. The leader reads its own whenever it tells the time.
const CLOCK_EVERY: Duration = Duration::from_secs(4);

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
}

impl Own {
    /// Nothing was measured yet.
    pub(super) fn new() -> Self {
        let clock_told = Instant::now();
        Self {
            usage: Usage::Unknown,
            tasks: 0,
            overridden: None,
            is_full: false,
            room: Room::default(),
            clock_told,
        }
    }
}

impl Running {
    pub(super) fn on_load(&mut self) {
        let load = self.config.plan.weights.load(self.own.usage, self.own.tasks);
        // Whatever somebody pretends, the parts are as they were measured and counted.
        let score = self.own.overridden.unwrap_or(load.score);
        self.own.is_full = self.shown.meters.disk_full.get();
        self.shown.state.load = Load { score, is_disk_full: self.own.is_full, ..load };
        self.step(Input::Command(Command::Load(self.shown.state.load)));
        self.threads.elections.tell(Input::Command(groups::Command::Score(score)));
        if self.own.clock_told.elapsed() >= CLOCK_EVERY {
            self.tell_clock();
        }
    }

    /// The leader tells the time, and compares the clocks of all.
    pub(super) fn tell_clock(&mut self) {
        self.own.clock_told = Instant::now();
        let shows_ms = wall_clock_us() / 1000;
        self.tell_farm(Told::Clock(self.config.plan.id, shows_ms));
        if let Some(leader) = self.shown.state.leader.filter(|leader| *leader != self.config.plan.id) {
            self.links.send(leader, Words::Clock(shows_ms));
        }
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
            full_at: meters.state_full.get().then_some(self.config.plan.state_max),
            is_behind: self.log.unapplied.is_spent(),
        };
        if self.own.room != room {
            self.own.room = room;
            self.step(Input::Command(Command::Room(room)));
        }
    }
}
