//! The allocator of pages: which pages of the file are free.
//!
//! How: a bit for each page, in memory. On disk each extent of `granularity` pages begins with a
//! map page, as of the last checkpoint that has it. The file grows by whole extents. Why bits: they
//! find the runs of pages that large values need.
//!
//! A map page (kind 5) has the header of every page, and from byte 32 on a bit for each page of the
//! extent: 1 if the page is used. The extent's first page is the lowest bit of the first byte.
//!
//! The allocator has three states: now, at the checkpoint that is being written, and at the last
//! durable one. A page can be allocated only if it is free in all three. Until the next checkpoint
//! is durable, recovery may need the content of a page that was freed since. So a page that is new
//! at a checkpoint is written to its place before the checkpoint is durable, and needs no journal.
//!
//! Invariants: pages 0 (meta), 1 (map) and 2 (root) are always used, and so is the first page of
//! every further extent (its map).
//!
//! Threads: any thread; one lock.
//!
//! Differences from the paper (ckvs): a bitmap instead of a stack of page numbers. A stack cannot
//! find a run of free pages, and takes ten times the bytes.

use crate::{
    bptree::page_cache::PageId,
    util::{
        codec::{low_u32, to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicBool, AtomicU64, Mutex, Ordering, lock},
    },
};

/// Offset of the bits in a map page.
pub const MAP_HEAD_BYTES: usize = 32;

/// A bit for each page.
pub type Bits = Vec<u64>;

/// How a checkpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckpointEnd {
    /// It is durable.
    Durable,
    /// It failed, and a crash does not leave it.
    Revoked,
    /// It failed, and a crash may leave it or not.
    InDoubt,
}

#[derive(Debug, Default)]
struct AllocatorState {
    used: Bits,
    /// At the checkpoint that is being written.
    checkpoint: Option<Bits>,
    /// At the last durable checkpoint.
    durable: Bits,
    /// At later checkpoints that failed and may be durable or not.
    doubtful: Bits,
    /// Reserved for a load that is not part of the tree yet: used at no checkpoint.
    reserved: Bits,
    /// Where the search for more reserved pages continues.
    reserved_end: u64,
    /// Extents whose maps changed since the last checkpoint.
    changed: Vec<bool>,
    /// Free pages whose disk space was released.
    holes: Bits,
    /// Where the search for single pages continues, as a word of `used`.
    hand: usize,
}

impl AllocatorState {
    /// Returns the pages of a word that are used, or were in a state that recovery may need.
    fn unavailable(&self, word: usize) -> u64 {
        let bits = |bits: &Bits| bits.get(word).copied().unwrap_or(0);
        mutant!(SpaceReusesTooEarly => return bits(&self.used));
        let needed = bits(&self.durable) | bits(&self.doubtful);
        bits(&self.used) | bits(&self.reserved) | needed | self.checkpoint.as_ref().map_or(0, bits)
    }

    /// Records that the map of a page's extent changed since the last checkpoint.
    fn mark_map_changed(&mut self, page: u64, granularity: u64) {
        if let Some(changed) = self.changed.get_mut(to_usize(page / granularity)) {
            *changed = true;
        }
    }
}

/// The page allocator of a file. See the module documentation.
#[derive(Debug)]
pub struct PageAllocator {
    state: Mutex<AllocatorState>,
    /// Number of pages of an extent: a multiple of 64.
    granularity: u64,
    used_count: AtomicU64,
    end: AtomicU64,
    /// Whether values were written directly since the last checkpoint.
    written_directly: AtomicBool,
    hole_count: AtomicU64,
}

fn bit(page: u64) -> (usize, u64) {
    (to_usize(page / 64), 1 << (page % 64))
}

/// Whether the bit of a page is set.
pub fn is_set(bits: &[u64], page: u64) -> bool {
    let (word, mask) = bit(page);
    bits.get(word).is_some_and(|word| word & mask != 0)
}

impl PageAllocator {
    /// Returns the allocator of a file whose maps are `used`; empty for a new file.
    pub fn new(granularity: u64, used: Bits) -> Self {
        let allocator = Self {
            state: Mutex::new(AllocatorState::default()),
            granularity,
            used_count: AtomicU64::new(0),
            end: AtomicU64::new(0),
            written_directly: AtomicBool::new(false),
            hole_count: AtomicU64::new(0),
        };
        {
            let mut state = lock(&allocator.state);
            if used.is_empty() {
                allocator.extend(&mut state);
                if let Some(first) = state.used.first_mut() {
                    *first |= 0b111;
                }
            } else {
                state.changed = vec![false; to_usize(to_u64(used.len()) * 64 / granularity)];
                allocator.end.store(to_u64(used.len()) * 64, Ordering::Relaxed);
                state.durable.clone_from(&used);
                state.used = used;
            }
            let count: u32 = state.used.iter().map(|word| word.count_ones()).sum();
            allocator.used_count.store(u64::from(count), Ordering::Relaxed);
        }
        allocator
    }

    /// Returns the number of pages of the file.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Returns the number of pages of an extent.
    pub const fn granularity(&self) -> u64 {
        self.granularity
    }

    /// Returns the pages used at the last durable checkpoint.
    pub fn durable(&self) -> Bits {
        lock(&self.state).durable.clone()
    }

    /// Returns the number of used pages.
    pub fn used(&self) -> u64 {
        self.used_count.load(Ordering::Relaxed)
    }

    /// Adds an extent.
    fn extend(&self, state: &mut AllocatorState) {
        let start = to_u64(state.used.len()) * 64;
        state.used.resize(state.used.len() + to_usize(self.granularity / 64), 0);
        state.changed.push(true);
        self.end.store(start + self.granularity, Ordering::Relaxed);
        let (word, mask) = bit(start);
        if let Some(word) = state.used.get_mut(word).filter(|_| start > 0) {
            *word |= mask;
            self.used_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether a page is the first of an extent: its map, or the meta page.
    const fn is_map(&self, page: u64) -> bool {
        page.is_multiple_of(self.granularity)
    }

    /// Returns page number `step` of a run, which skips the maps.
    pub fn page_at(&self, first: PageId, step: u64) -> PageId {
        let (extent, index) =
            (u64::from(first.0) / self.granularity, u64::from(first.0) % self.granularity);
        let per_extent = self.granularity - 1;
        let index = index.saturating_sub(1) + step;
        let extent = extent + index / per_extent;
        PageId(low_u32(extent * self.granularity + index % per_extent + 1))
    }

    /// Returns the number of pages from `page` on before the next map.
    pub fn contiguous(&self, page: PageId) -> u64 {
        self.granularity - u64::from(page.0) % self.granularity
    }

    fn mark(&self, state: &mut AllocatorState, first: u64, count: u64, used: bool) {
        for step in 0..count {
            let page = u64::from(self.page_at(PageId(low_u32(first)), step).0);
            let (word, mask) = bit(page);
            if let Some(word) = state.used.get_mut(word) {
                debug_assert!((*word & mask != 0) != used, "page {page} is {used} already");
                *word = if used { *word | mask } else { *word & !mask };
            }
            let hole = state.holes.get_mut(word).filter(|hole| **hole & mask != 0);
            if let Some(hole) = hole {
                *hole &= !mask;
                self.hole_count.fetch_sub(1, Ordering::Relaxed);
            }
            state.mark_map_changed(page, self.granularity);
        }
        if used {
            self.used_count.fetch_add(count, Ordering::Relaxed);
        } else {
            self.used_count.fetch_sub(count, Ordering::Relaxed);
        }
    }

    /// Allocates a page.
    pub fn allocate(&self) -> PageId {
        let mut state = lock(&self.state);
        loop {
            let hand = state.hand;
            let mut rest = hand..state.used.len();
            if let Some(word) = rest.find(|word| state.unavailable(*word) != u64::MAX) {
                let page = to_u64(word) * 64 + u64::from(state.unavailable(word).trailing_ones());
                state.hand = word;
                self.mark(&mut state, page, 1, true);
                return PageId(low_u32(page));
            }
            self.extend(&mut state);
        }
    }

    /// Allocates a run of `count` pages, which skips the maps. `directly`: they are written to
    /// before the next checkpoint.
    pub fn allocate_run(&self, count: u64, directly: bool) -> PageId {
        if count == 1 && !directly {
            return self.allocate();
        }
        let mut state = lock(&self.state);
        if directly {
            self.written_directly.store(true, Ordering::Relaxed);
        }
        let first = self.find_run(&mut state, count, 0);
        self.mark(&mut state, first, count, true);
        PageId(low_u32(first))
    }

    /// Returns the first run of `count` free pages from `page` on. Extends the file if there is
    /// none.
    fn find_run(&self, state: &mut AllocatorState, count: u64, mut page: u64) -> u64 {
        let (mut run, mut first) = (0, 0);
        loop {
            let end = to_u64(state.used.len()) * 64;
            while page < end {
                if self.is_map(page) {
                    page += 1;
                    continue;
                }
                let (word, _) = bit(page);
                let unavailable = state.unavailable(word);
                if unavailable == u64::MAX {
                    run = 0;
                    page = (page | 63) + 1;
                    continue;
                }
                if unavailable & (1 << (page % 64)) != 0 {
                    run = 0;
                } else {
                    first = if run == 0 { page } else { first };
                    run += 1;
                }
                page += 1;
                if run == count {
                    return first;
                }
            }
            self.extend(state);
        }
    }

    /// Reserves a run of `count` pages, which skips the maps, for a load: used once the load is
    /// adopted, free again if it is not. Runs ascend.
    pub fn reserve(&self, count: u64) -> PageId {
        let mut state = lock(&self.state);
        let from = state.reserved_end;
        let first = self.find_run(&mut state, count, from);
        let length = state.used.len();
        state.reserved.resize(length, 0);
        for step in 0..count {
            let page = u64::from(self.page_at(PageId(low_u32(first)), step).0);
            let (word, mask) = bit(page);
            if let Some(word) = state.reserved.get_mut(word) {
                *word |= mask;
            }
            if let Some(hole) = state.holes.get_mut(word).filter(|hole| **hole & mask != 0) {
                *hole &= !mask;
                self.hole_count.fetch_sub(1, Ordering::Relaxed);
            }
            state.reserved_end = page + 1;
        }
        PageId(low_u32(first))
    }

    /// Marks the reserved pages as used, and `freed` (first and count) as free. Returns the former.
    pub fn adopt(&self, freed: &[(PageId, u64)]) -> Bits {
        let mut state = lock(&self.state);
        state.reserved_end = 0;
        let loaded = std::mem::take(&mut state.reserved);
        self.mark_all(&mut state, &loaded, true);
        for (first, count) in freed {
            self.mark(&mut state, u64::from(first.0), *count, false);
        }
        mutant!(LoadSkipsSync => return loaded);
        self.written_directly.store(true, Ordering::Relaxed);
        loaded
    }

    /// Undoes [`PageAllocator::adopt`]: the load's pages are reserved again.
    pub fn disown(&self, loaded: Bits, freed: &[(PageId, u64)]) {
        let mut state = lock(&self.state);
        self.mark_all(&mut state, &loaded, false);
        state.reserved = loaded;
        for (first, count) in freed {
            self.mark(&mut state, u64::from(first.0), *count, true);
        }
    }

    /// Frees the reserved pages. Calls `punch_holes` for each run of them that recovery cannot
    /// need, first and count, before they can be allocated.
    pub fn free_reserved(&self, mut punch_holes: impl FnMut(u64, u64)) {
        let mut state = lock(&self.state);
        let mut reserved = std::mem::take(&mut state.reserved);
        state.reserved_end = 0;
        for (index, word) in reserved.iter_mut().enumerate() {
            *word &= !state.unavailable(index);
        }
        let (mut page, end) = (0, to_u64(reserved.len()) * 64);
        while page < end {
            let count = (page..end).take_while(|page| is_set(&reserved, *page)).count();
            if count > 0 {
                punch_holes(page, to_u64(count));
            }
            page += to_u64(count) + 1;
        }
    }

    /// Marks all pages of a set as used or free.
    fn mark_all(&self, state: &mut AllocatorState, pages: &Bits, used: bool) {
        let mut count = 0;
        for (index, pages) in pages.iter().enumerate().filter(|(_, pages)| **pages != 0) {
            if let Some(word) = state.used.get_mut(index) {
                *word = if used { *word | pages } else { *word & !pages };
            }
            state.mark_map_changed(to_u64(index) * 64, self.granularity);
            count += u64::from(pages.count_ones());
        }
        if used {
            self.used_count.fetch_add(count, Ordering::Relaxed);
        } else {
            self.used_count.fetch_sub(count, Ordering::Relaxed);
        }
    }

    /// Frees pages.
    pub fn free(&self, first: PageId, count: u64) {
        let mut state = lock(&self.state);
        let first = u64::from(first.0);
        self.mark(&mut state, first, count, false);
        state.hand = state.hand.min(to_usize(first / 64));
    }

    /// Begins a checkpoint. Returns the maps that must be written, each with its page. The caller
    /// keeps all writers out.
    pub fn begin_checkpoint(&self) -> Vec<(PageId, Bits)> {
        let mut state = lock(&self.state);
        let per_extent = to_usize(self.granularity / 64);
        let changed = std::mem::take(&mut state.changed);
        state.changed = vec![false; changed.len()];
        let extents = changed.iter().enumerate().filter(|(_, changed)| **changed);
        let maps = extents.map(|(extent, _)| {
            let words = extent * per_extent;
            let bits = state.used.get(words..words + per_extent).unwrap_or(&[]).to_vec();
            (self.map_page(to_u64(extent)), bits)
        });
        let maps = maps.collect();
        state.checkpoint = Some(state.used.clone());
        maps
    }

    /// Returns the pages that were used at an earlier checkpoint and are free at the one being
    /// written.
    pub fn freed_at_checkpoint(&self) -> Vec<PageId> {
        let state = lock(&self.state);
        let Some(checkpoint) = &state.checkpoint else { return Vec::new() };
        let mut freed = Vec::new();
        for (index, checkpoint) in checkpoint.iter().enumerate() {
            let bits = |bits: &Bits| bits.get(index).copied().unwrap_or(0);
            let mut removed = (bits(&state.durable) | bits(&state.doubtful)) & !checkpoint;
            while removed != 0 {
                freed.push(PageId(low_u32(to_u64(index) * 64) + removed.trailing_zeros()));
                removed &= removed - 1;
            }
        }
        freed
    }

    /// Returns the pages used at the checkpoint being written that no state has which recovery may
    /// need, except the first pages of a table.
    pub fn fresh_at_checkpoint(&self) -> Bits {
        let state = lock(&self.state);
        let mut fresh = state.checkpoint.clone().unwrap_or_default();
        for (index, word) in fresh.iter_mut().enumerate() {
            let bits = |bits: &Bits| bits.get(index).copied().unwrap_or(0);
            *word &= !(bits(&state.durable) | bits(&state.doubtful));
        }
        if let Some(first) = fresh.first_mut() {
            *first &= !0b111;
        }
        fresh
    }

    /// Returns the pages used at the checkpoint being written.
    pub fn used_at_checkpoint(&self) -> Bits {
        lock(&self.state).checkpoint.clone().unwrap_or_default()
    }

    /// Returns the map page of an extent: its first page, but page 1 for the first extent, which
    /// begins with the meta page.
    pub fn map_page(&self, extent: u64) -> PageId {
        map_page(extent, self.granularity)
    }

    /// Returns whether values were written directly since the last call.
    pub fn take_direct_write_flag(&self) -> bool {
        self.written_directly.swap(false, Ordering::Relaxed)
    }

    /// Ends a checkpoint.
    pub fn end_checkpoint(&self, end: CheckpointEnd) {
        let mut state = lock(&self.state);
        let Some(checkpoint) = state.checkpoint.take() else { return };
        if end == CheckpointEnd::Durable {
            state.durable = checkpoint;
            state.doubtful.clear();
            // Pages that were freed before the checkpoint can be allocated from now on.
            state.hand = 0;
            return;
        }
        if end == CheckpointEnd::InDoubt {
            let length = state.doubtful.len().max(checkpoint.len());
            state.doubtful.resize(length, 0);
            for (doubtful, checkpoint) in state.doubtful.iter_mut().zip(checkpoint) {
                *doubtful |= checkpoint;
            }
        }
        // It is unknown which maps were written: write all again.
        state.changed.fill(true);
        self.written_directly.store(true, Ordering::Relaxed);
    }

    /// Calls `punch_holes` for each run of pages that are free, now and for recovery, and still
    /// have disk space: first and count. No page is allocated meanwhile.
    pub fn punch_holes<E>(
        &self,
        mut punch_holes: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        state.holes.resize(state.used.len(), 0);
        let mut page = 0;
        let end = to_u64(state.durable.len()) * 64;
        let idle = |state: &AllocatorState, page| {
            let bits =
                [&state.used, &state.durable, &state.doubtful, &state.holes, &state.reserved];
            page < end && !bits.iter().any(|bits| is_set(bits, page))
        };
        while page < end {
            let first = page;
            while idle(state, page) {
                page += 1;
            }
            if page == first {
                page += 1;
                continue;
            }
            punch_holes(first, page - first)?;
            for hole in first..page {
                let (word, mask) = bit(hole);
                if let Some(word) = state.holes.get_mut(word) {
                    *word |= mask;
                }
            }
            self.hole_count.fetch_add(page - first, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the number of free pages whose disk space was released.
    pub fn holes(&self) -> u64 {
        self.hole_count.load(Ordering::Relaxed)
    }
}

/// Returns the pages of a set.
pub fn pages_of(bits: &Bits) -> impl Iterator<Item = PageId> {
    let words = (0_u32..).step_by(64).zip(bits).filter(|(_, bits)| **bits != 0);
    words.flat_map(|(first, bits)| {
        (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| PageId(first + bit))
    })
}

/// Returns the map page of an extent.
pub fn map_page(extent: u64, granularity: u64) -> PageId {
    if extent == 0 { PageId(1) } else { PageId(low_u32(extent * granularity)) }
}

#[cfg(test)]
#[cfg(not(model))]
mod tests {
    use super::*;

    #[test]
    fn the_file_grows_by_extents_that_begin_with_their_map() {
        let allocator = PageAllocator::new(64, Bits::new());
        let pages: Vec<u32> = (0..200).map(|_| allocator.allocate().0).collect();
        assert!(pages.iter().all(|page| page % 64 != 0 && *page > 2));
        assert!(pages.is_sorted());
        assert_eq!(allocator.end(), 256);
        assert_eq!(allocator.used(), 200 + 3 + 3);
        allocator.free(PageId(70), 1);
        allocator.free(PageId(5), 1);
        assert_eq!((allocator.allocate(), allocator.allocate()), (PageId(5), PageId(70)));
        assert_eq!(allocator.map_page(0), PageId(1));
        assert_eq!(allocator.map_page(2), PageId(128));
    }

    #[test]
    fn runs_are_in_one_piece_and_avoid_what_recovery_needs() {
        let allocator = PageAllocator::new(64, Bits::new());
        let first = allocator.allocate_run(10, false);
        assert_eq!(first, PageId(3));
        let maps = allocator.begin_checkpoint();
        assert_eq!(maps.len(), 1);
        assert_eq!(maps[0].0, PageId(1));
        allocator.end_checkpoint(CheckpointEnd::Durable);
        allocator.free(first, 10);
        let mut runs = Vec::new();
        let mut note = |first, count| {
            runs.push((first, count));
            Ok::<_, ()>(())
        };
        allocator.punch_holes(&mut note).unwrap();
        allocator.punch_holes(&mut note).unwrap();
        assert_eq!(runs, [(13, 51)]);
        assert_eq!(allocator.holes(), 51);
        assert_eq!(allocator.allocate_run(5, true), PageId(13));
        assert!(allocator.take_direct_write_flag());
        assert_eq!(
            allocator.allocate_run(5, false),
            PageId(18),
            "the durable checkpoint has the first ten"
        );
        let long = allocator.allocate_run(100, false);
        assert_eq!(long, PageId(23));
        let pages: Vec<u32> = (0..100).map(|step| allocator.page_at(long, step).0).collect();
        let expected: Vec<u32> = (23..125).filter(|page| page % 64 != 0).take(100).collect();
        assert_eq!(pages, expected);
        assert_eq!((allocator.contiguous(long), allocator.contiguous(PageId(65))), (41, 63));
        allocator.begin_checkpoint();
        allocator.free(PageId(13), 5);
        assert_ne!(
            allocator.allocate_run(2, true),
            PageId(13),
            "the checkpoint may still need them"
        );
        allocator.end_checkpoint(CheckpointEnd::InDoubt);
        assert_eq!(allocator.begin_checkpoint().len(), 2, "all maps are written again");
        allocator.free(long, 100);
        assert_eq!(
            allocator.allocate_run(100, false),
            PageId(126),
            "behind all that may be durable"
        );
    }
}
