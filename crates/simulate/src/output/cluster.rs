//! A run of a whole cluster, for people and for scripts: who led when, what went wrong, and whether every property held.

use primus_core::lease::Guard;
use primus_core::machine::{Input, Output};
use primus_lab::checks::{Property, Report};
use primus_lab::node::NodeId;
use primus_lab::observer::Observer;
use primus_lab::simulate::{Happening, Leaders};
use primus_server::control::Notice;
use primus_server::farm::Farm;
use primus_server::leases::Leases;
use primus_server::{Server, Worker};
use primus_terminal::json::{self, Named};
use primus_terminal::screen::{FAINT, STRONG, WARNING, mark, styled};
use serde::Serialize;

use super::json::{LeadersInBetween, Messages};
use super::text::milliseconds;

/// Listens to a run and tells what people want to know of it.
#[derive(Debug)]
pub(crate) struct Narrator {
    lines: Vec<String>,
    lines_max: usize,
    left_out: usize,
}

impl Narrator {
    pub(crate) const fn new(lines_max: usize) -> Self {
        Self { lines: Vec::new(), lines_max, left_out: 0 }
    }

    fn tell(&mut self, at_us: u64, line: &str) {
        if self.lines.len() < self.lines_max {
            self.lines.push(format!("{:>8} ms  {line}", milliseconds(at_us)));
        } else {
            self.left_out += 1;
        }
    }
}

impl Observer<Server> for Narrator {
    fn on_step(&mut self, at_us: u64, node: NodeId, _: &Input<Server>, outputs: &[Output<Server>]) {
        for output in outputs {
            match output {
                Output::Notify(Notice::Leader(Some(leader), term, reason)) if *leader == node.server() => {
                    let line = format!("server {node} leads in term {} ({reason})", term.0);
                    self.tell(at_us, &styled(STRONG, &line));
                }
                Output::Notify(Notice::Restored(snapshot)) => {
                    self.tell(at_us, &format!("server {node} gets the whole state up to entry {}", snapshot.index));
                }
                _ => {}
            }
        }
    }

    fn on_happening(&mut self, at_us: u64, happening: &Happening) {
        let line = match happening {
            Happening::Crash(node) => format!("server {node} dies"),
            Happening::Restart(node) => format!("server {node} starts"),
            Happening::Pause(node) => format!("server {node} stands still"),
            Happening::Resume(node) => format!("server {node} goes on"),
            Happening::Cut(from, to) => format!("server {to} no longer hears {from}"),
            Happening::Mend(from, to) => format!("server {to} hears {from} again"),
            Happening::Command(..) => return,
        };
        self.tell(at_us, &styled(WARNING, &line));
    }
}

impl Observer<Farm> for Narrator {}
impl Observer<Leases> for Narrator {}
impl Observer<Worker> for Narrator {}
impl Observer<Guard> for Narrator {}

/// The story, then the verdicts.
pub(crate) fn text(narrator: Narrator, report: &Report) -> String {
    let mut lines = narrator.lines;
    if narrator.left_out > 0 {
        lines.push(styled(FAINT, &format!("… {} further events, not shown …", narrator.left_out)));
    }
    lines.push(String::new());
    lines.push(match report.agreed_leader() {
        Some(leader) => format!("{} leader: {}", mark(true), styled(STRONG, &format!("server {leader}"))),
        None => format!("{} leader: none that all agree on", mark(false)),
    });
    lines.extend(report.properties.iter().map(|(property, holds)| verdict(report, *property, *holds)));
    let messages = &report.tally.messages;
    lines.push(format!(
        "messages: {} ({} election, {} replica)",
        messages.total(),
        messages.election,
        messages.replica
    ));
    lines.push(format!(
        "clients: {} writes acknowledged, {} reads answered",
        report.tally.acknowledged, report.tally.reads
    ));
    lines.push(format!("virtual time: {} ms", milliseconds(report.tally.virtual_us)));
    if let Some(healed_us) = report.tally.healed_us {
        lines.push(format!("all well {} ms after the last fault", milliseconds(healed_us)));
    }
    lines.push(format!("seed: {}", report.seed));
    lines.join("\n") + "\n"
}

fn verdict(report: &Report, property: Property, holds: bool) -> String {
    let name = property.name().replace('_', " ");
    let found = report.violation.as_ref().filter(|_| !holds).map(|violation| violation.what.as_str());
    format!("{} {name}: {}", mark(holds), found.map_or_else(|| styled(FAINT, property.meaning()), str::to_owned))
}

#[derive(Serialize)]
struct Run {
    leader: Option<u64>,
    messages: Messages,
    properties: Named<bool>,
    virtual_ms: f64,
    seed: u64,
    violation: Option<String>,
    leaders: LeadersInBetween,
    acknowledged: u64,
    reads: u64,
    restored: u64,
    healed_ms: Option<f64>,
    trace: String,
}

/// One object; `trace` is the number that two equal runs share.
pub(crate) fn json(report: &Report, trace: u64) -> String {
    let Leaders { most_at_once, changes } = report.tally.leaders;
    let messages = &report.tally.messages;
    json::line(&Run {
        leader: report.agreed_leader().map(|leader| leader.0),
        messages: Messages {
            total: messages.total(),
            by_type: Named(vec![
                ("election", messages.election),
                ("replica", messages.replica),
                ("other", messages.other),
            ]),
        },
        properties: Named(report.properties.iter().map(|(property, holds)| (property.name(), *holds)).collect()),
        virtual_ms: report.tally.virtual_us as f64 / 1000.0,
        seed: report.seed,
        violation: report.violation.as_ref().map(|violation| violation.what.clone()),
        leaders: LeadersInBetween { most_at_once, changes },
        acknowledged: report.tally.acknowledged,
        reads: report.tally.reads,
        restored: report.tally.restored,
        healed_ms: report.tally.healed_us.map(|healed_us| healed_us as f64 / 1000.0),
        trace: format!("{trace:016x}"),
    })
}
