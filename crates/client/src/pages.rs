//! Lists as one answer: page after page, until there is no more or there are enough.

use serde_json::{Value, json};

use crate::error::Error;
use crate::http::escaped;
use crate::strange_answer;

/// How many items a server gives at once at most.
const PAGE_MAX: usize = 10_000;

/// A list that is read page by page.
#[derive(Debug)]
pub struct Pages {
    path: String,
    count_max: usize,
    items: Vec<Value>,
    after: Option<String>,
    is_whole: bool,
}

impl Pages {
    /// The list at this path; nothing of it was read yet.
    pub fn new(path: &str, count_max: usize) -> Self {
        let joint = if path.contains('?') { '&' } else { '?' };
        Self { path: format!("{path}{joint}"), count_max, items: Vec::new(), after: None, is_whole: false }
    }

    /// The path of the next page, until there is no more or there are enough.
    pub fn wanted(&self) -> Option<String> {
        let limit = PAGE_MAX.min(self.count_max.saturating_sub(self.items.len()));
        let behind = self.after.as_ref().map(|after| format!("&after={}", escaped(after))).unwrap_or_default();
        (!self.is_whole).then(|| format!("{}limit={limit}{behind}", self.path))
    }

    /// That page.
    pub fn take(&mut self, mut page: Value) -> Result<(), Error> {
        let Some(Value::Array(found)) = page.get_mut("items").map(Value::take) else {
            return Err(strange_answer());
        };
        self.items.extend(found);
        let next = page["next"].as_str().map(str::to_owned);
        // A server that leads in a circle must not be followed for ever.
        if next.is_some() && next == self.after {
            return Err(strange_answer());
        }
        self.is_whole = next.is_none() || self.items.len() >= self.count_max;
        self.after = next;
        Ok(())
    }

    /// What was read, in the form of one page.
    pub fn list(self) -> Value {
        json!({ "items": self.items, "next": self.after })
    }
}

/// The first items of the list at this path, in the form of one page, whose `next` is null if these are all.
pub fn gather<E: From<Error>>(
    path: &str,
    count_max: usize,
    mut get: impl FnMut(&str) -> Result<Value, E>,
) -> Result<Value, E> {
    let mut pages = Pages::new(path, count_max);
    while let Some(path) = pages.wanted() {
        pages.take(get(&path)?)?;
    }
    Ok(pages.list())
}

/// All items of a list.
pub fn all<E: From<Error>>(path: &str, get: impl FnMut(&str) -> Result<Value, E>) -> Result<Value, E> {
    gather(path, usize::MAX, get)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose list has so many items, and pages with three at most.
    fn get(count: u64) -> impl FnMut(&str) -> Result<Value, Error> {
        move |path| {
            let field =
                |name: &str| path.split(['?', '&']).find_map(|field| field.strip_prefix(name)?.parse().ok());
            let (limit, after): (Option<u64>, Option<u64>) = (field("limit="), field("after="));
            let (first, limit) = (after.unwrap_or(0) + 1, limit.unwrap_or(100).min(3));
            let last = count.min(first + limit - 1);
            let next = (last < count).then(|| last.to_string());
            Ok(json!({ "items": (first..=last).collect::<Vec<_>>(), "next": next }))
        }
    }

    #[test]
    fn all_pages_are_one_answer() {
        assert_eq!(all("/v1/x", get(0)).unwrap(), json!({ "items": [], "next": null }));
        assert_eq!(all("/v1/x", get(7)).unwrap(), json!({ "items": [1, 2, 3, 4, 5, 6, 7], "next": null }));
        assert_eq!(gather("/v1/x?y=1", 4, get(7)).unwrap(), json!({ "items": [1, 2, 3, 4], "next": "4" }));
    }

    #[test]
    fn a_server_that_leads_in_a_circle_is_not_followed() {
        let circle = |_: &str| Ok::<_, Error>(json!({ "items": [1], "next": "1" }));
        assert_eq!(all("/v1/x", circle).unwrap_err().code(), "strange_answer");
        assert_eq!(all("/v1/x", |_| Ok::<_, Error>(json!({}))).unwrap_err().code(), "strange_answer");
    }
}
