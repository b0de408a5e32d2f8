//! Ring over AMQP: the JSON that members of such a ring put into each other's queues, and the names of exchange and queues.
//!
//! Read tolerantly: unknown fields are ignored, `round` and `lap` may be absent (the document knows neither), and so may be
//! the time, which nobody needs. Written strictly, in one order of fields. The names are the document's own.

use primus_core::election::ring;
use primus_core::{Round, ServerId};
use serde::Serialize;
use serde_json::{Map, Value};
use thiserror::Error;

/// The exchange: direct, not durable.
pub const EXCHANGE: &str = "leader.election.ring";
/// No message is longer. What members say takes less than two hundred bytes.
pub const BODY_LEN_MAX: usize = 64 << 10;
/// How much of a strange word is told.
const WORD_LEN_MAX: usize = 20;

/// What a member says to its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Is it a token or an announcement?
    pub kind: Kind,
    /// The best id that a token has met, or the leader's.
    pub candidate: ServerId,
    /// Who says so, as it says itself.
    pub sender: ServerId,
    /// The election that it belongs to; unknown if a foreign member said it.
    pub round: Round,
    /// How often the leader has announced itself before.
    pub lap: u64,
}

/// The two types of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// A token that looks for the best id.
    Election,
    /// The winner announces itself.
    Elected,
}

/// Why a message was not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotUnderstood {
    /// It is longer than any message can be.
    #[error("{0} bytes, more than {BODY_LEN_MAX}")]
    TooLong(usize),
    /// It is not JSON.
    #[error("not JSON")]
    NotJson,
    /// It is JSON, but no object.
    #[error("no JSON object")]
    NoObject,
    /// A field that every message has is missing.
    #[error("no field '{0}'")]
    Missing(&'static str),
    /// A field is not what it should be.
    #[error("'{0}' is not a whole number from 0")]
    NoNumber(&'static str),
    /// The type is none of the two.
    #[error("type '{0}', neither ELECTION nor ELECTED")]
    StrangeType(String),
}

/// What nobody who speaks this dialect can say: that a token has no candidate, because a leader has resigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a token without a candidate")]
pub struct Unspeakable;

/// The message as it is written.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(rename = "type")]
    kind: Kind,
    candidate_id: u64,
    sender_id: u64,
    timestamp: &'a str,
    #[serde(skip_serializing_if = "is_unknown")]
    round: Round,
    #[serde(skip_serializing_if = "is_first")]
    lap: u64,
}

fn is_unknown(round: &Round) -> bool {
    *round == Round::UNKNOWN
}

fn is_first(lap: &u64) -> bool {
    *lap == 0
}

/// The queue of the node at this position of the ring, from 1, and the key that leads there.
#[must_use]
pub fn queue(position: usize) -> String {
    format!("node.{position}")
}

impl Message {
    /// What `sender` says.
    ///
    /// # Errors
    /// If this dialect has no words for it.
    pub fn new(sender: ServerId, message: &ring::Message) -> Result<Self, Unspeakable> {
        match *message {
            ring::Message::Election { round, candidate } => {
                let candidate = candidate.ok_or(Unspeakable)?;
                Ok(Self { kind: Kind::Election, candidate, sender, round, lap: 0 })
            }
            ring::Message::Elected { round, leader, lap } => {
                Ok(Self { kind: Kind::Elected, candidate: leader, sender, round, lap })
            }
        }
    }

    /// What the machine understands by it.
    #[must_use]
    pub const fn meaning(&self) -> ring::Message {
        let Self { candidate, round, lap, .. } = *self;
        match self.kind {
            Kind::Election => ring::Message::Election { round, candidate: Some(candidate) },
            Kind::Elected => ring::Message::Elected { round, leader: candidate, lap },
        }
    }

    /// As it is put into a queue at this time (RFC 3339).
    #[must_use]
    pub fn write(&self, timestamp: &str) -> Vec<u8> {
        let (candidate_id, sender_id) = (self.candidate.0, self.sender.0);
        let written =
            Written { kind: self.kind, candidate_id, sender_id, timestamp, round: self.round, lap: self.lap };
        serde_json::to_vec(&written).expect("plain numbers and texts become JSON")
    }

    /// Reads what came out of a queue.
    ///
    /// # Errors
    /// If it is none of ours, or nothing that a member of a ring would say.
    pub fn read(body: &[u8]) -> Result<Self, NotUnderstood> {
        if body.len() > BODY_LEN_MAX {
            return Err(NotUnderstood::TooLong(body.len()));
        }
        let value: Value = serde_json::from_slice(body).map_err(|_| NotUnderstood::NotJson)?;
        let Value::Object(fields) = value else { return Err(NotUnderstood::NoObject) };
        let required = |name| number(&fields, name)?.ok_or(NotUnderstood::Missing(name));
        Ok(Self {
            kind: kind(&fields)?,
            candidate: ServerId(required("candidate_id")?),
            sender: ServerId(required("sender_id")?),
            round: Round(number(&fields, "round")?.unwrap_or(Round::UNKNOWN.0)),
            lap: number(&fields, "lap")?.unwrap_or(0),
        })
    }
}

fn kind(fields: &Map<String, Value>) -> Result<Kind, NotUnderstood> {
    match fields.get("type") {
        Some(Value::String(word)) if word == "ELECTION" => Ok(Kind::Election),
        Some(Value::String(word)) if word == "ELECTED" => Ok(Kind::Elected),
        Some(Value::String(word)) => Err(NotUnderstood::StrangeType(word.chars().take(WORD_LEN_MAX).collect())),
        Some(_) => Err(NotUnderstood::StrangeType("no text".to_owned())),
        None => Err(NotUnderstood::Missing("type")),
    }
}

/// A whole number from 0, written as 5 or as 5.0; nothing is as good as null.
fn number(fields: &Map<String, Value>, name: &'static str) -> Result<Option<u64>, NotUnderstood> {
    // Beyond this, floats skip whole numbers.
    const FLOAT_MAX: f64 = 9_007_199_254_740_992.0;
    let whole = |float: &f64| (0.0..=FLOAT_MAX).contains(float) && float.fract() == 0.0;
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => {
            let number = number.as_u64().or_else(|| number.as_f64().filter(whole).map(|float| float as u64));
            number.map(Some).ok_or(NotUnderstood::NoNumber(name))
        }
        Some(_) => Err(NotUnderstood::NoNumber(name)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIME: &str = "2026-01-02T03:04:05.678Z";

    fn election(candidate: u64, sender: u64, round: u64) -> Message {
        let (candidate, sender, round) = (ServerId(candidate), ServerId(sender), Round(round));
        Message { kind: Kind::Election, candidate, sender, round, lap: 0 }
    }

    #[test]
    fn messages_are_written_as_the_document_says() {
        let written = |message: Message| String::from_utf8(message.write(TIME)).unwrap();
        assert_eq!(
            written(election(5, 3, 1)),
            r#"{"type":"ELECTION","candidate_id":5,"sender_id":3,"timestamp":"2026-01-02T03:04:05.678Z","round":1}"#
        );
        assert_eq!(
            written(Message { kind: Kind::Elected, lap: 2, ..election(1, 4, 7) }),
            r#"{"type":"ELECTED","candidate_id":1,"sender_id":4,"timestamp":"2026-01-02T03:04:05.678Z","round":7,"lap":2}"#
        );
        assert_eq!(
            written(election(5, 5, 0)),
            r#"{"type":"ELECTION","candidate_id":5,"sender_id":5,"timestamp":"2026-01-02T03:04:05.678Z"}"#
        );
    }

    #[test]
    fn what_others_write_is_understood() {
        for text in [
            r#"{"type":"ELECTION","candidate_id":5,"sender_id":3,"timestamp":"2025-10-29T12:00:00"}"#,
            r#"{ "sender_id": 3.0, "hops": 7, "candidate_id": 5, "type": "ELECTION" }"#,
            r#"{"type":"ELECTION","candidate_id":5,"sender_id":3,"timestamp":17,"round":null,"more":{"a":[1]}}"#,
        ] {
            assert_eq!(Message::read(text.as_bytes()), Ok(election(5, 3, 0)), "{text}");
        }
    }

    #[test]
    fn whatever_is_wrong_has_a_name() {
        for (text, reason) in [
            ("", "not JSON"),
            ("hello", "not JSON"),
            (r#"{"type":"ELECTION""#, "not JSON"),
            ("[1,2]", "no JSON object"),
            ("{}", "no field 'type'"),
            (r#"{"type":7}"#, "type 'no text', neither ELECTION nor ELECTED"),
            (r#"{"type":"election"}"#, "type 'election', neither ELECTION nor ELECTED"),
            (r#"{"type":"ELECTED","sender_id":1}"#, "no field 'candidate_id'"),
            (r#"{"type":"ELECTED","candidate_id":1}"#, "no field 'sender_id'"),
            (
                r#"{"type":"ELECTED","candidate_id":"1","sender_id":1}"#,
                "'candidate_id' is not a whole number from 0",
            ),
            (
                r#"{"type":"ELECTED","candidate_id":-1,"sender_id":1}"#,
                "'candidate_id' is not a whole number from 0",
            ),
            (
                r#"{"type":"ELECTED","candidate_id":1.5,"sender_id":1}"#,
                "'candidate_id' is not a whole number from 0",
            ),
            (
                r#"{"type":"ELECTED","candidate_id":1,"sender_id":1,"round":[]}"#,
                "'round' is not a whole number from 0",
            ),
        ] {
            assert_eq!(Message::read(text.as_bytes()).unwrap_err().to_string(), reason, "{text}");
        }
        let long = vec![b' '; 1 << 20];
        assert_eq!(Message::read(&long), Err(NotUnderstood::TooLong(1 << 20)));
        assert_eq!(Message::read(&[b'['; 1000]), Err(NotUnderstood::NotJson));
    }

    #[test]
    fn a_token_without_a_candidate_cannot_be_said() {
        let token = ring::Message::Election { round: Round(2), candidate: None };
        assert_eq!(Message::new(ServerId(1), &token), Err(Unspeakable));
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(
            is_election: bool, candidate: u64, sender: u64, round: u64, lap: u64, time in ".{0,40}"
        ) {
            let (candidate, sender, round) = (ServerId(candidate), ServerId(sender), Round(round));
            let said = if is_election {
                ring::Message::Election { round, candidate: Some(candidate) }
            } else {
                ring::Message::Elected { round, leader: candidate, lap }
            };
            let message = Message::new(sender, &said).unwrap();
            prop_assert_eq!(message.meaning(), said);
            prop_assert_eq!(Message::read(&message.write(&time)), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            _ = Message::read(&bytes);
        }

        #[test]
        fn nearly_right_texts_are_read_without_harm(
            kind in "ELECT(ION|ED)?|\"|\\\\", number in "-?[0-9]{0,25}(\\.[0-9]{0,3})?(e[0-9]{1,4})?|null|\\[\\]", tail in ".{0,20}"
        ) {
            let text = format!(r#"{{"type":"{kind}","candidate_id":{number},"sender_id":{number}}}{tail}"#);
            if let Ok(message) = Message::read(text.as_bytes()) {
                prop_assert_eq!(Message::read(&message.write("")), Ok(message));
            }
        }
    }
}
