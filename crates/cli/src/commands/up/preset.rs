//! A configuration file for all servers of a farm that `primus up` runs: how they elect, lend, assign and measure. Who they
//! are and where they listen, `primus up` says itself.

use std::collections::BTreeMap;
use std::path::Path;

use clap::ValueEnum;
use primus_local::quoted;
use primus_terminal::failure::Failure;

use crate::args::{UpArgs, WhichAlgorithm};
use crate::settings::server::layers::{Layers, Sources};
use crate::settings::server::mistakes::Origin;

/// What such a file may say.
const SECTIONS: [&str; 6] = ["election", "guard", "farm", "lending", "load", "load.weights"];

/// What servers' files say beside who they are, section by section: each key with its value as TOML has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Preset(BTreeMap<&'static str, BTreeMap<&'static str, String>>);

impl Preset {
    /// What the file says, and the flags, which come before it.
    pub(super) fn new(args: &UpArgs) -> Result<Self, Failure> {
        let mut preset = args.config.as_deref().map_or_else(|| Ok(Self::default()), Self::read)?;
        let election = preset.0.entry("election").or_default();
        if args.algorithm != WhichAlgorithm::default() || !election.contains_key("algorithm") {
            election.insert("algorithm", quoted(args.algorithm.name()));
        }
        if let Some(rank) = args.rank.and_then(|rank| rank.to_possible_value()) {
            election.insert("rank", quoted(rank.get_name()));
        }
        Ok(preset)
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let layers = Layers::read(&Sources { file: Some(path.to_owned()), ..Sources::default() });
        layers.check()?;
        let mut preset = Self::default();
        for slot in layers.slots() {
            let Some(given) = slot.given().filter(|given| matches!(given.origin, Origin::File(..))) else {
                continue;
            };
            let key = slot.key();
            let (section, name) = key.parts();
            if !SECTIONS.contains(&section) {
                let message = format!("{} says {}, which is not the same for all", path.display(), key.name);
                let hint = format!("leave it out: here only {} count", SECTIONS.join(", "));
                return Err(Failure::usage(message, hint));
            }
            let is_bare = given.json.is_number() || given.json.is_boolean();
            let text = if is_bare { given.text.clone() } else { quoted(&given.text) };
            preset.0.entry(section).or_default().insert(name, text);
        }
        Ok(preset)
    }

    /// As a file says it.
    pub(super) fn toml(&self) -> String {
        let lines = |keys: &BTreeMap<&str, String>| -> String {
            keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
        };
        self.0.iter().map(|(section, keys)| format!("\n[{section}]\n{}", lines(keys))).collect()
    }
}
