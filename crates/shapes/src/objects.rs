//! JSON as requests hold it. An object is an object, not a list of its fields; no name stands in it twice; and what is wrong
//! is said in our own words, with what was sent.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::{Serialize, Serializer};
use serde_json::error::Category;

/// How much of what was sent an answer repeats.
const SHOWN_LEN_MAX: usize = 80;

/// A value that is written as an object and in no other way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectReader(PhantomData))
    }
}

impl<T: Serialize> Serialize for Object<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

struct ObjectReader<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectReader<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

/// Names and values, each name once.
pub fn unique<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    deserializer.deserialize_map(UniqueReader(PhantomData))
}

struct UniqueReader<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueReader<V> {
    type Value = BTreeMap<String, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut found = BTreeMap::new();
        while let Some((name, value)) = fields.next_entry::<String, V>()? {
            if found.contains_key(&name) {
                return Err(A::Error::custom(format_args!("{} is given twice", shown(&name))));
            }
            found.insert(name, value);
        }
        Ok(found)
    }
}

/// What is wrong with JSON, as the rest of a sentence: `it is not JSON at line 1, column 7`.
pub fn complaint(error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column().max(1));
    match error.classify() {
        Category::Syntax => format!("it is not JSON at line {line}, column {column}"),
        Category::Eof => "it ends in the middle".to_owned(),
        Category::Io => "it cannot be read".to_owned(),
        Category::Data => {
            let text = error.to_string();
            let words = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
            let place = if line == 0 { String::new() } else { format!(" (line {line}, column {column})") };
            format!("{}{place}", in_our_words(words))
        }
    }
}

/// `invalid type: string "2", expected u64` says more about programs than about what was sent.
fn in_our_words(words: &str) -> String {
    let mismatch = words.strip_prefix("invalid type: ").or_else(|| words.strip_prefix("invalid value: "));
    if let Some((found, expected)) = mismatch.and_then(|rest| rest.rsplit_once(", expected ")) {
        return format!("{} stands where {} belongs", shown(&found_words(found)), expected_words(expected));
    }
    match words.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        Some(name) => format!("{name} is missing"),
        None => words.replace("duplicate field", "given twice:"),
    }
}

fn found_words(found: &str) -> String {
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "an object".to_owned(),
        _ => {
            let kinds = ["string ", "integer ", "floating point ", "boolean "];
            let value = kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found);
            value.trim_matches('`').to_owned()
        }
    }
}

fn expected_words(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" => "a whole number within its limits",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "a borrowed string" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    }
}

/// What was sent, as far as an answer repeats it.
pub fn shown(text: &str) -> String {
    if text.chars().count() <= SHOWN_LEN_MAX {
        return text.to_owned();
    }
    text.chars().take(SHOWN_LEN_MAX).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Point {
        x: u8,
        #[serde(default, deserialize_with = "unique")]
        names: BTreeMap<String, String>,
    }

    #[test]
    fn what_is_wrong_is_said_in_our_words() {
        let long = format!("{{\"x\":\"{}\"}}", "y".repeat(10_000));
        for (text, expected) in [
            ("[7]", "a list stands where an object belongs"),
            ("7", "7 stands where an object belongs"),
            ("{\"x\":\"2\"}", "\"2\" stands where a whole number within its limits belongs"),
            ("{\"x\":300}", "300 stands where a whole number within its limits belongs"),
            ("{}", "x is missing"),
            ("{\"x\":1,\"x\":2}", "given twice: `x`"),
            ("{\"x\":1,\"names\":{\"A\":\"1\",\"A\":\"2\"}}", "A is given twice"),
            ("{\"x\":1,\"names\":[[\"A\",\"1\"]]}", "a list stands where an object belongs"),
            ("{\"x\"", "it ends in the middle"),
            ("{\"x\":\"\\ud800\"}", "it is not JSON at line 1, column "),
            ("{'x':1}", "it is not JSON at line 1, column 2"),
        ] {
            let error = serde_json::from_str::<Object<Point>>(text).expect_err(text);
            assert!(complaint(&error).starts_with(expected), "{text}: {}", complaint(&error));
        }
        let error = serde_json::from_str::<Object<Point>>(&long).expect_err("it is a text");
        assert!(complaint(&error).len() < 200);
        let Object(Point { x, names }) = serde_json::from_str("{\"x\":1,\"names\":{\"A\":\"1\"}}").unwrap();
        assert_eq!((x, names.len()), (1, 1));
    }
}
