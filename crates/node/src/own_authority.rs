//! The founding's authority enters the roll: until the roll has one, nobody can join with a token.
//!
//! The server that leads, and that began with the founding file, writes it down. Twice does no harm.

use std::path::Path;
use std::time::Duration;

use primus_core::ledger::roll::{self, Change, Fingerprint, SecretKey};
use tokio::time::sleep;

use crate::founding_file::{FoundingAuthority, FoundingFile};
use crate::handle::Handle;

/// How long a leader waits that could not write it down.
const AGAIN_TIME: Duration = Duration::from_millis(250);

/// The authority of the file that this farm began with, if the file has its key.
pub(crate) fn of(founding: Option<&Path>, farm: &str) -> Option<roll::Authority> {
    match FoundingFile::read(founding?, farm).ok()?.authority? {
        FoundingAuthority::Whole(authority) => Some(roll::Authority {
            certificate: authority.certificate().der().to_vec(),
            hash: Fingerprint(*authority.certificate().hash().bytes()),
            key: SecretKey(authority.keys().secret_der().to_vec()),
        }),
        FoundingAuthority::Certificate(_) => None,
    }
}

/// Writes it down as soon as this server leads and the roll has none.
pub(crate) async fn enter(authority: roll::Authority, handle: Handle) {
    let mut leadership = handle.leadership();
    loop {
        if leadership.wait_for(|now| now.is_me).await.is_err() {
            return;
        }
        let known = handle.farm.look(|foreman| !foreman.ledger().roll().authorities().is_empty()).await;
        let is_known = match known {
            Ok(false) => handle.farm.change_roll(Change::AddAuthority(authority.clone())).await.is_ok(),
            Ok(true) => true,
            Err(_) => false,
        };
        if is_known {
            return;
        }
        sleep(AGAIN_TIME).await;
    }
}
