//! How a server's peers are, for people who ask: up, suspected, dead, or not heard of yet, and why.
//!
//! It decides nothing: elections have suspicions of their own, which are faster and end sooner. A refused port is the only
//! proof of death. Silence, a lost link and a refused hello only make a peer suspected.

use std::collections::BTreeMap;
use std::fmt;

use primus_core::ServerId;

/// How a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    /// Nothing has been heard of it since this server started.
    #[default]
    Unknown,
    /// It is there.
    Up,
    /// It is silent, or cannot be talked to.
    Suspected,
    /// Its port refuses connections.
    Dead,
}

/// Why a peer is not up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Why {
    /// Nothing has been heard of it yet.
    #[default]
    NotHeard,
    /// Its port refuses connections.
    PortRefuses,
    /// The link to it was lost.
    LinkLost,
    /// It says nothing.
    Silent,
    /// The leader hears nothing of it.
    MissedByLeader,
    /// It refused the hello of this server, or this server refused its own, with this sentence.
    Refused(String),
    /// Its name does not resolve, with this sentence.
    Unresolved(String),
}

/// What was seen of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sign {
    /// It said something.
    Heard,
    /// A link to it was made.
    LinkUp,
    /// The link to it was lost.
    LinkDown,
    /// Its port refuses connections, or another process has taken its place.
    Gone,
    /// A hello was refused.
    Refused(String),
    /// Its name does not resolve, so it cannot be dialled.
    Unresolved(String),
    /// Its name resolves again.
    Resolved,
    /// It has been silent for too long.
    Silent,
    /// So says the leader.
    MissedByLeader,
    /// The leader hears it again.
    FoundByLeader,
}

/// One peer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Peer {
    /// How it is.
    pub state: State,
    /// Why it is not up.
    pub why: Option<Why>,
}

/// All peers of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    peers: BTreeMap<ServerId, Peer>,
}

impl Peers {
    /// Nobody has been heard of yet.
    pub fn new(peers: impl IntoIterator<Item = ServerId>) -> Self {
        let unknown = Peer { state: State::Unknown, why: Some(Why::NotHeard) };
        Self { peers: peers.into_iter().map(|peer| (peer, unknown.clone())).collect() }
    }

    /// Takes in what was seen of a peer. Gives it back if it is in another state now, or for another reason.
    pub fn see(&mut self, peer: ServerId, sign: Sign) -> Option<&Peer> {
        let known = self.peers.get_mut(&peer)?;
        let next = known.after(sign)?;
        (*known != next).then(|| {
            *known = next;
            &*known
        })
    }
}

impl Peer {
    /// How it is after this sign; nothing if that says nothing new.
    fn after(&self, sign: Sign) -> Option<Self> {
        let suspected = |why| Some(Self { state: State::Suspected, why: Some(why) });
        let is_up = self.state == State::Up;
        match (sign, &self.why) {
            (Sign::LinkUp, _) => Some(Self { state: State::Up, why: None }),
            // What a process said before it died may be read after its death.
            (Sign::Heard, Some(Why::PortRefuses | Why::Refused(_) | Why::Unresolved(_)) | None) => None,
            (Sign::Heard, _) => Some(Self { state: State::Up, why: None }),
            (Sign::Gone, _) => Some(Self { state: State::Dead, why: Some(Why::PortRefuses) }),
            (Sign::Refused(sentence), _) => suspected(Why::Refused(sentence)),
            (Sign::Unresolved(sentence), _) if self.state != State::Dead => suspected(Why::Unresolved(sentence)),
            (Sign::Resolved, Some(Why::Unresolved(_))) => {
                Some(Self { state: State::Unknown, why: Some(Why::NotHeard) })
            }
            (Sign::LinkDown, _) if is_up => suspected(Why::LinkLost),
            (Sign::Silent, _) if is_up => suspected(Why::Silent),
            (Sign::MissedByLeader, _) if is_up => suspected(Why::MissedByLeader),
            (Sign::FoundByLeader, Some(Why::MissedByLeader)) => Some(Self { state: State::Up, why: None }),
            _ => None,
        }
    }
}

impl State {
    /// Its name, as output contracts spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspected => "suspected",
            Self::Dead => "dead",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotHeard => "nothing has been heard of it since this server started",
            Self::PortRefuses => "its port refuses connections",
            Self::LinkLost => "the link to it was lost",
            Self::Silent => "it is silent: frozen, cut off or very busy",
            Self::MissedByLeader => "the leader hears nothing of it",
            Self::Refused(sentence) | Self::Unresolved(sentence) => sentence,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: ServerId = ServerId(2);

    fn state_after(signs: &[Sign]) -> (State, Option<String>) {
        let mut peers = Peers::new([PEER]);
        signs.iter().for_each(|sign| _ = peers.see(PEER, sign.clone()));
        let Peer { state, why } = peers.peers[&PEER].clone();
        (state, why.map(|why| why.to_string()))
    }

    #[test]
    fn signs_say_how_a_peer_is() {
        use Sign::{FoundByLeader, Gone, Heard, LinkDown, LinkUp, MissedByLeader, Silent};
        let refused = || Sign::Refused("another disk".to_owned());
        for (signs, state, why) in [
            (vec![], State::Unknown, "nothing has been heard of it since this server started"),
            (vec![LinkDown, Silent], State::Unknown, "nothing has been heard of it since this server started"),
            (vec![Heard], State::Up, ""),
            (vec![LinkUp], State::Up, ""),
            (vec![LinkUp, LinkDown], State::Suspected, "the link to it was lost"),
            (vec![LinkUp, LinkDown, Gone], State::Dead, "its port refuses connections"),
            (vec![Gone], State::Dead, "its port refuses connections"),
            (vec![LinkUp, Gone, Heard], State::Dead, "its port refuses connections"),
            (vec![LinkUp, Gone, LinkUp], State::Up, ""),
            (vec![LinkUp, Silent], State::Suspected, "it is silent: frozen, cut off or very busy"),
            (vec![LinkUp, Silent, Heard], State::Up, ""),
            (vec![LinkUp, MissedByLeader], State::Suspected, "the leader hears nothing of it"),
            (vec![LinkUp, MissedByLeader, FoundByLeader], State::Up, ""),
            (vec![Gone, FoundByLeader], State::Dead, "its port refuses connections"),
            (vec![Gone, refused(), Heard], State::Suspected, "another disk"),
            (vec![refused(), LinkUp], State::Up, ""),
        ] {
            let found = state_after(&signs);
            assert_eq!((found.0, found.1.unwrap_or_default().as_str()), (state, why), "{signs:?}");
        }
    }

    #[test]
    fn only_news_is_told() {
        let mut peers = Peers::new([PEER]);
        assert!(peers.see(PEER, Sign::LinkUp).is_some());
        assert!(peers.see(PEER, Sign::Heard).is_none() && peers.see(PEER, Sign::LinkUp).is_none());
        assert!(peers.see(ServerId(9), Sign::Gone).is_none(), "not a peer");
    }
}
