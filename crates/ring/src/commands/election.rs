//! `primus ring run`: all nodes in one process hold elections, which are told and judged like simulated ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use primus_core::ServerId;
use primus_core::election::ring::Ring;
use primus_core::election::{Notice, Timer};
use primus_core::machine::{Input, Output};
use primus_lab::experiment::Report;
use primus_lab::invariants::message_bound::Bound;
use primus_lab::invariants::{self, Evidence};
use primus_lab::simulate::{Counts, Observer, Outcome};
use primus_simulate::output::narration::{Narrator, Story};
use primus_terminal::amounts::{length, number};
use primus_terminal::failure::Failure;
use primus_terminal::json::rounded;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::{Crew, runtime};
use crate::args::RingRunArgs;
use crate::member::{Event, Order, Told, View};
use crate::output;
use crate::settings::RingSettings;

const ELECTIONS_MAX: u64 = 1000;
/// Nobody reads more than this.
const BEATS_MAX: usize = 300;
/// Where others take part whom we cannot see, nothing is over before it has been quiet for this long.
const QUIET: Duration = Duration::from_millis(300);
/// A message may have expired; then nothing more comes, either.
const QUIET_WITH_LOSS: Duration = Duration::from_secs(1);

/// Runs what the arguments ask for.
pub(super) fn run(args: &RingRunArgs, format: Format) -> Result<Verdict, Failure> {
    let settings = RingSettings::read(&args.file.config)?;
    let plan = Plan::new(args, &settings)?;
    let held = runtime().block_on(async {
        let mut crew = Crew::assemble(&settings, args.transport, &plan.without).await?;
        let mut held = Vec::new();
        for _ in 0..plan.elections {
            held.push(hold(&mut crew, &settings.members, &plan.starters, plan.patience).await?);
        }
        crew.dismiss().await;
        Ok::<_, Failure>(held)
    })?;
    print(&settings, args.transport.name(), &held, format)?;
    Ok(Verdict::of(held.iter().all(|election| election.report.violation().is_none())))
}

fn print(
    settings: &RingSettings,
    transport: &'static str,
    held: &[Election],
    format: Format,
) -> Result<(), Failure> {
    let object = |election: &Election| output::held(&settings.cast, &election.report, transport);
    let text = || {
        let told = |election: &Election| output::told(&settings.cast, &election.story, &election.report, transport);
        held.iter().map(told).collect::<Vec<_>>().join("\n")
    };
    match held {
        [only] => format.show(text, &object(only))?,
        all => format.show(text, &Items { items: all.iter().map(object).collect(), next: None })?,
    };
    Ok(())
}

/// Several elections, for scripts.
#[derive(Serialize)]
struct Items {
    items: Vec<output::Held>,
    next: Option<String>,
}

/// What a command line asks for.
struct Plan {
    without: BTreeSet<usize>,
    starters: Vec<ServerId>,
    elections: u64,
    patience: Duration,
}

impl Plan {
    fn new(args: &RingRunArgs, settings: &RingSettings) -> Result<Self, Failure> {
        let without = match args.without.as_slice() {
            [] => BTreeSet::new(),
            words => settings.positions("--without", words)?,
        };
        if without.len() == settings.members.len() {
            return Err(Failure::usage("--without leaves no position", "name fewer positions"));
        }
        let mut starters = match args.start.as_slice() {
            [] => BTreeSet::from([settings.initiator]),
            words => settings.positions("--start", words)?,
        };
        starters.retain(|place| !without.contains(place));
        if starters.is_empty() {
            return Err(Failure::usage("no node is left that could start", "name another one with --start"));
        }
        let starters = starters.into_iter().map(|place| settings.members[place]).collect();
        let elections = args.elections.as_deref();
        let elections = elections.map_or(Ok(1), |text| number("--elections", text, 1, ELECTIONS_MAX))?;
        Ok(Self { without, starters, elections, patience: length("--timeout", &args.timeout)? })
    }
}

/// An election that is over.
#[derive(Debug)]
pub struct Election {
    /// What it came to.
    pub report: Report,
    story: Story,
}

/// Lets these nodes start, and waits until all know a leader and nothing is under way any more.
///
/// # Errors
/// If a node takes no orders.
pub async fn hold(
    crew: &mut Crew,
    members: &Arc<[ServerId]>,
    starters: &[ServerId],
    patience: Duration,
) -> Result<Election, Failure> {
    let mut watch = Watch::new(crew);
    // Nobody hears of anything before all have been told.
    for starter in starters {
        let order = crew.orders.get(starter).map(|orders| orders.try_send(Order::Start));
        if !matches!(order, Some(Ok(()))) {
            return Err(Failure::failed("node", format!("node {starter} does not take orders"), "try again"));
        }
    }
    watch.until_settled(crew, patience).await;
    Ok(watch.judged(crew, members, starters.len() == 1))
}

/// Sees an election as it goes on.
struct Watch {
    since: Instant,
    narrator: Narrator,
    outcome: Outcome,
    views: BTreeMap<ServerId, Option<View>>,
    /// What nodes of ours want to send, minus what has left.
    unsent: i64,
    /// What nodes of ours want to send to each other, minus what has arrived.
    under_way: i64,
    leading: BTreeSet<ServerId>,
    has_strangers: bool,
}

impl Watch {
    fn new(crew: &Crew) -> Self {
        Self {
            since: Instant::now(),
            narrator: Narrator::new(BEATS_MAX, false),
            outcome: Outcome::default(),
            views: crew.orders.keys().map(|node| (*node, None)).collect(),
            unsent: 0,
            under_way: 0,
            leading: BTreeSet::new(),
            has_strangers: !crew.strangers.is_empty(),
        }
    }

    async fn until_settled(&mut self, crew: &mut Crew, patience: Duration) {
        let until = self.since + patience;
        loop {
            let quiet = match (self.is_settled(), self.under_way == 0 && self.unsent == 0, self.has_strangers) {
                (true, true, false) => return self.settle(),
                (true, true, true) => QUIET,
                (true, false, _) => QUIET_WITH_LOSS,
                (false, ..) => patience,
            };
            let left = until.saturating_duration_since(Instant::now());
            match timeout(quiet.min(left), crew.told.recv()).await {
                Ok(Some(told)) => self.on_told(&told),
                Ok(None) => return,
                Err(_) if left > quiet => return self.settle(),
                Err(_) => return self.outcome.virtual_us = self.elapsed_us(Instant::now()),
            }
        }
    }

    fn settle(&mut self) {
        self.outcome.settled = true;
    }

    /// Everybody has taken part and knows a leader.
    fn is_settled(&self) -> bool {
        self.views.values().all(|view| view.is_some_and(|view| view.leader.is_some()))
    }

    fn elapsed_us(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.since).as_micros()).unwrap_or(u64::MAX)
    }

    fn on_told(&mut self, told: &Told) {
        match &told.event {
            Event::Step(input, outputs, view) => {
                self.on_step(told, input, outputs, *view);
                self.outcome.virtual_us = self.elapsed_us(told.at);
            }
            Event::Sent(kind, _) => {
                self.outcome.messages.add(*kind);
                self.unsent -= 1;
            }
            Event::Cut(_) => self.outcome.disturbed = true,
            Event::Ready | Event::Dropped(_) => {}
        }
    }

    fn on_step(&mut self, told: &Told, input: &Input<Ring>, outputs: &[Output<Ring>], view: View) {
        self.narrator.on_step(self.elapsed_us(told.at), told.node.into(), input, outputs);
        self.outcome.events += 1;
        // A round that took too long was not the algorithm's doing.
        self.outcome.disturbed |= matches!(input, Input::Timer(Timer::Round));
        if matches!(input, Input::Message { from, .. } if self.views.contains_key(from)) {
            self.under_way -= 1;
        }
        for output in outputs {
            match output {
                Output::Send { to, .. } => {
                    self.unsent += 1;
                    self.under_way += i64::from(self.views.contains_key(to));
                }
                Output::Notify(Notice::Lead) => self.outcome.leaders.changes += 1,
                _ => {}
            }
        }
        if view.leader == Some(told.node) {
            self.leading.insert(told.node)
        } else {
            self.leading.remove(&told.node)
        };
        let most = u32::try_from(self.leading.len()).unwrap_or(u32::MAX);
        self.outcome.leaders.most_at_once = self.outcome.leaders.most_at_once.max(most);
        self.views.insert(told.node, Some(view));
    }

    /// Everybody who was there should have elected the lowest id among them.
    fn judged(mut self, crew: &Crew, members: &Arc<[ServerId]>, is_single: bool) -> Election {
        let leader_of = |node: &ServerId| self.views.get(node).copied().flatten().and_then(|view| view.leader);
        let ours = members.iter().filter(|node| self.views.contains_key(node));
        self.outcome.table = ours.map(|node| (*node, leader_of(node))).collect();
        // What a stranger believes, only the others can tell.
        let agreed = self.outcome.table.first().and_then(|(_, leader)| *leader);
        let strangers = crew.strangers.iter().filter(|stranger| Some(**stranger) == agreed);
        self.outcome.table.extend(strangers.map(|stranger| (*stranger, agreed)));
        let there: BTreeSet<ServerId> = self.views.keys().chain(&crew.strangers).copied().collect();
        let properties = invariants::judge(&Evidence {
            outcome: &self.outcome,
            faults_ended: true,
            best: there.first().copied(),
            bound: crew.strangers.is_empty().then_some(Bound::Ring { n: there.len() as u64, is_single }),
            changed_ranks: None,
        });
        Election { report: Report { seed: 0, outcome: self.outcome, properties }, story: self.narrator.story() }
    }
}

impl Election {
    /// How many messages of each type it took.
    #[must_use]
    pub const fn messages(&self) -> &Counts {
        &self.report.outcome.messages
    }

    /// How long it took from its start to its last step.
    #[must_use]
    pub fn elapsed_ms(&self) -> f64 {
        rounded(self.report.outcome.virtual_us as f64 / 1000.0)
    }
}
