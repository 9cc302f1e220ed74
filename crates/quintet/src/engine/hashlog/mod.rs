//! Append-only chunks and a hash table in memory (LogKV).
//!
//! What: every write appends an entry to the youngest chunk; a table of 8-byte slots
//! ([`crate::engine::hashlog::index`]) finds the newest entry of each key. Chunks are appended to
//! data files
//! ([`files`]) and stay in memory ([`arena`]) within the budget.
//! Why: the highest write rate of the engines, and gets of one index line and one record: for
//! ingest, sessions, caches, counters.
//!
//! put: lock the key's group -> find its entry -> exchange it in place (same size, not frozen) or
//! append and exchange the slot -> unlock. get: [`read`]. persist: [`flush`], [`maintain`].
//! compact: [`compact`]. open: [`recover`], [`load`]. What is in memory: [`residency`].
//!
//! Invariants:
//! - A chunk's entries below its frozen bound never change; only they are written. Flushing
//!   freezes, waits for the writers that did not see it, syncs the log, writes, syncs, then
//!   publishes in the [`manifest`]. A publication holds everything that was applied before it
//!   began.
//! - Of two entries of one key the one in the chunk of higher (order, serial), or further back in
//!   the same chunk, is the newer. Appends go to one chunk at a time, of even order; copies of
//!   compaction to a chunk whose order is odd and between all that it copies from and all that is
//!   yet to be written.
//! - A tombstone is kept while an older chunk exists.
//! - What a publication frees is freed after it is durable.
//! - Failures of the disk leave the table working: a sync that failed is never believed later, so
//!   what it was for is written to another file, and until it is durable it stays in memory.
//! - Two live keys with the same 56 bits of hash set `collided` before the second is readable; from
//!   then on opening reads keys instead of hints. Everything else resolves equal hashes by the full
//!   key anyway.
//!
//! Thread rules: gets take no lock and store nothing while the record is in memory. Writers lock a
//! group of the index. Lock order: `maintenance`, group, `roll`, `residency`, `chunks`, `larges`.
//! Maintenance never waits for writers with a later lock held.
//!
//! Options: `chunk_bytes` (power of two, 16 KiB to 16 MiB, 2 MiB), `compression` (of chunks in the
//! files: `none` or `lz4`, `none`), `live_ratio` (per cent of file
//! bytes that are kept alive, 10 to 90, 50), `mutable_chunks` (chunks that may await a persist and
//! so be updated in place, 1 to 1024, 8).
//!
//! How we differ from the paper: nothing is lost of the last chunk (the shared log has it); sizes
//! have 32 bits and versions are LSNs; chunks have checksums and the index a checkpoint;
//! compaction and persistence stop nobody; colder chunks leave memory; hot keys are updated in
//! place.

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
    files::{Owner, Place},
    maintain::Maintenance,
    manifest::Extent,
    pack::Piece,
    write::Known,
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

const CHUNK_BYTES_DEFAULT: u64 = 2 << 20;
const LIVE_PER_CENT_DEFAULT: u64 = 50;
/// What is not yet in files is what opening replays: at the rate of one thread.
const MUTABLE_CHUNKS_DEFAULT: u64 = 8;
/// At rest, compaction goes on until this share of what is stored is waste.
const REST_WASTE_PER_CENT: u64 = 4;
/// Rest is this long without a write, in milliseconds.
const REST_MILLIS: u64 = 500;
/// At a long rest, compaction starts at the first share of waste and goes on to the second: heads
/// and hints take most of the fifth that a resting table may take beyond its live bytes. What lies
/// between the two keeps a few updates between rests from having much rewritten.
const LONG_REST_MILLIS: u64 = 4000;
const LONG_REST_WASTE_PER_CENT_MAX: u64 = 2;
const LONG_REST_WASTE_PER_CENT: u64 = 1;

/// A chunk. Its numbers that change on the way are in the [`Arena`].
#[derive(Debug)]
struct Chunk {
    id: u64,
    serial: u64,
    order: u64,
    created: u64,
    /// Its extents, where they are packed: each in a place of its own.
    pieces: RwLock<Vec<Arc<Piece>>>,
    /// Units that a read of one entry fetches.
    span: AtomicU64,
    /// All of it is durable in its file, and no more will come: it may leave memory.
    written: AtomicBool,
    /// Nothing in it is live: it goes with the next publication.
    retired: AtomicBool,
    /// Entries that writers had to read from its file.
    learned: AtomicU64,
    flush: Mutex<Flush>,
}

/// How far a chunk is in its file.
#[derive(Debug, Default)]
struct Flush {
    /// Where the next extent starts, in units.
    start: u64,
    /// Start and end of extents that are frozen and not yet written.
    ended: Vec<(u64, u64)>,
    /// No extent will come after those.
    sealed: bool,
    /// Where it is in the files, once it is; another place after that file has failed.
    place: Option<Place>,
    /// Those in the file, and how many of them are durable.
    extents: Vec<Extent>,
    durable_count: usize,
}

impl Chunk {
    /// Where it is in the files.
    fn place(&self) -> Option<Place> {
        lock(&self.flush).place.clone()
    }
}

/// A value too large for a chunk.
#[derive(Debug)]
struct Large {
    number: u64,
    lsn: u64,
    length: u64,
    state: Mutex<LargeState>,
    /// It is durable in its place in a file.
    written: AtomicBool,
}

#[derive(Debug, Default)]
struct LargeState {
    /// While it is in memory.
    bytes: Option<Arc<[u8]>>,
    place: Option<Place>,
    /// It is written to its place, perhaps not durably.
    in_file: bool,
}

impl Large {
    /// Where it is in the files.
    fn place(&self) -> Option<Place> {
        lock(&self.state).place.clone()
    }
}

#[derive(Debug, Default)]
struct Roll {
    next_serial: u64,
    next_id: u64,
    free_ids: Vec<u64>,
    /// Order of the chunk that takes appends, or of the last that did.
    hot_order: u64,
    /// When the last chunk for appends was started; none since the table was opened.
    rolled_at: Option<Duration>,
}

#[derive(Debug, Default)]
struct Counters {
    live_bytes: AtomicU64,
    /// Units of entries in chunks, and of those the dead ones and the tombstones.
    units: AtomicU64,
    waste_units: AtomicU64,
    /// Units appended since the last flush.
    unflushed_units: AtomicU64,
    /// Operations applied, those of them that the files have, and when they were seen to have
    /// changed: tells rest.
    applied: AtomicU64,
    applied_persisted: AtomicU64,
    applied_seen: AtomicU64,
    applied_seen_millis: AtomicU64,
    /// Per cent of waste down to which compaction is to go.
    /// `applied` + 1 when compaction found nothing to do, and when it last closed the hot chunk.
    stuck_at: AtomicU64,
    closed_hot_at: AtomicU64,
    /// `applied` + 1 when a long rest's work began, and when it had come to the manifest.
    tidying_at: AtomicU64,
    tidied_at: AtomicU64,
    /// Chunks that are not in memory, and keys that were read ahead of their writes.
    cold_chunks: AtomicU64,
    learned: AtomicU64,
    /// Waste in units from which a writer compacts again.
    next_debt: AtomicU64,
    debts_paid_total: AtomicU64,
    in_place_total: AtomicU64,
    cold_reads_total: AtomicU64,
    /// Of those, the ones that found another key's entry.
    false_reads_total: AtomicU64,
    compacted_total: AtomicU64,
    evicted_total: AtomicU64,
    index_charged: AtomicU64,
    /// Bytes in the two kinds of file, and those that the manifest would have, written anew.
    data_bytes: AtomicU64,
    manifest_bytes: AtomicU64,
    manifest_needed: AtomicU64,
    written_bytes_total: AtomicU64,
    /// Work after a publication that failed and is to be tried again.
    cleanup_failures_total: AtomicU64,
}

/// A table of the hashlog engine. See the module head.
#[derive(Debug)]
pub struct HashLog {
    context: Context,
    owner: Owner,
    live_per_cent: u64,
    mutable_chunks: u64,
    /// Extents are packed when they are written.
    compresses: bool,
    /// All ones, but for tests of equal hashes.
    hash_mask: u64,
    index: SlotTable,
    arena: Arena,
    chunks: RwLock<BTreeMap<u64, Arc<Chunk>>>,
    larges: RwLock<BTreeMap<u64, Arc<Large>>>,
    next_large: AtomicU64,
    /// Large values whose entry died after it was frozen: freed by a publication.
    dead_larges: Mutex<Vec<u64>>,
    /// Number + 1 of the chunk that takes appends.
    hot: AtomicU64,
    roll: Mutex<Roll>,
    residency: Mutex<()>,
    maintenance: Mutex<Maintenance>,
    /// Compaction freed something that the next publication gives back.
    publish_wanted: AtomicBool,
    /// The LSN to which the files were complete when the table was opened.
    opened_complete: AtomicU64,
    /// A get met a chunk that is not in memory.
    warm_wanted: AtomicBool,
    collided: AtomicBool,
    queues: Queues,
    /// By hash, for each write that is admitted and not yet applied: what was read ahead for it.
    learned: Mutex<BTreeMap<u64, Vec<Vec<Known>>>>,
    counters: Counters,
}

impl HashLog {
    /// Loads a table (or starts one in an empty directory) and says to which LSN its files are
    /// complete.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        Self::open_with_mask(options, context, u64::MAX)
    }

    fn open_with_mask(
        options: &TableOptions,
        context: Context,
        hash_mask: u64,
    ) -> Result<(Self, Lsn)> {
        options.check_names(&["chunk_bytes", "compression", "live_ratio", "mutable_chunks"])?;
        let chunk_bytes =
            options.number("chunk_bytes", CHUNK_BYTES_DEFAULT, 16 << 10..=16 << 20)?;
        if !chunk_bytes.is_power_of_two() {
            return Err(Error::InvalidOption {
                name: "chunk_bytes".to_owned(),
                what: format!("{chunk_bytes} is not a power of two"),
            });
        }
        let live_per_cent = options.number("live_ratio", LIVE_PER_CENT_DEFAULT, 10..=90)?;
        let mutable_chunks = options.number("mutable_chunks", MUTABLE_CHUNKS_DEFAULT, 1..=1024)?;
        let compresses = options.word("compression", &["none", "lz4"])? == "lz4";
        let owner = Owner { database_id: context.database_id, table_id: context.table_id };
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
            hot: AtomicU64::new(0),
            roll: Mutex::default(),
            residency: Mutex::default(),
            maintenance: Mutex::new(Maintenance::new(Arc::clone(&context.dir), owner)),
            publish_wanted: AtomicBool::new(false),
            opened_complete: AtomicU64::new(0),
            warm_wanted: AtomicBool::new(false),
            collided: AtomicBool::new(false),
            queues: Queues::default(),
            learned: Mutex::default(),
            counters: Counters::default(),
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

    /// Draws from or gives to the budget what the index has grown or shrunk by.
    fn charge_index(&self) {
        let now = self.index.bytes();
        let before = self.counters.index_charged.swap(now, Ordering::Relaxed);
        self.context.budget.reserve_unchecked(now.saturating_sub(before));
        self.context.budget.release(before.saturating_sub(now));
    }

    /// Waste in units, and all units.
    fn waste(&self) -> (u64, u64) {
        let counters = &self.counters;
        let units = counters.units.load(Ordering::Relaxed);
        (counters.waste_units.load(Ordering::Relaxed).min(units), units)
    }

    /// Whether waste is more than `per_cent` of everything, and worth a chunk.
    fn waste_exceeds(&self, per_cent: u64) -> bool {
        let (waste, units) = self.waste();
        waste * 100 > units * per_cent && waste * 2 > self.arena.chunk_units()
    }

    /// The share of waste at which compaction starts: before the bound, because heads, hints, the
    /// log, copies and what awaits its publication take space as well.
    fn waste_per_cent_max(&self) -> u64 {
        (100 - self.live_per_cent) / 2
    }

    /// The share of waste at which writers compact as well.
    fn waste_per_cent_of_writers(&self) -> u64 {
        (100 - self.live_per_cent) * 6 / 10
    }

    /// The share of waste at which they wait for a step of compaction that is under way.
    fn waste_per_cent_waited_for(&self) -> u64 {
        (100 - self.live_per_cent) * 7 / 10
    }

    /// For how many milliseconds nothing has been written.
    fn rest_millis(&self, applied: u64) -> u64 {
        let counters = &self.counters;
        let now = u64::try_from(self.context.env.monotonic().as_millis()).unwrap_or(u64::MAX);
        if counters.applied_seen.swap(applied, Ordering::Relaxed) != applied {
            counters.applied_seen_millis.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(counters.applied_seen_millis.load(Ordering::Relaxed))
    }

    fn is_resting(&self, applied: u64) -> bool {
        self.rest_millis(applied) >= REST_MILLIS
    }

    /// What compaction has to do once the writers rest: after how many milliseconds, and the share
    /// of waste that it is to go on to.
    fn tidying(&self, applied: u64) -> Option<(u64, u64)> {
        let counters = &self.counters;
        let is_now = |mark: &AtomicU64| mark.load(Ordering::Relaxed) == applied + 1;
        let stuck = is_now(&counters.stuck_at);
        let most = self.waste_per_cent_max();
        let at_rest = REST_WASTE_PER_CENT.min(most);
        if !stuck && self.waste_exceeds(at_rest) {
            return Some((REST_MILLIS, at_rest));
        }
        if self.context.read_only {
            return None;
        }
        let begun = is_now(&counters.tidying_at);
        let bound = if begun { LONG_REST_WASTE_PER_CENT } else { LONG_REST_WASTE_PER_CENT_MAX };
        let wasteful = !stuck && self.waste_exceeds(bound);
        let untidy = wasteful || !is_now(&counters.tidied_at) && self.is_manifest_untidy();
        untidy.then_some((LONG_REST_MILLIS, LONG_REST_WASTE_PER_CENT))
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
        let in_memory =
            |large: &Arc<Large>| lock(&large.state).bytes.as_ref().map_or(0, |bytes| bytes.len());
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
                // It arrives while the record is copied into the log.
                self.index.prefetch(self.hash(key));
                self.learn_ahead(key)
            }
            Op::DeleteRange { .. } => Ok(()),
        }
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            drop(self.take_learned(self.hash(key)));
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
        self.persist_to(up_to)
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
            read(&chunk.pieces).iter().map(|piece| piece.blocks.memory_bytes()).sum()
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
                ("compactions_by_writers_total", load(&counters.debts_paid_total)),
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

/// What the table needs done in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedWork {
    None,
    Checkpoint,
    /// Compaction until waste is at most so many per cent, or a step of warming.
    Compact(u64),
    /// None while writes go on.
    Later,
}

impl HashLog {
    fn wanted_work(&self) -> WantedWork {
        let counters = &self.counters;
        let unflushed = counters.unflushed_units.load(Ordering::Relaxed);
        if unflushed >= self.mutable_chunks * self.arena.chunk_units()
            || self.publish_wanted.load(Ordering::Relaxed)
        {
            return WantedWork::Checkpoint;
        }
        let applied = counters.applied.load(Ordering::Relaxed);
        let most = self.waste_per_cent_max();
        let stuck = counters.stuck_at.load(Ordering::Relaxed) == applied + 1;
        if !stuck && self.waste_exceeds(most) || self.wants_frames() {
            return WantedWork::Compact(most);
        }
        let rest_millis = self.rest_millis(applied);
        // A table whose files are complete does not hold log segments.
        let persisted = counters.applied_persisted.load(Ordering::Relaxed);
        let lacking = (unflushed > 0 || applied != persisted) && !self.context.read_only;
        if lacking && rest_millis >= REST_MILLIS {
            return WantedWork::Checkpoint;
        }
        let tidying = self.tidying(applied);
        if let Some((_, target)) = tidying.filter(|(millis, _)| rest_millis >= *millis) {
            return WantedWork::Compact(target);
        }
        let ready = self.arena.has_ready();
        let warm = self.warm_wanted.load(Ordering::Relaxed) && self.has_room_to_warm();
        if warm || ready && rest_millis >= REST_MILLIS {
            return WantedWork::Compact(most);
        }
        if lacking || ready || tidying.is_some() { WantedWork::Later } else { WantedWork::None }
    }

    /// One step of what [`HashLog::wanted_work`] says now.
    fn maintain_step(&self) -> Result<()> {
        let target = match self.wanted_work() {
            WantedWork::Compact(target) => target,
            _ => self.waste_per_cent_max(),
        };
        if target == LONG_REST_WASTE_PER_CENT {
            let applied = self.counters.applied.load(Ordering::Relaxed);
            self.counters.tidying_at.store(applied + 1, Ordering::Relaxed);
        }
        self.compact_step(target).map(drop)
    }
}
