//! What clap found wrong, in our words: one sentence that says what is wrong, and one that says what to do.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::output::failure::Failure;

/// Explains an error of the command line's spelling.
pub(super) fn explain(error: &Error) -> Failure {
    let found = Found(error);
    match error.kind() {
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => found.bad_value(),
        ErrorKind::UnknownArgument => found.unknown_argument(),
        ErrorKind::InvalidSubcommand => found.unknown_command(),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            found.missing_command()
        }
        ErrorKind::MissingRequiredArgument => found.missing_argument(),
        ErrorKind::ArgumentConflict => {
            Failure::usage(format!("{} is given more than once", found.argument()), "give it once")
        }
        ErrorKind::InvalidUtf8 => Failure::usage("an argument is not valid UTF-8", "write it in plain characters"),
        _ => Failure::usage(found.first_line(), found.see_help()),
    }
}

struct Found<'a>(&'a Error);

impl Found<'_> {
    fn bad_value(&self) -> Failure {
        let argument = self.argument();
        let choices = self.list(ContextKind::ValidValue).join(", ");
        let hint = if choices.is_empty() { self.see_help() } else { format!("choose one of {choices}") };
        match self.text(ContextKind::InvalidValue).as_deref() {
            None | Some("") => Failure::usage(format!("{argument} needs a value"), hint),
            Some(value) => Failure::usage(format!("'{value}' is no value for {argument}"), hint),
        }
    }

    fn unknown_argument(&self) -> Failure {
        let argument = self.argument();
        let hint = match self.text(ContextKind::SuggestedArg) {
            Some(other) => format!("did you mean {other}?"),
            None => self.see_help(),
        };
        Failure::usage(format!("'{argument}' means nothing here"), hint)
    }

    fn unknown_command(&self) -> Failure {
        let command = self.text(ContextKind::InvalidSubcommand).unwrap_or_default();
        let hint = match self.list(ContextKind::SuggestedSubcommand).first() {
            Some(other) => format!("did you mean {other}?"),
            None => self.see_help(),
        };
        Failure::usage(format!("there is no command '{command}' here"), hint)
    }

    fn missing_command(&self) -> Failure {
        let choices = match self.list(ContextKind::ValidSubcommand) {
            choices if choices.is_empty() => self.see_help(),
            choices => {
                let choices: Vec<_> = choices.into_iter().filter(|choice| choice != "help").collect();
                format!("add {}", choices.join(" or "))
            }
        };
        Failure::usage("the command is not complete", choices)
    }

    fn missing_argument(&self) -> Failure {
        let missing = self.list(ContextKind::InvalidArg).join(" and ");
        Failure::usage(format!("{missing} is missing"), self.see_help())
    }

    fn argument(&self) -> String {
        let text = self.text(ContextKind::InvalidArg).unwrap_or_default();
        // Clap shows how the value looks, too: `--rank <RANK>`.
        text.split(' ').next().unwrap_or_default().to_string()
    }

    /// The usage names the command, its arguments follow.
    fn see_help(&self) -> String {
        let usage = self.0.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
        let words = usage.split_whitespace().skip_while(|word| *word != "primus");
        let command: Vec<&str> = words.take_while(|word| word.chars().all(|c| c.is_ascii_lowercase())).collect();
        let command = if command.is_empty() { "primus".to_string() } else { command.join(" ") };
        format!("see {command} --help")
    }

    fn first_line(&self) -> String {
        let text = self.0.render().to_string();
        let line = text.lines().next().unwrap_or_default();
        line.strip_prefix("error: ").unwrap_or(line).to_string()
    }

    fn text(&self, kind: ContextKind) -> Option<String> {
        self.list(kind).into_iter().next()
    }

    fn list(&self, kind: ContextKind) -> Vec<String> {
        match self.0.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            _ => Vec::new(),
        }
    }
}
