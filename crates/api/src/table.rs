//! The table of all routes: what the router is made of, and what `GET /v1` tells people and tests.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{delete, get, post, put};
use primus_shapes::described;
use serde::Serialize;

use crate::context::Context;
use crate::words::Method;

/// Routes, as the router and as people see them.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    pub(crate) router: Router<Context>,
}

described! {
    /// A route.
    #[derive(Debug, Clone, Copy, Serialize)]
    pub(crate) struct Row {
        /// The method of requests.
        pub(crate) method: &'static str as Method,
        /// The path; what stands in braces is a parameter.
        pub(crate) path: &'static str,
        /// What the route does, in a few words.
        pub(crate) about: &'static str,
    }
}

impl Row {
    /// Where all others are listed.
    pub(crate) const INDEX: &str = "/v1";

    /// Where all others are described.
    pub(crate) const DOCUMENT: &str = "/v1/openapi.json";

    /// The routes that tell of all others, and so are made from the table instead of standing in it.
    pub(crate) const fn of_the_table() -> [Self; 2] {
        [
            Self { method: "GET", path: Self::INDEX, about: "this list" },
            Self { method: "GET", path: Self::DOCUMENT, about: "this API, as an OpenAPI document" },
        ]
    }
}

impl Table {
    /// Something that can be read.
    pub(crate) fn get<T: 'static>(
        self,
        path: &'static str,
        about: &'static str,
        handler: impl Handler<T, Context>,
    ) -> Self {
        let Self { rows, router } = self.with("GET", path, about);
        Self { rows, router: router.route(path, get(handler)) }
    }

    /// Something that can be done.
    pub(crate) fn post<T: 'static>(
        self,
        path: &'static str,
        about: &'static str,
        handler: impl Handler<T, Context>,
    ) -> Self {
        let Self { rows, router } = self.with("POST", path, about);
        Self { rows, router: router.route(path, post(handler)) }
    }

    /// Something that can be written.
    pub(crate) fn put<T: 'static>(
        self,
        path: &'static str,
        about: &'static str,
        handler: impl Handler<T, Context>,
    ) -> Self {
        let Self { rows, router } = self.with("PUT", path, about);
        Self { rows, router: router.route(path, put(handler)) }
    }

    /// Something that can be deleted.
    pub(crate) fn delete<T: 'static>(
        self,
        path: &'static str,
        about: &'static str,
        handler: impl Handler<T, Context>,
    ) -> Self {
        let Self { rows, router } = self.with("DELETE", path, about);
        Self { rows, router: router.route(path, delete(handler)) }
    }

    fn with(mut self, method: &'static str, path: &'static str, about: &'static str) -> Self {
        self.rows.push(Row { method, path, about });
        self
    }
}
