//! The secret that a server's API asks for, and the file that holds it.
//!
//! A file holds the secret alone, or as `Authorization: Bearer SECRET`: so `curl -H @FILE` can use the same file, and the
//! secret appears in no list of processes. A file that other users can read is refused, because then it is not a secret.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// The shortest and the longest secret, in characters: 128 bits as hex.
const LEN_MIN: usize = 32;
const LEN_MAX: usize = 512;
/// How much of a file is read.
const FILE_LEN_MAX: u64 = 4096;
/// How many random bytes a new secret has.
const FRESH_LEN: usize = 32;
/// What stands before the secret in a request.
const SCHEME: &str = "Bearer ";
const FIELD: &str = "Authorization: ";
/// Set for commands that are given a secret by hand.
pub const VARIABLE: &str = "PRIMUS_TOKEN";

/// A secret. It is never shown: not in errors, and not by `{:?}`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(String);

/// What is wrong with a secret, and what to do.
pub type Complaint = (String, String);

impl Token {
    /// A new one, which nobody can guess.
    pub fn fresh() -> io::Result<Self> {
        let mut bytes = [0; FRESH_LEN];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(hex(&bytes)))
    }

    /// The secret in `PRIMUS_TOKEN`, if it is set.
    pub fn from_environment() -> Result<Option<Self>, Complaint> {
        let text = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
        let read = |text: std::ffi::OsString| Self::parse(text.to_str().unwrap_or_default());
        text.map(read).transpose().map_err(|(what, hint)| (format!("{VARIABLE} {what}"), hint))
    }

    /// The secret in this file. What is wrong is said as of something that was named before: `is empty`.
    pub fn read(path: &Path) -> Result<Self, Complaint> {
        let shown = path.display();
        let unusable = |error: io::Error| (format!("is {shown}, which cannot be read: {error}"), HINT.to_owned());
        let file = File::open(path).map_err(unusable)?;
        let facts = file.metadata().map_err(unusable)?;
        if !facts.is_file() {
            return Err((format!("is {shown}, which is not a file"), HINT.to_owned()));
        }
        if facts.mode() & 0o077 != 0 {
            return Err((format!("is {shown}, which other users can read or write"), format!("chmod 600 {shown}")));
        }
        if facts.uid() != 0 && facts.uid() != geteuid().as_raw() {
            let hint = "give the file to the user who runs this server".to_owned();
            return Err((format!("is {shown}, which belongs to another user"), hint));
        }
        let mut text = String::new();
        file.take(FILE_LEN_MAX).read_to_string(&mut text).map_err(unusable)?;
        Self::parse(&text).map_err(|(what, hint)| (format!("is {shown}, which {what}"), hint))
    }

    /// Writes a file that [`read`](Self::read) takes. What was there before is replaced, not followed.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(format!("{FIELD}{}\n", self.credentials()).as_bytes())
    }

    /// The secret alone, or as a field of a request.
    fn parse(text: &str) -> Result<Self, Complaint> {
        let text = text.trim();
        let lower = text.to_ascii_lowercase();
        let field = "authorization: bearer ";
        let secret = if lower.starts_with(field) { text[field.len()..].trim() } else { text };
        let wrong = |what: &str| Err((what.to_owned(), HINT.to_owned()));
        match secret.len() {
            0 => wrong("is empty"),
            len if len < LEN_MIN => wrong(&format!("holds fewer than {LEN_MIN} characters")),
            len if len > LEN_MAX => wrong(&format!("holds more than {LEN_MAX} characters")),
            _ if !secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
                wrong("holds more than one word of plain characters")
            }
            _ => Ok(Self(secret.to_owned())),
        }
    }

    /// What a request says: `Bearer SECRET`.
    pub fn credentials(&self) -> String {
        format!("{SCHEME}{}", self.0)
    }

    /// True if a request that says this has the secret. How long that takes tells nothing about the secret.
    pub fn accepts(&self, credentials: &[u8]) -> bool {
        let (scheme, given) = credentials.split_at_checked(SCHEME.len()).unwrap_or_default();
        let is_same = given.ct_eq(self.0.as_bytes());
        scheme.eq_ignore_ascii_case(SCHEME.as_bytes()) && bool::from(is_same)
    }
}

const HINT: &str = "put one long random word into it, for instance: \
                    (umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \\n' > FILE)";

impl TryFrom<String> for Token {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|(what, _)| what)
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("primus-token-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_new_secret_survives_its_file_and_is_shown_nowhere() {
        let folder = folder("fresh");
        let (file, victim) = (folder.join("token"), folder.join("victim"));
        let token = Token::fresh().unwrap();
        assert_ne!(token, Token::fresh().unwrap());
        assert_eq!(token.0.len(), 64);
        // A link that somebody planted is replaced, and what it points to stays as it was.
        fs::write(&victim, "mine").unwrap();
        symlink(&victim, &file).unwrap();
        token.write(&file).unwrap();
        token.write(&file).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Token::read(&file).unwrap(), token);
        assert!(!format!("{token:?}").contains(&token.0));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn only_the_secret_itself_is_accepted() {
        let token = Token("0123456789abcdef0123456789abcdef".to_owned());
        let long = format!("Bearer {}x", token.0);
        for (credentials, expected) in [
            ("Bearer 0123456789abcdef0123456789abcdef", true),
            ("bearer 0123456789abcdef0123456789abcdef", true),
            ("Basic  0123456789abcdef0123456789abcdef", false),
            ("0123456789abcdef0123456789abcdef", false),
            ("Bearer 0123456789abcdef0123456789abcdeF", false),
            ("Bearer ", false),
            ("", false),
            (&long, false),
        ] {
            assert_eq!(token.accepts(credentials.as_bytes()), expected, "{credentials}");
        }
    }

    #[test]
    fn a_file_that_is_not_a_secret_is_refused_in_a_sentence() {
        let folder = folder("refused");
        let good = "0123456789abcdef0123456789abcdef";
        for (name, text, mode, expected) in [
            ("good", good, 0o600, None),
            ("read-only", good, 0o400, None),
            ("empty", " \n", 0o600, Some("is empty")),
            ("short", "secret", 0o600, Some("fewer than 32 characters")),
            ("words", "0123456789abcdef 0123456789abcdef", 0o600, Some("more than one word")),
            ("open", good, 0o644, Some("other users can read or write")),
            ("group", good, 0o640, Some("other users can read or write")),
        ] {
            let file = folder.join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let read = Token::read(&file);
            match expected {
                None => assert_eq!(read.unwrap().0, good, "{name}"),
                Some(words) => assert!(read.unwrap_err().0.contains(words), "{name}"),
            }
        }
        assert!(Token::read(&folder).unwrap_err().0.contains("not a file"));
        assert!(Token::read(&folder.join("nowhere")).unwrap_err().0.contains("cannot be read"));
        fs::remove_dir_all(folder).unwrap();
    }
}
