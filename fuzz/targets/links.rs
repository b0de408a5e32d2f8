//! A stream of bytes, as if it came through the door of a server or of a worker.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use primus_core::ServerId;
use primus_server::words::Words;
use primus_wire::native::{self, Answer, Greeting, Parcel};
use primus_wire::work::{FromWorker, Reader, ToWorker};

/// What servers say to each other.
type Said = Parcel<Words>;

fuzz_target!(|bytes: &[u8]| {
    let arrived = || BytesMut::from(bytes);
    if let Ok(Some(Greeting::Server(hello))) = Greeting::take(&mut arrived()) {
        _ = hello.objection("north", ServerId(1));
    }
    _ = native::take::<Answer>(&mut arrived());
    read_servers(&mut arrived());
    read_words::<ToWorker>(&mut arrived());
    read_words::<FromWorker>(&mut arrived());
});

/// Whatever is understood reads back as it is written.
fn read_servers(arrived: &mut BytesMut) {
    while let Ok(Some(parcel)) = native::take::<Said>(arrived) {
        let mut written = BytesMut::new();
        native::put(&mut written, &parcel).expect("what came in a frame fits into one");
        assert_eq!(native::take::<Said>(&mut written), Ok(Some(parcel)));
    }
}

fn read_words<T: serde::de::DeserializeOwned>(arrived: &mut BytesMut) {
    let mut reader = Reader::default();
    while let Ok(Some(_)) = reader.take::<T>(arrived) {}
}
