//! Does a leader go on speaking of more than this server has? It knows what this server has acknowledged. So either it is
//! not a leader, and says this once or twice between what the true one says; or this server's disk is older than what it
//! promised, and then this server must not go on: it may have voted, too.

use primus_core::ServerId;

/// So many signs of life in a row are believed.
const BEATS_MAX: u32 = 10;
/// And no sooner than after so many ticks of this server's own clock.
const TICKS_MIN: u32 = 10;
/// Whoever says no more for so many ticks did not mean it.
const QUIET_MAX: u32 = 5;

/// What was said, by whom, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Ahead(Option<Said>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Said {
    by: ServerId,
    beats: u32,
    ticks: u32,
    quiet: u32,
}

impl Ahead {
    /// This peer speaks, as a leader, of more than this server has. True if that is to be believed.
    pub(super) fn on_beyond(&mut self, by: ServerId) -> bool {
        let said = match self.0.filter(|said| said.by == by) {
            Some(said) => Said { beats: said.beats.saturating_add(1), quiet: 0, ..said },
            None => Said { by, beats: 1, ticks: 0, quiet: 0 },
        };
        self.0 = Some(said);
        said.beats >= BEATS_MAX && said.ticks >= TICKS_MIN
    }

    /// A leader speaks of what this server has.
    pub(super) const fn on_leader(&mut self) {
        self.0 = None;
    }

    pub(super) fn on_tick(&mut self) {
        let ticked = |said: Said| Said { ticks: said.ticks.saturating_add(1), quiet: said.quiet + 1, ..said };
        self.0 = self.0.map(ticked).filter(|said| said.quiet <= QUIET_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: ServerId = ServerId(2);

    /// Hears it so often between two ticks, for so many ticks.
    fn hear(ahead: &mut Ahead, beats: usize, ticks: usize) -> bool {
        (0..ticks).any(|_| {
            ahead.on_tick();
            (0..beats).any(|_| ahead.on_beyond(LEADER))
        })
    }

    #[test]
    fn a_leader_that_insists_is_believed() {
        assert!(hear(&mut Ahead::default(), 1, 20));
    }

    #[test]
    fn a_burst_is_not_believed() {
        let mut ahead = Ahead::default();
        assert!(!hear(&mut ahead, 1000, 3));
        (0..=QUIET_MAX).for_each(|_| ahead.on_tick());
        assert_eq!(ahead, Ahead::default());
    }

    #[test]
    fn a_true_leader_in_between_is_believed_instead() {
        let mut ahead = Ahead::default();
        for _ in 0..100 {
            assert!(!hear(&mut ahead, 3, 3));
            ahead.on_leader();
        }
        assert!(!hear(&mut ahead, 1, 9));
        assert!(!ahead.on_beyond(ServerId(3)), "another one begins anew");
    }
}
