//! What arrives at control's loop, and in which order it is taken.

use primus_core::machine::Token;
use primus_server::words::Words;
use tokio::sync::{mpsc, oneshot};

use crate::farm::ToControl;
use crate::founding::Begun;
use crate::handle::Request;
use crate::links::LinkEvent;
use crate::requests::Requested;
use crate::watched::Broken;

/// Where everything arrives but what the disk has done.
pub(super) struct Inputs {
    pub(super) links: mpsc::Receiver<LinkEvent<Words>>,
    pub(super) wishes: mpsc::UnboundedReceiver<ToControl>,
    pub(super) requests: mpsc::UnboundedReceiver<Requested>,
    /// Which other part has failed.
    pub(super) failures: mpsc::UnboundedReceiver<Broken>,
    /// That the server belongs to a cluster, if it did not when it started.
    pub(super) founding: Option<oneshot::Receiver<Begun>>,
}

impl Inputs {
    pub(super) fn try_next(&mut self) -> Option<Arrived> {
        let link = self.links.try_recv().map(Arrived::Link);
        let link_or_wish = link.or_else(|_| self.wishes.try_recv().map(Arrived::ToControl));
        link_or_wish.or_else(|_| self.requests.try_recv().map(|(request, _)| Arrived::Request(request))).ok()
    }
}

/// What has arrived.
pub(super) enum Arrived {
    Synced(Token),
    Link(LinkEvent<Words>),
    ToControl(ToControl),
    Request(Request),
}

impl Arrived {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Synced(_) => "what the disk has written",
            Self::Link(LinkEvent::Message(_, words, _)) => words.name(),
            Self::Link(_) => "a link",
            Self::ToControl(wish) => wish.name(),
            Self::Request(request) => request.name(),
        }
    }
}
