//! `primus config`: a server's configuration, without starting it.

use std::path::PathBuf;

use primus_terminal::failure::{Failure, on_one_line};
use primus_terminal::table::table;
use primus_terminal::{Format, Verdict};
use serde::Serialize;
use serde_json::Value as Json;

use crate::args::{Choices, ConfigWhat};
use crate::settings::server::Configuration;
use crate::settings::server::layers::{Override, Sources};
use crate::settings::server::mistakes::Origin;
use crate::settings::server::slot::{Given, Key};

/// All values, as scripts see them.
#[derive(Serialize)]
struct Shown {
    items: Vec<Item>,
    next: Option<u8>,
}

#[derive(Serialize)]
struct Item {
    key: &'static str,
    value: Json,
    /// In words, the same as people see.
    origin: String,
    variable: String,
    flag: Option<String>,
    about: &'static str,
}

#[derive(Serialize)]
struct Checked {
    /// How many keys somebody gave a value.
    keys: usize,
    mistakes: [u8; 0],
}

/// Shows or checks it.
pub(super) fn run(what: &ConfigWhat, format: Format) -> Result<Verdict, Failure> {
    format.refuse_to_draw()?;
    match what {
        ConfigWhat::Show(choices) => show_all(&read(choices), format),
        ConfigWhat::Check(choices) => check(read(choices), format),
    }
}

/// What these choices mean, in this environment.
pub(super) fn read(choices: &Choices) -> Configuration {
    Configuration::read(&sources(choices.config.clone(), choices.overrides.0.clone()), choices.insecure)
}

/// Where values come from, in this environment.
pub(super) fn sources(config: Option<PathBuf>, flags: Vec<Override>) -> Sources {
    let variables = std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text)));
    let environment = variables.map(|(name, text)| (name, text.to_string_lossy().into_owned())).collect();
    let named = || std::env::var_os("PRIMUS_CONFIG").filter(|path| !path.is_empty()).map(Into::into);
    Sources { file: config.or_else(named), environment, flags }
}

/// Also if something is wrong: then somebody has all the more reason to look.
fn show_all(configuration: &Configuration, format: Format) -> Result<Verdict, Failure> {
    let entries: Vec<(&Key, Given)> = configuration.entries().collect();
    let items = entries.iter().map(|(key, given)| Item::new(key, given)).collect();
    format.show(|| text(&entries), &Shown { items, next: None })?;
    configuration.check()?;
    Ok(Verdict::Held)
}

fn check(configuration: Configuration, format: Format) -> Result<Verdict, Failure> {
    let is_said = |given: &Given| !matches!(given.origin, Origin::Default | Origin::Missing);
    let keys = configuration.entries().filter(|(_, given)| is_said(given)).count();
    configuration.settle()?;
    let sentence = || format!("{keys} {}, no mistakes\n", if keys == 1 { "key" } else { "keys" });
    format.show(sentence, &Checked { keys, mistakes: [] })?;
    Ok(Verdict::Held)
}

fn text(entries: &[(&Key, Given)]) -> String {
    let rows: Vec<[String; 3]> = entries
        .iter()
        .map(|(key, given)| {
            let value = if given.text.is_empty() { "-" } else { &given.text };
            [key.name.to_owned(), on_one_line(value), on_one_line(&given.origin.to_string())]
        })
        .collect();
    table(&["KEY", "VALUE", "ORIGIN"], &rows)
}

impl Item {
    fn new(key: &Key, given: &Given) -> Self {
        Self {
            key: key.name,
            value: given.json.clone(),
            origin: given.origin.to_string(),
            variable: key.variable(),
            flag: key.flag.map(|flag| format!("--{flag}")),
            about: key.about,
        }
    }
}
