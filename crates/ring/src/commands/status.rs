//! `primus ring status` and `primus ring start`: asking the nodes of a ring over AMQP, and telling one to start.

use std::time::Duration;

use primus_terminal::failure::Failure;
use primus_terminal::table::table;
use primus_terminal::values::listed;
use primus_terminal::{Format, Verdict};
use serde::Serialize;

use super::{failure, runtime};
use crate::amqp::control::{self, Answer, Request};
use crate::amqp::{BrokerError, Topology};
use crate::args::{RingFile, RingStartArgs};
use crate::settings::RingSettings;

/// How long nodes may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
const COLUMNS: [&str; 6] = ["NODE", "ID", "THERE", "STATE", "ROUND", "LEADER"];

/// The ring, as scripts see it.
#[derive(Debug, Serialize)]
struct Status {
    /// The id that all who answered take for the leader, if that one is there.
    leader: Option<u64>,
    round: Option<u64>,
    nodes: Vec<Node>,
    /// Positions that nobody plays.
    missing: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Node {
    node: usize,
    id: u64,
    there: bool,
    /// Unknown where a foreign member plays.
    state: Option<String>,
    round: Option<u64>,
    leader: Option<u64>,
}

/// Shows who leads, who is there and who is missing.
pub(super) fn status(file: &RingFile, format: Format) -> Result<Verdict, Failure> {
    let settings = RingSettings::read(&file.config)?;
    let status = runtime().block_on(look(&settings)).map_err(|error| failure(&error))?;
    format.show(|| text(&settings, &status), &status)?;
    Ok(if status.leader.is_some() { Verdict::Held } else { Verdict::NoLeader })
}

async fn look(settings: &RingSettings) -> Result<Status, BrokerError> {
    let topology = Topology { broker: settings.broker.clone(), size: settings.members.len() };
    let connection = settings.broker.connect("primus ring status").await?;
    let consumers = topology.consumers(&connection).await?;
    let there: Vec<usize> = (1..)
        .zip(&consumers)
        .filter(|(_, count)| count.is_some_and(|count| count > 0))
        .map(|(place, _)| place)
        .collect();
    let answers = control::ask(&settings.broker, &connection, &there, Request::Tell, PATIENCE).await?;
    Ok(summed_up(settings, &there, &answers))
}

fn summed_up(settings: &RingSettings, there: &[usize], answers: &[Answer]) -> Status {
    let node = |(place, id): (usize, &primus_core::ServerId)| {
        let answer = answers.iter().find(|answer| answer.position == place);
        Node {
            node: place,
            id: id.0,
            there: there.contains(&place),
            state: answer.map(|answer| answer.state.clone()),
            round: answer.map(|answer| answer.round),
            leader: answer.and_then(|answer| answer.leader),
        }
    };
    let nodes: Vec<Node> = (1..).zip(settings.members.iter()).map(node).collect();
    let leader = answers.first().and_then(|answer| answer.leader);
    let leader = leader.filter(|leader| {
        answers.iter().all(|answer| answer.leader == Some(*leader))
            && nodes.iter().any(|node| node.there && node.id == *leader)
    });
    let missing = nodes.iter().filter(|node| !node.there).map(|node| node.node).collect();
    Status { leader, round: answers.iter().map(|answer| answer.round).max(), nodes, missing }
}

fn text(settings: &RingSettings, status: &Status) -> String {
    let leader = status.leader.map(primus_core::ServerId).map(|leader| settings.cast.full(leader));
    let headline =
        leader.map_or_else(|| "the nodes do not agree on a leader".to_owned(), |leader| format!("{leader} leads"));
    let missing = match status.missing.as_slice() {
        [] => "all nodes are there".to_owned(),
        [only] => format!("node {only} is missing"),
        all => format!("nodes {} are missing", listed(all.iter())),
    };
    let or_dash = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let row = |node: &Node| {
        let there = if node.there { "yes" } else { "no" };
        let state = node.state.clone().unwrap_or_else(|| "-".to_owned());
        [
            node.node.to_string(),
            node.id.to_string(),
            there.to_owned(),
            state,
            or_dash(node.round),
            or_dash(node.leader),
        ]
    };
    let rows: Vec<[String; 6]> = status.nodes.iter().map(row).collect();
    format!("{headline}; {missing}\n\n{}", table(&COLUMNS, &rows))
}

/// Tells a node to start, and says what came of it.
pub(super) fn start(args: &RingStartArgs, format: Format) -> Result<Verdict, Failure> {
    let settings = RingSettings::read(&args.file.config)?;
    let place = settings.position(&args.index)? + 1;
    let asked = runtime().block_on(async {
        let connection = settings.broker.connect("primus ring start").await?;
        control::ask(&settings.broker, &connection, &[place], Request::Start, PATIENCE).await
    });
    let answers = asked.map_err(|error| failure(&error))?;
    let Some(answer) = answers.first() else {
        let message = format!("node {place} does not answer");
        return Err(Failure::not_now(
            "missing",
            message,
            "start it: primus ring node --index …; foreign nodes take no orders",
        ));
    };
    format.show(|| sentence(answer), answer)?;
    Ok(Verdict::Held)
}

fn sentence(answer: &Answer) -> String {
    let Answer { position, round, before, .. } = answer;
    match before.as_str() {
        "CANDIDATE" => format!("node {position} stands in round {round} already\n"),
        "ASLEEP" => format!("node {position} was asleep and started round {round}\n"),
        _ => format!("node {position} knew a leader and started round {round}\n"),
    }
}
