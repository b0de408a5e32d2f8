//! What a node has that joins with a token: a key before it asks, and a certificate when it is in.

use std::path::Path;

use primus_identity::authority::AuthorityCertificate;
use primus_identity::config::Credentials;
use primus_identity::keys::Keys;
use primus_identity::name::Name;
use primus_identity::refusal::Refusal;
use primus_identity::{CertificateDer, UnixTime};

use super::folder::{Folder, Kept, Trusted};
use super::{CredentialsError, is_named};

/// The key for which a joiner asks a certificate. It is on disk before it is shown, so that one that dies in between asks again
/// for the same.
pub(crate) fn key_to_join(dir: &Path) -> Result<Keys, CredentialsError> {
    let folder = Folder::of(dir);
    match folder.key()? {
        Some(kept) => Ok(kept),
        None => {
            let keys = Keys::generate()?;
            folder.keep_key(&keys)?;
            Ok(keys)
        }
    }
}

/// Keeps what a joiner was given, if it is what was asked for: a certificate, what vouches for its authority, and the authorities,
/// the one that has issued it first. From then on the node has its name.
pub(crate) fn keep_joined(
    dir: &Path,
    keys: &Keys,
    name: &Name,
    (certificate, voucher, authorities): (Vec<u8>, Vec<u8>, Vec<AuthorityCertificate>),
) -> Result<(), CredentialsError> {
    let folder = Folder::of(dir);
    let wrong = |refusal: Refusal| CredentialsError::OtherNode { folder: folder.path().to_owned(), refusal };
    let newest = authorities.first().ok_or_else(|| wrong(Refusal::ForeignAuthority))?;
    let credentials = Credentials::new(CertificateDer::from(certificate.clone()), newest, keys).map_err(wrong)?;
    let given = &credentials.certificate().name;
    if given != name {
        return Err(wrong(Refusal::HelloDiffers { certificate: given.clone(), hello: name.clone() }));
    }
    folder.keep_joined(&Trusted { authorities, ..Trusted::default() }, &voucher, &certificate)
}

/// True if the node of this directory has a certificate, and now is not after its time.
#[must_use]
pub fn has_joined(dir: &Path) -> bool {
    // What is damaged is complained of when it is used.
    let until = |kept: Kept| kept.credentials.certificate().validity.until;
    is_named(dir) && Folder::of(dir).read().ok().flatten().is_none_or(|kept| UnixTime::now() <= until(kept))
}
