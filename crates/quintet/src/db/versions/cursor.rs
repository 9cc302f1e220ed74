//! A cursor over the keys of a run, for merges.

use crate::{Result, contract::Value, util::codec::Lsn};

/// A version of a key: the LSN of the write that replaced it, and the value, if there was one.
pub(super) type ReplacedValue = (Lsn, Option<Value>);

/// A cursor at a key of a run to which no writer adds.
pub(super) trait VersionCursor {
    /// Returns the current key; `None` at the end.
    fn key(&self) -> Option<&[u8]>;

    /// Takes the current key. Appends its versions that were replaced at `lsn` or later, the oldest
    /// first. Returns the high half of the key's hash.
    fn take(&mut self, lsn: Lsn, out: &mut Vec<ReplacedValue>) -> Result<u32>;
}
