//! How a farm on this host begins: with a founding file in its own folder, so that its links are encrypted and nobody has to do
//! anything for it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use primus_identity::authority::AuthorityCertificate;
use primus_node::founding_file::FoundingFile;
use primus_node::private;
use primus_terminal::failure::Failure;

use crate::home::Home;

/// What the file is called.
const FOUNDING: &str = "farm.founding";
/// What the certificate of its authority is called, which neighbours read.
const AUTHORITY: &str = "authority.pem";

/// Where the nodes of a farm find it.
#[derive(Debug)]
pub(crate) struct Founding {
    pub(crate) file: PathBuf,
    /// Nothing if links are not encrypted.
    pub(crate) authority: Option<PathBuf>,
}

impl Founding {
    /// The founding of this farm: as the folder has it, or a new one.
    ///
    /// # Errors
    /// If the folder holds a farm whose links are encrypted, and they are not to be; or if it cannot be written.
    pub(crate) fn of(home: &Home, is_insecure: bool) -> Result<Self, Failure> {
        let file = home.dir.join(FOUNDING);
        let founding = match file.exists() {
            true => FoundingFile::read(&file, &home.name).map_err(|error| failed(&error))?,
            false => make(&file, &home.name, !is_insecure)?,
        };
        if is_insecure && founding.certificate().is_some() {
            let message = format!("{} holds a farm whose links are encrypted", home.dir.display());
            return Err(Failure::usage(message, "leave --insecure out, or choose another folder"));
        }
        let authority = founding.certificate().map(|certificate| keep(&home.dir, certificate)).transpose()?;
        Ok(Self { file, authority })
    }
}

fn make(file: &Path, farm: &str, is_secured: bool) -> Result<FoundingFile, Failure> {
    let founding = FoundingFile::create(farm, BTreeMap::new(), is_secured).map_err(|error| failed(&error))?;
    founding.write(file).map_err(|error| failed(&error))?;
    Ok(founding)
}

fn keep(dir: &Path, certificate: &AuthorityCertificate) -> Result<PathBuf, Failure> {
    let path = dir.join(AUTHORITY);
    private::write(&path, certificate.pem()).map_err(|error| failed(&error))?;
    Ok(path)
}

fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::failed("storage", error.to_string(), "choose another folder with --dir")
}
