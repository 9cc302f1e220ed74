//! The page cache's part of a checkpoint: the dirty pages of one moment, as they were then.
//!
//! A page of a checkpoint is *journaled* once its changes are in the journal, and *written back*
//! once they are in the file. Most checkpoints only journal. Their pages stay in the cache, with a
//! record of the units that the file lacks. A later checkpoint writes them back for all checkpoints
//! together, the oldest first. A page that no durable checkpoint has is *fresh*: it is written to
//! the file before its checkpoint is durable, and not journaled.
//!
//! Copy-on-write: a thread that changes a page of an unfinished checkpoint saves the units that it
//! changes first, each once. The page's image is its frame with the saved units restored. To copy
//! whole pages took 4 to 5 us of most such writes, where a put changes a twentieth of a page.
//!
//! Invariants: one checkpoint at a time. A page of an unfinished checkpoint stays in its frame;
//! what changes of it is saved before. A page that is discarded is saved whole.

use super::{
    cache::{PageCache, PendingWriteBack},
    cache_checkpoint::{CacheCheckpoint, ImageUnits, is_in},
    descriptor::{EPOCH, LATCH, MASK, PAGE, PENDING, PINS, SAVED},
    latch,
    page_bytes::{PageWords, UNITS},
    page_file::checksum,
    page_id::PageId,
    saved_pages::{SavedUnits, USUAL_UNITS},
};
use crate::util::{
    codec::{low_u8, low_u32, to_u64, to_usize},
    mutant::mutant,
    sync::{AtomicU64, Ordering, lock},
};

impl PageCache {
    /// Records, under the frame's latch and before the change, that a page changes. Returns whether
    /// the units that change must be saved.
    pub(super) fn mark_dirty(&self, frame: u32) -> bool {
        let current = self.epoch.load(Ordering::Acquire);
        let before = self.get(frame, EPOCH);
        if before == current {
            return self.get(frame, PINS) & SAVED != 0;
        }
        let page = PageId(low_u32(self.get(frame, PAGE)));
        self.move_overlay_changes((page, frame));
        let is_in_checkpoint = mutant!(CutSeesLaterChanges: false, else before != 0);
        if is_in_checkpoint {
            let (mask, pending) = (self.get(frame, MASK), self.get(frame, PENDING));
            let unit = self.options.page_bytes / UNITS / 8;
            let words = Vec::with_capacity(USUAL_UNITS * unit);
            let order = Vec::with_capacity(USUAL_UNITS);
            let saved = SavedUnits { words, order, units: 0, mask, pending };
            self.budget.reserve_unchecked(saved.memory_bytes());
            self.saved_total.fetch_add(1, Ordering::Relaxed);
            lock(&self.saved).insert(page, saved);
            if let Some(word) = self.word(frame, PINS) {
                word.fetch_or(SAVED, Ordering::Relaxed);
            }
        }
        self.set(frame, MASK, 0);
        self.set_page_state(frame, current, self.get(frame, PENDING));
        lock(&self.dirty).push((page, frame));
        is_in_checkpoint
    }

    /// Returns the units of the page in a latched frame that an unfinished checkpoint needs and has
    /// not saved.
    #[cold]
    pub(super) fn unsaved_units(&self, frame: u32) -> u64 {
        let page = PageId(low_u32(self.get(frame, PAGE)));
        lock(&self.saved).get(&page).map_or(0, |saved| !saved.units)
    }

    /// Saves units of the page in a latched frame for the unfinished checkpoint.
    #[cold]
    pub(super) fn save_units(&self, frame: u32, units: u64) {
        let page = PageId(low_u32(self.get(frame, PAGE)));
        let (words, unit) = (self.words(frame), self.words(frame).len() / UNITS);
        let mut all = lock(&self.saved);
        let Some(saved) = all.get_mut(&page) else { return };
        let mut rest = units & !saved.units;
        saved.units |= rest;
        self.budget.reserve_unchecked(u64::from(rest.count_ones()) * to_u64(unit * 8));
        while rest != 0 {
            let number = rest.trailing_zeros();
            rest &= rest - 1;
            let start = to_usize(u64::from(number)) * unit;
            let words = words.get(start..start + unit).unwrap_or(&[]);
            saved.words.extend(words.iter().map(|word| word.load(Ordering::Relaxed)));
            saved.order.push(low_u8(u64::from(number)));
        }
    }

    /// Saves the whole page in a latched frame if the unfinished checkpoint needs it.
    pub(super) fn save_all(&self, frame: u32) {
        if self.get(frame, PINS) & SAVED != 0 {
            self.save_units(frame, u64::MAX);
            self.clear_saved_flag(frame);
        }
    }

    /// Clears the flag of saved units of a latched frame.
    fn clear_saved_flag(&self, frame: u32) {
        if let Some(word) = self.word(frame, PINS)
            && word.load(Ordering::Relaxed) & SAVED != 0
        {
            word.fetch_and(!SAVED, Ordering::Relaxed);
        }
    }

    /// Begins a checkpoint: every dirty page belongs to it, and later changes to the next one.
    /// `group` is the first journal group that it may become; `writeback_frames` are frames of
    /// pages to write back with it. The caller keeps all writers out during the call, and has
    /// finished the previous checkpoint.
    pub fn begin_checkpoint(&self, group: u64, mut writeback_frames: Vec<u32>) -> CacheCheckpoint {
        self.changed_bytes.store(0, Ordering::Relaxed);
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel);
        writeback_frames.sort_unstable();
        writeback_frames.dedup();
        let (pages, fresh) = (std::mem::take(&mut *lock(&self.dirty)), Vec::new());
        CacheCheckpoint { pages, writeback_frames, fresh, epoch, group }
    }

    /// Adds `count` pages that are not written back to the next checkpoint, the oldest first, and
    /// dirty ones if these are too few. Pages that `is_used` reports as free are skipped. Returns
    /// their frames. The caller keeps all writers out.
    pub fn join_pending_writeback(
        &self,
        count: usize,
        is_used: impl Fn(PageId) -> bool,
    ) -> Vec<u32> {
        let current = self.epoch.load(Ordering::Acquire);
        let mut dirty = lock(&self.dirty);
        let mut entries = lock(&self.pending_writeback);
        let mut joined = Vec::new();
        while joined.len() < count
            && let Some(PendingWriteBack { page, frame, .. }) = entries.pop_front()
        {
            let there = self.get(frame, PAGE) == u64::from(page.0);
            if !there || self.get(frame, PENDING) == 0 {
                continue;
            }
            if !is_used(page) {
                self.set_page_state(frame, self.get(frame, EPOCH), 0);
                continue;
            }
            if self.get(frame, EPOCH) == 0 {
                self.set_page_state(frame, current, self.get(frame, PENDING));
                dirty.push((page, frame));
            }
            joined.push(frame);
        }
        let more = count - joined.len();
        joined.extend(dirty.iter().take(more).map(|(_, frame)| *frame));
        joined
    }

    /// Returns the oldest journal group that may have a page which is not written back; `None` if
    /// all are written back.
    pub fn oldest_pending_group(&self) -> Option<u64> {
        let mut entries = lock(&self.pending_writeback);
        while let Some(PendingWriteBack { page, frame, group }) = entries.front().copied() {
            let there = self.get(frame, PAGE) == u64::from(page.0);
            if there && self.get(frame, PENDING) != 0 {
                return Some(group);
            }
            entries.pop_front();
        }
        None
    }

    /// Sets the dirty epoch of a latched frame and the units that the file lacks, and updates the
    /// counts.
    pub(super) fn set_page_state(&self, frame: u32, epoch: u64, pending: u64) {
        let before = (self.get(frame, EPOCH), self.get(frame, PENDING));
        self.set(frame, EPOCH, epoch);
        self.set(frame, PENDING, pending);
        let turn = |count: &AtomicU64, before: bool, after: bool| match (before, after) {
            (false, true) => _ = count.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = count.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        };
        turn(&self.dirty_count, before.0 != 0, epoch != 0);
        turn(&self.pending_writeback_count, before.1 != 0, pending != 0);
        turn(&self.unevictable_count, before != (0, 0), (epoch, pending) != (0, 0));
    }

    /// Adds units that the file lacks to a latched frame. They are in the journal from this group
    /// on; 0 means any.
    pub(super) fn add_pending(&self, (page, frame): (PageId, u32), units: u64, group: u64) {
        let before = self.get(frame, PENDING);
        if before == 0 && units != 0 {
            self.push_pending_writeback(PendingWriteBack { page, frame, group });
        }
        self.set_page_state(frame, self.get(frame, EPOCH), before | units);
    }

    fn push_pending_writeback(&self, entry: PendingWriteBack) {
        let mut entries = lock(&self.pending_writeback);
        if entry.group == 0 {
            entries.push_front(entry);
        } else {
            entries.push_back(entry);
        }
    }

    /// Copies a page as it was at the checkpoint, checksum included, and returns the units in which
    /// it differs; `None` if the page was discarded before. A page that is not written back with
    /// the checkpoint becomes clean.
    pub fn image(
        &self,
        checkpoint: &CacheCheckpoint,
        (page, frame): (PageId, u32),
        out: &mut [u8],
    ) -> Option<ImageUnits> {
        let word = self.word(frame, LATCH)?;
        latch::lock(word);
        let units = self.latched_image(checkpoint, (page, frame), out);
        latch::unlock(word);
        let mut units = units?;
        let checksum = checksum(self.options.salt, out);
        if let Some(head) = out.first_chunk_mut::<4>() {
            *head = checksum.to_le_bytes();
        }
        units.changed |= 1;
        units.pending |= units.changed;
        Some(units)
    }

    fn latched_image(
        &self,
        checkpoint: &CacheCheckpoint,
        (page, frame): (PageId, u32),
        out: &mut [u8],
    ) -> Option<ImageUnits> {
        let leave = !checkpoint.is_to_write_back(frame);
        let there = self.get(frame, PAGE) == u64::from(page.0);
        if there {
            PageWords::new(self.words(frame)).copy_to(0, out);
        }
        let mut all = lock(&self.saved);
        if leave && let Some(saved) = all.remove(&page) {
            drop(all);
            saved.restore(out);
            self.budget.release(saved.memory_bytes());
            let units = ImageUnits { changed: saved.mask, pending: saved.pending | saved.mask };
            if there {
                self.clear_saved_flag(frame);
                // A page that was discarded since has no changes of its own.
                if self.get(frame, EPOCH) != 0 {
                    self.add_pending((page, frame), units.changed | 1, checkpoint.group);
                }
            }
            return Some(units);
        }
        if let Some(saved) = all.get(&page) {
            saved.restore(out);
            return Some(ImageUnits { changed: saved.mask, pending: saved.pending | saved.mask });
        }
        drop(all);
        if !there || self.get(frame, EPOCH) != checkpoint.epoch {
            return None;
        }
        let (changed, pending) = (self.get(frame, MASK), self.get(frame, PENDING));
        if leave {
            self.add_pending((page, frame), changed | 1, checkpoint.group);
            self.set(frame, MASK, 0);
            self.set_page_state(frame, 0, self.get(frame, PENDING));
        }
        Some(ImageUnits { changed, pending: pending | changed })
    }

    /// Ends a checkpoint that is stored: pages that were only journaled are pending write-back, the
    /// others are clean unless they changed since.
    pub fn finish(&self, checkpoint: CacheCheckpoint) {
        let CacheCheckpoint { pages, fresh, epoch, .. } = checkpoint;
        for (page, frame) in &pages {
            let Some(word) = self.word(*frame, LATCH) else { continue };
            latch::lock(word);
            let there = self.get(*frame, PAGE) == u64::from(page.0);
            if there {
                self.clear_saved_flag(*frame);
            }
            if there && self.get(*frame, EPOCH) == epoch {
                self.set(*frame, MASK, 0);
                self.set_page_state(*frame, 0, 0);
            } else if there && (is_in(&fresh, *page) || lock(&self.saved).contains_key(page)) {
                self.set_page_state(*frame, self.get(*frame, EPOCH), 0);
            }
            latch::unlock(word);
        }
        self.discard_saved();
    }

    /// Ends a checkpoint that failed: its pages belong to the next one, whole.
    pub fn abandon(&self, checkpoint: CacheCheckpoint) {
        let current = self.epoch.load(Ordering::Acquire);
        for (page, frame) in checkpoint.pages {
            let Some(word) = self.word(frame, LATCH) else { continue };
            latch::lock(word);
            let (epoch, pending) = (self.get(frame, EPOCH), self.get(frame, PENDING));
            let concerned = epoch != 0 || pending != 0;
            let there = self.get(frame, PAGE) == u64::from(page.0);
            if there {
                self.clear_saved_flag(frame);
            }
            if there && concerned {
                if epoch != current {
                    self.set_page_state(frame, current, pending);
                    lock(&self.dirty).push((page, frame));
                }
                if pending != 0 {
                    self.push_pending_writeback(PendingWriteBack { page, frame, group: 0 });
                }
                self.set(frame, MASK, u64::MAX);
            }
            latch::unlock(word);
        }
        self.discard_saved();
    }

    pub(super) fn discard_saved(&self) {
        let saved = std::mem::take(&mut *lock(&self.saved));
        self.budget.release(saved.values().map(SavedUnits::memory_bytes).sum());
    }
}
