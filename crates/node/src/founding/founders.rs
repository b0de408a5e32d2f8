//! Servers that want to hear how far the founding is here. Each is told at once, whenever that changes, and every second, so that it
//! notices when nothing comes any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primus_core::ServerId;
use primus_core::founding::{Claim, SERVERS_MAX};
use primus_wire::native::{Answer, Hello, Purpose};
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::dialling::{HELLO_TIME, say};
use crate::introductions::Introductions;
use crate::line::Line;

/// How often each is told, if nothing changes.
pub(super) const REPEATED: Duration = Duration::from_secs(1);

/// Those who listen.
#[derive(Debug, Default)]
pub(crate) struct Founders {
    listening: Mutex<Listening>,
}

#[derive(Debug, Default)]
struct Listening {
    /// One link of each server. When another one takes its place, this is dropped.
    links: BTreeMap<ServerId, (u64, oneshot::Sender<()>)>,
    links_ever: u64,
    /// Rung when a server calls that this one would call, too: it is there.
    bells: BTreeMap<ServerId, Arc<Notify>>,
}

impl Founders {
    /// Serves the link of a server that has greeted, until its end.
    ///
    /// # Errors
    /// Why it is not heard, in a sentence.
    pub(crate) async fn receive(
        &self,
        line: &mut Line,
        hello: &Hello,
        introductions: &Introductions,
    ) -> Result<(), String> {
        let founder = introductions.check_founder(hello, line.who())?;
        let (number, lost) =
            self.enter(founder).ok_or("too many servers listen to how the founding of this one goes")?;
        let answer = Answer::Welcome(introductions.hello(founder, Purpose::Founding));
        if matches!(timeout(HELLO_TIME, say(line, &answer)).await, Ok(Ok(()))) {
            tell(line, introductions.claim(), lost).await;
        }
        self.listening().links.retain(|_, (of, _)| *of != number);
        Ok(())
    }

    /// What is rung when this server calls.
    pub(super) fn bell(&self, of: ServerId) -> Arc<Notify> {
        Arc::clone(self.listening().bells.entry(of).or_default())
    }

    /// A place for the link of a server; it takes that of an older one. Nothing if there are too many.
    fn enter(&self, founder: ServerId) -> Option<(u64, oneshot::Receiver<()>)> {
        let mut listening = self.listening();
        if listening.links.len() >= SERVERS_MAX && !listening.links.contains_key(&founder) {
            return None;
        }
        let (place, lost) = oneshot::channel();
        listening.links_ever += 1;
        let number = listening.links_ever;
        listening.links.insert(founder, (number, place));
        listening.bells.get(&founder).into_iter().for_each(|bell| bell.notify_one());
        Some((number, lost))
    }

    fn listening(&self) -> MutexGuard<'_, Listening> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until the link is lost, or another one has taken its place.
async fn tell(line: &mut Line, mut claim: watch::Receiver<Claim>, mut lost: oneshot::Receiver<()>) {
    let mut ignored = [0; 64];
    loop {
        let said = claim.borrow_and_update().clone();
        if !matches!(timeout(HELLO_TIME, say(line, &said)).await, Ok(Ok(()))) {
            return;
        }
        tokio::select! {
            _ = &mut lost => return,
            // Nothing comes on this link but its end.
            _ = line.read(&mut ignored) => return,
            changed = claim.changed() => if changed.is_err() { return },
            () = sleep(REPEATED) => {}
        }
    }
}
