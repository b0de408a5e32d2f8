//! The body of a request: known, or made while it is sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::mpsc;

#[derive(Debug)]
pub(super) enum Content {
    Known(Bytes),
    /// It ends when the sender of its pieces is dropped.
    Made(mpsc::Receiver<Bytes>),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut *self {
            Self::Known(rest) => Poll::Ready(Some(std::mem::take(rest)).filter(|rest| !rest.is_empty())),
            Self::Made(pieces) => pieces.poll_recv(cx),
        };
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Known(rest) if rest.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Known(rest) => SizeHint::with_exact(rest.len() as u64),
            Self::Made(_) => SizeHint::default(),
        }
    }
}
