//! Names that people type: of farms, which must be harmless, and of what they may have meant.

use primus_core::names::{NAME_LEN_MAX, is_name};

/// A farm's name becomes the name of files and folders, so it must be harmless. If it is not, what to do.
pub fn check_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!("use up to {NAME_LEN_MAX} letters, digits, - and _, a letter or digit first"))
}

/// Advice to a person who wrote an unknown name: the nearest known one. If none is near enough to have been meant, also what
/// else to do.
pub fn advice<'a>(word: &str, names: impl Iterator<Item = &'a str>, otherwise: &str) -> String {
    let distance = |name: &str| strsim::damerau_levenshtein(&word.to_lowercase(), &name.to_lowercase());
    let Some((distance, near)) = names.map(|name| (distance(name), name)).min() else {
        return otherwise.to_owned();
    };
    let last_len = word.rsplit('.').next().map_or(0, str::len);
    if distance <= (last_len / 3).max(2) {
        format!("did you mean {near}?")
    } else {
        format!("the nearest is {near}; {otherwise}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_harmless_as_file_names() {
        for (name, is_good) in [
            ("north", true),
            ("a-b_c.2", true),
            ("", false),
            (".x", false),
            ("a/b", false),
            ("ü", false),
            ("-x", false),
        ] {
            assert_eq!(check_name(name).is_ok(), is_good, "{name}");
        }
        assert!(check_name(&"x".repeat(41)).is_err());
    }
}
