//! Who a worker is, beyond its name: a random number in its folder, so that two workers of one name are noticed.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::files::replace;

const NAME: &str = "identity";

/// The number in this folder; a new one if there is none, or none that is whole.
pub(crate) fn of(directory: &Path) -> io::Result<[u8; 16]> {
    let path = directory.join(NAME);
    match fs::read(&path) {
        Ok(bytes) => {
            if let Ok(whole) = bytes.try_into() {
                return Ok(whole);
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    replace(directory, NAME, &bytes)?;
    Ok(bytes)
}
