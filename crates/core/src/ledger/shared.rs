//! How what several own is written down: as if each had it alone. Nothing but room is lost by that.

use alloc::boxed::Box;
use alloc::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<T, S>(shared: &Arc<T>, serializer: S) -> Result<S::Ok, S::Error>
where
    T: Serialize + ?Sized,
    S: Serializer,
{
    (**shared).serialize(serializer)
}

pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<Arc<T>, D::Error>
where
    T: ?Sized,
    Box<T>: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Box::deserialize(deserializer).map(Arc::from)
}
