//! What is said of the routes of farms and loans.

use super::super::operation::JSON;
use super::super::parameters::{AFTER, LIMIT, LOAN};
use super::super::shapes;
use super::{AT_THE_LEADER, Part, WRITES, new};
use crate::farms::FarmFacts;
use crate::loans::{LendAnswer, LoanExplanation, LoanFacts, RecallAnswer};

const LOAN_EXAMPLE: &str = r#"{"id":"3","worker":"n1","home":"north","farm":"south","direction":"lent",
    "since":"2026-01-02T03:04:05.678Z","until":"2026-01-02T03:09:05.678Z","for_ms":300000,"why":"operator",
    "state":"away"}"#;

pub(super) fn all() -> Part {
    vec![
        (
            ("GET", "/v1/farms"),
            new()
                .about("This farm first, then its neighbours.")
                .asks(&[LIMIT, AFTER])
                .lists::<FarmFacts>(
                    "A page of farms.",
                    r#"{"items":[{"farm":"north","own":true,"heard":true,"saturated":false,"idle":4,"queued":0,"lent":0,
                    "borrowed":0}],"next":null}"#,
                )
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("GET", "/v1/loans"),
            new()
                .about("Workers that are lent first, then those that are borrowed.")
                .asks(&[LIMIT, AFTER])
                .lists::<LoanFacts>("A page of loans.", r#"{"items":[],"next":null}"#)
                .refuses(&AT_THE_LEADER),
        ),
        (
            ("POST", "/v1/loans"),
            new()
                .takes_kind(JSON, shapes::lend, r#"{"to":"south","count":2}"#)
                .gives::<LendAnswer>(200, "They are lent.", r#"{"asked":2,"items":[],"next":null}"#)
                .refuses(&WRITES)
                .refuses(&["not_heard", "all_lent", "none_idle"]),
        ),
        (
            ("POST", "/v1/loans/recall"),
            new()
                .takes_kind(JSON, shapes::recall, r#"{"worker":"w1"}"#)
                .gives::<RecallAnswer>(200, "They are called home.", r#"{"recalled":0,"items":[],"next":null}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
        (
            ("GET", "/v1/loans/{id}"),
            new()
                .asks(&[LOAN])
                .gives::<LoanFacts>(200, "The loan.", LOAN_EXAMPLE)
                .refuses(&AT_THE_LEADER)
                .refuses(&["not_found"]),
        ),
        (
            ("GET", "/v1/loans/{id}/explain"),
            new()
                .asks(&[LOAN])
                .gives::<LoanExplanation>(
                    200,
                    "The loan in words.",
                    r#"{"loan":null,"events":[],"explanation":"Loan 3 has ended: it is home again."}"#,
                )
                .refuses(&AT_THE_LEADER)
                .refuses(&["not_found"]),
        ),
        (
            ("POST", "/v1/loans/{id}/recall"),
            new()
                .asks(&[LOAN])
                .takes_kind(JSON, shapes::nothing, "{}")
                .or_nothing()
                .gives::<RecallAnswer>(200, "It is called home.", r#"{"recalled":1,"items":[],"next":null}"#)
                .refuses(&WRITES)
                .refuses(&["not_found"]),
        ),
    ]
}
