//! How control begins: at once if the disk belongs to a cluster, and as soon as it does otherwise. Until then this server answers
//! nobody who elects, votes or replicates.

use std::future::pending;

use primus_core::machine::Input;
use primus_server::control::Command;
use primus_server::groups;
use tokio::sync::oneshot;

use super::{EndError, Running};
use crate::founding::{self, Begun};

impl Running {
    /// The server belongs to a cluster, and takes part in it from now on.
    pub(super) fn begin(&mut self) {
        self.step(Input::Command(Command::Boot));
        self.others.elections.tell(Input::Command(groups::Command::Boot));
        self.writing.flush();
    }

    /// Others hear of it only when control has begun: whoever hears it calls at once.
    pub(super) fn on_founded(&mut self, Begun { record, claim, shown }: Begun) {
        self.shown.history.add(founding::founded(&record));
        if !record.members.keys().eq(self.config.plan.servers.keys()) {
            self.end = Some(EndError::OtherMembers(record.cluster));
            return;
        }
        self.begin();
        self.on_load();
        shown.become_member(claim, &record);
        self.founding = Some(shown);
    }
}

/// Waits for the founding, if it is still to come.
pub(super) async fn founded(founding: &mut Option<oneshot::Receiver<Begun>>) -> Begun {
    if let Some(founding) = founding
        && let Ok(begun) = founding.await
    {
        return begun;
    }
    // What founds ends only with the server.
    pending().await
}
