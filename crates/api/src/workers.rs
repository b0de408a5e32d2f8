//! `/v1/workers`: who they are, and who gets nothing new.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::response::Response;
use primus_core::farm::foreman::Foreman;
use primus_core::ledger::loans::home_of;
use primus_core::ledger::roll::Change;
use primus_core::ledger::{Effect, Entry, Loans};
use primus_shapes::described;
use primus_shapes::schema::Percent;
use serde::Serialize;

use crate::context::Context;
use crate::orders::{Asked, Order};
use crate::pages::{self, Page};
use crate::problem::Problem;
use crate::tokens::change;
use crate::values::score;

described! {
    /// A worker.
    #[derive(Debug, Clone, PartialEq, Serialize, Default)]
    pub(crate) struct WorkerFacts {
        /// The worker's name here.
        pub(crate) name: String,
        /// The farm whose worker it is.
        home: String,
        /// The farm that it works for now.
        farm: String,
        /// How many tasks it can run at once, if each takes one slot.
        slots: u32,
        /// How many tasks it runs; null if it is not connected.
        running: Option<u64>,
        /// True if it is connected to the leader.
        alive: bool,
        /// True if the ledger knows of it, so that it may get work.
        registered: bool,
        /// True if it gets nothing new.
        draining: bool,
        /// How loaded its host is: 0 to 100, lower is better.
        score: Option<f64> as Option<Percent>,
        /// The processor's part of that, 0 to 100.
        cpu: Option<f64> as Option<Percent>,
        /// The memory's part of that, 0 to 100.
        memory: Option<f64> as Option<Percent>,
        /// How many tasks it runs, as it counts them itself.
        tasks: Option<u32>,
        /// SHA-256 of the key to which its name belongs; null if it has none.
        key: Option<String>,
    }
}

pub(crate) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let page = Page::new(pages::limit(&mut asked)?);
    // The last worker of the page before.
    let after = asked.text("after");
    asked.done()?;
    let farm = context.farm.clone();
    let workers = context.handle.farm.look(move |foreman| workers(foreman, &farm)).await?;
    let rest = workers.into_iter().filter(|worker| after.as_ref().is_none_or(|after| worker.name > *after));
    Ok(page.fill(rest.map(|worker| (worker.name.clone(), worker))).finish())
}

described! {
    /// A worker that gets nothing new, or does again.
    #[derive(Serialize)]
    pub(crate) struct DrainAnswer {
        /// The worker's name.
        worker: String,
        /// True if it gets nothing new.
        draining: bool,
    }
}

pub(crate) async fn drain(
    State(context): State<Context>,
    Path(worker): Path<String>,
    request: Request<Body>,
) -> Result<Json<DrainAnswer>, Problem> {
    let mut is_draining = true;
    if let Some(mut order) = Order::read(request, "send {\"draining\":true}").await? {
        let draining = order.truth("draining")?;
        is_draining = order.given("draining", draining)?;
        order.done()?;
    }
    let entry = Entry::Drain { worker: worker.clone(), is_draining };
    let effects = context.handle.farm.enter(vec![entry]).await?;
    match effects.first() {
        Some(Effect::Workers) => Ok(Json(DrainAnswer { worker, draining: is_draining })),
        _ => {
            Err(Problem::not_found(format!("worker '{worker}' does not exist"), "primus status lists the workers"))
        }
    }
}

described! {
    /// A worker that is forgotten.
    #[derive(Serialize)]
    pub(crate) struct ForgetAnswer {
        /// The worker's name: another one may have it from now on.
        worker: String,
    }
}

/// Frees the name of a worker. What it runs is run elsewhere, and what it says is not believed.
pub(crate) async fn forget(
    State(context): State<Context>,
    Path(worker): Path<String>,
    request: Request<Body>,
) -> Result<Json<ForgetAnswer>, Problem> {
    Order::nothing(request).await?;
    change(&context, Change::ForgetWorker(worker.clone())).await?;
    Ok(Json(ForgetAnswer { worker }))
}

/// All workers that are here or registered, in the order of their names.
pub(crate) fn workers(foreman: &Foreman, farm: &str) -> Vec<WorkerFacts> {
    let running: BTreeMap<&str, u64> = foreman.running_per_worker().collect();
    let mut all: BTreeMap<String, WorkerFacts> = BTreeMap::new();
    let loans = foreman.ledger().loans();
    let facts = |name: &str, slots: u32| {
        let (home, farm) = home_and_farm(loans, name, farm);
        WorkerFacts { name: name.to_owned(), home, farm, slots, ..WorkerFacts::default() }
    };
    // One that is lent is still one of ours, also if nobody sees it at the moment.
    for lent in loans.lent().values() {
        all.insert(lent.worker.clone(), facts(&lent.worker, lent.slots.into()));
    }
    for (name, registration) in foreman.ledger().workers() {
        let draining = registration.is_draining;
        let known = WorkerFacts { registered: true, draining, ..facts(name, registration.slots.into()) };
        all.insert(name.clone(), known);
    }
    for (name, slots, _, load) in foreman.connected() {
        let entry = all.entry(name.to_owned()).or_insert_with(|| facts(name, slots));
        entry.alive = running.contains_key(name);
        entry.running = running.get(name).copied();
        (entry.score, entry.tasks) = (Some(score(load.score)), Some(load.tasks));
        (entry.cpu, entry.memory) = (load.cpu.map(score), load.memory.map(score));
    }
    for (name, binding) in foreman.ledger().roll().workers() {
        if let Some(known) = all.get_mut(name) {
            known.key = Some(binding.key.to_string());
        }
    }
    all.into_values().collect()
}

/// Whose worker this is, and which farm it works for, as agreed on.
fn home_and_farm(loans: &Loans, name: &str, farm: &str) -> (String, String) {
    let home = home_of(name).map_or(farm, |(_, home)| home);
    let lent = loans.loan_of(name).and_then(|loan| loans.lent().get(&loan));
    let is_ours = home == farm || loans.borrowed().contains_key(name);
    let works_for = lent.map_or(if is_ours { farm } else { home }, |lent| lent.to.as_str());
    (home.to_owned(), works_for.to_owned())
}
