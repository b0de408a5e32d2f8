//! Lines as JSON: a list of texts, read one by one into one piece of memory. A million texts of their own would be freed at
//! once, but the process would not shrink again.

use std::fmt;

use primus_core::ledger::job::Lines;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(lines: &Option<Lines>, serializer: S) -> Result<S::Ok, S::Error> {
    match lines {
        Some(lines) => serializer.collect_seq(lines.iter()),
        None => serializer.serialize_none(),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Lines>, D::Error> {
    Ok(Option::<Texts>::deserialize(deserializer)?.map(|Texts(lines)| lines))
}

struct Texts(Lines);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Lines;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut texts: A) -> Result<Lines, A::Error> {
        let mut lines = Lines::default();
        while let Some(text) = texts.next_element::<String>()? {
            if !lines.push(&text) {
                return Err(A::Error::custom("the lines are too long"));
            }
        }
        Ok(lines)
    }
}
