//! Names that people give to farms.

/// The longest name.
const LEN_MAX: usize = 40;

/// A farm's name becomes the name of files and folders, so it must be harmless. If it is not, what to do.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_good = name.chars().all(is_plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= LEN_MAX;
    if is_good {
        return Ok(());
    }
    Err(format!("use up to {LEN_MAX} letters, digits, - and _, a letter or digit first"))
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
