//! Holds what a server answers to the document of its API: a field that no schema has is a mistake, and so is a missing one.
//!
//! It knows as much of JSON Schema as the document uses.

use serde_json::Value;

/// A document, and what it says.
#[derive(Debug)]
pub(crate) struct Document(pub(crate) Value);

/// What was asked: the method and the path, without the query.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

impl Document {
    /// What is wrong with this answer, if anything is.
    pub(crate) fn check_answer(
        &self,
        asked: Asked<'_>,
        status: u16,
        kind: &str,
        body: &Value,
    ) -> Result<(), String> {
        let Some(path) = self.path_of(asked.path) else { return self.check_stray(status, 404, body) };
        let Some(operation) = path.get(asked.method.to_ascii_lowercase()) else {
            return self.check_stray(status, 405, body);
        };
        let response = &operation["responses"][status.to_string()];
        if response.is_null() {
            return Err(format!("no answer has the status {status}"));
        }
        if let Some(codes) = response["x-codes"].as_array()
            && !codes.contains(&body["error"]["code"])
        {
            return Err(format!("status {status} has no code {}", body["error"]["code"]));
        }
        let content = &response["content"][kind];
        match content.is_null() {
            true => Err(format!("status {status} has no body of {kind}")),
            false => self.check(&content["schema"], body),
        }
    }

    /// What is not a route refuses whatever asks for it: at the doors, or because it is not there.
    fn check_stray(&self, status: u16, expected: u16, body: &Value) -> Result<(), String> {
        if ![expected, 400, 401, 403, 408, 413, 415, 421, 503].contains(&status) {
            return Err(format!("the document does not have this route, and the status is {status}"));
        }
        self.check(&self.0["components"]["schemas"]["Error"], body)
    }

    /// The description of the path to which this one belongs. Where both fit, one without parameters comes first.
    fn path_of(&self, path: &str) -> Option<&Value> {
        let paths = self.0["paths"].as_object()?;
        paths.get(path).or_else(|| paths.iter().find(|(pattern, _)| fits(pattern, path)).map(|(_, found)| found))
    }

    /// What is wrong with this value, if anything is.
    pub(crate) fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        self.check_at(schema, value, "")
    }

    fn check_at(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        if let Some(name) = schema["$ref"].as_str() {
            let found = self.0.pointer(name.trim_start_matches('#'));
            return self.check_at(found.ok_or_else(|| format!("nothing is at {name}"))?, value, place);
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            return self.check_choice(choices, value, place);
        }
        let wrong = |what: &str| Err(format!("{place}: {value} {what}"));
        if !is_of_type(&schema["type"], value) {
            return wrong(&format!("is not of type {}", schema["type"]));
        }
        if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
            return wrong(&format!("is none of {}", schema["enum"]));
        }
        if !is_within(schema, value) {
            return wrong("is not within its bounds");
        }
        match value {
            Value::Array(items) => {
                let check = |(index, item)| self.check_at(&schema["items"], item, &format!("{place}[{index}]"));
                items.iter().enumerate().try_for_each(check)
            }
            Value::Object(_) => self.check_object(schema, value, place),
            _ => Ok(()),
        }
    }

    fn check_object(&self, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
        let (required, more) = (schema["required"].as_array(), &schema["additionalProperties"]);
        let names = required.into_iter().flatten().filter_map(Value::as_str);
        if let Some(name) = names.into_iter().find(|name| value.get(name).is_none()) {
            return Err(format!("{place}.{name} is missing"));
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            let place = format!("{place}.{name}");
            match (&schema["properties"][name], more) {
                (Value::Null, Value::Bool(true)) => {}
                (Value::Null, Value::Object(_)) => self.check_at(more, value, &place)?,
                (Value::Null, _) => return Err(format!("{place} is not in the document")),
                (schema, _) => self.check_at(schema, value, &place)?,
            }
        }
        Ok(())
    }

    /// The nearest of several choices is the one about which something can be said.
    fn check_choice(&self, choices: &[Value], value: &Value, place: &str) -> Result<(), String> {
        let mut mistakes = Vec::new();
        for choice in choices {
            match self.check_at(choice, value, place) {
                Ok(()) => return Ok(()),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        let is_of_other_kind = |mistake: &String| mistake.starts_with(&format!("{place}.kind:"));
        mistakes.sort_by_key(is_of_other_kind);
        mistakes.truncate(3);
        Err(format!("{place}: {value} is none of the choices: {}", mistakes.join("; or ")))
    }
}

/// Is this a path of the pattern? A key has as many parts as it likes.
fn fits(pattern: &str, path: &str) -> bool {
    if let Some(beginning) = pattern.strip_suffix("{key}") {
        return path.strip_prefix(beginning).is_some_and(|key| !key.is_empty());
    }
    let (patterns, parts): (Vec<&str>, Vec<&str>) = (pattern.split('/').collect(), path.split('/').collect());
    let is_part =
        |(pattern, part): (&&str, &&str)| if pattern.starts_with('{') { !part.is_empty() } else { pattern == part };
    patterns.len() == parts.len() && patterns.iter().zip(&parts).all(is_part)
}

fn is_of_type(kind: &Value, value: &Value) -> bool {
    let is = |kind: &str| match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match kind {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).any(is),
        _ => false,
    }
}

fn is_within(schema: &Value, value: &Value) -> bool {
    let bound = |name: &str| schema[name].as_f64();
    let is_between = |number: f64, least: Option<f64>, most: Option<f64>| {
        least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most)
    };
    match value {
        Value::Number(number) => {
            is_between(number.as_f64().unwrap_or(f64::NAN), bound("minimum"), bound("maximum"))
        }
        Value::String(text) => is_between(text.len() as f64, bound("minLength"), bound("maxLength")),
        _ => true,
    }
}
