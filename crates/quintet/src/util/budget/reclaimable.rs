//! Memory that the budget can take back from a table.

use std::fmt;

/// Uses for which a disk read counts. A write counts as one.
pub const USES_OF_A_READ: u64 = 64;

/// Memory whose contents can be read again from the files.
pub trait Reclaimable: fmt::Debug + Send + Sync {
    /// Returns the table that has the memory.
    fn table_id(&self) -> u64;
    /// Returns how many bytes [`Self::reclaim`] could release.
    fn reclaimable_bytes(&self) -> u64;
    /// Returns how many bytes [`Self::reclaim`] could release after a checkpoint of the table. It
    /// requests one if it cannot release enough.
    fn unwritten_bytes(&self) -> u64 {
        0
    }
    /// Returns a count that grows with each use for which the memory matters: by one with a write,
    /// by [`USES_OF_A_READ`] with a disk read. Memory that is only kept to save its allocation has
    /// no uses.
    fn uses_total(&self) -> u64 {
        0
    }
    /// Releases at least `bytes` to the budget, or all that can be released without waiting.
    /// Returns how many bytes were released. The calling thread may hold any lock of another table
    /// under which memory is reserved.
    fn reclaim(&self, bytes: u64) -> u64;
}
