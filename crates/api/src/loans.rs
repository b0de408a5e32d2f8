//! `/v1/loans`: which workers are away from home, and what an operator changes about that.

mod facts;
#[cfg(test)]
pub(crate) mod scene;

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use axum::response::Response;
use primus_core::farm::foreman::Foreman;
use primus_core::ledger::loans::LOANS_MAX;
use primus_core::ledger::{Effect, Entry, LoanId, Loans};
use primus_core::loan::Lending;
use primus_core::loan::lending::{CannotLend, LendOrder};
use primus_node::events::{Event, Guest, Kind, Loan, text_of};
use primus_shapes::described;
use serde::Serialize;
use serde_json::Value;

pub(crate) use self::facts::LoanFacts;
use self::facts::loans;
use crate::context::Context;
use crate::farms::no_neighbour;
use crate::happenings::Happening;
use crate::limits::LOAN_TIME_MAX;
use crate::orders::{Asked, Order};
use crate::pages::{self, Page};
use crate::problem::Problem;
use crate::values::now_ms;

const SEE_LOANS: &str = "primus loans lists those that last";
described! {
    /// A loan in words.
    #[derive(Debug, PartialEq, Serialize)]
    pub(crate) struct LoanExplanation {
        /// The loan; null if it has ended.
        loan: Option<LoanFacts>,
        /// What has happened under a loan that has ended, as far as the server remembers it.
        #[serde(skip_serializing_if = "Option::is_none")]
        events: Option<Vec<Value>> as Option<Vec<Happening>>,
        /// All of it for people.
        explanation: String,
    }
}

described! {
    /// Workers that are lent from now on.
    #[derive(Serialize)]
    pub(crate) struct LendAnswer {
        /// How many were asked for.
        asked: u32,
        /// The loans that have begun: fewer than asked for if fewer workers were idle.
        items: Vec<LoanFacts>,
        /// Always null: all of them are listed.
        next: Option<String>,
    }
}

described! {
    /// Workers that are called home.
    #[derive(Serialize)]
    pub(crate) struct RecallAnswer {
        /// How many are called home.
        recalled: usize,
        /// Their loans.
        items: Vec<LoanFacts>,
        /// Always null: all of them are listed.
        next: Option<String>,
    }
}

/// All loans.
pub(crate) async fn list(State(context): State<Context>, mut asked: Asked) -> Result<Response, Problem> {
    let page = Page::new(pages::limit(&mut asked)?);
    let after = asked.text("after");
    asked.done()?;
    let loans = all(&context).await?.into_iter();
    let rest = loans.filter(|loan| after.as_ref().is_none_or(|after| loan.is_behind(after)));
    Ok(page.fill(rest.map(|loan| (loan.place(), loan))).finish())
}

/// One of them.
pub(crate) async fn one(
    State(context): State<Context>,
    Path(id): Path<String>,
) -> Result<Json<LoanFacts>, Problem> {
    find(&context, &id).await.map(Json)
}

/// One of them, in words; also one that has ended, as long as this server remembers it.
pub(crate) async fn explain(
    State(context): State<Context>,
    Path(id): Path<String>,
) -> Result<Json<LoanExplanation>, Problem> {
    match find(&context, &id).await {
        Ok(facts) => {
            let explanation = facts.explanation(now_ms(), context.lending.recall_ms);
            Ok(Json(LoanExplanation { loan: Some(facts), events: None, explanation }))
        }
        Err(problem) => {
            let remembered = Name::parse(&id, &context.farm)?.remembered(&context.handle.history.after(0));
            remembered.map(Json).ok_or(problem)
        }
    }
}

async fn all(context: &Context) -> Result<Vec<LoanFacts>, Problem> {
    let farm = context.farm.clone();
    let look = move |foreman: &Foreman, lending: &Lending| loans(&farm, foreman.ledger(), lending);
    Ok(context.handle.farm.look_at_loans(look).await?)
}

async fn find(context: &Context, id: &str) -> Result<LoanFacts, Problem> {
    let name = Name::parse(id, &context.farm)?.to_string();
    let found = all(context).await?.into_iter().find(|facts| facts.id == name);
    found.ok_or_else(|| Problem::not_found(format!("loan {name} does not exist"), SEE_LOANS))
}

/// What a loan is called: an own one, or another lender's.
#[derive(Debug, PartialEq, Eq)]
enum Name<'a> {
    Own(LoanId),
    Of(LoanId, &'a str),
}

impl<'a> Name<'a> {
    fn parse(text: &'a str, farm: &str) -> Result<Self, Problem> {
        let (number, lender) = text.split_once('@').map_or((text, None), |(number, lender)| (number, Some(lender)));
        let loan = number.parse().ok().filter(|number| *number > 0).map(LoanId);
        let lender = lender.filter(|lender| *lender != farm);
        let wrong =
            || Problem::usage(format!("'{text}' is not a loan"), "a loan is 3, or 3@south if south lends it");
        let loan = loan.filter(|_| lender.is_none_or(|lender| !lender.is_empty())).ok_or_else(wrong)?;
        Ok(lender.map_or(Self::Own(loan), |lender| Self::Of(loan, lender)))
    }

    /// What has happened under a loan that has ended.
    fn remembered(&self, history: &[Event]) -> Option<LoanExplanation> {
        let about_it: Vec<&Event> = history.iter().filter(|event| self.is_of(&event.kind)).collect();
        let told = |event: &&Event| format!("{}, {}", text_of(event.time), event.kind);
        let told: Vec<String> = about_it.iter().map(told).collect();
        let events: Vec<Value> = about_it.into_iter().map(Event::object).collect();
        let explanation = format!("Loan {self} has ended: {}.", told.join("; "));
        (!told.is_empty()).then_some(LoanExplanation { loan: None, events: Some(events), explanation })
    }

    fn is_of(&self, kind: &Kind) -> bool {
        match (self, kind) {
            (
                Self::Own(LoanId(own)),
                Kind::Lent(Loan { loan, .. })
                | Kind::Recalled(Loan { loan, .. })
                | Kind::Overdue(Loan { loan, .. })
                | Kind::LoanHome(Loan { loan, .. })
                | Kind::LoanDead(Loan { loan, .. }),
            ) => own == loan,
            (
                Self::Of(LoanId(theirs), lender),
                Kind::Borrowed(Guest { loan, from, .. }) | Kind::GivenBack(Guest { loan, from, .. }),
            ) => theirs == loan && lender == from,
            _ => false,
        }
    }
}

impl std::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own(loan) => loan.fmt(f),
            Self::Of(loan, lender) => write!(f, "{loan}@{lender}"),
        }
    }
}

/// Lends idle workers to a neighbour: as many as were asked for, or all that are idle.
pub(crate) async fn lend(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<LendAnswer>, Problem> {
    let order = read_order(request, context.lending.loan_ms).await?;
    let (to, asked) = (order.to.clone(), order.count);
    let lent = context.handle.farm.lend(order).await?;
    let effects = lent.map_err(|cannot| cannot_lend(cannot, &to, context.lending.lent_max))?;
    let items = of_effects(&context, &effects).await?;
    // It may have become busy, or have left, just now.
    if items.is_empty() { Err(none_idle()) } else { Ok(Json(LendAnswer { asked, items, next: None })) }
}

/// What an operator wants, if it can be wanted.
async fn read_order(request: Request<Body>, usual_ms: u64) -> Result<LendOrder, Problem> {
    let mut order = Order::must(request, "send {\"to\":\"south\",\"count\":2}").await?;
    let (to, count, for_ms) = (order.text("to")?, order.number("count")?, order.number("for_ms")?);
    let (to, count) = (order.given("to", to)?, order.given("count", count)?);
    order.done()?;
    let (count, for_ms) = (u32::try_from(count).unwrap_or(u32::MAX), for_ms.unwrap_or(usual_ms));
    checked(LendOrder { to, count, for_ms })
}

fn checked(order: LendOrder) -> Result<LendOrder, Problem> {
    let LendOrder { count, for_ms, .. } = order;
    if !(1..=LOANS_MAX).contains(&(count as usize)) {
        return Err(Problem::usage(format!("{count} workers cannot be lent"), "lend 1 to 1024"));
    }
    if for_ms == 0 || Duration::from_millis(for_ms) > LOAN_TIME_MAX {
        return Err(Problem::usage(format!("for_ms is {for_ms}"), "lend for 1 ms to 24 h: 1 to 86400000"));
    }
    Ok(order)
}

fn cannot_lend(cannot: CannotLend, to: &str, lent_max: u32) -> Problem {
    match cannot {
        CannotLend::NoNeighbour => no_neighbour(to),
        CannotLend::NotHeard => {
            let message = format!("{to} has not been heard lately, so no worker is sent there");
            Problem::not_now("not_heard", message, "primus farms says who is heard")
        }
        CannotLend::AllLent => {
            let message = format!("{lent_max} workers are lent, and no more may be");
            Problem::not_now("all_lent", message, "recall some, or raise lending.lent_max")
        }
        CannotLend::NoneIdle => none_idle(),
    }
}

/// Which loans are to end.
#[derive(Debug)]
enum Recalled {
    Loan(u64),
    Worker(String),
    Farm(String),
    All(bool),
}

/// Calls a worker home.
pub(crate) async fn recall_one(
    State(context): State<Context>,
    Path(id): Path<String>,
    request: Request<Body>,
) -> Result<Json<RecallAnswer>, Problem> {
    Order::nothing(request).await?;
    match Name::parse(&id, &context.farm)? {
        Name::Own(LoanId(loan)) => recall(&context, Recalled::Loan(loan)).await,
        Name::Of(_, lender) => {
            let message = format!("only {lender} can recall loan {id}: the worker is its own");
            Err(Problem::usage(message, "ask there, with --farm or --api; it calls the loan by its number alone"))
        }
    }
}

/// Calls the worker of this name home, all that are with one farm, or all.
pub(crate) async fn recall_some(
    State(context): State<Context>,
    request: Request<Body>,
) -> Result<Json<RecallAnswer>, Problem> {
    let which = Recalled::read(request).await?;
    recall(&context, which).await
}

/// Whoever is called home twice comes home once. All are listed, also those that are home before this is answered.
async fn recall(context: &Context, which: Recalled) -> Result<Json<RecallAnswer>, Problem> {
    let farm = context.farm.clone();
    let look = move |foreman: &Foreman, lending: &Lending| {
        let found = which.find(foreman.ledger().loans(), lending)?;
        Ok::<_, Problem>((found, loans(&farm, foreman.ledger(), lending)))
    };
    let (found, mut items) = context.handle.farm.look_at_loans(look).await??;
    let names: BTreeSet<String> = found.iter().map(ToString::to_string).collect();
    items.retain(|facts| names.contains(&facts.id));
    if !found.is_empty() {
        context.handle.farm.enter(found.iter().map(|loan| Entry::Recall(*loan)).collect()).await?;
    }
    items.iter_mut().for_each(LoanFacts::call_home);
    Ok(Json(RecallAnswer { recalled: found.len(), items, next: None }))
}

impl Recalled {
    async fn read(request: Request<Body>) -> Result<Self, Problem> {
        const HINT: &str = "send {\"worker\":\"w1\"}, {\"farm\":\"south\"} or {\"all\":true}";
        let mut order = Order::must(request, HINT).await?;
        let found = [
            order.number("loan")?.map(Self::Loan),
            order.text("worker")?.map(Self::Worker),
            order.text("farm")?.map(Self::Farm),
            order.truth("all")?.map(Self::All),
        ];
        order.done()?;
        let mut found = found.into_iter().flatten();
        match (found.next(), found.next()) {
            (Some(which), None) => Ok(which),
            (None, _) => Err(Problem::usage("it is not said which loans are to end", HINT)),
            (Some(_), Some(_)) => Err(Problem::usage("it is said twice which loans are to end", HINT)),
        }
    }

    fn find(&self, loans: &Loans, lending: &Lending) -> Result<Vec<LoanId>, Problem> {
        match self {
            Self::Loan(loan) if loans.lent().contains_key(&LoanId(*loan)) => Ok(vec![LoanId(*loan)]),
            Self::Loan(loan) => Err(Problem::not_found(format!("loan {loan} does not exist"), SEE_LOANS)),
            Self::Worker(worker) => {
                let message = || format!("no worker '{worker}' is lent");
                Ok(vec![loans.loan_of(worker).ok_or_else(|| Problem::not_found(message(), SEE_LOANS))?])
            }
            Self::Farm(farm) => {
                let lent: Vec<LoanId> =
                    loans.lent().iter().filter(|(_, lent)| lent.to == *farm).map(|(loan, _)| *loan).collect();
                // One that is a neighbour no more may still have some.
                if lent.is_empty() && lending.number_of(farm).is_none() {
                    Err(no_neighbour(farm))
                } else {
                    Ok(lent)
                }
            }
            Self::All(true) => Ok(loans.lent().keys().copied().collect()),
            Self::All(false) => Err(Problem::usage("this recalls no worker", "send {\"all\":true}")),
        }
    }
}

/// The loans that have just begun.
async fn of_effects(context: &Context, effects: &[Effect]) -> Result<Vec<LoanFacts>, Problem> {
    let begun = |effect: &Effect| if let Effect::Lent(loan) = effect { Some(loan.to_string()) } else { None };
    let begun: BTreeSet<String> = effects.iter().filter_map(begun).collect();
    let mut items = all(context).await?;
    items.retain(|facts| begun.contains(&facts.id));
    Ok(items)
}

fn none_idle() -> Problem {
    Problem::not_now("none_idle", "no worker is idle", "try again when one has nothing to do")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn loans_are_named_by_their_lender_if_that_is_another_farm() {
        for (text, expected) in [
            ("3", Some("3")),
            ("3@north", Some("3")),
            ("3@south", Some("3@south")),
            ("0", None),
            ("", None),
            ("x", None),
            ("3@", None),
            ("@south", None),
        ] {
            let name = Name::parse(text, "north").ok().map(|name| name.to_string());
            assert_eq!(name.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn loans_that_have_ended_are_remembered() {
        let (worker, to, from) = ("n1".to_owned(), "south".to_owned(), "south".to_owned());
        let own = |loan| Loan { loan, worker: worker.clone(), to: to.clone(), for_ms: 60_000, why: "asked" };
        let guest = Guest { loan: 3, worker: "s1@south".to_owned(), from, for_ms: 60_000, why: "asked" };
        let kinds = [Kind::Lent(own(3)), Kind::Lent(own(4)), Kind::Borrowed(guest), Kind::LoanHome(own(3))];
        let event = |(index, kind)| Event { index, time: SystemTime::UNIX_EPOCH, kind };
        let history: Vec<Event> = (1..).zip(kinds).map(event).collect();
        let found = Name::Own(LoanId(3)).remembered(&history).unwrap();
        let words = "Loan 3 has ended: 1970-01-01T00:00:00.000Z, n1 is lent to south for 60 s (loan 3, asked); \
                     1970-01-01T00:00:00.000Z, n1 is home again from south (loan 3).";
        assert_eq!((found.explanation.as_str(), found.events.unwrap().len()), (words, 2));
        assert_eq!(
            Name::Of(LoanId(3), "south").remembered(&history).unwrap().events.unwrap()[0]["kind"],
            "borrowed"
        );
        assert_eq!(Name::Of(LoanId(3), "east").remembered(&history), None);
    }

    #[test]
    fn orders_beyond_reason_are_refused() {
        for (count, for_ms, is_good) in [
            (1, 1, true),
            (1024, 24 * 3600 * 1000, true),
            (0, 1, false),
            (1025, 1, false),
            (1, 0, false),
            (1, 24 * 3600 * 1000 + 1, false),
        ] {
            let order = LendOrder { to: "south".to_owned(), count, for_ms };
            assert_eq!(checked(order).is_ok(), is_good, "{count} {for_ms}");
        }
    }
}
