//! The btree engine: a concurrent B+-tree over a direct-I/O page cache (ckvs).
//!
//! What: ordered tables of any size: ranges, prefixes, first and last key; a lookup reads one leaf.
//!
//! How: the tree is [`crate::bptree`], its cache [`crate::bptree::page_cache`], and its durability
//! [`crate::bptree::checkpoint`].
//!
//! | operation | steps |
//! |---|---|
//! | put | `admit` pins the leaf ([`change`]); `apply` passes the gate and changes it |
//! | get | descend without a lock |
//! | range | copy a run of entries from one leaf after the other ([`range`]) |
//! | checkpoint | take all dirty pages with the gate closed; sync the log; journal; write back |
//! | open | put the journal into the overlay, read the maps of pages; replay the log |
//! | sorted load | write whole free pages, then a checkpoint whose root has them ([`load`]) |
//!
//! Invariants:
//! - The files hold whole operations only: a checkpoint has all of an operation or nothing, and the
//!   journal all of a checkpoint or nothing.
//! - A page that a durable checkpoint has is written in place only after the journal holds its
//!   changes.
//! - During replay of the log only large values are written, to pages that no durable state uses.
//!   All other replayed operations wait in the replay buffer ([`replay_buffer`]).
//!
//! Threads: gets, scans and ranges take no lock. Writers share the gate. Lock order:
//! `checkpointer`, gate, pages (in the order of [`crate::bptree`]), the map of free pages, the
//! cache's lists.
//!
//! Options: `page_bytes` (power of two, 4096 to 65,536, default 16,384), `cache_bytes` (limit of
//! the page cache; 0, the default: three quarters of the memory budget), `extend_granularity`
//! (pages by which the file grows, a multiple of 64, 64 to 16,384, default 1024), `replacement`
//! (`clock` or `random`).
//!
//! Differences from the paper: crash consistency (it has none), ordered byte strings of any length,
//! deletes that merge, scans. Types, the hierarchy and expiry are the database's, for every engine.

mod admissions;
mod change;
pub mod inspect;
mod load;
mod range;
mod replay_buffer;
#[cfg(test)]
#[cfg(not(model))]
mod tests;

use std::sync::Arc;

use self::{admissions::Admissions, range::BTreeRange, replay_buffer::BTreeReplayBuffer};
use crate::{
    Error, Result,
    bptree::{
        DropFilter,
        checkpoint::{CHANGE_PAGES, PagedTree, TreeSettings},
        scan_forward::{EntryRun, ForwardScan},
    },
    contract::{
        BulkLoad, Context, Cursor, Engine, EngineStats, Entry, EntryIter, Hint, KeyRange,
        MaintenanceMode, MultiGetSink, Op, OrderedEngine, PendingWork, Presence, TableOptions,
        Value, ValueSink, Visit, replay_one_by_one,
    },
    util::{
        codec::{Lsn, to_u64},
        report::Report,
        sync::{AtomicBool, Ordering, lock},
    },
};

/// First byte of a cursor; the first key to return follows.
const CURSOR_TAG: u8 = b'k';
/// Number of leaves that a step of a scan reads ahead from disk.
const SCAN_AHEAD: isize = 8;

/// A table of the btree engine. See the module documentation.
#[derive(Debug)]
pub struct BTree {
    inner: Arc<BTreeState>,
}

/// The state shared with iterators.
#[derive(Debug)]
struct BTreeState {
    paged: PagedTree,
    admissions: Admissions,
    /// Operations recovered from the log that are not in the tree yet.
    replay_buffer: BTreeReplayBuffer,
    /// Whether a checkpoint was requested from the background thread.
    is_checkpoint_requested: AtomicBool,
    /// Whether writers have met leaves that were not in the cache.
    is_cold: AtomicBool,
}

/// Returns a value copied out of the tree.
fn make_value(length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Value {
    Value::fill_with(length, fill)
}

/// Returns an entry copied out of the tree.
fn entry_of((key, stored): (&[u8], &[u8])) -> Entry {
    let value = Value::fill_with(stored.len(), |value| value.copy_from_slice(stored));
    Entry { key: key.to_vec(), value }
}

/// Returns an entry of a key and a value.
fn make_entry(key: Vec<u8>, value: Value) -> Entry {
    Entry { key, value }
}

impl BTree {
    /// Opens the table in its directory: puts the journal's groups into the overlay and reads the
    /// maps of free pages. Returns the LSN that the files are complete to (0 for a new table).
    /// Fails with `InvalidOption`, or with `Corruption` if the files do not agree.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        options.check_names(&["page_bytes", "cache_bytes", "extend_granularity", "replacement"])?;
        let most = context.budget.limit() / 4 * 3;
        let settings = TreeSettings::new(options, &context, ("cache_bytes", most))?;
        let (paged, lsn) = PagedTree::open(&settings, context, None)?;
        let (is_checkpoint_requested, is_cold) = (AtomicBool::new(false), AtomicBool::new(true));
        let admissions = Admissions::new();
        // A table without files has no leaves on disk, so replay can change the tree directly.
        let budget = Arc::clone(&paged.context.budget);
        let replay_buffer = BTreeReplayBuffer::new(paged.context.hash, budget, lsn > Lsn(0));
        let inner =
            BTreeState { paged, admissions, replay_buffer, is_checkpoint_requested, is_cold };
        Ok((Self { inner: Arc::new(inner) }, lsn))
    }
}

impl BTreeState {
    fn wake_if_due(&self) {
        if self.paged.is_checkpoint_due()
            && !self.is_checkpoint_requested.swap(true, Ordering::Relaxed)
        {
            self.paged.context.host.wake();
        }
    }

    fn scan_from(&self, start: &[u8], limit: usize) -> Result<(Vec<Entry>, Option<Vec<u8>>)> {
        let mut entries = Vec::new();
        let (mut scan, mut run) = (ForwardScan::new(start.to_vec(), None), EntryRun::default());
        while entries.len() < limit && !scan.is_over {
            self.scan_forward(&mut scan, (limit - entries.len(), SCAN_AHEAD), &mut run)?;
            entries.extend((0..run.len()).filter_map(|index| run.entry(index)).map(entry_of));
        }
        Ok((entries, (!scan.is_over).then_some(scan.start)))
    }

    fn check_usable(&self) -> Result<()> {
        if self.paged.context.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

impl Engine for BTree {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        if !self.inner.replay_buffer.is_empty() {
            return self.get_buffered(key, sink);
        }
        self.inner.paged.tree.get_with(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        let is_buffered = !self.inner.replay_buffer.is_empty();
        match sink {
            MultiGetSink::Append(out) if is_buffered => self.multi_get_buffered(keys, out),
            MultiGetSink::Append(out) => self.inner.paged.tree.multi_get(keys, make_value, out),
            MultiGetSink::Each(each) if is_buffered => self.multi_get_each_buffered(keys, each),
            MultiGetSink::Each(each) => self.inner.paged.tree.multi_get_each(keys, each),
        }
    }

    fn exists_hint(&self, _key: &[u8]) -> Result<Presence> {
        Ok(Presence::InValue)
    }

    fn prefetch(&self, hint: Hint<'_, '_>) {
        let inner = &self.inner;
        match hint {
            Hint::Replay(key) => inner.replay_buffer.prefetch(key),
            Hint::Batch(keys) => {
                if inner.is_cold.load(Ordering::Relaxed) && !inner.paged.tree.load_leaves(keys) {
                    inner.is_cold.store(false, Ordering::Relaxed);
                }
            }
            Hint::Write { .. } => {}
        }
    }

    fn admit(&self, op: &Op<'_>) -> Result<()> {
        let inner = &self.inner;
        if inner.replay_buffer.is_active() {
            inner.replay_buffer.end_replay();
        }
        match op {
            Op::Put { key, head, body } => {
                let bytes = head.len() + body.len();
                if inner.paged.tree.is_direct(bytes) {
                    inner.paged.ensure_file()?;
                }
                let pages = CHANGE_PAGES + inner.paged.tree.pages_for(key, bytes);
                inner.admit_one(key, pages, false)
            }
            Op::Delete { key } => inner.admit_one(key, CHANGE_PAGES, true),
            // A delete frees space: it continues even if a checkpoint fails.
            Op::DeleteRange { .. } => {
                let _ = inner.paged.make_room(CHANGE_PAGES);
                Ok(())
            }
        }
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            self.inner.cancel_write(key);
        }
    }

    fn apply(&self, _lsn: Lsn, op: &Op<'_>) -> Result<()> {
        let inner = &self.inner;
        let outcome = match op {
            Op::DeleteRange { start, end } => {
                inner.delete_range(start, Some(*end).filter(|end| !end.is_empty()))
            }
            Op::Put { key, .. } | Op::Delete { key } if inner.replay_buffer.is_active() => {
                if inner.replay_buffer.is_replaying() {
                    inner.replay(op)
                } else {
                    inner.apply_and_remove(key, op)
                }
            }
            Op::Put { key, .. } | Op::Delete { key } => inner.change_one(key, op),
        };
        inner.wake_if_due();
        outcome
    }

    fn replay(&self, ops: &[(Lsn, Op<'_>)]) -> Result<()> {
        replay_one_by_one(self, ops)
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
        let (entries, next) = self.inner.scan_from(start, limit)?;
        let next = next.map_or(Cursor::START, |next| Cursor([&[CURSOR_TAG], &*next].concat()));
        Ok((entries, next))
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        let inner = &self.inner;
        inner.check_usable()?;
        inner.is_checkpoint_requested.store(false, Ordering::Relaxed);
        inner.merge_all()?;
        let mut checkpointer = lock(&inner.paged.checkpointer);
        let lsn = up_to.max(checkpointer.complete());
        if lsn > checkpointer.complete() || inner.paged.has_pending_changes() {
            inner.paged.store_checkpoint(&mut checkpointer, lsn)?;
        }
        let complete = checkpointer.complete();
        drop(checkpointer);
        inner.paged.tree.cache().prepare_frames();
        Ok(complete)
    }

    fn maintain(&self, _mode: MaintenanceMode) -> Result<()> {
        let inner = &self.inner;
        inner.check_usable()?;
        inner.merge_all()?;
        let expired = |stored: &[u8]| inner.paged.context.host.is_expired(stored);
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            inner.paged.make_room(CHANGE_PAGES)?;
            let pass = inner.paged.gate.enter(&from);
            let filter = Some::<DropFilter<'_>>(&expired);
            let (change, after) =
                inner.paged.tree.delete_some((&from, None), SCAN_AHEAD, filter)?;
            pass.add(change);
            next = after;
        }
        let mut checkpointer = lock(&inner.paged.checkpointer);
        inner.paged.punch_holes(&mut checkpointer)
    }

    fn check(&self, report: &mut Report) -> Result<()> {
        self.inner.merge_all()?;
        let mut checkpointer = lock(&self.inner.paged.checkpointer);
        self.inner.paged.check_files(&mut checkpointer, report)
    }

    fn stats(&self) -> EngineStats {
        let inner = &self.inner;
        let (keys, live_bytes) = inner.paged.gate.counts();
        let (cache, space) = (inner.paged.tree.cache().stats(), inner.paged.tree.allocator());
        let page_bytes = to_u64(inner.paged.tree.shape().page_bytes);
        let (journal_bytes, (journal_live, journal_full)) = {
            let checkpointer = lock(&inner.paged.checkpointer);
            (checkpointer.journal_bytes(), checkpointer.journal_state())
        };
        let has_file = inner.paged.tree.cache().file().is_ok();
        let pages = if has_file { space.end() - space.holes() } else { 0 };
        let free = if has_file { space.end() - space.holes() - space.used() } else { 0 };
        let memory_bytes =
            inner.paged.tree.cache().memory_bytes() + inner.replay_buffer.memory_bytes();
        EngineStats {
            // It is unknown which buffered keys the tree has already.
            keys: keys + inner.replay_buffer.len(),
            live_bytes,
            dead_bytes: free * page_bytes,
            file_bytes: pages * page_bytes + journal_bytes,
            memory_bytes,
            index_bytes: inner.paged.tree.inner_pages() * page_bytes,
            written_bytes_total: inner.paged.written_bytes_total.load(Ordering::Relaxed),
            details: vec![
                ("height", inner.paged.tree.height()),
                ("leaf_pages", inner.paged.tree.leaf_pages()),
                ("inner_pages", inner.paged.tree.inner_pages()),
                ("used_pages", space.used()),
                ("free_pages", space.end() - space.used()),
                ("cache_frames", cache.frames),
                ("cache_dirty", cache.dirty),
                ("cache_unplaced", inner.paged.tree.cache().pending_writeback_count()),
                ("cache_misses_total", cache.misses_total),
                ("cache_evictions_total", cache.evictions_total),
                ("cache_overflows_total", cache.overflows_total),
                ("journal_live_bytes", journal_live),
                ("journal_full", u64::from(journal_full)),
                ("young_entries", inner.replay_buffer.len()),
                ("cuts_total", inner.paged.checkpoints_total.load(Ordering::Relaxed)),
                (
                    "journaled_bytes_total",
                    inner.paged.journaled_bytes_total.load(Ordering::Relaxed),
                ),
                (
                    "placed_bytes_total",
                    inner.paged.written_back_bytes_total.load(Ordering::Relaxed),
                ),
                ("saved_pages_total", cache.saved_total),
                ("writer_helps_total", inner.paged.helps_total.load(Ordering::Relaxed)),
            ],
        }
    }

    fn pending_work(&self) -> PendingWork {
        let (paged, replay_buffer) = (&self.inner.paged, &self.inner.replay_buffer);
        let is_due =
            paged.is_checkpoint_due() || paged.is_overlay_too_large() || !replay_buffer.is_empty();
        if is_due { PendingWork::Checkpoint } else { PendingWork::None }
    }
}

impl OrderedEngine for BTree {
    fn range(&self, range: KeyRange) -> Result<EntryIter> {
        Ok(Box::new(BTreeRange::new(Arc::clone(&self.inner), range)))
    }

    fn visit(&self, range: KeyRange, each: Visit<'_>) -> Result<()> {
        range::visit(&self.inner, range, each)
    }

    /// Costs two descents.
    fn estimate_count(&self, range: &KeyRange) -> Result<u64> {
        let (keys, _) = self.inner.paged.gate.counts();
        self.inner.paged.tree.estimate(range.start.as_deref(), range.end.as_deref(), keys)
    }

    fn bulk(&self) -> Option<&dyn BulkLoad> {
        Some(self)
    }
}

impl Drop for BTreeState {
    fn drop(&mut self) {
        self.paged.context.budget.release(self.replay_buffer.memory_bytes());
    }
}
