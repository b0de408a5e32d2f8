//! JSON for scripts: one compact object on one line.

use serde::{Serialize, Serializer};

/// Values by name, in an order of ours.
#[derive(Debug)]
pub struct Named<T>(pub Vec<(&'static str, T)>);

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// One object on one line.
///
/// # Panics
/// If the object is not one of ours: those always become JSON.
pub fn line(object: &impl Serialize) -> String {
    serde_json::to_string(object).expect("our own structures become JSON") + "\n"
}

/// Three decimals are enough for measurements.
#[must_use]
pub fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
