//! Several farms at once: what they are called, and how their common folder remembers them.

use std::fs;
use std::path::Path;

use primus_client::farms::private_folder;
use primus_node::private;
use primus_terminal::failure::Failure;
use primus_terminal::names;

use crate::Wanted;
use crate::home::{Home, exposed_folder};

/// What farms are called, one after the other; the fifth is `farm5`.
const NAMES: [&str; 4] = ["north", "south", "east", "west"];
/// The most farms at once.
pub const FARMS_MAX: u64 = 20;
/// What a folder of several farms remembers.
const MEMORY: &str = "farms.json";
/// What workers of the only farm are called, before their numbers.
const ONLY: char = 'w';

/// Opens or creates the folders of all farms that are wanted.
///
/// # Errors
/// If a folder cannot be used, or holds other farms.
pub fn homes(wanted: &Wanted) -> Result<Vec<Home>, Failure> {
    let count = wanted.farms;
    let dir = wanted.dir.as_deref().filter(|dir| !dir.is_empty()).map(Path::new);
    let known = dir.map_or(Ok(None), recall)?;
    if let Some(dir) = dir.filter(|_| known.is_some()) {
        private::check(dir).map_err(|exposed| exposed_folder(&exposed))?;
    }
    let names = count.filter(|count| *count > 1).map(|count| called(wanted.farm.as_deref(), count));
    let all = match (known, names) {
        (None, None) => return Ok(vec![Home::open(wanted, ONLY)?]),
        (None, Some(names)) => {
            dir.map_or(Ok(()), |dir| remember(dir, &names))?;
            names
        }
        (Some(known), _) => {
            matches(dir, &known, count, wanted.farm.as_deref())?;
            known
        }
    };
    all.iter().map(|name| one_of_several(wanted, name)).collect()
}

fn one_of_several(wanted: &Wanted, name: &str) -> Result<Home, Failure> {
    let dir = wanted.dir.as_ref().map(|dir| format!("{dir}/{name}"));
    // A worker called 11 could be taken for a server.
    let initial = name.chars().next().filter(char::is_ascii_alphabetic).unwrap_or(ONLY).to_ascii_lowercase();
    Home::open(&Wanted { farm: Some(name.to_owned()), dir, ..wanted.clone() }, initial)
}

/// The names of so many farms, the first of which somebody may have named. If it is called `north-7`, the next is `south-7`:
/// so farms that start at the same time need not have the same names.
fn called(first: Option<&str>, count: u64) -> Vec<String> {
    let first = first.unwrap_or(NAMES[0]).to_owned();
    let ending = first.strip_prefix(NAMES[0]).filter(|ending| ending.starts_with('-')).unwrap_or_default();
    let name = |place: u64| {
        let usual = usize::try_from(place).ok().and_then(|place| NAMES.get(place));
        usual.map_or_else(|| format!("farm{}{ending}", place + 1), |usual| format!("{usual}{ending}"))
    };
    let others = (1..).map(name).filter(|name| *name != first).take(usize::try_from(count - 1).unwrap_or(0));
    std::iter::once(first.clone()).chain(others.collect::<Vec<_>>()).collect()
}

/// The farms that a folder holds, if it holds several.
fn recall(dir: &Path) -> Result<Option<Vec<String>>, Failure> {
    let file = dir.join(MEMORY);
    let Ok(text) = fs::read(&file) else { return Ok(None) };
    let known: Option<Vec<String>> = serde_json::from_slice(&text).ok();
    let is_sound = |names: &Vec<String>| {
        (2..=FARMS_MAX).contains(&(names.len() as u64)) && names.iter().all(|name| names::check_name(name).is_ok())
    };
    let damaged =
        || Failure::usage(format!("{} is damaged", file.display()), "restore it, or choose another folder");
    known.filter(is_sound).map(Some).ok_or_else(damaged)
}

/// A new folder, for these.
fn remember(dir: &Path, names: &[String]) -> Result<(), Failure> {
    private_folder(dir)?;
    private::check(dir).map_err(|exposed| exposed_folder(&exposed))?;
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        let message = format!("{} is not empty and does not hold {} farms", dir.display(), names.len());
        return Err(Failure::usage(message, "choose a new or an empty folder, or leave --farms out"));
    }
    let text = serde_json::to_string(names).expect("plain texts become JSON");
    private::write(&dir.join(MEMORY), text).map_err(|error| {
        Failure::failed("storage", format!("{} cannot be used: {error}", dir.display()), "choose another folder")
    })
}

fn matches(dir: Option<&Path>, known: &[String], count: Option<u64>, first: Option<&str>) -> Result<(), Failure> {
    let dir = dir.unwrap_or(Path::new(".")).display();
    if let Some(count) = count.filter(|count| *count != known.len() as u64) {
        let message = format!("{dir} holds {} farms, not {count}", known.len());
        return Err(Failure::usage(message, "leave --farms out, or choose another folder"));
    }
    if let Some(first) = first.filter(|first| *first != known[0]) {
        let message = format!("{dir} holds farm '{}', not '{first}'", known[0]);
        return Err(Failure::usage(message, "leave --farm out, or choose another folder"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn farms_are_called_after_the_winds_and_then_by_number() {
        assert_eq!(called(None, 2), ["north", "south"]);
        assert_eq!(called(None, 6), ["north", "south", "east", "west", "farm5", "farm6"]);
        assert_eq!(called(Some("mine"), 3), ["mine", "south", "east"]);
        assert_eq!(called(Some("south"), 3), ["south", "east", "west"]);
        assert_eq!(called(Some("north-7"), 2), ["north-7", "south-7"]);
        assert_eq!(called(Some("northern"), 2), ["northern", "south"]);
    }

    #[test]
    fn a_folder_remembers_its_farms() {
        let dir = std::env::temp_dir().join(format!("primus-several-{}", std::process::id()));
        assert_eq!(recall(&dir), Ok(None));
        let names = called(None, 2);
        remember(&dir, &names).unwrap();
        assert!(remember(&dir, &names).unwrap_err().words().contains("is not empty"));
        let known = recall(&dir).unwrap().unwrap();
        assert_eq!(known, names);
        for (count, first, is_good) in [
            (None, None, true),
            (Some(2), Some("north"), true),
            (Some(3), None, false),
            (Some(1), None, false),
            (None, Some("south"), false),
        ] {
            assert_eq!(matches(Some(&dir), &known, count, first).is_ok(), is_good, "{count:?} {first:?}");
        }
        fs::write(dir.join(MEMORY), "[\"../x\", \"y\"]").unwrap();
        assert!(recall(&dir).unwrap_err().words().contains("damaged"));
        fs::remove_dir_all(dir).unwrap();
    }
}
