//! The answer of a memtable for a key, and the kinds of its entries.

use crate::contract::Value;

/// Kinds of nodes in the list.
pub(super) const PUT: u8 = 0;
pub(super) const TOMBSTONE: u8 = 1;

/// The answer of a memtable or a block for a key.
#[derive(Debug)]
pub(crate) enum Answer<T = Value> {
    /// It has no entry of the key.
    Nothing,
    /// Its newest entry is a tombstone.
    Deleted,
    /// The sink's output for the value.
    Value(T),
}

impl<T> Answer<T> {
    /// Returns the sink's output, if the key has a value.
    #[inline]
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Nothing | Self::Deleted => None,
        }
    }
}
