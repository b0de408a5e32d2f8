//! The founding file of a farm whose servers all listen on loopback, and for which nobody has named one. The first process of
//! the farm makes it; all others of the same user read it. Its name says which farm, and which servers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::{env, fs};

use primus_core::{Place, ServerId};
use primus_node::founding_file::FoundingFile;
use primus_node::private;
use primus_terminal::failure::Failure;

use crate::chance;

/// Where such files are, below the folder for a user's data.
const FOLDER: &str = "primus/farms";
/// The folder for a user's data, unless the environment says another.
const DATA: &str = ".local/share";

/// The file of the farm of this name with these servers; it is made if it is missing.
///
/// # Errors
/// If a server is beyond loopback, or the file cannot be made.
pub fn of(farm: &str, servers: &BTreeMap<ServerId, Place>) -> Result<PathBuf, Failure> {
    if let Some(address) = servers.values().find(|address| !address.is_loopback()) {
        let message = format!("a server is reached at {address}, beyond this host, and links are not encrypted");
        let hint = "make a founding file with primus init and name it in cluster.founding, or add --insecure if you trust the network";
        return Err(Failure::usage(message, hint));
    }
    let folder = data_folder().ok_or_else(|| {
        Failure::usage(
            "no founding file is named, and neither XDG_DATA_HOME nor HOME says where one can be kept",
            "make one with primus init and name it in cluster.founding",
        )
    })?;
    let folder = folder.join(FOLDER);
    private::folder(&folder).map_err(|error| failed(&folder, &error))?;
    private::check(&folder)
        .map_err(|exposed| Failure::usage(exposed.to_string(), "XDG_DATA_HOME says where it is"))?;
    let file = folder.join(format!("{farm}-{}.founding", mark(servers)));
    if !file.exists() {
        make(&file, farm)?;
    }
    Ok(file)
}

fn data_folder() -> Option<PathBuf> {
    let variable = |name| env::var_os(name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(DATA)))
}

/// Of several processes that begin at once one makes the file, whole.
fn make(file: &Path, farm: &str) -> Result<(), Failure> {
    let unfinished = file.with_extension(format!("{}-{}.new", std::process::id(), chance()));
    let founding = FoundingFile::create(farm, BTreeMap::new(), true);
    let founding = founding.map_err(|error| Failure::failed("system", error.to_string(), "try again"))?;
    founding.write(&unfinished).map_err(|error| failed(file, &io::Error::other(error)))?;
    let linked = match fs::hard_link(&unfinished, file) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(file, &error)),
        _ => Ok(()),
    };
    _ = fs::remove_file(unfinished);
    linked
}

/// So that lists that differ make files that differ (FNV-1a).
fn mark(servers: &BTreeMap<ServerId, Place>) -> String {
    let mut text = String::new();
    servers.iter().for_each(|(id, address)| _ = write!(text, "{id}@{address},"));
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(
        "storage",
        format!("{} cannot be made: {error}", path.display()),
        "make room, or name another file in cluster.founding",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str) -> BTreeMap<ServerId, Place> {
        (1..).map(ServerId).zip(text.split(' ').map(|address| address.parse().unwrap())).collect()
    }

    #[test]
    fn each_list_has_a_file_of_its_own_and_beyond_loopback_there_is_none() {
        let one = mark(&servers("127.0.0.1:1 127.0.0.1:2"));
        assert_eq!(one, mark(&servers("127.0.0.1:1 127.0.0.1:2")));
        assert_ne!(one, mark(&servers("127.0.0.1:2 127.0.0.1:1")));
        let refused = of("north", &servers("127.0.0.1:1 10.0.0.1:1")).unwrap_err().words();
        assert!(
            refused.contains("10.0.0.1:1") && refused.contains("primus init") && refused.contains("--insecure")
        );
    }

    #[test]
    fn of_many_who_make_a_file_one_does_and_all_read_the_same() {
        let dir = env::temp_dir().join(format!("primus-common-{}", std::process::id()));
        private::folder(&dir).unwrap();
        let file = dir.join("north-1.founding");
        let hash = || FoundingFile::read(&file, "north").unwrap().certificate().unwrap().hash();
        let read: Vec<_> = std::thread::scope(|scope| {
            let maker = || {
                make(&file, "north").unwrap();
                hash()
            };
            let makers: Vec<_> = (0..8).map(|_| scope.spawn(maker)).collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(read.iter().all(|one| *one == read[0]), "{read:?}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(dir).unwrap();
    }
}
