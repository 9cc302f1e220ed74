//! The state of a table of the engine, which its handle and its iterators share.
//!
//! Lock order: in the flat modes a flush is a merge, and `flushing` is before `compacting`. In the
//! other modes a merge flushes, and `compacting` is before `flushing`. `large_merge` directly
//! follows `compacting`. Then come `publisher` and `queues`. [`crate::lsm::write_buffer`] says
//! where its locks are between them.

use std::sync::Arc;

use super::{
    manifest::TphManifest,
    options::{TphSettings, WORK_BYTES_PER_ENTRY},
    partition::Partitioning,
    throttle::MergeRates,
    version::Version,
};
use crate::{
    contract::Context,
    io::Queues,
    lsm::{
        sst::{Sst, SstOwner, decoded_block::DecodedBlockCache},
        write_buffer::WriteBuffer,
    },
    util::{
        codec::to_u64,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// Counters since the table was opened.
#[derive(Debug, Default)]
pub(super) struct TphCounters {
    pub(super) reads: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    /// Reads of blocks without the key: its signature matched by chance.
    pub(super) false_reads: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) merges: AtomicU64,
    pub(super) merge_read_bytes: AtomicU64,
    /// SSTs that merges removed from their tables.
    pub(super) collected: AtomicU64,
    pub(super) cleanup_failures: AtomicU64,
}

/// What the publication of versions changes, behind one lock.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    pub(super) manifest: TphManifest,
    /// Files that are removed once the next edit is durable.
    pub(super) obsolete: Vec<String>,
}

/// The state of a table. See the module head.
#[derive(Debug)]
pub(super) struct TphStore {
    pub(super) context: Context,
    pub(super) settings: TphSettings,
    pub(super) owner: SstOwner,
    pub(super) partitioning: Partitioning,
    pub(super) write_buffer: WriteBuffer<Version>,
    /// Held during a flush.
    pub(super) flushing: Mutex<()>,
    /// Held during a compaction.
    pub(super) compacting: Mutex<()>,
    /// Held by a merge that needs a large part of the memory.
    pub(super) large_merge: Mutex<()>,
    pub(super) publisher: Mutex<Publisher>,
    pub(super) next_sst: AtomicU64,
    /// Bytes of the memory budget that the indexes of the current version have reserved.
    pub(super) index_bytes_reserved: AtomicU64,
    /// The current version has work for a compaction.
    pub(super) wants_compaction: AtomicBool,
    pub(super) queues: Queues,
    pub(super) merge_rates: MergeRates,
    /// A merge is flushing: its other threads do not.
    pub(super) is_merge_flushing: AtomicBool,
    /// Decoded blocks of the SSTs.
    pub(super) cache: Arc<DecodedBlockCache>,
    pub(super) counters: TphCounters,
}

impl TphStore {
    /// Returns the hash of a key.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.write_buffer.hash(key)
    }

    /// Returns whether the tables of a level follow one another in key order.
    pub(super) fn has_key_ranges(&self) -> bool {
        matches!(self.partitioning, Partitioning::Key)
    }

    /// Returns the LSN below which the files have every effect.
    pub(super) fn complete(&self) -> u64 {
        lock(&self.publisher).manifest.contents.complete
    }

    /// Shrinks the block cache by the bytes that exceed the memory budget.
    pub(super) fn shrink_cache(&self) {
        let budget = &self.context.budget;
        let excess = budget.used().saturating_sub(budget.limit());
        if excess > 0 {
            self.cache.blocks.shrink(excess);
        }
    }

    /// Reserves the memory of a version's indexes instead of the current version's, and leaves the
    /// rest of the budget to memtables.
    pub(super) fn reserve_index_memory(&self, version: &Version) {
        let bytes = version.tables().map(|table| table.memory_bytes().iter().sum::<u64>());
        let needed: u64 = bytes.sum();
        let reserved = self.index_bytes_reserved.swap(needed, Ordering::Relaxed);
        self.context.budget.reserve_unchecked(needed.saturating_sub(reserved));
        self.context.budget.release(reserved.saturating_sub(needed));
        self.write_buffer.set_work_memory_bytes(self.context.budget.limit().saturating_sub(needed));
    }

    /// Returns the memory that a merge of this many entries needs besides the table: the locations
    /// of the entries, and the index before it is written.
    pub(super) fn merge_memory(&self, entries: u64) -> u64 {
        // The writer fills one buffer while the other is written.
        let buffers = 2 * to_u64(self.settings.shape.write_bytes);
        entries.saturating_mul(WORK_BYTES_PER_ENTRY).saturating_add(buffers)
    }

    /// Counts the bytes of a new SST.
    pub(super) fn count_written(&self, sst: &Sst) {
        self.counters.written_bytes.fetch_add(sst.file_bytes, Ordering::Relaxed);
    }
}

impl Drop for TphStore {
    fn drop(&mut self) {
        self.context.budget.release(self.index_bytes_reserved.load(Ordering::Relaxed));
    }
}
