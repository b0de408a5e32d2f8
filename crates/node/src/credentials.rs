//! What a node shows of itself on links, and whom it believes: nothing and everybody on plain links, certificates on others.
//!
//! A node keeps its own key and certificate, with the certificate of the authority that gave it, in `tls` in its directory. It
//! makes the key itself. At its first start the founding file names it, if that has the authority's key; later the node needs no
//! founding file any more. Each time it starts with one, it renews what is due.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use primus_core::ServerId;
use primus_identity::authority::{Authority, AuthorityCertificate, AuthorityError, Request, pem_of};
use primus_identity::certificate::Validity;
use primus_identity::config::{self, Credentials};
use primus_identity::keys::{KeyError, Keys};
use primus_identity::name::{self, Name, NameError, Node};
use primus_identity::peer::{self, Caller};
use primus_identity::refusal::Refusal;
use primus_identity::rustls::pki_types::pem::PemObject;
use primus_identity::rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use primus_identity::trust::{Identified, Trust};
use primus_identity::verify::HostClock;
use primus_identity::{CertificateDer, ServerName, UnixTime};

use crate::founding_file::{FoundingAuthority, FoundingFile, FoundingFileError};
use crate::private;

/// The folder in a node's directory, and the files there.
const FOLDER: &str = "tls";
const KEY: &str = "key.pem";
const CERTIFICATE: &str = "certificate.pem";
const AUTHORITY: &str = "authority.pem";
/// How many days a certificate is good.
const DAYS: u32 = 365;

/// How the links of a node are secured.
#[derive(Debug, Clone, Default)]
pub enum Security {
    /// They are not: everybody who can reach the node is believed.
    #[default]
    None,
    /// By certificates on both sides.
    Tls(Arc<Tls>),
}

/// A node's name with its key, and those whom it believes.
#[derive(Debug)]
pub struct Tls {
    credentials: Credentials,
    believed: RwLock<Believed>,
}

/// Whom a node believes at present.
#[derive(Debug, Clone)]
struct Believed {
    trust: Arc<Trust>,
    accepting: Arc<ServerConfig>,
}

/// A server that is to be dialled, and how to be sure that it is the one.
#[derive(Debug, Clone)]
pub(crate) struct Callee {
    own: Arc<Tls>,
    farm: Arc<str>,
    server: ServerId,
    config: Arc<ClientConfig>,
}

/// True if the node of this directory has a certificate, and so needs no founding file.
#[must_use]
pub fn is_named(dir: &Path) -> bool {
    dir.join(FOLDER).join(CERTIFICATE).exists()
}

/// Why a node cannot prove who it is.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// Its founding file.
    #[error(transparent)]
    Founding(#[from] FoundingFileError),
    /// Its folder cannot be used.
    #[error("{} cannot be used: {source}", path.display())]
    Folder {
        /// The folder or a file in it.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What it has there is damaged.
    #[error("{} is damaged ({what}): remove {}, and start once with the founding file", path.display(), folder.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// It has a name, and the founding file says that links are not encrypted.
    #[error("{} has a certificate, and the founding file says security = \"none\": name the founding file that this node began with", folder.display())]
    WasSecured {
        /// Where the certificate is.
        folder: PathBuf,
    },
    /// It has a name already, from another authority.
    #[error("the certificate in {} is from another authority than the founding file's: name the founding file of this farm, or give this node a directory of its own", folder.display())]
    OtherAuthority {
        /// Where the certificate is.
        folder: PathBuf,
    },
    /// It has a name, and it is not this one.
    #[error("{}: {refusal}", folder.display())]
    OtherNode {
        /// Where the certificate is.
        folder: PathBuf,
        /// What is wrong with it.
        refusal: Refusal,
    },
    /// What is to name the nodes of a neighbour does not.
    #[error("{} is not the certificate of an authority of farm {farm}: copy that farm's, which primus init and its servers have", path.display())]
    Neighbour {
        /// The neighbour.
        farm: String,
        /// The file.
        path: PathBuf,
    },
    /// It has no name, and nobody here can give it one.
    #[error(
        "this node has no certificate, and the founding file has no key to issue one: copy the whole file that primus init has made"
    )]
    NoKey,
    /// Nobody can be called that.
    #[error("{0} of this farm cannot have a certificate: {1}")]
    Name(String, NameError),
    /// The authority does not do it.
    #[error("no certificate can be issued: {0}")]
    Authority(#[from] AuthorityError),
    /// A key cannot be made.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl CredentialsError {
    /// True if trying again changes nothing, because this node may not be what it says.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        !matches!(self, Self::Folder { .. } | Self::Key(_))
    }
}

impl Security {
    /// What the node of this name has in its directory, or what the founding file gives it. Without either its links are plain.
    ///
    /// # Errors
    /// If what is there does not belong to this node, or cannot be read.
    pub fn open(dir: &Path, farm: &str, node: &Node, founding: Option<&Path>) -> Result<Self, CredentialsError> {
        // Where links are plain, nodes may be called what they like.
        if founding.is_none() && !is_named(dir) {
            return Ok(Self::None);
        }
        let name = match node {
            Node::Server(id) => Name::server(farm, *id),
            Node::Worker(worker) => Name::worker(farm, worker),
        };
        Self::open_for(dir, &name.map_err(|error| CredentialsError::Name(node.to_string(), error))?, founding)
    }

    /// The same for a node that is to know the nodes of other farms, too: by the certificates of their authorities in these files.
    ///
    /// # Errors
    /// If one of these is not one, or of another farm.
    pub fn with_neighbours(self, files: &BTreeMap<String, PathBuf>) -> Result<Self, CredentialsError> {
        let Self::Tls(own) = &self else { return Ok(self) };
        let authorities = files.iter().map(|(farm, path)| read_authority(farm, path)).collect::<Result<_, _>>()?;
        Ok(Self::Tls(Arc::new(own.trusting(authorities)?)))
    }

    /// From now on these authorities are believed about their farms, beside the own one, and no others. Links that are up are
    /// for others to close.
    ///
    /// # Errors
    /// If one of them claims to be the own farm's.
    pub fn set_neighbours(&self, authorities: Vec<AuthorityCertificate>) -> Result<(), AuthorityError> {
        let Self::Tls(own) = self else { return Ok(()) };
        let believed = Believed::new(&own.credentials, own.trust_with(authorities)?);
        *own.believed.write().expect("nobody panics while holding this") = believed;
        Ok(())
    }

    /// The same for a worker that goes to another farm, whose authority it was told by its own.
    pub(crate) fn abroad(&self, farm: &str, authority: Option<&[u8]>) -> Self {
        let Self::Tls(own) = self else { return Self::None };
        let authority = authority.and_then(|der| AuthorityCertificate::from_der(der).ok());
        let authority = authority.filter(|authority| authority.farm() == farm);
        // With an authority that cannot be one it knows nobody there, and is refused.
        own.trusting(authority.into_iter().collect()).map_or_else(|_| self.clone(), |tls| Self::Tls(Arc::new(tls)))
    }

    /// Who names the nodes of this farm, if links are encrypted.
    pub(crate) fn authority_of(&self, farm: &str) -> Option<AuthorityCertificate> {
        let Self::Tls(own) = self else { return None };
        own.trust().authorities().iter().find(|authority| authority.farm() == farm).cloned()
    }

    fn open_for(dir: &Path, name: &Name, founding: Option<&Path>) -> Result<Self, CredentialsError> {
        let founding = founding.map(|path| FoundingFile::read(path, name.farm())).transpose()?;
        let place = Place { folder: dir.join(FOLDER) };
        let kept = place.read()?;
        let (authority, issuer) = match founding.map(|file| file.authority) {
            None if kept.is_none() => return Ok(Self::None),
            Some(None) if kept.is_none() => return Ok(Self::None),
            Some(None) => return Err(CredentialsError::WasSecured { folder: place.folder }),
            None => (None, None),
            Some(Some(FoundingAuthority::Whole(authority))) => {
                (Some(authority.certificate().clone()), Some(authority))
            }
            Some(Some(FoundingAuthority::Certificate(certificate))) => (Some(certificate), None),
        };
        let kept = kept.map(|kept| place.check(kept, name, authority.as_ref(), issuer.is_some())).transpose()?;
        let kept = match (kept, issuer) {
            (Some(kept), None) => kept,
            (Some(kept), Some(_)) if kept.is_good(name) => kept,
            (kept, Some(issuer)) => place.issue(kept.map(|kept| kept.keys), name, &issuer)?,
            (None, None) => return Err(CredentialsError::NoKey),
        };
        let trust = Trust::new(name.farm(), vec![kept.authority], Vec::new())?;
        Ok(Self::Tls(Arc::new(Tls::new(kept.credentials, trust))))
    }

    /// How to dial a server of a farm; nothing if that is plain.
    pub(crate) fn towards(&self, farm: &str, server: ServerId) -> Option<Callee> {
        let Self::Tls(own) = self else { return None };
        let config = config::dialling(&own.credentials, &own.trust(), farm, Arc::new(HostClock));
        Some(Callee { own: Arc::clone(own), farm: farm.into(), server, config })
    }
}

impl Tls {
    /// A node that shows this certificate.
    #[must_use]
    pub fn new(credentials: Credentials, trust: Trust) -> Self {
        let believed = RwLock::new(Believed::new(&credentials, trust));
        Self { credentials, believed }
    }

    /// The same node, that believes these authorities about their farms, beside its own.
    fn trusting(&self, neighbours: Vec<AuthorityCertificate>) -> Result<Self, AuthorityError> {
        Ok(Self::new(self.credentials.clone(), self.trust_with(neighbours)?))
    }

    fn trust_with(&self, neighbours: Vec<AuthorityCertificate>) -> Result<Trust, AuthorityError> {
        let trust = self.trust();
        let own = trust.authorities().iter().filter(|authority| authority.farm() == trust.farm());
        Trust::new(trust.farm(), own.cloned().collect(), neighbours)
    }

    fn believed(&self) -> Believed {
        self.believed.read().expect("nobody panics while holding this").clone()
    }

    fn trust(&self) -> Arc<Trust> {
        self.believed().trust
    }

    /// The node of this name, as this authority names it.
    #[cfg(test)]
    pub(crate) fn of(authority: &Authority, name: &Name) -> Security {
        let keys = Keys::generate().expect("there is randomness");
        let request = Request { name, key: &keys.public_key(), api: &[], serial: 7 };
        let der =
            authority.issue(&request, Validity::since_yesterday(UnixTime::now(), DAYS)).expect("it is its farm");
        let credentials = Credentials::new(der, authority.certificate(), &keys).expect("it was issued for it");
        let trust =
            Trust::new(name.farm(), vec![authority.certificate().clone()], Vec::new()).expect("it is its farm");
        Security::Tls(Arc::new(Self::new(credentials, trust)))
    }

    pub(crate) fn accepting(&self) -> Arc<ServerConfig> {
        self.believed().accepting
    }

    /// Who calls.
    pub(crate) fn caller(&self, connection: &ServerConnection) -> Result<Identified, Refusal> {
        match peer::caller(connection, &self.trust(), &everybody, UnixTime::now())? {
            Caller::Known(who) => Ok(who),
            Caller::Joiner => Err(Refusal::NoCertificate),
        }
    }
}

impl Believed {
    fn new(credentials: &Credentials, trust: Trust) -> Self {
        let trust = Arc::new(trust);
        let accepting = config::accepting(credentials, &trust, Arc::new(HostClock));
        Self { trust, accepting }
    }
}

impl Callee {
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    pub(crate) fn name(&self) -> ServerName<'static> {
        name::dial(self.server)
    }

    /// Who answers.
    pub(crate) fn judge(&self, connection: &ClientConnection) -> Result<Identified, Refusal> {
        let who = peer::callee(connection, &self.own.trust(), &everybody, UnixTime::now())?;
        who.server_of(&self.farm)?;
        Ok(who)
    }
}

/// The certificate of another farm's authority. It is no secret.
fn read_authority(farm: &str, path: &Path) -> Result<AuthorityCertificate, CredentialsError> {
    let (farm, path) = (farm.to_owned(), path.to_owned());
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(CredentialsError::Folder { path, source }),
    };
    let authority = AuthorityCertificate::from_pem(&text).ok().filter(|authority| authority.farm() == farm);
    authority.ok_or(CredentialsError::Neighbour { farm, path })
}

/// As far as certificates say, everybody who is named by an authority is welcome.
fn everybody(_: &Identified) -> Result<(), Refusal> {
    Ok(())
}

/// What a node has.
struct Kept {
    keys: Keys,
    authority: AuthorityCertificate,
    credentials: Credentials,
}

impl Kept {
    /// True if it need not be issued anew.
    fn is_good(&self, name: &Name) -> bool {
        let certificate = self.credentials.certificate();
        certificate.name == *name && !certificate.validity.is_renewal_due(UnixTime::now())
    }
}

/// Where a node has it.
struct Place {
    folder: PathBuf,
}

impl Place {
    /// What is there, if it is there.
    fn read(&self) -> Result<Option<Kept>, CredentialsError> {
        let Some(certificate) = self.text(CERTIFICATE)? else { return Ok(None) };
        let damaged = |name: &str, what: String| CredentialsError::Damaged {
            path: self.folder.join(name),
            folder: self.folder.clone(),
            what,
        };
        let missing = |name: &str| damaged(name, "it is missing".to_owned());
        let keys = Keys::from_pem(&self.text(KEY)?.ok_or_else(|| missing(KEY))?)
            .map_err(|error| damaged(KEY, error.to_string()))?;
        let authority = AuthorityCertificate::from_pem(&self.text(AUTHORITY)?.ok_or_else(|| missing(AUTHORITY))?)
            .map_err(|error| damaged(AUTHORITY, error.to_string()))?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| damaged(CERTIFICATE, "it is not a certificate".to_owned()))?;
        let credentials = Credentials::new(der, &authority, &keys)
            .map_err(|refusal| damaged(CERTIFICATE, refusal.to_string()))?;
        Ok(Some(Kept { keys, authority, credentials }))
    }

    fn text(&self, name: &str) -> Result<Option<String>, CredentialsError> {
        let path = self.folder.join(name);
        match private::open(&path).and_then(io::read_to_string) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CredentialsError::Folder { path, source }),
        }
    }

    /// Does this belong to the node of this name? It may have been renamed, if it can be issued anew.
    fn check(
        &self,
        kept: Kept,
        name: &Name,
        authority: Option<&AuthorityCertificate>,
        is_renamed: bool,
    ) -> Result<Kept, CredentialsError> {
        let folder = self.folder.clone();
        if authority.is_some_and(|authority| authority.hash() != kept.authority.hash()) {
            return Err(CredentialsError::OtherAuthority { folder });
        }
        let own = &kept.credentials.certificate().name;
        let is_same_kind = own.farm() == name.farm() && own.server_id().is_some() == name.server_id().is_some();
        if own == name || is_same_kind && own.server_id().is_none() && is_renamed {
            return Ok(kept);
        }
        let refusal = match is_same_kind {
            true => Refusal::HelloDiffers { certificate: own.clone(), hello: name.clone() },
            false if own.farm() != name.farm() => {
                Refusal::OtherFarm { name: own.clone(), wanted: name.farm().to_owned() }
            }
            false => {
                let wanted = if name.server_id().is_some() { "server" } else { "worker" };
                Refusal::WrongRole { name: own.clone(), wanted }
            }
        };
        Err(CredentialsError::OtherNode { folder, refusal })
    }

    /// Gives the node its name, for a key that it has or that is made now.
    fn issue(&self, keys: Option<Keys>, name: &Name, authority: &Authority) -> Result<Kept, CredentialsError> {
        let keys = keys.map_or_else(Keys::generate, Ok)?;
        let mut serial = [0; 8];
        getrandom::fill(&mut serial).map_err(|_| KeyError::NoRandomness)?;
        let request = Request { name, key: &keys.public_key(), api: &[], serial: u64::from_be_bytes(serial) };
        let der = authority.issue(&request, Validity::since_yesterday(UnixTime::now(), DAYS))?;
        self.write(&keys, authority.certificate(), &pem_of(&der))
            .map_err(|source| CredentialsError::Folder { path: self.folder.clone(), source })?;
        self.read()?.ok_or_else(|| CredentialsError::Folder {
            path: self.folder.clone(),
            source: ErrorKind::NotFound.into(),
        })
    }

    /// The certificate comes last: without it nothing is there.
    fn write(&self, keys: &Keys, authority: &AuthorityCertificate, certificate: &str) -> io::Result<()> {
        private::own_folder(&self.folder)?;
        self.replace(KEY, &keys.secret_pem())?;
        self.replace(AUTHORITY, &authority.pem())?;
        self.replace(CERTIFICATE, certificate)
    }

    fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let unfinished = self.folder.join(format!("{name}.new"));
        let mut file = private::make(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(unfinished, self.folder.join(name))?;
        fs::File::open(&self.folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// A directory with the founding file of farm north.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("primus-credentials-{name}-{}", std::process::id()));
            private::folder(&path).expect("there is room for a directory");
            let scratch = Self(path);
            scratch.found("north", true);
            scratch
        }

        fn found(&self, name: &str, is_secured: bool) -> PathBuf {
            let path = self.file(name);
            _ = fs::remove_file(&path);
            FoundingFile::create("north", BTreeMap::new(), is_secured).unwrap().write(&path).unwrap();
            path
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(format!("{name}.founding"))
        }

        fn open(&self, name: &Name, founding: Option<&Path>) -> Result<Arc<Tls>, CredentialsError> {
            match Security::open_for(&self.0, name, founding)? {
                Security::Tls(tls) => Ok(tls),
                Security::None => panic!("it has a certificate"),
            }
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    fn server(id: u64) -> Name {
        Name::server("north", ServerId(id)).unwrap()
    }

    fn worker(name: &str) -> Name {
        Name::worker("north", name).unwrap()
    }

    #[test]
    fn a_node_is_named_once_and_then_needs_no_founding_file() {
        let scratch = Scratch::new("once");
        let north = scratch.file("north");
        assert!(matches!(
            Security::open(&scratch.0, "north", &Node::Server(ServerId(2)), None),
            Ok(Security::None)
        ));
        let first = scratch.open(&server(2), Some(&north)).unwrap();
        assert_eq!(first.credentials.certificate().name, server(2));
        for founding in [Some(&*north), None] {
            let again = scratch.open(&server(2), founding).unwrap();
            assert_eq!(again.credentials.certificate(), first.credentials.certificate());
        }
        let folder = scratch.0.join(FOLDER);
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        for file in fs::read_dir(folder).unwrap() {
            assert_eq!(file.unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_directory_belongs_to_one_node() {
        let scratch = Scratch::new("node");
        let north = scratch.file("north");
        scratch.open(&server(2), Some(&north)).unwrap();
        let refused = |name: &Name, founding: Option<&Path>| scratch.open(name, founding).unwrap_err().to_string();
        for founding in [Some(&*north), None] {
            assert!(refused(&worker("w1"), founding).contains("server 2 of farm north, and a worker was expected"));
            assert!(refused(&server(3), founding).contains("but the hello says server 3"));
        }
        let other = scratch.found("other", true);
        assert!(refused(&server(2), Some(&other)).contains("another authority"));
        let plain = scratch.found("plain", false);
        assert!(refused(&server(2), Some(&plain)).contains("security = \"none\""));
    }

    #[test]
    fn a_worker_may_be_renamed_by_the_one_who_could_name_it() {
        let scratch = Scratch::new("worker");
        let north = scratch.file("north");
        let first = scratch.open(&worker("w1"), Some(&north)).unwrap();
        assert!(matches!(scratch.open(&worker("w2"), None), Err(CredentialsError::OtherNode { .. })));
        let second = scratch.open(&worker("w2"), Some(&north)).unwrap();
        assert_eq!(second.credentials.certificate().key, first.credentials.certificate().key);
        assert_eq!(second.credentials.certificate().name, worker("w2"));
    }

    #[test]
    fn a_certificate_that_is_old_is_renewed_by_a_founding_file_and_kept_without_one() {
        let scratch = Scratch::new("renewed");
        let north = scratch.file("north");
        let FoundingFile { authority: Some(FoundingAuthority::Whole(authority)), .. } =
            FoundingFile::read(&north, "north").unwrap()
        else {
            panic!("it has a key")
        };
        let (keys, place) = (Keys::generate().unwrap(), Place { folder: scratch.0.join(FOLDER) });
        let long_ago = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
        let request = Request { name: &server(2), key: &keys.public_key(), api: &[], serial: 7 };
        let der = authority.issue(&request, Validity::since_yesterday(long_ago, 10)).unwrap();
        place.write(&keys, authority.certificate(), &pem_of(&der)).unwrap();
        assert_eq!(scratch.open(&server(2), None).unwrap().credentials.certificate().serial, 7);
        let renewed = scratch.open(&server(2), Some(&north)).unwrap();
        assert_ne!(renewed.credentials.certificate().serial, 7);
        assert!(renewed.credentials.certificate().validity.judge(UnixTime::now()).is_ok());
    }

    #[test]
    fn what_is_damaged_is_named() {
        let scratch = Scratch::new("damaged");
        let north = scratch.file("north");
        scratch.open(&server(2), Some(&north)).unwrap();
        for name in [KEY, AUTHORITY, CERTIFICATE] {
            let path = scratch.0.join(FOLDER).join(name);
            let before = fs::read(&path).unwrap();
            fs::write(&path, "nonsense").unwrap();
            let refused = scratch.open(&server(2), None).unwrap_err();
            assert!(
                matches!(&refused, CredentialsError::Damaged { path: named, .. } if *named == path),
                "{refused}"
            );
            fs::write(&path, before).unwrap();
        }
        assert!(scratch.open(&server(2), None).is_ok());
    }
}
