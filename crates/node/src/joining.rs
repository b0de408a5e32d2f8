//! How a worker joins a farm with a token: it asks a server for a certificate, once, and from then on it has a name of its own.
//!
//! The server must show the authority that the token names before the secret is sent. What the worker asks with, its disk and its
//! key, is on disk before it asks, and its certificate comes last. So one that dies in between asks again for the same, and
//! the token is used once.

use std::collections::BTreeMap;
use std::fs::{self, TryLockError};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use bytes::BytesMut;
use primus_core::ServerId;
use primus_core::retry::Retry;
use primus_identity::authority::AuthorityCertificate;
use primus_identity::keys::Keys;
use primus_identity::name::{Name, NameError};
use primus_identity::refusal::Refusal;
pub use primus_identity::token::JoinToken;
use primus_identity::token::{Place, Role};
use primus_identity::verify::Pin;
use primus_wire::join::{ANSWER_LEN_MAX, Invitation, JoinAnswer, JoinRequest};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout};

pub use crate::credentials::has_joined;
use crate::credentials::{CredentialsError, keep_joined, key_to_join};
use crate::dialling::{DIAL_TIME, HELLO_TIME, hear, say};
use crate::line::Line;
use crate::private;
use crate::worker;

/// The file in a worker's directory that says where its farm is.
const FARM: &str = "farm.json";
/// The file that is locked while a worker joins.
const LOCK: &str = "join.lock";
/// How long a joiner asks again, if no server lets it in and none refuses it.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long it waits before it asks again: at first, and at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long an answer may take: servers may elect a leader meanwhile.
const ANSWER_TIME: Duration = Duration::from_secs(12);

/// The farm that a worker has joined, and where its servers were then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedFarm {
    /// Its name.
    pub farm: String,
    servers: BTreeMap<u64, String>,
}

/// Why a worker has not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The token is for something else.
    #[error("the token is for {}, and this is a worker: make one with primus token create --role worker", words(*.0))]
    Role(Role),
    /// No worker can be called that.
    #[error("a worker that joins cannot be called that: {0}")]
    Name(#[from] NameError),
    /// A server does not let it in. Trying again changes nothing.
    #[error("{reason}")]
    Refused {
        /// The reason for scripts.
        code: String,
        /// The same as a sentence.
        reason: String,
    },
    /// The server that answers is not one that the token allows.
    #[error("no join at {place}: {refusal}")]
    Impostor {
        /// Where it is.
        place: Place,
        /// What is wrong with it.
        refusal: Box<Refusal>,
    },
    /// The links of its farm are plain.
    #[error(
        "links of the server at {0} are not encrypted, so its farm needs no token: start the worker without one, and with --insecure"
    )]
    Plain(Place),
    /// What is given cannot be kept or is not what was asked for.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// Its directory cannot be used.
    #[error("{path} cannot be used: {source}")]
    Directory {
        /// The directory.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// No server answers, or none can decide now.
    #[error("no server lets this worker join yet: {0}")]
    NotNow(String),
    /// No process listens there.
    #[error("no server answers: {0}")]
    Unreachable(String),
}

/// What a role's token is for.
const fn words(role: Role) -> &'static str {
    match role {
        Role::Server => "servers",
        Role::Worker => "workers",
        Role::Viewer | Role::Client | Role::Operator | Role::Admin => "people",
    }
}

impl JoinError {
    /// True if other places, or another moment, may give another answer.
    const fn is_passing(&self) -> bool {
        matches!(self, Self::NotNow(_) | Self::Unreachable(_))
    }

    /// True if it is not known whether another server would say the same.
    const fn is_of_one_place(&self) -> bool {
        matches!(self, Self::Impostor { .. } | Self::Plain(_))
    }
}

impl JoinedFarm {
    /// What a worker has learnt when it joined; nothing if it has not.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(dir.join(FARM)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                io::Error::other(format!("{FARM} is damaged ({error}): join again, in an empty directory"))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Where the servers are.
    #[must_use]
    pub fn servers(&self) -> BTreeMap<ServerId, Place> {
        let place = |(id, place): (&u64, &String)| Some((ServerId(*id), place.parse().ok()?));
        self.servers.iter().filter_map(place).collect()
    }

    fn write(&self, dir: &Path) -> io::Result<()> {
        let text = serde_json::to_string(self).map_err(io::Error::other)?;
        worker::replace_file(dir, FARM, text.as_bytes())
    }
}

/// Joins the farm of this token as the worker of this name, which keeps its things in this directory. It asks again for a while if
/// no server can decide.
///
/// # Errors
/// Why it has not joined.
pub async fn join(dir: &Path, name: &str, token: &JoinToken) -> Result<JoinedFarm, JoinError> {
    if token.role != Role::Worker {
        return Err(JoinError::Role(token.role));
    }
    let unusable = |source| JoinError::Directory { path: dir.display().to_string(), source };
    let _lock = lock(dir).map_err(unusable)?;
    let store = worker::store_of(dir).map_err(unusable)?;
    let keys = key_to_join(dir)?;
    let (began, mut retry) = (Instant::now(), Retry::new(PATIENCE, PAUSE, PAUSE_MAX));
    let joiner = Joiner { dir, name, token, keys, store };
    loop {
        let error = match joiner.ask_all().await {
            Ok(joined) => return Ok(joined),
            Err(error) if !error.is_passing() => return Err(error),
            Err(error) => error,
        };
        match retry.pause(began.elapsed()) {
            Some(pause) => sleep(pause).await,
            None => return Err(error),
        }
    }
}

/// Two processes that join in one directory would each ask for a key of their own.
fn lock(dir: &Path) -> io::Result<fs::File> {
    private::folder(dir)?;
    let lock = private::open_or_make(&dir.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(io::Error::other("another process joins with it")),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A worker that is about to join.
struct Joiner<'a> {
    dir: &'a Path,
    name: &'a str,
    token: &'a JoinToken,
    keys: Keys,
    store: [u8; 16],
}

impl Joiner<'_> {
    /// Asks one place after the other, until one decides. A place that must not be trusted does not keep others from being asked.
    async fn ask_all(&self) -> Result<JoinedFarm, JoinError> {
        let (mut worst, mut passing) = (None, None);
        for place in &self.token.places {
            match self.ask(place).await {
                Ok(joined) => return Ok(joined),
                Err(error) if error.is_of_one_place() => worst = Some(error),
                // That a server answers says more than that another one does not.
                Err(error @ JoinError::Unreachable(_)) => passing = passing.or(Some(error)),
                Err(error @ JoinError::NotNow(_)) => passing = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(worst.or(passing).unwrap_or_else(|| JoinError::Unreachable("the token names no place".to_owned())))
    }

    async fn ask(&self, place: &Place) -> Result<JoinedFarm, JoinError> {
        let unreachable = |error: io::Error| JoinError::Unreachable(format!("{place}: {error}"));
        let tcp = dial(place).await.map_err(unreachable)?;
        let pin = Pin::Short(self.token.authority);
        let shaken = timeout(HELLO_TIME, Line::dial_inviter(tcp, pin)).await;
        let shaken = shaken.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        // From here on it is certain who is at the other end.
        let (line, authority) = shaken.map_err(|error| match Refusal::of_io(&error) {
            Some(Refusal::Protocol) => JoinError::Plain(place.clone()),
            Some(refusal) => JoinError::Impostor { place: place.clone(), refusal: Box::new(refusal) },
            None => unreachable(error),
        })?;
        let name = Name::worker(authority.farm(), self.name)?;
        let not_now = |error: io::Error| JoinError::NotNow(format!("{place}: {error}"));
        match self.request(line).await.map_err(not_now)? {
            JoinAnswer::Joined(invitation) => self.keep(&name, invitation),
            JoinAnswer::Refused(code, reason) => Err(JoinError::Refused { code, reason }),
            JoinAnswer::NotNow(reason) => Err(JoinError::NotNow(reason)),
        }
    }

    async fn request(&self, mut line: Line) -> io::Result<JoinAnswer> {
        let JoinToken { role, id, secret, .. } = self.token;
        let key = self.keys.public_key().der().to_vec();
        let request = JoinRequest::new((role.word(), *id, *secret.reveal()), self.store, key, self.name.to_owned());
        timeout(HELLO_TIME, say(&mut line, &request)).await??;
        let mut arrived = BytesMut::new();
        Ok(timeout(ANSWER_TIME, hear(&mut line.take(ANSWER_LEN_MAX), &mut arrived)).await??.0)
    }

    /// The certificate comes last: without it the worker has not joined.
    fn keep(&self, name: &Name, invitation: Invitation) -> Result<JoinedFarm, JoinError> {
        let Invitation { farm, certificate, voucher, authorities, servers } = invitation;
        let read = authorities.iter().map(|der| AuthorityCertificate::from_der(der).ok());
        let read = read.collect::<Option<Vec<_>>>().filter(|_| farm == name.farm());
        let all = read.filter(|all| !all.is_empty() && all.iter().all(|authority| authority.farm() == farm));
        let authorities = all.ok_or_else(|| JoinError::NotNow("its answer makes no sense".to_owned()))?;
        let servers = servers.into_iter().map(|(ServerId(id), place)| (id, place)).collect();
        let joined = JoinedFarm { farm, servers };
        let unusable = |source| JoinError::Directory { path: self.dir.display().to_string(), source };
        joined.write(self.dir).map_err(unusable)?;
        keep_joined(self.dir, &self.keys, name, (certificate, voucher, authorities))?;
        Ok(joined)
    }
}

/// Names are resolved anew each time.
async fn dial(place: &Place) -> io::Result<TcpStream> {
    let dialling = async {
        let mut failed = io::Error::from(ErrorKind::NotFound);
        for address in lookup_host((place.host().as_str(), place.port())).await? {
            match TcpStream::connect(address).await {
                Ok(tcp) => return Ok(tcp),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    };
    timeout(DIAL_TIME, dialling).await?
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("primus-joining-{name}-{}", std::process::id()));
            private::folder(&path).expect("there is room for a directory");
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_worker_knows_its_farm_again() {
        let scratch = Scratch::new("again");
        assert_eq!(JoinedFarm::read(&scratch.0).unwrap(), None);
        let servers = [(1, "127.0.0.1:7460"), (2, "[::1]:7460"), (3, "no such host:1")];
        let servers = servers.map(|(id, place)| (id, place.to_owned())).into();
        let joined = JoinedFarm { farm: "north".to_owned(), servers };
        joined.write(&scratch.0).unwrap();
        assert_eq!(JoinedFarm::read(&scratch.0).unwrap(), Some(joined.clone()));
        let addresses = joined.servers();
        assert_eq!(addresses[&ServerId(2)], "[::1]:7460".parse().unwrap());
        assert_eq!(addresses.len(), 2, "what cannot be resolved is left out");
        fs::write(scratch.0.join(FARM), "nonsense").unwrap();
        assert!(JoinedFarm::read(&scratch.0).unwrap_err().to_string().contains("farm.json is damaged"));
    }

    #[test]
    fn what_is_asked_with_is_kept_and_one_process_at_a_time_asks() {
        let scratch = Scratch::new("key");
        let first = key_to_join(&scratch.0).unwrap().public_key();
        assert_eq!(key_to_join(&scratch.0).unwrap().public_key(), first);
        let held = lock(&scratch.0).unwrap();
        assert!(lock(&scratch.0).unwrap_err().to_string().contains("another process joins"));
        drop(held);
        assert!(lock(&scratch.0).is_ok());
        assert!(!has_joined(&scratch.0));
    }
}
