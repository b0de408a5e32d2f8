//! Each rule of the roll, one by one.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;

use super::*;
use crate::ServerId;
use crate::ledger::Ledger;

const HOUR_MS: u64 = 3_600_000;

const fn mark(mark: u8) -> Fingerprint {
    Fingerprint([mark; 32])
}

fn worker(name: &str) -> Node {
    Node::Worker(name.into())
}

fn new_token(role: Role, uses: u32) -> NewToken {
    NewToken { role, secret: mark(7), ttl_ms: HOUR_MS, uses, name: None, by: "ann".into() }
}

fn create(roll: &mut Roll, new: NewToken) -> TokenId {
    match roll.apply(Change::CreateToken(new), 0) {
        Ok(Done::TokenCreated { token, .. }) => token,
        other => panic!("{other:?}"),
    }
}

fn joiner(token: TokenId, store: u8, name: &str) -> Consume {
    Consume { token, secret: mark(7), role: Role::Worker, store: [store; 16], name: name.into(), key: mark(store) }
}

/// A look beforehand must say the same; only what is swept meanwhile is refused for another reason.
fn consume(roll: &mut Roll, consume: Consume, time_ms: u64) -> Result<(u64, bool), Denial> {
    let (judged, next) = (roll.judge(&consume, time_ms), roll.last_serial + 1);
    let outcome = match roll.apply(Change::Consume(consume), time_ms) {
        Ok(Done::Consumed { serial, is_new }) => Ok((serial, is_new)),
        Err(denial) => Err(denial),
        other => panic!("{other:?}"),
    };
    let foreseen = judged.map(|known| known.map_or((next, true), |serial| (serial, false)));
    assert!(foreseen == outcome || foreseen == Err(Denial::Expired) && outcome == Err(Denial::NoSuchToken));
    outcome
}

fn authority(number: u8) -> Authority {
    Authority {
        certificate: vec![number; 9],
        hash: mark(number),
        key: SecretKey(vec![0xAB; 32]),
        voucher: Vec::new(),
    }
}

#[test]
fn a_token_lets_in_as_many_as_it_says_and_none_twice() {
    let mut roll = Roll::default();
    let token = create(&mut roll, new_token(Role::Worker, 2));
    assert_eq!(consume(&mut roll, joiner(token, 1, "w1"), 5), Ok((1, true)));
    let before = roll.clone();
    assert_eq!(consume(&mut roll, joiner(token, 1, "w1"), 5), Ok((1, false)));
    assert_eq!(roll, before, "the same joiner again changes nothing");
    assert_eq!(consume(&mut roll, joiner(token, 2, "w2"), 5), Ok((2, true)));
    assert_eq!(consume(&mut roll, joiner(token, 3, "w3"), 5), Err(Denial::UsedUp));
    assert_eq!(consume(&mut roll, joiner(token, 1, "w1"), 2 * HOUR_MS), Ok((1, false)), "it joined in time");
    assert_eq!(roll.tokens()[&token].uses_left(), 0);
    assert_eq!(roll.object_to(&worker("w1"), &mark(1), 1), Ok(()));
}

#[test]
fn a_token_is_refused_for_its_own_reason() {
    let mut roll = Roll::default();
    let token = create(&mut roll, new_token(Role::Worker, 9));
    let named = create(&mut roll, NewToken { name: Some("w1".into()), ..new_token(Role::Worker, 1) });
    let good = || joiner(token, 1, "w1");
    for (asked, time_ms, denial) in [
        (Consume { secret: mark(8), ..good() }, 0, Denial::NoSuchToken),
        (Consume { token: TokenId(99), ..good() }, 0, Denial::NoSuchToken),
        (Consume { role: Role::Server, ..good() }, 0, Denial::OtherRole(Role::Worker)),
        (good(), HOUR_MS, Denial::Expired),
        (joiner(named, 1, "w2"), 0, Denial::OtherName("w1".into())),
        (Consume { name: "w1@south".into(), ..good() }, 0, Denial::Malformed),
        (Consume { name: String::new(), ..good() }, 0, Denial::Malformed),
    ] {
        assert_eq!(consume(&mut roll, asked, time_ms), Err(denial));
    }
    assert_eq!(consume(&mut roll, good(), HOUR_MS - 1), Ok((1, true)), "until the last moment");
    assert_eq!(consume(&mut roll, Consume { key: mark(9), ..good() }, 0), Err(Denial::UsedUp), "with another key");
    assert_eq!(roll.apply(Change::RevokeToken(token), 0), Ok(Done::TokenRevoked(token)));
    assert_eq!(consume(&mut roll, good(), 0), Err(Denial::NoSuchToken));
    assert_eq!(roll.apply(Change::RevokeToken(token), 0), Err(Denial::NoSuchToken));
    assert_eq!(Denial::OtherRole(Role::Worker).to_string(), "the token is for workers");
}

#[test]
fn an_expired_token_says_so_for_a_day() {
    let mut roll = Roll::default();
    let token = create(&mut roll, new_token(Role::Worker, 1));
    assert_eq!(consume(&mut roll, joiner(token, 1, "w1"), HOUR_MS + EXPIRED_KEPT_MS - 1), Err(Denial::Expired));
    assert_eq!(consume(&mut roll, joiner(token, 1, "w1"), HOUR_MS + EXPIRED_KEPT_MS), Err(Denial::NoSuchToken));
    assert!(roll.tokens().is_empty());
}

#[test]
fn a_name_belongs_to_one_key_until_it_is_forgotten() {
    let mut roll = Roll::default();
    let token = create(&mut roll, new_token(Role::Worker, 9));
    assert_eq!(consume(&mut roll, joiner(token, 1, "w1"), 0), Ok((1, true)));
    let other = Change::BindWorker { name: "w1".into(), key: mark(2) };
    assert_eq!(roll.apply(other.clone(), 0), Err(Denial::OtherKey("w1".into())));
    assert_eq!(consume(&mut roll, joiner(token, 2, "w1"), 0), Err(Denial::OtherKey("w1".into())));
    assert_eq!(roll.object_to(&worker("w1"), &mark(2), 2), Err(Unwelcome::OtherKey));
    roll.apply(Change::ForgetWorker("w1".into()), 0).unwrap();
    assert_eq!(roll.object_to(&worker("w1"), &mark(1), 1), Err(Unwelcome::Revoked), "its certificate is void");
    assert_eq!(consume(&mut roll, joiner(token, 1, "w1"), 0), Err(Denial::Revoked), "and is not given out again");
    assert_eq!(roll.apply(other, 0), Ok(Done::Bound("w1".into())));
    assert_eq!(roll.apply(Change::DrawSerial, 0), Ok(Done::Serial(2)));
    assert_eq!(roll.object_to(&worker("w1"), &mark(2), 2), Ok(()), "a newer certificate is good");
    assert_eq!(roll.object_to(&worker("w9"), &mark(2), 3), Err(Unwelcome::Unbound));
    let sentence = Denial::OtherKey("w1".into()).to_string();
    assert_eq!(sentence, "w1 is another worker: primus workers forget w1, or choose a name");
}

#[test]
fn what_a_founding_file_gave_is_void_with_the_key_that_is_revoked() {
    let (mut roll, server, given) = (Roll::default(), Node::Server(ServerId(2)), FOUNDING_SERIAL + 9);
    let bind = |key| Change::BindWorker { name: "w1".into(), key };
    roll.apply(bind(mark(1)), 0).unwrap();
    assert_eq!(roll.object_to(&worker("w1"), &mark(1), given), Ok(()));
    roll.apply(Change::ForgetWorker("w1".into()), 0).unwrap();
    assert_eq!(roll.object_to(&worker("w1"), &mark(1), given), Err(Unwelcome::Revoked));
    assert_eq!(
        roll.object_to(&worker("w1"), &mark(2), given),
        Err(Unwelcome::Unbound),
        "another one is free to come"
    );
    roll.apply(bind(mark(2)), 0).unwrap();
    roll.apply(Change::Revoke(Revocation::Node(worker("w1"))), 0).unwrap();
    for key in [1, 2] {
        assert_eq!(roll.object_to(&worker("w1"), &mark(key), given), Err(Unwelcome::Revoked));
    }
    assert_eq!(roll.object_to(&server, &mark(3), given), Ok(()));
    roll.apply(Change::Revoke(Revocation::Node(server.clone())), 0).unwrap();
    assert_eq!(roll.object_to(&server, &mark(3), given), Err(Unwelcome::Revoked));
    assert_eq!(roll.object_to(&server, &mark(3), 1), Ok(()), "what the ledger counts from now on is good");
}

#[test]
fn a_revocation_is_kept_for_as_long_as_a_certificate_may_be_good() {
    let (mut roll, server) = (Roll::default(), Node::Server(ServerId(2)));
    roll.apply(Change::DrawSerial, 0).unwrap();
    roll.apply(Change::Revoke(Revocation::Serial(7)), 0).unwrap();
    roll.apply(Change::Revoke(Revocation::Node(server.clone())), 0).unwrap();
    let refused = |roll: &Roll| {
        [(7, &worker("w1")), (1, &server), (2, &server)]
            .map(|(serial, node)| roll.is_revoked(node, &mark(1), serial))
    };
    assert_eq!(refused(&roll), [true, true, false]);
    assert_eq!(roll.revocations().count(), 2);
    roll.apply(Change::DrawSerial, CERTIFICATE_MS_MAX - 1).unwrap();
    assert_eq!(refused(&roll), [true, true, false]);
    roll.apply(Change::DrawSerial, CERTIFICATE_MS_MAX).unwrap();
    assert_eq!(refused(&roll), [false; 3]);
    let unknown = Change::Revoke(Revocation::Node(worker("w9")));
    assert_eq!(roll.apply(unknown, 0), Err(Denial::NoSuchWorker("w9".into())));
}

#[test]
fn an_authority_is_rotated_in_two_steps() {
    let mut roll = Roll::default();
    assert_eq!(roll.apply(Change::FinishRotation, 0), Err(Denial::NoRotation));
    for number in [1, 1, 2] {
        let added = roll.apply(Change::AddAuthority(authority(number)), 0);
        assert_eq!(added, Ok(Done::AuthorityAdded(mark(number))));
    }
    assert_eq!(roll.authorities().iter().map(|known| known.hash).collect::<Vec<_>>(), [mark(2), mark(1)]);
    assert_eq!(roll.apply(Change::AddAuthority(authority(3)), 0), Err(Denial::Rotating));
    assert_eq!(roll.apply(Change::FinishRotation, 0), Ok(Done::RotationFinished(1)));
    assert_eq!(roll.authorities()[0].hash, mark(2));
}

#[test]
fn no_secret_is_shown() {
    let mut roll = Roll::default();
    roll.apply(Change::AddAuthority(authority(1)), 0).unwrap();
    for shown in [format!("{roll:?}"), format!("{:?}", Change::AddAuthority(authority(1)))] {
        assert!(shown.contains("SecretKey(…)") && !shown.contains("171"), "{shown}");
    }
}

fn servers(count: u64, place: &str) -> BTreeMap<ServerId, String> {
    (1..=count).map(|id| (ServerId(id), place.into())).collect()
}

fn neighbour(name: &str) -> Neighbour {
    Neighbour { name: name.into(), certificate: vec![1], hash: mark(1), servers: servers(1, "10.0.0.1:7460") }
}

#[test]
fn a_neighbour_is_trusted_until_it_is_forgotten() {
    let mut roll = Roll::default();
    assert_eq!(roll.apply(Change::TrustNeighbour(neighbour("south")), 0), Ok(Done::Trusted("south".into())));
    let other = Neighbour { hash: mark(2), ..neighbour("south") };
    roll.apply(Change::TrustNeighbour(other.clone()), 0).unwrap();
    assert_eq!(roll.neighbours()["south"], other, "the newer word counts");
    let forget = Change::ForgetNeighbour("south".into());
    assert_eq!(roll.apply(forget.clone(), 0), Ok(Done::NeighbourForgotten("south".into())));
    assert_eq!(roll.apply(forget, 0), Err(Denial::NoSuchNeighbour("south".into())));
    for wrong in [
        neighbour("so/uth"),
        Neighbour { certificate: vec![0; DER_LEN_MAX + 1], ..neighbour("south") },
        Neighbour { servers: servers(SERVERS_MAX as u64 + 1, "h:1"), ..neighbour("south") },
        Neighbour { servers: servers(1, &"h".repeat(PLACE_LEN_MAX + 1)), ..neighbour("south") },
    ] {
        assert_eq!(roll.apply(Change::TrustNeighbour(wrong), 0), Err(Denial::Malformed));
    }
}

#[test]
fn every_list_has_an_end() {
    let mut roll = Roll::default();
    let add = |roll: &mut Roll, changes: &mut dyn Iterator<Item = Change>| {
        changes.map(|change| roll.apply(change, 0)).find_map(Result::err)
    };
    let mut tokens = (0..=TOKENS_MAX).map(|_| Change::CreateToken(new_token(Role::Viewer, 1)));
    assert_eq!(add(&mut roll, &mut tokens), Some(Denial::Full(List::Tokens)));
    let many = |uses| Change::CreateToken(new_token(Role::Viewer, uses));
    assert_eq!(Roll::default().apply(many(USES_MAX + 1), 0), Err(Denial::Full(List::Uses)));
    let mut neighbours =
        (0..=NEIGHBOURS_MAX).map(|number| Change::TrustNeighbour(neighbour(&format!("n{number}"))));
    assert_eq!(add(&mut roll, &mut neighbours), Some(Denial::Full(List::Neighbours)));
    let mut keys = (0..=KEYS_MAX).map(|number| Change::BindWorker { name: format!("w{number}"), key: mark(1) });
    assert_eq!(add(&mut roll, &mut keys), Some(Denial::Full(List::Workers)));
    let mut serials = (0..=REVOKED_MAX as u64).map(|serial| Change::Revoke(Revocation::Serial(serial)));
    assert_eq!(add(&mut roll, &mut serials), Some(Denial::Full(List::Revocations)));
    let full = Err(Denial::Full(List::Revocations));
    assert_eq!(roll.apply(Change::ForgetWorker("w1".into()), 0), full, "else its certificate would be good");
    assert_eq!(roll.object_to(&worker("w1"), &mark(1), u64::MAX), Ok(()));
}

#[test]
fn tokens_that_make_no_sense_are_not_made() {
    for wrong in [
        NewToken { uses: 0, ..new_token(Role::Worker, 1) },
        NewToken { ttl_ms: 0, ..new_token(Role::Worker, 1) },
        NewToken { ttl_ms: TTL_MS_MAX + 1, ..new_token(Role::Worker, 1) },
        NewToken { name: Some("w1".into()), ..new_token(Role::Worker, 2) },
        NewToken { name: Some("w1".into()), ..new_token(Role::Server, 1) },
        NewToken { name: Some("w/1".into()), ..new_token(Role::Worker, 1) },
        NewToken { by: "a".repeat(BY_LEN_MAX + 1), ..new_token(Role::Worker, 1) },
    ] {
        assert_eq!(Roll::default().apply(Change::CreateToken(wrong), 0), Err(Denial::Malformed));
    }
}

#[test]
fn an_older_disk_has_no_roll_and_a_damaged_one_is_noticed() {
    let mut ledger = Ledger::default();
    let empty = postcard::to_allocvec(&ledger).unwrap();
    let change = Change::BindWorker { name: "w1".into(), key: mark(1) };
    let entries = vec![crate::ledger::Entry::Roll(change)];
    ledger.apply(crate::ledger::Batch { time_ms: 3, entries });
    let bytes = postcard::to_allocvec(&ledger).unwrap();
    assert_eq!(bytes[..empty.len()], empty, "it stands behind what older releases read");
    let older: Ledger = postcard::from_bytes(&bytes[..empty.len()]).unwrap();
    assert_eq!(older, Ledger::default());
    assert_eq!(postcard::from_bytes::<Ledger>(&bytes).unwrap(), ledger);
    assert_eq!(ledger.newest_ms(), 3);
    for end in empty.len() + 1..bytes.len() {
        assert!(postcard::from_bytes::<Ledger>(&bytes[..end]).is_err(), "{end}");
    }
    let mut later = bytes.clone();
    later[empty.len()] = 9;
    assert!(postcard::from_bytes::<Ledger>(&later).is_err());
}
