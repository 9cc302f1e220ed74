//! What the background has to do for a table.

use super::{
    pool::SlmPool,
    table::{SlmTable, SuperVersion},
};
use crate::{Error, Result, contract::PendingWork, util::sync::Ordering};

/// A table with memtables in a pool is checkpointed after this many bytes of entries: opening reads
/// about so much log. Commits that sync the log themselves leave nothing to the job that would tell
/// the table. Each checkpoint costs a sync of the log and an edit of the catalog.
const MARK_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 16 << 20 };

impl SlmTable {
    /// Returns the most urgent work of the background.
    pub(super) fn pending_work(&self) -> PendingWork {
        let view = self.write_buffer.view.load();
        if self.context.read_only {
            PendingWork::None
        } else if self.write_buffer.has_unread() {
            // Before flushes and the sweep, which need them.
            PendingWork::Maintain
        } else if self.is_mark_due() {
            // Before flushes and merges: under a constant load, one of them is always due.
            PendingWork::Checkpoint
        } else if self.write_buffer.is_flush_due(&view)
            || self.compaction_wanted.load(Ordering::Relaxed)
            || self.pool.as_ref().is_some_and(SlmPool::is_sweep_due)
        {
            PendingWork::Maintain
        } else if self.pool.is_some() {
            self.pending_in_pool(&view)
        } else if self.paged.is_checkpoint_due() || self.paged.is_overlay_too_large() {
            PendingWork::Checkpoint
        } else if self.is_clean(&view) {
            if !self.paged.is_journal_long() {
                PendingWork::None
            } else if self.is_idle() {
                PendingWork::Maintain
            } else {
                PendingWork::Later
            }
        } else if self.write_buffer.is_at_rest(&view.active) {
            // A flush spares gets the search of the memtable, and lets the log be pruned.
            PendingWork::Checkpoint
        } else {
            PendingWork::Later
        }
    }

    /// Reads one memtable that the opening of the pool has left, if there is one. Returns whether
    /// it did. A closing database waits for one at most.
    pub(super) fn read_unread(&self) -> Result<bool> {
        if !self.write_buffer.has_unread() {
            return Ok(false);
        }
        self.write_buffer.read_left(1)?;
        self.context.host.wake();
        Ok(true)
    }

    /// Does one step of the sweep of the pool, if one is due. Returns whether it did. After the
    /// last one, completes the index updates for which an opening had no space.
    pub(super) fn sweep_pool(&self) -> Result<bool> {
        match &self.pool {
            Some(pool) if pool.is_sweep_due() => {
                pool.sweep_step(&self.write_buffer)?;
                if let Some(index) = pool.index.as_ref().filter(|_| !pool.is_sweep_due()) {
                    match self.finish_index_batch(index) {
                        // Flushes and merges try again.
                        Ok(()) | Err(Error::DiskFull { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                self.context.host.wake();
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Calls `work`, and again if the pool was full and a sweep has freed space meanwhile.
    pub(super) fn with_pool_space(&self, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        match (work(), &self.pool) {
            (Err(Error::DiskFull { .. }), Some(pool)) if pool.is_sweep_due() => {
                pool.finish_sweep(&self.write_buffer)?;
                work()
            }
            (outcome, _) => outcome,
        }
    }

    /// Returns whether a pool has got many bytes of entries since the last checkpoint.
    pub(super) fn is_mark_due(&self) -> bool {
        let memtables = self.memtable_pool().and_then(|pool| pool.memtables.as_ref());
        memtables.is_some_and(|memtables| memtables.unmarked_bytes() >= MARK_BYTES)
    }

    /// Returns the work of a table with a pool that needs no flush and no merge.
    fn pending_in_pool(&self, view: &SuperVersion) -> PendingWork {
        let memtables = self.memtable_pool().and_then(|pool| pool.memtables.as_ref());
        let unmarked = memtables.map_or(0, |memtables| memtables.unmarked_bytes());
        let has_pages = self.pool_index().is_none();
        let is_due =
            has_pages && (self.paged.is_checkpoint_due() || self.paged.is_overlay_too_large());
        let is_clean = match memtables {
            Some(_) => unmarked == 0 && !self.write_buffer.has_unpooled(),
            None => view.is_unwritten(),
        };
        let is_clean = is_clean && !(has_pages && self.paged.tree.cache().dirty_count() > 0);
        if is_due {
            PendingWork::Checkpoint
        } else if is_clean && has_pages && self.paged.is_journal_long() {
            if self.is_idle() { PendingWork::Maintain } else { PendingWork::Later }
        } else if is_clean {
            PendingWork::None
        } else if self.write_buffer.is_at_rest(&view.active) {
            PendingWork::Checkpoint
        } else {
            PendingWork::Later
        }
    }

    /// Returns whether the files have everything: no memtable and no page has changes.
    fn is_clean(&self, view: &SuperVersion) -> bool {
        let is_written = match self.memtable_pool() {
            Some(_) => !self.write_buffer.has_unpooled(),
            None => view.is_unwritten(),
        };
        is_written && self.pool_index().is_none() && self.paged.tree.cache().dirty_count() == 0
    }

    /// Returns whether the index's journal is to be written back and truncated now: the table is
    /// idle and has no other work.
    pub(super) fn can_write_back(&self) -> bool {
        let view = self.write_buffer.view.load();
        !self.write_buffer.is_flush_due(&view)
            && !self.compaction_wanted.load(Ordering::Relaxed)
            && self.is_clean(&view)
            && self.paged.is_journal_long()
            && self.is_idle()
    }

    /// Whether no checkpoint has been taken for a while.
    fn is_idle(&self) -> bool {
        let checkpoints = self.paged.checkpoints_total.load(Ordering::Relaxed);
        self.idle.is_idle(&*self.context.env, checkpoints)
    }
}
