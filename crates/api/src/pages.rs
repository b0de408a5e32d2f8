//! Lists, a page at a time: `limit` says how many items a page has at most, and `after` where the page before ended. A page
//! ends early when its body has become long; `next` says where to read on, and is null at the end.
//!
//! Pages are looked up one by one. What changes between two of them is in one of them, in none or in both.

use std::fmt::Display;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use primus_shapes::objects::shown;
use serde::Serialize;

use crate::limits::{PAGE, PAGE_LEN_MAX, PAGE_MAX};
use crate::orders::Asked;
use crate::problem::Problem;

const BEGINNING: &[u8] = b"{\"items\":[";

/// How many items were asked for.
pub(crate) fn limit(asked: &mut Asked) -> Result<usize, Problem> {
    let Some(text) = asked.text("limit") else { return Ok(PAGE) };
    let limit = text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
    limit.ok_or_else(|| {
        let message = format!("limit is {:?}, not a whole number from 1 to {PAGE_MAX}", shown(&text));
        Problem::usage(message, "follow next to get more than one page has")
    })
}

/// Refuses a cursor that no page has given.
pub(crate) fn no_cursor(after: &str) -> Problem {
    Problem::usage(format!("after is {:?}", shown(after)), "take it from the field next of the page before")
}

/// A page that is being written.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    body: Vec<u8>,
    count: usize,
    limit: usize,
    /// Where its last item stands.
    last: Option<String>,
    /// Does something come behind it?
    is_cut: bool,
}

impl Page {
    /// For so many items.
    pub(crate) fn new(limit: usize) -> Self {
        Self { body: BEGINNING.to_vec(), count: 0, limit, last: None, is_cut: false }
    }

    /// Writes one more item, which the next page can name as `place`. False if there is no room for it: the page is over.
    pub(crate) fn push(&mut self, place: impl Display, item: &impl Serialize) -> bool {
        let len = self.body.len();
        if self.room() == 0 {
            self.is_cut = true;
            return false;
        }
        if self.count > 0 {
            self.body.push(b',');
        }
        serde_json::to_writer(&mut self.body, item).expect("plain fields become JSON");
        if self.body.len() > PAGE_LEN_MAX && self.count > 0 {
            self.body.truncate(len);
            self.is_cut = true;
            return false;
        }
        self.count += 1;
        self.last = Some(place.to_string());
        true
    }

    /// Writes all of these, or as many as there is room for.
    pub(crate) fn fill<P: Display, T: Serialize>(mut self, mut items: impl Iterator<Item = (P, T)>) -> Self {
        while let Some((place, item)) = items.next()
            && self.push(place, &item)
        {}
        self
    }

    /// How many more items there may be.
    pub(crate) const fn room(&self) -> usize {
        if self.is_cut { 0 } else { self.limit - self.count }
    }

    /// Something comes behind the last item.
    pub(crate) const fn cut(&mut self) {
        self.is_cut = true;
    }

    /// The page, when all that belongs to it has been written.
    pub(crate) fn finish(mut self) -> Response {
        let next = self.last.take().filter(|_| self.is_cut);
        self.finish_at(next)
    }

    /// The same, if the next page begins somewhere else.
    pub(crate) fn finish_at(mut self, next: Option<String>) -> Response {
        self.body.extend_from_slice(b"],\"next\":");
        serde_json::to_writer(&mut self.body, &next).expect("a text becomes JSON");
        self.body.push(b'}');
        ([(CONTENT_TYPE, "application/json")], self.body).into_response()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(page: Page) -> Value {
        let body = page.finish().into_body();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = runtime.block_on(axum::body::to_bytes(body, usize::MAX)).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    #[test]
    fn a_page_ends_with_its_last_item_or_says_where_to_read_on() {
        let page = |limit, count: u64| read(Page::new(limit).fill((1..=count).map(|number| (number, number))));
        assert_eq!(page(3, 0), json!({ "items": [], "next": null }));
        assert_eq!(page(3, 3), json!({ "items": [1, 2, 3], "next": null }));
        assert_eq!(page(3, 4), json!({ "items": [1, 2, 3], "next": "3" }));
    }

    #[test]
    fn a_long_page_ends_early_but_has_one_item() {
        let page = |len: usize| read(Page::new(100).fill((1..).map(|number| (number, "x".repeat(len))).take(9)));
        let count = |page: &Value| page["items"].as_array().unwrap().len();
        assert_eq!((count(&page(PAGE_LEN_MAX / 4)), &page(PAGE_LEN_MAX / 4)["next"]), (3, &json!("3")));
        assert_eq!((count(&page(PAGE_LEN_MAX * 2)), &page(PAGE_LEN_MAX * 2)["next"]), (1, &json!("1")));
        assert_eq!((count(&page(10)), &page(10)["next"]), (9, &json!(null)));
    }
}
