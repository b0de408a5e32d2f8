//! A small replicated register: keys and values that a cluster agrees on. The first client of the log.
//!
//! `apply` is deterministic and total: the same entries give the same register everywhere, and bytes that make no sense
//! change nothing.

mod leaves;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::leaves::Leaves;

/// What a key costs beside its bytes and those of its value.
const KEY_COST: usize = 64;

/// A value, and where in the log it was set.
type Set = (Bytes, u64);

/// Keys, values, and where in the log they were set last.
///
/// A copy, as for a snapshot, costs next to nothing.
#[derive(Debug, Clone, Default)]
pub struct Register {
    keys: Leaves<Set>,
    len: usize,
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
                Change::Delete(key) => self.delete(key),
            }
        }
        Some(proposal)
    }

    fn put(&mut self, key: &str, value: &[u8], index: u64) {
        self.len += value.len();
        if let Some(place) = self.keys.get_mut(key) {
            self.len -= place.0.len();
            *place = (replaced(std::mem::take(&mut place.0), value), index);
            return;
        }
        self.keys.add(key, (Bytes::copy_from_slice(value), index));
        self.len += key.len() + KEY_COST;
    }

    fn delete(&mut self, key: &str) {
        if let Some((value, _)) = self.keys.remove(key) {
            self.len -= key.len() + value.len() + KEY_COST;
        }
    }

    /// The value of a key, and where it was set.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Set> {
        self.keys.get(key).cloned()
    }

    /// How many bytes its keys and values take.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.len
    }

    /// The keys that begin so, with their values, in their order; behind that key, if one is named.
    pub fn list<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
    ) -> impl Iterator<Item = (&'a str, &'a Bytes, u64)> + 'a {
        let from = after.filter(|after| *after >= prefix).unwrap_or(prefix);
        let found = self.keys.from(from).skip_while(move |(key, _)| Some(*key) == after);
        let found = found.take_while(move |(key, _)| key.starts_with(prefix));
        found.map(|(key, (value, index))| (key, value, *index))
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

    /// A register from a snapshot.
    #[must_use]
    pub fn from_bytes(data: &[u8]) -> Option<Self> {
        postcard::from_bytes(data).ok()
    }
}

/// These bytes, where the old ones were if there is just room for them and no copy needs those.
fn replaced(old: Bytes, value: &[u8]) -> Bytes {
    if old.len() != value.len() {
        return Bytes::copy_from_slice(value);
    }
    old.try_into_mut().map_or_else(
        |_| Bytes::copy_from_slice(value),
        |mut place: BytesMut| {
            place.copy_from_slice(value);
            place.freeze()
        },
    )
}

/// However they are spread over leaves, the same keys with the same values are the same register.
impl PartialEq for Register {
    fn eq(&self, other: &Self) -> bool {
        self.keys.len() == other.keys.len() && self.keys.iter().eq(other.keys.iter())
    }
}

impl Eq for Register {}

/// As one map: versions before had one.
impl Serialize for Register {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.keys.len()))?;
        self.keys.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Register {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut register = Self::default();
        for (key, (value, index)) in BTreeMap::<String, Set>::deserialize(deserializer)? {
            register.put(&key, &value, index);
        }
        Ok(register)
    }
}

impl<'a> Proposal<'a> {
    /// As the log holds it.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        postcard::to_stdvec(self).expect("a proposal can always be written").into()
    }

    /// Who proposed it, and which of that one's proposals it is, without a look at the rest.
    #[must_use]
    pub fn head(data: &[u8]) -> Option<(u64, u64)> {
        postcard::take_from_bytes(data).ok().map(|(head, _)| head)
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
    use super::leaves::LEAF_LEN_MAX;
    use super::*;

    fn put(key: &str, value: &'static str) -> Bytes {
        let changes = vec![Change::Put(key, value.as_bytes())];
        Proposal { origin: 1, number: 2, changes }.to_bytes()
    }

    fn to_bytes(register: &Register) -> Vec<u8> {
        postcard::to_stdvec(register).unwrap()
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
        assert_eq!(Register::from_bytes(&to_bytes(&register)), Some(register));
    }

    /// A register of one map, as versions before had it.
    type Plain = BTreeMap<String, Set>;

    fn change(register: &mut Register, plain: &mut Plain, number: u64) {
        // Some keys come in their order, some do not, and some go again.
        let key = format!("k{:04}", if number.is_multiple_of(2) { number } else { number * 7919 % 3000 });
        let value = vec![b'v'; (number % 9) as usize];
        let is_gone = number.is_multiple_of(5);
        let change = if is_gone { Change::Delete(&key) } else { Change::Put(&key, &value) };
        let proposal = Proposal { origin: 1, number, changes: vec![change] }.to_bytes();
        assert_eq!(Proposal::head(&proposal), Some((1, number)));
        register.apply(number, &proposal);
        if is_gone { _ = plain.remove(&key) } else { _ = plain.insert(key, (value.into(), number)) }
    }

    #[test]
    fn leaves_hold_what_one_map_would_hold() {
        let (mut register, mut plain) = (Register::default(), Plain::new());
        for number in 1..6000 {
            change(&mut register, &mut plain, number);
        }
        let lens = register.keys.lens();
        assert!(lens.len() > 4 && lens.iter().all(|len| (1..=LEAF_LEN_MAX).contains(len)));
        assert!(register.keys.iter().eq(plain.iter().map(|(key, set)| (key.as_str(), set))));
        assert_eq!(to_bytes(&register), postcard::to_stdvec(&plain).unwrap());
        let bytes: usize = plain.iter().map(|(key, (value, _))| key.len() + value.len() + KEY_COST).sum();
        assert_eq!((register.len_bytes(), register.keys.len()), (bytes, plain.len()));
        let again = Register::from_bytes(&to_bytes(&register)).unwrap();
        assert_eq!((&again, again.len_bytes()), (&register, bytes));
        for (prefix, after) in [("", None), ("k1", None), ("k1", Some("k1500")), ("k", Some("k0257")), ("x", None)]
        {
            let expected = plain.iter().filter(|(key, _)| key.starts_with(prefix));
            let expected = expected.filter(|(key, _)| after.is_none_or(|after| key.as_str() > after));
            let expected = expected.map(|(key, (value, index))| (key.as_str(), value, *index));
            assert!(register.list(prefix, after).eq(expected), "{prefix} {after:?}");
        }
        plain.keys().for_each(|key| register.delete(key));
        assert_eq!((register.keys.lens().len(), register.keys.len(), register.len), (0, 0, 0));
    }

    #[test]
    fn a_copy_stays_as_it_is() {
        let (mut register, mut plain) = (Register::default(), Plain::new());
        (1..2000).for_each(|number| change(&mut register, &mut plain, number));
        let (copy, then) = (register.clone(), plain.clone());
        (2000..4000).for_each(|number| change(&mut register, &mut plain, number));
        let is = |register: &Register, plain: &Plain| {
            register.keys.iter().eq(plain.iter().map(|(key, set)| (key.as_str(), set)))
        };
        assert!(is(&copy, &then) && is(&register, &plain));
    }
}
