//! What is said of one route: parameters, body, answers, refusals.

use std::collections::BTreeMap;

use primus_shapes::schema::{Described, Schemas};
use serde_json::{Map, Value, json};

use crate::problem::{CODES, Code};

/// JSON, where nothing else is said.
pub(super) const JSON: &str = "application/json";
/// A line of JSON each.
pub(super) const LINES: &str = "application/x-ndjson";
/// Any text.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// How something is described, as soon as there is a place for what has a name.
type Describe = fn(&mut Schemas) -> Value;

/// Something that a request says beside its body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parameter {
    /// `path`, `query` or `header`.
    pub(super) place: &'static str,
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Its type, bounds and default.
    pub(super) schema: fn() -> Value,
}

/// A body, of a request or of an answer.
#[derive(Debug, Clone, Copy)]
struct Content {
    kind: &'static str,
    schema: Describe,
    example: &'static str,
}

/// One answer.
#[derive(Debug)]
struct Answer {
    about: &'static str,
    contents: Vec<Content>,
    headers: &'static [(&'static str, &'static str)],
}

/// All that is said of a route beside its method, its path and its summary.
#[derive(Debug, Default)]
pub(super) struct Operation {
    about: &'static str,
    parameters: Vec<Parameter>,
    bodies: Vec<Content>,
    may_be_empty: bool,
    answers: BTreeMap<u16, Answer>,
    refusals: Vec<&'static str>,
}

impl Operation {
    /// More than its summary says.
    pub(super) const fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// Takes these parameters.
    pub(super) fn asks(mut self, parameters: &[Parameter]) -> Self {
        self.parameters.extend_from_slice(parameters);
        self
    }

    /// Takes an object.
    pub(super) fn takes<T: Described>(self, example: &'static str) -> Self {
        self.takes_kind(JSON, T::schema, example)
    }

    /// Takes a body of this kind.
    pub(super) fn takes_kind(mut self, kind: &'static str, schema: Describe, example: &'static str) -> Self {
        self.bodies.push(Content { kind, schema, example });
        self
    }

    /// The body may be left out.
    pub(super) const fn or_nothing(mut self) -> Self {
        self.may_be_empty = true;
        self
    }

    /// Answers with an object.
    pub(super) fn gives<T: Described>(self, status: u16, about: &'static str, example: &'static str) -> Self {
        self.gives_kind(status, about, JSON, T::schema, example)
    }

    /// Answers with a list, a page at a time.
    pub(super) fn lists<T: Described>(self, about: &'static str, example: &'static str) -> Self {
        self.gives_kind(200, about, JSON, page_of::<T>, example)
    }

    /// Answers with a body of this kind.
    pub(super) fn gives_kind(
        mut self,
        status: u16,
        about: &'static str,
        kind: &'static str,
        schema: Describe,
        example: &'static str,
    ) -> Self {
        let answer = self.answers.entry(status).or_insert(Answer { about, contents: Vec::new(), headers: &[] });
        answer.contents.push(Content { kind, schema, example });
        self
    }

    /// What fields the answer has beside its body.
    pub(super) fn with_headers(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.answers.values_mut().for_each(|answer| answer.headers = headers);
        self
    }

    /// May also be refused for these reasons.
    pub(super) fn refuses(mut self, codes: &[&'static str]) -> Self {
        self.refusals.extend_from_slice(codes);
        self
    }

    /// As OpenAPI has it.
    pub(super) fn describe(&self, summary: &str, tag: &str, schemas: &mut Schemas) -> Value {
        let mut operation = json!({
            "summary": summary,
            "tags": [tag],
            "parameters": self.parameters.iter().map(Parameter::describe).collect::<Vec<_>>(),
            "responses": self.responses(schemas),
        });
        if !self.about.is_empty() {
            operation["description"] = self.about.into();
        }
        if !self.bodies.is_empty() {
            let content = contents(&self.bodies, schemas);
            operation["requestBody"] = json!({ "required": !self.may_be_empty, "content": content });
        }
        operation
    }

    fn responses(&self, schemas: &mut Schemas) -> Value {
        let mut responses = Map::new();
        for (status, answer) in &self.answers {
            let content = contents(&answer.contents, schemas);
            let mut response = json!({ "description": answer.about, "content": content });
            for (name, about) in answer.headers {
                response["headers"][name] = json!({ "description": about, "schema": { "type": "string" } });
            }
            responses.insert(status.to_string(), response);
        }
        let is_possible = |code: &&Code| code.is_common || self.refusals.contains(&code.name);
        let mut refusals: BTreeMap<u16, Vec<&Code>> = BTreeMap::new();
        for code in CODES.iter().filter(is_possible) {
            refusals.entry(code.status).or_default().push(code);
        }
        for (status, codes) in refusals {
            let lines = codes.iter().map(|code| format!("{}: {}", code.name, code.about));
            let about = lines.collect::<Vec<_>>().join("; ");
            let schema = json!({ "$ref": "#/components/schemas/Error" });
            let content = json!({ JSON: { "schema": schema } });
            let names: Vec<&str> = codes.iter().map(|code| code.name).collect();
            let response = json!({ "description": about, "content": content, "x-codes": names });
            responses.insert(status.to_string(), response);
        }
        Value::Object(responses)
    }
}

impl Parameter {
    fn describe(&self) -> Value {
        json!({
            "in": self.place,
            "name": self.name,
            "description": self.about,
            "required": self.place == "path",
            "schema": (self.schema)(),
        })
    }
}

fn contents(contents: &[Content], schemas: &mut Schemas) -> Value {
    let mut found = Map::new();
    for Content { kind, schema, example } in contents {
        // What is not JSON is shown as it is.
        let example = serde_json::from_str(example).unwrap_or_else(|_| Value::from(*example));
        let schema = schema(schemas);
        match found.get_mut(*kind) {
            None => _ = found.insert((*kind).to_owned(), json!({ "schema": schema, "example": example })),
            // Two answers of one kind: one or the other.
            Some(Value::Object(first)) => {
                let one = first["schema"].take();
                first.insert("schema".to_owned(), json!({ "oneOf": [one, schema] }));
            }
            Some(_) => {}
        }
    }
    Value::Object(found)
}

/// A page of a list.
fn page_of<T: Described>(schemas: &mut Schemas) -> Value {
    page(T::schema(schemas))
}

/// A page of such items.
pub(super) fn page(item: Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            "items": { "type": "array", "items": item, "description": "The items of this page." },
            "next": {
                "type": ["string", "null"],
                "description": "Where the next page begins: the parameter after of the next request; null on the last page.",
            },
        },
        "required": ["items", "next"],
    })
}
