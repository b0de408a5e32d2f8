//! Text of strangers, made safe to show: on terminals, in log lines and in errors.
//!
//! Control characters end lines and command terminals. Format characters (Unicode category *Cf*) and the separators of
//! lines and paragraphs are invisible, and some of them turn the order of what follows round: a name can look like another.
//! Both are written as escapes, in the whole tree by this function only.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;

/// The characters of the categories Cf, Zl and Zp, first and last of each range, as of Unicode 16.
const HIDDEN: [(char, char); 20] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// The text on one line, with every character visible: `\n`, `\u{1b}`, `\u{202e}`.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match is_hidden(character) {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

/// True if a reader cannot see this character, or if it changes what is shown around it.
pub fn is_hidden(character: char) -> bool {
    let is_format = || HIDDEN.iter().any(|(first, last)| (*first..=*last).contains(&character));
    character.is_control() || (!character.is_ascii() && is_format())
}

/// What somebody typed, in quotes and not at any length.
#[must_use]
pub fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("'{}…'", &text[..end]),
        None => format!("'{text}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        for (text, expected) in [
            ("plain words, Grüße, 日本語, 🙂", "plain words, Grüße, 日本語, 🙂"),
            ("a\nb\r\x1b[31mc\0\x7f\u{85}", "a\\nb\\r\\u{1b}[31mc\\u{0}\\u{7f}\\u{85}"),
            ("abc\u{202e}cba", "abc\\u{202e}cba"),
            ("\u{feff}x\u{200b}y\u{2066}z\u{ad}", "\\u{feff}x\\u{200b}y\\u{2066}z\\u{ad}"),
            ("one\u{2028}two\u{2029}three", "one\\u{2028}two\\u{2029}three"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ] {
            assert_eq!(escape(text), expected);
            assert!(!escape(text).contains(is_hidden));
        }
    }

    #[test]
    fn ranges_ascend() {
        assert!(HIDDEN.iter().all(|(first, last)| first <= last));
        assert!(HIDDEN.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }
}
