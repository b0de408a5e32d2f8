//! Both ends of a connection in memory, and farms to put at them.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use primus_core::ServerId;
use primus_identity::authority::{Authority, Request};
use primus_identity::certificate::Validity;
use primus_identity::config::{self, Credentials};
use primus_identity::keys::Keys;
use primus_identity::name::Name;
use primus_identity::peer::{self, Caller};
use primus_identity::refusal::Refusal;
use primus_identity::trust::{Identified, Trust};
use primus_identity::{ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

/// More flights than any handshake has.
const FLIGHTS_MAX: usize = 16;
const DAY_SECONDS: u64 = 86_400;

/// So many days after the beginning of every test.
pub(crate) fn day(days: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000 + days * DAY_SECONDS))
}

pub(crate) fn server(farm: &str, id: u64) -> Name {
    Name::server(farm, ServerId(id)).unwrap()
}

pub(crate) fn worker(farm: &str, name: &str) -> Name {
    Name::worker(farm, name).unwrap()
}

pub(crate) fn authority(farm: &str) -> Authority {
    Authority::create(farm, day(0)).unwrap()
}

/// A certificate of day 0, for a year, and its key.
pub(crate) fn credentials(authority: &Authority, name: &Name, serial: u64) -> Credentials {
    let keys = Keys::generate().unwrap();
    let request = Request { name, key: &keys.public_key(), api: &[], serial };
    let certificate = authority.issue(&request, Validity::since_yesterday(day(0), 365)).unwrap();
    Credentials::new(certificate, authority.certificate(), &keys).unwrap()
}

pub(crate) fn trust(own: &[&Authority], neighbours: &[&Authority]) -> Arc<Trust> {
    let public = |authorities: &[&Authority]| authorities.iter().map(|one| one.certificate().clone()).collect();
    Arc::new(Trust::new(own[0].certificate().farm(), public(own), public(neighbours)).unwrap())
}

pub(crate) fn accepting(credentials: &Credentials, trust: &Arc<Trust>) -> Arc<ServerConfig> {
    config::accepting(credentials, trust, Arc::new(|| day(0)))
}

pub(crate) fn dialling(credentials: &Credentials, trust: &Arc<Trust>, farm: &str) -> Arc<ClientConfig> {
    config::dialling(credentials, trust, farm, Arc::new(|| day(0)))
}

/// A ledger that objects to no peer.
pub(crate) fn welcome(_: &Identified) -> Result<(), Refusal> {
    Ok(())
}

pub(crate) struct Pair {
    pub(crate) client: ClientConnection,
    pub(crate) server: ServerConnection,
    /// What each end says if the handshake failed there.
    pub(crate) client_refusal: Option<Refusal>,
    pub(crate) server_refusal: Option<Refusal>,
}

impl Pair {
    /// Lets the two speak until both are silent.
    pub(crate) fn new(
        client: &Arc<ClientConfig>,
        server: &Arc<ServerConfig>,
        dialled: ServerName<'static>,
    ) -> Self {
        let client = ClientConnection::new(client.clone(), dialled).unwrap();
        let server = ServerConnection::new(server.clone()).unwrap();
        let mut pair = Self { client, server, client_refusal: None, server_refusal: None };
        for _ in 0..FLIGHTS_MAX {
            pair.exchange();
        }
        assert!(!pair.client.wants_write() && !pair.server.wants_write());
        pair
    }

    fn exchange(&mut self) {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = Cursor::new(bytes);
        while self.server.read_tls(&mut bytes).is_ok_and(|count| count > 0) {
            let heard = self.server.process_new_packets();
            self.server_refusal = self.server_refusal.take().or(heard.err().map(|error| Refusal::of(&error)));
        }
        let mut bytes = Vec::new();
        while self.server.wants_write() {
            self.server.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = Cursor::new(bytes);
        while self.client.read_tls(&mut bytes).is_ok_and(|count| count > 0) {
            let heard = self.client.process_new_packets();
            self.client_refusal = self.client_refusal.take().or(heard.err().map(|error| Refusal::of(&error)));
        }
    }

    /// Both ends as they know each other.
    pub(crate) fn meet(
        &self,
        at_client: &Trust,
        at_server: &Trust,
    ) -> (Result<Identified, Refusal>, Result<Caller, Refusal>) {
        let callee = peer::callee(&self.client, at_client, &welcome, day(0));
        (callee, peer::caller(&self.server, at_server, &welcome, day(0)))
    }

    /// The codes of both ends' refusals; empty where there is none.
    pub(crate) fn codes(&self) -> (&'static str, &'static str) {
        let code = |refusal: &Option<Refusal>| refusal.as_ref().map_or("", Refusal::code);
        (code(&self.client_refusal), code(&self.server_refusal))
    }
}
