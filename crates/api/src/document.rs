//! The document of the API, as OpenAPI 3.1 has it: `GET /v1/openapi.json`, and what docs/api.md is made from.
//!
//! A route's summary is in the table of [`routes`](crate::routes), the fields of answers are described with their types,
//! limits are the constants that are checked. What is left to say of a route is said in [`operations`].

mod operation;
mod operations;
mod parameters;
mod shapes;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use operation::Operation;
use primus_shapes::schema::Schemas;
use serde_json::{Map, Value, json};

use crate::problem::CODES;
use crate::routes::{own_routes, task_routes};
use crate::table::Row;

/// All that is said of routes beside their summaries, by method and path.
type Operations = BTreeMap<(&'static str, &'static str), Operation>;

/// The document as a text, which never changes while a process lives.
static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// The document of the API.
pub(crate) async fn read() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// What an API of this version can be asked, and what it answers: an OpenAPI document.
#[must_use]
pub fn document() -> Value {
    let (operations, mut schemas) = (operations::all(), Schemas::default());
    let mut paths = Map::new();
    for row in rows() {
        let Some(operation) = operations.get(&(row.method, row.path)) else { continue };
        let path = row.path.replace("{*", "{");
        let (method, summary) = (row.method.to_ascii_lowercase(), summary(row.about));
        let described = operation.describe(&summary, tag(row.path), &mut schemas);
        let place = paths.entry(path).or_insert_with(|| json!({}));
        place[method] = described;
    }
    if let Some(livez) = paths.get_mut(crate::doors::LIVEZ) {
        livez["get"]["security"] = json!([]);
    }
    let mut schemas: Map<String, Value> = schemas.into_all().into_iter().collect();
    schemas.insert("Error".to_owned(), error());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "primus",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:7461", "description": "A server on this host." }],
        "security": [{ "secret": [] }],
        "paths": paths,
        "components": { "schemas": schemas, "securitySchemes": { "secret": {
            "type": "http", "scheme": "bearer",
            "description": "The secret that api.token_file names. Without one, the API listens on this host only and asks for nothing.",
        } } },
    })
}

const ABOUT: &str = "Every server answers; what only the leader can do, a follower passes on to it. Fields are added \
                     within a minor version, never renamed or removed, so readers skip fields that they do not know. A \
                     request with the field `x-primus-here` is answered by the server that is asked, or refused.";

/// All rows of the table.
fn rows() -> impl Iterator<Item = Row> {
    Row::of_the_table().into_iter().chain(own_routes().rows).chain(task_routes().rows)
}

/// The table's words without the examples behind them.
fn summary(about: &str) -> String {
    let words = about.split("; ?").next().unwrap_or(about);
    let words = words.split(": {").next().unwrap_or(words);
    let mut letters = words.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// What a route is about: the part of its path behind the version.
fn tag(path: &str) -> &str {
    match path.strip_prefix("/v1") {
        None | Some("" | "/openapi.json") => "server",
        Some(rest) => rest.split('/').nth(1).unwrap_or("server"),
    }
}

/// The body of every refusal.
fn error() -> Value {
    let mut codes: Vec<&str> = CODES.iter().map(|code| code.name).collect();
    codes.dedup();
    codes.sort_unstable();
    codes.dedup();
    json!({
        "type": "object",
        "description": "Why a request was refused.",
        "properties": { "error": {
            "type": "object",
            "description": "The reason.",
            "properties": {
                "code": { "type": "string", "enum": codes, "description": "The reason in one word, for programs." },
                "message": { "type": "string", "description": "What is wrong, in a sentence." },
                "hint": { "type": "string", "description": "What to do." },
            },
            "required": ["code", "message", "hint"],
        } },
        "required": ["error"],
        "example": { "error": {
            "code": "not_found", "message": "job 12 does not exist", "hint": "primus jobs lists those that are kept",
        } },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let routes: BTreeSet<_> = rows().map(|row| (row.method, row.path)).collect();
        let described: BTreeSet<_> = operations::all().into_keys().collect();
        assert_eq!(routes, described);
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let count: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(count, routes.len());
    }

    #[test]
    fn a_path_and_its_description_have_the_same_parameters() {
        let document = document();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let in_path: BTreeSet<&str> =
                path.split('{').skip(1).filter_map(|rest| rest.split('}').next()).collect();
            for (method, operation) in methods.as_object().unwrap() {
                let parameters = operation["parameters"].as_array().unwrap().iter();
                let named =
                    parameters.filter(|found| found["in"] == "path").filter_map(|found| found["name"].as_str());
                assert_eq!(named.collect::<BTreeSet<_>>(), in_path, "{method} {path}");
            }
        }
    }
}
