//! The steps of the last elections, as text, numbered: what each server heard, and what it did then.
//!
//! Only steps about who leads are kept, so a server that keeps its leader adds nothing here. Signs of life are written down only
//! for as long as somebody wants to read every one of them in the log.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use primus_core::ServerId;
use primus_core::machine::{Input, Output};
use primus_server::told::{Telling, Told, Topic};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::events::text_of;

/// How many steps are kept: an election of nine servers takes about a hundred at each of them.
const STEPS_MAX: usize = 1000;
/// How many signs of life wait to be written to the log. What does not fit is not written.
const HEARTBEATS_MAX: usize = 1000;

/// No text of a step is longer: a peer may name a group as it likes.
const TEXT_LEN_MAX: usize = 4096;

/// One step of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its number; the next one has the next.
    pub index: u64,
    /// When.
    pub time: SystemTime,
    /// True if it is only a sign of life.
    pub is_heartbeat: bool,
    /// What went in and what followed, in the words of stories, without the server's name.
    pub text: String,
}

/// The last steps of a server.
#[derive(Debug)]
pub struct Steps {
    server: ServerId,
    kept: Mutex<Kept>,
    newest: watch::Sender<u64>,
    keeps_heartbeats: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    elections: VecDeque<Step>,
    heartbeats: VecDeque<Step>,
}

impl Steps {
    /// The steps of this server: none yet.
    pub(crate) fn new(server: ServerId) -> Self {
        let (kept, newest) = (Mutex::default(), watch::Sender::new(0));
        Self { server, kept, newest, keeps_heartbeats: AtomicBool::new(false) }
    }

    /// From now on signs of life are kept for the log, too.
    pub fn keep_heartbeats(&self) {
        self.keeps_heartbeats.store(true, Ordering::Relaxed);
    }

    /// A copy of an input whose step may be worth telling. The machine is about to take the input itself.
    pub(crate) fn copy_of<M: Telling>(machine: &M, input: &Input<M>) -> Option<Input<M>> {
        (!machine.is_routine(input)).then(|| input.clone())
    }

    /// Adds a step that was just taken, if it is one of an election.
    pub(crate) fn add<M: Telling>(&self, input: &Input<M>, outputs: &[Output<M>]) {
        let told = Told { input, outputs };
        match told.topic() {
            Topic::Other => {}
            Topic::Election => self.keep(text_of_step(&told), false),
            Topic::Heartbeat | Topic::Reminder => {
                if self.keeps_heartbeats.load(Ordering::Relaxed) {
                    self.keep(text_of_step(&told), true);
                }
            }
        }
    }

    fn keep(&self, text: String, is_heartbeat: bool) {
        // Two threads add: the one that holds this gives the next number, and announces it.
        let mut kept = self.kept.lock().expect("nobody panics while holding this");
        let index = *self.newest.borrow() + 1;
        let (steps, most) = match is_heartbeat {
            true => (&mut kept.heartbeats, HEARTBEATS_MAX),
            false => (&mut kept.elections, STEPS_MAX),
        };
        if steps.len() == most {
            steps.pop_front();
        }
        steps.push_back(Step { index, time: SystemTime::now(), is_heartbeat, text });
        self.newest.send_replace(index);
    }

    /// The steps of elections after the one of this number, as far as they are kept.
    #[must_use]
    pub fn after(&self, index: u64) -> Vec<Step> {
        let kept = self.kept.lock().expect("nobody panics while holding this");
        kept.elections.iter().filter(|step| step.index > index).cloned().collect()
    }

    /// Everything after the step of this number, in order. Signs of life are told once.
    #[must_use]
    pub fn all_after(&self, index: u64) -> Vec<Step> {
        let mut kept = self.kept.lock().expect("nobody panics while holding this");
        let mut steps: Vec<Step> = kept.heartbeats.drain(..).filter(|step| step.index > index).collect();
        steps.extend(kept.elections.iter().filter(|step| step.index > index).cloned());
        drop(kept);
        steps.sort_by_key(|step| step.index);
        steps
    }

    /// Announces the number of the newest step.
    #[must_use]
    pub fn newest(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// A step as scripts see it: one object.
    #[must_use]
    pub fn object(&self, step: &Step) -> Value {
        let kind = if step.is_heartbeat { "heartbeat" } else { "election_step" };
        let line = format!("{}: {}", self.server, step.text);
        json!({ "index": step.index, "time": text_of(step.time), "kind": kind, "server": self.server.0, "step": line })
    }
}

/// The text of a step, cut where it is too long.
fn text_of_step(told: &impl fmt::Display) -> String {
    struct Text(String);

    impl Write for Text {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            let room = TEXT_LEN_MAX - self.0.len();
            let end = part.floor_char_boundary(room);
            self.0.push_str(&part[..end]);
            if end < part.len() { Err(fmt::Error) } else { Ok(()) }
        }
    }

    let mut text = Text(String::new());
    let is_whole = write!(text, "{told}").is_ok();
    if is_whole { text.0 } else { text.0 + "…" }
}

#[cfg(test)]
mod tests {
    use primus_core::election;
    use primus_core::load::Score;
    use primus_core::machine::Delay;
    use primus_server::groups::{Command, Groups, Said, Timer};

    use super::*;

    fn beat(number: u32) -> Input<Groups> {
        Input::Message {
            from: ServerId(2),
            message: Said::Here { score: Score::from_hundredths(number), leads: None },
        }
    }

    /// A step of an election: the first timer is set.
    fn boot() -> (Input<Groups>, [Output<Groups>; 1]) {
        let timer = Timer::Election(0, election::Timer::Startup);
        (Input::Command(Command::Boot), [Output::Set { timer, delay: Delay::exactly_ms(50) }])
    }

    fn texts(steps: Vec<Step>) -> Vec<String> {
        steps.into_iter().map(|step| step.text).collect()
    }

    #[test]
    fn signs_of_life_are_kept_only_if_somebody_reads_them() {
        let steps = Steps::new(ServerId(1));
        let (input, outputs) = boot();
        steps.add(&beat(1), &[]);
        steps.add(&input, &outputs);
        assert_eq!(texts(steps.all_after(0)), ["boot -> set startup of group 0"]);
        steps.keep_heartbeats();
        steps.add(&beat(2500), &[]);
        steps.add(&Input::<Groups>::Timer(Timer::Beat), &[]);
        assert_eq!(texts(steps.all_after(1)), ["from 2 here 25.00 -> nothing", "timer beat -> nothing"]);
        assert_eq!(texts(steps.after(0)), ["boot -> set startup of group 0"], "people ask for elections");
    }

    #[test]
    fn a_text_without_end_is_cut() {
        let long = text_of_step(&"ä".repeat(TEXT_LEN_MAX));
        assert_eq!(long.chars().count(), TEXT_LEN_MAX / 2 + 1);
        assert_eq!(text_of_step(&"boot -> nothing"), "boot -> nothing");
    }

    #[test]
    fn what_changes_nothing_is_no_step() {
        let steps = Steps::new(ServerId(1));
        steps.add(&Input::<Groups>::Command(Command::Gone(ServerId(2))), &[]);
        assert_eq!(steps.after(0), []);
    }

    #[test]
    fn only_the_last_steps_are_kept_and_their_numbers_go_on() {
        let steps = Steps::new(ServerId(1));
        let (input, outputs) = boot();
        for _ in 0..STEPS_MAX + 5 {
            steps.add(&input, &outputs);
        }
        let kept = steps.after(0);
        assert_eq!((kept.len(), kept[0].index), (STEPS_MAX, 6));
        assert_eq!(steps.object(&kept[0])["step"], "1: boot -> set startup of group 0");
    }
}
