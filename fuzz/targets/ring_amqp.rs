//! Lines of bytes, each as if it had come out of a queue: whatever is understood reads back as it is written, and a
//! member of a ring takes all of it without harm.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use primus_core::election::ring::{Ring, Rules, Winner};
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_core::{Moment, ServerId};
use primus_ring::dialect::Message;

const MEMBERS: [ServerId; 4] = [ServerId(5), ServerId(3), ServerId(7), ServerId(1)];

fuzz_target!(|bytes: &[u8]| {
    let mut member = Ring::new(0, Arc::from(MEMBERS), Arc::new(Rules::new(Winner::Lowest, MEMBERS.len())));
    let mut out = Outbox::new();
    for body in bytes.split(|byte| *byte == b'\n') {
        let Ok(message) = Message::read(body) else { continue };
        let written = message.write("2026-01-01T00:00:00.000Z");
        assert_eq!(Message::read(&written), Ok(message));
        member.step(Moment(0), Input::Message { from: message.sender, message: message.meaning() }, &mut out);
        for output in out.drain() {
            // What it answers, its neighbours understand.
            let Output::Send { message, .. } = output else { continue };
            let Ok(answer) = Message::new(MEMBERS[0], &message) else { continue };
            assert_eq!(Message::read(&answer.write("")), Ok(answer));
        }
    }
});
