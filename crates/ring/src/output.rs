//! A ring of real nodes as people and scripts see it: runs with their verdicts, who is there, and what a node goes through.

use primus_core::ServerId;
use primus_core::election::{Command, MessageKind, Notice};
use primus_core::machine::{Input, Output};
use primus_lab::experiment::Report;
use primus_lab::simulate::Leaders;
use primus_simulate::output::json::{LeadersInBetween, Messages};
use primus_simulate::output::narration::{Spoken, Story};
use primus_simulate::output::text;
use primus_simulate::settings::cast::Cast;
use primus_terminal::json::{Named, rounded};
use serde::Serialize;
use serde_json::{Value, json};

use crate::member::Event;

/// One election that real nodes held.
#[derive(Serialize)]
pub(crate) struct Held {
    leader: Option<Value>,
    messages: Messages,
    properties: Named<bool>,
    elapsed_ms: f64,
    transport: &'static str,
    leaders: LeadersInBetween,
    table: Vec<View>,
}

/// What a node takes for the leader.
#[derive(Serialize)]
struct View {
    node: Value,
    leader: Option<Value>,
}

/// An election, for scripts: as a simulated one, but for time and chance.
pub(crate) fn held(cast: &Cast, report: &Report, transport: &'static str) -> Held {
    let outcome = &report.outcome;
    let Leaders { most_at_once, changes } = outcome.leaders;
    let name = |node: &ServerId| cast.json_name(*node);
    Held {
        leader: outcome.agreed_leader().as_ref().map(name),
        messages: Messages {
            total: outcome.messages.total(),
            by_type: Named(MessageKind::ALL.map(|kind| (kind.name(), outcome.messages.of(kind))).to_vec()),
        },
        properties: Named(report.properties.iter().map(|(property, holds)| (property.name(), *holds)).collect()),
        elapsed_ms: rounded(outcome.virtual_us as f64 / 1000.0),
        transport,
        leaders: LeadersInBetween { most_at_once, changes },
        table: outcome
            .table
            .iter()
            .map(|(node, leader)| View { node: name(node), leader: leader.as_ref().map(name) })
            .collect(),
    }
}

/// An election, for people: its story, then its verdicts.
pub(crate) fn told(cast: &Cast, story: &Story, report: &Report, transport: &'static str) -> String {
    let mut lines = text::story_lines(cast, None, story);
    lines.push(String::new());
    lines.push(text::leader(cast, report));
    lines.extend(report.properties.iter().map(|(property, holds)| text::verdict(cast, *property, *holds)));
    lines.push(format!("messages: {}", text::counts(&report.outcome.messages)));
    lines.push(format!("time: {} ms over {transport}", text::milliseconds(report.outcome.virtual_us)));
    lines.join("\n") + "\n"
}

/// What happened to a node, for scripts: one object for each thing.
pub(crate) fn events(event: &Event) -> Vec<Value> {
    match event {
        Event::Ready => vec![json!({"kind": "connected"})],
        Event::Cut(reason) => vec![json!({"kind": "disconnected", "reason": reason})],
        Event::Dropped(reason) => vec![json!({"kind": "dropped", "reason": reason})],
        Event::Sent(..) => Vec::new(),
        Event::Step(input, outputs, view) => {
            let mut all: Vec<Value> = caused(input).into_iter().collect();
            all.extend(outputs.iter().filter_map(effected));
            all.iter_mut().for_each(|object| object["round"] = view.round.0.into());
            all
        }
    }
}

fn caused(input: &Input<primus_core::election::ring::Ring>) -> Option<Value> {
    match input {
        Input::Message { from, message } => {
            Some(json!({"kind": "received", "from": from.0, "message": message.label()}))
        }
        Input::Timer(timer) => Some(json!({"kind": "timer", "timer": timer.to_string()})),
        Input::Command(Command::Start) => Some(json!({"kind": "started"})),
        Input::Command(Command::Suspect(peer)) => Some(json!({"kind": "suspected", "peer": peer.0})),
        Input::Command(Command::Trust(peer)) => Some(json!({"kind": "trusted", "peer": peer.0})),
        _ => None,
    }
}

fn effected(output: &Output<primus_core::election::ring::Ring>) -> Option<Value> {
    match output {
        Output::Send { to, message } => Some(json!({"kind": "sent", "to": to.0, "message": message.label()})),
        Output::Notify(Notice::Lead) => Some(json!({"kind": "leads"})),
        Output::Notify(Notice::Follow(leader)) => Some(json!({"kind": "follows", "leader": leader.0})),
        Output::Notify(Notice::Undefined) => Some(json!({"kind": "lost_leader"})),
        Output::Notify(Notice::Complete) => Some(json!({"kind": "complete"})),
        Output::Ignore(reason) => Some(json!({"kind": "ignored", "reason": reason})),
        _ => None,
    }
}
