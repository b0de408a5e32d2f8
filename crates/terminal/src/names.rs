//! Names that people give to farms.

use primus_core::names::{NAME_LEN_MAX, is_name};

/// A farm's name becomes the name of files and folders, so it must be harmless. If it is not, what to do.
pub fn check_name(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!("use up to {NAME_LEN_MAX} letters, digits, - and _, a letter or digit first"))
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
