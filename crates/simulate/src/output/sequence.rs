//! A run of whole servers as a sequence diagram in Mermaid: hosts side by side, what they say about who should lead and who does
//! what as arrows, and the rest as notes.

use std::collections::BTreeSet;

use primus_lab::checks::Report;
use primus_lab::node::NodeId;

use super::chronicle::{Beat, Chronicle, Event};
use super::diagram::{drawn, note_over_all};
use super::servers::{leaders, links};
use super::text::milliseconds;

/// The diagram of a run.
pub(crate) fn run(chronicle: &Chronicle, report: &Report) -> String {
    let beats = &chronicle.beats;
    let drawing = Drawing::of(chronicle);
    let gap = |left_out| drawing.note_over_all(&format!("{left_out} further events are not shown"));
    let mut lines = beats.lines(|beat| [drawing.beat(beat)], gap);
    lines.push(drawing.note_over_all(&drawing.result(report)));
    let title = |host: &NodeId| capitalised(&chronicle.names.host(*host));
    drawn(report.seed, drawing.hosts.iter().map(title), lines)
}

struct Drawing<'a> {
    chronicle: &'a Chronicle,
    /// All hosts that appear, in the order of their numbers.
    hosts: Vec<NodeId>,
}

impl<'a> Drawing<'a> {
    fn of(chronicle: &'a Chronicle) -> Self {
        let beats = chronicle.beats.beats.iter().chain(&chronicle.beats.last);
        let hosts: BTreeSet<NodeId> = beats.flat_map(|beat| concerned(&beat.event)).collect();
        Self { chronicle, hosts: hosts.into_iter().collect() }
    }

    fn alias(&self, host: NodeId) -> String {
        format!("n{}", self.hosts.binary_search(&host).map_or(0, |place| place + 1))
    }

    fn note_over_all(&self, text: &str) -> String {
        note_over_all(self.hosts.len(), &plain(text))
    }

    fn beat(&self, beat: &Beat) -> String {
        let arrow = |from: &NodeId, sign: &str, to: &NodeId, what: &str| {
            format!("{}{sign}{}: {}", self.alias(*from), self.alias(*to), plain(what))
        };
        let at = milliseconds(beat.at_us);
        match &beat.event {
            Event::Does { host, what, .. } => format!("Note over {}: {}", self.alias(*host), plain(what)),
            Event::Says { from, to, what } => arrow(from, "->>", to, what),
            Event::Loses { from, to, what } => arrow(from, "-x", to, what),
            Event::Links { are_cut, pairs } => {
                let what = if *are_cut { "links are cut" } else { "links are mended" };
                self.note_over_all(&format!("{what} at {at} ms: {}", links(&self.chronicle.names, pairs)))
            }
        }
    }

    fn result(&self, report: &Report) -> String {
        let names = &self.chronicle.names;
        let leader = |(leader, farm): (Option<NodeId>, &String)| match leader {
            Some(leader) => format!("leader: {}", names.host(leader)),
            None => format!("{farm} has no leader that all agree on"),
        };
        let leaders: Vec<String> = leaders(names, report).into_iter().zip(&names.0).map(leader).collect();
        let verdict = match &report.violation {
            None => "all properties hold".to_owned(),
            Some(violation) => format!("{} is violated", violation.property.name().replace('_', " ")),
        };
        format!("{}, {verdict}", leaders.join(", "))
    }
}

/// The hosts that an event is about.
fn concerned(event: &Event) -> Vec<NodeId> {
    match event {
        Event::Does { host, .. } => vec![*host],
        Event::Says { from, to, .. } | Event::Loses { from, to, .. } => vec![*from, *to],
        Event::Links { pairs, .. } => pairs.iter().flat_map(|(from, to)| [*from, *to]).collect(),
    }
}

/// Mermaid ends a statement at a semicolon and begins a character code at a number sign.
fn plain(text: &str) -> String {
    text.replace([';', '#'], ",")
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
