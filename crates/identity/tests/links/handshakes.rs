//! Real handshakes of TLS 1.3 in memory: who gets through, and what the others hear.

use std::sync::Arc;
use std::time::Instant;

use crate::pair::{Pair, accepting, authority, credentials, day, dialling, server, trust, welcome, worker};
use primus_core::ServerId;
use primus_identity::authority::Authority;
use primus_identity::config::{self, JOIN, LINK, protocol};
use primus_identity::keys::Keys;
use primus_identity::name::{dial, dial_any};
use primus_identity::peer::{self, Caller};
use primus_identity::refusal::Refusal;
use primus_identity::trust::Identified;
use primus_identity::verify::Pin;
use primus_identity::{CertificateDer, UnixTime};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, SanType};
use rustls::client::{ResolvesClientCert, Resumption};
use rustls::crypto::ring::{default_provider, sign::any_ecdsa_type};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS12;
use rustls::{ClientConfig, HandshakeKind, RootCertStore, ServerConnection, SignatureScheme};

#[test]
fn two_servers_know_each_other() {
    let north = authority("north");
    let (one, two) = (credentials(&north, &server("north", 1), 11), credentials(&north, &server("north", 2), 12));
    let trust = trust(&[&north], &[]);
    let pair = Pair::new(&dialling(&one, &trust, "north"), &accepting(&two, &trust), dial(ServerId(2)));
    assert_eq!(pair.codes(), ("", ""));
    let (callee, caller) = pair.meet(&trust, &trust);
    let (callee, caller) = (callee.unwrap(), caller.unwrap());
    assert_eq!(callee.server_of("north"), Ok(ServerId(2)));
    assert_eq!((callee.serial, callee.authority), (12, north.certificate().hash()));
    assert_eq!(callee.key, two.certificate().key.fingerprint());
    assert_eq!(callee.validity, two.certificate().validity);
    let Caller::Known(caller) = caller else { panic!("{caller:?}") };
    assert_eq!((caller.must_say(&server("north", 1)), caller.serial), (Ok(()), 11));
}

#[test]
fn a_worker_knows_its_server_and_is_known() {
    let north = authority("north");
    let (w1, two) = (credentials(&north, &worker("north", "w1"), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let pair = Pair::new(&dialling(&w1, &trust, "north"), &accepting(&two, &trust), dial_any());
    let (callee, caller) = pair.meet(&trust, &trust);
    assert_eq!(callee.unwrap().server_of("north"), Ok(ServerId(2)));
    let Ok(Caller::Known(caller)) = caller else { panic!("{caller:?}") };
    assert_eq!(caller.worker_of("north"), Ok("w1"));
}

#[test]
fn neighbours_know_each_other_by_their_own_authorities() {
    let (north, south) = (authority("north"), authority("south"));
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&south, &server("south", 2), 2));
    let (here, there) = (trust(&[&north], &[&south]), trust(&[&south], &[&north]));
    let pair = Pair::new(&dialling(&one, &here, "south"), &accepting(&two, &there), dial_any());
    let (callee, caller) = pair.meet(&here, &there);
    assert_eq!(callee.unwrap().server_of("south"), Ok(ServerId(2)));
    let Ok(Caller::Known(caller)) = caller else { panic!("{caller:?}") };
    assert_eq!(caller.server_of("north"), Ok(ServerId(1)));
    assert_eq!(caller.server_of("south").unwrap_err().code(), "other_farm");
}

#[test]
fn an_authority_that_is_not_trusted_opens_nothing() {
    let (north, evil) = (authority("north"), authority("north"));
    let (one, stranger) = (credentials(&north, &server("north", 1), 1), credentials(&evil, &server("north", 2), 2));
    let (honest, misled) = (trust(&[&north], &[]), trust(&[&evil, &north], &[]));
    // As a caller, and as the one who answers.
    let pair = Pair::new(&dialling(&stranger, &misled, "north"), &accepting(&one, &honest), dial(ServerId(1)));
    assert_eq!(pair.codes(), ("refused_there", "foreign_authority"));
    assert!(pair.client_refusal.unwrap().to_string().contains("not trusted there"));
    let pair = Pair::new(&dialling(&one, &honest, "north"), &accepting(&stranger, &misled), dial(ServerId(2)));
    assert_eq!(pair.codes(), ("foreign_authority", "refused_there"));
}

#[test]
fn the_authority_of_south_cannot_name_a_server_of_north() {
    let (north, south) = (authority("north"), authority("south"));
    let one = credentials(&north, &server("north", 1), 1);
    let here = trust(&[&north], &[&south]);
    let mut client = (*dialling(&one, &here, "north")).clone();
    let mut shows = |names: &[&str]| {
        let keys = Keys::generate().unwrap();
        client.client_auth_cert_resolver = Arc::new(shown(vec![signed(&south, names, &keys)], &keys));
        Pair::new(&Arc::new(client.clone()), &accepting(&one, &here), dial_any()).codes()
    };
    // What is signed like this is good, unless it names a node of another farm, or two nodes, or none.
    assert_eq!(shows(&["primus://south/server/2"]), ("", ""));
    assert_eq!(shows(&["primus://north/server/2"]), ("refused_there", "foreign_authority"));
    assert_eq!(shows(&["primus://south/server/2", "primus://north/server/2"]).1, "bad_certificate");
    assert_eq!(shows(&["primus://south/server/2", "https://south.example"]).1, "bad_certificate");
    assert_eq!(shows(&["primus://south/authority"]).1, "bad_certificate");
    assert_eq!(shows(&[]).1, "bad_certificate");
    // A true server of south is not a server of north, although its authority is trusted.
    let guest = credentials(&south, &server("south", 1), 1);
    let there = trust(&[&south], &[&north]);
    let pair = Pair::new(&dialling(&one, &here, "north"), &accepting(&guest, &there), dial(ServerId(1)));
    assert_eq!(pair.codes(), ("other_there", "other_expected"));
    // One that lets in those who expect north is known by its certificate.
    let mut open = (*accepting(&guest, &there)).clone();
    open.alpn_protocols = vec![protocol(LINK, north.certificate().hash().short())];
    let pair = Pair::new(&dialling(&one, &here, "north"), &Arc::new(open), dial(ServerId(1)));
    assert_eq!(pair.codes().0, "other_farm");
}

#[test]
fn an_expired_certificate_is_refused_on_both_sides() {
    let north = authority("north");
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let late = || Arc::new(|| day(400));
    let pair =
        Pair::new(&dialling(&one, &trust, "north"), &config::accepting(&two, &trust, late()), dial(ServerId(2)));
    assert_eq!(pair.codes(), ("refused_there", "expired"));
    assert!(pair.client_refusal.unwrap().to_string().contains("compare the clocks"));
    let pair =
        Pair::new(&config::dialling(&one, &trust, "north", late()), &accepting(&two, &trust), dial(ServerId(2)));
    assert_eq!(pair.codes().0, "expired");
    let text = pair.client_refusal.unwrap().to_string();
    assert!(text.contains("2028-01-14") && text.contains("2028-02-19"), "{text}");
}

#[test]
fn a_host_that_starts_in_1970_trusts_the_time_of_its_ledger() {
    let north = authority("north");
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let host = || UnixTime::since_unix_epoch(std::time::Duration::ZERO);
    let dialled = |ledger: Option<UnixTime>| {
        let clock = move || ledger.unwrap_or_else(host);
        let client = config::dialling(&one, &trust, "north", Arc::new(clock));
        Pair::new(&client, &config::accepting(&two, &trust, Arc::new(clock)), dial(ServerId(2)))
    };
    assert_eq!(dialled(Some(day(0))).codes(), ("", ""));
    assert_eq!(dialled(None).codes().0, "not_yet_valid");
}

#[test]
fn the_certificate_of_a_worker_makes_no_server_and_the_other_way_round() {
    let north = authority("north");
    let (one, w1) = (credentials(&north, &server("north", 1), 1), credentials(&north, &worker("north", "w1"), 2));
    let trust = trust(&[&north], &[]);
    let pair = Pair::new(&dialling(&one, &trust, "north"), &accepting(&w1, &trust), dial_any());
    assert_eq!(pair.codes().0, "wrong_role");
    let pair = Pair::new(&dialling(&one, &trust, "north"), &accepting(&one, &trust), dial_any());
    let (_, Ok(Caller::Known(caller))) = pair.meet(&trust, &trust) else { panic!() };
    assert_eq!(caller.worker_of("north").unwrap_err().code(), "wrong_role");
    assert_eq!(caller.must_say(&worker("north", "w1")).unwrap_err().code(), "wrong_role");
}

#[test]
fn another_server_at_the_address_is_noticed() {
    let north = authority("north");
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let pair = Pair::new(&dialling(&one, &trust, "north"), &accepting(&two, &trust), dial(ServerId(3)));
    let refusal = pair.client_refusal.unwrap();
    assert_eq!(refusal.code(), "other_server");
    assert!(refusal.to_string().starts_with("this is server 2 of farm north, and server-3 was dialled"));
}

#[test]
fn what_the_ledger_has_against_a_peer_counts_after_the_handshake() {
    let north = authority("north");
    let (w1, two) = (credentials(&north, &worker("north", "w1"), 7), credentials(&north, &server("north", 2), 8));
    let trust = trust(&[&north], &[]);
    let pair = Pair::new(&dialling(&w1, &trust, "north"), &accepting(&two, &trust), dial(ServerId(2)));
    let bound_to = two.certificate().key.fingerprint();
    let revoked = |who: &Identified| Err(Refusal::Revoked { name: who.name.clone(), serial: who.serial });
    let bound = |who: &Identified| match who.key == bound_to {
        true => Ok(()),
        false => Err(Refusal::AnotherKey(who.name.clone())),
    };
    let call = |roll: &dyn peer::Roll| peer::caller(&pair.server, &trust, roll, day(0)).unwrap_err();
    assert_eq!(call(&revoked), Refusal::Revoked { name: worker("north", "w1"), serial: 7 });
    assert_eq!(call(&bound), Refusal::AnotherKey(worker("north", "w1")));
    assert!(peer::callee(&pair.client, &trust, &bound, day(0)).is_ok());
    assert_eq!(peer::callee(&pair.client, &trust, &revoked, day(0)).unwrap_err().code(), "revoked");
}

#[test]
fn a_caller_without_a_certificate_is_no_node() {
    let north = authority("north");
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let mut client = (*dialling(&one, &trust, "north")).clone();
    client.client_auth_cert_resolver = Arc::new(Nothing);
    let pair = Pair::new(&Arc::new(client.clone()), &accepting(&two, &trust), dial(ServerId(2)));
    assert_eq!(pair.meet(&trust, &trust).1, Err(Refusal::NoCertificate));
    // With a certificate of its own it is a node, unless it asks to join.
    client.alpn_protocols = vec![protocol(JOIN, north.certificate().hash().short())];
    let pair = Pair::new(&Arc::new(client), &accepting(&two, &trust), dial(ServerId(2)));
    assert_eq!(pair.meet(&trust, &trust), (Err(Refusal::Protocol), Ok(Caller::Joiner)));
}

#[test]
fn a_caller_that_names_no_authority_of_the_farm_is_shown_no_certificate() {
    let (north, other) = (authority("north"), authority("north"));
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let mut client = (*dialling(&one, &trust, "north")).clone();
    let named = |authority: &Authority| protocol(LINK, authority.certificate().hash().short());
    for (offers, codes) in [
        (vec![], ("refused_there", "protocol")),
        (vec![b"h2".to_vec()], ("other_there", "other_expected")),
        (vec![LINK.to_vec()], ("other_there", "other_expected")),
        (vec![named(&other)], ("other_there", "other_expected")),
        (vec![named(&other), named(&north)], ("", "")),
    ] {
        client.alpn_protocols = offers;
        let pair = Pair::new(&Arc::new(client.clone()), &accepting(&two, &trust), dial(ServerId(2)));
        assert_eq!(pair.codes(), codes);
        assert_eq!(pair.client.peer_certificates().is_some(), codes.0.is_empty());
    }
}

#[test]
fn nothing_is_decided_before_the_handshake_has_ended() {
    let north = authority("north");
    let two = credentials(&north, &server("north", 2), 2);
    let trust = trust(&[&north], &[]);
    let server = ServerConnection::new(accepting(&two, &trust)).unwrap();
    assert_eq!(peer::caller(&server, &trust, &welcome, day(0)).unwrap_err().code(), "handshake");
}

#[test]
fn a_certificate_without_its_key_proves_nothing() {
    let north = authority("north");
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let mut client = (*dialling(&one, &trust, "north")).clone();
    client.client_auth_cert_resolver = Arc::new(shown(one.chain().to_vec(), &Keys::generate().unwrap()));
    let pair = Pair::new(&Arc::new(client), &accepting(&two, &trust), dial(ServerId(2)));
    assert_eq!(pair.codes(), ("refused_there", "without_key"));
    assert!(peer::caller(&pair.server, &trust, &welcome, day(0)).is_err());
}

#[test]
fn a_joiner_learns_the_authority_from_its_hash() {
    let north = authority("north");
    let two = credentials(&north, &server("north", 2), 2);
    let trust = trust(&[&north], &[]);
    let hash = north.certificate().hash();
    for pin in [Pin::Short(hash.short()), Pin::Whole(hash)] {
        let client = config::joining(pin, Arc::new(|| day(0)));
        let pair = Pair::new(&client, &accepting(&two, &trust), dial_any());
        assert_eq!(peer::caller(&pair.server, &trust, &welcome, day(0)), Ok(Caller::Joiner));
        let (server, authority) = peer::inviter(&pair.client, pin, day(0)).unwrap();
        assert_eq!((server.server_of("north"), authority.hash()), (Ok(ServerId(2)), hash));
        assert_eq!(pair.meet(&trust, &trust).0, Err(Refusal::Protocol));
    }
}

#[test]
fn somebody_in_between_gets_no_secret_of_a_joiner() {
    let (north, evil) = (authority("north"), authority("north"));
    let true_hash = north.certificate().hash();
    let stranger = credentials(&evil, &server("north", 2), 2);
    let mut between = (*accepting(&stranger, &trust(&[&evil], &[]))).clone();
    let client = config::joining(Pin::Short(true_hash.short()), Arc::new(|| day(0)));
    let pair = Pair::new(&client, &Arc::new(between.clone()), dial_any());
    assert_eq!(pair.client_refusal, Some(Refusal::OtherThere));
    // It says yes to everything.
    between.alpn_protocols = client.alpn_protocols.clone();
    let pair = Pair::new(&client, &Arc::new(between.clone()), dial_any());
    assert_eq!(pair.client_refusal, Some(Refusal::OtherAuthority));
    // It shows the true authority beside its own certificate.
    let keys = Keys::generate().unwrap();
    let chain = vec![stranger.chain()[0].clone(), north.certificate().der().clone()];
    between.cert_resolver = Arc::new(shown(chain, &keys));
    let pair = Pair::new(&client, &Arc::new(between.clone()), dial_any());
    assert_eq!(pair.client_refusal, Some(Refusal::OtherAuthority));
    // It shows a true server's certificates, without the key.
    let two = credentials(&north, &server("north", 2), 2);
    between.cert_resolver = Arc::new(shown(two.chain().to_vec(), &keys));
    let pair = Pair::new(&client, &Arc::new(between.clone()), dial_any());
    assert_eq!(pair.codes().0, "without_key");
    // It is a worker of the farm.
    let w1 = credentials(&north, &worker("north", "w1"), 3);
    let pair = Pair::new(&client, &accepting(&w1, &trust(&[&north], &[])), dial_any());
    assert_eq!(pair.codes().0, "wrong_role");
}

#[test]
fn tls_1_2_is_refused() {
    let north = authority("north");
    let two = credentials(&north, &server("north", 2), 2);
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let pair = Pair::new(&Arc::new(client), &accepting(&two, &trust(&[&north], &[])), dial_any());
    assert_eq!(pair.codes(), ("protocol", "protocol"));
}

#[test]
fn nothing_is_resumed_although_the_dialler_would_like_to() {
    let north = authority("north");
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let mut client = (*dialling(&one, &trust, "north")).clone();
    client.resumption = Resumption::in_memory_sessions(8);
    client.enable_early_data = true;
    let (client, server) = (Arc::new(client), accepting(&two, &trust));
    for _ in 0..2 {
        let mut pair = Pair::new(&client, &server, dial(ServerId(2)));
        assert_eq!(pair.client.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(pair.server.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(pair.client.tls13_tickets_received(), 0);
        assert!(pair.client.early_data().is_none());
    }
}

#[test]
fn a_farm_changes_its_authority_without_a_break() {
    let (old, new) = (authority("north"), authority("north"));
    let (one, two) = (server("north", 1), server("north", 2));
    let (old_one, old_two) = (credentials(&old, &one, 1), credentials(&old, &two, 2));
    let (new_one, new_two) = (credentials(&new, &one, 3), credentials(&new, &two, 4));
    let (both, only_new) = (trust(&[&old, &new], &[]), trust(&[&new], &[]));
    let codes = |from, to, trust: &Arc<_>| {
        Pair::new(&dialling(from, trust, "north"), &accepting(to, trust), dial(ServerId(2))).codes()
    };
    for from in [&old_one, &new_one] {
        for to in [&old_two, &new_two] {
            assert_eq!(codes(from, to, &both), ("", ""));
        }
    }
    assert_eq!(codes(&new_one, &new_two, &only_new), ("", ""));
    assert_eq!(codes(&old_one, &new_two, &only_new).1, "foreign_authority");
    assert_eq!(codes(&new_one, &old_two, &only_new).0, "foreign_authority");
    // A link that came up before the old one was dropped is judged by what is trusted now.
    let pair = Pair::new(&dialling(&old_one, &both, "north"), &accepting(&new_two, &both), dial(ServerId(2)));
    assert_eq!(pair.meet(&both, &only_new).1, Err(Refusal::ForeignAuthority));
}

/// Prints how long handshakes take, with both certificates and both looks at who it is:
/// `cargo test --release -p primus-identity --test links -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn how_long_a_handshake_takes() {
    const RUNS: u32 = 1000;
    let north = authority("north");
    let (one, two) = (credentials(&north, &server("north", 1), 1), credentials(&north, &server("north", 2), 2));
    let trust = trust(&[&north], &[]);
    let (client, server) = (dialling(&one, &trust, "north"), accepting(&two, &trust));
    let began = Instant::now();
    for _ in 0..RUNS {
        let pair = Pair::new(&client, &server, dial(ServerId(2)));
        assert!(matches!(pair.meet(&trust, &trust), (Ok(_), Ok(_))));
    }
    println!("both ends of a handshake: {:?}", began.elapsed() / RUNS);
    let began = Instant::now();
    for _ in 0..RUNS {
        drop((accepting(&two, &trust), dialling(&one, &trust, "north")));
    }
    println!("both settings: {:?}", began.elapsed() / RUNS);
}

/// Shows no certificate.
#[derive(Debug)]
struct Nothing;

impl ResolvesClientCert for Nothing {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Shows any certificates, with any key.
fn shown(chain: Vec<CertificateDer<'static>>, keys: &Keys) -> SingleCertAndKey {
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(keys.secret_der()));
    CertifiedKey::new(chain, any_ecdsa_type(&key).unwrap()).into()
}

/// A certificate with any names, signed with the authority's own key, as only its farm could do.
fn signed(authority: &Authority, names: &[&str], keys: &Keys) -> CertificateDer<'static> {
    let [issuer, subject] = [authority.keys(), keys].map(|keys| KeyPair::try_from(keys.secret_der()).unwrap());
    let mark = &authority.keys().public_key().fingerprint().to_string()[7..23];
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("primus {} {mark}", authority.certificate().farm()));
    let issuer = Issuer::new(params, issuer);
    let mut params = CertificateParams::default();
    params.serial_number = Some(7.into());
    params.not_before = rcgen::date_time_ymd(2027, 1, 1);
    params.not_after = rcgen::date_time_ymd(2028, 1, 1);
    params.subject_alt_names = names.iter().map(|name| SanType::URI((*name).try_into().unwrap())).collect();
    params.signed_by(&subject, &issuer).unwrap().into()
}
