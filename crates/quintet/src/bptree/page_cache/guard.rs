//! Guards: [`ReadGuard`] reads a page optimistically, [`WriteGuard`] holds its latch.

use std::cell::Cell;

use super::{
    cache::PageCache,
    descriptor::{EPOCH, LATCH, MASK, PAGE},
    latch,
    page_bytes::{PageEdit, PageWords, UnitSaver},
    page_id::PageId,
};
use crate::util::{
    codec::{low_u32, to_u64},
    sync::Ordering,
};

/// An optimistic reader of a page: it holds no latch and validates the version.
#[derive(Clone, Copy, Debug)]
pub struct ReadGuard<'a> {
    pub(super) cache: &'a PageCache,
    pub(super) frame: u32,
    pub(super) version: u64,
}

impl<'a> ReadGuard<'a> {
    /// Returns the bytes, which may change concurrently.
    #[inline]
    pub fn words(&self) -> PageWords<'a> {
        PageWords::new(self.cache.words(self.frame))
    }

    /// Whether everything read so far was one state of this page, and the page is unchanged.
    #[inline]
    pub fn is_unchanged(&self) -> bool {
        let word = self.cache.word(self.frame, LATCH);
        word.is_some_and(|word| latch::is_unchanged(word, self.version))
    }

    /// Latches the page if it is unchanged.
    pub fn upgrade(self) -> Option<WriteGuard<'a>> {
        let word = self.cache.word(self.frame, LATCH)?;
        latch::try_upgrade(word, self.version).then(|| WriteGuard::new(self.cache, self.frame))
    }

    /// Returns the page number.
    pub fn page(&self) -> PageId {
        PageId(low_u32(self.cache.get(self.frame, PAGE)))
    }
}

/// Holds a page's latch until it is dropped.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    pub(super) cache: &'a PageCache,
    pub(super) frame: u32,
    pub(super) changed: Cell<u64>,
    /// Units that an unfinished checkpoint has not saved; `None` until first looked up.
    unsaved: Cell<Option<u64>>,
}

/// Saves units for the unfinished checkpoint that the page belongs to.
impl UnitSaver for WriteGuard<'_> {
    fn save(&self, units: u64) {
        self.cache.save_units(self.frame, units);
    }
}

impl<'a> WriteGuard<'a> {
    /// Returns the guard of a frame that the caller has latched.
    pub(super) const fn new(cache: &'a PageCache, frame: u32) -> Self {
        Self { cache, frame, changed: Cell::new(0), unsaved: Cell::new(None) }
    }

    /// Returns the page number.
    pub fn page(&self) -> PageId {
        PageId(low_u32(self.cache.get(self.frame, PAGE)))
    }

    /// Returns the bytes.
    #[inline]
    pub fn words(&self) -> PageWords<'a> {
        PageWords::new(self.cache.words(self.frame))
    }

    /// Returns the bytes for writing. The page is dirty from now on.
    pub fn edit(&self) -> PageEdit<'_> {
        let edit = PageEdit::new(self.cache.words(self.frame), &self.changed);
        if !self.cache.mark_dirty(self.frame) {
            return edit;
        }
        if self.unsaved.get().is_none() {
            self.unsaved.set(Some(self.cache.unsaved_units(self.frame)));
        }
        edit.with_saver(&self.unsaved, self)
    }

    /// Discards the content of a freed page; it need not be written.
    pub fn discard(self) {
        let cache = self.cache;
        let epoch = cache.get(self.frame, EPOCH);
        // A page of an unfinished checkpoint stays as it is.
        if epoch == 0 || epoch == cache.epoch.load(Ordering::Acquire) {
            cache.save_all(self.frame);
            self.changed.set(0);
            cache.set(self.frame, MASK, 0);
            cache.set_page_state(self.frame, 0, 0);
        }
    }

    /// Records the units changed so far, for a checkpoint that begins while the latch is held.
    /// Otherwise `drop` does it.
    pub fn record_changed_units(&self) {
        let changed = self.changed.replace(0);
        if changed == 0 {
            return;
        }
        let before = self.cache.get(self.frame, MASK);
        let mask = before | changed;
        if mask != before {
            self.cache.set(self.frame, MASK, mask);
            let units = u64::from((mask ^ before).count_ones());
            let bytes = units * (to_u64(self.cache.options.page_bytes) / 64);
            self.cache.changed_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Drops the guard and keeps the latch.
    pub(super) fn forget(self) -> u32 {
        let frame = self.frame;
        std::mem::forget(self);
        frame
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        self.record_changed_units();
        if let Some(word) = self.cache.word(self.frame, LATCH) {
            latch::unlock(word);
        }
    }
}
