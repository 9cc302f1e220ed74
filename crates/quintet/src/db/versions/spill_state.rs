//! The state of spills, and the memory that versions may take.

use crate::util::sync::{AtomicU64, Mutex};

/// Memory of versions: at most the budget divided by this.
const MEMORY_SHARE: u64 = 4;

/// Progress and failures of spills.
#[derive(Debug, Default)]
pub(super) struct SpillState {
    /// Number of spills that replaced runs.
    pub(super) spills_total: AtomicU64,
    /// Why the last spill failed, if it did.
    pub(super) failure: Mutex<Option<String>>,
    /// Bytes of versions in memory and files after the last merge of all.
    pub(super) merged_bytes: AtomicU64,
}

/// Returns the maximum bytes of memory of versions for a memory budget and a limit of all versions.
pub(super) fn memory_max(budget: u64, limit: u64) -> u64 {
    (budget / MEMORY_SHARE).min(limit)
}
