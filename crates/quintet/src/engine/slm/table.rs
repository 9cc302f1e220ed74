//! The state of a table, shared by the table and its iterators.

use std::{ops::Deref, sync::Arc};

use super::{
    index_key::{IndexKey, IndexKeyCodec},
    index_value::BlockAddress,
    location_cache::LocationCache,
    merge_input::MergeJob,
    options::SlmSettings,
    pool::{SlmPool, index::PoolIndex},
    read_locality::ReadLocality,
    run::RunSet,
    run_manifest::RunManifest,
};
use crate::{
    Error, Result,
    bptree::checkpoint::PagedTree,
    contract::Context,
    io::Queues,
    lsm::{
        rate_limiter::{IdleDetector, RateLimiter},
        read_buffers::ReadBuffers,
        sst::{SstOwner, decoded_block::DecodedBlockCache},
        super_version,
        write_buffer::{FlushTarget, WriteBuffer},
    },
    util::{
        codec::to_u64,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// The memtables and runs that a reader sees.
pub(super) type SuperVersion = super_version::SuperVersion<RunSet>;

/// Counters of a table, for its statistics.
#[derive(Debug, Default)]
pub(super) struct SlmCounters {
    pub(super) reads_total: AtomicU64,
    pub(super) read_bytes_total: AtomicU64,
    /// The part of `reads_total` that ranges caused.
    pub(super) range_reads_total: AtomicU64,
    pub(super) written_bytes_total: AtomicU64,
    pub(super) flushes_total: AtomicU64,
    pub(super) merges_total: AtomicU64,
    pub(super) merge_read_bytes_total: AtomicU64,
    /// Merges with a run that was a candidate for a reason, by the reason's bit: dead entries,
    /// leaves, ranges, small.
    pub(super) merges_by_reason: [AtomicU64; 4],
    /// Live entries that a merge has not copied. Any other value than 0 is an inconsistency.
    pub(super) left_behind_total: AtomicU64,
    pub(super) cleanup_failures_total: AtomicU64,
}

/// The state that the table and its iterators share.
#[derive(Debug)]
pub(super) struct SlmTable {
    pub(super) context: Context,
    pub(super) settings: SlmSettings,
    /// Directory, kind and identity of the table's run files.
    pub(super) owner: SstOwner,
    /// The index: a B+-tree of pages with checkpoints.
    pub(super) paged: PagedTree,
    /// How the index stores keys.
    pub(super) keys: Arc<IndexKeyCodec>,
    pub(super) manifest: Arc<RunManifest>,
    pub(super) write_buffer: WriteBuffer<RunSet>,
    /// The pool of persistent memory, if the table has one. It has the index, the memtables, or
    /// both.
    pub(super) pool: Option<SlmPool>,
    /// Serialises flushes.
    pub(super) flushing: Mutex<()>,
    /// Serialises merges. Holds the paused merge, if any.
    pub(super) compacting: Mutex<Option<MergeJob>>,
    /// Serialises updates of the index.
    pub(super) index_writer: Mutex<()>,
    /// Numbers of the runs whose files could not be removed.
    pub(super) unremoved_runs: Mutex<Vec<u32>>,
    /// First index key of the next window that the compaction picker scans.
    pub(super) leaf_scan_start: Mutex<Vec<u8>>,
    /// Bytes that are reserved in the budget for the runs.
    pub(super) run_memory_bytes: AtomicU64,
    /// Set by changes after which a merge may be due.
    pub(super) compaction_wanted: AtomicBool,
    /// Detects that no checkpoint has been taken for a while.
    pub(super) idle: IdleDetector,
    pub(super) read_locality: ReadLocality,
    pub(super) queues: Queues,
    /// Read buffers of gets and ranges.
    pub(super) buffers: Arc<ReadBuffers>,
    /// Limits the rate of merges.
    pub(super) merge_limiter: RateLimiter,
    /// Block cache of the runs.
    pub(super) cache: Arc<DecodedBlockCache>,
    pub(super) location_cache: LocationCache,
    pub(super) counters: SlmCounters,
}

impl SlmTable {
    /// Hashes a user key.
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.write_buffer.hash(key)
    }

    /// Returns what a read sees. Fails with `Corruption` if a memtable in a pool is damaged.
    #[inline]
    pub(super) fn view(&self) -> Result<impl Deref<Target = Arc<SuperVersion>> + use<>> {
        self.write_buffer.read_all()?;
        Ok(self.write_buffer.view.load())
    }

    /// Returns the index in the pool; `None` if the index is in pages.
    #[inline]
    pub(super) fn pool_index(&self) -> Option<&PoolIndex> {
        self.pool.as_ref()?.index.as_ref()
    }

    /// Returns the pool, if the memtables are in it.
    pub(super) fn memtable_pool(&self) -> Option<&SlmPool> {
        self.pool.as_ref().filter(|pool| pool.memtables.is_some())
    }

    /// Returns the name of the index's file, for messages.
    pub(super) fn index_label(&self) -> &str {
        self.pool_index().map_or_else(|| self.paged.tree.cache().label(), PoolIndex::label)
    }

    /// Notes that a merge may be due, and wakes the background unless this was noted before.
    pub(super) fn wake_compaction(&self) {
        if !self.compaction_wanted.swap(true, Ordering::Relaxed) {
            self.context.host.wake();
        }
    }

    /// Returns the error of an index value that points to a run that does not exist.
    pub(super) fn missing_run(&self, key: impl std::fmt::Display, address: BlockAddress) -> Error {
        let what = format!("key {key} points to run {:08x}, which does not exist", address.run);
        Error::corruption(self.index_label(), 0, what)
    }

    /// Returns the error of an index value that cannot be decoded.
    #[cold]
    pub(super) fn undecodable_value(&self, key: IndexKey<'_>) -> Error {
        let key = self.keys.format(key);
        let what = format!("the index value of key {key} cannot be decoded");
        Error::corruption(self.index_label(), 0, what)
    }

    /// Returns the error of an index key that is not the code of a user key.
    #[cold]
    pub(super) fn undecodable_key(&self, key: IndexKey<'_>) -> Error {
        let what = format!("index key {} is not the code of a key", key.0.escape_ascii());
        Error::corruption(self.index_label(), 0, what)
    }

    /// Divides memory between the two caches: the block cache gets what the pages of the index
    /// leave, and shrinks by the excess over the budget.
    pub(super) fn divide_memory(&self) {
        let pages = self.paged.tree.cache();
        let wanted = self.paged.tree.allocator().used().min(pages.capacity());
        let most = self.settings.cache_bytes.saturating_sub(wanted * to_u64(pages.page_bytes()));
        self.cache.blocks.set_most(most.max(self.settings.cache_bytes_min));
        let budget = &self.context.budget;
        let excess = budget.used().saturating_sub(budget.limit());
        if excess > 0 {
            self.cache.blocks.shrink(excess);
        }
    }

    /// Reserves the memory of a run.
    pub(super) fn reserve_run_memory(&self, bytes: u64) {
        self.context.budget.reserve_unchecked(bytes);
        self.run_memory_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.divide_memory();
    }

    /// Releases the memory of removed runs.
    pub(super) fn release_run_memory(&self, bytes: u64) {
        self.run_memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.context.budget.release(bytes);
    }
}

impl FlushTarget<RunSet> for SlmTable {
    fn flush_backlog(&self) -> Result<()> {
        self.flush_oldest()
    }

    fn await_work(&self) {
        // A paused merge gives up its memory. A later one begins anew.
        *lock(&self.compacting) = None;
    }

    fn set_rate(&self, view: &SuperVersion) {
        let rate = if self.write_buffer.is_nearly_full(view) {
            self.write_buffer.flushed.rate() / 10 * 9
        } else {
            0
        };
        self.write_buffer.set_write_rate(rate);
    }
}

impl Drop for SlmTable {
    fn drop(&mut self) {
        let runs = self.run_memory_bytes.load(Ordering::Relaxed);
        self.context.budget.release(runs + self.location_cache.memory_bytes());
    }
}
