//! `primus lead`: runs a command on exactly one host at a time, for as long as this one holds a group's lease.
//!
//! The guard asks the farm's leader again and again; a companion runs the command until a deadline that only answers move. So
//! whatever freezes, dies or is cut off, the command has ended before another host may start it.

mod asking;
mod beside;
mod settings;

use std::collections::BTreeMap;
use std::time::Duration;

use primus_core::lease::guard::{self, Command, Notice, Timer};
use primus_core::lease::{Guard, LEASE_US, Message, Poll};
use primus_core::load::Load;
use primus_core::machine::{Input, Machine, Outbox, Output};
use primus_core::planted::Planted;
use primus_node::clock::now_us;
use primus_node::guarded::{Guarded, Report};
use primus_node::load::{Meter, Source};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use self::asking::Asker;
use self::settings::LeadSettings;
use super::{Verdict, refuse_to_draw};
use crate::args::{Format, LeadArgs, Restart};
use crate::output::failure::Failure;
use crate::output::{json, screen};

/// How long the farm may take to hear that the command has ended, before this process ends all the same.
const FAREWELL: Duration = Duration::from_secs(1);
/// How soon the command is started again when it ends by itself: at first, and at most.
const RESTART_MIN: Duration = Duration::from_millis(100);
const RESTART_MAX: Duration = Duration::from_secs(10);

/// Runs the command whenever it is this candidate's turn, and ends with its exit code.
pub(super) fn run(args: &LeadArgs, format: Format) -> Result<Verdict, Failure> {
    refuse_to_draw(format)?;
    let settings = LeadSettings::new(args)?;
    let server = args.config.clone().map(beside::start).transpose()?;
    let asker = match &server {
        Some(server) => Asker::at(&server.api),
        None => Asker::find(&args.place)?,
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
    let verdict = runtime.block_on(async {
        let mut lead = Lead::new(settings, asker, format)?;
        lead.run().await
    });
    // Whoever guards nothing any more need not lead either.
    if let Some(server) = server {
        server.step_down();
    }
    verdict
}

/// The loop's state.
struct Lead {
    settings: LeadSettings,
    format: Format,
    guard: Guard,
    outbox: Outbox<Guard>,
    timers: BTreeMap<Timer, Instant>,
    asker: Asker,
    lease_us: u64,
    /// None after a companion was killed, until the next one is needed.
    guarded: Option<Guarded>,
    phase: Phase,
    /// Under which token it holds the group, and until when.
    held: Option<(u64, u64)>,
    /// How soon the command is started again if it ends now.
    restart_after: Duration,
    started: Instant,
    /// Where this ends: when the farm knows, or at the latest at that time.
    ending: Option<(Verdict, Instant)>,
    /// Why it cannot go on.
    failure: Option<Failure>,
}

/// What becomes of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It does not run.
    Idle,
    /// It runs, or is about to.
    Runs,
    /// It has been told to end; and this process with it?
    Ends { for_good: bool },
    /// It has ended by itself and is started again at that time.
    Rests(Instant),
}

impl Lead {
    fn new(settings: LeadSettings, asker: Asker, format: Format) -> Result<Self, Failure> {
        let rules = guard::Rules { lease_us: LEASE_US, planted: Planted::NONE };
        let guarded = new_companion(&settings)?;
        Ok(Self {
            guard: Guard::new(settings.session, rules),
            settings,
            format,
            outbox: Outbox::new(),
            timers: BTreeMap::new(),
            asker,
            lease_us: LEASE_US,
            guarded: Some(guarded),
            phase: Phase::Idle,
            held: None,
            restart_after: RESTART_MIN,
            started: Instant::now(),
            ending: None,
            failure: None,
        })
    }

    async fn run(&mut self) -> Result<Verdict, Failure> {
        let mut signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
            .map(|kind| signal(kind).expect("signals can be heard"));
        let mut loads = measured();
        self.tell(Command::Want(vec![self.settings.candidacy.clone()])).await;
        loop {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if let Some((verdict, by)) = self.ending
                && (self.guard.is_idle() || by <= Instant::now())
            {
                return Ok(verdict);
            }
            let due = self.due();
            let [terminate, interrupt, hangup] = &mut signals;
            tokio::select! {
                answer = self.asker.answer() => self.on_answer(answer).await,
                report = next_report(&mut self.guarded) => self.on_report(report).await,
                Some(load) = loads.recv() => self.tell(Command::Score(load.score)).await,
                () = heard(terminate) => self.on_signal(15).await,
                () = heard(interrupt) => self.on_signal(2).await,
                () = heard(hangup) => self.on_signal(1).await,
                () = sleep_until(due) => self.on_time().await,
            }
        }
    }

    fn due(&self) -> Instant {
        let rest = if let Phase::Rests(until) = self.phase { Some(until) } else { None };
        let timers = self.timers.values().copied().chain(rest).chain(self.ending.map(|(_, by)| by));
        timers.min().unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    async fn on_time(&mut self) {
        let now = Instant::now();
        let due: Vec<Timer> = self.timers.iter().filter(|(_, due)| **due <= now).map(|(timer, _)| *timer).collect();
        for timer in due {
            self.timers.remove(&timer);
            self.step(Input::Timer(timer)).await;
        }
        if let Phase::Rests(until) = self.phase
            && until <= now
        {
            self.start().await;
        }
    }

    async fn on_answer(&mut self, answer: asking::Answered) {
        match answer {
            asking::Answered::Answer(answer) => {
                self.lease_us = answer.lease_us();
                self.guard.set_lease(self.lease_us);
                let message = Message::Answer(answer.into_answer());
                self.step(Input::Message { from: primus_core::NodeId(0), message }).await;
            }
            asking::Answered::Failed(number) => self.tell(Command::Failed(number)).await,
            asking::Answered::Refused(failure) => self.failure = Some(failure),
        }
    }

    async fn on_signal(&mut self, number: u8) {
        if self.phase == (Phase::Ends { for_good: true }) || self.ending.is_some() {
            // Whoever asks twice does not want to wait.
            self.kill_companion();
            self.failure = None;
            self.ending = Some((Verdict::Code(128 + number), Instant::now()));
            return;
        }
        match self.phase {
            Phase::Runs | Phase::Ends { .. } => {
                self.phase = Phase::Ends { for_good: true };
                self.end_command().await;
            }
            Phase::Idle | Phase::Rests(_) => self.finish(Verdict::Code(128 + number)).await,
        }
    }

    /// Gives everything back, and ends.
    async fn finish(&mut self, verdict: Verdict) {
        self.phase = Phase::Idle;
        self.ending = Some((verdict, Instant::now() + FAREWELL));
        let group = self.settings.candidacy.group.clone();
        self.tell(Command::Leave(group.clone())).await;
        self.tell(Command::Ended(group)).await;
    }

    async fn tell(&mut self, command: Command) {
        self.step(Input::Command(command)).await;
    }

    async fn step(&mut self, input: Input<Guard>) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.guard.at(now_us());
            let mut outbox = std::mem::take(&mut self.outbox);
            self.guard.step(input, &mut outbox);
            let outputs: Vec<Output<Guard>> = outbox.drain().collect();
            self.outbox = outbox;
            for output in outputs {
                inputs.extend(self.carry_out(output).await);
            }
        }
    }

    /// What the guard must hear next.
    async fn carry_out(&mut self, output: Output<Guard>) -> Option<Input<Guard>> {
        match output {
            Output::Send { message: Message::Poll(poll), .. } => self.ask(poll),
            Output::Set { timer, delay } => {
                _ = self.timers.insert(timer, Instant::now() + Duration::from_micros(delay.max_us));
            }
            Output::Cancel(timer) => _ = self.timers.remove(&timer),
            Output::Notify(notice) => return self.on_notice(notice).await,
            _ => {}
        }
        None
    }

    fn ask(&mut self, poll: Poll) {
        let patience = Duration::from_micros(poll.wait_us + self.lease_us / 4);
        self.asker.ask(self.settings.session, poll, patience);
    }

    async fn on_notice(&mut self, notice: Notice) -> Option<Input<Guard>> {
        match notice {
            Notice::Granted(group, token, until_us) => {
                self.held = Some((token, until_us));
                self.say("granted", &format!("holds {group}, term {token}"), &json!({ "term": token }));
                self.start().await;
            }
            Notice::Renewed(_, token, until_us) => {
                self.held = Some((token, until_us));
                if let Some(guarded) = &mut self.guarded {
                    // That the companion is gone, its reports tell.
                    _ = guarded.renew(until_us).await;
                }
            }
            Notice::Recalled(group) => {
                self.say("recalled", &format!("lets go of {group}"), &json!({}));
                return self.let_go(group).await;
            }
            Notice::Lost(group) => {
                self.say("lost", &format!("does not hold {group} any more"), &json!({}));
                return self.on_lost(group);
            }
            Notice::Refused(_, objection) => {
                let hint = "use the same --rank and --holders everywhere, or another --group";
                self.failure = Some(Failure::failed("refused", objection.to_string(), hint));
            }
        }
        None
    }

    async fn start(&mut self) {
        let Some((token, until_us)) = self.held.filter(|_| self.ending.is_none()) else { return };
        if self.guarded.is_none() {
            match new_companion(&self.settings) {
                Ok(guarded) => self.guarded = Some(guarded),
                Err(failure) => return self.failure = Some(failure),
            }
        }
        self.phase = Phase::Runs;
        self.started = Instant::now();
        if let Some(guarded) = &mut self.guarded {
            _ = guarded.start(until_us, self.lease_us / 4, token).await;
        }
    }

    /// The farm wants the group back: the command ends first.
    async fn let_go(&mut self, group: String) -> Option<Input<Guard>> {
        match self.phase {
            Phase::Runs => {
                self.phase = Phase::Ends { for_good: false };
                self.end_command().await;
                None
            }
            Phase::Ends { .. } => None,
            Phase::Idle | Phase::Rests(_) => {
                self.phase = Phase::Idle;
                self.held = None;
                Some(Input::Command(Command::Ended(group)))
            }
        }
    }

    async fn end_command(&mut self) {
        if let Some(guarded) = &mut self.guarded {
            _ = guarded.end(u64::try_from(self.settings.grace.as_micros()).unwrap_or(u64::MAX)).await;
        }
    }

    /// The time is over. The companion has killed the command, unless it is frozen itself: then it is killed.
    fn on_lost(&mut self, group: String) -> Option<Input<Guard>> {
        self.held = None;
        let was_ending = self.phase == Phase::Ends { for_good: true };
        if self.phase != Phase::Idle {
            self.kill_companion();
            self.phase = Phase::Idle;
        }
        if was_ending {
            self.ending = Some((Verdict::Code(128 + 9), Instant::now() + FAREWELL));
        }
        Some(Input::Command(Command::Ended(group)))
    }

    fn kill_companion(&mut self) {
        // Dropping it kills everything, and returns when nothing is left.
        self.guarded = None;
    }

    async fn on_report(&mut self, report: std::io::Result<Report>) {
        match report {
            Ok(Report::Started { pid }) => {
                self.say("started", &format!("runs it as process {pid}"), &json!({ "pid": pid }));
            }
            Ok(Report::Failed(reason)) => self.on_failed(&reason).await,
            Ok(Report::Ended { code, signal, by_itself }) => {
                let code = code.or_else(|| Some(128u8.saturating_add(signal?))).unwrap_or(u8::MAX);
                self.say("ended", &format!("it ended with {code}"), &json!({ "code": code }));
                self.on_ended(code, by_itself).await;
            }
            Err(_) => self.on_companion_gone().await,
        }
    }

    async fn on_failed(&mut self, reason: &str) {
        let hint = "look at the command behind --";
        let message = format!("the command could not be started: {reason}");
        self.finish(Verdict::Code(125)).await;
        self.failure = Some(Failure::failed("command", message, hint));
    }

    async fn on_ended(&mut self, code: u8, by_itself: bool) {
        let group = self.settings.candidacy.group.clone();
        match self.phase {
            Phase::Ends { for_good: true } => self.finish(Verdict::Code(code)).await,
            Phase::Runs if by_itself && self.is_restarted(code) => self.rest(),
            Phase::Runs if by_itself => self.finish(Verdict::Code(code)).await,
            // The farm wanted it, or its time was nearly over.
            Phase::Runs | Phase::Ends { for_good: false } => {
                self.phase = Phase::Idle;
                self.held = None;
                self.tell(Command::Ended(group)).await;
            }
            Phase::Idle | Phase::Rests(_) => {}
        }
    }

    fn is_restarted(&self, code: u8) -> bool {
        match self.settings.restart {
            Restart::Always => true,
            Restart::OnFailure => code != 0,
            Restart::Never => false,
        }
    }

    /// It is started again soon; the more often it ends early, the later.
    fn rest(&mut self) {
        if self.started.elapsed() > RESTART_MAX {
            self.restart_after = RESTART_MIN;
        }
        self.phase = Phase::Rests(Instant::now() + self.restart_after);
        self.restart_after = (self.restart_after * 2).min(RESTART_MAX);
    }

    /// Somebody killed the companion: the command is dead, and gets another one while there is time.
    async fn on_companion_gone(&mut self) {
        self.say("companion_lost", "its companion was killed, and the command with it", &json!({}));
        self.kill_companion();
        match self.phase {
            Phase::Runs => self.rest(),
            Phase::Ends { for_good: true } => self.finish(Verdict::Code(128 + 9)).await,
            Phase::Ends { for_good: false } => self.on_ended(128 + 9, false).await,
            Phase::Idle | Phase::Rests(_) => {}
        }
    }

    /// A line on stderr: stdout is the command's.
    fn say(&self, kind: &str, words: &str, facts: &Value) {
        let name = &self.settings.candidacy.name;
        match self.format {
            Format::Json => {
                let mut line = json!({ "kind": kind, "group": self.settings.candidacy.group, "name": name });
                if let (Some(line), Some(facts)) = (line.as_object_mut(), facts.as_object()) {
                    line.extend(facts.clone());
                }
                screen::complain(&json::line(&line));
            }
            _ => screen::complain(&format!("primus: {name} {words}")),
        }
    }
}

fn new_companion(settings: &LeadSettings) -> Result<Guarded, Failure> {
    Guarded::new(settings.guarded()?)
        .map_err(|error| Failure::failed("companion", format!("no companion can be started: {error}"), "try again"))
}

/// What the companion says next; nothing while there is none.
async fn next_report(guarded: &mut Option<Guarded>) -> std::io::Result<Report> {
    match guarded {
        Some(guarded) => guarded.report().await,
        None => std::future::pending().await,
    }
}

async fn heard(signal: &mut Signal) {
    _ = signal.recv().await;
}

/// How loaded this host is, now and then.
fn measured() -> mpsc::UnboundedReceiver<Load> {
    let (tell, loads) = mpsc::unbounded_channel();
    if let Ok(meter) = Meter::open(&Source::System, primus_core::load::Weights::default()) {
        meter.watch(move |load| tell.send(load).is_ok());
    }
    loads
}
