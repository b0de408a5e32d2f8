//! Failures as people and scripts see them: what is wrong, and what to do. One line on stderr.

use std::borrow::Cow;
use std::process::ExitCode;

use primus_client::Kind;
use primus_shapes::refusal::{Body, Mistake};
pub use primus_shapes::values::on_one_line;

use crate::format::Format;
use crate::screen;

/// How commands end that cannot do what they are for, where other codes are those of the program that they run.
const OWN: u8 = 125;

/// How a server ends that must not be started again as it is.
pub const FINAL: u8 = 6;

/// Something that was asked for and cannot be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    code: Cow<'static, str>,
    exit: u8,
    message: String,
    hint: String,
    /// All that is wrong, if there is more to say than that something is.
    mistakes: Vec<Mistake>,
}

impl Failure {
    /// The command line makes no sense: exit code 2.
    pub fn usage(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("usage", 2, message.as_ref(), hint.as_ref())
    }

    /// The configuration is wrong, in all these ways: exit code 2.
    pub fn configuration(mistakes: Vec<Mistake>) -> Self {
        let (message, hint) = match mistakes.as_slice() {
            [only] => (sentence(only), only.hint.clone()),
            all => {
                let sentences: Vec<String> = all.iter().map(sentence).collect();
                let message = format!("the configuration has {} mistakes: {}", all.len(), sentences.join("; "));
                (message, "mend them all; primus config check finds what is left".to_owned())
            }
        };
        Self { mistakes, ..Self::new("configuration", 2, &message, &hint) }
    }

    /// A server cannot start or go on: exit code 1.
    pub fn server(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("server", 1, message.as_ref(), hint.as_ref())
    }

    /// A server must not go on, nor be started again as it is: exit code 6.
    pub fn final_end(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("must_not_go_on", FINAL, message.as_ref(), hint.as_ref())
    }

    /// A bench could not measure: exit code 1.
    pub fn bench(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("bench", 1, message.as_ref(), hint.as_ref())
    }

    /// Whatever went wrong, it is why a bench could not measure: exit code 1.
    pub fn into_bench(self) -> Self {
        let message = format!("nothing could be measured: {}", self.message);
        Self { code: Cow::Borrowed("bench"), exit: 1, message, hint: self.hint, mistakes: Vec::new() }
    }

    /// What kind of failure it is, for scripts.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The same failure of a command that otherwise ends with somebody else's exit code: 125.
    pub fn into_own(self) -> Self {
        Self { exit: OWN, ..self }
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The output could not be written: exit code 1.
    pub fn output(error: &std::io::Error) -> Self {
        Self::new("output", 1, &format!("the output could not be written: {error}"), "look at where stdout goes")
    }

    /// What was asked for did not work: exit code 1.
    pub fn failed(code: &'static str, message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new(code, 1, message.as_ref(), hint.as_ref())
    }

    /// No server can be reached: exit code 3.
    pub fn unreachable(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("unreachable", 3, message.as_ref(), hint.as_ref())
    }

    /// Nobody leads, so not now: exit code 4.
    pub fn no_leader(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("no_leader", 4, message.as_ref(), hint.as_ref())
    }

    /// It cannot be done at the moment, for this reason: exit code 4.
    pub fn not_now(code: &'static str, message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new(code, 4, message.as_ref(), hint.as_ref())
    }

    /// It took too long: exit code 124.
    pub fn too_long(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("timeout", 124, message.as_ref(), hint.as_ref())
    }

    /// It is not allowed: exit code 5.
    pub fn not_allowed(message: impl AsRef<str>, hint: impl AsRef<str>) -> Self {
        Self::new("not_allowed", 5, message.as_ref(), hint.as_ref())
    }

    fn new(code: impl Into<Cow<'static, str>>, exit: u8, message: &str, hint: &str) -> Self {
        Self {
            code: code.into(),
            exit,
            message: on_one_line(message),
            hint: on_one_line(hint),
            mistakes: Vec::new(),
        }
    }

    /// Is it the caller's mistake?
    pub fn is_usage(&self) -> bool {
        self.exit == 2
    }

    /// Is it worth trying again in a moment?
    pub fn is_not_now(&self) -> bool {
        self.exit == 4
    }

    /// Says so, in the format that was asked for.
    pub fn report(&self, format: Format) -> ExitCode {
        self.complain(format);
        ExitCode::from(self.exit)
    }

    /// Says so and goes on.
    pub fn complain(&self, format: Format) {
        match format {
            Format::Json => screen::complain(&self.json()),
            Format::Text | Format::Mermaid if self.mistakes.is_empty() => {
                screen::complain(&text(&self.message, &self.hint));
            }
            Format::Text | Format::Mermaid => self
                .mistakes
                .iter()
                .for_each(|mistake| screen::complain(&text(&sentence(mistake), &on_one_line(&mistake.hint)))),
        }
    }

    fn json(&self) -> String {
        let body = Body::new(&self.code, &self.message, &self.hint).with_mistakes(&self.mistakes);
        serde_json::to_string(&body).expect("plain texts become JSON")
    }
}

/// What a farm refused, or could not do.
impl From<primus_client::Error> for Failure {
    fn from(error: primus_client::Error) -> Self {
        let exit = match error.kind() {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Unreachable => 3,
            Kind::NotNow => 4,
            Kind::NotAllowed => 5,
        };
        Self::new(error.code().to_owned(), exit, error.message(), error.hint())
    }
}

/// What is wrong, and where.
fn sentence(mistake: &Mistake) -> String {
    let place = mistake.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
    on_one_line(&format!("{place}{}", mistake.message))
}

fn text(message: &str, hint: &str) -> String {
    format!("{}: {message}; {hint}", screen::styled(screen::BAD, "error"))
}

/// For tests.
impl Failure {
    /// What is wrong and what to do.
    pub fn words(&self) -> String {
        format!("{}; {}", self.message, self.hint)
    }

    /// All that is wrong, if it is more than one thing.
    pub fn mistakes(&self) -> &[Mistake] {
        &self.mistakes
    }
}
