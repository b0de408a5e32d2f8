//! A run of whole servers, for people and for scripts: what happened, and whether every property held.

use std::collections::BTreeMap;

use primus_lab::checks::{Property, Report};
use primus_lab::node::NodeId;
use primus_lab::setup::Host;
use primus_lab::simulate::Leaders;
use primus_terminal::json::{self, Named};
use primus_terminal::screen::{FAINT, STRONG, WARNING, mark, styled};
use serde::Serialize;

use super::chronicle::{Beat, Chronicle, Event, Weight};
use super::json::{LeadersInBetween, Messages};
use super::names::Names;
use super::text::{self, milliseconds};

/// The story, then the verdicts.
pub(crate) fn text(chronicle: &Chronicle, report: &Report) -> String {
    let (names, beats) = (&chronicle.names, &chronicle.beats);
    let gap = |left_out| styled(FAINT, &format!("… {left_out} further events, not shown …"));
    let mut lines = beats.lines(|beat| line(names, beat), gap);
    lines.push(String::new());
    lines.extend(figures(names, report));
    lines.extend(report.properties.iter().map(|(property, holds)| verdict(report, *property, *holds)));
    lines.join("\n") + "\n"
}

fn line(names: &Names, beat: &Beat) -> Option<String> {
    let what = match &beat.event {
        Event::Does { host, what, weight } => {
            let text = format!("{} {what}", names.host(*host));
            match weight {
                Weight::Plain => text,
                Weight::Strong => styled(STRONG, &text),
                Weight::Warning => styled(WARNING, &text),
            }
        }
        Event::Links { are_cut, pairs } => {
            let what = if *are_cut { "cut" } else { "mended" };
            styled(WARNING, &format!("links are {what}: {}", links(names, pairs)))
        }
        Event::Says { .. } | Event::Loses { .. } => return None,
    };
    Some(format!("{:>10} ms  {what}", milliseconds(beat.at_us)))
}

/// `server 1 – server 2`; an arrow where it concerns one direction only.
pub(crate) fn links(names: &Names, pairs: &[(NodeId, NodeId)]) -> String {
    text::links(pairs, |one, other| one < other, " ", |host| names.host(host))
}

/// The leader of each farm that all its live servers name, itself included.
pub(crate) fn leaders(names: &Names, report: &Report) -> Vec<Option<NodeId>> {
    let leader = |farm: usize| {
        let mut views = report.table.iter().filter(|(id, _)| Host::of(NodeId::from(**id)).farm == farm);
        let leader = (*views.clone().next()?.1)?;
        let agree = report.table.contains_key(&leader) && views.all(|(_, view)| *view == Some(leader));
        agree.then_some(NodeId::from(leader))
    };
    (0..names.0.len()).map(leader).collect()
}

/// What was counted. Of what was seen, only what was there.
fn figures(names: &Names, report: &Report) -> Vec<String> {
    let mut lines: Vec<String> =
        leaders(names, report).into_iter().zip(&names.0).map(|(leader, farm)| leads(names, leader, farm)).collect();
    let (tally, messages) = (&report.tally, &report.tally.messages);
    let mut say = |is_so: bool, text: String| lines.extend(is_so.then_some(text));
    say(
        true,
        format!("messages: {} ({} election, {} replica)", messages.total(), messages.election, messages.replica),
    );
    let clients = format!("clients: {} writes acknowledged, {} reads answered", tally.acknowledged, tally.reads);
    say(tally.acknowledged + tally.reads > 0, clients);
    let tasks = format!(
        "tasks: {}, started {} times; {} of them while another attempt might run; the end of {} is not known",
        report.tasks, tally.starts, tally.double_starts, report.lost
    );
    say(tally.starts > 0, tasks);
    let seen: Vec<String> = report
        .seen
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(what, count)| format!("{} {count}", what.replace('_', " ")))
        .collect();
    say(!seen.is_empty(), format!("seen: {}", seen.join(", ")));
    say(true, format!("virtual time: {} ms", milliseconds(tally.virtual_us)));
    let healed_us = tally.healed_us.map(milliseconds);
    say(healed_us.is_some(), format!("all well {} ms after the last fault", healed_us.unwrap_or_default()));
    say(true, format!("seed: {}", report.seed));
    lines
}

fn leads(names: &Names, leader: Option<NodeId>, farm: &str) -> String {
    match leader {
        Some(leader) => format!("{} leader: {}", mark(true), styled(STRONG, &names.host(leader))),
        None if names.0.len() > 1 => format!("{} leader: none that all servers of {farm} agree on", mark(false)),
        None => format!("{} leader: none that all agree on", mark(false)),
    }
}

fn verdict(report: &Report, property: Property, holds: bool) -> String {
    let name = property.name().replace('_', " ");
    let found = report.violation.as_ref().filter(|_| !holds).map(|violation| violation.what.as_str());
    format!("{} {name}: {}", mark(holds), found.map_or_else(|| styled(FAINT, property.meaning()), str::to_owned))
}

#[derive(Serialize)]
struct Run<'a> {
    setup: &'a str,
    leader: Option<u64>,
    farms: Vec<Farm<'a>>,
    messages: Messages,
    properties: Named<bool>,
    virtual_ms: f64,
    seed: u64,
    violation: Option<&'a str>,
    leaders: LeadersInBetween,
    acknowledged: u64,
    reads: u64,
    restored: u64,
    tasks: u64,
    lost: u64,
    starts: u64,
    double_starts: u64,
    seen: &'a BTreeMap<&'static str, u64>,
    healed_ms: Option<f64>,
    trace: String,
}

/// A farm, and the server that all of it name as the leader.
#[derive(Serialize)]
struct Farm<'a> {
    farm: &'a str,
    leader: Option<u64>,
}

/// One object; `trace` is the number that two equal runs share. Of several farms each has a leader of its own.
pub(crate) fn json(setup: &str, names: &Names, report: &Report, trace: u64) -> String {
    let (tally, messages) = (&report.tally, &report.tally.messages);
    let Leaders { most_at_once, changes } = tally.leaders;
    let number = |leader: Option<NodeId>| leader.map(|leader| Host::of(leader).number);
    let leaders: Vec<Option<u64>> = leaders(names, report).into_iter().map(number).collect();
    json::line(&Run {
        setup,
        leader: if let [leader] = leaders.as_slice() { *leader } else { None },
        farms: names.0.iter().zip(&leaders).map(|(farm, leader)| Farm { farm, leader: *leader }).collect(),
        messages: Messages {
            total: messages.total(),
            by_type: Named(vec![
                ("election", messages.election),
                ("replica", messages.replica),
                ("other", messages.other),
            ]),
        },
        properties: Named(report.properties.iter().map(|(property, holds)| (property.name(), *holds)).collect()),
        virtual_ms: tally.virtual_us as f64 / 1000.0,
        seed: report.seed,
        violation: report.violation.as_ref().map(|violation| violation.what.as_str()),
        leaders: LeadersInBetween { most_at_once, changes },
        acknowledged: tally.acknowledged,
        reads: tally.reads,
        restored: tally.restored,
        tasks: report.tasks,
        lost: report.lost,
        starts: tally.starts,
        double_starts: tally.double_starts,
        seen: &report.seen,
        healed_ms: tally.healed_us.map(|healed_us| healed_us as f64 / 1000.0),
        trace: format!("{trace:016x}"),
    })
}
