//! Three servers, of which two ask for a number: everything that can follow, with a crash of the giver at any moment.

use std::fmt;

use primus_core::ServerId;
use primus_explore::frame::{Course, Milestone, Setting};
use primus_lab::world::{Envelope, World};

use super::numbers_differ;
use super::tickets::{GIVER, Message, Tickets, Want};

/// The setting. Is the mistake planted?
#[derive(Debug, Clone)]
pub(crate) struct Offices {
    pub(crate) is_hasty: bool,
}

/// What happens only so often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Chance {
    Crash,
}

/// The giver crashed while a write was on its way to the disk.
pub(crate) const FORGOTTEN: Milestone = Milestone("settles after a record was lost");

/// One state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scene {
    pub(crate) world: World<Tickets>,
    course: Course<Chance>,
}

/// Something that happens; its text is a command of a story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Deliver(Envelope<Message>),
    Sync,
    Crash,
}

impl Offices {
    fn make(&self, id: ServerId, world: Option<&World<Tickets>>) -> Tickets {
        let disk = world.map_or(&[][..], |world| world.disk(id));
        let mut machine = Tickets::new(id, disk);
        machine.is_hasty = self.is_hasty;
        machine
    }
}

impl Setting for Offices {
    type Scene = Scene;
    type Action = Action;
    type Chance = Chance;

    fn open(&self, course: Course<Chance>) -> Scene {
        let mut world = World::new([1, 2, 3].map(ServerId).map(|id| (id, self.make(id, None))));
        [2, 3].map(ServerId).into_iter().for_each(|id| _ = world.command(id, Want));
        Scene { world, course }
    }

    fn events(&self, scene: &Scene, actions: &mut Vec<Action>) {
        actions.extend(scene.world.distinct().map(Action::Deliver));
        actions.extend(scene.world.is_writing(GIVER).then_some(Action::Sync));
    }

    fn choices(&self, scene: &Scene, actions: &mut Vec<Action>) {
        scene.course.offer(Chance::Crash, actions, [Action::Crash]);
    }

    fn act(&self, scene: &mut Scene, action: Action) {
        match action {
            Action::Deliver(envelope) => _ = scene.world.deliver(scene.world.find(&envelope)),
            Action::Sync => _ = scene.world.persisted(GIVER),
            Action::Crash => self.crash(scene),
        }
        scene.world.forget_order();
    }

    fn course(scene: &Scene) -> &Course<Chance> {
        &scene.course
    }

    fn judge(&self, scene: &Scene) -> Option<&'static str> {
        (!numbers_differ::holds(&scene.world)).then_some("numbers differ")
    }

    fn has_settled(&self, scene: &Scene) -> bool {
        scene.world.in_flight().is_empty() && !scene.world.is_writing(GIVER)
    }
}

impl Offices {
    fn crash(&self, scene: &mut Scene) {
        scene.course.spend(Chance::Crash);
        if scene.world.is_writing(GIVER) {
            scene.course.pass(FORGOTTEN);
        }
        scene.world.crash(GIVER);
        let machine = self.make(GIVER, Some(&scene.world));
        scene.world.restart(GIVER, machine);
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deliver(Envelope { from, to, message }) => write!(f, "deliver {from} {to} {message}"),
            Self::Sync => f.write_str("sync"),
            Self::Crash => write!(f, "crash {GIVER}"),
        }
    }
}
