//! A server that is told to begin alone before it starts: it has no peers then, and needs none.

use std::collections::BTreeMap;
use std::sync::Arc;

use primus_core::founding::{Command, Digest, Founding, Rules, Server};
use primus_core::machine::{Input, Machine, Moment, Outbox, Output};
use primus_core::planted::Planted;
use primus_core::{Place, ServerId};
use primus_identity::hash::sha256;

use super::Order;
use super::members::with_addresses;
use crate::credentials::Security;
use crate::store::{Opened, Origin, StoreId, WriteError};

/// Founds the cluster of a server that was told to begin alone, if its disk is free.
///
/// # Errors
/// If the disk does not keep it.
pub(crate) fn begin_alone(
    opened: &mut Opened,
    (farm, security): (&str, &Security),
    (id, list): (ServerId, &BTreeMap<ServerId, Place>),
) -> Result<(), WriteError> {
    let dir = opened.store.directory().to_owned();
    if Order::Alone.is_given(&dir) && opened.origin.founded().is_none() {
        let mut origin = Origin { authority: authority(farm, security), ..opened.origin.clone() };
        let (mut machine, mut outbox) = (machine(&origin, farm, (id, opened.store_id), list), Outbox::new());
        machine.step(Moment::default(), Input::Command(Command::Alone), &mut outbox);
        for output in outbox.drain() {
            let Output::Persist { records, .. } = output else { continue };
            for phase in records {
                if let Some(record) = phase.founded() {
                    origin = with_addresses(&origin, record, list.iter());
                }
                origin.phase = phase;
                opened.store.keep_origin(&origin)?;
                opened.origin = origin.clone();
            }
        }
    }
    if opened.origin.founded().is_some() {
        Order::Alone.is_over(&dir);
    }
    Ok(())
}

/// What the authority of a farm is recognised by; nothing if links are not encrypted.
pub(super) fn authority(farm: &str, security: &Security) -> Option<[u8; 32]> {
    security.authority_of(farm).map(|authority| *authority.hash().bytes())
}

/// The machine of a server with this disk and this list.
pub(super) fn machine(
    origin: &Origin,
    farm: &str,
    (id, store): (ServerId, StoreId),
    list: &BTreeMap<ServerId, Place>,
) -> Founding {
    let authority = origin.authority.map(Vec::from).unwrap_or_default();
    let (digest, planted) = (Digest(sha256), Planted::default());
    let rules = Rules { farm: farm.to_owned(), authority, digest, planted };
    let list = list.iter().map(|(id, address)| (*id, address.to_string())).collect();
    let server = Server { id, store: store.into(), list, remembers: origin.remembers.clone() };
    Founding::new(server, origin.phase.clone(), Arc::new(rules))
}
