//! The command line as a whole, as it is shown: help texts that fit any terminal, and the arguments of the commands that print
//! completions and manual pages of it.

use std::borrow::Cow;
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Args, Command, CommandFactory, ValueEnum};

use super::Cli;

/// Longer lines are hard to read, however wide the terminal is.
const WIDTH_MAX: usize = 120;

/// A shell that can complete commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, Clone, PartialEq, Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder [default: print the page of primus]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// The definition of the command line, with texts that clap wraps for any terminal.
pub(crate) fn program() -> Command {
    flow(Cli::command()).max_term_width(WIDTH_MAX)
}

/// Texts are written in lines that fit an editor. Here the lines of a paragraph become one, so that only the terminal breaks it.
fn flow(mut command: Command) -> Command {
    if let Some(text) = command.get_after_help().map(StyledStr::to_string) {
        command = command.after_help(joined(&text));
    }
    let names: Vec<String> = command.get_subcommands().map(|part| part.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| command.mut_subcommand(name, flow))
}

/// Lines that begin at the margin belong to a paragraph; what is indented, or follows a line that ends in a colon, stands as it is.
fn joined(text: &str) -> String {
    let mut lines: Vec<Cow<'_, str>> = Vec::new();
    for line in text.lines() {
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        match lines.last_mut() {
            Some(last) if is_prose(last) && is_prose(line) => *last = Cow::Owned(format!("{last} {line}")),
            _ => lines.push(Cow::Borrowed(line)),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_paragraph_become_one() {
        let text =
            "It prints\nwho leads.\nA file:\n  [server]\n  id = 1\n\nExamples:\n  primus up\n  primus up --farms 2";
        let expected =
            "It prints who leads. A file:\n  [server]\n  id = 1\n\nExamples:\n  primus up\n  primus up --farms 2";
        assert_eq!(joined(text), expected);
    }

    /// The help texts of all commands, at this width.
    fn helps(width: usize) -> Vec<(String, String)> {
        let mut open = vec![(String::from("primus"), program())];
        let mut helps = Vec::new();
        while let Some((path, command)) = open.pop() {
            let text = command.clone().term_width(width).render_long_help().to_string();
            helps.push((path.clone(), text));
            open.extend(
                command.get_subcommands().map(|part| (format!("{path} {}", part.get_name()), part.clone())),
            );
        }
        helps
    }

    #[test]
    fn help_fits_terminals_of_80_and_120_characters() {
        for width in [80, 120] {
            for (path, text) in helps(width) {
                // A long example is copied whole, and clap does not wrap its line of usage.
                let is_whole = |line: &&str| line.trim_start().starts_with("primus ") || line.starts_with("Usage:");
                let long = text.lines().filter(|line| !is_whole(line)).find(|line| line.chars().count() > width);
                assert_eq!(long, None, "{path} --help at {width} characters");
            }
        }
    }

    #[test]
    fn no_paragraph_of_a_help_text_is_broken_early() {
        for (path, text) in helps(120) {
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let [line, next] = pair else { continue };
                let is_prose = |line: &str| line.starts_with(|c: char| c.is_alphabetic());
                let next_word = next.split(' ').next().unwrap_or_default();
                let has_room = line.chars().count() + 1 + next_word.chars().count() <= 120;
                assert!(!(is_prose(line) && is_prose(next) && has_room), "{path}: {line} | {next}");
            }
        }
    }
}
