//! Values as people read them: what servers said, lengths of time, lists.

use std::fmt::Display;

pub use primus_shapes::values::{number, plain, time};

/// `1, 2 and 3`; of many, only the first.
pub fn listed(items: impl ExactSizeIterator<Item = impl Display>) -> String {
    const MOST: usize = 12;
    let count = items.len();
    let shown = if count > MOST { MOST - 2 } else { count };
    let mut text = String::new();
    for (place, item) in items.take(shown).enumerate() {
        let is_last = place + 1 == count;
        text.push_str(match place {
            0 => "",
            _ if is_last => " and ",
            _ => ", ",
        });
        text.push_str(&item.to_string());
    }
    if shown < count {
        text.push_str(&format!(" and {} more", count - shown));
    }
    text
}
