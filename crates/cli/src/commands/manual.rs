//! `primus completions` and `primus man`: what shells and `man` know of the commands, from the definitions that read them.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_complete::Shell as Known;
use clap_mangen::Man;
use primus_terminal::failure::Failure;
use primus_terminal::{Format, Verdict};
use serde_json::json;

use crate::args::{Shell, program};

const NAME: &str = "primus";

/// Prints the script for a shell.
pub(super) fn completions(shell: Shell, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let (known, name) = match shell {
        Shell::Bash => (Known::Bash, "bash"),
        Shell::Zsh => (Known::Zsh, "zsh"),
        Shell::Fish => (Known::Fish, "fish"),
    };
    let mut script = Vec::new();
    clap_complete::generate(known, &mut program(), NAME, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    let object = json!({ "shell": name, "script": script });
    format.show(|| script, &object)?;
    Ok(Verdict::Held)
}

/// Prints the page of the program, or writes the pages of all commands into a folder.
pub(super) fn pages(dir: Option<&Path>, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    let Some(dir) = dir else {
        let page = page(NAME, program())?;
        let object = json!({ "name": NAME, "page": page });
        format.show(|| page, &object)?;
        return Ok(Verdict::Held);
    };
    fs::create_dir_all(dir).map_err(|error| not_written(dir, &error))?;
    let mut names = Vec::new();
    for (name, command) in commands() {
        let file = dir.join(format!("{name}.1"));
        fs::write(&file, page(&name, command)?).map_err(|error| not_written(&file, &error))?;
        names.push(name);
    }
    let object = json!({ "dir": dir, "pages": names });
    format.show(|| format!("{} pages are in {}\n", names.len(), dir.display()), &object)?;
    Ok(Verdict::Held)
}

/// The program and all its commands, named as their pages are: `primus-chaos-kill`.
fn commands() -> Vec<(String, Command)> {
    let mut found = Vec::new();
    let mut open = vec![(NAME.to_owned(), program())];
    while let Some((name, command)) = open.pop() {
        let parts = command.get_subcommands().filter(|part| !part.is_hide_set());
        open.extend(parts.map(|part| (format!("{name}-{}", part.get_name()), part.clone())));
        found.push((name, command));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

fn page(name: &str, command: Command) -> Result<String, Failure> {
    let mut page = Vec::new();
    let command = command.display_name(name).bin_name(name.replace('-', " ")).version(env!("CARGO_PKG_VERSION"));
    Man::new(command).render(&mut page).map_err(|error| Failure::output(&error))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

fn not_written(place: &Path, error: &std::io::Error) -> Failure {
    let message = format!("{} cannot be written: {error}", place.display());
    Failure::failed("file", message, "choose another folder with --dir")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_that_people_see_has_a_page() {
        let pages: Vec<String> = commands().into_iter().map(|(name, _)| name).collect();
        for name in ["primus", "primus-run", "primus-chaos-kill", "primus-kv-put"] {
            assert!(pages.iter().any(|page| page == name), "{name} is missing among {pages:?}");
        }
        assert!(!pages.iter().any(|page| page.contains("companion")), "{pages:?}");
        let text = page(
            "primus-run",
            commands().into_iter().find(|(name, _)| name == "primus-run").expect("it is there").1,
        );
        let text = text.expect("a page is text");
        assert!(text.contains("primus run") && text.contains("Examples"), "{text}");
    }
}
