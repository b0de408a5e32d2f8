//! When a server that was named asks for votes, and when it waits for those that it has asked for.
//!
//! At first it asks in quick succession, because others may not have noticed yet that the leader is gone. Real votes take as
//! long as a disk takes, so they are given time, and more of it with every term that began in vain: otherwise servers with
//! slow disks would start one term after the other and never wait for the end of one. On slow links no answer comes before
//! a round trip is over, so it asks as often as that allows.

use primus_core::Term;
use primus_core::machine::Delay;

/// The asking of one server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Campaign {
    /// How often it has asked since it was named; nothing if it was not, or is not any more.
    tries: Option<u32>,
    /// How many terms have begun since somebody led.
    vain: u32,
    /// The term whose votes it has waited for.
    waited: Option<Term>,
    /// Why it asks.
    pub(super) candidacy: Candidacy,
}

/// Why this server asks for votes, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Candidacy {
    /// The election names who runs.
    #[default]
    Named,
    /// A candidate knows less than this server, so this server will run or runs, whatever its rank.
    JumpIn,
    /// It leads because it jumped in, and gives way once to the best rank as soon as that one knows enough.
    Correcting,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Ask for votes, and think again after this.
    Ask(Delay),
    /// Think again after this.
    Wait(Delay),
    /// Let somebody else try.
    GiveWay,
}

impl Campaign {
    /// It asks this often in quick succession, or for this many round trips.
    const QUICK_TRIES: u32 = 10;
    const QUICK_TRIPS: u64 = 4;
    /// So often it asks again after that; then it gives way.
    const SLOW_TRIES: u32 = 4;
    /// How long votes may take in the first term.
    const VOTES: Delay = Delay::exactly_ms(18);
    /// Of two who ask for votes in one term, and perhaps split them, one asks for the next term's after this.
    const INSIST: Delay = Delay::exactly_ms(4);
    /// And the other one after this.
    const YIELD: Delay = Delay::exactly_ms(16);
    const DOUBLINGS_MAX: u32 = 5;

    /// One that has not begun.
    pub(super) fn of(candidacy: Candidacy) -> Self {
        Self { candidacy, ..Self::default() }
    }

    /// Was this server named, and has it not given up?
    pub(super) const fn is_under_way(&self) -> bool {
        self.tries.is_some()
    }

    /// A term began, and nobody leads in it yet.
    pub(super) const fn on_term(&mut self) {
        self.vain = self.vain.saturating_add(1);
    }

    /// There is nothing to ask for any more, for now.
    pub(super) const fn stop(&mut self) {
        self.tries = None;
    }

    /// What to do now, in this term; `retry` is how soon to ask again at first, on links that are not slower than a local
    /// network.
    pub(super) fn think(&mut self, is_voting: bool, term: Term, retry: Delay, slower_us: u64) -> Move {
        let tries = self.tries.unwrap_or(0);
        // Whoever starts late, after terms in vain, may disturb somebody who is about to win.
        let may_disturb = tries == 0 && self.vain > 1;
        if (is_voting || may_disturb) && self.waited != Some(term) {
            self.waited = Some(term);
            self.tries = Some(tries);
            return Move::Wait(self.patient(Self::VOTES.longer_by(slower_us)));
        }
        let slow_tries = (tries + 1).saturating_sub(Self::quick_tries(retry, slower_us));
        if slow_tries > Self::SLOW_TRIES {
            self.tries = None;
            return Move::GiveWay;
        }
        self.tries = Some(tries + 1);
        Move::Ask(retry.times(1 << slow_tries).longer_by(slower_us))
    }

    /// The slower links are, the fewer tries fit into the time that others need to notice.
    fn quick_tries(retry: Delay, slower_us: u64) -> u32 {
        let time_us = retry.times(Self::QUICK_TRIES.into()).min_us + slower_us.saturating_mul(Self::QUICK_TRIPS);
        u32::try_from(time_us.div_ceil(retry.longer_by(slower_us).min_us.max(1))).unwrap_or(Self::QUICK_TRIES)
    }

    /// Somebody else asks for votes in the same term. Says when to think again.
    /// Whoever insists needs a round trip to see that the votes were split, and two more to win the next term.
    pub(super) fn on_rival(&mut self, yields: bool, term: Term, slower_us: u64) -> Delay {
        self.waited = Some(term);
        let (delay, trips) = if yields { (Self::YIELD, 3) } else { (Self::INSIST, 1) };
        self.patient(delay.longer_by(slower_us.saturating_mul(trips)))
    }

    fn patient(&self, delay: Delay) -> Delay {
        delay.times(1 << self.vain.saturating_sub(1).min(Self::DOUBLINGS_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Delay = Delay::exactly_ms(3);

    #[test]
    fn it_asks_quickly_then_slowly_then_gives_way() {
        let mut campaign = Campaign::default();
        let moves: Vec<Move> = (0..15).map(|_| campaign.think(false, Term(1), RETRY, 0)).collect();
        assert!(moves[..10].iter().all(|step| *step == Move::Ask(RETRY)));
        assert_eq!(moves[10..14], [6, 12, 24, 48].map(|ms| Move::Ask(Delay::exactly_ms(ms))));
        assert_eq!((moves[14], campaign.is_under_way()), (Move::GiveWay, false));
    }

    #[test]
    fn on_slow_links_it_waits_for_answers_and_still_gives_way() {
        let mut campaign = Campaign::default();
        let moves: Vec<Move> = (0..9).map(|_| campaign.think(false, Term(1), RETRY, 150_000)).collect();
        assert_eq!(moves[..5], [153, 153, 153, 153, 153].map(|ms| Move::Ask(Delay::exactly_ms(ms))));
        assert_eq!(moves[5..8], [156, 162, 174].map(|ms| Move::Ask(Delay::exactly_ms(ms))));
        campaign.on_term();
        let wait = Move::Wait(Delay::exactly_ms(168));
        assert_eq!(Campaign::default().think(true, Term(2), RETRY, 150_000), wait, "votes take a round trip");
    }

    #[test]
    fn votes_get_more_time_with_every_term_in_vain() {
        let mut campaign = Campaign::default();
        for (term, ms) in [(1, 18), (2, 36), (3, 72), (4, 144), (5, 288), (6, 576), (7, 576)] {
            campaign.on_term();
            assert_eq!(campaign.think(true, Term(term), RETRY, 0), Move::Wait(Delay::exactly_ms(ms)));
            assert_eq!(campaign.think(true, Term(term), RETRY, 0), Move::Ask(RETRY), "they did not come");
        }
    }

    #[test]
    fn whoever_starts_after_terms_in_vain_waits_first() {
        let mut campaign = Campaign::default();
        campaign.on_term();
        assert_eq!(campaign.think(false, Term(1), RETRY, 0), Move::Ask(RETRY));
        campaign.stop();
        campaign.on_term();
        assert_eq!(campaign.think(false, Term(2), RETRY, 0), Move::Wait(Delay::exactly_ms(36)));
        assert_eq!(campaign.think(false, Term(2), RETRY, 0), Move::Ask(RETRY));
    }
}
