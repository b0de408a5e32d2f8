//! Parts of outputs that workers are asked for. They are read where they are, so this is not the farm's business.

use std::collections::BTreeMap;

use bytes::Bytes;
use primus_core::WorkerId;
use primus_wire::work::{Part, ToWorker};

use super::worker_links::WorkerLinks;
use crate::handle::{Reply, Unable};

/// How many may be under way.
const OUTPUTS_MAX: usize = 1024;

/// All that are.
#[derive(Default)]
pub(super) struct Outputs {
    last: u64,
    wanted: BTreeMap<u64, Wanted>,
}

struct Wanted {
    from: WorkerId,
    len_max: usize,
    reply: Reply<Option<Bytes>>,
}

impl Outputs {
    pub(super) fn ask(&mut self, worker: &str, part: Part, reply: Reply<Option<Bytes>>, callers: &WorkerLinks) {
        let Some(from) = callers.named(worker) else {
            // The receiver may have gone away, here and below.
            _ = reply.send(Err(Unable::NoWorker));
            return;
        };
        self.wanted.retain(|_, wanted| !wanted.reply.is_closed());
        if self.wanted.len() >= OUTPUTS_MAX {
            _ = reply.send(Err(Unable::Busy));
            return;
        }
        self.last += 1;
        callers.say(from, &ToWorker::Output(self.last, part));
        self.wanted.insert(self.last, Wanted { from, len_max: part.len_max as usize, reply });
    }

    /// Only the worker that was asked answers, and with no more than it was asked for.
    pub(super) fn on_answer(&mut self, from: WorkerId, number: u64, bytes: Option<Bytes>) {
        let is_asked = self.wanted.get(&number).is_some_and(|wanted| wanted.from == from);
        if let Some(Wanted { len_max, reply, .. }) = is_asked.then(|| self.wanted.remove(&number)).flatten() {
            _ = reply.send(Ok(bytes.map(|bytes| bytes.slice(..bytes.len().min(len_max)))));
        }
    }

    pub(super) fn on_link_down(&mut self, worker: WorkerId) {
        for (_, wanted) in self.wanted.extract_if(.., |_, wanted| wanted.from == worker) {
            _ = wanted.reply.send(Err(Unable::NoWorker));
        }
    }
}
