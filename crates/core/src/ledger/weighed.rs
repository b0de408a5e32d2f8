//! Maps that know how many bytes their content takes.
//!
//! That is an estimate, and the same on all servers: lengths of texts and lists, and fixed numbers for what stands around them.
//! It is kept up to date with every change, because a walk through millions of tasks would take too long; and it is not on disk,
//! because a server that reads the content can weigh it again.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::borrow::Borrow;
use core::ops::{Deref, RangeBounds};

use super::book::Registration;
use super::entry::Start;
use super::job::{CommandLine, Expansion, Job, JobId, Spec, Work};
use super::task::{Attempt, TaskId};

/// What a text or a list takes beside its content.
const LIST_BYTES: u64 = 24;
/// What an entry of a map takes beside its content: there is always some room between them.
const ENTRY_BYTES: u64 = 16;
/// What a job takes beside its texts and its tasks.
const JOB_BYTES: u64 = 256;
/// What a task takes.
const TASK_BYTES: u64 = 2;

/// Something of which it is known how many bytes it takes, with all that belongs to it.
pub(super) trait Weigh {
    fn bytes(&self) -> u64;
}

/// A map, and how many bytes it takes. To look at it is to look at the map; it is changed only here.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Weighed<K, V> {
    map: BTreeMap<K, V>,
    bytes: u64,
}

impl<K, V> Weighed<K, V> {
    /// The map itself.
    pub(super) const fn map(&self) -> &BTreeMap<K, V> {
        &self.map
    }

    /// How many bytes it takes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<K: Ord + Weigh, V: Weigh> Weighed<K, V> {
    /// Gives back what was there.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let bytes = weight(&key, &value);
        let key_bytes = key.bytes();
        let before = self.map.insert(key, value);
        let gone = before.as_ref().map_or(0, |before| ENTRY_BYTES + key_bytes + before.bytes());
        self.bytes = self.bytes + bytes - gone;
        before
    }

    pub(super) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Ord + ?Sized,
    {
        let (key, value) = self.map.remove_entry(key)?;
        self.bytes -= weight(&key, &value);
        Some(value)
    }

    /// Changes a value that is there.
    pub(super) fn change<T>(&mut self, key: &K, change: impl FnOnce(&mut V) -> T) -> Option<T> {
        let value = self.map.get_mut(key)?;
        let before = value.bytes();
        let result = change(value);
        self.bytes = self.bytes + value.bytes() - before;
        Some(result)
    }

    /// A value that is there, for a change that does not make it longer or shorter.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.map.get_mut(key)
    }

    /// Removes those between these ends of which this is true.
    pub(super) fn remove_those(&mut self, ends: impl RangeBounds<K>, is_meant: impl Fn(&K) -> bool) {
        for (key, value) in self.map.extract_if(ends, |key, _| is_meant(key)) {
            self.bytes -= weight(&key, &value);
        }
    }

    /// How many bytes it takes, found out by looking at everything.
    pub(super) fn weigh(&self) -> u64 {
        self.map.iter().map(|(key, value)| weight(key, value)).sum()
    }
}

fn weight(key: &impl Weigh, value: &impl Weigh) -> u64 {
    ENTRY_BYTES + key.bytes() + value.bytes()
}

impl<K, V> Default for Weighed<K, V> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), bytes: 0 }
    }
}

impl<K, V> Deref for Weighed<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &BTreeMap<K, V> {
        &self.map
    }
}

/// On disk it is a map like any other.
mod disk {
    use alloc::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Weigh, Weighed};

    impl<K: Serialize, V: Serialize> Serialize for Weighed<K, V> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            self.map.serialize(serializer)
        }
    }

    impl<'de, K, V> Deserialize<'de> for Weighed<K, V>
    where
        K: Ord + Weigh + Deserialize<'de>,
        V: Weigh + Deserialize<'de>,
    {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let mut weighed = Self { map: BTreeMap::deserialize(deserializer)?, bytes: 0 };
            weighed.bytes = weighed.weigh();
            Ok(weighed)
        }
    }
}

impl Weigh for JobId {
    fn bytes(&self) -> u64 {
        8
    }
}

impl Weigh for TaskId {
    fn bytes(&self) -> u64 {
        16
    }
}

impl Weigh for Registration {
    fn bytes(&self) -> u64 {
        4
    }
}

impl Weigh for String {
    fn bytes(&self) -> u64 {
        LIST_BYTES + self.len() as u64
    }
}

impl Weigh for Vec<u8> {
    fn bytes(&self) -> u64 {
        LIST_BYTES + self.len() as u64
    }
}

impl Weigh for Vec<Attempt> {
    fn bytes(&self) -> u64 {
        LIST_BYTES + 16 * self.len() as u64
    }
}

impl Weigh for Start {
    fn bytes(&self) -> u64 {
        32 + self.worker.bytes()
    }
}

impl Weigh for Job {
    fn bytes(&self) -> u64 {
        JOB_BYTES + self.spec.bytes() + self.key.as_ref().map_or(0, Weigh::bytes) + TASK_BYTES * self.len()
    }
}

impl Weigh for Spec {
    fn bytes(&self) -> u64 {
        let work = match &self.work {
            Work::Command(command) => command.bytes(),
            Work::Kind { name, input } => name.bytes() + input.bytes(),
        };
        let lines = match &self.expansion {
            Expansion::One | Expansion::Array { .. } => 0,
            Expansion::Lines(lines) => lines.text_len() as u64 + 4 * lines.len() as u64,
        };
        self.name.bytes() + work + lines
    }
}

impl Weigh for CommandLine {
    fn bytes(&self) -> u64 {
        let arguments: u64 = self.arguments.iter().map(Weigh::bytes).sum();
        let environment: u64 = self.environment.iter().map(|(name, value)| name.bytes() + value.bytes()).sum();
        arguments + environment + self.directory.as_ref().map_or(0, Weigh::bytes) + self.stdin.bytes()
    }
}
