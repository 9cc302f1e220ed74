//! The hashlog engine: append-only chunks and a hash table in memory (LogKV, sections 2.1 and 3.1).
//!
//! A write appends an entry to the active chunk. A table of 8-byte slots ([`index`]) finds the
//! newest entry of each key. Chunks are written to data files ([`files`]) and stay in memory
//! ([`arena`]) within the budget.
//! Writes are appends and gets read one index line and one entry: for ingest, sessions, caches,
//! counters.
//!
//! - put ([`write`]): lock the key's group, find its entry, replace it in place (same size, not
//!   frozen) or append and swap the slot, unlock.
//! - get: [`read`]; from the disk: [`cold`]. Which chunks are in memory: [`residency`].
//! - checkpoint: [`maintain`] (steps), [`flush`] (data), [`manifest`]. compact: [`compact`]. open:
//!   [`recover`], [`load`].
//!
//! Invariants:
//! - Entries below a chunk's frozen bound never change. Only they are written. A checkpoint
//!   freezes, waits for writers that did not see the freeze, syncs the log, writes, syncs, and
//!   commits in the [`manifest`]. It holds everything applied before it began.
//! - Of two entries of one key, the one in the chunk of higher (order, serial) is newer, or the
//!   later one in the same chunk. The active chunk has an even order. Compaction copies to a chunk
//!   of odd order, between its sources and all that is written later.
//! - A tombstone is kept while an older chunk exists.
//! - Space that a checkpoint drops is freed after the checkpoint is durable.
//! - After a failed sync the table keeps working. The data goes to another file and stays in memory
//!   until it is durable there. The failed sync is never retried.
//! - `collided` is set before a second live key with the same 56 bits of hash is readable. From
//!   then on, opening reads keys instead of hints. All other code resolves equal hashes by the full
//!   key.
//!
//! Locks: gets take none, and store nothing if the entry is in memory. Writers lock a group of the
//! index. Lock order: `maintenance`, group, `roll`, `residency`, `chunks`, `larges`. Maintenance
//! never waits for writers while it holds a later lock.
//!
//! Options: [`options`].
//!
//! How we differ from the paper: the shared log protects the last chunk; sizes have 32 bits;
//! versions are LSNs; chunks have checksums and the index a checkpoint; compaction and checkpoints
//! stop nobody; cold chunks leave memory; hot keys are updated in place.

mod arena;
mod check;
mod cold;
mod compact;
pub mod describe;
mod entry;
mod files;
mod flush;
pub(crate) mod index;
mod load;
mod maintain;
mod manifest;
#[cfg(all(test, model))]
mod models;
mod mutants;
pub(crate) mod options;
mod pack;
mod packed;
mod read;
mod recover;
mod residency;
#[cfg(test)]
#[cfg(not(model))]
mod tests;
mod write;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use self::{
    arena::Arena,
    files::{FileRange, TableIdentity},
    maintain::Maintenance,
    manifest::Extent,
    options::HashLogSettings,
    pack::PackedExtent,
    write::PrefetchedEntry,
};
use crate::{
    Error, Result,
    contract::{
        Context, Cursor, Engine, EngineKind, EngineStats, Entry, FoundValue, Hint, MaintenanceMode,
        MultiGetSink, Op, OrderedEngine, PendingWork, Presence, TableOptions, ValueSink,
        replay_one_by_one, unordered,
    },
    engine::hashlog::index::SlotTable,
    io::Queues,
    util::{
        codec::{Lsn, to_u64},
        report::Report,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, RwLock, lock, read},
    },
};

/// Per cent of waste down to which an idle table is compacted.
const IDLE_WASTE_PER_CENT: u64 = 4;
/// Milliseconds without a write after which a table is idle.
const IDLE_MILLIS: u64 = 500;
/// Milliseconds without a write after which compaction goes below [`IDLE_WASTE_PER_CENT`].
const LONG_IDLE_MILLIS: u64 = 4000;
/// Per cent of waste from which it does. The distance to the target below keeps a few updates
/// between two idle times from causing much rewriting.
const LONG_IDLE_WASTE_PER_CENT_MAX: u64 = 2;
/// Per cent of waste down to which it compacts. Heads and hints take most of the fifth that an idle
/// table may take beyond its live bytes.
const LONG_IDLE_WASTE_PER_CENT: u64 = 1;

/// A chunk. The counts that change with each write are in the [`Arena`].
#[derive(Debug)]
struct Chunk {
    id: u64,
    serial: u64,
    order: u64,
    created: u64,
    /// Its packed extents, each in its own file range; empty in a table without compression.
    packed_extents: RwLock<Vec<Arc<PackedExtent>>>,
    /// Units that a read of one entry from the file fetches.
    span: AtomicU64,
    /// The whole chunk is durable and sealed: it may leave memory.
    written: AtomicBool,
    /// It holds nothing live: the next checkpoint drops it.
    retired: AtomicBool,
    /// Number of entries that writers had to read from its file.
    writer_reads: AtomicU64,
    flush: Mutex<FlushState>,
}

/// How much of a chunk is in its file.
#[derive(Debug, Default)]
struct FlushState {
    /// Start of the next extent, in units.
    start: u64,
    /// Start and end of extents that are frozen but not written.
    ended: Vec<(u64, u64)>,
    /// No extent follows those.
    sealed: bool,
    /// Its file range, once one is allocated; a new one after that file has failed.
    file_range: Option<FileRange>,
    /// Extents that are written, and how many of them are durable.
    extents: Vec<Extent>,
    durable_count: usize,
}

impl Chunk {
    /// Returns its file range; `None` before the first flush, and for a packed chunk.
    fn file_range(&self) -> Option<FileRange> {
        lock(&self.flush).file_range.clone()
    }
}

/// A value too large for a chunk. It has its own file range.
#[derive(Debug)]
struct LargeValue {
    number: u64,
    lsn: u64,
    length: u64,
    state: Mutex<LargeState>,
    /// It is durable in its file range: it may leave memory.
    written: AtomicBool,
}

#[derive(Debug, Default)]
struct LargeState {
    /// The value, while it is in memory.
    bytes: Option<Arc<[u8]>>,
    file_range: Option<FileRange>,
    /// It is written to its file range, perhaps not durably.
    in_file: bool,
}

impl LargeValue {
    /// Returns its file range, once one is allocated.
    fn file_range(&self) -> Option<FileRange> {
        lock(&self.state).file_range.clone()
    }
}

/// Numbers of the next chunk.
#[derive(Debug, Default)]
struct RollState {
    next_serial: u64,
    next_id: u64,
    free_ids: Vec<u64>,
    /// Order of the active chunk, or of the last one.
    active_order: u64,
    /// When the active chunk was started; `None` if none was since the table was opened.
    rolled_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct HashLogCounters {
    live_bytes: AtomicU64,
    /// Units of entries in chunks; of those, dead entries and tombstones.
    units: AtomicU64,
    waste_units: AtomicU64,
    /// Units appended since the last flush.
    unflushed_units: AtomicU64,
    /// Operations applied; how many of them the files have; the last observed count, and when it
    /// was first observed. An idle table is one whose count does not change.
    applied: AtomicU64,
    applied_persisted: AtomicU64,
    applied_seen: AtomicU64,
    applied_seen_millis: AtomicU64,
    /// `applied` + 1 when compaction found nothing to do, and when it last sealed the active
    /// chunk.
    exhausted_at: AtomicU64,
    active_sealed_at: AtomicU64,
    /// `applied` + 1 when compaction of a long idle table began, and when it ended.
    tidying_at: AtomicU64,
    tidied_at: AtomicU64,
    /// Chunks that are not in memory, and keys whose entries were read ahead of their writes.
    cold_chunks: AtomicU64,
    read_ahead_count: AtomicU64,
    /// Waste in units from which a writer compacts next.
    next_writer_compaction: AtomicU64,
    writer_compactions_total: AtomicU64,
    in_place_total: AtomicU64,
    cold_reads_total: AtomicU64,
    /// Of those, reads that returned another key's entry.
    false_reads_total: AtomicU64,
    compacted_total: AtomicU64,
    evicted_total: AtomicU64,
    index_charged: AtomicU64,
    /// Bytes of data files and of the manifest, and the manifest's size if it were rewritten.
    data_bytes: AtomicU64,
    manifest_bytes: AtomicU64,
    manifest_needed: AtomicU64,
    written_bytes_total: AtomicU64,
    /// Failures of the work after a checkpoint. It is retried.
    cleanup_failures_total: AtomicU64,
}

/// A table of the hashlog engine. See the module documentation.
#[derive(Debug)]
pub struct HashLog {
    context: Context,
    owner: TableIdentity,
    live_per_cent: u64,
    mutable_chunks: u64,
    /// Extents are compressed when they are written.
    compresses: bool,
    /// All ones, except in tests of equal hashes.
    hash_mask: u64,
    index: SlotTable,
    arena: Arena,
    chunks: RwLock<BTreeMap<u64, Arc<Chunk>>>,
    larges: RwLock<BTreeMap<u64, Arc<LargeValue>>>,
    next_large: AtomicU64,
    /// Large values whose entry died after it was frozen. A checkpoint frees them.
    dead_larges: Mutex<Vec<u64>>,
    /// Id + 1 of the active chunk; 0: none.
    active: AtomicU64,
    roll: Mutex<RollState>,
    residency: Mutex<()>,
    maintenance: Mutex<Maintenance>,
    /// A checkpoint is due: compaction or a write freed space that it would release.
    checkpoint_wanted: AtomicBool,
    /// LSN that the files were complete to when the table was opened.
    opened_complete: AtomicU64,
    /// A read needed a chunk that is not in memory.
    warm_wanted: AtomicBool,
    /// Two live keys have had the same 56 bits of hash.
    collided: AtomicBool,
    queues: Queues,
    /// Entries read ahead for writes that are admitted and not applied yet, by hash.
    read_ahead_entries: Mutex<BTreeMap<u64, Vec<Vec<PrefetchedEntry>>>>,
    counters: HashLogCounters,
}

impl HashLog {
    /// Loads a table, or creates one in an empty directory. Returns the LSN that its files are
    /// complete to.
    ///
    /// Fails with `InvalidOption` for an unknown option or value, and with `Corruption` if the
    /// manifest or its files are damaged.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        Self::open_with_mask(options, context, u64::MAX)
    }

    fn open_with_mask(
        options: &TableOptions,
        context: Context,
        hash_mask: u64,
    ) -> Result<(Self, Lsn)> {
        let HashLogSettings { chunk_bytes, live_per_cent, mutable_chunks, compresses } =
            HashLogSettings::parse(options)?;
        let owner = TableIdentity { database_id: context.database_id, table_id: context.table_id };
        let no_memory = |error| Error::io("reserve address space for a table", error);
        let engine = Self {
            owner,
            live_per_cent,
            mutable_chunks,
            compresses,
            hash_mask,
            index: SlotTable::new(context.budget.limit() / 8).map_err(no_memory)?,
            arena: Arena::new(chunk_bytes, Arc::clone(&context.budget)).map_err(no_memory)?,
            chunks: RwLock::default(),
            larges: RwLock::default(),
            next_large: AtomicU64::new(1),
            dead_larges: Mutex::default(),
            active: AtomicU64::new(0),
            roll: Mutex::default(),
            residency: Mutex::default(),
            maintenance: Mutex::new(Maintenance::new(Arc::clone(&context.dir), owner)),
            checkpoint_wanted: AtomicBool::new(false),
            opened_complete: AtomicU64::new(0),
            warm_wanted: AtomicBool::new(false),
            collided: AtomicBool::new(false),
            queues: Queues::default(),
            read_ahead_entries: Mutex::default(),
            counters: HashLogCounters::default(),
            context,
        };
        let complete = engine.recover()?;
        engine.charge_index();
        Ok((engine, complete))
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.context.hash.hash(key) & self.hash_mask
    }

    fn chunk(&self, id: u64) -> Option<Arc<Chunk>> {
        read(&self.chunks).get(&id).cloned()
    }

    /// Adjusts the budget to the size of the index.
    fn charge_index(&self) {
        let now = self.index.bytes();
        let before = self.counters.index_charged.swap(now, Ordering::Relaxed);
        self.context.budget.reserve_unchecked(now.saturating_sub(before));
        self.context.budget.release(before.saturating_sub(now));
    }

    /// Returns the units of waste, and of all entries.
    fn waste(&self) -> (u64, u64) {
        let counters = &self.counters;
        let units = counters.units.load(Ordering::Relaxed);
        (counters.waste_units.load(Ordering::Relaxed).min(units), units)
    }

    /// Returns whether waste exceeds `per_cent` of all units, and half a chunk.
    fn waste_exceeds(&self, per_cent: u64) -> bool {
        let (waste, units) = self.waste();
        waste * 100 > units * per_cent && waste * 2 > self.arena.chunk_units()
    }

    /// Per cent of waste at which compaction starts. It is half of what `live_ratio` allows,
    /// because heads, hints, the log, copies and data that awaits a checkpoint take space as well.
    fn waste_per_cent_max(&self) -> u64 {
        (100 - self.live_per_cent) / 2
    }

    /// Per cent of waste at which writers compact as well.
    fn waste_per_cent_of_writers(&self) -> u64 {
        (100 - self.live_per_cent) * 6 / 10
    }

    /// Per cent of waste at which writers wait for a running step of compaction.
    fn waste_per_cent_waited_for(&self) -> u64 {
        (100 - self.live_per_cent) * 7 / 10
    }

    /// Returns the milliseconds since the count of operations was first observed at `applied`.
    fn idle_millis(&self, applied: u64) -> u64 {
        let counters = &self.counters;
        let now = u64::try_from(self.context.env.monotonic().as_millis()).unwrap_or(u64::MAX);
        if counters.applied_seen.swap(applied, Ordering::Relaxed) != applied {
            counters.applied_seen_millis.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(counters.applied_seen_millis.load(Ordering::Relaxed))
    }

    fn is_idle(&self, applied: u64) -> bool {
        self.idle_millis(applied) >= IDLE_MILLIS
    }

    /// Returns what compaction has to do once the table is idle: the milliseconds without a write
    /// after which it starts, and the per cent of waste to reach. `None`: nothing.
    fn tidying(&self, applied: u64) -> Option<(u64, u64)> {
        let counters = &self.counters;
        let is_now = |mark: &AtomicU64| mark.load(Ordering::Relaxed) == applied + 1;
        let stuck = is_now(&counters.exhausted_at);
        let most = self.waste_per_cent_max();
        let idle_target = IDLE_WASTE_PER_CENT.min(most);
        if !stuck && self.waste_exceeds(idle_target) {
            return Some((IDLE_MILLIS, idle_target));
        }
        if self.context.read_only {
            return None;
        }
        let begun = is_now(&counters.tidying_at);
        let bound = if begun { LONG_IDLE_WASTE_PER_CENT } else { LONG_IDLE_WASTE_PER_CENT_MAX };
        let wasteful = !stuck && self.waste_exceeds(bound);
        let untidy = wasteful || !is_now(&counters.tidied_at) && self.is_manifest_untidy();
        untidy.then_some((LONG_IDLE_MILLIS, LONG_IDLE_WASTE_PER_CENT))
    }

    fn has_room_to_warm(&self) -> bool {
        let budget = &self.context.budget;
        budget.used() + 4 * self.arena.chunk_bytes() <= budget.limit() / 10 * 9
    }
}

impl Drop for HashLog {
    fn drop(&mut self) {
        let held = self.arena.memory_bytes() + self.counters.index_charged.load(Ordering::Relaxed);
        let larges = read(&self.larges);
        let in_memory = |large: &Arc<LargeValue>| {
            lock(&large.state).bytes.as_ref().map_or(0, |bytes| bytes.len())
        };
        let larges: usize = larges.values().map(in_memory).sum();
        self.context.budget.release(held + to_u64(larges));
    }
}

impl Engine for HashLog {
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

    fn prefetch(&self, hint: Hint<'_, '_>) {
        if let Hint::Replay(key) = hint {
            self.index.prefetch(self.hash(key));
        }
    }

    fn admit(&self, op: &Op<'_>) -> Result<()> {
        self.make_room(op)?;
        match op {
            Op::Put { key, .. } | Op::Delete { key } => {
                // The line arrives while the record is copied into the log.
                self.index.prefetch(self.hash(key));
                self.read_ahead(key)
            }
            Op::DeleteRange { .. } => Ok(()),
        }
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            drop(self.take_read_ahead(self.hash(key)));
        }
    }

    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Put { key, head, body } => self.put(lsn, key, [head, body]),
            Op::Delete { key } => self.delete(lsn, key),
            Op::DeleteRange { .. } => Err(unordered(&self.context, EngineKind::HashLog)),
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
        self.checkpoint_up_to(up_to)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        match mode {
            MaintenanceMode::Step => self.maintain_step(),
            MaintenanceMode::Full => self.compact_all(),
        }
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.check_all(report)
    }

    fn stats(&self) -> EngineStats {
        let counters = &self.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (waste, _) = self.waste();
        let chunks = read(&self.chunks);
        let resident = chunks.keys().filter(|id| self.arena.is_resident(**id)).count();
        let directories = |chunk: &Arc<Chunk>| -> u64 {
            read(&chunk.packed_extents)
                .iter()
                .map(|packed_extent| packed_extent.blocks.memory_bytes())
                .sum()
        };
        let directories: u64 = chunks.values().map(directories).sum();
        let index_bytes = self.index.bytes() + directories;
        EngineStats {
            keys: self.index.len(),
            live_bytes: load(&counters.live_bytes),
            dead_bytes: waste * 8,
            file_bytes: load(&counters.data_bytes) + load(&counters.manifest_bytes),
            memory_bytes: self.arena.memory_bytes() + index_bytes,
            index_bytes,
            written_bytes_total: load(&counters.written_bytes_total),
            details: vec![
                ("chunks", to_u64(chunks.len())),
                ("chunks_in_memory", to_u64(resident)),
                ("large_values", to_u64(read(&self.larges).len())),
                ("in_place_updates_total", load(&counters.in_place_total)),
                ("cold_reads_total", load(&counters.cold_reads_total)),
                ("false_reads_total", load(&counters.false_reads_total)),
                ("chunks_compacted_total", load(&counters.compacted_total)),
                ("compactions_by_writers_total", load(&counters.writer_compactions_total)),
                ("chunks_evicted_total", load(&counters.evicted_total)),
                ("cleanup_failures_total", load(&counters.cleanup_failures_total)),
                ("manifest_bytes", load(&counters.manifest_bytes)),
            ],
        }
    }

    fn pending_work(&self) -> PendingWork {
        match self.wanted_work() {
            WantedWork::None => PendingWork::None,
            WantedWork::Checkpoint => PendingWork::Checkpoint,
            WantedWork::Compact(_) => PendingWork::Maintain,
            WantedWork::Later => PendingWork::Later,
        }
    }
}

/// Background work that the table needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedWork {
    None,
    Checkpoint,
    /// Compaction until waste is at most this many per cent, or loading of chunks into memory.
    Compact(u64),
    /// None as long as writes continue.
    Later,
}

impl HashLog {
    fn wanted_work(&self) -> WantedWork {
        let counters = &self.counters;
        let unflushed = counters.unflushed_units.load(Ordering::Relaxed);
        if unflushed >= self.mutable_chunks * self.arena.chunk_units()
            || self.checkpoint_wanted.load(Ordering::Relaxed)
        {
            return WantedWork::Checkpoint;
        }
        let applied = counters.applied.load(Ordering::Relaxed);
        let most = self.waste_per_cent_max();
        let stuck = counters.exhausted_at.load(Ordering::Relaxed) == applied + 1;
        if !stuck && self.waste_exceeds(most) || self.wants_frames() {
            return WantedWork::Compact(most);
        }
        let idle_millis = self.idle_millis(applied);
        // A checkpoint of an idle table lets the log be pruned.
        let persisted = counters.applied_persisted.load(Ordering::Relaxed);
        let lacking = (unflushed > 0 || applied != persisted) && !self.context.read_only;
        if lacking && idle_millis >= IDLE_MILLIS {
            return WantedWork::Checkpoint;
        }
        let tidying = self.tidying(applied);
        if let Some((_, target)) = tidying.filter(|(millis, _)| idle_millis >= *millis) {
            return WantedWork::Compact(target);
        }
        let ready = self.arena.has_populated();
        let warm = self.warm_wanted.load(Ordering::Relaxed) && self.has_room_to_warm();
        if warm || ready && idle_millis >= IDLE_MILLIS {
            return WantedWork::Compact(most);
        }
        if lacking || ready || tidying.is_some() { WantedWork::Later } else { WantedWork::None }
    }

    /// Runs one step of the work that [`HashLog::wanted_work`] returns.
    fn maintain_step(&self) -> Result<()> {
        let target = match self.wanted_work() {
            WantedWork::Compact(target) => target,
            _ => self.waste_per_cent_max(),
        };
        if target == LONG_IDLE_WASTE_PER_CENT {
            let applied = self.counters.applied.load(Ordering::Relaxed);
            self.counters.tidying_at.store(applied + 1, Ordering::Relaxed);
        }
        self.compact_step(target).map(drop)
    }
}
