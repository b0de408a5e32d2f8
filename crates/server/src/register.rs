//! A small replicated register: keys and values that a cluster agrees on. The first client of the log.
//!
//! `apply` is deterministic and total: the same entries give the same register everywhere, and bytes that make no sense
//! change nothing.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};

/// Keys, values, and where in the log they were set last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Register {
    values: BTreeMap<String, (Bytes, u64)>,
}

/// What is written to the log. It borrows its words, so that many can be written and applied without copies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal<'a> {
    /// The process that proposed it.
    pub origin: u64,
    /// Which of its proposals this is.
    pub number: u64,
    /// What is to change, all at once.
    #[serde(borrow)]
    pub changes: Vec<Change<'a>>,
}

/// A change of the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change<'a> {
    /// Give a key this value.
    Put(&'a str, #[serde(serialize_with = "in_one_piece")] &'a [u8]),
    /// Forget a key.
    Delete(&'a str),
}

/// Which keys are wanted, a page at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// How they begin.
    pub prefix: String,
    /// The last key of the page before.
    pub after: Option<String>,
    /// How many at most.
    pub count_max: usize,
    /// How many bytes of keys and values at most; one is given in any case.
    pub len_max: usize,
}

/// Some of the keys, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Keys, values, and where in the log they were set.
    pub values: Vec<(String, Bytes, u64)>,
    /// Does nothing come behind them?
    pub is_last: bool,
}

/// Without this, bytes would be written one by one.
fn in_one_piece<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl Register {
    /// Applies what is at this index. Gives the proposal back, so that whoever waits for it can be told.
    pub fn apply<'a>(&mut self, index: u64, data: &'a [u8]) -> Option<Proposal<'a>> {
        let proposal = Proposal::from_bytes(data)?;
        for change in &proposal.changes {
            match *change {
                Change::Put(key, value) => self.put(key, value, index),
                Change::Delete(key) => _ = self.values.remove(key),
            }
        }
        Some(proposal)
    }

    fn put(&mut self, key: &str, value: &[u8], index: u64) {
        let value = (Bytes::copy_from_slice(value), index);
        match self.values.get_mut(key) {
            Some(place) => *place = value,
            None => _ = self.values.insert(key.to_owned(), value),
        }
    }

    /// The value of a key, and where it was set.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<(Bytes, u64)> {
        self.values.get(key).cloned()
    }

    /// The keys that begin so, with their values, in their order; behind that key, if one is named.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, &'a Bytes, u64)> + 'a {
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let found = self.values.range::<str, _>((from, Bound::Unbounded));
        let found = found.take_while(move |(key, _)| key.starts_with(prefix));
        found.map(|(key, (value, index))| (key.as_str(), value, *index))
    }

    /// One page of them: no more than so many, and no more than so many bytes, but one at least.
    #[must_use]
    pub fn page(&self, listing: &Listing) -> Page {
        let Listing { prefix, after, count_max, len_max } = listing;
        let (mut values, mut len) = (Vec::new(), 0);
        for (key, value, index) in self.list(prefix, after.as_deref()) {
            len += key.len() + value.len();
            if values.len() == *count_max || len > *len_max && !values.is_empty() {
                return Page { values, is_last: false };
            }
            values.push((key.to_owned(), value.clone(), index));
        }
        Page { values, is_last: true }
    }

    /// The whole register, for a snapshot.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        postcard::to_stdvec(self).expect("a register can always be written").into()
    }

    /// A register from a snapshot.
    #[must_use]
    pub fn from_bytes(data: &[u8]) -> Option<Self> {
        postcard::from_bytes(data).ok()
    }
}

impl<'a> Proposal<'a> {
    /// As the log holds it.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        postcard::to_stdvec(self).expect("a proposal can always be written").into()
    }

    /// From the log.
    #[must_use]
    pub fn from_bytes(data: &'a [u8]) -> Option<Self> {
        match postcard::take_from_bytes(data) {
            Ok((proposal, [])) => Some(proposal),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &'static str) -> Bytes {
        let changes = vec![Change::Put(key, value.as_bytes())];
        Proposal { origin: 1, number: 2, changes }.to_bytes()
    }

    #[test]
    fn what_is_put_can_be_got_and_listed() {
        let mut register = Register::default();
        register.apply(3, &put("a/1", "x"));
        register.apply(4, &put("a/2", "y"));
        register.apply(5, &put("b", "z"));
        register.apply(6, &put("a/1", "w"));
        assert_eq!(register.get("a/1"), Some((Bytes::from_static(b"w"), 6)));
        assert_eq!(register.list("a/", None).map(|(key, ..)| key).collect::<Vec<_>>(), ["a/1", "a/2"]);
        let gone = Proposal { origin: 1, number: 3, changes: vec![Change::Delete("b")] };
        assert_eq!(register.apply(7, &gone.to_bytes()), Some(gone));
        assert_eq!(register.get("b"), None);
    }

    #[test]
    fn changes_of_one_proposal_take_place_in_their_order_at_one_index() {
        let mut register = Register::default();
        let changes = vec![Change::Put("a", b"x"), Change::Put("b", b"y"), Change::Delete("a")];
        register.apply(9, &Proposal { origin: 1, number: 1, changes }.to_bytes());
        assert_eq!(register.list("", None).collect::<Vec<_>>(), [("b", &Bytes::from_static(b"y"), 9)]);
    }

    #[test]
    fn pages_follow_each_other_and_hold_one_key_at_least() {
        let mut register = Register::default();
        for (index, key) in (1..).zip(["a", "b/1", "b/2", "b/3", "c"]) {
            register.apply(index, &put(key, "four"));
        }
        let page = |after: Option<&str>, count_max, len_max| {
            let listing = Listing { prefix: "b/".to_owned(), after: after.map(str::to_owned), count_max, len_max };
            let page = register.page(&listing);
            (page.values.into_iter().map(|(key, ..)| key).collect::<Vec<_>>().join(" "), page.is_last)
        };
        assert_eq!(page(None, 9, 99), ("b/1 b/2 b/3".to_owned(), true));
        assert_eq!(page(None, 2, 99), ("b/1 b/2".to_owned(), false));
        assert_eq!(page(Some("b/2"), 2, 99), ("b/3".to_owned(), true));
        assert_eq!(page(None, 9, 14), ("b/1 b/2".to_owned(), false));
        assert_eq!(page(None, 9, 1), ("b/1".to_owned(), false));
        assert_eq!(page(Some("a"), 1, 99), ("b/1".to_owned(), false), "a key before the prefix skips nothing");
        assert_eq!(page(Some("b/9"), 9, 99), (String::new(), true));
    }

    #[test]
    fn bytes_that_make_no_sense_change_nothing() {
        let mut register = Register::default();
        register.apply(1, &put("a", "x"));
        let before = register.clone();
        for garbage in [&[][..], &[0xff; 40], &[1, 2, 0, 200]] {
            assert_eq!(register.apply(2, garbage), None);
        }
        assert_eq!(register, before);
    }

    #[test]
    fn a_snapshot_gives_the_same_register() {
        let mut register = Register::default();
        register.apply(1, &put("a", "x"));
        assert_eq!(Register::from_bytes(&register.to_bytes()), Some(register));
    }
}
