//! The plan of a merge: the table that it merges into, the SSTs to rewrite, and the split.

use std::sync::Arc;

use super::super::{
    options::TphSettings,
    table::{TableSst, TphTable},
};

/// The older side of a merge: a table, or nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct MergeBase {
    pub(crate) lower_bound: Vec<u8>,
    pub(crate) ssts: Vec<TableSst>,
    pub(crate) table: Option<Arc<TphTable>>,
}

impl From<&Arc<TphTable>> for MergeBase {
    fn from(table: &Arc<TphTable>) -> Self {
        let (lower_bound, ssts) = (table.lower_bound.clone(), table.ssts.clone());
        Self { lower_bound, ssts, table: Some(Arc::clone(table)) }
    }
}

impl MergeBase {
    /// Returns whether a key that an SST of the base has leads to the invalid piece.
    pub(super) fn is_invalid(&self, hash: u64, key: &[u8]) -> bool {
        self.table.as_ref().is_some_and(|table| table.is_invalid(hash, key))
    }
}

/// The choices of a merge.
#[derive(Clone, Debug)]
pub(crate) struct MergePlan {
    /// For each SST of the base: whether the merge moves its live entries to the new SST.
    pub(crate) rewrite: Vec<bool>,
    /// A deeper level may have entries that a tombstone hides.
    pub(crate) has_deeper: bool,
    /// How the table is split. Only if all SSTs are rewritten.
    pub(crate) split: Option<TableSplit>,
    /// The merge writes memtables to level 0. It is not throttled.
    pub(crate) is_flush: bool,
}

impl MergePlan {
    /// Returns whether an SST of the base stays in the table.
    pub(super) fn keeps(&self, sst: usize) -> bool {
        self.rewrite.get(sst).is_some_and(|rewrite| !rewrite)
    }
}

/// The sizes into which a table is split: about halves of full tables. The next merges would soon
/// rewrite and split full ones again. The sizes are even, because a small last table costs a level
/// as much as any other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSplit {
    /// Bytes of keys and values, and number of entries, of a new table.
    bytes: u64,
    entries: u64,
    /// Bytes of the table that is split; `None` if it is empty.
    whole: Option<u64>,
}

impl TableSplit {
    /// Splits a table evenly.
    pub(crate) fn even(table: &TphTable, settings: &TphSettings) -> Self {
        let bytes = table.live_bytes();
        let parts = (table.fullness(settings) + 25) / 50;
        if parts == 0 {
            let (bytes, entries) = (settings.table_bytes / 2, settings.table_entries / 2);
            return Self { bytes, entries, whole: None };
        }
        Self { bytes: bytes / parts, entries: u64::MAX, whole: Some(bytes) }
    }

    /// Returns whether a table with these entries and bytes is complete. `done_bytes` are those of
    /// the tables before it.
    pub(super) fn is_due(&self, (entries, bytes): (u64, u64), done_bytes: u64) -> bool {
        let left = self.whole.map_or(self.bytes, |all| all.saturating_sub(done_bytes + bytes));
        let is_full = bytes >= self.bytes || entries >= self.entries;
        // The newer entries come on top, and may be more than the table.
        is_full && left >= self.bytes / 2 || bytes / 2 >= self.bytes
    }
}
