//! Cuts: the dirty pages of one moment, as they were at it.
//!
//! A page of a cut is *journaled* once its changes are in the journal, and *placed* once they are
//! in the file. Most cuts are journaled only: their pages stay in the cache, with the units that
//! the file lacks noted, and a later cut places them, all cuts together, the oldest first. A page
//! that no durable cut has is *fresh*: it is placed before its cut is durable, and not journaled.
//!
//! Whoever changes a page of a cut that is not finished saves the units that it changes first, each
//! once; the image of the page is what its frame has with these over it. A whole page copied by
//! each writer that comes to one took 4 to 5 us of most of them, where a put changes a twentieth.
//!
//! Invariants: one cut at a time; a page of a cut that is not finished stays in its frame as it
//! was, or what changes of it is saved before; a page that leaves its frame is saved whole.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use super::{EPOCH, KEPT, LATCH, MASK, PAGE, PENDING, PageCache, PageId, checksum, latch};
use crate::{
    bptree::page_cache::page_bytes::{PageWords, UNITS},
    util::{
        codec::{low_u8, low_u32, to_u64, to_usize},
        mutant::{self, Bug},
        sync::{AtomicU64, Ordering, lock},
    },
};

/// In the word of those who keep a page: the cut that is not finished has something saved of it.
pub(super) const SAVED: u64 = 1 << 63;
/// What a page of which something is saved takes in memory beside it.
const SAVED_BYTES: u64 = 128;
/// Units that a change of one entry changes, about.
const USUAL_UNITS: usize = 6;

/// Pages by number, whose low bits spread them evenly.
#[derive(Debug, Default)]
pub(super) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Pages of which something is saved.
pub(super) type SavedPages = HashMap<PageId, Saved, BuildHasherDefault<ByNumber>>;

/// A page's state at a cut: what is not as it was any more.
#[derive(Debug)]
pub(super) struct Saved {
    /// Units, in the order in which they changed, and the bits of them.
    words: Vec<u64>,
    order: Vec<u8>,
    units: u64,
    mask: u64,
    pending: u64,
}

impl Saved {
    fn memory_bytes(&self) -> u64 {
        SAVED_BYTES + to_u64(self.words.len() * 8)
    }

    /// Puts back what changed.
    fn restore(&self, page: &mut [u8]) {
        let unit = page.len() / UNITS;
        for (words, number) in self.words.chunks_exact((unit / 8).max(1)).zip(&self.order) {
            let start = usize::from(*number) * unit;
            let bytes = page.get_mut(start..start + unit).unwrap_or(&mut []);
            for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// What an image differs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// From the cut before.
    pub changed: u64,
    /// From the file.
    pub unplaced: u64,
}

/// A page that is journaled and not placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWriteBack {
    page: PageId,
    frame: u32,
    /// The first group of the journal that has it, at the earliest.
    group: u64,
}

/// The pages of a cut. Hand it back to [`PageCache::finish`] or [`PageCache::abandon`].
#[derive(Debug)]
pub struct CacheCheckpoint {
    pages: Vec<(PageId, u32)>,
    /// Frames of those that are to be placed, ascending.
    placed: Vec<u32>,
    /// A bit for each page that no durable cut has.
    fresh: Vec<u64>,
    epoch: u64,
    /// The group of the journal that it will be, at the earliest.
    group: u64,
}

impl CacheCheckpoint {
    /// The pages and their places, in no order; a page may be there twice, or not be dirty.
    pub fn pages(&self) -> &[(PageId, u32)] {
        &self.pages
    }

    /// Says which pages no durable cut has: a bit for each.
    #[must_use]
    pub fn with_fresh(mut self, fresh: Vec<u64>) -> Self {
        self.fresh = fresh;
        self
    }

    /// Whether no durable cut has the page.
    pub fn is_fresh(&self, page: PageId) -> bool {
        is_in(&self.fresh, page)
    }

    /// Whether the page in a frame is to be placed with the cut; others are journaled only.
    pub fn is_placed(&self, frame: u32) -> bool {
        self.placed.binary_search(&frame).is_ok()
    }

    /// How many are to be placed.
    pub fn placed_count(&self) -> usize {
        self.placed.len()
    }
}

/// Whether the bit of a page is set.
fn is_in(bits: &[u64], page: PageId) -> bool {
    let word = bits.get(to_usize(u64::from(page.0 / 64)));
    word.is_some_and(|word| word >> (page.0 % 64) & 1 == 1)
}

impl PageCache {
    /// Notes, under the frame's latch and before the change, that a page changes. Says whether
    /// what changes is to be saved.
    pub(super) fn note_change(&self, frame: u32) -> bool {
        let current = self.epoch.load(Ordering::Acquire);
        let before = self.get(frame, EPOCH);
        if before == current {
            return self.get(frame, KEPT) & SAVED != 0;
        }
        let page = PageId(low_u32(self.get(frame, PAGE)));
        self.take_overlay((page, frame));
        let is_cut = before != 0 && !mutant::active(Bug::CutSeesLaterChanges);
        if is_cut {
            let (mask, pending) = (self.get(frame, MASK), self.get(frame, PENDING));
            let unit = self.options.page_bytes / UNITS / 8;
            let words = Vec::with_capacity(USUAL_UNITS * unit);
            let order = Vec::with_capacity(USUAL_UNITS);
            let saved = Saved { words, order, units: 0, mask, pending };
            self.budget.reserve_unchecked(saved.memory_bytes());
            self.saved_total.fetch_add(1, Ordering::Relaxed);
            lock(&self.saved).insert(page, saved);
            if let Some(word) = self.word(frame, KEPT) {
                word.fetch_or(SAVED, Ordering::Relaxed);
            }
        }
        self.set(frame, MASK, 0);
        self.mark(frame, current, self.get(frame, PENDING));
        lock(&self.dirty).push((page, frame));
        is_cut
    }

    /// Units of the page in a latched frame that a cut needs as they are.
    #[cold]
    pub(super) fn unsaved_units(&self, frame: u32) -> u64 {
        let page = PageId(low_u32(self.get(frame, PAGE)));
        lock(&self.saved).get(&page).map_or(0, |saved| !saved.units)
    }

    /// Saves units of the page in a latched frame, for the cut that needs them.
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

    /// Saves all of the page in a latched frame, if a cut needs something of it: what it holds from
    /// now on is nobody's.
    pub(super) fn save_all(&self, frame: u32) {
        if self.get(frame, KEPT) & SAVED != 0 {
            self.save_units(frame, u64::MAX);
            self.forget_saved(frame);
        }
    }

    /// No cut needs what a latched frame holds.
    fn forget_saved(&self, frame: u32) {
        if let Some(word) = self.word(frame, KEPT)
            && word.load(Ordering::Relaxed) & SAVED != 0
        {
            word.fetch_and(!SAVED, Ordering::Relaxed);
        }
    }

    /// Makes every dirty page part of a cut, and lets changes from now on count as later ones.
    /// `group` is the group of the journal that it will be, at the earliest; `placed` are frames of
    /// pages to be placed with it. The caller keeps all writers out for the call, and has finished
    /// the cut before.
    pub fn cut(&self, group: u64, mut placed: Vec<u32>) -> CacheCheckpoint {
        self.changed_bytes.store(0, Ordering::Relaxed);
        let epoch = self.epoch.fetch_add(1, Ordering::AcqRel);
        placed.sort_unstable();
        placed.dedup();
        let (pages, fresh) = (std::mem::take(&mut *lock(&self.dirty)), Vec::new());
        CacheCheckpoint { pages, placed, fresh, epoch, group }
    }

    /// Makes `count` pages that are not placed part of the cut to come, the oldest first, but for
    /// those that `is_used` says are free; if these are not so many, dirty ones too. Returns their
    /// frames. The caller keeps all writers out.
    pub fn join_unplaced(&self, count: usize, is_used: impl Fn(PageId) -> bool) -> Vec<u32> {
        let current = self.epoch.load(Ordering::Acquire);
        let mut dirty = lock(&self.dirty);
        let mut unplaced = lock(&self.unplaced);
        let mut joined = Vec::new();
        while joined.len() < count
            && let Some(PendingWriteBack { page, frame, .. }) = unplaced.pop_front()
        {
            let there = self.get(frame, PAGE) == u64::from(page.0);
            if !there || self.get(frame, PENDING) == 0 {
                continue;
            }
            if !is_used(page) {
                self.mark(frame, self.get(frame, EPOCH), 0);
                continue;
            }
            if self.get(frame, EPOCH) == 0 {
                self.mark(frame, current, self.get(frame, PENDING));
                dirty.push((page, frame));
            }
            joined.push(frame);
        }
        let more = count - joined.len();
        joined.extend(dirty.iter().take(more).map(|(_, frame)| *frame));
        joined
    }

    /// The oldest group of the journal that has a page which is not placed, at the earliest;
    /// `None`: all are.
    pub fn oldest_unplaced(&self) -> Option<u64> {
        let mut unplaced = lock(&self.unplaced);
        while let Some(PendingWriteBack { page, frame, group }) = unplaced.front().copied() {
            let there = self.get(frame, PAGE) == u64::from(page.0);
            if there && self.get(frame, PENDING) != 0 {
                return Some(group);
            }
            unplaced.pop_front();
        }
        None
    }

    /// Sets the epoch of a latched frame's changes and the units that the file lacks.
    pub(super) fn mark(&self, frame: u32, epoch: u64, pending: u64) {
        let before = (self.get(frame, EPOCH), self.get(frame, PENDING));
        self.set(frame, EPOCH, epoch);
        self.set(frame, PENDING, pending);
        let turn = |count: &AtomicU64, before: bool, after: bool| match (before, after) {
            (false, true) => _ = count.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = count.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        };
        turn(&self.dirty_count, before.0 != 0, epoch != 0);
        turn(&self.unplaced_count, before.1 != 0, pending != 0);
        turn(&self.kept_count, before != (0, 0), (epoch, pending) != (0, 0));
    }

    /// Notes that the file lacks units of a latched frame, which are in the journal from this
    /// group on; 0: from any.
    pub(super) fn add_pending(&self, (page, frame): (PageId, u32), units: u64, group: u64) {
        let before = self.get(frame, PENDING);
        if before == 0 && units != 0 {
            self.push_unplaced(PendingWriteBack { page, frame, group });
        }
        self.mark(frame, self.get(frame, EPOCH), before | units);
    }

    fn push_unplaced(&self, entry: PendingWriteBack) {
        let mut unplaced = lock(&self.unplaced);
        if entry.group == 0 {
            unplaced.push_front(entry);
        } else {
            unplaced.push_back(entry);
        }
    }

    /// A page of a cut as it was then, checksum included, and what it differs in; `None` where the
    /// page was given up before the cut. One that is not placed with the cut leaves it.
    pub fn image(
        &self,
        cut: &CacheCheckpoint,
        (page, frame): (PageId, u32),
        out: &mut [u8],
    ) -> Option<Units> {
        let word = self.word(frame, LATCH)?;
        latch::lock(word);
        let units = self.latched_image(cut, (page, frame), out);
        latch::unlock(word);
        let mut units = units?;
        let checksum = checksum(self.options.salt, out);
        if let Some(head) = out.first_chunk_mut::<4>() {
            *head = checksum.to_le_bytes();
        }
        units.changed |= 1;
        units.unplaced |= units.changed;
        Some(units)
    }

    fn latched_image(
        &self,
        cut: &CacheCheckpoint,
        (page, frame): (PageId, u32),
        out: &mut [u8],
    ) -> Option<Units> {
        let leave = !cut.is_placed(frame);
        let there = self.get(frame, PAGE) == u64::from(page.0);
        if there {
            PageWords::new(self.words(frame)).copy_to(0, out);
        }
        let mut all = lock(&self.saved);
        if leave && let Some(saved) = all.remove(&page) {
            drop(all);
            saved.restore(out);
            self.budget.release(saved.memory_bytes());
            let units = Units { changed: saved.mask, unplaced: saved.pending | saved.mask };
            if there {
                self.forget_saved(frame);
                // One that was given up since has no changes of its own.
                if self.get(frame, EPOCH) != 0 {
                    self.add_pending((page, frame), units.changed | 1, cut.group);
                }
            }
            return Some(units);
        }
        if let Some(saved) = all.get(&page) {
            saved.restore(out);
            return Some(Units { changed: saved.mask, unplaced: saved.pending | saved.mask });
        }
        drop(all);
        if !there || self.get(frame, EPOCH) != cut.epoch {
            return None;
        }
        let (changed, pending) = (self.get(frame, MASK), self.get(frame, PENDING));
        if leave {
            self.add_pending((page, frame), changed | 1, cut.group);
            self.set(frame, MASK, 0);
            self.mark(frame, 0, self.get(frame, PENDING));
        }
        Some(Units { changed, unplaced: pending | changed })
    }

    /// The cut's pages are where they belong: in the journal those that left it, in the file the
    /// others, which are clean unless they changed since.
    pub fn finish(&self, cut: CacheCheckpoint) {
        let CacheCheckpoint { pages, fresh, epoch, .. } = cut;
        for (page, frame) in &pages {
            let Some(word) = self.word(*frame, LATCH) else { continue };
            latch::lock(word);
            let there = self.get(*frame, PAGE) == u64::from(page.0);
            if there {
                self.forget_saved(*frame);
            }
            if there && self.get(*frame, EPOCH) == epoch {
                self.set(*frame, MASK, 0);
                self.mark(*frame, 0, 0);
            } else if there && (is_in(&fresh, *page) || lock(&self.saved).contains_key(page)) {
                self.mark(*frame, self.get(*frame, EPOCH), 0);
            }
            latch::unlock(word);
        }
        self.drop_saved();
    }

    /// The cut did not get where it belongs: its pages belong to the next cut again, whole.
    pub fn abandon(&self, cut: CacheCheckpoint) {
        let current = self.epoch.load(Ordering::Acquire);
        for (page, frame) in cut.pages {
            let Some(word) = self.word(frame, LATCH) else { continue };
            latch::lock(word);
            let (epoch, pending) = (self.get(frame, EPOCH), self.get(frame, PENDING));
            let concerned = epoch != 0 || pending != 0;
            let there = self.get(frame, PAGE) == u64::from(page.0);
            if there {
                self.forget_saved(frame);
            }
            if there && concerned {
                if epoch != current {
                    self.mark(frame, current, pending);
                    lock(&self.dirty).push((page, frame));
                }
                if pending != 0 {
                    self.push_unplaced(PendingWriteBack { page, frame, group: 0 });
                }
                self.set(frame, MASK, u64::MAX);
            }
            latch::unlock(word);
        }
        self.drop_saved();
    }

    pub(super) fn drop_saved(&self) {
        let saved = std::mem::take(&mut *lock(&self.saved));
        self.budget.release(saved.values().map(Saved::memory_bytes).sum());
    }
}
