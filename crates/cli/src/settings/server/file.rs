//! A configuration file, read key by key, so that every mistake in it is found and has a line.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use primus_core::ServerId;
use primus_terminal::amounts::quoted;
use primus_terminal::names::advice;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::keys::{self, DOCUMENT_KEYS, DocumentKey};
use super::kind::{self, Kind, Listed, misfit};
use super::layers::Layers;
use super::mistakes::{Complaint, Mistakes, Origin, unknown};

/// The document's times are at most a day long, too.
const SECONDS_MAX: f64 = 86_400.0;
/// Servers as a file lists them.
const SERVERS: Tables = Tables {
    what: "a server",
    fields: &["id", "address", "api"],
    otherwise: "a server has id, address and api",
    hint: "write it like [{ id = 1, address = \"127.0.0.1:7460\" }]",
};

/// Reads a file's text into these layers.
pub(super) fn read(path: &Path, text: &str, layers: &mut Layers) {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { path, text, layers, seen: Seen::default() };
    reader.layers.is_damaged = !errors.is_empty();
    for error in errors {
        let origin = reader.origin(&error.span().unwrap_or_default());
        let message = format!("this is not TOML: {}", error.message());
        reader.layers.mistakes.add(Some(&origin), "", (message, "mend the line".to_owned()));
    }
    reader.section("", table.get_ref());
}

struct Reader<'a> {
    path: &'a Path,
    text: &'a str,
    layers: &'a mut Layers,
    seen: Seen,
}

/// Under which name each key was given: its own, or the document's.
#[derive(Default)]
struct Seen(BTreeMap<&'static str, &'static str>);

impl Seen {
    /// The document's form and ours for one value could contradict each other.
    fn is_first(
        &mut self,
        key: &'static str,
        name: &'static str,
        origin: &Origin,
        mistakes: &mut Mistakes,
    ) -> bool {
        let Some(other) = self.0.insert(key, name) else { return true };
        let message = format!("{name} and {other} say the same in two ways");
        mistakes.add(Some(origin), name, (message, "leave one out".to_owned()));
        false
    }
}

impl Reader<'_> {
    fn origin(&self, span: &Range<usize>) -> Origin {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        Origin::File(self.path.to_owned(), before.matches('\n').count() + 1)
    }

    fn section(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (word, value) in table {
            let name =
                if prefix.is_empty() { word.get_ref().to_string() } else { format!("{prefix}.{}", word.get_ref()) };
            let origin = self.origin(&word.span());
            let is_section = keys::names().any(|key| key.starts_with(&format!("{name}.")));
            match value.get_ref() {
                DeValue::Table(table) if is_section => self.section(&name, table),
                _ if is_section => {
                    let complaint =
                        (format!("{name} holds keys, not a value"), format!("write [{name}] above them"));
                    self.layers.mistakes.add(Some(&origin), &name, complaint);
                }
                value => self.entry(&name, value, origin),
            }
        }
    }

    fn entry(&mut self, name: &str, value: &DeValue<'_>, origin: Origin) {
        let Layers { values, mistakes, .. } = &mut *self.layers;
        if let Some(slot) = values.slot(name) {
            let key = slot.key().name;
            if self.seen.is_first(key, key, &origin, mistakes) {
                slot.give_toml(value, origin, mistakes);
            }
        } else if let Some(key) = DOCUMENT_KEYS.iter().find(|key| key.name == name) {
            self.of_document(key, value, &origin);
        } else if value.is_table() {
            self.layers.mistakes.add(Some(&origin), name, unknown_section(name));
        } else {
            self.layers.mistakes.add(Some(&origin), name, unknown(name, keys::names()));
        }
    }

    fn of_document(&mut self, key: &'static DocumentKey, value: &DeValue<'_>, origin: &Origin) {
        let Layers { values, mistakes, .. } = &mut *self.layers;
        let slots = (key.sets)(values);
        if slots.is_empty() {
            return;
        }
        let seconds = plain(value).parse().ok().filter(|seconds| (0.001..=SECONDS_MAX).contains(seconds));
        let Some(seconds) = seconds.filter(|_| value.is_integer() || value.is_float()) else {
            let message = format!("{} is {}", key.name, quoted(&plain(value)));
            let hint = "give seconds, such as 1 or 0.5".to_owned();
            return mistakes.add(Some(origin), key.name, (message, hint));
        };
        for slot in slots {
            if self.seen.is_first(slot.key.name, key.name, origin, mistakes) {
                slot.set(Duration::from_secs_f64(seconds), origin.clone());
            }
        }
    }
}

fn unknown_section(name: &str) -> Complaint {
    let sections: BTreeSet<&str> = keys::names().filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
    let hint = advice(name, sections.into_iter(), "primus config show lists all keys");
    (format!("section {} does not exist", quoted(name)), hint)
}

/// The texts of a list.
pub(super) fn texts<K: Kind>(value: &DeValue<'_>, name: &str) -> Result<Vec<String>, Complaint> {
    let list = value.as_array().ok_or_else(|| misfit::<K>(&format!("is {}", kind_of(value)), name))?;
    let texts: Option<_> = list.iter().map(|text| text.get_ref().as_str().map(str::to_owned)).collect();
    texts.ok_or_else(|| misfit::<K>("holds something that is not text", name))
}

/// What the tables of a list have in common.
pub(super) struct Tables {
    /// What one of them is: `a server`.
    pub(super) what: &'static str,
    /// What it may hold.
    pub(super) fields: &'static [&'static str],
    /// The advice for a field that is not near any of these.
    pub(super) otherwise: &'static str,
    /// How to write the list.
    pub(super) hint: &'static str,
}

impl Tables {
    /// Reads each table of a list.
    pub(super) fn read<T>(
        &self,
        value: &DeValue<'_>,
        read: impl Fn(&DeTable<'_>) -> Result<T, Complaint>,
    ) -> Result<Vec<T>, Complaint> {
        let wrong = |what: String| (what, self.hint.to_owned());
        let list = value.as_array().ok_or_else(|| wrong(format!("is {}", kind_of(value))))?;
        let stranger = || wrong(format!("holds something that is not {}", self.what));
        let known = |table| self.check(table).and_then(|()| read(table));
        list.iter().map(|item| item.get_ref().as_table().ok_or_else(stranger).and_then(known)).collect()
    }

    fn check(&self, table: &DeTable<'_>) -> Result<(), Complaint> {
        let mut words = table.keys().map(|word| word.get_ref().as_ref());
        words.find(|word| !self.fields.contains(word)).map_or(Ok(()), |strange| {
            let hint = advice(strange, self.fields.iter().copied(), self.otherwise);
            Err((format!("holds {} with {}", self.what, quoted(strange)), hint))
        })
    }
}

/// The servers of a list.
pub(super) fn servers(value: &DeValue<'_>) -> Result<Vec<Listed>, Complaint> {
    SERVERS.read(value, listed)
}

fn listed(table: &DeTable<'_>) -> Result<Listed, Complaint> {
    let field = |name: &str| table.get(name).map(Spanned::get_ref);
    let id = field("id").filter(|id| id.is_integer()).and_then(|id| plain(id).parse().ok()).filter(|id| *id > 0);
    let id = id.ok_or_else(|| {
        ("holds a server without a good id".to_owned(), "give each an id, a whole number from 1".to_owned())
    })?;
    let place = |name: &str| {
        let text = field(name).map(plain);
        let placed = text.map(|text| kind::place(&text)).transpose();
        placed.map_err(|(what, hint)| (format!("holds server {id}, whose {name} {what}"), hint))
    };
    let no_address = || (format!("holds server {id} without an address"), "say where others reach it".to_owned());
    Ok(Listed { id: ServerId(id), address: place("address")?.ok_or_else(no_address)?, api: place("api")? })
}

/// What was written, as text.
pub(super) fn plain(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(integer) => decimal(integer),
        DeValue::Float(float) => float.as_str().to_owned(),
        DeValue::Boolean(truth) => truth.to_string(),
        other => kind_of(other).to_owned(),
    }
}

/// `0x10` is a number, too.
fn decimal(integer: &DeInteger<'_>) -> String {
    let number = i128::from_str_radix(integer.as_str(), integer.radix());
    number.map_or_else(|_| integer.as_str().to_owned(), |number| number.to_string())
}

pub(super) const fn kind_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
