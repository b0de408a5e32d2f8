//! What requests say, read field by field: orders, which are small objects, and queries. Unknown names are refused, because a
//! name that is only nearly right would otherwise mean something else; and what is wrong is said with what was sent.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{FromRequestParts, Query};
use axum::http::Request;
use axum::http::request::Parts;
use primus_shapes::objects::{complaint, shown, unique};
use serde::Deserialize;
use serde_json::Value;

use crate::bodies;
use crate::limits::ORDER_LEN_MAX;
use crate::problem::{Problem, SEE_ROUTES};

/// A small object, from which fields are taken one by one.
#[derive(Debug)]
pub(crate) struct Order {
    fields: Fields,
    /// What a good one looks like.
    hint: &'static str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
struct Fields(#[serde(deserialize_with = "unique")] BTreeMap<String, Value>);

impl Order {
    /// The order in this body; nothing if the body is empty.
    pub(crate) async fn read(request: Request<Body>, hint: &'static str) -> Result<Option<Self>, Problem> {
        let body = bodies::read(request, ORDER_LEN_MAX).await?;
        if body.is_empty() { Ok(None) } else { Self::parse(&body, hint).map(Some) }
    }

    /// The same, where there must be one.
    pub(crate) async fn must(request: Request<Body>, hint: &'static str) -> Result<Self, Problem> {
        Self::read(request, hint).await?.ok_or_else(|| Problem::usage("the body is empty", hint))
    }

    /// Where there is nothing to say, nothing else may be said.
    pub(crate) async fn nothing(request: Request<Body>) -> Result<(), Problem> {
        Self::read(request, "send {}, or nothing at all").await?.map_or(Ok(()), Self::done)
    }

    fn parse(body: &[u8], hint: &'static str) -> Result<Self, Problem> {
        let fields = serde_json::from_slice(body);
        let wrong = |error| Problem::usage(format!("the body cannot be used: {}", complaint(&error)), hint);
        Ok(Self { fields: fields.map_err(wrong)?, hint })
    }

    fn field<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        match self.fields.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(&value).map(Some).ok_or_else(|| self.wrong(name, &value.to_string(), expected)),
        }
    }

    fn wrong(&self, name: &str, found: &str, expected: &str) -> Problem {
        Problem::usage(format!("{name} is {}, not {expected}", shown(found)), self.hint)
    }

    /// A whole number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        self.field(name, "a whole number from 0", Value::as_u64)
    }

    /// A number between these.
    pub(crate) fn within(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>, Problem> {
        let expected = format!("a number from {least} to {most}");
        self.field(name, &expected, |value| value.as_f64().filter(|number| (least..=most).contains(number)))
    }

    /// Yes or no.
    pub(crate) fn truth(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        self.field(name, "true or false", Value::as_bool)
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, Problem> {
        self.field(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// A list of whole numbers.
    pub(crate) fn numbers<C: FromIterator<u64>>(&mut self, name: &str) -> Result<Option<C>, Problem> {
        self.field(name, "a list of whole numbers from 0", |value| {
            value.as_array()?.iter().map(Value::as_u64).collect()
        })
    }

    /// A list of texts.
    pub(crate) fn texts<C: FromIterator<String>>(&mut self, name: &str) -> Result<Option<C>, Problem> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.field(name, "a list of texts", |value| value.as_array()?.iter().map(text).collect())
    }

    /// What must be there.
    pub(crate) fn given<T>(&self, name: &str, field: Option<T>) -> Result<T, Problem> {
        field.ok_or_else(|| Problem::usage(format!("{name} is missing"), self.hint))
    }

    /// Nothing must be left.
    pub(crate) fn done(self) -> Result<(), Problem> {
        let strange =
            self.fields.0.keys().next().map(|name| format!("the field {:?} is unknown here", shown(name)));
        strange.map_or(Ok(()), |message| Err(Problem::usage(message, self.hint)))
    }
}

/// What stands behind the question mark.
#[derive(Debug, Default)]
pub(crate) struct Asked(BTreeMap<String, String>);

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|_| Problem::usage("the query cannot be read", "write it like ?limit=10&after=12"))?;
        let mut asked = BTreeMap::new();
        for (name, value) in pairs.0 {
            if asked.contains_key(&name) {
                return Err(Problem::usage(format!("{} is given twice", shown(&name)), "leave one out"));
            }
            asked.insert(name, value);
        }
        Ok(Self(asked))
    }
}

impl Asked {
    /// Is something said about this?
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A text.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// A whole number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Problem> {
        let wrong =
            |text: &str| Problem::usage(format!("{name} is {:?}", shown(text)), "give a whole number from 0");
        self.text(name).map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
    }

    /// The same, for counts of things here.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<usize>, Problem> {
        Ok(self.number(name)?.map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
    }

    /// Yes or no.
    pub(crate) fn truth(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        let wrong = |text: &str| Problem::usage(format!("{name} is {:?}", shown(text)), "choose true or false");
        self.text(name).map(|text| text.parse().map_err(|_| wrong(&text))).transpose()
    }

    /// Nothing must be left.
    pub(crate) fn done(self) -> Result<(), Problem> {
        let strange = self.0.keys().next().map(|name| format!("the parameter {:?} is unknown here", shown(name)));
        strange.map_or(Ok(()), |message| Err(Problem::usage(message, SEE_ROUTES)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<T: std::fmt::Debug>(found: Result<T, Problem>) -> String {
        found.expect_err("it is wrong").to_string()
    }

    #[test]
    fn what_was_sent_is_what_is_said_to_be_wrong() {
        let order = |body: &str| Order::parse(body.as_bytes(), "hint").unwrap();
        assert_eq!(order("{\"to\":2}").number("to").unwrap(), Some(2));
        assert_eq!(order("{\"to\":null}").number("to").unwrap(), None);
        assert_eq!(words(order("{\"to\":\"2\"}").number("to")), "to is \"2\", not a whole number from 0");
        assert_eq!(words(order("{\"to\":-1}").number("to")), "to is -1, not a whole number from 0");
        let peers = order("{\"peers\":[-1]}").numbers::<Vec<u64>>("peers");
        assert_eq!(words(peers), "peers is [-1], not a list of whole numbers from 0");
        assert_eq!(
            words(order("{\"score\":1e308}").within("score", 0.0, 100.0)),
            "score is 1e+308, not a number from 0 to 100"
        );
        assert_eq!(words(order("{\"zzz\":1}").done()), "the field \"zzz\" is unknown here");
        for body in ["[]", "7", "{\"a\":1,\"a\":2}", "{", "\u{feff}{}"] {
            assert!(Order::parse(body.as_bytes(), "hint").is_err(), "{body}");
        }
    }
}
