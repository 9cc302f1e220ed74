//! A table of the engine: the contract's operations.

use std::sync::Arc;

use super::{
    admissions::Admissions,
    options,
    range::{self, BTreeRange},
    replay_buffer::BTreeReplayBuffer,
    state::{BTreeState, SCAN_AHEAD, make_value},
};
use crate::{
    Result,
    bptree::{
        DropFilter,
        checkpoint::{CHANGE_PAGES, PagedTree, TreeSettings},
    },
    contract::{
        BulkLoad, Context, Cursor, Engine, EngineStats, Entry, EntryIter, HashOrder, Hint,
        KeyRange, MaintenanceMode, MemoryUse, MemoryWait, MultiGetSink, Op, OrderedEngine,
        PendingWork, Presence, TableOptions, ValueSink, Visit,
    },
    util::{
        codec::{Lsn, to_u64},
        report::Report,
        sync::{AtomicBool, AtomicU64, Ordering, lock},
    },
};

/// A table of the btree engine. See the module documentation.
#[derive(Debug)]
pub struct BTree {
    pub(super) inner: Arc<BTreeState>,
}

impl BTree {
    /// Opens the table in its directory: puts the journal's groups into the overlay and reads the
    /// maps of free pages. Returns the LSN that the files are complete to (0 for a new table).
    /// Fails with `InvalidOption`, or with `Corruption` if the files do not agree.
    pub fn open(options: &TableOptions, context: Context) -> Result<(Self, Lsn)> {
        let options = options::parse(options, context.budget.limit())?;
        let settings = TreeSettings::new(&options, &context);
        let (paged, lsn) = PagedTree::open(&settings, context, None)?;
        let (is_checkpoint_requested, is_cold) = (AtomicBool::new(false), AtomicBool::new(true));
        let is_memory_wanted = AtomicBool::new(false);
        let admissions = Admissions::new();
        // A table without files has no leaves on disk, so replay can change the tree directly.
        let budget = Arc::clone(&paged.context.budget);
        let replay_buffer = BTreeReplayBuffer::new(paged.context.hash, budget, lsn > Lsn(0));
        let inner = BTreeState {
            paged,
            admissions,
            replay_buffer,
            is_checkpoint_requested,
            is_memory_wanted,
            is_cold,
            misses_seen: AtomicU64::new(u64::MAX),
        };
        Ok((Self { inner: Arc::new(inner) }, lsn))
    }
}

impl Engine for BTree {
    #[inline]
    fn get_with<S: ValueSink>(&self, key: &[u8], sink: &mut S) -> Result<Option<S::Output>> {
        if !self.inner.replay_buffer.is_empty() {
            return self.inner.get_buffered(key, sink);
        }
        self.inner.paged.tree.get_with(key, sink)
    }

    fn multi_get(&self, keys: &[&[u8]], sink: MultiGetSink<'_>) -> Result<()> {
        let is_buffered = !self.inner.replay_buffer.is_empty();
        match sink {
            MultiGetSink::Append(out) if is_buffered => self.inner.multi_get_buffered(keys, out),
            MultiGetSink::Append(out) => self.inner.paged.tree.multi_get(keys, make_value, out),
            MultiGetSink::Each(each) if is_buffered => {
                self.inner.multi_get_each_buffered(keys, each)
            }
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
            Hint::Gets(keys) => inner.load_leaves_for_gets(keys),
            Hint::Write { .. } => {}
        }
    }

    fn admit(&self, op: &Op<'_>, _wait: &MemoryWait) -> Result<()> {
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
            Op::DeleteRange { .. } => inner.paged.make_room_to_free(CHANGE_PAGES),
        }
    }

    fn admitted_bytes(&self, _op: &Op<'_>) -> u64 {
        0
    }

    fn cancel(&self, op: &Op<'_>) {
        if let Op::Put { key, .. } | Op::Delete { key } = op {
            self.inner.cancel_write(key);
        }
    }

    fn make_room(&self, op: &Op<'_>) -> Result<()> {
        let tree = &self.inner.paged.tree;
        let of_value = match op {
            Op::Put { key, head, body } => tree.pages_for(key, head.len() + body.len()),
            Op::Delete { .. } | Op::DeleteRange { .. } => 0,
        };
        self.inner.paged.make_room_for_logged(CHANGE_PAGES + of_value)
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
        for (_, op) in ops {
            if let Op::Put { key, .. } | Op::Delete { key } = op {
                self.prefetch(Hint::Replay(key));
            }
        }
        ops.iter().try_for_each(|(lsn, op)| {
            self.make_room(op)?;
            self.apply(*lsn, op)
        })
    }

    fn scan(&self, from: &Cursor, limit: usize) -> Result<(Vec<Entry>, Cursor)> {
        let (entries, next) = self.inner.scan_from(from.key()?, limit)?;
        Ok((entries, next.map_or(Cursor::START, |next| Cursor::at_key(&next))))
    }

    fn hash_order(&self) -> Option<&dyn HashOrder> {
        None
    }

    fn ordered(&self) -> Option<&dyn OrderedEngine> {
        Some(self)
    }

    fn checkpoint(&self, up_to: Lsn) -> Result<Lsn> {
        let inner = &self.inner;
        inner.paged.context.check_writable()?;
        inner.is_checkpoint_requested.store(false, Ordering::Relaxed);
        inner.merge_all()?;
        let mut checkpointer = lock(&inner.paged.checkpointer);
        let lsn = up_to.max(checkpointer.complete());
        if lsn > checkpointer.complete() || inner.paged.has_pending_changes() {
            inner.paged.store_checkpoint(&mut checkpointer, lsn)?;
        }
        let complete = checkpointer.complete();
        drop(checkpointer);
        if inner.is_memory_wanted.swap(false, Ordering::Relaxed) {
            inner.paged.empty_journal()?;
        } else {
            inner.paged.tree.cache().prepare_frames();
        }
        Ok(complete)
    }

    fn maintain(&self, mode: MaintenanceMode) -> Result<()> {
        let inner = &self.inner;
        inner.paged.context.check_writable()?;
        if mode == MaintenanceMode::SpaceStep {
            let shortened = inner.paged.shorten_journal();
            let _checkpointer = lock(&inner.paged.checkpointer);
            inner.paged.punch_free_pages()?;
            return shortened;
        }
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

    fn memory_use(&self) -> MemoryUse {
        self.inner.paged.tree.cache().memory_use()
    }

    fn reclaim(&self, bytes: u64) -> u64 {
        let cache = self.inner.paged.tree.cache();
        let released = cache.reclaim(bytes);
        if released < bytes
            && cache.memory_use().unwritten_bytes > 0
            && !self.inner.is_memory_wanted.swap(true, Ordering::Relaxed)
        {
            self.inner.paged.context.host.wake();
        }
        released
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
        let is_due = self.inner.is_memory_wanted.load(Ordering::Relaxed)
            || paged.is_checkpoint_due()
            || paged.is_overlay_too_large()
            || !replay_buffer.is_empty();
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
