//! `primus demo`: a tour of elections that checks what it shows.
//!
//! First come simulations: every scene is a command line that anybody can type. The demo runs it through the same code,
//! shows some of its story, and makes a claim that is computed from the report. Then come real servers and
//! workers, and claims that are computed from their answers; at the end two farms, of which one borrows workers of the
//! other. Nothing is claimed that was not checked.

mod guard;
mod lending;
mod real;
mod simulated;
mod work;

use primus_terminal::failure::Failure;
use primus_terminal::format::nothing_to_draw;
use primus_terminal::screen::{self, FAINT, STRONG, mark, styled};
use primus_terminal::{Format, Verdict, json};
use real::{ACTS, RealTour};
use serde::Serialize;
use simulated::{SCENES, Shown};

/// What to try next.
const NEXT: &str = "\
Next:  primus up                    a farm that stays; Ctrl-C ends it
       primus run -- uname -a       in a second terminal
       primus up --farms 2          two that lend each other workers: primus loans --farm north
       primus chaos kill leader     and watch:  primus status --watch
       primus bench failover        how fast another one leads, here
       primus simulate ring --ids 5,3,7,1,4 --start 1
       primus simulate bully --nodes 1,2,3,4,5 --crash 5 --seeds 10000
       primus simulate bully --nodes 1,2,3 --partition '1,2|3@2s..5s' -o mermaid
       primus --help                everything else
";

#[derive(Serialize)]
struct Tour {
    scenes: Vec<Seen>,
    held: bool,
}

#[derive(Serialize)]
struct Seen {
    title: &'static str,
    command: String,
    claim: String,
    held: bool,
}

/// Plays all scenes.
pub(super) fn run(format: Format) -> Result<Verdict, Failure> {
    match format {
        Format::Text => run_text(),
        Format::Json => run_json(),
        Format::Mermaid => Err(nothing_to_draw("the demo")),
    }
}

fn run_text() -> Result<Verdict, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    screen::print(&format!(
        "primus {version} demo: simulated elections, then {} real servers and {} workers, then two such farms, loopback \
         only, gone when it ends\n",
        real::SERVERS,
        real::WORKERS
    ))?;
    let mut number = 0;
    // Said before it is done, so that nobody wonders what takes its time.
    let open = |title: &str, command: &str| {
        number += 1;
        screen::print(&opening(number, title, command))
    };
    let seen = tour(open, |shown| screen::print(&closing(shown)))?;
    let (held, all) = (seen.iter().filter(|seen| seen.held).count(), SCENES.len() + ACTS.len());
    let summary = format!("{} {held} of {all} claims held", mark(held == all));
    screen::print(&format!("\n{summary}; they were computed from what happened, not from this text.\n\n{NEXT}"))?;
    Ok(Verdict::of(held == all))
}

fn run_json() -> Result<Verdict, Failure> {
    let scenes = tour(|_, _| Ok(()), |_| Ok(()))?;
    let held = scenes.len() == SCENES.len() + ACTS.len() && scenes.iter().all(|scene| scene.held);
    screen::print(&json::line(&Tour { scenes, held }))?;
    Ok(Verdict::of(held))
}

/// Plays everything. It ends early when something cannot even be tried: what comes later needs it.
fn tour(
    mut open: impl FnMut(&str, &str) -> Result<(), Failure>,
    close: impl Fn(&Shown) -> Result<(), Failure>,
) -> Result<Vec<Seen>, Failure> {
    let mut all = Vec::new();
    for scene in SCENES {
        open(scene.title, scene.command)?;
        let shown = scene.play()?;
        close(&shown)?;
        all.push(Seen::new(scene.title, scene.command.to_string(), shown));
    }
    let mut play = RealTour::default();
    for act in ACTS {
        let command = (act.command)(&play);
        open(act.title, &command)?;
        let played = act.play(&mut play);
        let can_go_on = played.is_ok();
        let shown = played.unwrap_or_else(|failed| failed);
        close(&shown)?;
        all.push(Seen::new(act.title, command, shown));
        if !can_go_on {
            break;
        }
    }
    Ok(all)
}

impl Seen {
    fn new(title: &'static str, command: String, shown: Shown) -> Self {
        Self { title, command, claim: shown.claim, held: shown.held }
    }
}

fn opening(number: usize, title: &str, command: &str) -> String {
    format!("\n{}\n   {}\n", styled(STRONG, &format!("{number}. {title}")), styled(FAINT, &format!("$ {command}")))
}

fn closing(shown: &Shown) -> String {
    let lines: String = shown.lines.iter().map(|line| format!("   {line}\n")).collect();
    format!("{lines} {} {}\n", mark(shown.held), shown.claim)
}
