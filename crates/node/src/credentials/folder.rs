//! Where a node keeps what proves who it is: `tls` in its directory.
//!
//! Each file changes as a whole. A crash between two of them leaves a certificate and, in one file or another, the authority that
//! has issued it: authorities are written down before anything that they have signed.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use primus_core::ledger::roll::FOUNDING_SERIAL;
use primus_identity::authority::{Authority, AuthorityCertificate, Request, pem_of};
use primus_identity::certificate::Validity;
use primus_identity::config::Credentials;
use primus_identity::hash::AuthorityHash;
use primus_identity::keys::{KeyError, Keys};
use primus_identity::name::Name;
use primus_identity::refusal::Refusal;
use primus_identity::rustls::pki_types::pem::PemObject;
use primus_identity::{CertificateDer, UnixTime};

use super::CredentialsError;
use super::live::vouched;
use crate::private;

/// The folder in a node's directory, and the files there.
const FOLDER: &str = "tls";
const KEY: &str = "key.pem";
pub(super) const CERTIFICATE: &str = "certificate.pem";
/// The authority that has issued the certificate.
const AUTHORITY: &str = "authority.pem";
/// What vouches for it, if anything does.
const VOUCHER: &str = "voucher.pem";
/// All authorities that are trusted, once the farm has said so.
const TRUSTED: &str = "trusted.pem";
/// The authority with which the farm began, with its key, until the ledger has it.
const FOUNDING: &str = "founding.pem";
/// How many days a certificate is good.
pub(crate) const DAYS: u32 = 365;
/// What stands before certificates in the list of the trusted.
const AS_OF: &str = "# as of ";
const WAS: &str = "# was ";
/// How many authorities of the past are remembered.
const WAS_MAX: usize = 16;

/// Where a node has it.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

/// What a node has.
pub(super) struct Kept {
    pub(super) keys: Arc<Keys>,
    pub(super) credentials: Credentials,
    pub(super) trusted: Trusted,
}

/// The authorities that a node believes about its own farm.
#[derive(Debug, Clone, Default)]
pub(super) struct Trusted {
    /// The newest first.
    pub(super) authorities: Vec<AuthorityCertificate>,
    /// How old this is, in milliseconds since 1970 by the ledger's time.
    pub(super) as_of_ms: u64,
    /// Those that were trusted before.
    pub(super) was: Vec<AuthorityHash>,
}

impl Trusted {
    /// What is believed after this.
    pub(super) fn followed_by(&self, as_of_ms: u64, authorities: Vec<AuthorityCertificate>) -> Self {
        let is_present = |hash: &AuthorityHash| authorities.iter().any(|authority| authority.hash() == *hash);
        let gone = self.authorities.iter().map(AuthorityCertificate::hash).chain(self.was.iter().copied());
        let was = gone.filter(|hash| !is_present(hash)).take(WAS_MAX).collect();
        Self { authorities, as_of_ms, was }
    }

    fn text(&self) -> String {
        let was = self.was.iter().map(|hash| format!("{WAS}{hash}\n"));
        let trusted = self.authorities.iter().map(AuthorityCertificate::pem);
        std::iter::once(format!("{AS_OF}{}\n", self.as_of_ms)).chain(was).chain(trusted).collect()
    }

    fn from_text(text: &str) -> Option<Self> {
        let read = |der: CertificateDer<'_>| AuthorityCertificate::from_der(&der).ok();
        let authorities = CertificateDer::pem_slice_iter(text.as_bytes()).map(|der| read(der.ok()?));
        let lines = |mark: &'static str| text.lines().filter_map(move |line| line.strip_prefix(mark));
        Some(Self {
            authorities: authorities.collect::<Option<_>>()?,
            as_of_ms: lines(AS_OF).next()?.parse().ok()?,
            was: lines(WAS).map(str::parse).collect::<Result<_, _>>().ok()?,
        })
    }
}

impl Kept {
    /// True if it need not be issued anew.
    pub(super) fn is_good(&self, name: &Name) -> bool {
        let certificate = self.credentials.certificate();
        certificate.name == *name && !certificate.validity.is_renewal_due(UnixTime::now())
    }

    /// Is this authority the one that issues certificates, as far as this node knows?
    pub(super) fn is_newest(&self, authority: &AuthorityCertificate) -> bool {
        self.trusted.authorities.first().is_none_or(|newest| newest.hash() == authority.hash())
    }

    /// Does this node know that its farm has, or had, this authority?
    fn knows(&self, authority: &AuthorityCertificate) -> bool {
        let hash = authority.hash();
        let is_trusted = self.trusted.authorities.iter().any(|known| known.hash() == hash);
        self.credentials.issuer() == hash || is_trusted || self.trusted.was.contains(&hash)
    }
}

impl Folder {
    pub(super) fn of(dir: &Path) -> Self {
        Self(dir.join(FOLDER))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// What is there, if it is there.
    pub(super) fn read(&self) -> Result<Option<Kept>, CredentialsError> {
        let Some(certificate) = self.text(CERTIFICATE)? else { return Ok(None) };
        let missing = |name: &str| self.damaged(name, "it is missing".to_owned());
        let keys = Keys::from_pem(&self.text(KEY)?.ok_or_else(|| missing(KEY))?)
            .map_err(|error| self.damaged(KEY, error.to_string()))?;
        let authority = AuthorityCertificate::from_pem(&self.text(AUTHORITY)?.ok_or_else(|| missing(AUTHORITY))?)
            .map_err(|error| self.damaged(AUTHORITY, error.to_string()))?;
        let trusted = self.trusted(&authority)?;
        let der = certificate_of(&certificate)
            .ok_or_else(|| self.damaged(CERTIFICATE, "it is not a certificate".to_owned()))?;
        // A crash may have come after one of two files was written.
        let issuers = std::iter::once(&authority).chain(&trusted.authorities);
        let mut refusal = None;
        for issuer in issuers {
            match Credentials::new(der.clone(), issuer, &keys) {
                Ok(credentials) => {
                    let voucher = self.text(VOUCHER)?.and_then(|text| certificate_of(&text));
                    let credentials = vouched(credentials, &voucher.unwrap_or_else(|| Vec::new().into()));
                    return Ok(Some(Kept { keys: Arc::new(keys), credentials, trusted }));
                }
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(self.damaged(CERTIFICATE, refusal.map(|refusal| refusal.to_string()).unwrap_or_default()))
    }

    /// Until the farm has said whom to trust, it is the authority that has issued the certificate.
    fn trusted(&self, authority: &AuthorityCertificate) -> Result<Trusted, CredentialsError> {
        match self.text(TRUSTED)? {
            Some(text) => Trusted::from_text(&text)
                .filter(|trusted| !trusted.authorities.is_empty())
                .ok_or_else(|| self.damaged(TRUSTED, "it is not a list of authorities".to_owned())),
            None => Ok(Trusted { authorities: vec![authority.clone()], ..Trusted::default() }),
        }
    }

    fn damaged(&self, name: &str, what: String) -> CredentialsError {
        CredentialsError::Damaged { path: self.0.join(name), folder: self.0.clone(), what }
    }

    fn text(&self, name: &str) -> Result<Option<String>, CredentialsError> {
        let path = self.0.join(name);
        match private::open(&path).and_then(io::read_to_string) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(CredentialsError::Folder { path, source }),
        }
    }

    fn unusable(&self, source: io::Error) -> CredentialsError {
        CredentialsError::Folder { path: self.0.clone(), source }
    }

    /// Does this belong to the node of this name? It may have been renamed, if it can be issued anew.
    pub(super) fn check(
        &self,
        kept: Kept,
        name: &Name,
        authority: Option<&AuthorityCertificate>,
        is_renamed: bool,
    ) -> Result<Kept, CredentialsError> {
        let folder = self.0.clone();
        if authority.is_some_and(|authority| !kept.knows(authority)) {
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
    pub(super) fn issue(
        &self,
        kept: Option<Kept>,
        name: &Name,
        authority: &Authority,
    ) -> Result<Kept, CredentialsError> {
        let keys = kept.map_or_else(|| Keys::generate().map(Arc::new), |kept| Ok(kept.keys))?;
        let mut serial = [0; 8];
        getrandom::fill(&mut serial).map_err(|_| KeyError::NoRandomness)?;
        // The ledger has not given it out.
        let serial = u64::from_be_bytes(serial) | FOUNDING_SERIAL;
        let request = Request { name, key: &keys.public_key(), api: &[], serial };
        // This host's clock may be wrong. So it is good since the farm began, and the leader gives a better one when they meet.
        let began = authority.certificate().validity().from;
        let Validity { until, .. } = Validity::since_yesterday(UnixTime::now().max(began), DAYS);
        let der = authority.issue(&request, Validity { from: began, until })?;
        self.write(&keys, authority.certificate(), &pem_of(&der)).map_err(|source| self.unusable(source))?;
        self.read()?.ok_or_else(|| self.unusable(ErrorKind::NotFound.into()))
    }

    /// The certificate comes last: without it nothing is there.
    pub(super) fn write(&self, keys: &Keys, authority: &AuthorityCertificate, certificate: &str) -> io::Result<()> {
        private::own_folder(&self.0)?;
        self.replace(KEY, &keys.secret_pem())?;
        self.replace(AUTHORITY, &authority.pem())?;
        self.replace(CERTIFICATE, certificate)
    }

    /// The key of a node that has no certificate yet, if it has one.
    pub(super) fn key(&self) -> Result<Option<Keys>, CredentialsError> {
        let keys = self.text(KEY)?.map(|text| Keys::from_pem(&text)).transpose();
        keys.map_err(|error| self.damaged(KEY, error.to_string()))
    }

    /// Keeps it.
    pub(super) fn keep_key(&self, keys: &Keys) -> Result<(), CredentialsError> {
        let kept = private::own_folder(&self.0).and_then(|()| self.replace(KEY, &keys.secret_pem()));
        kept.map_err(|source| self.unusable(source))
    }

    /// Keeps the first certificate of a node that has joined, for the key that is kept already. The certificate comes last.
    pub(super) fn keep_joined(
        &self,
        trusted: &Trusted,
        voucher: &[u8],
        certificate: &[u8],
    ) -> Result<(), CredentialsError> {
        let keep = || {
            self.keep_trusted(trusted)?;
            trusted.authorities.first().map_or(Ok(()), |newest| self.replace(AUTHORITY, &newest.pem()))?;
            match voucher {
                [] => self.remove(VOUCHER)?,
                voucher => self.replace(VOUCHER, &pem_of(&CertificateDer::from(voucher)))?,
            }
            self.replace(CERTIFICATE, &pem_of(&CertificateDer::from(certificate)))
        };
        keep().map_err(|source| self.unusable(source))
    }

    /// Writes down which authorities are trusted.
    pub(super) fn keep_trusted(&self, trusted: &Trusted) -> io::Result<()> {
        self.replace(TRUSTED, &trusted.text())
    }

    /// Writes down a certificate that an authority has issued which is trusted already.
    pub(super) fn keep_certificate(
        &self,
        certificate: &[u8],
        authority: &AuthorityCertificate,
        voucher: &[u8],
    ) -> io::Result<()> {
        self.replace(CERTIFICATE, &pem_of(&CertificateDer::from(certificate)))?;
        self.replace(AUTHORITY, &authority.pem())?;
        match voucher {
            [] => self.remove(VOUCHER),
            voucher => self.replace(VOUCHER, &pem_of(&CertificateDer::from(voucher))),
        }
    }

    /// Keeps the authority with which the farm began, because the file that says so may be deleted.
    pub(super) fn keep_founding(&self, authority: &Authority) -> Result<(), CredentialsError> {
        let text = authority.certificate().pem() + &authority.keys().secret_pem();
        self.replace(FOUNDING, &text).map_err(|source| self.unusable(source))
    }

    /// What was kept of it.
    pub(super) fn founding(&self) -> Result<Option<Authority>, CredentialsError> {
        let Some(text) = self.text(FOUNDING)? else { return Ok(None) };
        let damaged = |error: &dyn std::fmt::Display| self.damaged(FOUNDING, error.to_string());
        let certificate = AuthorityCertificate::from_pem(&text).map_err(|error| damaged(&error))?;
        let keys = Keys::from_pem(&text).map_err(|error| damaged(&error))?;
        Authority::new(certificate, keys).map(Some).map_err(|error| damaged(&error))
    }

    /// The ledger has it.
    pub(super) fn forget_founding(&self) -> io::Result<()> {
        self.remove(FOUNDING)
    }

    fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        let unfinished = self.0.join(format!("{name}.new"));
        let mut file = private::make(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(unfinished, self.0.join(name))?;
        fs::File::open(&self.0)?.sync_all()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn certificate_of(pem: &str) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(pem.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_trusted_is_read_as_it_was_written() {
        let authority = || Authority::create("north", UnixTime::now()).unwrap().certificate().clone();
        let [first, second, third] = [authority(), authority(), authority()];
        let began = Trusted { authorities: vec![first.clone()], ..Trusted::default() };
        let rotated = began.followed_by(7, vec![second.clone(), first.clone()]);
        let finished = rotated.followed_by(8, vec![second.clone()]).followed_by(9, vec![third.clone()]);
        for trusted in [began, rotated, finished.clone()] {
            let again = Trusted::from_text(&trusted.text()).unwrap();
            assert_eq!(again.text(), trusted.text());
            assert_eq!(again.as_of_ms, trusted.as_of_ms);
        }
        assert_eq!(finished.was, [second.hash(), first.hash()]);
        assert!(Trusted::from_text("# as of noon\n").is_none() && Trusted::from_text("").is_none());
    }
}
