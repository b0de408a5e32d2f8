//! Descriptions of JSON, next to the types that are written as JSON or read from it.
//!
//! [`described!`](crate::described) takes a struct as it is and describes it, too: its fields, their types, and their
//! comments. So a field stands in one place, and what people read about it cannot be about another one. The language is JSON
//! Schema, as OpenAPI 3.1 has it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::objects::Object;

/// Something that is written as JSON, or read from it.
pub trait Described {
    /// What it looks like. Objects with a name are put into `schemas`, and this refers to them.
    fn schema(schemas: &mut Schemas) -> Value;
}

/// All objects that have a name.
#[derive(Debug, Default)]
pub struct Schemas(BTreeMap<String, Known>);

/// An object with a name: the type that is described, and what it looks like.
#[derive(Debug)]
struct Known {
    origin: String,
    schema: Value,
}

/// What is said of a struct or a field where it is written.
#[derive(Debug, Clone, Copy)]
pub enum Note {
    /// A line of its comment.
    Comment(&'static str),
    /// How it is written and read.
    Serde(&'static str),
    /// Anything else.
    Other,
}

/// A field of a struct.
#[derive(Debug)]
pub struct Field {
    name: &'static str,
    notes: &'static [Note],
    schema: Value,
}

impl Schemas {
    /// A reference to the object of this name, which is described if that is still to be done.
    ///
    /// # Panics
    /// If two types would have the same name: then one would be described as the other.
    pub fn refer(&mut self, origin: &str, describe: impl FnOnce(&mut Self) -> Value) -> Value {
        // What belongs to a side that speaks is one word less for those who listen.
        let name = ["Facts", "Answer", "Body"].iter().find_map(|end| origin.strip_suffix(end)).unwrap_or(origin);
        match self.0.get(name) {
            Some(known) => assert_eq!(known.origin, origin, "two types are called {name}"),
            None => {
                let schema = describe(self);
                self.0.insert(name.to_owned(), Known { origin: origin.to_owned(), schema });
            }
        }
        json!({ "$ref": format!("{PLACE}{name}") })
    }

    /// The description behind a reference, or this one itself.
    pub fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let name = schema["$ref"].as_str().and_then(|place| place.strip_prefix(PLACE));
        name.and_then(|name| self.0.get(name)).map_or(schema, |known| &known.schema)
    }

    /// All of them, by name.
    #[must_use]
    pub fn into_all(self) -> BTreeMap<String, Value> {
        self.0.into_iter().map(|(name, known)| (name, known.schema)).collect()
    }
}

/// Where a document has them.
const PLACE: &str = "#/components/schemas/";

impl Field {
    /// A field of this name and look.
    #[must_use]
    pub const fn new(name: &'static str, notes: &'static [Note], schema: Value) -> Self {
        Self { name, notes, schema }
    }

    fn says(&self, word: &str) -> bool {
        self.notes.iter().any(|note| note.words().any(|found| found == word))
    }

    fn name(&self) -> &str {
        let renamed = |note: &Note| if let Note::Serde(text) = note { after(text, "rename = \"") } else { None };
        self.notes.iter().find_map(renamed).unwrap_or(self.name)
    }
}

/// What stands behind this, up to the next quote.
fn after(text: &'static str, beginning: &str) -> Option<&'static str> {
    text.split_once(beginning).and_then(|(_, rest)| rest.split('"').next())
}

impl Note {
    /// What is said of reading and writing it, word by word.
    fn words(&self) -> impl Iterator<Item = &'static str> {
        let text = if let Self::Serde(text) = self { text } else { "" };
        text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
    }
}

/// The comment, on one line.
#[must_use]
pub fn comment(notes: &[Note]) -> String {
    let lines =
        notes.iter().filter_map(|note| if let Note::Comment(line) = note { Some(line.trim()) } else { None });
    lines.collect::<Vec<_>>().join(" ").replace('`', "")
}

/// An object with these fields. One that may be left out is not required; one that may be null says so in its type.
pub fn object(notes: &[Note], fields: Vec<Field>, schemas: &Schemas) -> Value {
    let all_have_defaults = notes.iter().flat_map(Note::words).any(|word| word == "default");
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in fields {
        if field.says("skip") {
            continue;
        }
        if field.says("flatten") {
            // What is there or not as a whole stands in `oneOf`.
            let is_sure = field.schema["oneOf"].is_null();
            let inner = schemas.resolve(if is_sure { &field.schema } else { &field.schema["oneOf"][0] });
            properties.extend(inner["properties"].as_object().cloned().unwrap_or_default());
            if is_sure {
                required.extend(inner["required"].as_array().cloned().unwrap_or_default());
            }
            continue;
        }
        if !(all_have_defaults || field.says("default") || field.says("skip_serializing_if")) {
            required.push(Value::from(field.name()));
        }
        let name = field.name().to_owned();
        let is_left_out = field.says("skip_serializing_if");
        let mut schema = if is_left_out { never_null(field.schema) } else { field.schema };
        schema["description"] = comment(field.notes).into();
        properties.insert(name, schema);
    }
    json!({ "type": "object", "description": comment(notes), "properties": properties, "required": required })
}

/// The same for what is left out instead of being null.
fn never_null(mut schema: Value) -> Value {
    if let [kind, Value::String(null)] = schema["type"].as_array().map_or(&[][..], Vec::as_slice)
        && null == "null"
    {
        schema["type"] = kind.clone();
        return schema;
    }
    if schema["oneOf"][1]["type"] == "null" { schema["oneOf"][0].take() } else { schema }
}

macro_rules! plain {
    ($($type:ty: $schema:tt),* $(,)?) => {$(
        impl Described for $type {
            fn schema(_: &mut Schemas) -> Value {
                json!($schema)
            }
        }
    )*};
}

plain! {
    bool: { "type": "boolean" },
    u8: { "type": "integer", "minimum": 0, "maximum": 255 },
    u16: { "type": "integer", "minimum": 0, "maximum": 65535 },
    u32: { "type": "integer", "minimum": 0 },
    u64: { "type": "integer", "minimum": 0 },
    usize: { "type": "integer", "minimum": 0 },
    i16: { "type": "integer" },
    i32: { "type": "integer" },
    i64: { "type": "integer" },
    f64: { "type": "number" },
    String: { "type": "string" },
    &str: { "type": "string" },
    Cow<'_, str>: { "type": "string" },
}

impl<T: Described> Described for Vec<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "array", "items": T::schema(schemas) })
    }
}

impl<T: Described> Described for BTreeMap<String, T> {
    fn schema(schemas: &mut Schemas) -> Value {
        json!({ "type": "object", "additionalProperties": T::schema(schemas) })
    }
}

impl<T: Described> Described for Object<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        T::schema(schemas)
    }
}

impl<T: Described> Described for Option<T> {
    fn schema(schemas: &mut Schemas) -> Value {
        let mut schema = T::schema(schemas);
        match schema["type"].take() {
            Value::String(kind) => {
                schema["type"] = json!([kind, "null"]);
                if let Some(words) = schema["enum"].as_array_mut() {
                    words.push(Value::Null);
                }
                schema
            }
            _ => json!({ "oneOf": [T::schema(schemas), { "type": "null" }] }),
        }
    }
}

/// A point in time: RFC 3339, UTC, milliseconds.
#[derive(Debug)]
pub struct Time;

impl Described for Time {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "string", "format": "date-time" })
    }
}

/// A whole number between two others.
#[derive(Debug)]
pub struct Within<const LEAST: i64, const MOST: i64>;

impl<const LEAST: i64, const MOST: i64> Described for Within<LEAST, MOST> {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "integer", "minimum": LEAST, "maximum": MOST })
    }
}

/// A text whose length in bytes is between two numbers.
#[derive(Debug)]
pub struct Text<const LEAST: usize, const MOST: usize>;

impl<const LEAST: usize, const MOST: usize> Described for Text<LEAST, MOST> {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "string", "minLength": LEAST, "maxLength": MOST })
    }
}

/// A number from 0 to 100.
#[derive(Debug)]
pub struct Percent;

impl Described for Percent {
    fn schema(_: &mut Schemas) -> Value {
        json!({ "type": "number", "minimum": 0, "maximum": 100 })
    }
}

/// A struct as it stands here, which is [`Described`], too. Its fields are described by their comments. A field that is written
/// as another type than it has says so: `since: String as Time`.
#[macro_export]
macro_rules! described {
    (@note doc = $line:literal) => { $crate::schema::Note::Comment($line) };
    (@note serde ($($words:tt)*)) => { $crate::schema::Note::Serde(stringify!($($words)*)) };
    (@note $($other:tt)*) => { $crate::schema::Note::Other };
    (@shape $type:ty) => { $type };
    (@shape $type:ty as $shape:ty) => { $shape };
    (
        $(#[$($note:tt)*])*
        $vis:vis struct $name:ident $(<$life:lifetime>)? {
            $($(#[$($field_note:tt)*])* $field_vis:vis $field:ident: $type:ty $(as $shape:ty)?),* $(,)?
        }
    ) => {
        $(#[$($note)*])*
        $vis struct $name $(<$life>)? {
            $($(#[$($field_note)*])* $field_vis $field: $type),*
        }

        impl $(<$life>)? $crate::schema::Described for $name $(<$life>)? {
            fn schema(schemas: &mut $crate::schema::Schemas) -> serde_json::Value {
                use $crate::schema::{Field, Note, object};
                const NOTES: &[Note] = &[$($crate::described!(@note $($note)*)),*];
                schemas.refer(stringify!($name), |schemas| {
                    let fields = vec![$({
                        const NOTES: &[Note] = &[$($crate::described!(@note $($field_note)*)),*];
                        let schema = <$crate::described!(@shape $type $(as $shape)?) as $crate::schema::Described>::schema(schemas);
                        Field::new(stringify!($field), NOTES, schema)
                    }),*];
                    object(NOTES, fields, schemas)
                })
            }
        }
    };
}

/// Types that stand for one of a few words.
#[macro_export]
macro_rules! words {
    ($($(#[$note:meta])* $vis:vis $name:ident: [$($word:expr),* $(,)?];)*) => {$(
        $(#[$note])*
        #[derive(Debug)]
        $vis struct $name;

        impl $crate::schema::Described for $name {
            fn schema(_: &mut $crate::schema::Schemas) -> serde_json::Value {
                serde_json::json!({ "type": "string", "enum": [$($word),*] })
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;

    words! {
        Colour: ["red", "blue"];
    }

    described! {
        /// A thing
        /// to look at.
        #[derive(Serialize)]
        struct ThingFacts {
            /// What it is called.
            #[serde(rename = "called")]
            name: String,
            /// When it was made.
            made: Option<String> as Option<Time>,
            /// How it looks.
            colour: &'static str as Colour,
            /// Its parts.
            #[serde(skip_serializing_if = "Vec::is_empty")]
            parts: Vec<u16>,
            #[serde(skip)]
            secret: u8,
            #[serde(flatten)]
            more: More,
        }
    }

    described! {
        /// More of it.
        #[derive(Serialize)]
        struct More {
            /// How heavy it is.
            weight: Option<f64>,
        }
    }

    #[test]
    fn a_struct_is_described_as_it_is_written() {
        let mut schemas = Schemas::default();
        assert_eq!(ThingFacts::schema(&mut schemas), json!({ "$ref": "#/components/schemas/Thing" }));
        let thing = ThingFacts {
            name: "x".to_owned(),
            made: None,
            colour: "red",
            parts: vec![1],
            secret: 7,
            more: More { weight: None },
        };
        let (all, written) = (schemas.into_all(), serde_json::to_value(&thing).unwrap());
        let schema = &all["Thing"];
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&schema["properties"]), names(&written));
        assert_eq!(schema["description"], "A thing to look at.");
        assert_eq!(schema["required"], json!(["called", "made", "colour", "weight"]));
        assert_eq!(schema["properties"]["made"]["type"], json!(["string", "null"]));
        assert_eq!(schema["properties"]["colour"]["enum"], json!(["red", "blue"]));
        assert_eq!(thing.secret, 7);
    }
}
