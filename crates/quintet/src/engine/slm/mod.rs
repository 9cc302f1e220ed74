//! The slm engine: one level of sorted runs under a persistent B+-tree (SLM-DB).
//!
//! Problem: an LSM tree searches several levels for a key and rewrites an entry at each level. Here
//! a get reads one block, and an entry is rewritten only when its run is compacted.
//!
//! How: memtables ([`crate::lsm::write_buffer`]) are flushed to runs ([`runs`]): immutable files of
//! blocks in key order. A B+-tree ([`crate::bptree::checkpoint`]) maps each key to the run and the
//! block of its one live entry. Put: admit (memory for the memtable, or help to flush), then insert
//! into the active memtable. Get: memtables, index, one block ([`read`]). Range: the index and the
//! memtables, merged ([`range`], [`read_ahead`]). Background: flush ([`flush`]), update the index
//! ([`index_update`]), choose runs ([`compaction_picker`], [`index_scan`]), merge ([`compact`]).
//!
//! A checkpoint does these steps in this order, each after the one before is done:
//! 1. a run's file is written and synced;
//! 2. the index gets the new places, in the page cache only; both runs' live counts change;
//! 3. the index is checkpointed; the list of runs with their live counts is in it, as the value of
//!    the empty key ([`runs::Ledger`]);
//! 4. the log is synced past every effect in the checkpoint; the directory of the runs is synced;
//! 5. the redo journal commits the changes as one group: the checkpoint is durable from here on;
//! 6. files of runs that the list lacks are removed.
//!
//! A crash before 5 finds the previous checkpoint, whose files all exist. Opening ([`recover`])
//! removes files that no list names; the log has their entries. A checkpoint may be taken between
//! any two keys of a flush or a merge: its list then has the old and the new runs. One group of the
//! journal holds index, list and counts, so they cannot disagree, and there is no compaction log.
//!
//! Invariants:
//! - The index has exactly the live keys of the runs. A key's place is that of its newest flushed
//!   entry.
//! - Readers see a run before the index points to it. Its file is removed after a durable
//!   checkpoint without it.
//! - Memtables leave the view after their entries are in the index.
//! - A failed flush or merge keeps its index updates: they are true. The rest it wrote is dead.
//!
//! Thread rules: gets take no lock. Lock order: `compacting`, `flushing`, the write buffer's,
//! `entering`, those of the index, the ledger's, `obsolete`.

mod check;
mod compact;
mod compaction_picker;
mod flush;
mod index_scan;
mod index_update;
pub mod inspect;
pub(crate) mod key_code;
mod keys;
mod location_cache;
mod options;
mod range;
mod read;
mod read_ahead;
mod recover;
mod runs;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::sync::Arc;

use self::{
    keys::Keys,
    location_cache::Shortcuts,
    options::SlmSettings,
    range::{Range, Walk},
    runs::{Ledger, Runs},
};
use crate::{
    Error, Result,
    bptree::checkpoint::PagedTree,
    contract::{
        BulkLoad, Context, Cursor, Engine, EngineStats, Entry, EntryIter, Hint, KeyRange,
        MaintenanceMode, MultiGetSink, Op, OrderedEngine, PendingWork, Presence, TableOptions,
        ValueSink, Visit,
    },
    io::Queues,
    lsm::{
        rate_limiter::{IdleDetector, RateLimiter},
        read_buffers::Buffers,
        sst::Owner,
        sst::decoded_block::DecodedBlockCache,
        write_buffer::{FlushTarget, WriteBuffer},
    },
    util::{
        codec::{Lsn, to_u64},
        report::Report,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// First byte of a scan cursor; the next key to return follows.
const CURSOR_TAG: u8 = b'k';
/// Tables of at most this number of entries are counted exactly for the statistics.
const COUNTED_ENTRIES: u64 = 4096;

/// What readers see.
type SuperVersion = crate::lsm::super_version::SuperVersion<Runs>;

#[derive(Debug, Default)]
struct Counters {
    reads_total: AtomicU64,
    read_bytes_total: AtomicU64,
    /// The part of `reads_total` that ranges caused.
    range_reads_total: AtomicU64,
    written_bytes_total: AtomicU64,
    flushes_total: AtomicU64,
    merges_total: AtomicU64,
    merge_read_bytes_total: AtomicU64,
    /// Merges with a run that was a candidate for dead entries, leaves, ranges, or because it is
    /// small.
    merges_by_reason: [AtomicU64; 4],
    /// Live entries that a merge did not move. Not zero means an inconsistency.
    left_behind_total: AtomicU64,
    cleanup_failures_total: AtomicU64,
}

/// A table of the slm engine. See the module head.
///
/// How we differ from the paper:
/// - Memtables are in memory; the shared log protects them. The log may be in persistent memory
///   (see `Options::emulate_persistent_memory`).
/// - The index is in pages of a file, through a cache. Its keys are whole byte strings, coded
///   ([`keys`]). A place is 8 bytes in the leaf, not a separate object.
/// - Deletes leave no tombstones in runs or index.
/// - The manifest is a part of the index, so there is no compaction log. A run's live count is
///   exact after a crash.
#[derive(Debug)]
pub struct Slm {
    inner: Arc<Inner>,
}

/// The state that the table and its iterators share.
#[derive(Debug)]
struct Inner {
    context: Context,
    settings: SlmSettings,
    owner: Owner,
    /// The index, and how it writes keys.
    paged: PagedTree,
    keys: Arc<Keys>,
    ledger: Arc<Ledger>,
    front: WriteBuffer<Runs>,
    flushing: Mutex<()>,
    /// Holds the merge that has paused, if one has.
    compacting: Mutex<Option<compact::Merging>>,
    /// Serialises changes of the index.
    entering: Mutex<()>,
    /// Runs whose files could not be removed.
    obsolete: Mutex<Vec<u32>>,
    /// Where the next window of the index begins.
    scan_from: Mutex<Vec<u8>>,
    /// Bytes that the budget has reserved for the runs' memory.
    runs_charged: AtomicU64,
    /// Set by changes that may justify a merge.
    compaction_wanted: AtomicBool,
    rest: IdleDetector,
    /// Estimates how much a range should read at once.
    together: index_scan::Together,
    queues: Queues,
    /// Read buffers of gets and ranges.
    buffers: Arc<Buffers>,
    merge_pace: RateLimiter,
    /// Hot blocks of the runs.
    cache: Arc<DecodedBlockCache>,
    /// Location cache: where gets have found entries.
    shortcuts: Shortcuts,
    counters: Counters,
}

impl Slm {
    /// Opens a table, or creates one in an empty directory. Also returns the LSN up to which its
    /// files are complete.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let (inner, complete) = Inner::open(options, context)?;
        Ok((Self { inner: Arc::new(inner) }, complete))
    }
}

impl Inner {
    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        self.context.hash.hash(key)
    }

    fn check_usable(&self) -> Result<()> {
        if self.context.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Wakes the background if this is the first change since it last chose runs.
    fn is_changed(&self) {
        if !self.compaction_wanted.swap(true, Ordering::Relaxed) {
            self.context.host.wake();
        }
    }

    fn insert(&self, lsn: Lsn, op: &Op<'_>) -> Result<()> {
        let (Op::Put { key, .. } | Op::Delete { key }) = op else { return Ok(()) };
        self.front.insert(lsn, op, self.hash(key), self)
    }

    /// Deletes every key of a range, with one delete a key.
    fn delete_range(&self, lsn: Lsn, start: &[u8], end: &[u8]) -> Result<()> {
        let end = (!end.is_empty()).then(|| end.to_vec());
        let range = KeyRange { start: Some(start.to_vec()), end };
        let mut keys = Walk::new(&self.front.view.load_full(), range, false);
        while let Some(key) = keys.next_key(self)? {
            self.insert(lsn, &Op::Delete { key: &key })?;
            self.front.rotate_full(self)?;
        }
        Ok(())
    }

    fn count_keys(&self, view: &SuperVersion) -> u64 {
        let memory: u64 = view.memtables().map(|memtable| memtable.keys()).sum();
        let stored: u64 = view.version.iter().map(|run| run.live()).sum();
        if memory == 0 || memory + stored > COUNTED_ENTRIES {
            return memory + stored;
        }
        let mut keys = Walk::new(view, KeyRange::default(), false);
        let mut count = 0;
        while let Ok(Some(_)) = keys.next_key(self) {
            count += 1;
        }
        count
    }
}

impl FlushTarget<Runs> for Inner {
    fn flush_backlog(&self) -> Result<()> {
        self.flush_some()
    }

    fn await_work(&self) {
        // What has paused goes on anew another time.
        *lock(&self.compacting) = None;
    }

    fn set_rate(&self, view: &SuperVersion) {
        let rate =
            if self.front.is_nearly_full(view) { self.front.flushed.rate() / 10 * 9 } else { 0 };
        self.front.set_write_rate(rate);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let runs = self.runs_charged.load(Ordering::Relaxed);
        self.context.budget.release(runs + self.shortcuts.memory_bytes());
    }
}

impl Engine for Slm {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        self.inner.read_value(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        sink.fill(keys.len(), |out| self.inner.read_many(keys, out))
    }

    fn exists_hint(&self, key: &[u8]) -> Result<Presence> {
        self.inner.presence(key)
    }

    #[inline]
    fn prefetch(&self, hint: Hint<'_, '_>) {
        if let Hint::Write { hash, step: 0 } = hint {
            self.inner.front.approach(hash);
        }
    }

    fn admit(&self, op: &Op<'_>) -> Result<()> {
        self.inner.front.admit(op, &*self.inner)
    }

    fn cancel(&self, op: &Op<'_>) {
        self.inner.front.retract(op);
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
        for entry in Range::new(Arc::clone(&self.inner), range, false).take(limit.max(1)) {
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
            MaintenanceMode::Step if self.inner.can_settle() => self.inner.paged.empty_journal(),
            MaintenanceMode::Step => self.inner.compact_step(),
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
        } else if inner.front.is_flush_due(&view) || inner.compaction_wanted.load(Ordering::Relaxed)
        {
            PendingWork::Maintain
        } else if inner.paged.is_checkpoint_due() || inner.paged.is_overlay_too_large() {
            PendingWork::Checkpoint
        } else if inner.is_clean(&view) {
            if !inner.paged.is_journal_long() {
                PendingWork::None
            } else if inner.is_calm() {
                PendingWork::Maintain
            } else {
                PendingWork::Later
            }
        } else if inner.front.is_at_rest(&view.active) {
            // Gets need not descend through it any more, and the log can go.
            PendingWork::Checkpoint
        } else {
            PendingWork::Later
        }
    }
}

impl OrderedEngine for Slm {
    fn range(&self, range: KeyRange) -> Result<EntryIter> {
        Ok(Box::new(Range::new(Arc::clone(&self.inner), range, true)))
    }

    fn visit(&self, range: KeyRange, each: Visit<'_>) -> Result<()> {
        range::visit(&self.inner, range, each)
    }

    fn estimate_count(&self, range: &KeyRange) -> Result<u64> {
        self.inner.estimate_count(range)
    }

    fn bulk(&self) -> Option<&dyn BulkLoad> {
        None
    }
}

impl Inner {
    /// Returns whether the files have everything: no memtable and no page has changes.
    fn is_clean(&self, view: &SuperVersion) -> bool {
        view.is_unwritten() && self.paged.tree.cache().dirty_count() == 0
    }

    /// Returns whether the index's journal is to be written back and truncated: the table is idle,
    /// and nothing else is to be done.
    fn can_settle(&self) -> bool {
        let view = self.front.view.load();
        !self.front.is_flush_due(&view)
            && !self.compaction_wanted.load(Ordering::Relaxed)
            && self.is_clean(&view)
            && self.paged.is_journal_long()
            && self.is_calm()
    }

    /// Returns about how many keys a range holds: two descents of the index, and a sample of each
    /// memtable. A key that is both in memory and in the index counts twice.
    fn estimate_count(&self, range: &KeyRange) -> Result<u64> {
        let view = self.front.view.load_full();
        let (start, end) = (range.start.as_deref(), range.end.as_deref());
        let in_memory: u64 = view.memtables().map(|one| one.estimate_count(start, end)).sum();
        if !self.keys.is_decided() {
            return Ok(in_memory);
        }
        let index_key = |key: Option<&[u8]>| {
            key.map(|key| {
                let mut coded = Vec::new();
                self.keys.push(key, &mut coded);
                coded
            })
        };
        let stored: u64 = view.version.iter().map(|run| run.live()).sum();
        let (start, end) = (index_key(start), index_key(end));
        let in_index = self.paged.tree.estimate(start.as_deref(), end.as_deref(), stored)?;
        Ok(in_memory + in_index)
    }

    /// Whether no cut was taken for a while.
    fn is_calm(&self) -> bool {
        let cuts = self.paged.checkpoints_total.load(Ordering::Relaxed);
        self.rest.has_come(&*self.context.env, cuts)
    }

    /// Pages of the index that take space in its file.
    fn file_pages(&self) -> u64 {
        let (tree, space) = (&self.paged.tree, self.paged.tree.allocator());
        if tree.cache().file().is_ok() { space.end() - space.holes() } else { 0 }
    }

    /// What the index's journal takes, and what of it is alive.
    fn journal_bytes(&self) -> (u64, u64) {
        let checkpointer = lock(&self.paged.checkpointer);
        (checkpointer.journal_bytes(), checkpointer.journal_state().0)
    }

    fn stats(&self) -> EngineStats {
        let view = self.front.view.load_full();
        let (counters, front) = (&self.counters, &self.front.counters);
        let runs = || view.version.iter();
        let in_memory: u64 = view.memtables().map(|one| one.memory_bytes()).sum();
        let unflushed: u64 = view.memtables().map(|one| one.payload_bytes()).sum();
        let page_bytes = to_u64(self.paged.tree.shape().page_bytes);
        let cache = self.paged.tree.cache().stats();
        let (journal_bytes, journal_live) = self.journal_bytes();
        let sum = |of: &dyn Fn(&runs::Run) -> u64| runs().map(|run| of(run)).sum::<u64>();
        let run_memory = sum(&runs::Run::memory_bytes);
        let live_bytes = sum(&runs::Run::live_bytes);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let index_written = load(&self.paged.written_bytes_total);
        let [dead, leaves, ranges, small] = &counters.merges_by_reason;
        let index_pages = self.paged.tree.leaf_pages() + self.paged.tree.inner_pages();
        EngineStats {
            keys: self.count_keys(&view),
            live_bytes: live_bytes + unflushed,
            dead_bytes: sum(&|run| run.sst.footer.payload_bytes) - live_bytes,
            file_bytes: sum(&|run| run.sst.file_bytes)
                + self.file_pages() * page_bytes
                + journal_bytes,
            memory_bytes: in_memory
                + run_memory
                + self.paged.tree.cache().memory_bytes()
                + self.cache.blocks.memory_bytes()
                + self.shortcuts.memory_bytes(),
            index_bytes: index_pages * page_bytes + run_memory,
            written_bytes_total: load(&counters.written_bytes_total) + index_written,
            details: vec![
                ("runs", to_u64(view.version.len())),
                ("runs_dead", to_u64(runs().filter(|run| run.is_dead()).count())),
                ("candidates", to_u64(runs().filter(|run| run.reasons() != 0).count())),
                ("entries", sum(&runs::Run::entries)),
                ("entries_live", sum(&runs::Run::live)),
                ("memtables", to_u64(view.memtables().count())),
                ("memtable_bytes", in_memory),
                ("index_pages", index_pages),
                ("index_height", self.paged.tree.height()),
                ("index_frames", cache.frames),
                ("index_misses_total", cache.misses_total),
                ("index_written_bytes_total", index_written),
                ("journal_live_bytes", journal_live),
                ("cuts_total", load(&self.paged.checkpoints_total)),
                ("index_helps_total", load(&self.paged.helps_total)),
                ("cache_bytes", self.cache.blocks.memory_bytes()),
                ("shortcuts", self.shortcuts.count()),
                ("shortcut_bytes", self.shortcuts.memory_bytes()),
                ("cache_fills_total", self.cache.blocks.totals().0),
                ("cache_evicted_total", self.cache.blocks.totals().1),
                ("reads_total", load(&counters.reads_total)),
                ("read_bytes_total", load(&counters.read_bytes_total)),
                ("flushes_total", load(&counters.flushes_total)),
                ("merges_total", load(&counters.merges_total)),
                ("merges_for_dead_total", load(dead)),
                ("merges_for_leaves_total", load(leaves)),
                ("merges_for_ranges_total", load(ranges)),
                ("merges_for_small_total", load(small)),
                ("merge_read_bytes_total", load(&counters.merge_read_bytes_total)),
                ("left_behind_total", load(&counters.left_behind_total)),
                ("write_rate", self.front.write_rate()),
                ("write_delays_total", load(&front.delays_total)),
                ("write_delay_micros_total", load(&front.delay_micros_total)),
                ("writer_helps_total", load(&front.helps_total)),
                ("stall_micros_total", load(&front.stall_micros_total)),
                ("stall_micros_max", load(&front.stall_micros_max)),
                ("cleanup_failures_total", load(&counters.cleanup_failures_total)),
            ],
        }
    }
}
