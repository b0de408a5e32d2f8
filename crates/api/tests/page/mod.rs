//! The part of docs/api.md that is made from the document.

use std::fmt::Write;

use serde_json::Value;

/// The order of the sections, and what they are called.
const SECTIONS: [(&str, &str); 13] = [
    ("server", "The server itself"),
    ("status", "The farm at a glance"),
    ("leader", "Leadership"),
    ("elections", "Elections"),
    ("groups", "Groups and leases"),
    ("sessions", "Sessions: asking for leases"),
    ("jobs", "Jobs"),
    ("tasks", "Tasks"),
    ("workers", "Workers"),
    ("farms", "Farms"),
    ("loans", "Loans"),
    ("kv", "Keys and values"),
    ("events", "Events"),
];
const LAST: (&str, &str) = ("chaos", "Disturbing on purpose");

/// What stands for parameters in examples.
const VALUES: [(&str, &str); 8] = [
    ("/jobs/{id}", "/jobs/12"),
    ("/tasks/{id}", "/tasks/12.1"),
    ("/loans/{id}", "/loans/3"),
    ("/sessions/{id}", "/sessions/1f"),
    ("{name}", "w1"),
    ("{key}", "colour"),
    ("/v1/events", "/v1/events?follow=false"),
    ("/output", "/output?stream=stdout"),
];

/// All of it.
pub(crate) fn page(document: &Value) -> String {
    let mut page = String::new();
    errors(document, &mut page);
    for (tag, title) in SECTIONS.into_iter().chain([LAST]) {
        _ = writeln!(page, "## {title}\n");
        for (path, methods) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in methods.as_object().into_iter().flatten() {
                if operation["tags"][0] == tag {
                    route(&method.to_ascii_uppercase(), path, operation, &mut page);
                }
            }
        }
    }
    objects(document, &mut page);
    page.trim_end().to_owned() + "\n"
}

/// Every code once, with its status and what it means.
fn errors(document: &Value, page: &mut String) {
    let responses =
        document["paths"].as_object().into_iter().flatten().flat_map(|(_, methods)| methods.as_object());
    let mut lines: Vec<(String, String, String)> = Vec::new();
    for (status, response) in
        responses.flatten().filter_map(|(_, operation)| operation["responses"].as_object()).flatten()
    {
        let about = text(&response["description"]);
        for code in response["x-codes"].as_array().into_iter().flatten().map(text) {
            let meaning = about.split("; ").find_map(|line| line.strip_prefix(&format!("{code}: ")));
            lines.push((status.clone(), code.to_owned(), meaning.unwrap_or_default().to_owned()));
        }
    }
    lines.sort();
    lines.dedup();
    page.push_str("## Errors\n\nA path that is not a route is answered with 404 `not_found`, another method with 405 `method_not_allowed`.\n\n");
    page.push_str("| status | code | meaning |\n|---|---|---|\n");
    for (status, code, meaning) in lines {
        _ = writeln!(page, "| {status} | `{code}` | {meaning} |");
    }
    page.push('\n');
}

fn route(method: &str, path: &str, operation: &Value, page: &mut String) {
    let words = format!("{}. {}", text(&operation["summary"]), text(&operation["description"]));
    _ = writeln!(page, "### {method} {path}\n\n{}\n", words.trim_end());
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    if !parameters.is_empty() {
        page.push_str("| parameter | in | type | meaning |\n|---|---|---|---|\n");
    }
    for parameter in parameters {
        let [name, place, about] = ["name", "in", "description"].map(|key| text(&parameter[key]));
        _ = writeln!(page, "| `{name}` | {place} | {} | {about} |", kind(&parameter["schema"]));
    }
    if !parameters.is_empty() {
        page.push('\n');
    }
    body(&operation["requestBody"], page);
    answers(&operation["responses"], page);
    example(method, path, operation, page);
}

fn body(body: &Value, page: &mut String) {
    let mut said = Vec::new();
    for (_, content) in body["content"].as_object().into_iter().flatten() {
        let schema = &content["schema"];
        let line = match schema["$ref"].is_string() {
            true => format!("Body: {}.", kind(schema)),
            false if schema["type"] == "string" => "Body: a text.".to_owned(),
            false => "Body:".to_owned(),
        };
        if !said.contains(&line) {
            _ = writeln!(page, "{line}\n");
            for choice in schema["oneOf"].as_array().map_or(std::slice::from_ref(schema), Vec::as_slice) {
                fields(choice, page);
            }
            said.push(line);
        }
    }
}

fn answers(responses: &Value, page: &mut String) {
    let mut refusals = Vec::new();
    for (status, response) in responses.as_object().into_iter().flatten() {
        if let Some(codes) = response["x-codes"].as_array() {
            let is_special = |code: &&Value| !COMMON.contains(&text(code));
            refusals.extend(codes.iter().filter(is_special).map(|code| format!("`{}` ({status})", text(code))));
            continue;
        }
        let shapes: Vec<String> = response["content"]
            .as_object()
            .into_iter()
            .flatten()
            .map(
                |(media, content)| {
                    if media == "application/json" { kind(&content["schema"]) } else { format!("`{media}`") }
                },
            )
            .collect();
        _ = writeln!(page, "{status}: {} {}.\n", text(&response["description"]), shapes.join(", "));
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            _ = writeln!(page, "- `{name}`: {}", text(&header["description"]));
        }
        if response["headers"].is_object() {
            page.push('\n');
        }
    }
    if !refusals.is_empty() {
        _ = writeln!(page, "Refusals beside those of every route: {}.\n", refusals.join(", "));
    }
}

/// What any request can meet.
const COMMON: [&str; 8] =
    ["usage", "no_token", "not_allowed", "too_slow", "too_long", "content_type", "wrong_host", "busy"];

/// A request as people type it, and its answer.
fn example(method: &str, path: &str, operation: &Value, page: &mut String) {
    let mut target = path.to_owned();
    for (parameter, value) in VALUES {
        target = target.replace(parameter, value);
    }
    let mut line = "$ curl -H @TOKEN_FILE".to_owned();
    if method != "GET" {
        _ = write!(line, " -X {method}");
    }
    if let Some((kind, content)) = operation["requestBody"]["content"].as_object().and_then(|all| all.iter().next())
    {
        let example = &content["example"];
        let example = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
        _ = write!(line, " -H 'Content-Type: {kind}' -d '{example}'");
    }
    _ = writeln!(page, "```console\n{line} 'http://127.0.0.1:7461{target}'");
    let answers = operation["responses"].as_object().into_iter().flatten();
    let contents = answers.filter_map(|(_, response)| response["content"].as_object()).flatten();
    if let Some(example) = contents.map(|(_, content)| &content["example"]).find(|example| !example.is_null()) {
        let example = example.as_str().map_or_else(|| example.to_string(), str::to_owned);
        _ = writeln!(page, "{}", example.trim_end());
    }
    page.push_str("```\n\n");
}

fn objects(document: &Value, page: &mut String) {
    page.push_str("## Objects\n\nA field is always there unless its type says that it may be absent.\n\n");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        _ = writeln!(page, "### {name}\n\n{}\n", text(&schema["description"]));
        match schema["oneOf"].as_array() {
            Some(kinds) => choices(kinds, page),
            None => fields(schema, page),
        }
    }
}

/// Kinds of one object: what each means and has.
fn choices(kinds: &[Value], page: &mut String) {
    page.push_str("| kind | meaning | fields beside index, time and kind |\n|---|---|---|\n");
    for choice in kinds {
        let name = text(&choice["properties"]["kind"]["enum"][0]);
        let own = choice["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let own = own.filter(|name| !["index", "time", "kind"].contains(name)).map(|name| format!("`{name}`"));
        let own: Vec<String> = own.collect();
        _ = writeln!(page, "| `{name}` | {} | {} |", text(&choice["description"]), own.join(" "));
    }
    page.push_str("\n| field | type | meaning |\n|---|---|---|\n");
    let mut lines: Vec<String> = kinds.iter().flat_map(|choice| rows(choice, "")).collect();
    lines.retain(|line| !line.starts_with("| `kind`"));
    lines.sort();
    lines.dedup();
    _ = writeln!(page, "{}\n", lines.join("\n"));
}

fn fields(schema: &Value, page: &mut String) {
    let lines = rows(schema, "");
    if !lines.is_empty() {
        _ = writeln!(page, "| field | type | meaning |\n|---|---|---|\n{}\n", lines.join("\n"));
    }
}

/// A line for each field, those of objects without a name included.
fn rows(schema: &Value, before: &str) -> Vec<String> {
    let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
    let mut lines = Vec::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let absent = if required.contains(&Value::from(name.as_str())) { "" } else { ", may be absent" };
        lines.push(format!(
            "| `{before}{name}` | {}{absent} | {} |",
            kind(property),
            text(&property["description"])
        ));
        lines.extend(rows(property, &format!("{before}{name}.")));
    }
    lines
}

/// A type, as people read it.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_ascii_lowercase());
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    let name = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join(" or "),
        one => text(one).to_owned(),
    };
    let mut words = match name.as_str() {
        "array" => format!("list of {}", kind(&schema["items"])),
        "object" if !schema["properties"]["items"].is_null() => {
            format!("a page of {}", kind(&schema["properties"]["items"]["items"]))
        }
        "object" if schema["additionalProperties"].is_object() => {
            format!("object of {}", kind(&schema["additionalProperties"]))
        }
        _ => name,
    };
    if let Some(all) = schema["enum"].as_array() {
        let all: Vec<String> =
            all.iter().filter(|word| !word.is_null()).map(|word| format!("`{}`", plain(word))).collect();
        _ = write!(words, ": {}", all.join(" "));
    }
    for (key, before) in [
        ("format", ", "),
        ("minimum", ", from "),
        ("maximum", " to "),
        ("minLength", ", bytes from "),
        ("maxLength", " to "),
        ("default", ", default "),
    ] {
        let is_zero = schema[key] == 0 && schema["maximum"].is_null() && key == "minimum";
        if !schema[key].is_null() && !is_zero {
            _ = write!(words, "{before}{}", plain(&schema[key]));
        }
    }
    words
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
