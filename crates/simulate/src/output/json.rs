//! JSON for scripts: one compact object on one line. The field names are a contract.

use primus_core::election::MessageKind;
use primus_lab::experiment::Report;
use primus_lab::simulate::Leaders;
use primus_terminal::json::{Named, line, rounded};
use serde::Serialize;
use serde_json::Value;

use crate::settings::cast::Cast;
use crate::survey::Survey;

#[derive(Serialize)]
struct Run {
    leader: Option<Value>,
    messages: Messages,
    properties: Named<bool>,
    virtual_ms: f64,
    seed: u64,
    leaders: LeadersInBetween,
    table: Vec<View>,
    trace: String,
}

/// How many messages were sent.
#[derive(Debug, Serialize)]
pub struct Messages {
    /// All of them.
    pub total: u64,
    /// By what they are about.
    pub by_type: Named<u64>,
}

/// Who led before the end.
#[derive(Debug, Serialize)]
pub struct LeadersInBetween {
    /// How many at the same time, at most.
    pub most_at_once: u32,
    /// How often a node began to lead.
    pub changes: u32,
}

/// What a live node takes for the leader.
#[derive(Serialize)]
struct View {
    node: Value,
    leader: Option<Value>,
}

#[derive(Serialize)]
struct Seeds<'a> {
    seeds: u64,
    failed: u64,
    first_failure: Option<FirstFailure<'a>>,
    seconds: f64,
    runs_per_s: f64,
    leaders: LeadersOverall,
}

#[derive(Serialize)]
struct FirstFailure<'a> {
    seed: u64,
    property: &'static str,
    replay: &'a str,
}

#[derive(Serialize)]
struct LeadersOverall {
    runs_with_several: u64,
    most_at_once: u32,
    mean_changes: f64,
}

/// A run; `trace` is the number that two equal runs share.
pub(crate) fn run(cast: &Cast, report: &Report, trace: u64) -> String {
    let outcome = &report.outcome;
    let Leaders { most_at_once, changes } = outcome.leaders;
    let view = |(node, leader): &(_, Option<_>)| View {
        node: cast.json_name(*node),
        leader: leader.map(|leader| cast.json_name(leader)),
    };
    line(&Run {
        leader: outcome.agreed_leader().map(|leader| cast.json_name(leader)),
        messages: Messages {
            total: outcome.messages.total(),
            by_type: Named(MessageKind::ALL.map(|kind| (kind.name(), outcome.messages.of(kind))).to_vec()),
        },
        properties: Named(report.properties.iter().map(|(property, holds)| (property.name(), *holds)).collect()),
        virtual_ms: outcome.virtual_us as f64 / 1000.0,
        seed: report.seed,
        leaders: LeadersInBetween { most_at_once, changes },
        table: outcome.table.iter().map(view).collect(),
        trace: format!("{trace:016x}"),
    })
}

/// Many seeds.
pub(crate) fn survey(survey: &Survey, replay: Option<&str>) -> String {
    let first_failure = survey.first_failure.zip(replay);
    line(&Seeds {
        seeds: survey.seeds(),
        failed: survey.failed,
        first_failure: first_failure.map(|((seed, property), replay)| FirstFailure { seed, property, replay }),
        seconds: rounded(survey.seconds),
        runs_per_s: rounded(survey.runs_per_s()),
        leaders: LeadersOverall {
            runs_with_several: survey.runs_with_several_leaders,
            most_at_once: survey.most_at_once,
            mean_changes: rounded(survey.mean_changes()),
        },
    })
}
