//! Which connections may stay.
//!
//! There are so many places and no more. At the limit a connection gives way that does nothing at the moment: the oldest
//! follower first, then one that has not said what it wants, or whose body does not go on, or that is idle. One that waits for
//! its answer never gives way. If there is none, a few places are kept back for what must never wait: leases, leadership,
//! whatever ends something, and other servers.
//!
//! Addresses are treated alike: what gives way is of the address that has most of its kind, and a stranger's address has a
//! quarter of all places at most. This host and the servers of the farm speak for many, so they have no such limit.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

const CONNECTIONS_MAX: usize = 2048;
/// Beyond these there are places for what must never wait.
const KEPT_BACK: usize = 32;
/// How many requests may last, such as following events.
const FOLLOWERS_MAX: usize = 1024;
/// How many connections a stranger's address may have.
const STRANGER_MAX: usize = CONNECTIONS_MAX / 4;
/// How long a connection must have done nothing before it gives way.
const STILL_TIME: Duration = Duration::from_secs(1);
/// How long to wait for a place before one is taken that is kept back.
const PLACE_TIME: Duration = Duration::from_millis(250);

/// All connections of a server.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    open: Mutex<Open>,
    /// A place has become free.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    /// The last number that was given, to a connection or to what one does.
    last: u64,
    places: BTreeMap<u64, Place>,
    /// What each one does that may give way, the oldest of an address first: looked up with every change, so never searched.
    order: BTreeMap<(Phase, IpAddr, u64), u64>,
    crowds: BTreeMap<(Phase, IpAddr), usize>,
}

#[derive(Debug)]
struct Place {
    origin: IpAddr,
    phase: Phase,
    since: Instant,
    /// Which of all changes this was.
    turn: u64,
    is_kept_back: bool,
    close: oneshot::Sender<Phase>,
}

/// What a connection does, in the order in which they give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It hears what happens, for as long as it likes.
    Following,
    /// It has asked nothing yet.
    Fresh,
    /// Its request has a body that has not arrived.
    Arriving,
    /// It has its answer.
    Idle,
    /// It waits for its answer.
    Asking,
}

impl Phase {
    /// Those in which a connection may give way.
    const STILL: [Self; 4] = [Self::Following, Self::Fresh, Self::Arriving, Self::Idle];
}

/// One of them, as its requests know it.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    number: u64,
    is_kept_back: bool,
    all: Connections,
}

/// The place of a connection, until it ends.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) connection: Connection,
    /// Says that it must give way, and what it did.
    pub(crate) closed: oneshot::Receiver<Phase>,
}

impl Connections {
    /// A place for a connection from there, as soon as there is one. Nothing if that address has too many.
    pub(crate) async fn admit(&self, address: IpAddr, is_stranger: bool) -> Option<Taken> {
        let origin = origin(address);
        if is_stranger && !self.open().has_room_for(origin, Instant::now()) {
            return None;
        }
        loop {
            let freed = self.0.freed.notified();
            if self.open().has_room(CONNECTIONS_MAX, Instant::now()) {
                return Some(self.take(origin, false));
            }
            if timeout(PLACE_TIME, freed).await.is_err() && self.open().places.len() < CONNECTIONS_MAX + KEPT_BACK {
                return Some(self.take(origin, true));
            }
        }
    }

    fn take(&self, origin: IpAddr, is_kept_back: bool) -> Taken {
        let (close, closed) = oneshot::channel();
        let number = self.open().add(origin, Phase::Fresh, Instant::now(), is_kept_back, close);
        Taken { connection: Connection { number, is_kept_back, all: self.clone() }, closed }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().expect("nobody panics while holding this")
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Connection { number, all, .. } = &self.connection;
        all.open().remove(*number);
        all.0.freed.notify_one();
    }
}

impl Connection {
    /// Is its place one that is kept back?
    pub(crate) const fn is_kept_back(&self) -> bool {
        self.is_kept_back
    }

    /// From now on it does this.
    pub(crate) fn enter(&self, phase: Phase) {
        self.all.open().enter(self.number, phase, Instant::now());
    }

    /// The same, if that is what it did so far.
    pub(crate) fn leave(&self, before: Phase, phase: Phase) {
        let mut open = self.all.open();
        if open.places.get(&self.number).is_some_and(|place| place.phase == before) {
            open.enter(self.number, phase, Instant::now());
        }
    }
}

impl Open {
    fn add(
        &mut self,
        origin: IpAddr,
        phase: Phase,
        since: Instant,
        is_kept_back: bool,
        close: oneshot::Sender<Phase>,
    ) -> u64 {
        self.last += 1;
        let (number, turn) = (self.last, self.last);
        self.insert(number, Place { origin, phase, since, turn, is_kept_back, close });
        number
    }

    fn insert(&mut self, number: u64, place: Place) {
        if !place.is_kept_back {
            self.order.insert((place.phase, place.origin, place.turn), number);
            *self.crowds.entry((place.phase, place.origin)).or_default() += 1;
        }
        self.places.insert(number, place);
    }

    fn remove(&mut self, number: u64) -> Option<Place> {
        let place = self.places.remove(&number)?;
        if self.order.remove(&(place.phase, place.origin, place.turn)).is_some() {
            let crowd = self.crowds.entry((place.phase, place.origin)).or_default();
            *crowd -= 1;
            if *crowd == 0 {
                self.crowds.remove(&(place.phase, place.origin));
            }
        }
        Some(place)
    }

    /// Is there a place, if need be because another connection gives way?
    fn has_room(&mut self, max: usize, now: Instant) -> bool {
        self.order.len() < max || Phase::STILL.iter().any(|phase| self.give_way(*phase, None, now))
    }

    /// The same for a stranger's address.
    fn has_room_for(&mut self, origin: IpAddr, now: Instant) -> bool {
        let count: usize =
            self.crowds.iter().filter(|((_, other), _)| *other == origin).map(|(_, count)| count).sum();
        count < STRANGER_MAX || Phase::STILL.iter().any(|phase| self.give_way(*phase, Some(origin), now))
    }

    fn enter(&mut self, number: u64, phase: Phase, now: Instant) {
        let Some(place) = self.remove(number) else { return };
        self.last += 1;
        self.insert(number, Place { phase, since: now, turn: self.last, ..place });
        let followers = self.crowds.iter().filter(|((phase, _), _)| *phase == Phase::Following);
        if phase == Phase::Following && followers.map(|(_, count)| count).sum::<usize>() > FOLLOWERS_MAX {
            self.give_way(Phase::Following, None, now);
        }
    }

    /// Closes the oldest connection that does this, of the address that has most of them, or of that one. False if none of them
    /// can give way.
    fn give_way(&mut self, phase: Phase, origin: Option<IpAddr>, now: Instant) -> bool {
        let those = |at: &IpAddr| origin.is_none_or(|origin| origin == *at);
        let crowds = self.crowds.iter().filter(|((other, at), _)| *other == phase && those(at));
        let mut crowds: Vec<(usize, IpAddr)> = crowds.map(|((_, at), count)| (*count, *at)).collect();
        crowds.sort_unstable_by(|one, other| other.cmp(one));
        let oldest = |(_, at): (usize, IpAddr)| self.order.range((phase, at, 0)..=(phase, at, u64::MAX)).next();
        let mut oldest = crowds.into_iter().filter_map(oldest).map(|(_, number)| *number);
        let Some(number) = oldest.find(|number| self.places[number].is_still(now)) else { return false };
        if let Some(place) = self.remove(number) {
            // One that has ended meanwhile has given way, too.
            _ = place.close.send(phase);
        }
        true
    }
}

impl Place {
    fn is_still(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Following => true,
            Phase::Fresh | Phase::Arriving | Phase::Idle => now.saturating_duration_since(self.since) >= STILL_TIME,
            Phase::Asking => false,
        }
    }
}

/// Where connections come from that belong together: in the new version of the protocol everybody has many addresses.
fn origin(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with these connections: how many, from where, what they do, and for how many seconds.
    fn open(crowds: &[(usize, u8, Phase, u64)], now: Instant) -> (Open, Vec<oneshot::Receiver<Phase>>) {
        let (mut open, mut closed) = (Open::default(), Vec::new());
        for (count, host, phase, age) in crowds {
            for _ in 0..*count {
                let (close, is_closed) = oneshot::channel();
                let (origin, since) = (IpAddr::from([10, 0, 0, *host]), now - Duration::from_secs(*age));
                open.add(origin, *phase, since, false, close);
                closed.push(is_closed);
            }
        }
        (open, closed)
    }

    /// Which of them gives way, if one more comes.
    fn gone(crowds: &[(usize, u8, Phase, u64)]) -> Option<u64> {
        let now = Instant::now() + Duration::from_secs(1000);
        let (mut open, _closed) = open(crowds, now);
        let before: Vec<u64> = open.places.keys().copied().collect();
        assert_eq!(open.has_room(before.len(), now), open.places.len() < before.len());
        before.into_iter().find(|number| !open.places.contains_key(number))
    }

    #[test]
    fn the_oldest_gives_way_that_does_least() {
        use Phase::{Arriving, Asking, Following, Fresh, Idle};
        assert_eq!(gone(&[(1, 1, Asking, 99), (1, 1, Following, 7), (1, 1, Following, 5)]), Some(2));
        assert_eq!(gone(&[(1, 1, Idle, 9), (1, 1, Fresh, 2), (1, 1, Arriving, 9)]), Some(2));
        assert_eq!(gone(&[(1, 1, Idle, 9), (1, 1, Fresh, 0), (1, 1, Arriving, 3)]), Some(3));
        assert_eq!(gone(&[(1, 1, Idle, 9), (1, 1, Arriving, 0)]), Some(1));
        assert_eq!(gone(&[(2, 1, Asking, 99), (1, 1, Idle, 0), (1, 1, Fresh, 0)]), None);
    }

    #[test]
    fn the_address_with_most_gives_way_first() {
        assert_eq!(gone(&[(2, 1, Phase::Following, 9), (3, 2, Phase::Following, 3)]), Some(3));
        assert_eq!(gone(&[(2, 1, Phase::Following, 9), (3, 2, Phase::Asking, 3)]), Some(1));
    }

    #[test]
    fn a_stranger_has_a_quarter_and_there_are_only_so_many_followers() {
        let now = Instant::now();
        let stranger = IpAddr::from([10, 0, 0, 1]);
        let room_for = |crowds: &[_]| open(crowds, now).0.has_room_for(stranger, now);
        assert!(room_for(&[(STRANGER_MAX - 1, 1, Phase::Asking, 0), (9, 2, Phase::Asking, 0)]));
        assert!(!room_for(&[(STRANGER_MAX, 1, Phase::Asking, 0), (9, 2, Phase::Following, 0)]));
        assert!(room_for(&[(STRANGER_MAX, 1, Phase::Following, 0)]), "one of its own gives way");
        let (mut open, _closed) = open(&[(FOLLOWERS_MAX, 1, Phase::Following, 0), (1, 2, Phase::Asking, 0)], now);
        let last = open.last;
        open.enter(last, Phase::Following, now);
        assert_eq!(
            (open.places.len(), open.places.contains_key(&1), open.places.contains_key(&last)),
            (1024, false, true)
        );
    }

    #[test]
    fn if_nobody_can_give_way_a_place_is_taken_that_was_kept_back() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (all, here) = (Connections::default(), IpAddr::from([127, 0, 0, 1]));
            let mut taken = Vec::new();
            for _ in 0..CONNECTIONS_MAX {
                taken.push(all.admit(here, false).await.unwrap());
                taken.last().unwrap().connection.enter(Phase::Asking);
            }
            let one_more = all.admit(here, false).await.unwrap();
            assert!(one_more.connection.is_kept_back());
            taken.pop();
            assert!(!all.admit(here, false).await.unwrap().connection.is_kept_back());
        });
    }

    #[test]
    fn addresses_that_belong_together() {
        let of = |text: &str| origin(text.parse().expect("an address")).to_string();
        assert_eq!((of("10.0.0.1"), of("::ffff:10.0.0.1")), ("10.0.0.1".to_owned(), "10.0.0.1".to_owned()));
        assert_eq!(of("fd00:1:2:3:4:5:6:7"), of("fd00:1:2:3::9"));
    }
}
