//! What the units of all clients share.

use super::{events::Changes, stripes::Stripes, tables::Databases};

/// The databases and the locks of their keys.
#[derive(Debug)]
pub(crate) struct Store {
    /// The tables.
    pub(crate) databases: Databases,
    /// The locks.
    pub(crate) stripes: Stripes,
    /// Receives what commits change.
    pub(crate) changes: Changes,
}

/// Milliseconds since 1970.
pub(crate) fn now_millis() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
