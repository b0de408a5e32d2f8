//! Names that people give to farms and workers. They become names of files and folders, lines of logs and parts of
//! addresses, so they are harmless everywhere: where people write them, and where a link brings them.

/// No name is longer.
pub const NAME_LEN_MAX: usize = 40;

/// True for up to [`NAME_LEN_MAX`] letters, digits, `-`, `_` and `.`, a letter or a digit first.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    text.len() <= NAME_LEN_MAX
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_harmless_everywhere() {
        for (name, is_good) in [
            ("north", true),
            ("w1", true),
            ("host-7.example_x", true),
            ("9", true),
            ("", false),
            ("-x", false),
            (".", false),
            ("../x", false),
            ("a/b", false),
            ("a b", false),
            ("w1@south", false),
            ("Grüße", false),
            ("a\nb", false),
        ] {
            assert_eq!(is_name(name), is_good, "{name:?}");
        }
        assert!(is_name(&"x".repeat(NAME_LEN_MAX)) && !is_name(&"x".repeat(NAME_LEN_MAX + 1)));
    }
}
