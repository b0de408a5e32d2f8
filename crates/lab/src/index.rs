//! Finds a node by its id.

use std::collections::BTreeMap;

use primus_core::ServerId;

/// Which slot a node is in: by a table where ids are dense, as in a ring of a million, else by search.
#[derive(Debug)]
pub enum Index {
    /// The slot of each id, or `Self::NOBODY`.
    Dense(Vec<u32>),
    /// The same for ids far apart.
    Sparse(BTreeMap<ServerId, u32>),
}

impl Index {
    const NOBODY: u32 = u32::MAX;

    /// An index of these nodes, the first in slot 0.
    #[must_use]
    pub fn new(ids: &[ServerId]) -> Self {
        let slots = (0u32..).zip(ids).map(|(slot, id)| (*id, slot));
        let largest = ids.iter().map(|id| id.0).max().unwrap_or(0);
        if largest > 4 * ids.len() as u64 + 64 {
            return Self::Sparse(slots.collect());
        }
        let mut table = vec![Self::NOBODY; largest as usize + 1];
        slots.for_each(|(id, slot)| table[id.0 as usize] = slot);
        Self::Dense(table)
    }

    /// The slot of this node, if there is such a node.
    #[must_use]
    pub fn slot(&self, id: ServerId) -> Option<u32> {
        match self {
            Self::Sparse(map) => map.get(&id).copied(),
            Self::Dense(table) => {
                let slot = table.get(usize::try_from(id.0).ok()?).copied();
                slot.filter(|slot| *slot != Self::NOBODY)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_nodes_whether_their_ids_are_dense_or_not() {
        for ids in [vec![3, 1, 2], vec![7, 1_000_000_000_000, 0]] {
            let ids: Vec<ServerId> = ids.into_iter().map(ServerId).collect();
            let index = Index::new(&ids);
            for (slot, id) in (0..).zip(&ids) {
                assert_eq!(index.slot(*id), Some(slot));
            }
            assert_eq!(index.slot(ServerId(4)), None);
            assert_eq!(index.slot(ServerId(u64::MAX)), None);
        }
    }
}
