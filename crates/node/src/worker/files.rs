//! Small files of a worker that change as a whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::private;

/// Writes a file in the place of an older one of that name. When this returns, a crash does not bring the older one back.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = directory.join(format!("{name}.new"));
    let mut file = private::make(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(unfinished, directory.join(name))?;
    File::open(directory)?.sync_all()
}
