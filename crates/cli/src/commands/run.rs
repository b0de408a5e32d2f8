//! `primus run`: one command, somewhere in the farm, as if it ran here.
//!
//! Most commands are short: for a moment nothing is done but waiting for the end, and the result brings the output along.
//! Whatever takes longer is followed, by one thread for each of its two streams.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use primus_client::tasks::{TaskClient, nothing};
use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::{Format, Verdict, json, screen};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::logs::{Follower, Sink};
use crate::args::RunArgs;

use crate::settings::work::Wish;

/// Commands that end within this time are not followed.
const SHORT: Duration = Duration::from_millis(40);
/// How often to look whether somebody wants to interrupt it.
const PAUSE: Duration = Duration::from_millis(10);
/// Waits as long as a server lets one wait.
const LONG: Duration = Duration::from_secs(3600);
/// What shells say of a command that was interrupted.
const INTERRUPTED: u8 = 130;
const TIMED_OUT: u8 = 124;

/// Submits it, shows what it prints, and ends with its exit code.
pub(super) fn run(args: &RunArgs, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let mut caller = args.work.place.caller()?;
    let wish = Wish::of_run(args, caller.is_local())?;
    let interrupt = Interrupt::listen()?;
    let body = serde_json::to_vec(&wish.submission).expect("plain fields become JSON");
    let job = caller.submit(&body, &wish.key)?;
    let job = job["job"].as_str().ok_or_else(primus_client::strange_answer)?;
    let call = Call { task: format!("{job}.1"), caller, format };
    call.finish(&interrupt)
}

struct Call {
    task: String,
    caller: TaskClient,
    format: Format,
}

impl Call {
    fn finish(mut self, interrupt: &Interrupt) -> Result<Verdict, Failure> {
        let path = format!("/v1/tasks/{}", self.task);
        let first = self.caller.wait(&path, SHORT)?;
        if has_ended(&first) {
            self.show_whole(&first)?;
            return self.verdict(&first);
        }
        let followers = if self.format == Format::Json { Vec::new() } else { self.follow() };
        let waiting = thread::spawn({
            let mut caller = self.caller.clone();
            move || loop {
                let task = caller.wait(&path, LONG)?;
                if has_ended(&task) {
                    return Ok::<Value, Failure>(task);
                }
            }
        });
        while !waiting.is_finished() {
            if interrupt.is_asked() {
                return self.cancel();
            }
            thread::sleep(PAUSE);
        }
        let task = waiting.join().map_err(|_| broken())??;
        for follower in followers {
            follower.join().map_err(|_| broken())??;
        }
        self.verdict(&task)
    }

    fn follow(&self) -> Vec<JoinHandle<Result<(), Failure>>> {
        let follow = |stream: &'static str, sink: Sink| {
            let follower = Follower::new(self.caller.clone(), &self.task, stream, sink);
            thread::spawn(move || follower.follow())
        };
        vec![follow("stdout", Sink::Stdout), follow("stderr", Sink::Stderr)]
    }

    /// What a short command printed is in its result, unless it is long or no text.
    fn show_whole(&self, task: &Value) -> Result<(), Failure> {
        if self.format == Format::Json {
            return Ok(());
        }
        for (stream, sink) in [("stdout", Sink::Stdout), ("stderr", Sink::Stderr)] {
            let text = task[stream].as_str().unwrap_or_default();
            let length = task[format!("{stream}_len")].as_u64().unwrap_or(0);
            let is_all = text.len() as u64 == length && !text.contains(char::REPLACEMENT_CHARACTER);
            if is_all {
                sink.write(text.as_bytes())?;
            } else {
                Follower::new(self.caller.clone(), &self.task, stream, sink).follow()?;
            }
        }
        Ok(())
    }

    fn cancel(mut self) -> Result<Verdict, Failure> {
        self.caller.post(&format!("/v1/tasks/{}/cancel", self.task), &nothing())?;
        // What it has printed so far need not end with a line.
        _ = std::io::stdout().flush();
        screen::complain(&format!("task {} is cancelled", self.task));
        Ok(Verdict::Code(INTERRUPTED))
    }

    /// The command's own exit code; what is no fault of it is a failure of ours.
    fn verdict(&self, task: &Value) -> Result<Verdict, Failure> {
        if self.format == Format::Json {
            screen::stream(&json::line(task))?;
        }
        let code = |value: &Value| value.as_u64().and_then(|code| u8::try_from(code).ok());
        if let Some(exit) = code(&task["exit"]) {
            return Ok(Verdict::Code(exit));
        }
        if let Some(signal) = code(&task["signal"]) {
            return Ok(Verdict::Code(128u8.saturating_add(signal)));
        }
        let id = &self.task;
        let reason = task["reason"].as_str().unwrap_or("for an unknown reason");
        if task["verdict"] == "timed_out" {
            screen::complain(&on_one_line(&format!("task {id} {reason}")));
            return Ok(Verdict::Code(TIMED_OUT));
        }
        let state = task["state"].as_str().unwrap_or("gone");
        Err(Failure::failed("task", format!("task {id} is {state}: {reason}"), format!("see primus task {id}")))
    }
}

/// Will nothing happen to this task any more?
pub(super) fn has_ended(task: &Value) -> bool {
    !matches!(task["state"].as_str(), Some("queued" | "running"))
}

fn broken() -> Failure {
    Failure::failed("internal", "a part of this command has failed", "please report this")
}

/// Does somebody want this to end?
struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    fn listen() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Whoever asks twice does not want to wait for the farm.
            let again =
                signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&asked));
            let first = again.and_then(|_| signal_hook::flag::register(signal, Arc::clone(&asked)));
            first.map_err(|error| {
                Failure::failed("system", format!("signals cannot be heard: {error}"), "please report this")
            })?;
        }
        Ok(Self(asked))
    }

    fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
