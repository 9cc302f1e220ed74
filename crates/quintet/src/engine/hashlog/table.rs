//! The state of a table: index, arena, chunks, and the locks that guard them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    arena::ChunkArena, chunk::Chunk, current_entry::PrefetchedEntry, files::TableIdentity,
    index::SlotTable, large_value::LargeValue, maintenance::Maintenance, options::HashLogSettings,
    prefetched::PrefetchedEntries,
};
use crate::{
    Error,
    contract::{Context, RoomAttempts},
    io::Queues,
    record_store::read_ahead::ReadAhead,
    util::{
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, read},
        timed_counter::TimedCounter,
    },
};

/// Numbers of the next chunk.
#[derive(Debug, Default)]
pub(super) struct RollState {
    pub(super) next_serial: u64,
    pub(super) next_id: u64,
    pub(super) free_ids: Vec<u64>,
    /// Order of the active chunk, or of the last one.
    pub(super) active_order: u64,
    /// When the active chunk was started; `None` if none was since the table was opened.
    pub(super) rolled_at: Option<Duration>,
}

#[derive(Debug, Default)]
pub(super) struct HashLogCounters {
    pub(super) live_bytes: AtomicU64,
    /// Units of entries in chunks; of those, dead entries and tombstones.
    pub(super) units: AtomicU64,
    pub(super) waste_units: AtomicU64,
    /// Units appended since the last flush.
    pub(super) unflushed_units: AtomicU64,
    /// Operations applied; how many of them the files have; the last observed count, and when it
    /// was first observed. An idle table is one whose count does not change.
    pub(super) applied: AtomicU64,
    pub(super) applied_persisted: AtomicU64,
    pub(super) applied_seen: AtomicU64,
    pub(super) applied_seen_millis: AtomicU64,
    /// `applied` + 1 when compaction found nothing to do, and when it last sealed the active
    /// chunk.
    pub(super) exhausted_at: AtomicU64,
    pub(super) active_sealed_at: AtomicU64,
    /// `applied` + 1 when compaction of a long idle table began, and when it ended.
    pub(super) tidying_at: AtomicU64,
    pub(super) tidied_at: AtomicU64,
    /// Chunks with so few entries that many are merged ([`HashLog::is_small`]), of those that the
    /// table was opened with. Each opening leaves one at most.
    pub(super) small_chunks: AtomicU64,
    /// Chunks that are not in memory.
    pub(super) cold_chunks: AtomicU64,
    /// Waste in units from which a writer compacts next.
    pub(super) next_writer_compaction: AtomicU64,
    pub(super) writer_compactions_total: AtomicU64,
    pub(super) in_place_total: AtomicU64,
    pub(super) cold_reads_total: AtomicU64,
    /// Of those, reads that returned another key's entry.
    pub(super) false_reads_total: AtomicU64,
    pub(super) compacted_total: AtomicU64,
    pub(super) evicted_total: AtomicU64,
    pub(super) index_charged: AtomicU64,
    /// Bytes of data files and of the manifest, and the manifest's size if it were rewritten.
    pub(super) data_bytes: AtomicU64,
    pub(super) manifest_bytes: AtomicU64,
    pub(super) manifest_needed: AtomicU64,
    pub(super) written_bytes_total: AtomicU64,
    /// Checkpoints that were committed in the manifest, those of compaction included.
    pub(super) checkpoints: TimedCounter,
    /// Passes of compaction that rewrote chunks, without the checkpoint that follows.
    pub(super) compactions: TimedCounter,
    /// Chunks that were started, with the wait for their memory.
    pub(super) chunk_creations: TimedCounter,
    /// Failures of the work after a checkpoint. It is retried.
    pub(super) cleanup_failures_total: AtomicU64,
}

/// A table of the hashlog engine. See the module documentation.
#[derive(Debug)]
pub struct HashLog {
    pub(super) context: Context,
    pub(super) owner: TableIdentity,
    pub(super) settings: HashLogSettings,
    /// All ones, except in tests of equal hashes.
    pub(super) hash_mask: u64,
    pub(super) index: SlotTable,
    pub(super) arena: ChunkArena,
    pub(super) chunks: RwLock<BTreeMap<u64, Arc<Chunk>>>,
    pub(super) larges: RwLock<BTreeMap<u64, Arc<LargeValue>>>,
    pub(super) next_large: AtomicU64,
    /// Large values whose entry died after it was frozen. A checkpoint frees them.
    pub(super) dead_larges: Mutex<Vec<u64>>,
    /// Id + 1 of the active chunk; 0: none.
    pub(super) active: AtomicU64,
    pub(super) roll: Mutex<RollState>,
    pub(super) residency: Mutex<()>,
    pub(super) maintenance: Mutex<Maintenance>,
    /// A checkpoint is due: compaction or a write freed space that it would release.
    pub(super) checkpoint_wanted: AtomicBool,
    /// LSN that the files were complete to when the table was opened.
    pub(super) opened_complete: AtomicU64,
    /// A read needed a chunk that is not in memory.
    pub(super) warm_wanted: AtomicBool,
    /// Two live keys have had the same 56 bits of hash.
    pub(super) collided: AtomicBool,
    pub(super) queues: Queues,
    pub(super) room_attempts: RoomAttempts,
    /// Entries read ahead for writes that are admitted and not applied yet, by hash.
    pub(super) read_ahead_entries: ReadAhead<PrefetchedEntry>,
    /// Entries that prefetches have read for gets.
    pub(super) prefetched: PrefetchedEntries,
    pub(super) counters: HashLogCounters,
}

impl HashLog {
    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.context.hash.hash(key) & self.hash_mask
    }

    pub(super) fn chunk(&self, id: u64) -> Option<Arc<Chunk>> {
        read(&self.chunks).get(&id).cloned()
    }

    /// Adjusts the budget to the size of the index.
    pub(super) fn charge_index(&self) {
        let now = self.index.bytes();
        let before = self.counters.index_charged.swap(now, Ordering::Relaxed);
        self.context.budget.reserve_unchecked(now.saturating_sub(before));
        self.context.budget.release(before.saturating_sub(now));
    }

    /// Returns the error for a broken invariant of the table.
    pub(super) fn broken(&self, what: &str) -> Error {
        Error::TableFailed { table: self.context.table_id.to_string(), reason: what.to_owned() }
    }

    pub(super) fn out_of_memory(&self, needed: u64) -> Error {
        Error::OutOfMemory { budget: self.context.budget.limit(), needed }
    }
}
