//! Cuts: the dirty pages of one moment, as they were at it.
//!
//! Invariants: one cut at a time; a page of a cut that is not finished stays in its frame as it
//! was, or its image is saved before it changes.

use super::{EPOCH, LATCH, MASK, PAGE, PageCache, PageId, checksum, latch, words::PageWords};
use crate::{
    codec::{low_u32, to_u64},
    seeded::{self, Bug},
    sync::{Ordering, lock},
};

/// A page's state at a cut.
#[derive(Debug)]
pub(super) struct Saved {
    words: Box<[u64]>,
    mask: u64,
}

/// The pages of a cut. Hand it back to [`PageCache::finish`] or [`PageCache::abandon`].
#[derive(Debug)]
pub struct Cut {
    pages: Vec<(PageId, u32)>,
    epoch: u64,
}

impl Cut {
    /// The pages and their places, in no order; a page may be there twice, or not be dirty.
    pub fn pages(&self) -> &[(PageId, u32)] {
        &self.pages
    }
}

impl PageCache {
    /// Notes, under the frame's latch and before the change, that a page changes.
    pub(super) fn note_change(&self, frame: u32) {
        let current = self.epoch.load(Ordering::Acquire);
        let before = self.get(frame, EPOCH);
        if before == current {
            return;
        }
        let page = PageId(low_u32(self.get(frame, PAGE)));
        if before != 0 && !seeded::active(Bug::CutSeesLaterChanges) {
            let words = self.words(frame).iter().map(|word| word.load(Ordering::Relaxed));
            let saved = Saved { words: words.collect(), mask: self.get(frame, MASK) };
            self.budget.take_anyway(to_u64(self.options.page_bytes));
            lock(&self.saved).insert(page, saved);
        }
        if before == 0 {
            self.dirty_count.fetch_add(1, Ordering::Relaxed);
        }
        self.set(frame, MASK, 0);
        self.set(frame, EPOCH, current);
        lock(&self.dirty).push((page, frame));
    }

    /// Makes every dirty page part of a cut, and lets changes from now on count as later ones.
    /// The caller keeps all writers out for the call, and has finished the cut before.
    pub fn cut(&self) -> Cut {
        self.changed_bytes.store(0, Ordering::Relaxed);
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel);
        Cut { pages: std::mem::take(&mut *lock(&self.dirty)), epoch }
    }

    /// A page of a cut as it was then, checksum included, and the units that changed since the
    /// cut before; `None` where the page was given up before the cut.
    pub fn image(&self, cut: &Cut, page: PageId, frame: u32, out: &mut [u8]) -> Option<u64> {
        let mask = loop {
            if let Some(saved) = lock(&self.saved).get(&page) {
                for (chunk, word) in out.chunks_exact_mut(8).zip(&saved.words) {
                    chunk.copy_from_slice(&word.to_le_bytes());
                }
                break saved.mask;
            }
            let word = self.word(frame, LATCH)?;
            latch::lock(word);
            let there = self.get(frame, PAGE) == u64::from(page.0);
            let epoch = self.get(frame, EPOCH);
            if there && epoch == cut.epoch {
                PageWords::new(self.words(frame)).copy_to(0, out);
            }
            let mask = self.get(frame, MASK);
            latch::unlock(word);
            if there && epoch == cut.epoch {
                break mask;
            }
            if !lock(&self.saved).contains_key(&page) {
                return None;
            }
        };
        let checksum = checksum(self.options.salt, out);
        if let Some(head) = out.first_chunk_mut::<4>() {
            *head = checksum.to_le_bytes();
        }
        Some(mask | 1)
    }

    /// The cut's pages are in the file: they are clean unless they changed since.
    pub fn finish(&self, cut: Cut) {
        for (page, frame) in cut.pages {
            let Some(word) = self.word(frame, LATCH) else { continue };
            latch::lock(word);
            let there = self.get(frame, PAGE) == u64::from(page.0);
            if there && self.get(frame, EPOCH) == cut.epoch {
                self.set(frame, MASK, 0);
                self.set(frame, EPOCH, 0);
                self.dirty_count.fetch_sub(1, Ordering::Relaxed);
            }
            latch::unlock(word);
        }
        self.drop_saved();
    }

    /// The cut's pages did not get into the file: they belong to the next cut again, whole.
    pub fn abandon(&self, cut: Cut) {
        let current = self.epoch.load(Ordering::Acquire);
        for (page, frame) in cut.pages {
            let Some(word) = self.word(frame, LATCH) else { continue };
            latch::lock(word);
            if self.get(frame, PAGE) == u64::from(page.0) && self.get(frame, EPOCH) != 0 {
                if self.get(frame, EPOCH) == cut.epoch {
                    self.set(frame, EPOCH, current);
                    lock(&self.dirty).push((page, frame));
                }
                self.set(frame, MASK, u64::MAX);
            }
            latch::unlock(word);
        }
        self.drop_saved();
    }

    pub(super) fn drop_saved(&self) {
        let saved = std::mem::take(&mut *lock(&self.saved));
        self.budget.give(to_u64(saved.len()) * to_u64(self.options.page_bytes));
    }
}
