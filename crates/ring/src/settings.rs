//! A ring's configuration: the YAML of ring over AMQP, unchanged, and a few keys of our own. Every mistake is named.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use primus_core::ServerId;
use primus_core::election::ring::{Rules, Winner};
use primus_core::machine::Delay;
use primus_shapes::refusal::Mistake;
use primus_simulate::settings::cast::Cast;
use primus_terminal::amounts::{length, number, quoted};
use primus_terminal::failure::Failure;
use primus_terminal::names::advice;
use primus_terminal::values::listed;
use serde_json::Value;

use crate::amqp::{Broker, Secret, Tls};
use crate::member::Seat;

/// Every node has a queue and a connection of its own.
const RING_MAX: usize = 1000;
const FILE_LEN_MAX: u64 = 1 << 20;
/// How long a round may take at least, and how much more for each node.
const ROUND: Duration = Duration::from_secs(1);
const ROUND_PER_NODE: Duration = Duration::from_millis(100);

const PORT: u64 = 5672;
const TLS_PORT: u64 = 5671;

/// All that may be in a file.
const KEYS: [&str; 12] = [
    "rabbitmq.host",
    "rabbitmq.port",
    "rabbitmq.user",
    "rabbitmq.password",
    "rabbitmq.password_file",
    "rabbitmq.vhost",
    "rabbitmq.tls",
    "rabbitmq.ca_file",
    "ring.size",
    "ring.node_ids",
    "election.initiator_index",
    "election.timeout",
];

/// A ring that is configured.
#[derive(Debug, Clone)]
pub struct RingSettings {
    /// The names of the nodes.
    pub cast: Cast,
    /// All ids, in ring order.
    pub members: Arc<[ServerId]>,
    /// What carries their messages.
    pub broker: Broker,
    /// Who starts, from 0.
    pub initiator: usize,
    /// What they have agreed on.
    pub rules: Arc<Rules>,
}

impl RingSettings {
    /// Reads a file and checks it.
    ///
    /// # Errors
    /// If it cannot be read, or something in it makes no sense.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let unreadable = |why: String| {
            Failure::usage(format!("{shown} cannot be read: {why}"), "give the ring's YAML file with --config")
        };
        let len = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?.len();
        if len > FILE_LEN_MAX {
            return Err(unreadable(format!("it has {len} bytes, more than {FILE_LEN_MAX}")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
        Self::parse(&shown.to_string(), &text)
    }

    /// The ring of these ids, with all else as usual.
    ///
    /// # Panics
    /// If an id appears twice.
    #[must_use]
    pub fn of(members: &Arc<[ServerId]>, broker: Broker) -> Self {
        let joined: Vec<String> = members.iter().map(ToString::to_string).collect();
        let cast = Cast::ring(&joined.join(","), RING_MAX).expect("ids of our own are all right");
        let rules = Arc::new(rules(members.len(), delay(usual_round(members.len()))));
        Self { cast, members: Arc::clone(members), broker, initiator: 0, rules }
    }

    fn parse(file: &str, text: &str) -> Result<Self, Failure> {
        let mut reader = Reader { file, root: Value::Null, mistakes: Vec::new() };
        match serde_saphyr::from_str(text) {
            Ok(root) => reader.root = root,
            Err(error) => {
                // Without the lines around it: a password may stand there.
                let message = format!("this is not YAML: {}", error.without_snippet());
                reader.complain("", message, "mend the line");
            }
        }
        if reader.mistakes.is_empty() {
            reader.look_for_strangers();
        }
        if !reader.root.is_object() {
            return Err(Failure::configuration(reader.mistakes));
        }
        let settings = reader.settings();
        settings.ok_or_else(|| Failure::configuration(reader.mistakes))
    }

    /// The seat at this position, from 0.
    pub(crate) fn seat(&self, position: usize) -> Seat {
        Seat { position, members: Arc::clone(&self.members), rules: Arc::clone(&self.rules) }
    }

    /// The position that `--index` means, from 0.
    pub(crate) fn position(&self, index: &str) -> Result<usize, Failure> {
        let position = number("--index", index, 1, self.members.len() as u64)?;
        Ok(usize::try_from(position - 1).unwrap_or_default())
    }

    /// The positions (from 0) in comma lists such as `1,3` or `all`.
    pub(crate) fn positions(&self, flag: &str, words: &[String]) -> Result<BTreeSet<usize>, Failure> {
        let words: Vec<&str> = words.iter().flat_map(|word| word.split(',').map(str::trim)).collect();
        if words == ["all"] {
            return Ok((0..self.members.len()).collect());
        }
        words.iter().map(|word| self.cast.find(flag, word).map(|id| self.cast.place(id))).collect()
    }
}

fn usual_round(size: usize) -> Duration {
    ROUND + ROUND_PER_NODE * u32::try_from(size).unwrap_or(u32::MAX)
}

/// A range, so that not all start the next round at once.
fn delay(time: Duration) -> Delay {
    let min_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2);
    Delay { min_us, max_us: min_us + min_us / 2 }
}

fn rules(size: usize, round: Delay) -> Rules {
    Rules { round, startup: round, ..Rules::new(Winner::Lowest, size) }
}

/// Reads values and gathers what is wrong with them.
struct Reader<'a> {
    file: &'a str,
    root: Value,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn complain(&mut self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        let file = Some(self.file.to_owned());
        let (message, hint, key) = (message.into(), hint.into(), key.to_owned());
        self.mistakes.push(Mistake { place: file.clone(), file, line: None, key, message, hint });
    }

    /// Keys that nobody knows.
    fn look_for_strangers(&mut self) {
        let Value::Object(sections) = self.root.clone() else {
            return self.complain(
                "",
                "this is not a ring's configuration",
                "write sections: rabbitmq, ring and election",
            );
        };
        for (section, keys) in sections {
            let prefix = format!("{section}.");
            if !KEYS.iter().any(|key| key.starts_with(&prefix)) {
                let hint = advice(&section, ["rabbitmq", "ring", "election"].into_iter(), "leave it out");
                self.complain(&section, format!("section {} does not exist", quoted(&section)), hint);
                continue;
            }
            match keys {
                Value::Object(keys) => keys.keys().for_each(|key| self.look_at(&format!("{prefix}{key}"))),
                Value::Null => {}
                _ => self.complain(
                    &section,
                    format!("{section} holds keys, not a value"),
                    "indent its keys below it",
                ),
            }
        }
    }

    fn look_at(&mut self, key: &str) {
        if !KEYS.contains(&key) {
            let hint = advice(key, KEYS.into_iter(), "leave it out");
            self.complain(key, format!("key {} does not exist", quoted(key)), hint);
        }
    }

    fn value(&self, key: &str) -> Option<Value> {
        let (section, name) = key.split_once('.')?;
        self.root.get(section)?.get(name).filter(|value| !value.is_null()).cloned()
    }

    fn text(&mut self, key: &str) -> Option<String> {
        match self.value(key)? {
            Value::String(text) if !text.is_empty() => Some(text),
            // What it is instead is not told: it may be a password.
            _ => {
                self.complain(key, format!("{key} is not text"), "put it in quotes");
                None
            }
        }
    }

    fn number(&mut self, key: &str, min: u64, max: u64) -> Option<u64> {
        let value = self.value(key)?;
        let number = value.as_u64().filter(|number| (min..=max).contains(number));
        if number.is_none() {
            let hint = format!("give a whole number from {min} to {max}");
            self.complain(key, format!("{key} is {}", quoted(&value.to_string())), hint);
        }
        number
    }

    fn settings(&mut self) -> Option<RingSettings> {
        let broker = self.broker();
        let ids = self.ids();
        let size = ids.as_ref().map_or(RING_MAX, Vec::len).max(1) as u64;
        let initiator = self.number("election.initiator_index", 1, size).unwrap_or(1);
        let round = self.round(size);
        let ids = ids?;
        if !self.mistakes.is_empty() {
            return None;
        }
        let rules = Arc::new(rules(ids.len(), round));
        let initiator = usize::try_from(initiator).ok()?.checked_sub(1)?;
        Some(RingSettings { initiator, rules, ..RingSettings::of(&ids.into(), broker) })
    }

    fn ids(&mut self) -> Option<Vec<ServerId>> {
        const HINT: &str = "write node_ids: [5, 3, 7, 1, 4]";
        let Some(Value::Array(values)) = self.value("ring.node_ids") else {
            self.complain("ring.node_ids", "ring.node_ids is not a list of ids", HINT);
            return None;
        };
        let ids: Vec<ServerId> = values.iter().filter_map(|value| value.as_u64().map(ServerId)).collect();
        if let Some(strange) = values.iter().find(|value| value.as_u64().is_none()) {
            let message = format!("{} in ring.node_ids is not an id", quoted(&strange.to_string()));
            self.complain("ring.node_ids", message, "ids are whole numbers from 0");
            return None;
        }
        self.check_ids(&ids);
        self.check_size(ids.len());
        Some(ids)
    }

    fn check_ids(&mut self, ids: &[ServerId]) {
        let mut seen = BTreeSet::new();
        let twice: BTreeSet<ServerId> = ids.iter().copied().filter(|id| !seen.insert(*id)).collect();
        match ids.len() {
            0 => self.complain("ring.node_ids", "the ring is empty", "write node_ids: [5, 3, 7, 1, 4]"),
            len if len > RING_MAX => {
                let hint = format!("at most {RING_MAX} take part here");
                self.complain("ring.node_ids", format!("ring.node_ids lists {len} nodes"), hint);
            }
            _ if !twice.is_empty() => {
                let message = format!("ring.node_ids lists {} more than once", listed(twice.iter()));
                self.complain("ring.node_ids", message, "every node needs an id of its own");
            }
            _ => {}
        }
    }

    fn check_size(&mut self, len: usize) {
        let size = self.number("ring.size", 1, RING_MAX as u64);
        if let Some(size) = size.filter(|size| *size != len as u64) {
            let message = format!("ring.size is {size}, but ring.node_ids lists {len}");
            self.complain("ring.size", message, "make them equal");
        }
    }

    /// How long a round may take.
    fn round(&mut self, size: u64) -> Delay {
        let usual = usual_round(usize::try_from(size).unwrap_or(RING_MAX));
        let given = self.text("election.timeout").map(|text| length("election.timeout", &text));
        let time = match given {
            Some(Ok(time)) if time > Duration::ZERO => time,
            Some(Ok(_)) => {
                self.complain("election.timeout", "election.timeout is nothing", "write it like 250ms or 2s");
                usual
            }
            Some(Err(failure)) => {
                self.complain("election.timeout", failure.message(), "write it like 250ms or 2s, up to 24h");
                usual
            }
            None => usual,
        };
        delay(time)
    }

    fn broker(&mut self) -> Broker {
        let tls = self.tls();
        let usual = if tls.is_some() { TLS_PORT } else { PORT };
        let port = self.number("rabbitmq.port", 1, 65_535).unwrap_or(usual);
        let broker = Broker::default();
        Broker {
            host: self.text("rabbitmq.host").unwrap_or(broker.host),
            port: u16::try_from(port).unwrap_or(broker.port),
            user: self.text("rabbitmq.user").unwrap_or(broker.user),
            password: self.password().unwrap_or(broker.password),
            vhost: self.text("rabbitmq.vhost").unwrap_or(broker.vhost),
            tls,
        }
    }

    fn password(&mut self) -> Option<Secret> {
        let given = self.text("rabbitmq.password").map(Secret);
        let Some(path) = self.text("rabbitmq.password_file") else { return given };
        if given.is_some() {
            let message = "there are both rabbitmq.password and rabbitmq.password_file";
            self.complain("rabbitmq.password_file", message, "leave one of them out");
        }
        let text = self.file("rabbitmq.password_file", &path);
        text.map(|text| Secret(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    fn tls(&mut self) -> Option<Tls> {
        let wanted = match self.value("rabbitmq.tls") {
            None => false,
            Some(Value::Bool(wanted)) => wanted,
            Some(_) => {
                self.complain("rabbitmq.tls", "rabbitmq.tls is neither true nor false", "write tls: true");
                false
            }
        };
        let path = self.text("rabbitmq.ca_file");
        if path.is_some() && !wanted {
            self.complain("rabbitmq.ca_file", "rabbitmq.ca_file means nothing without TLS", "write tls: true, too");
        }
        let authorities = path.and_then(|path| self.file("rabbitmq.ca_file", &path));
        wanted.then_some(Tls { authorities })
    }

    fn file(&mut self, key: &str, path: &str) -> Option<String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) => {
                let message = format!("{key} is {}, which cannot be read: {error}", quoted(path));
                self.complain(key, message, "look whether the file is there");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
rabbitmq:
  host: localhost
  port: 5672

ring:
  size: 5
  node_ids: [5, 3, 7, 1, 4] # IDs únicos

election:
  initiator_index: 1
";

    fn mistake(text: &str) -> String {
        RingSettings::parse("ring.yaml", text).unwrap_err().words()
    }

    #[test]
    fn the_file_of_the_document_works_unchanged() {
        let settings = RingSettings::parse("ring.yaml", DOCUMENT).unwrap();
        assert_eq!(*settings.members, [5, 3, 7, 1, 4].map(ServerId));
        assert_eq!((settings.broker.place().as_str(), settings.initiator), ("localhost:5672", 0));
        assert_eq!((settings.broker.user.as_str(), settings.broker.vhost.as_str()), ("guest", "/"));
        assert_eq!(settings.rules.round.min_us, 1_500_000);
    }

    #[test]
    fn every_mistake_is_one_sentence() {
        for (from, to, expected) in [
            ("[5, 3, 7, 1, 4]", "[5, 3, 7, 3, 5]", "ring.node_ids lists 3 and 5 more than once"),
            ("size: 5", "size: 4", "ring.size is 4, but ring.node_ids lists 5"),
            ("_index: 1", "_index: 6", "election.initiator_index is '6'; give a whole number from 1 to 5"),
            ("_index: 1", "_index: 0", "election.initiator_index is '0'; give a whole number from 1 to 5"),
            ("5672", "0", "rabbitmq.port is '0'; give a whole number from 1 to 65535"),
            ("7, 1", "7, x", "'\"x\"' in ring.node_ids is not an id; ids are whole numbers from 0"),
            ("7, 1", "7, -1", "'-1' in ring.node_ids is not an id; ids are whole numbers from 0"),
            ("  host", "  hots", "key 'rabbitmq.hots' does not exist; did you mean rabbitmq.host?"),
            ("election:", "elections:", "section 'elections' does not exist; did you mean election?"),
            ("[5, 3, 7, 1, 4]", "[5, 3", "this is not YAML: "),
            ("[5, 3, 7, 1, 4]", "5", "ring.node_ids is not a list of ids"),
            ("port: 5672", "port: 5672\n  tls: maybe", "rabbitmq.tls is neither true nor false"),
            ("port: 5672", "ca_file: /none", "rabbitmq.ca_file means nothing without TLS"),
            ("port: 5672", "password_file: /none", "rabbitmq.password_file is '/none', which cannot be read"),
            ("_index: 1", "_index: 1\n  timeout: soon", "election.timeout is 'soon'; write it like 250ms or 2s"),
        ] {
            let words = mistake(&DOCUMENT.replace(from, to));
            assert!(words.contains(expected), "{words}");
        }
        assert!(mistake("").contains("not a ring's configuration"));
        assert!(mistake("[1]").contains("not a ring's configuration"));
    }

    #[test]
    fn a_password_is_in_no_complaint() {
        for line in ["password: [xyzzy]", "password: xyzzy\n  password_file: /none", "password: xyzzy\n  tls: 7"] {
            let words = mistake(&DOCUMENT.replace("port: 5672", line));
            assert!(!words.contains("xyzzy"), "{words}");
        }
        let words = mistake(&DOCUMENT.replace("port: 5672", "password: \"xyzzy"));
        assert!(!words.contains("xyzzy"), "{words}");
    }
}
