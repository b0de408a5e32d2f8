//! Files and folders for their owner alone.
//!
//! A data directory holds commands, their environments and what they read, so its files are made for their owner alone,
//! whatever the process's umask says. No link is followed at the end of a path: a planted one would have another file
//! truncated or filled. A folder that other users can write to is refused, because no file in it can be trusted.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// What others must not be allowed to do with a folder.
const WRITTEN_BY_OTHERS: u32 = 0o022;
/// What others need not be allowed to do with a file.
const ANYTHING_BY_OTHERS: u32 = 0o077;

/// Why a folder cannot keep anything safe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Exposed {
    /// Others can write there.
    #[error("{} can be written by other users (its mode is {mode:o}): chmod go-w it, or choose another folder", dir.display())]
    Writable {
        /// The folder.
        dir: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to somebody else.
    #[error(
        "{} belongs to user {owner}, and this process runs as {user}: choose another folder, or a new one inside it",
        dir.display()
    )]
    Foreign {
        /// The folder.
        dir: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// It cannot be looked at.
    #[error("{} cannot be used: {what}", dir.display())]
    Unusable {
        /// The folder.
        dir: PathBuf,
        /// What the system says.
        what: String,
    },
}

/// Is this folder ours, and can only we write there? Where it lies does not matter: in a folder like `/tmp` a user cannot
/// replace what belongs to another.
///
/// # Errors
/// If not.
pub fn check(dir: &Path) -> Result<(), Exposed> {
    let about =
        fs::metadata(dir).map_err(|error| Exposed::Unusable { dir: dir.to_owned(), what: error.to_string() })?;
    let (mode, owner, user) = (about.mode() & 0o7777, about.uid(), geteuid().as_raw());
    if owner != user {
        return Err(Exposed::Foreign { dir: dir.to_owned(), owner, user });
    }
    if mode & WRITTEN_BY_OTHERS != 0 {
        return Err(Exposed::Writable { dir: dir.to_owned(), mode });
    }
    Ok(())
}

/// Makes a folder for its owner alone, and what leads to it, if it is missing.
///
/// # Errors
/// What the system says.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).recursive(true).create(path)
}

/// The same for a folder that is certainly our own: one that an older version made for everybody is closed.
///
/// # Errors
/// What the system says.
pub fn own_folder(path: &Path) -> io::Result<()> {
    folder(path)?;
    if fs::metadata(path)?.mode() & ANYTHING_BY_OTHERS != 0 {
        fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE))?;
    }
    Ok(())
}

/// Opens a file to read and write, and closes it to others.
///
/// # Errors
/// What the system says; also if it is a link.
pub fn open(path: &Path) -> io::Result<File> {
    closed_to_others(options().read(true).write(true).open(path).map_err(|error| named(path, error))?)
}

/// The same, and makes it if it is missing.
///
/// # Errors
/// What the system says; also if it is a link.
pub fn open_or_make(path: &Path) -> io::Result<File> {
    let mut options = options();
    let opened = options.read(true).write(true).create(true).truncate(false).open(path);
    closed_to_others(opened.map_err(|error| named(path, error))?)
}

/// Makes a new file to read and write; what had this name, a link included, is removed first.
///
/// # Errors
/// What the system says.
pub fn make(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    options().read(true).write(true).create_new(true).open(path)
}

/// Makes a new file to write; there must not be anything of this name.
///
/// # Errors
/// What the system says; also if there is a file already.
pub fn make_new(path: &Path) -> io::Result<File> {
    options().write(true).create_new(true).open(path)
}

/// Opens a file to be written from its beginning, without reading it; what it held is gone.
///
/// # Errors
/// What the system says; also if it is a link.
pub fn overwrite(path: &Path) -> io::Result<File> {
    let opened = options().write(true).create(true).truncate(true).open(path);
    closed_to_others(opened.map_err(|error| named(path, error))?)
}

/// Writes a whole file.
///
/// # Errors
/// What the system says; also if it is a link.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    overwrite(path)?.write_all(bytes.as_ref())
}

/// Opens a file to be written at its end, and makes it if it is missing.
///
/// # Errors
/// What the system says; also if it is a link.
pub fn append(path: &Path) -> io::Result<File> {
    options().append(true).create(true).open(path).map_err(|error| named(path, error))
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// The system's own word for a link at this place is about loops.
fn named(path: &Path, error: io::Error) -> io::Error {
    let is_link = || fs::symlink_metadata(path).is_ok_and(|about| about.is_symlink());
    if rustix::io::Errno::from_io_error(&error) == Some(rustix::io::Errno::LOOP) && is_link() {
        return io::Error::new(
            error.kind(),
            format!("{} is a link, and links are not followed here", path.display()),
        );
    }
    error
}

fn closed_to_others(file: File) -> io::Result<File> {
    if file.metadata()?.mode() & ANYTHING_BY_OTHERS != 0 {
        // It is readable as before if this fails, and the folder around it is looked at anyway.
        _ = file.set_permissions(Permissions::from_mode(FILE_MODE));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    static NEXT: AtomicU64 = AtomicU64::new(1);

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Self {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("primus-private-{}-{number}", std::process::id()));
            folder(&path).expect("there is room for a directory");
            Self(path)
        }

        fn mode(&self, name: &str) -> u32 {
            fs::metadata(self.0.join(name)).expect("it is there").mode() & 0o777
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_refused() {
        let scratch = Scratch::new();
        assert_eq!(check(&scratch.0), Ok(()));
        for (mode, is_safe) in [(0o755, true), (0o711, true), (0o775, false), (0o777, false), (0o1777, false)] {
            fs::set_permissions(&scratch.0, Permissions::from_mode(mode)).unwrap();
            let found = check(&scratch.0);
            assert_eq!(found.is_ok(), is_safe, "{mode:o}: {found:?}");
        }
        assert!(matches!(check(&scratch.0.join("missing")), Err(Exposed::Unusable { .. })));
    }

    #[test]
    fn somebody_elses_folder_is_refused() {
        let others = Path::new(if geteuid().is_root() { "/nowhere" } else { "/usr" });
        assert!(check(others).is_err());
    }

    #[test]
    fn a_planted_link_is_neither_followed_nor_truncated() {
        let scratch = Scratch::new();
        let (victim, link) = (scratch.0.join("victim"), scratch.0.join("link"));
        fs::write(&victim, "precious").unwrap();
        let plant = || {
            _ = fs::remove_file(&link);
            symlink(&victim, &link).unwrap();
        };
        for refused in [open, open_or_make, overwrite, append] {
            plant();
            let error = refused(&link).expect_err("it is a link");
            assert!(error.to_string().contains("is a link"), "{error}");
        }
        plant();
        make(&link).unwrap().write_all(b"own").unwrap();
        assert_eq!((fs::read(&victim).unwrap(), fs::read(&link).unwrap()), (b"precious".to_vec(), b"own".to_vec()));
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_is_made_here_is_for_its_owner_alone_and_what_is_opened_is_closed_to_others() {
        let scratch = Scratch::new();
        for (name, make_it) in [("a", make as fn(&Path) -> io::Result<File>), ("b", open_or_make), ("c", append)] {
            make_it(&scratch.0.join(name)).unwrap();
            assert_eq!(scratch.mode(name), 0o600, "{name}");
        }
        fs::write(scratch.0.join("old"), "").unwrap();
        fs::set_permissions(scratch.0.join("old"), Permissions::from_mode(0o644)).unwrap();
        open(&scratch.0.join("old")).unwrap();
        assert_eq!(scratch.mode("old"), 0o600);
        fs::create_dir(scratch.0.join("folder")).unwrap();
        fs::set_permissions(scratch.0.join("folder"), Permissions::from_mode(0o755)).unwrap();
        own_folder(&scratch.0.join("folder")).unwrap();
        assert_eq!(scratch.mode("folder"), 0o700);
    }
}
