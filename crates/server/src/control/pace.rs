//! How long a message to a peer and back takes, measured: what T is made of (election theory, T = 2·t_max + t_process).
//!
//! Every server measures every peer, because a new candidate waits for servers that it has never led or followed. A probe
//! carries the sender's own clock, and the peer sends it back at once. Probes are rare: a few when a link is new, then one
//! every ten seconds, and one after the other as long as what they say is a surprise. They are sent with whatever wakes the
//! server anyway, so an idle server does not wake for them.
//!
//! Not here: how long a leader may be silent ([`primus_core::detector`]), which this only makes longer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use primus_core::ServerId;
use primus_core::election::{self, Election};
use primus_core::machine::{Delay, Moment, Outbox};
use primus_replica::consensus::Consensus;
use primus_replica::replica;

use super::{Control, Message, Notice};

/// Round trips to all peers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pace {
    is_on: bool,
    now_us: u64,
    /// When the next probe is due.
    due_us: u64,
    links: BTreeMap<ServerId, Link>,
    /// By how much the slowest live peer is slower than one on a local network, as it was told to everything that waits.
    slower_us: u64,
}

/// The way to one peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Link {
    /// When the probe was sent that is under way. An answer to any other is too old to count.
    asked_us: Option<u64>,
    due_us: u64,
    /// The last round trips, the oldest first.
    trips_us: VecDeque<u64>,
    /// What they come to.
    known_us: Option<u64>,
}

/// How often a link is measured when it says nothing new.
const EVERY_US: u64 = 10_000_000;
/// How soon a probe counts as lost while little is known.
const LOST_US: u64 = 1_000_000;
/// So many round trips are remembered. The longest of them may have been an accident, so the second longest counts.
const TRIPS_MAX: usize = 5;
/// No link is this slow: a peer that takes longer stood still.
const TRIP_MAX_US: u64 = 5_000_000;
/// What the times of servers allow for anyway.
const LOCAL_US: u64 = 2_000;
/// A difference below this is no surprise.
const SURPRISE_US: u64 = 5_000;

impl Pace {
    /// Nothing is known yet. If it is not on, nothing ever will be.
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, now_us: 0, due_us: 0, links: BTreeMap::new(), slower_us: 0 }
    }

    pub(super) const fn advance(&mut self, now: Moment) {
        self.now_us = now.0;
    }

    /// Is it time to send a probe to somebody?
    pub(super) const fn is_due(&self) -> bool {
        self.is_on && self.now_us >= self.due_us
    }

    /// Whom to send a probe now, of these peers. What it carries is the time.
    pub(super) fn take_due(&mut self, peers: Vec<ServerId>) -> Vec<(ServerId, u64)> {
        let mut due = Vec::new();
        for peer in peers {
            let link = self.links.entry(peer).or_default();
            if self.now_us >= link.due_us {
                link.asked_us = Some(self.now_us);
                link.due_us = self.now_us + if link.is_known() { EVERY_US } else { LOST_US };
                due.push((peer, self.now_us));
            }
        }
        self.put_off();
        due
    }

    /// There is a new way to this peer.
    pub(super) fn on_link(&mut self, peer: ServerId) {
        self.links.entry(peer).or_default().due_us = self.now_us;
        self.due_us = self.now_us;
    }

    /// A peer sent a probe back.
    pub(super) fn on_echo(&mut self, from: ServerId, sent_us: u64) {
        let now_us = self.now_us;
        let Some(link) = self.links.get_mut(&from).filter(|link| link.asked_us == Some(sent_us)) else { return };
        link.asked_us = None;
        let trip_us = now_us.saturating_sub(sent_us);
        if trip_us > TRIP_MAX_US {
            return;
        }
        let is_surprise = link.is_surprise(trip_us);
        link.add(trip_us);
        let is_settled = link.is_known() && !is_surprise;
        link.due_us = if is_settled { now_us + EVERY_US } else { now_us };
        self.put_off();
    }

    /// The round trip to this peer, if it is known.
    pub(super) fn round_trip_us(&self, peer: ServerId) -> Option<u64> {
        self.links.get(&peer)?.known_us
    }

    /// By how much the slowest peer is slower than one on a local network, if that is news. Those who are missed do not
    /// count: nobody waits for them.
    pub(super) fn news(&mut self, missed: &BTreeSet<ServerId>) -> Option<u64> {
        let live = self.links.iter().filter(|(peer, _)| !missed.contains(peer));
        let slowest_us = live.filter_map(|(_, link)| link.known_us).max().unwrap_or(0);
        let slower_us = slowest_us.saturating_sub(LOCAL_US).next_multiple_of(1000);
        // A little less is not worth a word.
        let is_news = slower_us > self.slower_us || slower_us + slower_us / 4 < self.slower_us;
        is_news.then(|| {
            self.slower_us = slower_us;
            slower_us
        })
    }

    /// The same, as it was last told.
    pub(super) const fn slower_us(&self) -> u64 {
        self.slower_us
    }

    fn put_off(&mut self) {
        self.due_us = self.links.values().map(|link| link.due_us).min().unwrap_or(self.now_us + LOST_US);
    }
}

impl Link {
    fn is_known(&self) -> bool {
        self.trips_us.len() == TRIPS_MAX
    }

    /// Does it differ by more than half from what was known? Then the next one comes at once.
    fn is_surprise(&self, trip_us: u64) -> bool {
        let Some(known_us) = self.known_us else { return true };
        let (less_us, more_us) = (known_us.min(trip_us), known_us.max(trip_us));
        more_us - less_us > SURPRISE_US.max(less_us / 2)
    }

    fn add(&mut self, trip_us: u64) {
        if self.trips_us.len() == TRIPS_MAX {
            self.trips_us.pop_front();
        }
        self.trips_us.push_back(trip_us);
        let mut sorted: Vec<u64> = self.trips_us.iter().copied().collect();
        sorted.sort_unstable();
        let second_longest = sorted.len().checked_sub(2).and_then(|place| sorted.get(place));
        self.known_us = second_longest.or(sorted.first()).copied();
    }
}

impl<E: Election, R: Consensus> Control<E, R> {
    /// The round trip to this peer in microseconds, if it is known.
    #[must_use]
    pub fn round_trip_us(&self, peer: ServerId) -> Option<u64> {
        self.pace.round_trip_us(peer)
    }

    /// By how many microseconds a round trip to the slowest live peer is longer than on a local network.
    #[must_use]
    pub const fn slower_us(&self) -> u64 {
        self.pace.slower_us()
    }

    /// T as it is now: how long a leader may be silent, in microseconds.
    #[must_use]
    pub fn silence_us(&self) -> u64 {
        self.detector.allowance_us()
    }

    pub(super) fn send_probes(&mut self, out: &mut Outbox<Self>) {
        for (peer, now_us) in self.pace.take_due(self.replica.peers()) {
            out.send(peer, Message::Probe(now_us));
        }
    }

    /// The first of as many probes as it takes until they say nothing new.
    pub(super) fn measure_again(&mut self, out: &mut Outbox<Self>) {
        self.replica.peers().into_iter().for_each(|peer| self.pace.on_link(peer));
        if self.pace.is_due() {
            self.send_probes(out);
        }
    }

    pub(super) fn on_echo(&mut self, from: ServerId, sent_us: u64, out: &mut Outbox<Self>) {
        self.pace.on_echo(from, sent_us);
        self.adapt(out);
        if self.pace.is_due() {
            self.send_probes(out);
        }
    }

    /// This time, and as many round trips as whatever it waits for takes.
    pub(super) const fn stretched(&self, delay: Delay, trips: u64) -> Delay {
        delay.longer_by(self.pace.slower_us().saturating_mul(trips))
    }

    /// Everything that waits for others is told how long their answers take.
    pub(super) fn adapt(&mut self, out: &mut Outbox<Self>) {
        let Some(slower_us) = self.pace.news(&self.suspected) else { return };
        self.detector.slower(slower_us);
        self.hearing.slower(slower_us / self.times.silence.heartbeat_us.max(1));
        self.tell_election(election::Command::Slower(slower_us), out);
        self.tell_replica(replica::Command::Slower(slower_us), out);
        out.notify(Notice::Slower(slower_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: ServerId = ServerId(2);

    /// Sends probes and has them come back after these lengths of time, each as soon as it may leave.
    fn measure(pace: &mut Pace, trips_us: &[u64]) -> usize {
        let mut sent = 0;
        for trip_us in trips_us {
            if !pace.is_due() {
                break;
            }
            let due = pace.take_due(vec![PEER]);
            let [(PEER, at_us)] = due[..] else { panic!("one peer is due: {due:?}") };
            pace.advance(Moment(pace.now_us + trip_us));
            pace.on_echo(PEER, at_us);
            sent += 1;
        }
        sent
    }

    fn measured(trip_us: u64) -> Pace {
        let mut pace = Pace::new(true);
        pace.advance(Moment(1));
        assert_eq!(measure(&mut pace, &[trip_us; 9]), TRIPS_MAX, "then there is quiet");
        pace.news(&BTreeSet::new());
        pace
    }

    #[test]
    fn a_new_link_is_measured_a_few_times_and_then_rarely() {
        let mut pace = measured(150_000);
        assert_eq!(pace.round_trip_us(PEER), Some(150_000));
        assert_eq!(pace.slower_us(), 148_000);
        pace.advance(Moment(pace.now_us + EVERY_US - 1_000_000));
        assert!(!pace.is_due());
        pace.advance(Moment(pace.now_us + 1_000_000));
        assert_eq!(measure(&mut pace, &[151_000; 9]), 1);
        assert_eq!(pace.news(&BTreeSet::new()), None, "nothing new");
    }

    #[test]
    fn a_local_network_is_as_fast_as_everything_expects() {
        assert_eq!(measured(900).slower_us(), 0);
    }

    #[test]
    fn one_accident_says_nothing_and_a_change_is_believed_soon() {
        let mut pace = measured(50_000);
        pace.on_link(PEER);
        assert_eq!(measure(&mut pace, &[900_000, 50_000, 50_000]), 2);
        assert_eq!(pace.round_trip_us(PEER), Some(50_000), "it was one accident");
        let mut pace = measured(50_000);
        pace.on_link(PEER);
        assert_eq!(measure(&mut pace, &[150_000; 9]), 3, "until it is no surprise any more");
        assert_eq!((pace.round_trip_us(PEER), pace.news(&BTreeSet::new())), (Some(150_000), Some(148_000)));
        pace.on_link(PEER);
        assert_eq!(measure(&mut pace, &[1_000; 9]), 5, "becoming faster takes a little longer");
        assert_eq!((pace.round_trip_us(PEER), pace.news(&BTreeSet::new())), (Some(1_000), Some(0)));
    }

    #[test]
    fn what_answers_no_probe_counts_for_nothing() {
        let mut pace = measured(50_000);
        let [(_, at_us)] = ({
            pace.on_link(PEER);
            pace.take_due(vec![PEER])
        })[..] else {
            panic!("one probe")
        };
        for strange_us in [0, at_us - 1, at_us + 1, u64::MAX] {
            pace.on_echo(PEER, strange_us);
            pace.on_echo(ServerId(9), at_us);
        }
        pace.advance(Moment(pace.now_us + TRIP_MAX_US + 1));
        pace.on_echo(PEER, at_us);
        assert_eq!(pace.round_trip_us(PEER), Some(50_000), "a peer that slept for seconds is no slow link");
    }

    #[test]
    fn nobody_waits_for_those_who_are_missed() {
        let mut pace = measured(150_000);
        assert_eq!(pace.news(&BTreeSet::from([PEER])), Some(0));
        assert_eq!(pace.news(&BTreeSet::new()), Some(148_000));
    }

    #[test]
    fn a_lost_probe_is_sent_again() {
        let mut pace = Pace::new(true);
        pace.advance(Moment(1));
        assert_eq!(pace.take_due(vec![PEER]), [(PEER, 1)]);
        pace.advance(Moment(LOST_US));
        assert!(!pace.is_due());
        pace.advance(Moment(LOST_US + 1));
        assert_eq!(pace.take_due(vec![PEER]).len(), 1);
    }

    #[test]
    fn it_can_be_off() {
        let mut pace = Pace::new(false);
        pace.advance(Moment(u64::MAX));
        assert!(!pace.is_due());
    }
}
