//! A job as it is submitted: the object that clients send and servers read.
//!
//! Servers read what anybody sends, so everything here has a limit, and what is wrong is said in one sentence.

mod texts;

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use primus_core::ledger::job::Lines;
use primus_core::ledger::{CommandLine, Expansion, Spec, Work};
use serde::{Deserialize, Serialize};

use crate::described;
use crate::objects::unique;
use crate::schema::{Text, Within};

/// How long a command may be, its environment included: a worker's companion takes no more.
pub const COMMAND_LEN_MAX: usize = 768 << 10;
/// How much it may read.
pub const STDIN_LEN_MAX: usize = 1 << 20;
/// How long all lines may be together.
pub const LINES_LEN_MAX: usize = 48 << 20;
/// How long all of that may be as JSON, in which a byte can take several.
pub const BODY_LEN_MAX: usize = 96 << 20;
const NAME_LEN_MAX: usize = 200;
const PRIORITY_MAX: i16 = 1000;
const NICE_MAX: u8 = 19;
/// How long a task may take, as on the command line.
const TIMEOUT_MS_MAX: u64 = 24 * 3600 * 1000;

/// What is wrong, and what to do.
pub type Mistake = (String, &'static str);

described! {
    /// A job as it is submitted.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    pub struct Submission {
        /// A program and its arguments; this or kind must be given.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub command: Vec<String>,
        /// Instead of a program: the name under which workers have the code.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub kind: Option<String>,
        /// What that code is given; only with kind.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub input: Option<String>,
        /// The name of the job, for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String> as Option<Text<0, NAME_LEN_MAX>>,
        /// One task for each number: `1-1000`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub array: Option<String>,
        /// One task for each line.
        #[serde(skip_serializing_if = "Option::is_none", with = "texts")]
        pub lines: Option<Lines> as Option<Vec<String>>,
        /// How often a task that fails is tried again; 0 unless another number is given.
        #[serde(skip_serializing_if = "is_default")]
        pub retries: u8,
        /// How long a task may run; without it, for ever.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub timeout_ms: Option<u64> as Option<Within<1, { TIMEOUT_MS_MAX as i64 }>>,
        /// True if a task that may have begun must not begin again.
        #[serde(skip_serializing_if = "is_default")]
        pub no_rerun: bool,
        /// Tasks with a greater number go first; 0 unless another number is given.
        #[serde(skip_serializing_if = "is_default")]
        pub priority: i16 as Within<{ -(PRIORITY_MAX as i64) }, { PRIORITY_MAX as i64 }>,
        /// How many slots a task takes; 1 unless another number is given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cpus: Option<u16> as Option<Within<1, 65535>>,
        /// How far the program steps back behind others on its host; 0 unless another number is given.
        #[serde(skip_serializing_if = "is_default")]
        pub nice: u8 as Within<0, { NICE_MAX as i64 }>,
        /// Environment variables, beside those that every task has.
        #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "unique")]
        pub env: BTreeMap<String, String>,
        /// The folder in which the program starts.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cwd: Option<String>,
        /// Standard input, if it is text.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stdin: Option<String>,
        /// Standard input as base64, if it is not text; up to 1 MiB of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stdin_base64: Option<String>,
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Submission {
    /// What it reads, in the form in which that survives.
    pub fn set_stdin(&mut self, bytes: Vec<u8>) {
        match String::from_utf8(bytes) {
            Ok(text) => self.stdin = Some(text),
            Err(error) => self.stdin_base64 = Some(STANDARD.encode(error.as_bytes())),
        }
    }

    /// The job that this asks for, if it makes sense. `tasks_max`: how many tasks a job may have.
    pub fn spec(mut self, tasks_max: u64) -> Result<Spec, Mistake> {
        self.check()?;
        let expansion = self.expansion(tasks_max)?;
        let name = self.name.take().unwrap_or_default();
        let Self { retries, timeout_ms, no_rerun, priority, cpus, .. } = self;
        let spec = Spec {
            name,
            expansion,
            retries,
            timeout_ms,
            is_once: no_rerun,
            priority,
            cpus: cpus.unwrap_or(1),
            work: self.work()?,
        };
        Ok(spec)
    }

    fn check(&self) -> Result<(), Mistake> {
        if self.name.as_ref().is_some_and(|name| name.len() > NAME_LEN_MAX) {
            return wrong("the name is longer than 200 bytes", "shorten it");
        }
        if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&self.priority) {
            return wrong(format!("priority is {}", self.priority), "give a whole number from -1000 to 1000");
        }
        if self.nice > NICE_MAX {
            return wrong(format!("nice is {}", self.nice), "give a whole number from 0 to 19");
        }
        if self.cpus == Some(0) {
            return wrong("cpus is 0", "a task takes one slot at least");
        }
        if self.cwd.as_deref() == Some("") {
            return wrong("cwd is empty", "name a folder, or leave it out");
        }
        if self.timeout_ms == Some(0) {
            return wrong("timeout_ms is 0", "give it some time, or leave it out");
        }
        if let Some(timeout_ms) = self.timeout_ms.filter(|timeout_ms| *timeout_ms > TIMEOUT_MS_MAX) {
            return wrong(
                format!("timeout_ms is {timeout_ms}"),
                "give at most 86400000, which is 24 hours, or leave it out",
            );
        }
        self.check_length()
    }

    fn check_length(&self) -> Result<(), Mistake> {
        let single = [&self.kind, &self.input, &self.cwd].into_iter().flatten();
        let variables = self.env.iter().flat_map(|(name, value)| [name, value]);
        let command = self.command.iter().chain(single).chain(variables).map(String::len).sum();
        let lines = self.lines.as_ref().map_or(0, Lines::text_len);
        within("the command and its environment", command, COMMAND_LEN_MAX)?;
        within("the lines", lines, LINES_LEN_MAX)
    }

    fn expansion(&mut self, tasks_max: u64) -> Result<Expansion, Mistake> {
        let expansion = match (&self.array, self.lines.take()) {
            (Some(_), Some(_)) => return wrong("array and lines exclude each other", "leave one out"),
            (Some(array), None) => numbers(array)?,
            (None, Some(lines)) => Expansion::Lines(lines),
            (None, None) => Expansion::One,
        };
        match expansion.len() {
            0 => wrong("the job has no tasks", "give one line at least"),
            tasks if tasks > tasks_max => {
                wrong(format!("the job has {tasks} tasks; {tasks_max} are allowed"), "submit several smaller jobs")
            }
            _ => Ok(expansion),
        }
    }

    fn work(self) -> Result<Work, Mistake> {
        match (self.kind, self.command.is_empty()) {
            (Some(_), false) => wrong("command and kind exclude each other", "leave one out"),
            (Some(name), true) if name.is_empty() => wrong("kind is empty", "name what workers have, such as noop"),
            (Some(name), true) => Ok(Work::Kind { name, input: self.input.unwrap_or_default().into_bytes() }),
            (None, true) => wrong("the command is missing", "write the program and its arguments"),
            (None, false) if self.input.is_some() => {
                wrong("input belongs to a kind, and this is a command", "send stdin instead, or leave it out")
            }
            (None, false) if self.command[0].is_empty() => {
                wrong("the first word of the command is empty", "write the program and its arguments")
            }
            (None, false) => {
                let words = self.command.iter().chain(self.env.keys()).chain(self.env.values()).chain(&self.cwd);
                check_words(words)?;
                check_names(self.env.keys())?;
                Ok(Work::Command(CommandLine {
                    arguments: self.command,
                    environment: self.env.into_iter().collect(),
                    directory: self.cwd,
                    stdin: input(self.stdin, self.stdin_base64)?,
                    nice: self.nice,
                }))
            }
        }
    }
}

fn within(what: &str, length: usize, most: usize) -> Result<(), Mistake> {
    if length > most {
        return wrong(format!("{what} have {length} bytes; {most} are allowed"), "put what is long into a file");
    }
    Ok(())
}

fn wrong<T>(message: impl Into<String>, hint: &'static str) -> Result<T, Mistake> {
    Err((message.into(), hint))
}

/// No program can be given these.
fn check_words<'a>(mut words: impl Iterator<Item = &'a String>) -> Result<(), Mistake> {
    match words.any(|word| word.contains('\0')) {
        true => wrong("an argument or a variable holds a zero byte", "no program can be given one"),
        false => Ok(()),
    }
}

fn check_names<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), Mistake> {
    for name in names {
        if name.is_empty() || name.contains('=') {
            return wrong(format!("'{name}' is not the name of a variable"), "write NAME=VALUE");
        }
        if name.starts_with("PRIMUS_") {
            return wrong(format!("{name} is one of the variables that tasks get anyway"), "use another name");
        }
    }
    Ok(())
}

fn input(text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, Mistake> {
    let bytes = match (text, base64) {
        (Some(_), Some(_)) => return wrong("stdin and stdin_base64 exclude each other", "leave one out"),
        (Some(text), None) => text.into_bytes(),
        (None, Some(base64)) => {
            STANDARD.decode(base64).or_else(|_| wrong("stdin_base64 is not base64", "encode it with padding"))?
        }
        (None, None) => Vec::new(),
    };
    within("what it reads has too much: its bytes", bytes.len(), STDIN_LEN_MAX)?;
    Ok(bytes)
}

/// `1-1000`, or one number alone.
fn numbers(text: &str) -> Result<Expansion, Mistake> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(Expansion::Array { first, last }),
        _ => wrong(format!("array is '{text}'"), "write it like 1-1000, the lesser number first"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> Result<Spec, String> {
        let submission: Submission = serde_json::from_str(json).map_err(|error| error.to_string())?;
        submission.spec(1000).map_err(|(message, _)| message)
    }

    #[test]
    fn a_command_is_enough() {
        let spec = spec(r#"{"command":["echo","hello"]}"#).unwrap();
        let Work::Command(command) = &spec.work else { panic!("{spec:?}") };
        assert_eq!(command.arguments, ["echo", "hello"]);
        assert_eq!((spec.expansion, spec.cpus, spec.retries, spec.is_once), (Expansion::One, 1, 0, false));
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_a_sentence() {
        for (json, expected) in [
            ("{}", "the command is missing"),
            (r#"{"command":["a"],"kind":"noop"}"#, "command and kind exclude each other"),
            (r#"{"command":[""]}"#, "the first word of the command is empty"),
            (r#"{"command":["a"],"cwd":""}"#, "cwd is empty"),
            (r#"{"command":["a"],"input":"x"}"#, "input belongs to a kind"),
            (r#"{"kind":""}"#, "kind is empty"),
            (r#"{"command":["a"],"env":{"A":"1","A":"2"}}"#, "A is given twice"),
            (r#"{"command":["a"],"array":"9-1"}"#, "array is '9-1'"),
            (r#"{"command":["a"],"array":"-1"}"#, "array is '-1'"),
            (r#"{"command":["a"],"array":"1-1000000000000"}"#, "1000000000000 tasks; 1000 are allowed"),
            (r#"{"command":["a"],"array":"0-18446744073709551615"}"#, "tasks; 1000 are allowed"),
            (r#"{"command":["a"],"lines":[]}"#, "the job has no tasks"),
            (r#"{"command":["a"],"lines":["x"],"array":"1"}"#, "exclude each other"),
            (r#"{"command":["a\u0000b"]}"#, "zero byte"),
            (r#"{"command":["a"],"env":{"A=B":""}}"#, "not the name of a variable"),
            (r#"{"command":["a"],"env":{"PRIMUS_TASK":"x"}}"#, "tasks get anyway"),
            (r#"{"command":["a"],"cpus":0}"#, "cpus is 0"),
            (r#"{"command":["a"],"timeout_ms":0}"#, "timeout_ms is 0"),
            (r#"{"command":["a"],"timeout_ms":86400001}"#, "timeout_ms is 86400001"),
            (r#"{"command":["a"],"timeout_ms":18446744073709551615}"#, "timeout_ms is 18446744073709551615"),
            (r#"{"command":["a"],"stdin_base64":"!"}"#, "not base64"),
            (r#"{"command":["a"],"colour":"red"}"#, "unknown field `colour`"),
        ] {
            let said = spec(json).expect_err(json);
            assert!(said.contains(expected), "{json}: {said}");
        }
        let long = Submission { command: vec!["x".repeat(1 << 20)], ..Submission::default() };
        assert!(long.spec(1).unwrap_err().0.contains("786432 are allowed"));
    }

    #[test]
    fn input_of_any_kind_survives() {
        for bytes in [&b"text"[..], &[0xff, 0, 1]] {
            let mut submission = Submission { command: vec!["cat".to_owned()], ..Submission::default() };
            submission.set_stdin(bytes.to_vec());
            let sent = serde_json::to_string(&submission).unwrap();
            let Work::Command(command) = spec(&sent).unwrap().work else { panic!("{sent}") };
            assert_eq!(command.stdin, bytes);
        }
    }
}
