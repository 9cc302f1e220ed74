//! What the background has to do for a table.

use super::table::{SlmTable, SuperVersion};
use crate::{contract::PendingWork, util::sync::Ordering};

impl SlmTable {
    /// Returns the most urgent work of the background.
    pub(super) fn pending_work(&self) -> PendingWork {
        let view = self.write_buffer.view.load();
        if self.context.read_only {
            PendingWork::None
        } else if self.write_buffer.is_flush_due(&view)
            || self.compaction_wanted.load(Ordering::Relaxed)
        {
            PendingWork::Maintain
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

    /// Returns whether the files have everything: no memtable and no page has changes.
    fn is_clean(&self, view: &SuperVersion) -> bool {
        view.is_unwritten() && self.paged.tree.cache().dirty_count() == 0
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
