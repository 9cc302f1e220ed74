//! The trie engine: a lazy-trie over append-only regions of records (CedrusDB).
//!
//! Problem: an in-memory hash index gives point access at the speed of memory, but has to be
//! rebuilt when a table is opened. Here the index is on disk at all times, so the time to open a
//! table does not depend on its size (except for replay of the log).
//!
//! How: records are appended to regions of a data file ([`store::regions`]). A trie over the hashes
//! of their keys ([`index`]), in a journaled array of words ([`store::space`]), maps each key to
//! its record. Both are used in memory. On disk they are as of the last checkpoint. Put: lock the
//! subtree of the key's hash, find its record, overwrite it in place (same size, not in a
//! checkpoint) or append and exchange the record's word, unlock. Get: [`read`]. Checkpoint:
//! [`checkpoint`]. Space reclamation: [`compact`]. Open: [`recover`].
//!
//! Files: `nodes` (images of the trie), `data` (regions), `extents` (large values), `redo-*` (the
//! journal: what each checkpoint changed, and the state below).
//!
//! | state, varints in order | meaning |
//! |---|---|
//! | version | 1 |
//! | live bytes | of keys and values |
//! | trie | tail, free objects, counts: `trie::index` |
//! | images | slot and CRC32C of each region of `nodes`: `trie::store::space` |
//! | regions | life, units, sealed, live units, span of each: `trie::store::regions` |
//! | extents | tail and holes: `trie::store::extents` |
//!
//! Invariants:
//! - Every change of a record, of the trie and of the counts happens with the key's subtree locked.
//!   With all subtrees locked no operation is in progress: a checkpoint takes its state there.
//! - A record that is in a checkpoint is never changed. A region is reused only after a state
//!   without it is durable.
//! - Operations that the log replays enter regions at once and the trie later: [`replay_buffer`].
//! - `admit` reads what applying a write needs from disk: into memory, or into `prefetched`. A
//!   failed read refuses the write before it is logged.
//! - A checkpoint commits its journal group after its records are durable and the log is durable
//!   past all its effects.
//!
//! Thread rules: gets take no lock, and store nothing while the record is in memory. Lock order:
//! `maintenance`, subtrees, `roll`, locks of the store.
//!
//! How we differ from the paper: the shared log holds the operations, so the journal holds what a
//! checkpoint changed, coalesced, and not every write of every operation. A record that is in a
//! checkpoint moves when it is updated; regions are emptied and reused whole, where the paper
//! updates in place and fills holes. Readers take no locks. A record's head has 16 bytes, not 72.

mod batch;
mod check;
mod checkpoint;
mod compact;
mod hash;
pub(crate) mod index;
pub mod inspect;
mod mutants;
pub(crate) mod options;
mod read;
mod record;
mod recover;
mod replay_buffer;
pub(crate) mod store;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use self::{
    checkpoint::CheckpointState,
    options::{CUT_BYTES_MIN, TrieSettings},
    replay_buffer::ReplayBuffer,
    write::PrefetchedRecord,
};
use crate::{
    Result,
    contract::{
        Context, Cursor, Engine, EngineKind, EngineStats, Entry, FoundValue, Hint, MaintenanceMode,
        MultiGetSink, Op, OrderedEngine, PendingWork, Presence, TableOptions, ValueSink,
        replay_one_by_one, unordered,
    },
    engine::trie::{
        index::Trie as Index,
        store::{
            extents::Extents,
            regions::{Regions, UNIT_BYTES},
        },
    },
    io::Queues,
    util::{
        codec::{Lsn, to_u64},
        report::Report,
        sync::{AtomicBool, AtomicU64, CachePadded, Mutex, Ordering, lock},
    },
};

/// Changes of the trie without an image may take this part of the budget.
const CHANGES_PART: u64 = 8;
/// Memory may exceed the budget by this part of it before a writer makes a checkpoint itself.
const OVERSHOOT_PART: u64 = 16;
/// Operations after which a checkpoint is wanted: about as many as replay may have to apply again.
const CHECKPOINT_OPERATIONS: u64 = 100_000;
/// Percentage of waste in the data file down to which an idle table is compacted.
const IDLE_WASTE_PER_CENT: u64 = 4;
/// Milliseconds without a write after which a table counts as idle.
const IDLE_MILLIS: u64 = 500;

/// Counters of a table. Some are statistics, others decide when maintenance runs.
#[derive(Debug, Default)]
struct Counters {
    live_bytes: AtomicU64,
    /// Units appended since the last checkpoint.
    appended_units: AtomicU64,
    /// Operations applied.
    applied: AtomicU64,
    /// `applied` at the last checkpoint.
    applied_at_checkpoint: AtomicU64,
    /// `applied` when the idle check last saw it change.
    applied_seen: AtomicU64,
    /// Monotonic time of that change, in milliseconds.
    applied_seen_millis: AtomicU64,
    /// `applied` + 1 when compaction last found nothing to do.
    idle_compaction_at: AtomicU64,
    /// `cuts_total` + 1 at the last compaction step.
    compacted_at: AtomicU64,
    writer_compactions_total: AtomicU64,
    /// Units in use, at the last count.
    units: AtomicU64,
    /// Dead units, at the last count.
    waste_units: AtomicU64,
    in_place_total: AtomicU64,
    cold_reads_total: AtomicU64,
    moved_total: AtomicU64,
    evicted_total: AtomicU64,
    cuts_total: AtomicU64,
    index_charged: AtomicU64,
    /// Keys whose records were read ahead of their writes.
    prefetched: AtomicU64,
    written_bytes_total: AtomicU64,
}

/// A table of the trie engine. See the module documentation.
#[derive(Debug)]
pub struct Trie {
    context: Context,
    settings: TrieSettings,
    hash: hash::Hash,
    /// All ones, except in tests of equal hashes.
    hash_mask: u64,
    index: Index,
    regions: Regions,
    extents: Extents,
    /// Number + 1 of the region that receives appends; 0: none.
    hot: AtomicU64,
    roll: Mutex<()>,
    loading: Mutex<()>,
    maintenance: Mutex<CheckpointState>,
    /// Regions that a thread is emptying.
    emptying: Mutex<BTreeSet<u64>>,
    /// Part of the table may be on disk only: a write may have to read.
    is_cold: AtomicBool,
    /// A checkpoint is wanted, for instance to free regions that compaction emptied.
    checkpoint_wanted: AtomicBool,
    queues: Queues,
    /// Records that admitted writes found on disk, by hash.
    prefetched: Mutex<BTreeMap<u64, Vec<Vec<PrefetchedRecord>>>>,
    replay_buffer: ReplayBuffer,
    counters: CachePadded<Counters>,
}

impl Trie {
    /// Opens a table, or creates one in an empty directory. Returns it and the LSN up to which its
    /// files are complete.
    ///
    /// Fails with `InvalidOption`, with `Corruption` where a file is damaged, and with `Io`.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        Self::open_with_mask(options, context, u64::MAX)
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.hash.hash(key) & self.hash_mask
    }

    /// Adjusts the budget by what the index has grown or shrunk since the last call.
    fn charge_index(&self) {
        let now = self.index.memory_bytes() + self.index.space().change_bytes();
        let before = self.counters.index_charged.swap(now, Ordering::Relaxed);
        self.context.budget.reserve_unchecked(now.saturating_sub(before));
        self.context.budget.release(before.saturating_sub(now));
    }

    /// Loads the region of a word of the trie, and evicts others if the budget requires it. The
    /// caller has no subtree locked.
    pub(super) fn load_index(&self, at: u64) -> Result<()> {
        self.index.space().load(at)?;
        self.enforce_budget(at);
        Ok(())
    }

    /// Evicts until the budget is kept or nothing can be evicted: records first, because a miss
    /// costs a read of a block, then regions of the trie except that of the word at `keep`.
    /// Requests a checkpoint if changes without one hold the memory. The caller has no subtree
    /// locked.
    pub(super) fn enforce_budget(&self, keep: u64) {
        // Only changes that are in no checkpoint remain.
        if !self.evict_to_budget(keep) && self.index.space().unsaved_bytes() > 0 {
            self.checkpoint_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
    }

    /// As [`Self::enforce_budget`], but requests no checkpoint. Returns whether the budget is kept.
    fn evict_to_budget(&self, keep: u64) -> bool {
        self.charge_index();
        while self.context.budget.used() > self.context.budget.limit() {
            if !self.evict_one() && !self.evict_index(keep) {
                return false;
            }
        }
        true
    }

    /// Before a write: makes a checkpoint if memory exceeds the budget by more than
    /// [`OVERSHOOT_PART`], because changes then come faster than checkpoints release them.
    fn bound_changes(&self) -> Result<()> {
        let budget = &self.context.budget;
        if budget.used() <= budget.limit() + budget.limit() / OVERSHOOT_PART {
            return Ok(());
        }
        self.enforce_budget(0);
        if budget.used() > budget.limit() + budget.limit() / OVERSHOOT_PART {
            self.checkpoint_for_memory()?;
            self.enforce_budget(0);
        }
        Ok(())
    }

    /// Evicts regions of the trie; `false` if none can be evicted.
    fn evict_index(&self, keep: u64) -> bool {
        let evicted = self.index.evict(keep);
        if evicted {
            self.is_cold.store(true, Ordering::Relaxed);
            self.charge_index();
        }
        evicted
    }

    /// Counts units and waste anew, and updates `is_cold`.
    fn count_waste(&self) {
        // A thread that evicts sets the flag after it: whatever happens between these two, the flag
        // is right.
        self.is_cold.store(false, Ordering::SeqCst);
        if !self.is_all_in_memory() {
            self.is_cold.store(true, Ordering::Relaxed);
        }
        let (units, waste) = self.regions.units();
        self.counters.units.store(units, Ordering::Relaxed);
        self.counters.waste_units.store(waste, Ordering::Relaxed);
    }

    /// Returns whether every record and every word of the trie is in memory.
    fn is_all_in_memory(&self) -> bool {
        let mut regions = self.regions.in_use().into_iter();
        let is_buffering = self.replay_buffer.is_replaying() || !self.replay_buffer.is_empty();
        !is_buffering
            && self.index.is_all_loaded()
            && regions.all(|region| self.regions.is_resident(region))
    }

    /// Returns whether waste exceeds `per_cent` of the data and two regions.
    fn waste_exceeds(&self, per_cent: u64) -> bool {
        let units = self.counters.units.load(Ordering::Relaxed);
        let waste = self.counters.waste_units.load(Ordering::Relaxed);
        waste * 100 > units * per_cent && waste > self.regions.region_units() * 2
    }

    /// The percentage of waste that the option `live_ratio` permits.
    fn waste_per_cent_max(&self) -> u64 {
        100 - self.settings.live_per_cent
    }

    /// Returns whether the table was idle and has had no write since the last [`Self::is_resting`].
    fn was_idle(&self) -> bool {
        let applied = self.counters.applied.load(Ordering::Relaxed);
        applied == self.counters.applied_seen.load(Ordering::Relaxed) && self.is_idle(applied)
    }

    /// Returns whether `applied` has not changed for [`IDLE_MILLIS`].
    fn is_idle(&self, applied: u64) -> bool {
        let counters = &self.counters;
        let now = u64::try_from(self.context.env.monotonic().as_millis()).unwrap_or(u64::MAX);
        if counters.applied_seen.swap(applied, Ordering::Relaxed) != applied {
            counters.applied_seen_millis.store(now, Ordering::Relaxed);
        }
        let since = counters.applied_seen_millis.load(Ordering::Relaxed);
        now.saturating_sub(since) >= IDLE_MILLIS
    }

    /// Returns whether a checkpoint is due: enough bytes or operations since the last, or a
    /// request.
    fn wants_checkpoint(&self) -> bool {
        let appended_bytes = self.counters.appended_units.load(Ordering::Relaxed) * UNIT_BYTES;
        // Changes that are in no checkpoint stay in memory, whatever the budget.
        let part = self.context.budget.limit() / CHANGES_PART;
        let wanted = self.settings.cut_bytes.min(part.max(CUT_BYTES_MIN));
        let counters = &self.counters;
        let since = counters
            .applied
            .load(Ordering::Relaxed)
            .wrapping_sub(counters.applied_at_checkpoint.load(Ordering::Relaxed));
        appended_bytes + self.index.space().unsaved_bytes() >= wanted
            || since >= CHECKPOINT_OPERATIONS
            || self.checkpoint_wanted.load(Ordering::Relaxed)
    }

    /// Returns whether the budget has room to load whole regions.
    fn has_room_to_load(&self) -> bool {
        let budget = &self.context.budget;
        budget.used() + 4 * self.regions.region_bytes() <= budget.limit() / 10 * 9
    }
}

impl Drop for Trie {
    fn drop(&mut self) {
        let charged = self.counters.index_charged.load(Ordering::Relaxed);
        let buffer_bytes = self.replay_buffer.memory_bytes();
        self.context.budget.release(self.regions.memory_bytes() + charged + buffer_bytes);
    }
}

impl Engine for Trie {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        self.read_with(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        match sink {
            MultiGetSink::Append(out) => {
                let first = out.len();
                out.extend(keys.iter().map(|_| None));
                self.read_many(keys, &mut |index, answer| {
                    if let Some(slot) = out.get_mut(first + index) {
                        *slot = answer.map(FoundValue::into_value);
                    }
                    Ok(())
                })
            }
            MultiGetSink::Each(each) => self.read_many(keys, &mut |index, answer| {
                each(index, answer.as_ref().map(FoundValue::bytes))
            }),
        }
    }

    fn exists_hint(&self, _key: &[u8]) -> Result<Presence> {
        Ok(Presence::InValue)
    }

    #[inline]
    fn prefetch(&self, hint: Hint<'_, '_>) {
        if let Hint::Write { hash, step } = hint
            && self.hash.is_siphash()
            && let Some(address) = self.index.prefetch_lookup(hash & self.hash_mask, step)
        {
            self.regions.prefetch(address);
        }
    }

    fn admit(&self, op: &Op<'_>) -> Result<()> {
        let needed = self.bytes_needed(op);
        if needed > 0 {
            self.compact_for_writer();
            self.context.reserve_with_retry(needed, || self.ensure_room_for(op, needed))?;
        }
        match op {
            Op::Put { key, .. } | Op::Delete { key } if self.is_cold.load(Ordering::Relaxed) => {
                match (self.bound_changes(), op) {
                    (Err(error), Op::Put { .. }) => Err(error),
                    // Deletes are accepted when the disk is full, because they free space.
                    _ => self.prefetch_record(key),
                }
            }
            _ => Ok(()),
        }
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            drop(self.remove_prefetched(self.hash(key)));
        }
    }

    fn apply(&self, _lsn: Lsn, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Put { .. } | Op::Delete { .. } if self.replay_buffer.is_replaying() => {
                self.replay_op(op)
            }
            Op::Put { key, head, body } => self.put(key, [head, body]),
            Op::Delete { key } => self.delete(key),
            Op::DeleteRange { .. } => Err(unordered(&self.context, EngineKind::Trie)),
        }
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        self.scan_from(from, limit)
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        replay_one_by_one(self, ops)
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        None
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        self.checkpoint_to(up_to)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        while self.compact_step()? && mode == MaintenanceMode::Full {}
        Ok(())
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.check_all(report)
    }

    fn stats(&self) -> EngineStats {
        // If this fails, the figures lack operations in the replay buffer.
        let _ = self.merge_all();
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (_, waste) = self.regions.units();
        let regions = self.regions.in_use();
        let resident = regions.iter().filter(|region| self.regions.is_resident(**region)).count();
        let index_bytes = self.index.space_bytes();
        let (free_nodes, free_index_bytes) = self.index.free_nodes();
        let (loads, evictions) = self.index.space().load_counts();
        let (redo_bytes, image_bytes) = {
            let maintenance = lock(&self.maintenance);
            (maintenance.redo.file_bytes(), self.index.space().file_bytes())
        };
        let data_bytes = self.regions.file_bytes() + self.extents.used_bytes();
        EngineStats {
            keys: self.index.len(),
            live_bytes: load(&counters.live_bytes),
            dead_bytes: waste * UNIT_BYTES,
            file_bytes: data_bytes + redo_bytes + image_bytes,
            memory_bytes: self.regions.memory_bytes()
                + self.extents.memory_bytes()
                + self.replay_buffer.memory_bytes()
                + load(&counters.index_charged),
            index_bytes,
            written_bytes_total: load(&counters.written_bytes_total),
            details: vec![
                ("node_bytes", self.index.node_bytes()),
                ("list_bytes", self.index.list_bytes()),
                ("free_nodes", free_nodes),
                ("free_index_bytes", free_index_bytes),
                ("regions", to_u64(regions.len())),
                ("regions_in_memory", to_u64(resident)),
                ("extent_bytes", self.extents.used_bytes()),
                ("journal_bytes", redo_bytes),
                ("image_bytes", image_bytes),
                ("change_bytes", self.index.space().change_bytes()),
                ("index_memory_bytes", self.index.memory_bytes()),
                ("index_regions_loaded_total", loads),
                ("index_regions_evicted_total", evictions),
                ("in_place_updates_total", load(&counters.in_place_total)),
                ("cold_reads_total", load(&counters.cold_reads_total)),
                ("compactions_by_writers_total", load(&counters.writer_compactions_total)),
                ("records_moved_total", load(&counters.moved_total)),
                ("regions_evicted_total", load(&counters.evicted_total)),
                ("cuts_total", load(&counters.cuts_total)),
            ],
        }
    }

    fn pending_work(&self) -> PendingWork {
        let counters = &self.counters;
        let applied = counters.applied.load(Ordering::Relaxed);
        if self.wants_checkpoint() || !self.replay_buffer.is_empty() {
            // One compaction step between two checkpoints, however fast they follow one another.
            let cuts = counters.cuts_total.load(Ordering::Relaxed);
            let is_step_due = counters.compacted_at.load(Ordering::Relaxed) <= cuts;
            let wants =
                self.replay_buffer.is_empty() && self.waste_exceeds(self.waste_per_cent_max());
            return if is_step_due && wants {
                PendingWork::Maintain
            } else {
                PendingWork::Checkpoint
            };
        }
        if counters.idle_compaction_at.load(Ordering::Relaxed) == applied + 1 {
            return PendingWork::None;
        }
        if self.waste_exceeds(self.waste_per_cent_max()) {
            return PendingWork::Maintain;
        }
        let idle_waste = IDLE_WASTE_PER_CENT.min(self.waste_per_cent_max());
        if !self.waste_exceeds(idle_waste) && !self.index.wants_gathering() {
            return PendingWork::None;
        }
        if self.is_idle(applied) { PendingWork::Maintain } else { PendingWork::Later }
    }
}
