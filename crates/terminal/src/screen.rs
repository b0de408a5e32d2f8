//! The one way to stdout and stderr.
//!
//! `println!` panics when whoever reads has gone away, as `head` does; here that is no failure at all. Colours reach
//! terminals only, and `NO_COLOR` is honoured.

use std::io::{ErrorKind, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use rustix::termios::tcgetwinsize;

use crate::failure::Failure;

/// What went well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// What went wrong.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// What may go wrong.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// What matters most.
pub const STRONG: Style = Style::new().bold();
/// What matters least.
pub const FAINT: Style = Style::new().dimmed();

/// How many characters a line of the terminal holds; nothing if stdout is not a terminal.
#[must_use]
pub fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Writes to stdout. A closed pipe is fine: nobody wants the rest.
pub fn print(text: &str) -> Result<(), Failure> {
    stream(text).map(|_| ())
}

/// Writes a part of a stream to stdout. Is anybody still reading?
pub fn stream(text: &str) -> Result<bool, Failure> {
    written(&mut anstream::stdout().lock(), text.as_bytes())
}

/// Writes somebody's own data to stdout, byte by byte: what looks like a colour in it is left alone.
pub fn print_raw(data: &[u8]) -> Result<(), Failure> {
    written(&mut std::io::stdout().lock(), data).map(|_| ())
}

fn written(stdout: &mut impl Write, data: &[u8]) -> Result<bool, Failure> {
    match stdout.write_all(data).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::output(&error)),
    }
}

/// Writes a line to stderr. If that fails, there is nobody left to tell.
pub fn complain(line: &str) {
    let mut stderr = anstream::stderr().lock();
    _ = writeln!(stderr, "{line}");
}

/// The text in this style.
pub fn styled(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// A tick or a cross.
pub fn mark(holds: bool) -> String {
    if holds { styled(GOOD, "✓") } else { styled(BAD, "✗") }
}
