//! The keys of sorted loads, which bypass the log and the version store.
//!
//! All keys of a load are above the keys that the table had. So they are absent in a snapshot that
//! was taken before the load ended. The exception are keys that were deleted between the snapshot
//! and the load: these have a version that is older than the load.

use crate::util::codec::Lsn;

/// The number of a load that has not ended: no snapshot is after it.
pub(super) const IN_PROGRESS: u64 = u64::MAX;

/// The keys of one load.
#[derive(Clone, Debug)]
pub(super) struct LoadedRange {
    pub(super) table: u64,
    /// The greatest key of the table before the load; empty: it had none.
    pub(super) after: Vec<u8>,
    /// The end of the log while the load kept other writers out.
    pub(super) lsn: Lsn,
    /// When it ended, in the numbers of snapshots; or [`IN_PROGRESS`].
    pub(super) number: u64,
}

impl LoadedRange {
    /// Returns whether the load hides the key from the snapshot with this number, unless the key
    /// has a version that is older than the load.
    pub(super) fn hides(&self, table: u64, key: &[u8], snapshot: u64) -> bool {
        self.table == table && self.number > snapshot && key > &*self.after
    }
}
