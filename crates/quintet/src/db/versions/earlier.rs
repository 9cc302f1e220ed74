//! The answers of lookups in the version store.

use crate::contract::Value;

/// What a key is for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// What the engine has.
    Current,
    /// It had this stored value, or none, and was written since.
    Was(Option<Value>),
}

/// A key with a version for a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct NextVersion {
    /// Where the key is in the order of the table: the key, after the high half of its
    /// position if the engine scans by hashes.
    pub(crate) place: Vec<u8>,
    /// The stored value that the snapshot shows; `None`: it shows none.
    pub(crate) value: Option<Value>,
}
