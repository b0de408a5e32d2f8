//! A run as a sequence diagram in Mermaid: nodes side by side, messages as arrows in the order in which they arrive.

use primus_core::ServerId;
use primus_core::election::Timer;
use primus_lab::experiment::Report;

use super::narration::{Beat, Cause, Effect, Event, Story};
use super::text::{counts, milliseconds};
use crate::settings::cast::Cast;

/// The diagram of a run.
pub(crate) fn run(cast: &Cast, first_leader: Option<ServerId>, story: &Story, report: &Report) -> String {
    let drawing = Drawing { cast };
    let mut lines: Vec<String> = first_leader.map(|leader| drawing.note(leader, "leads")).into_iter().collect();
    let gap = |left_out| drawing.note_over_all(&format!("{left_out} further steps are not shown"));
    lines.extend(story.lines(|beat| drawing.beat(beat), gap));
    lines.push(drawing.note_over_all(&drawing.result(report)));
    drawn(report.seed, cast.ids().map(|id| drawing.title(id)), lines)
}

/// A diagram of hosts with these titles: the first goes by `n1`, and so on.
pub(super) fn drawn(seed: u64, titles: impl Iterator<Item = String>, lines: Vec<String>) -> String {
    let participants = (1..).zip(titles).map(|(place, title)| format!("participant n{place} as {title}"));
    let lines: String = participants.chain(lines).map(|line| format!("    {line}\n")).collect();
    format!("%% seed {seed}\nsequenceDiagram\n{lines}")
}

/// Something about all of so many hosts.
pub(super) fn note_over_all(hosts: usize, text: &str) -> String {
    match hosts {
        0 | 1 => format!("Note over n1: {text}"),
        last => format!("Note over n1,n{last}: {text}"),
    }
}

struct Drawing<'a> {
    cast: &'a Cast,
}

impl Drawing<'_> {
    /// Names may hold signs that Mermaid reads as arrows; a number never does.
    fn alias(&self, id: ServerId) -> String {
        format!("n{}", self.cast.place(id) + 1)
    }

    fn title(&self, id: ServerId) -> String {
        self.cast.full(id).replacen("node", "Node", 1)
    }

    fn note(&self, node: ServerId, text: &str) -> String {
        format!("Note over {}: {text}", self.alias(node))
    }

    fn note_over_all(&self, text: &str) -> String {
        note_over_all(self.cast.ids().len(), text)
    }

    fn result(&self, report: &Report) -> String {
        let leader = report.outcome.agreed_leader();
        let leader = leader.map_or_else(
            || "no leader that all agree on".to_string(),
            |id| format!("leader: {}", self.cast.full(id)),
        );
        format!("{leader}, messages: {}", counts(&report.outcome.messages))
    }

    fn beat(&self, beat: &Beat) -> Vec<String> {
        match &beat.event {
            Event::Step { node, cause, effects } => self.step(*node, cause, effects),
            Event::Lost { from, to, label } => vec![format!("{}-x{}: {label}", self.alias(*from), self.alias(*to))],
            Event::Suffers(node, what) => vec![self.note(*node, what)],
            Event::Links { are_cut: true, pairs } => vec![self.links("links are cut", beat.at_us, pairs)],
            Event::Links { are_cut: false, pairs } => vec![self.links("links are mended", beat.at_us, pairs)],
        }
    }

    fn links(&self, what: &str, at_us: u64, pairs: &[(ServerId, ServerId)]) -> String {
        let concerned = self.cast.ids().filter(|id| pairs.iter().any(|(from, to)| from == id || to == id));
        let names: Vec<String> = concerned.map(|id| self.cast.short(id)).collect();
        self.note_over_all(&format!("{what} at {} ms between {}", milliseconds(at_us), names.join(", ")))
    }

    fn step(&self, node: ServerId, cause: &Cause, effects: &[Effect]) -> Vec<String> {
        let mut lines: Vec<String> = self.cause(node, cause).into_iter().collect();
        lines.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Leads => Some(self.note(node, "leads")),
            Effect::Completes => Some(self.note(node, "the election is complete")),
            Effect::Sends { .. } | Effect::Follows(_) | Effect::LosesLeader => None,
        }));
        lines
    }

    fn cause(&self, node: ServerId, cause: &Cause) -> Option<String> {
        let note = |text: &str| Some(self.note(node, text));
        match cause {
            Cause::Receives { from, label, .. } => {
                Some(format!("{}->>{}: {label}", self.alias(*from), self.alias(node)))
            }
            Cause::Starts | Cause::RunsOut(Timer::Startup) => note("starts an election"),
            Cause::Resigns => note("resigns"),
            Cause::Suspects(peer) => note(&format!("suspects node {}", self.cast.short(*peer))),
            Cause::Trusts(peer) => note(&format!("trusts node {} again", self.cast.short(*peer))),
            Cause::Measures(score) => note(&format!("load {score}")),
            Cause::RunsOut(Timer::Answers) => note("no answer"),
            Cause::RunsOut(Timer::Victory) => note("no winner"),
            Cause::RunsOut(Timer::Round) => note("no result"),
            Cause::RunsOut(Timer::Silence) => note("silence"),
            Cause::RunsOut(Timer::Remind) => None,
        }
    }
}
