//! End to end: a farm whose links are encrypted. Its nodes find each other, those without its certificate are turned away, each
//! with a sentence on both sides, and nobody in between reads what tasks are given.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use common::place::{Place, Ran};
use common::secured::{
    FARM, Record, Secured, authority, certificate, connect, dialling, founded, greet, hash, keep,
};
use common::{eventually, eventually_or};
use primus_core::ServerId;
use primus_identity::UnixTime;
use primus_identity::config;
use primus_identity::name::Name;
use primus_identity::rustls::{ClientConfig, RootCertStore};
use primus_wire::native::{self, Answer, WorkerHello};

const PATIENCE: Duration = Duration::from_secs(10);
/// What no one in between may read.
const SECRET: &str = "the-argument-that-is-a-secret";

fn server(id: u64) -> Name {
    Name::server(FARM, ServerId(id)).expect("it is a name")
}

fn worker(name: &str) -> Name {
    Name::worker(FARM, name).expect("it is a name")
}

#[test]
fn a_farm_from_one_founding_file_elects_works_and_survives_its_leader() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_all();
    farm.runs("hello");
    let leader = farm.leader();
    farm.kill(&format!("server-{leader}"));
    farm.runs("again");
    assert_ne!(farm.leader(), leader);
    // Nodes have certificates of their own now.
    farm.forget_founding();
    farm.start_server(leader);
    farm.kill("w1");
    farm.kill("w2");
    farm.start_worker("w2");
    let next = farm.leader();
    farm.kill(&format!("server-{next}"));
    farm.runs("for the third time");
}

#[test]
fn nobody_in_between_reads_what_a_task_is_given() {
    for is_secured in [true, false] {
        let (place, record) = (Place::new(), Record::default());
        let founding = is_secured.then(|| founded(&place, "north.founding"));
        let mut farm = Secured::new(&place, founding.as_deref(), |address| record.relay(address));
        farm.start_all();
        farm.runs(SECRET);
        assert!(record.len() > 1000, "nothing went over the relays");
        // Without encryption it is there, so the test can see it.
        assert_eq!(record.holds(SECRET), !is_secured);
        assert_eq!(record.holds(FARM), !is_secured);
    }
}

/// It ends by itself, with this sentence, and the servers have said that one.
fn is_refused(farm: &Secured<'_>, run: impl Fn() -> Ran, (said, heard): (&str, &str)) {
    let attempt = || {
        let ran = run();
        assert_eq!(ran.code, Some(5), "{ran:?}");
        assert!(ran.stderr.contains(said), "{said}: {ran:?}");
        if farm.logs_of_servers().contains(heard) { Ok(()) } else { Err(farm.logs_of_servers()) }
    };
    // Servers leave out refusals that come quickly one after the other.
    eventually_or(heard, attempt);
}

#[test]
fn whoever_cannot_prove_a_name_is_turned_away_with_a_sentence_on_both_sides() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let other = founded(&place, "other.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_all();
    farm.runs("hello");
    let north = authority(&founding);
    let other = other.to_str().expect("it is text");

    let foreign = (
        "the other side has another authority than this node expects",
        "the caller expects another authority than this farm's",
    );
    is_refused(&farm, || farm.run_worker("foreign", &["--founding", other]), foreign);

    let long_ago = UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000));
    keep(&place.dir.join("old"), north.certificate(), &certificate(&north, &worker("old"), long_ago));
    let expired = (
        "the other side refuses the certificate of this node: it is not valid now",
        "the certificate ended at 2023-",
    );
    is_refused(&farm, || farm.run_worker("old", &[]), expired);

    let plain = (
        "links of this farm are encrypted, and this node has no certificate",
        "the caller does not speak primus over TLS",
    );
    is_refused(&farm, || farm.run_worker("plain", &["--insecure"]), plain);

    // A worker does not even begin with a server's certificate; and one that does is seen by the server.
    keep(&place.dir.join("thief"), north.certificate(), &certificate(&north, &server(2), UnixTime::now()));
    let ran = farm.run_worker("thief", &[]);
    assert!(
        ran.code == Some(5) && ran.stderr.contains("this is server 2 of farm north, and a worker was expected"),
        "{ran:?}"
    );
    for (name, reason) in [
        (server(2), "this is server 2 of farm north, and a worker was expected"),
        (
            worker("w9"),
            "the certificate is of worker w9 of farm north, but the hello says worker thief of farm north",
        ),
    ] {
        let attempt = || {
            let hello = WorkerHello::new(FARM.to_owned(), "thief".to_owned(), ServerId(1), [7; 16]);
            let answer = greet(connect(farm.links[0]), dialling(&north, &name), &hello).expect("it answers");
            assert!(matches!(&answer, Answer::Refused(said) if said.contains(reason)), "{answer:?}");
            if farm.log("server-1").contains(reason) { Ok(()) } else { Err(farm.log("server-1")) }
        };
        eventually_or(reason, attempt);
    }
    farm.runs("still");
}

#[test]
fn whoever_has_no_certificate_hears_no_byte_of_content() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, Some(&founding), |address| address);
    farm.start_server(1);
    let mut hello = BytesMut::new();
    native::put(&mut hello, &WorkerHello::new(FARM.to_owned(), "w1".to_owned(), ServerId(1), [7; 16]))
        .expect("it is short");
    let said: [&[u8]; 4] = [&hello, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", &[22, 3, 1, 0, 4, 9, 9, 9, 9], b"\n"];
    for bytes in said {
        let mut tcp = eventually("a connection", || TcpStream::connect(farm.links[0]).ok());
        tcp.set_read_timeout(Some(PATIENCE)).expect("it is open");
        tcp.write_all(bytes).expect("it listens");
        let mut heard = Vec::new();
        _ = tcp.read_to_end(&mut heard);
        // Records of alerts, or the end of the connection.
        assert!(heard.len() <= 14 && heard.chunks(7).all(|record| record.starts_with(&[21, 3])), "{heard:?}");
    }
    let anonymous = config_without_certificate(config::protocol(config::LINK, hash(&founding, FARM)));
    let hello = WorkerHello::new(FARM.to_owned(), "w1".to_owned(), ServerId(1), [7; 16]);
    let attempt = || {
        let answer = greet(connect(farm.links[0]), Arc::clone(&anonymous), &hello);
        assert!(answer.is_err(), "{answer:?}");
        let log = farm.log("server-1");
        if log.contains("the caller has no certificate") { Ok(()) } else { Err(log) }
    };
    eventually_or("the sentence", attempt);
}

/// Of a caller that trusts everything, and shows nothing.
fn config_without_certificate(offer: Vec<u8>) -> Arc<ClientConfig> {
    use primus_identity::rustls::client::danger::{
        HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
    };
    use primus_identity::rustls::crypto::ring::default_provider;
    use primus_identity::rustls::pki_types::{CertificateDer, ServerName};
    use primus_identity::rustls::{DigitallySignedStruct, Error, SignatureScheme};

    #[derive(Debug)]
    struct Everybody;

    impl ServerCertVerifier for Everybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ECDSA_NISTP256_SHA256]
        }
    }

    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("the provider has TLS 1.3");
    let mut config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    config.dangerous().set_certificate_verifier(Arc::new(Everybody));
    config.alpn_protocols = vec![offer];
    Arc::new(config)
}

#[test]
fn nodes_with_certificates_and_plain_ones_keep_apart() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let mut farm = Secured::new(&place, None, |address| address);
    farm.start_all();
    farm.runs("hello");
    let file = founding.to_str().expect("it is text");
    let sentences =
        ("the other side speaks without TLS", "the caller speaks TLS, and links of this server are plain");
    is_refused(&farm, || farm.run_worker("secured", &["--founding", file]), sentences);
}

#[test]
fn a_founding_file_that_others_can_read_or_of_another_farm_is_refused() {
    let place = Place::new();
    let founding = founded(&place, "north.founding");
    let refused = |farm: &str, words: &str| {
        let ran =
            place.primus(&format!("server --id 1 --farm {farm} --cluster 1@127.0.0.1:1 --founding north.founding"));
        assert_eq!(ran.code, Some(5), "{ran:?}");
        assert!(ran.stderr.contains(words), "{ran:?}");
    };
    refused("south", "founds farm north, and this is farm south");
    let again = place.primus(&format!("init --farm {FARM} --out north.founding"));
    assert!(again.code == Some(1) && again.stderr.contains("cannot be written"), "{again:?}");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(founding, mode).expect("it is ours");
    refused(FARM, "can be read or written by other users");
}

#[test]
fn a_farm_on_loopback_founds_itself_and_its_file_is_of_one_user() {
    let place = Place::new();
    let mut farm = Secured::untold(&place);
    farm.start_all();
    farm.runs("hello");
    let folder = place.dir.join("data-home/primus/farms");
    let files: Vec<_> = std::fs::read_dir(&folder).expect("it was made").flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let sentences = ("this node has no certificate", "the caller does not speak primus over TLS");
    is_refused(&farm, || farm.run_worker("plain", &["--insecure"]), sentences);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(files[0].path(), Some(65534), None).expect("root can do that");
        let ran = farm.run_worker("w9", &[]);
        let name = files[0].file_name().into_string().expect("it is text");
        assert_eq!(ran.code, Some(5), "{ran:?}");
        assert!(ran.stderr.contains(&name) && ran.stderr.contains("belongs to user 65534"), "{ran:?}");
    }
    let beyond = place.primus("worker --name w8 --servers 1@192.0.2.1:7460");
    assert_eq!(beyond.code, Some(2), "{beyond:?}");
    assert!(beyond.stderr.contains("primus init") && beyond.stderr.contains("--insecure"), "{beyond:?}");
}
