//! An LSM of two-tier perfect-hash tables (CompassDB), with one tier and blocks in key order.
//!
//! What: writes gather in memtables ([`crate::lsm`]), which become tables of level 0; levels of
//! tables follow. A table is a group of immutable SSTs ([`crate::lsm::sst`]) and one index in
//! memory ([`index`]) that names, for each key, the block with its newest entry.
//! Why: a get of data much larger than memory costs one read of the disk and a few bytes of memory
//! a key; merging a table with news writes the news and an index, not the table.
//!
//! put: admit (room in the memtable, or help to flush) -> insert in the active memtable. get:
//! [`read`]: memtables, level 0 from the newest, one table of each level. persist: [`flush`].
//! Merges of tables and garbage collection: [`compact`], [`merge`]. Hot blocks:
//! [`crate::lsm::sst::decoded_block`]. Delays of writers, and the rate of merges: [`pace`].
//! What counts,
//! durably: [`manifest`], published in [`publish`]. Ranges, both ways: [`range`], [`cursor`],
//! [`crate::lsm::cursor::merge`]. open: [`recover`].
//!
//! Invariants:
//! - What readers see is one [`SuperVersion`]: memtables and a version of the table set, swapped
//!   whole.
//! - Newer entries of a key are in the active memtable, then frozen ones, level 0 from the newest,
//!   level 1, and so on down. A merge keeps that order.
//! - A tombstone is kept while an older SST of its table, or a deeper level, may have its key.
//! - A published version holds only effects that are durable in the log, and is complete to the
//!   LSN that it says; it may hold later ones too, which replay repeats.
//! - Failures leave the version as it was. No failed sync is believed later: another file takes
//!   its place. Files go only after a manifest without them is durable.
//!
//! Thread rules: gets take no lock. Writers hold `writing` shared. Lock order: `flushing` and
//! `compacting` (in the flat modes a flush is a merge, and the one goes before the other; else a
//! merge flushes, and it is the other way round; `large_merge` goes behind `compacting`), the
//! front's, `publisher`, `queues`.
//!
//! Options: `mode` (`sorted`: levels of key ranges; `hash_range`: levels of hash ranges with a
//! fixed fan-out; `one_level`: memtables go straight into level 1; `single_tier`: likewise, with
//! at most two SSTs a table), `memtable_bytes` (64 KiB to 4 GiB; 128 MiB, or 1/16 of the memory
//! budget where that is less; all together at most half of it), `memtables` (2 to 16, 4),
//! `max_pieces` (1 to 1024; 6 in `sorted`, 2 in `single_tier`, else 16), `table_bytes` (64 KiB to
//! 64 GiB, 64 MiB; a table is also full where merging it would take 1/24 of the memory budget, at
//! 32 bytes for each entry), `level0_tables` (1 to 64, 4), `level_bytes` (of level 1, 64 KiB to
//! 2^46; 8 times level 0, at most 4 GiB), `fanout` (2 to 64, 8), `block_bytes` (512 to 1 MiB,
//! 4096), `compression` (of blocks: `none`, `lz4` or `zstd`, `none`), `signature_bits` (8 to 16,
//! 11), `perfect_hash` (`shift` or `cphash`, `shift`), `cache_bytes` (0 to 2^46; 3/4 of the memory
//! budget), `merge_rate` (bytes a second, 0 to 2^46; 0: no limit).
//!
//! How we differ from the paper: `sorted` is the default, because a range over hash ranges has to
//! ask every table; the slot names a block of entries in key order, which makes the second tier
//! of hashes needless and scans sequential; perfect hashes are keyed and of 2.1 bits a key;
//! tombstones are entries like others. Everything on disk has checksums, and recovery is exact.

mod check;
mod compact;
mod cursor;
mod flush;
mod index;
pub mod inspect;
mod manifest;
mod merge;
mod options;
mod pace;
pub mod perfect_hash;
mod publish;
mod range;
mod read;
mod recover;
mod table;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::sync::Arc;

use self::{
    options::TphSettings,
    pace::Rates,
    publish::Publisher,
    range::Range,
    table::{Route, Table},
};
use crate::{
    Error, Result,
    contract::{
        BulkLoad, Context, Cursor, Engine, EngineStats, Entry, EntryIter, Hint, KeyRange,
        MaintenanceMode, MultiGetSink, Op, OrderedEngine, PendingWork, Presence, TableOptions,
        ValueSink, Visit,
    },
    io::Queues,
    lsm::{
        sst::SstOwner,
        sst::decoded_block::DecodedBlockCache,
        write_buffer::{FlushTarget, WriteBuffer},
    },
    util::{
        codec::{Lsn, to_u64},
        report::Report,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// What a cursor begins with; the first key to come follows.
const CURSOR_TAG: u8 = b'k';
/// Tables of at most so many entries are counted exactly for the statistics.
const COUNTED_ENTRIES: u64 = 4096;

/// A version of the table set.
#[derive(Clone, Debug, Default)]
struct Version {
    /// Newest first.
    level0: Vec<Arc<Table>>,
    /// Levels from 1 on: tables in the order of their lowest places, of which the first is empty.
    levels: Vec<Vec<Arc<Table>>>,
    /// Of blocks of all SSTs.
    data_bytes: u64,
}

impl Version {
    /// Counts its bytes, once it is complete.
    fn count(&mut self) {
        let ssts = self.tables().flat_map(|table| &table.uses);
        self.data_bytes = ssts.map(|one| one.sst.data_bytes()).sum();
    }

    /// All tables.
    fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.level0.iter().chain(self.levels.iter().flatten())
    }
}

/// What readers see.
type SuperVersion = crate::lsm::super_version::SuperVersion<Version>;

/// Totals since the table was opened.
#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    false_reads: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    merges: AtomicU64,
    merge_read_bytes: AtomicU64,
    collected: AtomicU64,
    cleanup_failures: AtomicU64,
}

/// A table of the tph engine. See the module head.
#[derive(Debug)]
pub struct Tph {
    inner: Arc<Inner>,
}

/// What iterators keep alive.
#[derive(Debug)]
struct Inner {
    context: Context,
    settings: TphSettings,
    owner: SstOwner,
    route: Route,
    /// All ones, but for tests of equal hashes.
    hash_mask: u64,
    front: WriteBuffer<Version>,
    flushing: Mutex<()>,
    compacting: Mutex<()>,
    /// Held by a merge that takes much of the memory that there is.
    large_merge: Mutex<()>,
    publisher: Mutex<Publisher>,
    next_sst: AtomicU64,
    /// Memory that the indexes of the current version draw from the budget.
    index_charged: AtomicU64,
    /// A version asks to be compacted.
    compaction_wanted: AtomicBool,
    queues: Queues,
    rates: Rates,
    /// A merge is flushing: one thread of it is enough.
    flush_within: AtomicBool,
    /// Hot blocks of the SSTs.
    cache: Arc<DecodedBlockCache>,
    counters: Counters,
}

impl Tph {
    /// Loads a table (or starts one in an empty directory) and says to which LSN its files are
    /// complete.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let (inner, complete) = Inner::open(options, context, u64::MAX)?;
        Ok((Self { inner: Arc::new(inner) }, complete))
    }
}

impl Inner {
    /// Returns about how many keys a range holds, from the block indexes of all files and a sample
    /// of each memtable. A key that several files hold counts once, unless it is in memory as well.
    fn estimate_count(&self, range: &KeyRange) -> u64 {
        let view = self.front.view.load_full();
        let (start, end) = (range.start.as_deref(), range.end.as_deref());
        let in_memory: u64 = view.memtables().map(|one| one.estimate_count(start, end)).sum();
        let in_files: u64 = view
            .version
            .tables()
            .flat_map(|table| &table.uses)
            .map(|one| {
                let first = start.map_or(0, |key| one.sst.seek(key).start);
                let behind = end.map_or(one.blocks, |key| one.sst.seek(key).end);
                let blocks = u64::from(behind.saturating_sub(first));
                one.live * blocks / u64::from(one.blocks.max(1))
            })
            .sum();
        in_memory + in_files
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.context.hash.hash(key) & self.hash_mask
    }

    fn check_usable(&self) -> Result<()> {
        if self.context.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    fn insert(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        let (Op::Put { key, .. } | Op::Delete { key }) = op else { return Ok(()) };
        self.front.insert(lsn, op, self.hash(key), self)
    }

    /// Deletes every key of a range, one by one.
    fn delete_range(&self, lsn: Lsn, start: &[u8], end: &[u8]) -> Result<()> {
        let end = (!end.is_empty()).then(|| end.to_vec());
        let range = KeyRange { start: Some(start.to_vec()), end };
        let mut keys = Range::over(self, &self.front.view.load_full(), range);
        while let Some(key) = keys.next_key()? {
            self.insert(lsn, &Op::Delete { key: &key })?;
            self.front.rotate_full(self)?;
        }
        Ok(())
    }

    fn count_keys(&self, view: &SuperVersion) -> u64 {
        let memory: u64 = view.memtables().map(|memtable| memtable.keys()).sum();
        let files: u64 = view.version.tables().map(|table| table.live()).sum();
        let tombstones: u64 = view.version.tables().map(|table| table.tombstones).sum();
        if memory + files <= COUNTED_ENTRIES {
            let range = KeyRange::default();
            let mut keys = Range::over(self, view, range);
            let mut count = 0;
            while let Ok(Some(_)) = keys.next_key() {
                count += 1;
            }
            return count;
        }
        (memory + files).saturating_sub(2 * tombstones)
    }
}

impl FlushTarget<Version> for Inner {
    fn flush_backlog(&self) -> Result<()> {
        Self::flush_backlog(self)
    }

    fn await_work(&self) {
        drop(lock(&self.compacting));
    }

    fn set_rate(&self, view: &SuperVersion) {
        self.find_write_rate(view);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.context.budget.release(self.index_charged.load(Ordering::Relaxed));
    }
}

impl Engine for Tph {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        self.inner.read_value(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        sink.fill(keys.len(), |out| self.inner.read_many(keys, out))
    }

    fn exists_hint(&self, _key: &[u8]) -> Result<Presence> {
        Ok(Presence::InValue)
    }

    #[inline]
    fn prefetch(&self, hint: Hint<'_, '_>) {
        if let Hint::Write { hash, step: 0 } = hint {
            self.inner.front.prefetch_insert(hash);
        }
    }

    fn admit(&self, op: &Op<'_>) -> Result<()> {
        self.inner.front.admit(op, &*self.inner)
    }

    fn cancel(&self, op: &Op<'_>) {
        self.inner.front.cancel(op);
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        self.inner.front.insert_replayed(ops, &*self.inner)
    }

    fn apply(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        match op {
            Op::Put { .. } | Op::Delete { .. } => self.inner.insert(lsn, op),
            Op::DeleteRange { start, end } => self.inner.delete_range(lsn, start, end),
        }
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        let start = match from.0.split_first() {
            None => &[][..],
            Some((&CURSOR_TAG, start)) => start,
            Some(_) => {
                let what = "the cursor is not one that a scan returned".to_owned();
                return Err(Error::Limit { what });
            }
        };
        let range = KeyRange { start: Some(start.to_vec()), end: None };
        let mut found = Vec::new();
        for entry in Range::new(Arc::clone(&self.inner), range).take(limit.max(1)) {
            found.push(entry?);
        }
        let next = match found.last() {
            Some(last) if found.len() >= limit => {
                Cursor([&[CURSOR_TAG], &*last.key, &[0]].concat())
            }
            _ => Cursor::START,
        };
        Ok((found, next))
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        self.inner.check_usable()?;
        self.inner.flush_to(up_to)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        self.inner.check_usable()?;
        match mode {
            MaintenanceMode::Step => self.inner.compact_step().map(drop),
            MaintenanceMode::Full => self.inner.compact_all(),
        }
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.inner.check_all(report)
    }

    fn stats(&self) -> EngineStats {
        self.inner.stats()
    }

    fn pending_work(&self) -> PendingWork {
        let inner = &self.inner;
        let view = inner.front.view.load();
        if inner.context.read_only {
            PendingWork::None
        } else if inner.front.is_flush_due(&view) {
            PendingWork::Checkpoint
        } else if inner.compaction_wanted.load(Ordering::Relaxed) {
            PendingWork::Maintain
        } else if view.is_unwritten() {
            PendingWork::None
        } else if inner.front.is_at_rest(&view.active) {
            // Gets need not descend through it any more.
            PendingWork::Checkpoint
        } else {
            PendingWork::Later
        }
    }
}

impl OrderedEngine for Tph {
    fn range(&self, range: KeyRange) -> Result<EntryIter> {
        Ok(Box::new(Range::new(Arc::clone(&self.inner), range)))
    }

    fn visit(&self, range: KeyRange, each: Visit<'_>) -> Result<()> {
        range::visit(&self.inner, range, each)
    }

    fn estimate_count(&self, range: &KeyRange) -> Result<u64> {
        Ok(self.inner.estimate_count(range))
    }

    fn bulk(&self) -> Option<&dyn BulkLoad> {
        None
    }
}

impl Inner {
    fn stats(&self) -> EngineStats {
        let view = self.front.view.load_full();
        let (version, counters, front) = (&view.version, &self.counters, &self.front.counters);
        let memtables: Vec<_> = view.memtables().collect();
        let sum = |of: &dyn Fn(&Table) -> u64| version.tables().map(|table| of(table)).sum::<u64>();
        let in_memory: u64 = memtables.iter().map(|memtable| memtable.memory_bytes()).sum();
        let unflushed: u64 = memtables.iter().map(|memtable| memtable.payload_bytes()).sum();
        let part =
            |place: usize| sum(&|table| table.memory_bytes().get(place).copied().unwrap_or(0));
        let parts = [part(0), part(1), part(2), part(3)];
        let index_bytes = parts.iter().sum();
        let ssts = |table: &Table| to_u64(table.uses.len());
        let file = |table: &Table| table.uses.iter().map(|one| one.sst.file_bytes).sum();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let live_bytes = sum(&Table::live_bytes);
        EngineStats {
            keys: self.count_keys(&view),
            live_bytes: live_bytes + unflushed,
            dead_bytes: sum(&Table::payload_bytes) - live_bytes,
            file_bytes: sum(&file) + lock(&self.publisher).manifest.bytes(),
            memory_bytes: in_memory + index_bytes + self.cache.blocks.memory_bytes(),
            index_bytes,
            written_bytes_total: load(&counters.written_bytes),
            details: vec![
                ("levels", to_u64(version.levels.len())),
                ("level0_tables", to_u64(version.level0.len())),
                ("tables", to_u64(version.tables().count())),
                ("pieces", sum(&ssts)),
                ("pieces_in_a_table_max", version.tables().map(|t| ssts(t)).max().unwrap_or(0)),
                ("entries", sum(&Table::entries)),
                ("entries_live", sum(&Table::live)),
                ("tombstones", sum(&|table| table.tombstones)),
                ("memtables", to_u64(memtables.len())),
                ("memtable_bytes", in_memory),
                ("index_hash_bytes", parts[0]),
                ("index_signature_bytes", parts[1]),
                ("index_block_bytes", parts[2]),
                ("index_offset_bytes", parts[3]),
                ("cache_bytes", self.cache.blocks.memory_bytes()),
                ("cache_fills_total", self.cache.blocks.totals().0),
                ("cache_evicted_total", self.cache.blocks.totals().1),
                ("reads_total", load(&counters.reads)),
                ("read_bytes_total", load(&counters.read_bytes)),
                ("false_reads_total", load(&counters.false_reads)),
                ("flushes_total", load(&counters.flushes)),
                ("merges_total", load(&counters.merges)),
                ("merge_read_bytes_total", load(&counters.merge_read_bytes)),
                ("pieces_collected_total", load(&counters.collected)),
                ("write_rate", self.front.write_rate()),
                ("write_delays_total", load(&front.delays_total)),
                ("write_delay_micros_total", load(&front.delay_micros_total)),
                ("writer_helps_total", load(&front.helps_total)),
                ("stall_micros_total", load(&front.stall_micros_total)),
                ("stall_micros_max", load(&front.stall_micros_max)),
                ("cleanup_failures_total", load(&counters.cleanup_failures)),
            ],
        }
    }
}
