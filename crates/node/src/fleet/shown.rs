//! Which authority has issued the certificate of each node that is linked to this server, as the nodes say of themselves: what they
//! showed when their links began may be older.

use std::collections::BTreeMap;
use std::sync::Mutex;

use primus_core::ledger::roll::Fingerprint;
use primus_core::{ServerId, WorkerId};

/// What is known of servers and of workers.
#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    servers: BTreeMap<ServerId, Fingerprint>,
    /// Those that have a link, with their names.
    workers: BTreeMap<WorkerId, (String, Fingerprint)>,
}

impl Shown {
    pub(crate) fn server(&self, id: ServerId, authority: Fingerprint) {
        self.lists(|lists| _ = lists.servers.insert(id, authority));
    }

    pub(crate) fn worker(&self, link: WorkerId, name: &str, authority: Fingerprint) {
        self.lists(|lists| _ = lists.workers.insert(link, (name.to_owned(), authority)));
    }

    /// The link of a worker is lost.
    pub(crate) fn gone(&self, link: WorkerId) {
        self.lists(|lists| _ = lists.workers.remove(&link));
    }

    /// Those of these servers, and of the workers, that have not shown this authority.
    pub(crate) fn others_than(
        &self,
        newest: Fingerprint,
        servers: impl IntoIterator<Item = ServerId>,
    ) -> Vec<String> {
        let mut others = Vec::new();
        self.lists(|lists| {
            let servers = servers.into_iter().filter(|id| lists.servers.get(id) != Some(&newest));
            others.extend(servers.map(|id| format!("server {id}")));
            let workers = lists.workers.values().filter(|(_, authority)| *authority != newest);
            others.extend(workers.map(|(name, _)| format!("worker {name}")));
        });
        others
    }

    fn lists(&self, change: impl FnOnce(&mut Lists)) {
        change(&mut self.0.lock().expect("nobody panics while holding this"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_shown_the_newest_authority_is_named() {
        let (shown, [old, new]) = (Shown::default(), [1, 2].map(|mark| Fingerprint([mark; 32])));
        let others = || shown.others_than(new, [1, 2].map(ServerId));
        assert_eq!(others(), ["server 1", "server 2"], "what was not heard is not known");
        [1, 2].map(ServerId).into_iter().for_each(|id| shown.server(id, old));
        shown.server(ServerId(1), new);
        shown.worker(WorkerId(7), "w1", old);
        shown.worker(WorkerId(8), "w2", old);
        assert_eq!(others(), ["server 2", "worker w1", "worker w2"]);
        shown.server(ServerId(2), new);
        shown.worker(WorkerId(7), "w1", new);
        shown.gone(WorkerId(8));
        assert_eq!(others(), [""; 0]);
    }
}
