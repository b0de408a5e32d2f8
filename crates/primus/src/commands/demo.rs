//! `primus demo`: a tour of elections that checks what it shows.
//!
//! Every scene is a command line that anybody can type. The demo runs it through the same code, shows some of its
//! story, and makes a claim that is computed from the report; nothing is claimed that was not checked.

mod scenes;

use serde::Serialize;

use super::{Verdict, nothing_to_draw};
use crate::args::Format;
use crate::output::failure::Failure;
use crate::output::screen::{FAINT, STRONG, mark, styled};
use crate::output::{json, screen};
use scenes::{SCENES, Scene, Shown};

/// What to try next.
const NEXT: &str = "\
Next:  primus simulate ring --ids 5,3,7,1,4 --start 1
       primus simulate bully --nodes 1,2,3,4,5 --crash 5 --seeds 10000
       primus simulate bully --nodes 1,2,3 --partition '1,2|3@2s..5s' -o mermaid
       primus bench simulate        how fast this is here
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
    command: &'static str,
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
    screen::print(&format!("primus {version} demo: simulated elections, each one checked\n"))?;
    let mut held = 0;
    for (number, scene) in (1..).zip(SCENES) {
        // Said before it is done, so that nobody wonders what takes its time.
        screen::print(&opening(number, scene))?;
        let shown = scene.play()?;
        screen::print(&closing(&shown))?;
        held += usize::from(shown.held);
    }
    let all_held = held == SCENES.len();
    let summary = format!("{} {held} of {} claims held", mark(all_held), SCENES.len());
    screen::print(&format!("\n{summary}; they were computed from the runs, not from this text.\n\n{NEXT}"))?;
    Ok(Verdict::of(all_held))
}

fn opening(number: usize, scene: &Scene) -> String {
    format!(
        "\n{}\n   {}\n",
        styled(STRONG, &format!("{number}. {}", scene.title)),
        styled(FAINT, &format!("$ {}", scene.command))
    )
}

fn closing(shown: &Shown) -> String {
    let lines: String = shown.lines.iter().map(|line| format!("   {line}\n")).collect();
    format!("{lines} {} {}\n", mark(shown.held), shown.claim)
}

fn run_json() -> Result<Verdict, Failure> {
    let play = |scene: &'static Scene| {
        let Shown { claim, held, .. } = scene.play()?;
        Ok(Seen { title: scene.title, command: scene.command, claim, held })
    };
    let scenes = SCENES.iter().map(play).collect::<Result<Vec<_>, Failure>>()?;
    let held = scenes.iter().all(|scene| scene.held);
    screen::print(&json::line(&Tour { scenes, held }))?;
    Ok(Verdict::of(held))
}
