//! The table of all routes.

use crate::doors::LIVEZ;
use crate::table::Table;
use crate::{
    certs, chaos, elections, events, farms, groups, health, jobs, kv, leader, loans, metrics, sessions, status,
    tasks, tokens, trusted, workers,
};

/// What every server answers.
pub(crate) fn own_routes() -> Table {
    Table::default()
        .get(LIVEZ, "this process lives", health::alive)
        .get("/readyz", "a server leads, as far as this one knows", health::ready)
        .get("/metrics", "what this server counts, for Prometheus", metrics::metrics)
        .get("/v1/leader", "which server leads", leader::read)
        .get("/v1/status", "servers, workers and tasks at a glance", status::read)
        .get(
            "/v1/events",
            "what this server has seen, as server-sent events; ?after=N&follow=false&limit=N&steps=true",
            events::events,
        )
        .get("/v1/groups", "further elections, and leases; ?limit=N&after=NEXT", groups::list)
        .post("/v1/elections", "hold an election, of the cluster or of a group; ?group=NAME", elections::elect)
        .get("/v1/leader/explain", "why this server leads", leader::explain::explain)
        .post("/v1/leader/resign", "let another server lead", leader::resign)
        .post("/v1/leader/transfer", "let this server lead: {\"to\":2}", leader::transfer)
        .get("/v1/kv", "keys and values; ?prefix=TEXT&limit=N&after=KEY", kv::list)
        .post("/v1/kv", "write many, a line each: {\"key\":\"colour\",\"value\":\"blue\"}", kv::import::import)
        .get("/v1/kv/{*key}", "a value", kv::read)
        .put("/v1/kv/{*key}", "write a value: the body as it is", kv::write)
        .delete("/v1/kv/{*key}", "delete a value", kv::forget)
        .post("/v1/chaos/cut", "cut links: {\"peers\":[1,2]}; only under primus up", chaos::cut)
        .post(
            "/v1/chaos/delay",
            "delay links: {\"peers\":[1,2],\"delay_ms\":75}; only under primus up",
            chaos::delay,
        )
        .post("/v1/chaos/load", "set a score: {\"score\":85}; only under primus up", chaos::load)
}

/// What only the leader can answer, because it is about tasks and those who run them.
pub(crate) fn task_routes() -> Table {
    Table::default()
        .get("/v1/jobs", "jobs, the newest first; ?limit=N&after=JOB", jobs::list)
        .post("/v1/jobs", "submit a job: {\"command\":[\"echo\",\"hello\"]}", jobs::submit)
        .get("/v1/jobs/{id}", "a job", jobs::one)
        .get("/v1/jobs/{id}/wait", "a job, when it has ended; ?timeout_ms=N", jobs::wait)
        .post("/v1/jobs/{id}/cancel", "cancel a job", jobs::cancel)
        .post("/v1/jobs/{id}/retry", "run a job again: {\"failed_only\":true}", jobs::retry)
        .get("/v1/tasks", "tasks; ?job=N&state=failed&limit=N&after=TASK&fields=NAMES", tasks::list)
        .get("/v1/tasks/{id}", "a task", tasks::one)
        .get("/v1/tasks/{id}/explain", "why a task is as it is", tasks::explain::explain)
        .get(
            "/v1/tasks/{id}/output",
            "what a task printed; ?stream=stderr&offset=N&follow=true",
            tasks::output::output,
        )
        .get("/v1/tasks/{id}/wait", "a task, when it has ended; ?timeout_ms=N", tasks::wait)
        .post("/v1/tasks/{id}/cancel", "cancel a task", tasks::cancel)
        .post("/v1/tasks/{id}/retry", "run a task again", tasks::retry)
        .post("/v1/sessions/{id}", "ask for leases, as primus lead does", sessions::ask)
        .get("/v1/workers", "the workers; ?limit=N&after=NAME", workers::list)
        .post("/v1/workers/{name}/drain", "give a worker nothing new: {\"draining\":true}", workers::drain)
        .post("/v1/workers/{name}/forget", "free a worker's name, and trust it no more", workers::forget)
        .get("/v1/tokens", "join tokens; ?limit=N&after=NEXT", tokens::list)
        .post("/v1/tokens", "make a join token: {\"role\":\"worker\",\"uses\":1}", tokens::create)
        .post("/v1/tokens/{id}/revoke", "make a join token void", tokens::revoke)
        .get("/v1/certs", "the farm's authorities, and what is trusted no more", certs::show)
        .post("/v1/certs/rotate", "sign with another authority from now on", certs::rotate)
        .post("/v1/certs/finish", "trust the newest authority only", certs::finish)
        .post("/v1/certs/revoke", "trust a certificate no more: {\"worker\":\"w1\"}", certs::revoke)
        .get("/v1/neighbours", "this farm and those that it trusts; ?limit=N&after=NEXT", trusted::list)
        .post("/v1/neighbours", "trust another farm: {\"name\":\"south\"}", trusted::trust)
        .post("/v1/neighbours/{name}/forget", "trust another farm no more", trusted::forget)
        .get("/v1/farms", "this farm and its neighbours; ?limit=N&after=NAME", farms::list)
        .get("/v1/loans", "workers away from home; ?limit=N&after=NEXT", loans::list)
        .post("/v1/loans", "lend workers: {\"to\":\"south\",\"count\":2}", loans::lend)
        .post("/v1/loans/recall", "call lent workers home", loans::recall_some)
        .get("/v1/loans/{id}", "a loan", loans::one)
        .get("/v1/loans/{id}/explain", "a loan in words", loans::explain)
        .post("/v1/loans/{id}/recall", "end a loan", loans::recall_one)
}
