//! A tree in its files: its parts, and the limits on pages that cannot be evicted.

use std::sync::Arc;

use super::{
    checkpointer::Checkpointer, gate::Gate, participant::CheckpointParticipant,
    settings::FRAMES_MIN,
};
use crate::{
    Result,
    bptree::tree::Tree,
    contract::{Context, RoomAttempts},
    util::{
        codec::{Lsn, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// A journal whose files take no more bytes stays as it is on a full disk.
pub(super) const SHORT_JOURNAL_BYTES: u64 = 256 << 10;
/// A checkpoint is due after a sixteenth of the budget has changed, within these bounds in bytes:
/// its memory is bounded. A larger value lets a page change more often before it is journaled.
const CHECKPOINT_BYTES_MIN: u64 = 16 << 20;
const CHECKPOINT_BYTES_MAX: u64 = 512 << 20;
/// Maximum number of times an operation helps to write pages back before it continues anyway; the
/// cache then grows.
const HELPS_MAX: u32 = 3;
/// Number of pages that one change of a small entry may need: a split at each of five levels, with
/// both halves, and the merges.
pub(crate) const CHANGE_PAGES: u64 = 12;
/// Number of frames without a page that a cache with all pages of its tree has at least.
const FRAMES_SPARE: u64 = 16;
/// An idle table writes its pages back if its journal is larger than the budget divided by this.
const IDLE_JOURNAL_SHARE: u64 = 1024;
/// Number of pages that an idle table writes back at once: a concurrent write may wait for them.
const IDLE_WRITE_BACK_PAGES: u64 = 1024;

/// A tree in its files. See the module documentation.
#[derive(Debug)]
pub(crate) struct PagedTree {
    pub(crate) context: Context,
    pub(crate) tree: Tree,
    pub(crate) gate: Gate,
    pub(crate) checkpointer: Mutex<Checkpointer>,
    /// Held while the table's file is created.
    pub(super) file_creation: Mutex<()>,
    pub(super) participant: Option<Arc<dyn CheckpointParticipant>>,
    /// Bytes of the journal since an idle table last wrote all pages back.
    pub(super) journal_bytes_to_write_back: AtomicU64,
    /// The disk is so full that the journal should not grow.
    pub(super) lacks_space: AtomicBool,
    pub(super) room_attempts: RoomAttempts,
    pub(crate) checkpoints_total: AtomicU64,
    pub(crate) helps_total: AtomicU64,
    pub(crate) written_bytes_total: AtomicU64,
    /// Of these, journal groups, and pages written in place.
    pub(crate) journaled_bytes_total: AtomicU64,
    pub(crate) written_back_bytes_total: AtomicU64,
}

impl PagedTree {
    /// Returns the number of frames that the cache has or may have.
    pub(super) fn frames(&self) -> u64 {
        self.tree.cache().frames_reachable()
    }

    /// Returns the number of unevictable pages that writers may cause. A sixteenth of the frames
    /// stays evictable, and two more for each page that is not in the cache, up to a quarter. A
    /// write-back for each page that is used again costs more than a few misses.
    pub(crate) fn unevictable_limit(&self) -> u64 {
        let frames = self.frames();
        let outside = self.tree.allocator().used().saturating_sub(frames);
        frames - (frames / 16).saturating_add(2 * outside).min(frames / 4)
    }

    /// Whether all pages and `pages` new ones fit in the cache: then none needs to be evicted.
    fn holds_all_pages(&self, pages: u64) -> bool {
        self.tree.allocator().used() + pages + FRAMES_SPARE <= self.frames()
    }

    /// Whether all used pages fit in this many frames.
    pub(super) fn fits(&self, frames: u64) -> bool {
        self.tree.allocator().used() <= frames / 8 * 7
    }

    /// Whether at most an eighth as many pages as there are frames are not in the cache.
    pub(super) fn holds_most_pages(&self) -> bool {
        let frames = self.frames();
        self.tree.allocator().used() <= frames + frames / 8
    }

    /// Whether a checkpoint has work although no operation came.
    pub(crate) fn has_pending_changes(&self) -> bool {
        self.tree.cache().dirty_count() > 0 || self.is_overlay_too_large()
    }

    /// Whether pages are evicted and read again whose changes are only in the journal: each read
    /// applies them again. Decided at opening; writers do not ask.
    pub(crate) fn is_overlay_too_large(&self) -> bool {
        self.tree.cache().has_overlay() && !self.context.read_only && !self.fits(self.frames())
    }

    /// Whether pages should be written back although the journal has room, because too many are
    /// unevictable.
    pub(crate) fn is_crowded(&self) -> bool {
        let unevictable = self.tree.cache().unevictable_count();
        unevictable > self.unevictable_limit() / 2 && !self.holds_all_pages(0)
    }

    /// Whether the journal is so long that an idle table should write its pages back.
    pub(crate) fn is_journal_long(&self) -> bool {
        let least = self.context.budget.limit() / IDLE_JOURNAL_SHARE;
        !self.context.read_only && self.journal_bytes_to_write_back.load(Ordering::Relaxed) > least
    }

    /// Writes back everything that is in the journal, and removes its files. Works in parts, so
    /// that a write which needs room does not wait for the whole.
    pub(crate) fn empty_journal(&self) -> Result<()> {
        let cache = self.tree.cache();
        // Concurrent changes are not waited for.
        let mut left = cache.pending_writeback_count();
        while left > IDLE_WRITE_BACK_PAGES && !cache.has_overlay() {
            let checkpointer = &mut lock(&self.checkpointer);
            let complete = checkpointer.complete();
            self.store_once(checkpointer, complete, to_usize(IDLE_WRITE_BACK_PAGES))?;
            left -= IDLE_WRITE_BACK_PAGES;
        }
        let checkpointer = &mut lock(&self.checkpointer);
        let complete = checkpointer.complete();
        self.write_back_journal(checkpointer, complete)?;
        self.journal_bytes_to_write_back.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Stores checkpoints that are complete to `lsn`, writes back all that is in the journal, and
    /// removes its files.
    pub(super) fn write_back_journal(
        &self,
        checkpointer: &mut Checkpointer,
        lsn: Lsn,
    ) -> Result<()> {
        mutant!(JournalEndsUnplaced: checkpointer.forget_pending_writeback(), else {
            self.write_back_all(checkpointer, lsn)?;
        });
        self.end_journal(checkpointer, lsn)
    }

    /// Stores a checkpoint that is complete to `lsn` in a new file of the journal. It declares the
    /// earlier groups unneeded that are written back, so the files before it are removed.
    pub(super) fn end_journal(&self, checkpointer: &mut Checkpointer, lsn: Lsn) -> Result<()> {
        checkpointer.start_new_file();
        self.store_once(checkpointer, lsn, 0)
    }

    /// Gives space back on a full disk, for which the journal may keep a lot: as
    /// [`PagedTree::write_back_journal`], if its files are not small.
    pub(crate) fn shorten_journal(&self) -> Result<()> {
        let checkpointer = &mut lock(&self.checkpointer);
        if checkpointer.journal_bytes() <= SHORT_JOURNAL_BYTES {
            return Ok(());
        }
        let complete = checkpointer.complete();
        self.write_back_journal(checkpointer, complete)
    }

    /// Returns whether the disk is so full that the journal should not grow.
    pub(crate) fn lacks_space(&self) -> bool {
        self.lacks_space.load(Ordering::Relaxed)
    }

    /// Notes whether the disk is full. The next checkpoint that preallocates finds out anew.
    pub(crate) fn note_space(&self, is_full: bool) {
        self.lacks_space.store(is_full, Ordering::Relaxed);
    }

    /// Whether so much has changed that a checkpoint is due.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let cache = self.tree.cache();
        // These comparisons are cheaper than a query of the budget.
        let unevictable = cache.unevictable_count();
        if unevictable <= FRAMES_MIN / 4 || cache.dirty_count() == 0 {
            return false;
        }
        let most =
            (self.context.budget.limit() / 16).clamp(CHECKPOINT_BYTES_MIN, CHECKPOINT_BYTES_MAX);
        cache.changed_bytes() > most
            || unevictable > cache.frames() / 16 * 9
                && unevictable > self.unevictable_limit() / 4 * 3
                && self.is_crowded()
    }

    /// As [`PagedTree::make_room`], for a change that frees space. It is made even if a write
    /// fails, for instance on a full disk, and the cache exceeds its capacity. Fails as
    /// [`RoomAttempts::run`] does.
    pub(crate) fn make_room_to_free(&self, pages: u64) -> Result<()> {
        if self.is_far_from_limit(pages) || self.has_room(pages) {
            return Ok(());
        }
        self.context.try_room(&self.room_attempts, || self.make_room(pages))
    }

    /// Whether there is room below every limit. Does not ask the budget.
    fn is_far_from_limit(&self, pages: u64) -> bool {
        self.tree.cache().unevictable_count() + pages <= self.tree.cache().frames() / 4 * 3
    }

    /// As [`PagedTree::make_room`], for a change that is in the log. During replay, and if a write
    /// fails, the cache exceeds its capacity instead.
    ///
    /// Pages are written back under the LSN that the files are complete to already. The pages may
    /// have later changes, half of a batch among them: replay repeats these.
    pub(crate) fn make_room_for_logged(&self, pages: u64) -> Result<()> {
        mutant!(BatchMakesNoRoom => return Ok(()));
        if !self.is_far_from_limit(pages) && self.context.host.can_sync_log() {
            self.make_room_to_free(pages)?;
        }
        Ok(())
    }

    fn has_room(&self, pages: u64) -> bool {
        self.tree.cache().unevictable_count() + pages <= self.unevictable_limit()
            || self.holds_all_pages(pages)
    }

    /// Makes room in the cache for this many more dirty pages; writes pages back if necessary.
    /// Fails if a write fails. A table that is open read-only exceeds its capacity instead.
    pub(crate) fn make_room(&self, pages: u64) -> Result<()> {
        if self.is_far_from_limit(pages) || self.context.read_only {
            return Ok(());
        }
        let mut helps = 0;
        while helps < HELPS_MAX {
            if self.has_room(pages) {
                return Ok(());
            }
            // Memory of tables that are not in use is cheaper than a write.
            if self.tree.cache().take_from_others(pages * to_u64(self.tree.shape().page_bytes)) {
                continue;
            }
            helps += 1;
            self.helps_total.fetch_add(1, Ordering::Relaxed);
            self.context.host.wake();
            let mut checkpointer = lock(&self.checkpointer);
            // The previous holder of the lock may have made room.
            if !self.has_room(pages) {
                let complete = checkpointer.complete();
                self.write_back_oldest(&mut checkpointer, complete)?;
            }
        }
        Ok(())
    }
}
