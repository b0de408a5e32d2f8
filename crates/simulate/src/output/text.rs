//! Text for people: the story of a run line by line, as section 5.3 of ring over AMQP tells it, then the verdicts.

use primus_core::ServerId;
use primus_core::election::{MessageKind, Timer};
use primus_lab::experiment::Report;
use primus_lab::invariants::Property;
use primus_lab::simulate::Counts;
use primus_terminal::screen::{FAINT, STRONG, WARNING, mark, styled};
use primus_terminal::values::listed;

use super::narration::{Beat, Cause, Effect, Event, Story};
use crate::settings::cast::Cast;
use crate::survey::Survey;

/// A run: its story, then its verdicts.
pub(crate) fn run(cast: &Cast, first_leader: Option<ServerId>, story: &Story, report: &Report) -> String {
    let mut lines = story_lines(cast, first_leader, story);
    lines.push(String::new());
    lines.extend(verdicts(cast, report));
    lines.join("\n") + "\n"
}

/// The story alone.
#[must_use]
pub fn story_lines(cast: &Cast, first_leader: Option<ServerId>, story: &Story) -> Vec<String> {
    let teller = Teller { cast };
    let mut lines: Vec<String> =
        first_leader.map(|leader| format!("{} leads", teller.node(leader))).into_iter().collect();
    let gap = |left_out| styled(FAINT, &format!("… {left_out} further steps, not shown …"));
    lines.extend(story.lines(|beat| teller.beat(beat), gap));
    lines
}

fn verdicts(cast: &Cast, report: &Report) -> Vec<String> {
    let mut lines = vec![leader(cast, report)];
    lines.extend(report.properties.iter().map(|(property, holds)| verdict(cast, *property, *holds)));
    lines.push(format!("messages: {}", counts(&report.outcome.messages)));
    lines.push(format!("virtual time: {} ms", milliseconds(report.outcome.virtual_us)));
    let leaders = report.outcome.leaders;
    if leaders.most_at_once > 1 || leaders.changes > 1 {
        lines.push(format!(
            "leaders in between: somebody began to lead {} times, {} at the same time at most",
            leaders.changes, leaders.most_at_once
        ));
    }
    lines.push(format!("seed: {}", report.seed));
    lines
}

/// Without agreement it is not said who leads but who believes what; that may be all right while a partition lasts.
#[must_use]
pub fn leader(cast: &Cast, report: &Report) -> String {
    if let Some(leader) = report.outcome.agreed_leader() {
        return format!("{} leader: {}", mark(true), styled(STRONG, &cast.full(leader)));
    }
    let leaders: Vec<String> = report.outcome.leaders_at_end().map(|node| cast.full(node)).collect();
    let sign = if report.properties.contains_key(&Property::Agreement) { mark(false) } else { "–".to_string() };
    let led = match leaders.as_slice() {
        [] => "no node leads".to_string(),
        [leader] => format!("{leader} leads"),
        leaders => format!("{} lead", listed(leaders.iter())),
    };
    format!("{sign} leader: none that all agree on; {led}")
}

/// Whether a property holds, in words.
#[must_use]
pub fn verdict(cast: &Cast, property: Property, holds: bool) -> String {
    let meaning = match property {
        Property::Correctness if cast.is_ring() => "the leader has the best id",
        property => property.meaning(),
    };
    let name = property.name().replace('_', " ");
    let but = if holds { "" } else { "it is not so that " };
    format!("{} {name}: {but}{}", mark(holds), styled(FAINT, meaning))
}

/// `13 (8 election, 5 elected)`.
#[must_use]
pub fn counts(messages: &Counts) -> String {
    let kinds = MessageKind::ALL.into_iter().filter(|kind| messages.of(*kind) > 0);
    let kinds: Vec<String> = kinds.map(|kind| format!("{} {}", messages.of(kind), kind.name())).collect();
    match messages.total() {
        0 => "0".to_string(),
        total => format!("{total} ({})", kinds.join(", ")),
    }
}

/// Microseconds as milliseconds, without needless digits.
#[must_use]
pub fn milliseconds(us: u64) -> String {
    let text = format!("{}.{:03}", us / 1000, us % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// One thing that happened.
#[must_use]
pub fn beat_lines(cast: &Cast, beat: &Beat) -> Vec<String> {
    Teller { cast }.beat(beat)
}

/// Many seeds: how many passed, or the first that did not.
pub(crate) fn survey(survey: &Survey, replay: Option<&str>) -> String {
    let (seeds, seconds) = (survey.seeds(), survey.seconds);
    let mut lines = vec![match (&survey.first_failure, replay) {
        (Some((seed, property)), Some(replay)) => format!(
            "{} {} of {seeds} seeds failed; the first is {seed}, which violates {}\n  replay: {}",
            mark(false),
            survey.failed,
            property,
            styled(STRONG, replay)
        ),
        _ => format!("{} {seeds} seeds passed: all properties held in every run", mark(true)),
    }];
    lines.push(format!("{seconds:.2} s, {:.0} runs per second", survey.runs_per_s()));
    lines.push(format!(
        "leaders in between: {} runs had several at once, {} at most; on average somebody began to lead {:.2} times",
        survey.runs_with_several_leaders, survey.most_at_once, survey.mean_changes()
    ));
    lines.push(format!("seeds: {} to {}", survey.range.start, survey.range.end - 1));
    lines.join("\n") + "\n"
}

/// Turns beats into lines.
struct Teller<'a> {
    cast: &'a Cast,
}

impl Teller<'_> {
    fn node(&self, id: ServerId) -> String {
        format!("Node {}", self.cast.short(id))
    }

    fn full(&self, id: ServerId) -> String {
        self.cast.full(id).replacen("node", "Node", 1)
    }

    fn beat(&self, beat: &Beat) -> Vec<String> {
        let at = if beat.at_us == 0 { String::new() } else { format!(" at {} ms", milliseconds(beat.at_us)) };
        let warning = |text: String| vec![styled(WARNING, &text)];
        match &beat.event {
            Event::Step { node, cause, effects } => self.step(*node, cause, effects),
            Event::Lost { from, to, label } => warning(format!(
                "{label} from node {} to node {} is lost",
                self.cast.short(*from),
                self.cast.short(*to)
            )),
            Event::Suffers(node, what) => warning(format!("{} {what}{at}", self.node(*node))),
            Event::Links { are_cut, pairs } => {
                let what = if *are_cut { "cut" } else { "mended" };
                let before = |one, other| self.cast.place(one) < self.cast.place(other);
                warning(format!("Links are {what}{at}: {}", links(pairs, before, "", |id| self.cast.short(id))))
            }
        }
    }

    fn step(&self, node: ServerId, cause: &Cause, effects: &[Effect]) -> Vec<String> {
        if effects.contains(&Effect::Completes) {
            return vec![format!("{}: the election is complete", self.node(node))];
        }
        if let (Cause::Receives { .. }, Some(leader)) = (cause, followed(effects)) {
            return vec![format!("{} recognises leader {}", self.node(node), self.cast.name(leader))];
        }
        let mut lines = vec![self.cause(node, cause)];
        lines.extend(self.effects(node, effects));
        lines
    }

    fn cause(&self, node: ServerId, cause: &Cause) -> String {
        let (short, full) = (self.node(node), self.full(node));
        let peer = |peer: &ServerId| self.cast.short(*peer);
        match cause {
            Cause::Starts | Cause::RunsOut(Timer::Startup) => format!("{full} starts an election"),
            Cause::Resigns => format!("{short} resigns"),
            Cause::Suspects(suspect) => format!("{short} suspects node {}", peer(suspect)),
            Cause::Trusts(friend) => format!("{short} trusts node {} again", peer(friend)),
            Cause::Measures(score) => format!("{short} now has load {score}"),
            Cause::Receives { label, is_own_id: true, .. } => format!("{full} receives {label}, its own id"),
            Cause::Receives { label, .. } if self.cast.is_ring() => format!("{full} receives {label}"),
            Cause::Receives { from, label, .. } => format!("{full} receives {label} from node {}", peer(from)),
            Cause::RunsOut(Timer::Answers) => format!("{short} got no answer"),
            Cause::RunsOut(Timer::Victory) => format!("{short} waited for a winner in vain and starts again"),
            Cause::RunsOut(Timer::Round) => format!("{short} saw no result in time and starts again"),
            Cause::RunsOut(Timer::Silence) => format!("{short} has not heard of its leader for too long"),
            Cause::RunsOut(Timer::Remind) => format!("{short} announces itself again"),
        }
    }

    /// One line for each message, with all who get it; whoever begins to lead says so with what it sends next.
    fn effects(&self, node: ServerId, effects: &[Effect]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut leads = false;
        for group in effects.chunk_by(|one, other| label(one).is_some() && label(one) == label(other)) {
            match (label(&group[0]), &group[0]) {
                (Some(label), _) => lines.push(self.sending(node, std::mem::take(&mut leads), label, group)),
                (None, Effect::Leads) => leads = true,
                (None, _) => {}
            }
        }
        lines.extend(leads.then(|| styled(STRONG, &format!("{} is the leader", self.node(node)))));
        lines
    }

    fn sending(&self, node: ServerId, leads: bool, label: &str, group: &[Effect]) -> String {
        let receivers: Vec<String> = group.iter().filter_map(receiver).map(|to| self.cast.short(to)).collect();
        let nodes = if receivers.len() == 1 { "node" } else { "nodes" };
        let sends = format!("sends {label} to {nodes} {}", listed(receivers.iter()));
        match leads {
            true => styled(STRONG, &format!("{} is the leader and {sends}", self.node(node))),
            false => format!("{} {sends}", self.node(node)),
        }
    }
}

/// `1–3, 2–3`; an arrow where it concerns one direction only.
pub(crate) fn links<N: Copy + PartialEq>(
    pairs: &[(N, N)],
    before: impl Fn(N, N) -> bool,
    gap: &str,
    name: impl Fn(N) -> String,
) -> String {
    let is_both_ways = |(from, to): (N, N)| pairs.contains(&(to, from));
    let shown = pairs.iter().copied().filter(|(from, to)| !is_both_ways((*from, *to)) || before(*from, *to));
    let texts = shown.map(|(from, to)| {
        let sign = if is_both_ways((from, to)) { '–' } else { '→' };
        format!("{}{gap}{sign}{gap}{}", name(from), name(to))
    });
    listed(texts.collect::<Vec<_>>().iter())
}

fn followed(effects: &[Effect]) -> Option<ServerId> {
    effects.iter().find_map(|effect| match effect {
        Effect::Follows(leader) => Some(*leader),
        _ => None,
    })
}

fn label(effect: &Effect) -> Option<&str> {
    match effect {
        Effect::Sends { label, .. } => Some(label),
        _ => None,
    }
}

fn receiver(effect: &Effect) -> Option<ServerId> {
    match effect {
        Effect::Sends { to, .. } => Some(*to),
        _ => None,
    }
}
