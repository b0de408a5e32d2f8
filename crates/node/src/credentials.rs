//! What a node shows of itself on links, and whom it believes: nothing and everybody on plain links, certificates on others.
//!
//! A node keeps its own key and certificate, with the certificate of the authority that gave it, in `tls` in its directory. It
//! makes the key itself. At its first start the founding file names it, if that has the authority's key; later the node needs no
//! founding file any more. Each time it starts with one, it renews what is due.

mod farm_clock;
mod folder;
mod joined;
mod live;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use primus_core::ServerId;
use primus_identity::ServerName;
use primus_identity::authority::{Authority, AuthorityCertificate, AuthorityError};
use primus_identity::keys::KeyError;
use primus_identity::name::{self, Name, NameError, Node};
use primus_identity::peer;
use primus_identity::refusal::Refusal;
use primus_identity::rustls::ClientConnection;
use primus_identity::trust::Identified;

pub(crate) use self::folder::DAYS;
use self::folder::{CERTIFICATE, Folder};
pub use self::joined::has_joined;
pub(crate) use self::joined::{keep_joined, key_to_join};
pub(crate) use self::live::{Issued, Live, Shown, Welcome};
pub use self::live::{Tls, entry_of};
use crate::founding_file::{FoundingAuthority, FoundingFile, FoundingFileError};

/// How the links of a node are secured.
#[derive(Debug, Clone, Default)]
pub enum Security {
    /// They are not: everybody who can reach the node is believed.
    #[default]
    None,
    /// By certificates on both sides.
    Tls(Arc<Tls>),
}

/// A server that is to be dialled, and how to be sure that it is the one.
#[derive(Debug, Clone)]
pub(crate) struct Callee {
    own: Arc<Tls>,
    farm: Arc<str>,
    server: ServerId,
}

/// True if the node of this directory has a certificate, and so needs no founding file.
#[must_use]
pub fn is_named(dir: &Path) -> bool {
    Folder::of(dir).path().join(CERTIFICATE).exists()
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
        own.set_neighbours(authorities)
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
        own.shown().trust().authorities().iter().find(|authority| authority.farm() == farm).cloned()
    }

    fn open_for(dir: &Path, name: &Name, founding: Option<&Path>) -> Result<Self, CredentialsError> {
        let founding = founding.map(|path| FoundingFile::read(path, name.farm())).transpose()?;
        let folder = Folder::of(dir);
        let kept = folder.read()?;
        let (authority, issuer) = match founding.map(|file| file.authority) {
            None if kept.is_none() => return Ok(Self::None),
            Some(None) if kept.is_none() => return Ok(Self::None),
            Some(None) => return Err(CredentialsError::WasSecured { folder: folder.path().to_owned() }),
            None => (None, None),
            Some(Some(FoundingAuthority::Whole(authority))) => {
                (Some(authority.certificate().clone()), Some(authority))
            }
            Some(Some(FoundingAuthority::Certificate(certificate))) => (Some(certificate), None),
        };
        let kept = kept.map(|kept| folder.check(kept, name, authority.as_ref(), issuer.is_some())).transpose()?;
        // A farm that has rotated its authority believes the one of its founding no more.
        let issuer = issuer.filter(|issuer| kept.as_ref().is_none_or(|kept| kept.is_newest(issuer.certificate())));
        let kept = match (kept, &issuer) {
            (Some(kept), None) => kept,
            (Some(kept), Some(_)) if kept.is_good(name) => kept,
            (kept, Some(issuer)) => folder.issue(kept, name, issuer)?,
            (None, None) => return Err(CredentialsError::NoKey),
        };
        let founding = keep_founding(&folder, name, issuer)?;
        let tls = Tls::kept(name.farm(), (kept.credentials, kept.trusted), (kept.keys, folder))?;
        tls.live().found(founding);
        Ok(Self::Tls(Arc::new(tls)))
    }

    /// What changes while the node runs; nothing if links are plain.
    pub(crate) fn live(&self) -> Option<&Arc<Live>> {
        let Self::Tls(own) = self else { return None };
        Some(own.live())
    }

    /// What the roll has against the one at the other end of a link.
    pub(crate) fn look_up(&self, who: &Identified) -> Result<(), Refusal> {
        self.live().map_or(Ok(()), |live| live.look_up(who))
    }

    /// How to dial a server of a farm; nothing if that is plain.
    pub(crate) fn towards(&self, farm: &str, server: ServerId) -> Option<Callee> {
        let Self::Tls(own) = self else { return None };
        Some(Callee { own: Arc::clone(own), farm: farm.into(), server })
    }
}

/// Servers keep the authority of the founding until the ledger has it: the file may be deleted before that.
fn keep_founding(
    folder: &Folder,
    name: &Name,
    authority: Option<Box<Authority>>,
) -> Result<Option<Authority>, CredentialsError> {
    match (name.server_id(), authority) {
        (None, _) => Ok(None),
        (Some(_), None) => folder.founding(),
        (Some(_), Some(authority)) => {
            folder.keep_founding(&authority)?;
            Ok(Some(*authority))
        }
    }
}

impl Callee {
    /// What a handshake that begins now needs.
    pub(crate) fn shown(&self) -> Arc<Shown> {
        self.own.shown()
    }

    pub(crate) fn farm(&self) -> &str {
        &self.farm
    }

    pub(crate) fn name(&self) -> ServerName<'static> {
        name::dial(self.server)
    }

    pub(crate) fn live(&self) -> &Arc<Live> {
        self.own.live()
    }

    /// Who answers.
    pub(crate) fn judge(&self, connection: &ClientConnection, shown: &Shown) -> Result<Identified, Refusal> {
        let roll = |who: &Identified| self.live().look_up(who);
        let who = peer::callee(connection, shown.trust(), &roll, shown.present())?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use primus_identity::UnixTime;
    use primus_identity::authority::{Request, pem_of};
    use primus_identity::certificate::{Certificate, Validity};
    use primus_identity::keys::Keys;

    use super::*;
    use crate::private;

    const FILES: [&str; 3] = ["key.pem", "authority.pem", CERTIFICATE];

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

    fn shown(tls: &Tls) -> Certificate {
        tls.shown().certificate().clone()
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
        assert_eq!(shown(&first).name, server(2));
        for founding in [Some(&*north), None] {
            let again = scratch.open(&server(2), founding).unwrap();
            assert_eq!(shown(&again), shown(&first));
        }
        let folder = Folder::of(&scratch.0).path().to_owned();
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
        assert_eq!(shown(&second).key, shown(&first).key);
        assert_eq!(shown(&second).name, worker("w2"));
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
        let (keys, place) = (Keys::generate().unwrap(), Folder::of(&scratch.0));
        let long_ago = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
        let request = Request { name: &server(2), key: &keys.public_key(), api: &[], serial: 7 };
        let der = authority.issue(&request, Validity::since_yesterday(long_ago, 10)).unwrap();
        place.write(&keys, authority.certificate(), &pem_of(&der)).unwrap();
        assert_eq!(shown(&scratch.open(&server(2), None).unwrap()).serial, 7);
        let renewed = scratch.open(&server(2), Some(&north)).unwrap();
        assert_ne!(shown(&renewed).serial, 7);
        assert!(shown(&renewed).validity.judge(UnixTime::now()).is_ok());
    }

    #[test]
    fn what_is_damaged_is_named() {
        let scratch = Scratch::new("damaged");
        let north = scratch.file("north");
        scratch.open(&server(2), Some(&north)).unwrap();
        for name in FILES {
            let path = Folder::of(&scratch.0).path().join(name);
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
