//! Paths and queries of requests: any text can be a part of one.

/// Text as a part of a path or a query. Slashes stay, because keys are paths.
pub fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_path() {
        assert_eq!(escaped("a/b c?ü"), "a/b%20c%3F%C3%BC");
    }
}
