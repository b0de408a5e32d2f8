//! What clap found wrong, in our words: one sentence that says what is wrong, and one that says what to do.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};
use primus_terminal::failure::Failure;

use super::Cli;

/// Explains what is wrong with the spelling of these words.
pub(super) fn explain(error: &Error, words: &[OsString]) -> Failure {
    let found = Found { error, words };
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => found.bad_value(),
        ErrorKind::UnknownArgument => found.unknown_argument(),
        ErrorKind::InvalidSubcommand => found.unknown_command(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            found.missing_command()
        }
        ErrorKind::MissingRequiredArgument => found.missing_argument(),
        ErrorKind::ArgumentConflict => found.conflict(),
        ErrorKind::InvalidUtf8 => Failure::usage("an argument is not valid UTF-8", "write it in plain characters"),
        _ => Failure::usage(found.first_line(), found.see_help()),
    }
}

struct Found<'a> {
    error: &'a Error,
    words: &'a [OsString],
}

impl Found<'_> {
    fn bad_value(&self) -> Failure {
        let argument = self.argument();
        let choices = self.list(ContextKind::ValidValue).join(", ");
        let hint = if choices.is_empty() { self.see_help() } else { format!("choose one of {choices}") };
        match self.text(ContextKind::InvalidValue).as_deref() {
            None | Some("") => Failure::usage(format!("{argument} needs a value"), hint),
            Some(value) => Failure::usage(format!("'{value}' is not a value for {argument}"), hint),
        }
    }

    fn unknown_argument(&self) -> Failure {
        let (argument, (_, command)) = (self.argument(), self.command());
        let hint = primus_simulate::args::moved(command.get_name(), &argument);
        let hint = hint.or_else(|| of_workers(command.get_name(), &argument));
        let hint = hint.unwrap_or_else(|| self.suggestion(ContextKind::SuggestedArg));
        Failure::usage(format!("'{argument}' means nothing here"), hint)
    }

    fn unknown_command(&self) -> Failure {
        let command = self.text(ContextKind::InvalidSubcommand).unwrap_or_default();
        let (_, parent) = self.command();
        let known = elsewhere(&command).filter(|_| parent.get_name() == Cli::command().get_name());
        let hint = known.map_or_else(|| self.suggestion(ContextKind::SuggestedSubcommand), str::to_owned);
        Failure::usage(format!("'{command}' is not a command"), hint)
    }

    fn missing_command(&self) -> Failure {
        let (path, command) = self.command();
        let choices: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        Failure::usage(format!("'{path}' is not complete"), format!("add {}", choices.join(" or ")))
    }

    fn missing_argument(&self) -> Failure {
        let missing = self.list(ContextKind::InvalidArg);
        let flags: Vec<&str> = missing.iter().map(|flag| flag_of(flag)).collect();
        let hint = format!("add {} ({})", missing.join(" "), self.see_help());
        Failure::usage(format!("{} is missing", flags.join(" and ")), hint)
    }

    fn conflict(&self) -> Failure {
        let argument = self.argument();
        let others = self.list(ContextKind::PriorArg);
        let others: Vec<&str> =
            others.iter().map(|other| flag_of(other)).filter(|other| *other != argument).collect();
        if others.is_empty() {
            return Failure::usage(format!("{argument} is given more than once"), "give it once");
        }
        let message = format!("{argument} and {} say different things", others.join(" and "));
        Failure::usage(message, "leave one out")
    }

    fn suggestion(&self, kind: ContextKind) -> String {
        // Of several suggestions the last is the nearest.
        self.list(kind).pop().map_or_else(|| self.see_help(), |other| format!("did you mean {other}?"))
    }

    fn argument(&self) -> String {
        self.text(ContextKind::InvalidArg).as_deref().map(flag_of).unwrap_or_default().to_string()
    }

    fn see_help(&self) -> String {
        format!("see {} --help", self.command().0)
    }

    /// The command that was meant, as far as it was typed.
    fn command(&self) -> (String, Command) {
        let mut path = String::from("primus");
        let mut command = Cli::command();
        for word in self.words.iter().skip(1).filter_map(|word| word.to_str()) {
            let Some(part) = command.find_subcommand(word).cloned() else { continue };
            path = format!("{path} {word}");
            command = part;
        }
        (path, command)
    }

    fn first_line(&self) -> String {
        let text = self.error.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_string()
    }

    fn text(&self, kind: ContextKind) -> Option<String> {
        self.list(kind).into_iter().next()
    }

    fn list(&self, kind: ContextKind) -> Vec<String> {
        match self.error.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            _ => Vec::new(),
        }
    }
}

/// What other tools call what primus does: HyperQueue, Nomad, kubectl, and the batch systems before them.
fn elsewhere(command: &str) -> Option<&'static str> {
    Some(match command {
        "ps" | "list" | "ls" | "get" | "squeue" | "qstat" | "bjobs" => {
            "primus jobs lists jobs, primus tasks lists tasks"
        }
        "info" | "describe" | "show" | "inspect" => "primus job 12 shows a job, primus task 12.7 a task",
        "cat" | "output" | "log" => "primus logs 12 shows what a job printed",
        "kill" | "stop" | "delete" | "scancel" | "qdel" | "bkill" => "primus cancel 12 ends a job",
        "sbatch" | "qsub" | "bsub" | "apply" | "dispatch" => "primus submit takes a command, once or many times",
        "exec" | "srun" => "primus run runs a command and shows what it prints",
        "nodes" | "node" | "sinfo" => "primus workers lists workers, primus status servers",
        "top" | "progress" | "dashboard" | "monitor" => "primus status --watch shows what goes on",
        "cordon" => "primus drain w1 gives a worker nothing new",
        "uncordon" => "primus drain w1 --undo lets a worker have work again",
        "restart" | "rerun" => "primus retry 12 runs again what ended badly",
        "completion" | "autocomplete" | "generate-completion" => "did you mean completions?",
        "version" => "primus --version says it",
        _ => return None,
    })
}

/// `primus worker` runs one; people who want to see one type it, too.
fn of_workers(command: &str, argument: &str) -> Option<String> {
    let is_name = command == "worker" && !argument.starts_with('-');
    let hint = match argument {
        "list" | "ls" => "primus workers lists workers".to_owned(),
        "stop" | "drain" => "primus drain w1 gives a worker nothing new".to_owned(),
        _ => format!("primus workers {argument} shows a worker"),
    };
    is_name.then_some(hint)
}

/// Clap shows how the value looks, too: `--rank <RANK>`.
fn flag_of(argument: &str) -> &str {
    argument.split(' ').next().unwrap_or(argument)
}
