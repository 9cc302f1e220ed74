//! The state of a table: index, records, large values, and the locks that guard them.

use std::collections::BTreeSet;

use super::{
    checkpoint_state::CheckpointState, current_record::PrefetchedRecord, hash::Hash,
    options::TrieSettings, replay_buffer::TrieReplayBuffer,
};
use crate::{
    Error, Result,
    contract::{Context, RoomAttempts},
    engine::trie::{
        index::{KeyPath, LazyTrie, RETRIES_MAX},
        store::{extents::Extents, regions::Regions},
    },
    io::Queues,
    record_store::read_ahead::ReadAhead,
    util::{
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering},
    },
};

/// Counters of a table. Some are statistics, others decide when maintenance runs.
#[derive(Debug, Default)]
pub(super) struct TrieCounters {
    pub(super) live_bytes: AtomicU64,
    /// Units appended since the last checkpoint.
    pub(super) appended_units: AtomicU64,
    /// Operations applied.
    pub(super) applied: AtomicU64,
    /// `applied` at the last checkpoint.
    pub(super) applied_at_checkpoint: AtomicU64,
    /// `applied` when the idle check last saw it change.
    pub(super) applied_seen: AtomicU64,
    /// Monotonic time of that change, in milliseconds.
    pub(super) applied_seen_millis: AtomicU64,
    /// `applied` + 1 when compaction last found nothing to do.
    pub(super) idle_compaction_at: AtomicU64,
    /// `cuts_total` + 1 at the last compaction step.
    pub(super) compacted_at: AtomicU64,
    pub(super) writer_compactions_total: AtomicU64,
    /// Units in use, at the last count.
    pub(super) units: AtomicU64,
    /// Dead units, at the last count.
    pub(super) waste_units: AtomicU64,
    pub(super) in_place_total: AtomicU64,
    /// Updates in place by a record of another size.
    pub(super) in_place_shorter_total: AtomicU64,
    /// Gets, and those that found their record in memory, if the option `profile` is on.
    pub(super) lookups_total: AtomicU64,
    pub(super) lookup_hits_total: AtomicU64,
    /// Regions read from the file whole.
    pub(super) loaded_total: AtomicU64,
    pub(super) cold_reads_total: AtomicU64,
    pub(super) moved_total: AtomicU64,
    pub(super) evicted_total: AtomicU64,
    pub(super) cuts_total: AtomicU64,
    pub(super) index_charged: AtomicU64,
    pub(super) written_bytes_total: AtomicU64,
}

/// A table of the trie engine. See the module documentation.
#[derive(Debug)]
pub struct Trie {
    pub(super) context: Context,
    pub(super) settings: TrieSettings,
    pub(super) hash: Hash,
    /// All ones, except in tests of equal hashes.
    pub(super) hash_mask: u64,
    pub(super) index: LazyTrie,
    pub(super) regions: Regions,
    pub(super) extents: Extents,
    /// Number + 1 of the region that receives appends; 0: none.
    pub(super) hot: AtomicU64,
    pub(super) roll: Mutex<()>,
    pub(super) loading: Mutex<()>,
    pub(super) maintenance: Mutex<CheckpointState>,
    /// Regions that a thread is emptying.
    pub(super) emptying: Mutex<BTreeSet<u64>>,
    /// Part of the table may be on disk only: a write may have to read.
    pub(super) is_cold: AtomicBool,
    pub(super) room_attempts: RoomAttempts,
    /// Bytes that another table wants and only a checkpoint releases; 0: none.
    pub(super) wanted_bytes: AtomicU64,
    /// A checkpoint is wanted, for instance to free regions that compaction emptied.
    pub(super) checkpoint_wanted: AtomicBool,
    /// The last checkpoint met a full disk.
    pub(super) lacks_space: AtomicBool,
    pub(super) queues: Queues,
    /// Records that admitted writes found on disk, by hash.
    pub(super) prefetched: ReadAhead<PrefetchedRecord>,
    pub(super) replay_buffer: TrieReplayBuffer,
    pub(super) counters: CachePadded<TrieCounters>,
}

impl Trie {
    /// The path of a key in the trie.
    #[inline]
    pub(super) fn path<'k>(&self, key: &'k [u8]) -> KeyPath<'k> {
        KeyPath { hash: self.hash.hash(key) & self.hash_mask, key }
    }

    /// Removes and returns the records that were read ahead for a write of a key.
    #[inline]
    pub(super) fn take_prefetched(&self, path: KeyPath<'_>) -> Vec<PrefetchedRecord> {
        if self.prefetched.is_unused() {
            return Vec::new();
        }
        self.prefetched.remove(self.prefetch_id(path))
    }

    /// The number under which records that are read ahead for a key are kept. A client can choose
    /// keys with the same path, so where paths are bytes of keys this is the keyed hash.
    pub(super) fn prefetch_id(&self, path: KeyPath<'_>) -> u64 {
        if self.hash.is_none() && mutant!(TrieMixesReadAhead: false, else true) {
            self.hash.siphash(path.key)
        } else {
            path.hash
        }
    }

    /// Adjusts the budget by what the index has grown or shrunk since the last call.
    pub(super) fn charge_index(&self) {
        let now = self.index.memory_bytes() + self.index.space().change_bytes();
        let before = self.counters.index_charged.swap(now, Ordering::Relaxed);
        self.context.budget.reserve_unchecked(now.saturating_sub(before));
        self.context.budget.release(before.saturating_sub(now));
    }

    /// Counts an address that gave no answer. Fails with [`Error::Corruption`] after
    /// [`RETRIES_MAX`] of them.
    pub(super) fn count_retry(&self, address: u64, count: &mut u32) -> Result<()> {
        *count += 1;
        if *count <= RETRIES_MAX {
            return Ok(());
        }
        let (region, unit) = self.regions.split(address);
        Err(self.regions.damage(region, unit, "the trie leads to an address without a record"))
    }

    pub(super) fn out_of_memory(&self, needed: u64) -> Error {
        Error::OutOfMemory { budget: self.context.budget.limit(), needed }
    }
}
