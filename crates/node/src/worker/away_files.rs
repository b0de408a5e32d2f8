//! What a worker keeps on disk of other farms: the newest call that it has followed, and a folder for each farm that it has
//! worked for, with the results that this farm has not recorded yet.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use primus_core::ServerId;
use primus_core::farm::worker::Record;
use primus_core::ledger::LoanId;
use primus_server::worker::FarmAddress;

use super::files::replace;
use crate::private;
use crate::results::{OpenError, Results};

/// The newest call, as a number.
const EPOCH: &str = "epoch";
/// The folder of the other farms' folders.
const AWAY: &str = "away";
/// A farm's name, and a line for each of its servers.
const FARM: &str = "farm";
/// The certificate of its authority.
const AUTHORITY: &str = "authority";
/// How long to wait for room on a full disk before trying again.
const FULL_PAUSE: Duration = Duration::from_millis(50);
/// Whoever worked for the same farm a moment ago may still be about to close its results.
const IN_USE_PAUSE: Duration = Duration::from_millis(20);
const IN_USE_TRIES: u32 = 50;

/// What had been kept for a farm, and where more can be.
pub(super) type Opened = (Results, Vec<Record>);

/// The newest call that the worker of this folder has followed.
pub(super) fn epoch(directory: &Path) -> io::Result<LoanId> {
    match fs::read_to_string(directory.join(EPOCH)) {
        Ok(text) => text.trim().parse().map(LoanId).map_err(|_| damaged(EPOCH)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(LoanId(0)),
        Err(error) => Err(error),
    }
}

/// Writes down that a call is followed, as soon as there is room for that.
pub(super) fn keep_epoch(directory: &Path, epoch: LoanId) -> io::Result<()> {
    loop {
        match replace(directory, EPOCH, format!("{epoch}\n").as_bytes()) {
            Err(error) if error.kind() == ErrorKind::StorageFull => thread::sleep(FULL_PAUSE),
            written => return written,
        }
    }
}

/// The folder of a farm. Names may have anything in them.
pub(super) fn folder(directory: &Path, farm: &str) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let letter = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    directory.join(AWAY).join(farm.bytes().map(letter).collect::<String>())
}

/// Opens the results for a farm, and keeps in mind where its servers are: after a restart they get what is here.
pub(super) fn open(directory: &Path, farm: &FarmAddress, authority: Option<&[u8]>) -> Result<Opened, OpenError> {
    let folder = folder(directory, &farm.name);
    let io = |source| OpenError::Io { dir: folder.clone(), source };
    private::folder(&folder).map_err(io)?;
    authority.map_or(Ok(()), |der| replace(&folder, AUTHORITY, der)).map_err(io)?;
    replace(&folder, FARM, text_of(farm).as_bytes()).map_err(io)?;
    for _ in 1..IN_USE_TRIES {
        match Results::open(&folder) {
            Err(OpenError::InUse { .. }) => thread::sleep(IN_USE_PAUSE),
            opened => return opened,
        }
    }
    Results::open(&folder)
}

/// Who names the nodes of the farm of this folder, if that was told.
pub(super) fn authority(folder: &Path) -> Option<Vec<u8>> {
    fs::read(folder.join(AUTHORITY)).ok()
}

/// The farms that a worker has been with. Some may not have got all results yet.
pub(super) fn visited(directory: &Path) -> io::Result<Vec<FarmAddress>> {
    let folders = match fs::read_dir(directory.join(AWAY)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        folders => folders?,
    };
    let mut farms = Vec::new();
    for entry in folders {
        match fs::read_to_string(entry?.path().join(FARM)) {
            Ok(text) => farms.push(farm_of(&text).ok_or_else(|| damaged(FARM))?),
            // Nothing can have been done for it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(farms)
}

fn text_of(farm: &FarmAddress) -> String {
    let servers = farm.servers.iter().map(|(server, address)| format!("{server} {address}\n"));
    format!("{}\n{}", farm.name, servers.collect::<String>())
}

fn farm_of(text: &str) -> Option<FarmAddress> {
    let mut lines = text.lines();
    let name = lines.next()?.to_owned();
    let server = |line: &str| {
        let (server, address) = line.split_once(' ')?;
        Some((ServerId(server.parse().ok()?), address.parse().ok()?))
    };
    Some(FarmAddress { name, servers: lines.map(server).collect::<Option<_>>()? })
}

fn damaged(name: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("its file '{name}' is damaged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_farm_is_found_again() {
        let servers =
            [(ServerId(1), "127.0.0.1:7460".parse().unwrap()), (ServerId(2), "[::1]:7460".parse().unwrap())];
        let farm = FarmAddress { name: "south".to_owned(), servers: servers.into() };
        assert_eq!(farm_of(&text_of(&farm)), Some(farm));
        assert_eq!(farm_of("south\n1 nowhere\n"), None);
        assert_eq!(farm_of(""), None);
    }

    #[test]
    fn a_folder_is_inside_its_own_whatever_a_farm_is_called() {
        let name = |farm: &str| folder(Path::new("w1"), farm).display().to_string();
        assert_eq!(name("south-2"), "w1/away/south-2");
        assert_eq!(name("../north"), "w1/away/%2E%2E%2Fnorth");
    }
}
