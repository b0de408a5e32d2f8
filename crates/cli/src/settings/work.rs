//! What `primus run` and `primus submit` were asked to run, checked as far as that is possible here.
//!
//! A server checks it again; but what is wrong on this side, such as a file that cannot be read, only we can say.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use primus_core::ledger::job::Lines;
use primus_core::limits::IDEMPOTENCY_KEY_LEN_MAX;
use primus_shapes::submission::{LINES_LEN_MAX, STDIN_LEN_MAX, Submission};
use primus_terminal::amounts::{length, number, quoted};
use primus_terminal::failure::Failure;
use uuid::Uuid;

use crate::args::{RunArgs, SubmitArgs, WorkArgs};

/// A job, and the key under which it exists once.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) submission: Submission,
    pub(crate) key: String,
}

impl Wish {
    /// One command. `here`: does the farm run on this host?
    pub(crate) fn of_run(args: &RunArgs, here: bool) -> Result<Self, Failure> {
        let mut wish = Self::new(&args.work, here)?;
        wish.submission.command.clone_from(&args.command);
        wish.checked()
    }

    /// One job of any kind.
    pub(crate) fn of_submit(args: &SubmitArgs, here: bool) -> Result<Self, Failure> {
        let mut wish = Self::new(&args.work, here)?;
        let reads_twice = args.each_line.as_deref() == Some("-") && args.work.stdin.as_deref() == Some("-");
        if reads_twice {
            let message = "--each-line and --stdin cannot both read what comes in";
            return Err(Failure::usage(message, "put one of them into a file"));
        }
        let submission = &mut wish.submission;
        submission.command.clone_from(&args.command);
        submission.kind.clone_from(&args.kind);
        submission.input.clone_from(&args.input);
        submission.array.clone_from(&args.array);
        submission.lines = args.each_line.as_deref().map(lines).transpose()?;
        if submission.kind.is_some() {
            submission.cwd = None;
        }
        wish.checked()
    }

    fn new(args: &WorkArgs, here: bool) -> Result<Self, Failure> {
        let within = |flag: &str, text: &Option<String>, max: u64| {
            text.as_deref().map(|text| number(flag, text, 0, max)).transpose()
        };
        let mut submission = Submission {
            name: args.name.clone(),
            retries: within("--retries", &args.retries, 255)?.unwrap_or(0) as u8,
            timeout_ms: args.timeout.as_deref().map(timeout_ms).transpose()?,
            no_rerun: args.no_rerun,
            priority: args.priority.as_deref().map_or(Ok(0), priority)?,
            cpus: within("--cpus", &args.cpus, u64::from(u16::MAX))?.map(|cpus| cpus as u16),
            nice: within("--nice", &args.nice, 19)?.unwrap_or(0) as u8,
            cwd: folder(args.cwd.as_deref(), here)?,
            ..Submission::default()
        };
        for variable in &args.environment {
            let (name, value) = variable.split_once('=').ok_or_else(|| {
                Failure::usage(format!("--env is {}", quoted(variable)), "write it like --env COLOUR=blue")
            })?;
            submission.env.insert(name.to_owned(), value.to_owned());
        }
        if let Some(file) = &args.stdin {
            submission.set_stdin(bytes(file)?);
        }
        Ok(Self { submission, key: args.key.as_deref().map_or_else(|| Ok(fresh_key()), key)? })
    }

    /// Sooner or later a server would say the same. How many tasks there may be, only it knows.
    fn checked(self) -> Result<Self, Failure> {
        let checked = self.submission.clone().spec(u64::MAX);
        checked.map(|_| self).map_err(|(message, hint)| Failure::usage(message, hint))
    }
}

pub(crate) fn fresh_key() -> String {
    Uuid::now_v7().to_string()
}

fn key(text: &str) -> Result<String, Failure> {
    let is_plain = !text.is_empty()
        && text.len() <= IDEMPOTENCY_KEY_LEN_MAX
        && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain {
        return Ok(text.to_owned());
    }
    let hint = format!("use up to {IDEMPOTENCY_KEY_LEN_MAX} plain characters without spaces");
    Err(Failure::usage(format!("--key is {}", quoted(text)), hint))
}

fn timeout_ms(text: &str) -> Result<u64, Failure> {
    let time = length("--timeout", text)?;
    u64::try_from(time.as_millis())
        .ok()
        .filter(|time| *time > 0)
        .ok_or_else(|| Failure::usage(format!("--timeout is {}", quoted(text)), "give it a millisecond at least"))
}

fn priority(text: &str) -> Result<i16, Failure> {
    let wrong =
        || Failure::usage(format!("--priority is {}", quoted(text)), "give a whole number from -1000 to 1000");
    text.trim().parse().map_err(|_| wrong())
}

/// A path means something only where it was typed, so a farm on this host gets it in full.
fn folder(typed: Option<&str>, here: bool) -> Result<Option<String>, Failure> {
    if !here {
        return Ok(typed.map(str::to_owned));
    }
    let current = std::env::current_dir().map_err(|error| {
        Failure::usage(format!("this folder cannot be used: {error}"), "go to another one, or say --cwd DIR")
    })?;
    let folder = typed.map_or_else(|| current.clone(), |typed| current.join(typed));
    let named = || format!("{} is not UTF-8 text", folder.display());
    Ok(Some(folder.to_str().ok_or_else(|| Failure::usage(named(), "choose another folder with --cwd"))?.to_owned()))
}

fn open(file: &str) -> Result<Box<dyn Read>, Failure> {
    match file {
        "-" => Ok(Box::new(io::stdin().lock())),
        _ => Ok(Box::new(File::open(file).map_err(|error| unreadable(file, &error))?)),
    }
}

fn unreadable(file: &str, error: &io::Error) -> Failure {
    Failure::usage(format!("{} cannot be read: {error}", quoted(file)), "check the path")
}

/// What a file holds, if that is not too much for a task to read.
fn bytes(file: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let limited = open(file)?.take(STDIN_LEN_MAX as u64 + 1).read_to_end(&mut bytes);
    limited.map_err(|error| unreadable(file, &error))?;
    if bytes.len() > STDIN_LEN_MAX {
        let message = format!("{} has more than {STDIN_LEN_MAX} bytes", quoted(file));
        return Err(Failure::usage(message, "let the command read it from a file"));
    }
    Ok(bytes)
}

fn lines(file: &str) -> Result<Lines, Failure> {
    let mut lines = Lines::default();
    for line in BufReader::new(open(file)?).lines() {
        let line = line.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                let message = format!("line {} of {} is not UTF-8 text", lines.len() + 1, quoted(file));
                Failure::usage(message, "write it in plain characters")
            }
            _ => unreadable(file, &error),
        })?;
        if !lines.push(&line) || lines.text_len() > LINES_LEN_MAX {
            let message = format!("the lines of {} have more than {LINES_LEN_MAX} bytes", quoted(file));
            return Err(Failure::usage(message, "split them over several jobs"));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_plain_and_fresh_ones_differ() {
        assert_ne!(fresh_key(), fresh_key());
        assert!(key(&fresh_key()).is_ok() && key("invoice-2026/01").is_ok());
        for text in ["", "a b", "ü", "a\r\nx: y", &"x".repeat(201)] {
            assert!(key(text).is_err(), "{text}");
        }
    }

    #[test]
    fn folders_are_meant_where_they_are_typed() {
        let here = std::env::current_dir().unwrap().to_str().unwrap().to_owned();
        assert_eq!(folder(None, true).unwrap(), Some(here.clone()));
        assert_eq!(folder(Some("sub"), true).unwrap(), Some(format!("{here}/sub")));
        assert_eq!(folder(Some("/tmp"), true).unwrap(), Some("/tmp".to_owned()));
        assert_eq!(folder(None, false).unwrap(), None);
        assert_eq!(folder(Some("sub"), false).unwrap(), Some("sub".to_owned()));
    }
}
