//! What `primus lead` was asked to do, checked.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use primus_core::lease::Candidacy;
use primus_core::ledger::groups::{GroupName, HOLDER_NAME_LEN_MAX, HOLDERS_MAX, is_holder_name};
use primus_core::ledger::{GroupRank, GroupRules};
use primus_node::guarded;
use primus_terminal::amounts::{length, number};
use primus_terminal::failure::Failure;
use rustix::fs::{Access, access};

use crate::args::{LeadArgs, LeadRank, Restart};

/// The group of those who say nothing: it follows the leader.
const DEFAULT_GROUP: &str = "leader";

pub(super) struct LeadSettings {
    pub(super) candidacy: Candidacy,
    pub(super) restart: Restart,
    pub(super) grace: Duration,
    command: Vec<OsString>,
}

impl LeadSettings {
    pub(super) fn new(args: &LeadArgs) -> Result<Self, Failure> {
        let group = args.group.clone().unwrap_or_else(|| DEFAULT_GROUP.to_owned());
        let group = GroupName::parse(group)
            .map_err(|wrong| Failure::usage(wrong.to_string(), "use letters, digits, and . _ - / in --group"))?;
        let group = String::from(group);
        let name = args.name.clone().unwrap_or_else(own_name);
        if !is_holder_name(&name) {
            let message = format!("--name has 1 to {HOLDER_NAME_LEN_MAX} bytes, not {}", name.len());
            return Err(Failure::usage(message, "shorten it"));
        }
        let holders = number("--holders", &args.holders, 1, HOLDERS_MAX.into())?;
        let id = args.id.as_deref().map_or(Ok(0), |id| number("--id", id, 0, u64::MAX))?;
        let rules = GroupRules { rank: rank(args), holders: u16::try_from(holders).unwrap_or(HOLDERS_MAX) };
        let grace = length("--grace", &args.grace)?;
        check_program(args.command.first().map_or(OsStr::new(""), OsString::as_os_str))?;
        let candidacy = Candidacy { group, rules, name, id };
        Ok(Self { candidacy, restart: args.restart, grace, command: args.command.clone() })
    }

    /// How the companion is to run it.
    pub(super) fn guarded(&self, session: u64) -> Result<guarded::Settings, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::failed(
                "system",
                format!("this program cannot be found again: {error}"),
                "start it by its path",
            )
        })?;
        let words = |words: &[&str]| words.iter().map(OsString::from).collect();
        Ok(guarded::Settings {
            companion: (program.clone(), words(&["companion", "guard"])),
            exec: (program, words(&["companion", "exec"])),
            command: self.command.clone(),
            environment: vec![("PRIMUS_GROUP".to_owned(), self.candidacy.group.clone())],
            session,
        })
    }
}

fn rank(args: &LeadArgs) -> GroupRank {
    match (args.rank, &args.group) {
        (Some(LeadRank::Leader), _) | (None, None) => GroupRank::Leader,
        (Some(LeadRank::Load), _) | (None, Some(_)) => GroupRank::Load,
        (Some(LeadRank::Id), _) => GroupRank::Id,
        (Some(LeadRank::Name), _) => GroupRank::Name,
    }
}

fn own_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{}:{}", if host.is_empty() { "host" } else { &host }, std::process::id())
}

/// A command that cannot run would be given from host to host for ever.
fn check_program(program: &OsStr) -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let named = Path::new(program);
    let mut places: Vec<PathBuf> = vec![named.to_owned()];
    if named.components().count() == 1 && !program.as_encoded_bytes().contains(&b'/') {
        places = std::env::split_paths(&path).map(|folder| folder.join(named)).collect();
    }
    let is_program = |place: &PathBuf| place.is_file() && access(place, Access::EXEC_OK).is_ok();
    if places.iter().any(is_program) {
        return Ok(());
    }
    let message = format!("no program '{}' that can be run was found here", program.display());
    Err(Failure::usage(message, "check its name, its permissions and PATH"))
}
