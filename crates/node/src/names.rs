//! Names of hosts, looked up: each lookup on a thread of its own.
//!
//! The system's resolver can take as long as it likes, and nothing can interrupt it. So no thread that has anything else to do
//! waits for it, and no runtime: tokio's own pool would keep a process from ending until the resolver gives up.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use primus_core::Place;
use tokio::sync::oneshot;

/// How many lookups may be under way in this process. Each dialler has one at most.
const LOOKUPS_MAX: usize = 512;
/// How many addresses of one name are tried.
const ADDRESSES_MAX: usize = 16;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The addresses of a name, once they are known.
pub(crate) type Lookup = oneshot::Receiver<Result<Vec<SocketAddr>, Unresolved>>;

/// A name that does not lead anywhere at the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name {name} does not resolve: {reason}")]
pub(crate) struct Unresolved {
    name: String,
    reason: String,
}

impl Unresolved {
    pub(crate) fn new(place: &Place, reason: impl Into<String>) -> Self {
        Self { name: place.host(), reason: reason.into() }
    }

    /// What is inside an error of a dial, if it is that.
    pub(crate) fn of_io(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Begins to look up where a place is.
pub(crate) fn look_up(place: &Place) -> Lookup {
    let (tell, found) = oneshot::channel();
    let room = Room::take();
    let Some(room) = room else {
        _ = tell.send(Err(Unresolved::new(place, "too many names are being looked up")));
        return found;
    };
    let sought = place.clone();
    let looking = move || {
        let _room = room;
        _ = tell.send(addresses(&sought));
    };
    // If the system gives no thread, the sender is gone, and whoever waits sees that.
    _ = thread::Builder::new().name("resolver".to_owned()).spawn(looking);
    found
}

fn addresses(place: &Place) -> Result<Vec<SocketAddr>, Unresolved> {
    let found = (place.host().as_str(), place.port()).to_socket_addrs();
    let found = found.map_err(|error| Unresolved::new(place, words(&error)))?;
    let mut seen = BTreeSet::new();
    let addresses: Vec<_> = found.filter(|address| seen.insert(*address)).take(ADDRESSES_MAX).collect();
    if addresses.is_empty() { Err(Unresolved::new(place, "it has no address")) } else { Ok(addresses) }
}

/// What the resolver says, without what every such sentence begins with.
fn words(error: &io::Error) -> String {
    let words = error.to_string();
    words.strip_prefix("failed to lookup address information: ").unwrap_or(&words).to_lowercase()
}

/// One of the lookups that may be under way.
struct Room;

impl Room {
    fn take() -> Option<Self> {
        let more = |count: usize| (count < LOOKUPS_MAX).then_some(count + 1);
        UNDER_WAY.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Self)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        UNDER_WAY.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn found(place: &str) -> Result<Vec<SocketAddr>, Unresolved> {
        look_up(&place.parse().unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn a_name_of_this_host_is_found_and_one_of_nobody_is_not() {
        let here = found("localhost:7460").await.unwrap();
        assert!(
            !here.is_empty() && here.iter().all(|address| address.ip().is_loopback() && address.port() == 7460)
        );
        // This ending is promised to exist nowhere.
        let nowhere = found("nowhere.invalid:1").await.unwrap_err();
        assert!(nowhere.to_string().starts_with("the name nowhere.invalid does not resolve: "), "{nowhere}");
        let error = io::Error::other(nowhere.clone());
        assert_eq!(Unresolved::of_io(&error), Some(&nowhere));
        assert_eq!(Unresolved::of_io(&io::ErrorKind::ConnectionRefused.into()), None);
    }
}
