//! The one way to stdout and stderr.
//!
//! `println!` panics when whoever reads has gone away, as `head` does; here that is no failure at all. Colours reach
//! terminals only, and `NO_COLOR` is honoured.

use std::io::{ErrorKind, Write};

use anstyle::{AnsiColor, Style};

use super::failure::Failure;

pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();
pub(crate) const WARNING: Style = AnsiColor::Yellow.on_default();
pub(crate) const STRONG: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();

/// Writes to stdout. A closed pipe is fine: nobody wants the rest.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::output(&error)),
        _ => Ok(()),
    }
}

/// Writes a line to stderr. If that fails, there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    let mut stderr = anstream::stderr().lock();
    _ = writeln!(stderr, "{line}");
}

/// The text in this style.
pub(crate) fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// A tick or a cross.
pub(crate) fn mark(holds: bool) -> String {
    if holds { styled(GOOD, "✓") } else { styled(BAD, "✗") }
}
