//! An ordered map from keys to values that is cheap to copy, and quick when keys come in their order.
//!
//! The keys are kept in leaves that copies share until one of them is changed: so a copy for a snapshot costs next to
//! nothing, however many keys there are. Those who write many keys mostly write them in their order; the map looks
//! first beside the place of the last change.

use std::sync::Arc;

/// How many keys a leaf holds at most.
pub(super) const LEAF_LEN_MAX: usize = 256;

/// Keys that follow each other, with their values; never empty. A copy of a leaf shares the keys.
type Leaf<V> = Vec<(Arc<str>, V)>;

/// The map.
#[derive(Debug, Clone)]
pub(super) struct Leaves<V> {
    /// In their order, each with a key that is not behind any of its own and behind all of those before.
    leaves: Vec<(Arc<str>, Arc<Leaf<V>>)>,
    count: usize,
    /// Leaf and place of the last change.
    last: (usize, usize),
}

impl<V> Default for Leaves<V> {
    fn default() -> Self {
        Self { leaves: Vec::new(), count: 0, last: (0, 0) }
    }
}

impl<V: Clone> Leaves<V> {
    /// How many keys there are.
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        let leaf = &self.leaves.get(self.leaf_of(key))?.1;
        let place = place_in(leaf, key).ok()?;
        leaf.get(place).map(|(_, value)| value)
    }

    /// The value of a key, to be changed.
    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut V> {
        let (number, place) = self.find(key).ok()?;
        let leaf = &mut self.leaves.get_mut(number)?.1;
        Arc::make_mut(leaf).get_mut(place).map(|(_, value)| value)
    }

    /// Adds a key that is not there.
    pub(super) fn add(&mut self, key: &str, value: V) {
        let Err((number, place)) = self.find(key) else { return };
        self.count += 1;
        let Some((_, leaf)) = self.leaves.get_mut(number) else {
            return self.leaves.push(("".into(), Arc::new(vec![(key.into(), value)])));
        };
        let leaf = Arc::make_mut(leaf);
        leaf.insert(place, (key.into(), value));
        if leaf.len() > LEAF_LEN_MAX {
            let rest = leaf.split_off(LEAF_LEN_MAX / 2);
            let first = rest.first().map_or_else(|| key.into(), |(key, _)| Arc::clone(key));
            self.leaves.insert(number + 1, (first, Arc::new(rest)));
        }
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<V> {
        let (number, place) = self.find(key).ok()?;
        let leaf = Arc::make_mut(&mut self.leaves.get_mut(number)?.1);
        let (_, value) = leaf.remove(place);
        if leaf.is_empty() {
            self.leaves.remove(number);
            // What is before all others belongs to the first.
            if let Some((begins, _)) = self.leaves.first_mut().filter(|(begins, _)| !begins.is_empty()) {
                *begins = "".into();
            }
        }
        self.count -= 1;
        Some(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.leaves.iter().flat_map(|(_, leaf)| leaf.iter()).map(|(key, value)| (&**key, value))
    }

    /// All keys that are not before this one.
    pub(super) fn from<'a>(&'a self, key: &str) -> impl Iterator<Item = (&'a str, &'a V)> + use<'a, V> {
        let number = self.leaf_of(key);
        let place =
            self.leaves.get(number).map_or(0, |(_, leaf)| leaf.partition_point(|(other, _)| **other < *key));
        let leaves = self.leaves.iter().skip(number).flat_map(|(_, leaf)| leaf.iter());
        leaves.skip(place).map(|(key, value)| (&**key, value))
    }

    /// Where a key is, or where it would be.
    fn find(&mut self, key: &str) -> Result<(usize, usize), (usize, usize)> {
        let (number, place) = self.last;
        let number = if self.holds(number, key) { number } else { self.leaf_of(key) };
        let Some((_, leaf)) = self.leaves.get(number) else { return Err((0, 0)) };
        let next = if number == self.last.0 { place + 1 } else { 0 };
        let found = match leaf.get(next) {
            Some((other, _)) if **other == *key => Ok(next),
            _ => place_in(leaf, key),
        };
        self.last = (number, found.unwrap_or_else(|place| place));
        found.map(|place| (number, place)).map_err(|place| (number, place))
    }

    /// Is this the leaf in which the key is, if it is anywhere?
    fn holds(&self, number: usize, key: &str) -> bool {
        let begins = |number: usize| self.leaves.get(number).map(|(first, _)| &**first);
        begins(number).is_some_and(|first| first <= key) && begins(number + 1).is_none_or(|next| key < next)
    }

    fn leaf_of(&self, key: &str) -> usize {
        self.leaves.partition_point(|(first, _)| **first <= *key).saturating_sub(1)
    }

    #[cfg(test)]
    pub(super) fn lens(&self) -> Vec<usize> {
        self.leaves.iter().map(|(_, leaf)| leaf.len()).collect()
    }
}

fn place_in<V>(leaf: &Leaf<V>, key: &str) -> Result<usize, usize> {
    leaf.binary_search_by(|(other, _)| (**other).cmp(key))
}
