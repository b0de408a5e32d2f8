//! Whatever a link brings, nothing here panics, and damage never makes another name of a certificate.

use std::sync::{Arc, LazyLock};

use crate::pair::{accepting, authority, credentials, day, server, trust, worker};
use primus_identity::CertificateDer;
use primus_identity::authority::{Authority, AuthorityCertificate};
use primus_identity::certificate::Certificate;
use primus_identity::keys::{Keys, PublicKey};
use primus_identity::name::Name;
use primus_identity::trust::Trust;
use proptest::prelude::*;
use rustls::ServerConnection;

struct Farm {
    authority: Authority,
    trust: Arc<Trust>,
    leaf: Vec<u8>,
}

static NORTH: LazyLock<Farm> = LazyLock::new(|| {
    let authority = authority("north");
    let leaf = credentials(&authority, &worker("north", "w1"), 7).chain()[0].to_vec();
    Farm { trust: trust(&[&authority], &[]), authority, leaf }
});

/// Takes the bytes for everything that they could be.
fn read(bytes: &[u8]) {
    let der = CertificateDer::from(bytes);
    let _ = Certificate::read(&der);
    let _ = AuthorityCertificate::from_der(bytes);
    let _ = PublicKey::from_der(bytes);
    let _ = Keys::from_der(bytes);
    assert!(NORTH.trust.judge(&der, day(0)).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..1500)) {
        read(&bytes);
    }

    #[test]
    fn any_text_is_refused(text in "\\PC*") {
        let _ = Name::from_uri(&text);
        let _ = Name::from_uri(&format!("primus://{text}"));
        let _ = Keys::from_pem(&text);
        let _ = AuthorityCertificate::from_pem(&text);
    }

    #[test]
    fn a_damaged_certificate_is_refused(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        len in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut leaf = NORTH.leaf.clone();
        let mut root = NORTH.authority.certificate().der().to_vec();
        for (place, byte) in &edits {
            let at = place.index(leaf.len());
            leaf[at] = *byte;
            let at = place.index(root.len());
            root[at] = *byte;
        }
        if is_cut {
            leaf.truncate(len.index(leaf.len()));
            root.truncate(len.index(root.len()));
        }
        if leaf != NORTH.leaf {
            read(&leaf);
        }
        if let Ok(authority) = AuthorityCertificate::from_der(&root) {
            let is_same = authority.hash() == NORTH.authority.certificate().hash();
            prop_assert_eq!(is_same, root == NORTH.authority.certificate().der().to_vec());
        }
    }

    #[test]
    fn a_server_bears_any_bytes_of_a_caller(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let two = credentials(&NORTH.authority, &server("north", 2), 2);
        let mut server = ServerConnection::new(accepting(&two, &NORTH.trust)).unwrap();
        let _ = server.read_tls(&mut &bytes[..]);
        let _ = server.process_new_packets();
        prop_assert!(server.is_handshaking());
    }
}
