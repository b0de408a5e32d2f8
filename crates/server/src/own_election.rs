//! An election of one's own: whatever implements [`Election`] can lead a cluster, although servers know only [`AnyElection`].
//!
//! Its messages travel as bytes. It runs unchanged in the laboratory, too, and should: see the example
//! `write_your_own_election`.

use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use primus_core::ServerId;
use primus_core::election::{Election, MessageKind};
use primus_core::machine::{Input, Moment, Outbox};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::any_election::{self, AnyElection, drive};
use crate::plan::Plan;

/// What servers can elect with.
pub trait OwnMachine: Election + Send + Sync + 'static {}

impl<E: Election + Send + Sync + 'static> OwnMachine for E {}

/// Somebody's own election, of whatever type.
pub struct OwnElection(Box<dyn Own>);

/// What it says: bytes that only elections of the same type understand.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Message {
    /// What it is counted as.
    pub kind: MessageKind,
    /// What it says.
    pub body: Bytes,
}

/// Makes the election of a server.
#[derive(Clone)]
pub struct Maker(Arc<dyn Fn(&Plan) -> OwnElection + Send + Sync>);

impl Maker {
    pub(crate) fn new<E>(make: impl Fn(&Plan) -> E + Send + Sync + 'static) -> Self
    where
        E: OwnMachine,
        E::Message: Serialize + DeserializeOwned,
    {
        Self(Arc::new(move |plan| OwnElection(Box::new(make(plan)))))
    }

    pub(crate) fn make(&self, plan: &Plan) -> OwnElection {
        (self.0)(plan)
    }
}

impl fmt::Debug for Maker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Maker")
    }
}

/// Two are equal if they are the same one: what a function does cannot be compared.
impl PartialEq for Maker {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Maker {}

/// An election whose type is not known here.
trait Own: fmt::Debug + Send + Sync {
    fn take(&mut self, now: Moment, input: Input<AnyElection>, out: &mut Outbox<AnyElection>);
    fn who(&self) -> ServerId;
    fn whom(&self) -> Option<ServerId>;
    fn is_under_way(&self) -> bool;
    fn best(&self) -> Option<ServerId>;
    fn best_among(&self, may_lead: &dyn Fn(ServerId) -> bool) -> Option<ServerId>;
    fn how_many(&self) -> usize;
    fn may_take_over(&self) -> bool;
    fn copy(&self) -> Box<dyn Own>;
    fn is_same(&self, other: &dyn Own) -> bool;
    fn hash_with(&self, hasher: &mut dyn Hasher);
    fn as_any(&self) -> &dyn Any;
}

impl<E: OwnMachine> Own for E
where
    E::Message: Serialize + DeserializeOwned,
{
    fn take(&mut self, now: Moment, input: Input<AnyElection>, out: &mut Outbox<AnyElection>) {
        drive(self, now, input, (read::<E>, written::<E>), out);
    }

    fn who(&self) -> ServerId {
        self.id()
    }

    fn whom(&self) -> Option<ServerId> {
        self.leader()
    }

    fn is_under_way(&self) -> bool {
        self.is_electing()
    }

    fn best(&self) -> Option<ServerId> {
        self.better()
    }

    fn best_among(&self, may_lead: &dyn Fn(ServerId) -> bool) -> Option<ServerId> {
        self.better_among(may_lead)
    }

    fn how_many(&self) -> usize {
        self.better_count()
    }

    fn may_take_over(&self) -> bool {
        self.preempts()
    }

    fn copy(&self) -> Box<dyn Own> {
        Box::new(self.clone())
    }

    fn is_same(&self, other: &dyn Own) -> bool {
        other.as_any().downcast_ref::<E>() == Some(self)
    }

    fn hash_with(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What another server's election of the same type said; nothing if it was of another one.
fn read<E: Election>(message: any_election::Message) -> Option<E::Message>
where
    E::Message: DeserializeOwned,
{
    match message {
        any_election::Message::Own(Message { body, .. }) => postcard::from_bytes(&body).ok(),
        any_election::Message::Bully(_) | any_election::Message::Ring(_) => None,
    }
}

fn written<E: Election>(message: E::Message) -> any_election::Message
where
    E::Message: Serialize,
{
    // What cannot be written is sent as nothing, and strange to whoever reads it.
    let body = postcard::to_stdvec(&message).unwrap_or_default().into();
    any_election::Message::Own(Message { kind: E::kind_of(&message), body })
}

impl OwnElection {
    pub(crate) fn step(&mut self, now: Moment, input: Input<AnyElection>, out: &mut Outbox<AnyElection>) {
        self.0.take(now, input, out);
    }

    pub(crate) fn id(&self) -> ServerId {
        self.0.who()
    }

    pub(crate) fn leader(&self) -> Option<ServerId> {
        self.0.whom()
    }

    pub(crate) fn is_electing(&self) -> bool {
        self.0.is_under_way()
    }

    pub(crate) fn better(&self) -> Option<ServerId> {
        self.0.best()
    }

    pub(crate) fn better_among(&self, may_lead: &dyn Fn(ServerId) -> bool) -> Option<ServerId> {
        self.0.best_among(may_lead)
    }

    pub(crate) fn better_count(&self) -> usize {
        self.0.how_many()
    }

    pub(crate) fn preempts(&self) -> bool {
        self.0.may_take_over()
    }
}

impl fmt::Debug for OwnElection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Clone for OwnElection {
    fn clone(&self) -> Self {
        Self(self.0.copy())
    }
}

impl PartialEq for OwnElection {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_same(other.0.as_ref())
    }
}

impl Eq for OwnElection {}

impl Hash for OwnElection {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash_with(state);
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())
    }
}
