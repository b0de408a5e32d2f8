//! How messages travel: when each arrives, if it does.

use primus_core::machine::Delay;

use crate::chance::Chance;

/// How messages travel. Loss, duplication and extra delay end at a given time; the plain delay does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// How long a message takes. Each draws its own time, so messages overtake each other.
    pub delay: Delay,
    /// How many of a million messages are lost.
    pub loss_ppm: u32,
    /// How many of a million arrive twice.
    pub duplication_ppm: u32,
    /// How many of a million take much longer.
    pub lateness_ppm: u32,
    /// How much longer those take.
    pub late_by: Delay,
    /// When all this ends.
    pub faulty_until_us: u64,
}

/// When the copies of a message arrive: none if it is lost, two if it is doubled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrivals {
    pub(crate) at_us: [Option<u64>; 2],
    /// Was it lost, doubled or late?
    pub(crate) are_disturbed: bool,
}

impl Network {
    /// Nothing is lost, doubled or late.
    #[must_use]
    pub const fn reliable(delay: Delay) -> Self {
        let late_by = Delay { min_us: 0, max_us: 0 };
        Self { delay, loss_ppm: 0, duplication_ppm: 0, lateness_ppm: 0, late_by, faulty_until_us: 0 }
    }

    /// What becomes of a message that is sent now.
    pub(crate) fn arrivals(&self, now_us: u64, chance: &mut Chance) -> Arrivals {
        let is_faulty = now_us < self.faulty_until_us;
        if is_faulty && chance.happens(self.loss_ppm) {
            return Arrivals { at_us: [None, None], are_disturbed: true };
        }
        let is_doubled = is_faulty && chance.happens(self.duplication_ppm);
        let (copy, is_copy_late) = if is_doubled { self.arrival(now_us, chance) } else { (0, false) };
        let (first, is_late) = self.arrival(now_us, chance);
        let at_us = [Some(first), is_doubled.then_some(copy)];
        Arrivals { at_us, are_disturbed: is_doubled || is_copy_late || is_late }
    }

    /// Each draws its own time, so messages overtake each other.
    fn arrival(&self, now_us: u64, chance: &mut Chance) -> (u64, bool) {
        let at_us = now_us + chance.between(self.delay.min_us, self.delay.max_us);
        let is_late = now_us < self.faulty_until_us && chance.happens(self.lateness_ppm);
        let late_us = if is_late { chance.between(self.late_by.min_us, self.late_by.max_us) } else { 0 };
        (at_us + late_us, is_late)
    }
}
