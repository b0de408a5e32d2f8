//! The file with which a farm begins: its name, its servers, and the authority that names its nodes.
//!
//! It is as secret as the farm itself, because its key makes servers. So a file that other users can read is refused. Hosts of
//! one farm have the same file; whoever has a certificate already needs only the authority's certificate, if that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use primus_core::ServerId;
use primus_core::names::is_name;
use primus_identity::UnixTime;
use primus_identity::authority::{Authority, AuthorityCertificate, AuthorityError};
use primus_identity::keys::Keys;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::Deserialize;

use crate::private;

/// No founding file is longer.
const LEN_MAX: u64 = 64 << 10;
/// What others must not be allowed to do with it.
const ANYTHING_BY_OTHERS: u32 = 0o077;

/// How a farm begins.
#[derive(Debug)]
pub struct FoundingFile {
    /// The farm's name.
    pub farm: String,
    /// Its first servers and their addresses, if the file names them.
    pub servers: BTreeMap<ServerId, String>,
    /// Nothing if its links are not encrypted.
    pub authority: Option<FoundingAuthority>,
}

/// A farm's authority, as far as a file has it.
#[derive(Debug)]
pub enum FoundingAuthority {
    /// With the key that names nodes.
    Whole(Box<Authority>),
    /// Its certificate only: that is enough for nodes that have theirs.
    Certificate(AuthorityCertificate),
}

/// What is wrong with a founding file.
#[derive(Debug, thiserror::Error)]
pub enum FoundingFileError {
    /// It cannot be read.
    #[error("the founding file {} cannot be read ({source}): name one that primus init has made", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others can read it.
    #[error("the founding file {} can be read or written by other users: chmod 600 it, and found a new farm if others may have read it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error("the founding file {} belongs to user {owner}, and this process runs as {user}: give it to the user of this process", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// It says something else.
    #[error("{} is not a founding file ({what}): make one with primus init", path.display())]
    Strange {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It is the file of another farm.
    #[error("{} founds farm {there}, and this is farm {here}: name the founding file of this farm", path.display())]
    OtherFarm {
        /// The file.
        path: PathBuf,
        /// Its farm.
        there: String,
        /// The farm that was expected.
        here: String,
    },
    /// It cannot be written.
    #[error("the founding file {} cannot be written ({source}): choose another path", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    farm: String,
    security: Word,
    #[serde(default)]
    servers: BTreeMap<String, String>,
    certificate: Option<String>,
    key: Option<String>,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Word {
    Tls,
    None,
}

impl FoundingFile {
    /// A farm with a new authority, or with links that are not encrypted.
    ///
    /// # Errors
    /// If the farm's name is not one, or this host gives no randomness.
    pub fn create(
        farm: &str,
        servers: BTreeMap<ServerId, String>,
        is_secured: bool,
    ) -> Result<Self, AuthorityError> {
        let authority = if is_secured { Some(Authority::create(farm, UnixTime::now())?) } else { None };
        Ok(Self {
            farm: farm.to_owned(),
            servers,
            authority: authority.map(Box::new).map(FoundingAuthority::Whole),
        })
    }

    /// Reads the file of this farm.
    ///
    /// # Errors
    /// If it is not one, or other users can read it.
    pub fn read(path: &Path, farm: &str) -> Result<Self, FoundingFileError> {
        let text = read_secret(path)?;
        let file =
            Self::from_text(&text).map_err(|what| FoundingFileError::Strange { path: path.to_owned(), what })?;
        if file.farm != farm {
            let (there, here) = (file.farm, farm.to_owned());
            return Err(FoundingFileError::OtherFarm { path: path.to_owned(), there, here });
        }
        Ok(file)
    }

    /// Writes a new file, for its owner alone.
    ///
    /// # Errors
    /// If there is a file of this name already, or the system says no.
    pub fn write(&self, path: &Path) -> Result<(), FoundingFileError> {
        let write = || {
            let mut file = private::make_new(path)?;
            file.write_all(self.text().as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| FoundingFileError::Unwritable { path: path.to_owned(), source })
    }

    /// The authority's certificate; nothing if links are not encrypted.
    #[must_use]
    pub fn certificate(&self) -> Option<&AuthorityCertificate> {
        self.authority.as_ref().map(FoundingAuthority::certificate)
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let Text { farm, security, servers, certificate, key } =
            toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if !is_name(&farm) {
            return Err("its farm has no good name".to_owned());
        }
        let certificate = certificate.map(|pem| AuthorityCertificate::from_pem(&pem)).transpose();
        let keys = key.map(|pem| Keys::from_pem(&pem)).transpose().map_err(|error| error.to_string())?;
        let authority = match (certificate.map_err(|error| error.to_string())?, keys) {
            (Some(certificate), _) if certificate.farm() != farm => {
                return Err(format!("its authority is the one of farm {}", certificate.farm()));
            }
            (Some(certificate), Some(keys)) => {
                let whole = Authority::new(certificate, keys).map_err(|error| error.to_string())?;
                Some(FoundingAuthority::Whole(Box::new(whole)))
            }
            (Some(certificate), None) => Some(FoundingAuthority::Certificate(certificate)),
            (None, Some(_)) => return Err("it has a key without a certificate".to_owned()),
            (None, None) => None,
        };
        if authority.is_some() != (security == Word::Tls) {
            return Err("security is tls with a certificate, and none without".to_owned());
        }
        let id =
            |text: &String| text.parse().map(ServerId).map_err(|_| format!("'{text}' is not a server's number"));
        let servers = servers.iter().map(|(text, address)| Ok((id(text)?, address.clone())));
        Ok(Self { servers: servers.collect::<Result<_, String>>()?, farm, authority })
    }

    /// What [`read`](Self::read) reads.
    fn text(&self) -> String {
        let mut text = format!(
            "# The founding of farm {0}. Its key makes servers and workers of this farm: keep this file secret.\n\
             farm = \"{0}\"\nsecurity = \"{1}\"\n",
            self.farm,
            if self.authority.is_some() { "tls" } else { "none" }
        );
        let pem = |name: &str, pem: &str| format!("{name} = '''\n{pem}'''\n");
        if let Some(authority) = &self.authority {
            text += &pem("certificate", &authority.certificate().pem());
            if let FoundingAuthority::Whole(authority) = authority {
                text += &pem("key", &authority.keys().secret_pem());
            }
        }
        if !self.servers.is_empty() {
            text += "\n[servers]\n";
        }
        for (id, address) in &self.servers {
            _ = writeln!(text, "{id} = \"{}\"", address.escape_default());
        }
        text
    }
}

impl FoundingAuthority {
    /// What others trust.
    #[must_use]
    pub const fn certificate(&self) -> &AuthorityCertificate {
        match self {
            Self::Whole(authority) => authority.certificate(),
            Self::Certificate(certificate) => certificate,
        }
    }
}

fn read_secret(path: &Path) -> Result<String, FoundingFileError> {
    let unreadable = |source| FoundingFileError::Unreadable { path: path.to_owned(), source };
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(unreadable)?;
    let facts = file.metadata().map_err(unreadable)?;
    let (owner, user) = (facts.uid(), geteuid().as_raw());
    if owner != user && owner != 0 {
        return Err(FoundingFileError::Foreign { path: path.to_owned(), owner, user });
    }
    if facts.mode() & ANYTHING_BY_OTHERS != 0 {
        return Err(FoundingFileError::Exposed { path: path.to_owned() });
    }
    let mut text = String::new();
    file.take(LEN_MAX).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("primus-founding-{name}-{}", std::process::id()));
        private::folder(&dir).expect("there is room for a directory");
        dir
    }

    #[test]
    fn a_founding_survives_its_file() {
        let dir = scratch("survives");
        let servers: BTreeMap<_, _> =
            [(ServerId(1), "10.0.0.1:7460".to_owned()), (ServerId(12), "[::1]:1".to_owned())].into();
        for is_secured in [true, false] {
            let path = dir.join(format!("{is_secured}.founding"));
            let made = FoundingFile::create("north", servers.clone(), is_secured).unwrap();
            made.write(&path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            let read = FoundingFile::read(&path, "north").unwrap();
            assert_eq!((&read.farm, &read.servers), (&made.farm, &servers));
            let hash = |file: &FoundingFile| file.certificate().map(AuthorityCertificate::hash);
            assert_eq!((hash(&read), hash(&read).is_some()), (hash(&made), is_secured));
            assert_eq!(matches!(read.authority, Some(FoundingAuthority::Whole(_))), is_secured);
            assert!(matches!(made.write(&path), Err(FoundingFileError::Unwritable { .. })), "it is there already");
            let other = FoundingFile::read(&path, "south").unwrap_err().to_string();
            assert!(other.contains("founds farm north, and this is farm south"), "{other}");
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_and_so_is_nonsense() {
        let dir = scratch("refused");
        let path = dir.join("north.founding");
        FoundingFile::create("north", BTreeMap::new(), true).unwrap().write(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(FoundingFile::read(&path, "north"), Err(FoundingFileError::Exposed { .. })));
        assert!(matches!(
            FoundingFile::read(&dir.join("missing"), "north"),
            Err(FoundingFileError::Unreadable { .. })
        ));
        let without_key = &text[..text.find("key =").unwrap()];
        assert!(matches!(
            FoundingFile::from_text(without_key).unwrap().authority,
            Some(FoundingAuthority::Certificate(_))
        ));
        for wrong in [
            "",
            &text.replace("\"tls\"", "\"none\""),
            &text.replace("farm = \"north\"", "farm = \"south\""),
            &text.replace("security", "secrecy"),
            "farm = \"north\"\nsecurity = \"tls\"\n",
            "farm = \"../north\"\nsecurity = \"none\"\n",
        ] {
            assert!(FoundingFile::from_text(wrong).is_err(), "{wrong}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
