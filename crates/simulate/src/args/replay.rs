//! The command that runs one seed of an experiment again: what was typed, but for the seeds.

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

use super::Simulated;

/// What was typed after `primus simulate`, without seeds. It is part of the arguments, and adds no flag to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Replay {
    /// What is simulated: `ring`, `cluster`, …
    pub(crate) name: String,
    /// The flags, as a shell must see them.
    flags: String,
}

impl Replay {
    /// The command line that gives the run of this seed.
    pub(crate) fn line(&self, seed: u64) -> String {
        format!("primus simulate {}{} --seed {seed}", self.name, self.flags)
    }
}

impl Args for Replay {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Replay {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (name, typed) = matches.subcommand().unwrap_or(("", matches));
        let all = Simulated::augment_subcommands(Command::new("simulate"));
        let arguments = all.find_subcommand(name).into_iter().flat_map(Command::get_arguments);
        let flags =
            arguments.flat_map(|argument| words_of(argument, typed)).map(|word| format!(" {}", quoted(&word)));
        Ok(Self { name: name.to_owned(), flags: flags.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A flag, as often as it was typed, each time with its values.
fn words_of(argument: &Arg, typed: &ArgMatches) -> Vec<String> {
    let id = argument.get_id().as_str();
    let is_typed = typed.value_source(id) == Some(ValueSource::CommandLine) && !["seed", "seeds"].contains(&id);
    let Some(flag) = argument.get_long().filter(|_| is_typed).map(|long| format!("--{long}")) else {
        return vec![];
    };
    if !argument.get_action().takes_values() {
        return vec![flag];
    }
    let values = typed.get_raw_occurrences(id).into_iter().flatten();
    let values = values.map(|values| values.map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(","));
    values.flat_map(|value| [flag.clone(), value]).collect()
}

/// The word as a shell must see it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:@%+/=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::SimulateArgs;

    /// As a shell would split it, with quotes around whole words only.
    fn read(line: &str) -> SimulateArgs {
        let words: Vec<&str> = line.split(' ').map(|word| word.trim_matches('\'')).collect();
        SimulateArgs::read(&words).expect("the words make sense")
    }

    #[test]
    fn the_replay_means_what_was_typed() {
        for (line, seeds) in [
            ("ring --ids 5,3,7 --winner highest --start 1,3 --start 2 --crash 1@2s --loss 0.1", ""),
            ("ring --ids 5,3 --partition 1|2@1s..2s --partition 2|1 --delay 1..5ms --faults all", " --seeds 9"),
            ("bully --nodes a,b --rank load --loads 3,4 --crash a --preempt false --asking one-by-one", ""),
            ("bully --nodes 1,2,3 --crash 3 --unnoticed --start 1", " --seed 4 --seeds 2"),
            ("cluster", ""),
            ("cluster --servers 5 --faults crashes,disks", " --seeds 100"),
            ("farm --servers 5 --workers 7 --faults all", ""),
            ("lending --farms 4 --servers 1 --workers 2 --faults partitions", ""),
            ("leases --servers 3 --guards 6 --groups 2", " --seed 3"),
        ] {
            let typed = read(&format!("primus simulate {line}{seeds}"));
            assert_eq!(read(&typed.replay.line(17)), read(&format!("primus simulate {line} --seed 17")));
        }
    }

    #[test]
    fn what_a_shell_would_misread_is_quoted() {
        assert_eq!(quoted("1,2|3@2s..5s"), "'1,2|3@2s..5s'");
        assert_eq!(quoted("1, 2"), "'1, 2'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("172.18.0.9:80"), "172.18.0.9:80");
    }
}
