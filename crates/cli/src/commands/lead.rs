//! `primus lead`: runs a command on exactly one host at a time, for as long as this one holds a group's lease.
//!
//! The guard asks the farm's leader again and again; a companion runs the command until a deadline that only answers move. So
//! whatever freezes, dies or is cut off, the command has ended before another host may start it.

mod embedded_server;
mod lease_client;
mod settings;

use std::time::Duration;

use primus_core::lease::guard::{Command, Notice};
use primus_core::load::{Load, Weights};
use primus_node::guarded::{Guarded, Report};
use primus_node::load::{Meter, Source};
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict, json as lines, screen};
use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use self::settings::LeadSettings;
use crate::args::{LeadArgs, Restart};

pub(super) use self::lease_client::Asker;

/// A session with a farm, over its API.
pub(super) type Session = primus_node::session::Session<Asker>;

/// How long the farm may take to hear that the command has ended, before this process ends all the same.
const FAREWELL: Duration = Duration::from_secs(1);
/// How soon the command is started again when it ends by itself: at first, and at most.
const RESTART_MIN: Duration = Duration::from_millis(100);
const RESTART_MAX: Duration = Duration::from_secs(10);

/// Runs the command whenever it is this candidate's turn, and ends with its exit code.
pub(super) fn run(args: &LeadArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let settings = LeadSettings::new(args)?;
    let server = args.config.clone().map(embedded_server::start).transpose()?;
    let asker = match &server {
        Some(server) => Asker::at(&server.api),
        None => Asker::find(&args.place)?,
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("the system gives a runtime");
    let verdict = runtime.block_on(async {
        let mut lead = Lead::new(settings, Session::new(asker), format)?;
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
    session: Session,
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
    fn new(settings: LeadSettings, session: Session, format: Format) -> Result<Self, Failure> {
        let guarded = new_companion(&settings, &session)?;
        Ok(Self {
            settings,
            format,
            session,
            guarded: Some(guarded),
            phase: Phase::Idle,
            held: None,
            restart_after: RESTART_MIN,
            started: Instant::now(),
            ending: None,
        })
    }

    async fn run(&mut self) -> Result<Verdict, Failure> {
        let mut signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
            .map(|kind| signal(kind).expect("signals can be heard"));
        let mut loads = measured();
        self.session.tell(Command::Want(vec![self.settings.candidacy.clone()]));
        loop {
            while let Some(notice) = self.session.take_notice() {
                self.on_notice(notice).await?;
            }
            if let Some((verdict, by)) = self.ending
                && (self.session.is_idle() || by <= Instant::now())
            {
                return Ok(verdict);
            }
            let due = self.due();
            let [terminate, interrupt, hangup] = &mut signals;
            tokio::select! {
                turned = self.session.turn() => turned?,
                report = next_report(&mut self.guarded) => self.on_report(report).await?,
                Ok(()) = loads.changed() => {
                    let Load { score, .. } = *loads.borrow_and_update();
                    self.session.tell(Command::Score(score));
                }
                () = heard(terminate) => self.on_signal(15).await,
                () = heard(interrupt) => self.on_signal(2).await,
                () = heard(hangup) => self.on_signal(1).await,
                () = sleep_until(due) => self.on_time().await?,
            }
        }
    }

    fn due(&self) -> Instant {
        let rest = if let Phase::Rests(until) = self.phase { Some(until) } else { None };
        let due = rest.into_iter().chain(self.ending.map(|(_, by)| by)).min();
        due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    async fn on_time(&mut self) -> Result<(), Failure> {
        match self.phase {
            Phase::Rests(until) if until <= Instant::now() => self.start().await,
            _ => Ok(()),
        }
    }

    async fn on_signal(&mut self, number: u8) {
        if self.phase == (Phase::Ends { for_good: true }) || self.ending.is_some() {
            // Whoever asks twice does not want to wait.
            self.kill_companion();
            self.ending = Some((Verdict::Code(128 + number), Instant::now()));
            return;
        }
        match self.phase {
            Phase::Runs | Phase::Ends { .. } => {
                self.phase = Phase::Ends { for_good: true };
                self.end_command().await;
            }
            Phase::Idle | Phase::Rests(_) => self.finish(Verdict::Code(128 + number)),
        }
    }

    /// Gives everything back, and ends.
    fn finish(&mut self, verdict: Verdict) {
        self.phase = Phase::Idle;
        self.ending = Some((verdict, Instant::now() + FAREWELL));
        let group = self.settings.candidacy.group.clone();
        self.session.tell(Command::Leave(group.clone()));
        self.session.tell(Command::Ended(group));
    }

    async fn on_notice(&mut self, notice: Notice) -> Result<(), Failure> {
        match notice {
            Notice::Granted(group, token, until_us) => {
                self.held = Some((token, until_us));
                self.say("granted", &format!("holds {group}, term {token}"), &json!({ "term": token }));
                self.start().await?;
            }
            Notice::Renewed(_, token, until_us) => {
                self.held = Some((token, until_us));
                if let Some(guarded) = &mut self.guarded {
                    // That the companion is gone, its reports tell.
                    _ = guarded.renew(until_us).await;
                }
            }
            // It leaves by itself, and has said so.
            Notice::Recalled(_) if self.ending.is_some() => {}
            Notice::Recalled(group) => {
                self.say("recalled", &format!("lets go of {group}"), &json!({}));
                self.let_go(group).await;
            }
            Notice::Lost(group) => {
                self.say("lost", &format!("does not hold {group} any more"), &json!({}));
                self.on_lost(group);
            }
            Notice::Refused(_, objection) => {
                let hint = "use the same --rank and --holders everywhere, or another --group";
                return Err(Failure::failed("refused", objection.to_string(), hint));
            }
        }
        Ok(())
    }

    async fn start(&mut self) -> Result<(), Failure> {
        let Some((token, until_us)) = self.held.filter(|_| self.ending.is_none()) else { return Ok(()) };
        if self.guarded.is_none() {
            self.guarded = Some(new_companion(&self.settings, &self.session)?);
        }
        self.phase = Phase::Runs;
        self.started = Instant::now();
        let warning_us = self.session.lease_us() / 4;
        if let Some(guarded) = &mut self.guarded {
            _ = guarded.start(until_us, warning_us, token).await;
        }
        Ok(())
    }

    /// The farm wants the group back: the command ends first.
    async fn let_go(&mut self, group: String) {
        match self.phase {
            Phase::Runs => {
                self.phase = Phase::Ends { for_good: false };
                self.end_command().await;
            }
            Phase::Ends { .. } => {}
            Phase::Idle | Phase::Rests(_) => {
                self.phase = Phase::Idle;
                self.held = None;
                self.session.tell(Command::Ended(group));
            }
        }
    }

    async fn end_command(&mut self) {
        if let Some(guarded) = &mut self.guarded {
            _ = guarded.end(u64::try_from(self.settings.grace.as_micros()).unwrap_or(u64::MAX)).await;
        }
    }

    /// The time is over. The companion has killed the command, unless it is frozen itself: then it is killed.
    fn on_lost(&mut self, group: String) {
        self.held = None;
        let was_ending = self.phase == Phase::Ends { for_good: true };
        if self.phase != Phase::Idle {
            self.kill_companion();
            self.phase = Phase::Idle;
        }
        if was_ending {
            self.ending = Some((Verdict::Code(128 + 9), Instant::now() + FAREWELL));
        }
        self.session.tell(Command::Ended(group));
    }

    fn kill_companion(&mut self) {
        // Dropping it kills everything, and returns when nothing is left.
        self.guarded = None;
    }

    async fn on_report(&mut self, report: std::io::Result<Report>) -> Result<(), Failure> {
        match report {
            Ok(Report::Started { pid }) => {
                self.say("started", &format!("runs it as process {pid}"), &json!({ "pid": pid }));
            }
            Ok(Report::Failed(reason)) => return self.on_failed(&reason),
            Ok(Report::Ended { code, signal, by_itself }) => {
                let code = code.or_else(|| Some(128u8.saturating_add(signal?))).unwrap_or(u8::MAX);
                self.say("ended", &format!("has ended it, with {code}"), &json!({ "code": code }));
                self.on_ended(code, by_itself);
            }
            Err(_) => self.on_companion_gone(),
        }
        Ok(())
    }

    /// Its lease is not given back, but runs out: there is no command that could do harm.
    fn on_failed(&mut self, reason: &str) -> Result<(), Failure> {
        if self.ending.is_some() {
            return Ok(());
        }
        let message = format!("the command could not be started: {reason}");
        Err(Failure::failed("command", message, "look at the command behind --"))
    }

    fn on_ended(&mut self, code: u8, by_itself: bool) {
        match self.phase {
            Phase::Ends { for_good: true } => self.finish(Verdict::Code(code)),
            Phase::Runs if by_itself && self.is_restarted(code) => self.rest(),
            Phase::Runs if by_itself => self.finish(Verdict::Code(code)),
            // The farm wanted it, or its time was nearly over.
            Phase::Runs | Phase::Ends { for_good: false } => {
                self.phase = Phase::Idle;
                self.held = None;
                self.session.tell(Command::Ended(self.settings.candidacy.group.clone()));
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
    fn on_companion_gone(&mut self) {
        self.say("companion_lost", "has lost its companion, and the command with it", &json!({}));
        self.kill_companion();
        match self.phase {
            Phase::Runs => self.rest(),
            Phase::Ends { for_good: true } => self.finish(Verdict::Code(128 + 9)),
            Phase::Ends { for_good: false } => self.on_ended(128 + 9, false),
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
                screen::complain(&lines::line(&line));
            }
            _ => screen::complain(&format!("primus: {name} {words}")),
        }
    }
}

fn new_companion(settings: &LeadSettings, session: &Session) -> Result<Guarded, Failure> {
    Guarded::new(settings.guarded(session.number().0)?)
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

/// How loaded this host is, as last measured.
fn measured() -> watch::Receiver<Load> {
    let (tell, loads) = watch::channel(Load::default());
    if let Ok(meter) = Meter::open(&Source::System) {
        meter.watch(move |usage| tell.send(Weights::DEFAULT.load(usage, 0)).is_ok());
    }
    loads
}
