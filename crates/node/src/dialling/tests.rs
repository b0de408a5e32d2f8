//! Where a dial ends, by number and by name.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

use super::*;

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Where nobody listens.
fn closed() -> SocketAddr {
    listener().1
}

fn dialler(place: &str) -> Dialler {
    Dialler::new(place.parse().unwrap(), None, Pace::PEERS)
}

#[tokio::test]
async fn addresses_are_tried_in_turn_until_one_is_taken() {
    let (_open, taken) = listener();
    for addresses in [vec![taken], vec![closed(), taken], vec![closed(), closed(), taken], vec![taken, closed()]] {
        let stream = dialler("127.0.0.1:1").connect_to_any(&addresses).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), taken);
    }
    for addresses in [vec![closed()], vec![closed(), closed()]] {
        let error = dialler("127.0.0.1:1").connect_to_any(&addresses).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

#[tokio::test]
async fn an_address_that_says_nothing_does_not_keep_the_next_one_waiting() {
    let (_open, taken) = listener();
    // Kept for documents: packets to it are lost, or the host says at once that there is no way.
    let lost = SocketAddr::from(([192, 0, 2, 1], 1));
    let stream = timeout(DIAL_TIME, async { dialler("127.0.0.1:1").connect_to_any(&[lost, taken]).await });
    assert_eq!(stream.await.expect("soon").unwrap().peer_addr().unwrap(), taken);
}

#[test]
fn only_refusals_say_that_a_process_is_dead() {
    use ErrorKind::{
        AddrNotAvailable, ConnectionRefused as Refused, HostUnreachable, NetworkUnreachable, PermissionDenied,
    };
    for (kinds, expected) in [
        (vec![Refused], Refused),
        (vec![Refused, Refused], Refused),
        (vec![NetworkUnreachable, Refused], Refused),
        (vec![Refused, AddrNotAvailable], Refused),
        (vec![NetworkUnreachable], NetworkUnreachable),
        (vec![Refused, HostUnreachable], HostUnreachable),
        (vec![PermissionDenied, Refused], PermissionDenied),
    ] {
        assert_eq!(verdict(kinds.iter().map(|kind| (*kind).into())).kind(), expected, "{kinds:?}");
    }
}

#[tokio::test]
async fn a_name_is_dialled_like_a_number_and_refuses_like_one() {
    let (open, taken) = listener();
    let mut dialler = dialler(&format!("localhost:{}", taken.port()));
    for _ in 0..3 {
        let stream = dialler.connect().await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), taken);
        assert_eq!(dialler.last, Some(taken));
    }
    drop(open);
    // First where it was, then wherever the name leads.
    for _ in 0..2 {
        assert_eq!(dialler.connect().await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(dialler.last, None);
    }
}

#[tokio::test]
async fn death_is_noticed_while_a_lookup_never_ends() {
    let (open, taken) = listener();
    let mut dialler = dialler(&format!("localhost:{}", taken.port()));
    dialler.connect().await.unwrap();
    let (_silent, lookup) = tokio::sync::oneshot::channel();
    dialler.lookup = Some(lookup);
    dialler.connect().await.expect("it is where it was");
    drop(open);
    let (_silent, lookup) = tokio::sync::oneshot::channel();
    dialler.lookup = Some(lookup);
    assert_eq!(dialler.connect().await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // Now only the lookup can tell more, and it is not begun again while it lasts.
    let error = dialler.connect().await.unwrap_err();
    assert!(Unresolved::of_io(&error).is_some() && dialler.lookup.is_some(), "{error}");
}

#[tokio::test]
async fn where_a_name_led_before_counts_only_until_it_leads_elsewhere() {
    let ((_old, before), (_new, now)) = (listener(), listener());
    let mut dialler = dialler("moved.example:1");
    dialler.last = Some(before);
    let (found, lookup) = tokio::sync::oneshot::channel();
    found.send(Ok(vec![now])).unwrap();
    dialler.lookup = Some(lookup);
    assert_eq!(dialler.connect().await.unwrap().peer_addr().unwrap(), now);
    assert_eq!(dialler.last, Some(now));
}

#[tokio::test]
async fn a_name_that_leads_nowhere_is_an_error_that_says_so() {
    let error = dialler("nowhere.invalid:1").connect().await.unwrap_err();
    assert!(Unresolved::of_io(&error).is_some(), "{error}");
    assert_ne!(error.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn version_6_is_dialled_too() {
    let open = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let address = open.local_addr().unwrap();
    let stream = dialler(&address.to_string()).connect().await.unwrap();
    assert_eq!(stream.peer_addr().unwrap().ip(), IpAddr::V6(Ipv6Addr::LOCALHOST));
}
