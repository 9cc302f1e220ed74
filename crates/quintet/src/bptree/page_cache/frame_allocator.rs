//! Allocation of frames: from the free list, new ones within the capacity, or evicted ones.
//!
//! Invariants: if all frames are in use or dirty, the cache exceeds its capacity and counts that.
//! It may do so up to its address space. Then an allocation waits for a checkpoint, a bounded
//! number of times, and fails.

use super::{
    cache::PageCache,
    descriptor::{LATCH, MASK, NEXT, NO_PAGE, PAGE},
    latch,
};
use crate::{
    Error, Result,
    util::{
        codec::{low_u32, to_u64},
        mutant::mutant,
        sync::{Backoff, Ordering, lock},
    },
};

/// Number of frames that the cache grows by.
const GROWTH_FRAMES: u64 = 16;
/// Maximum size of the frames prepared in advance, and of one preparation step, in bytes.
const READY_BYTES_MAX: u64 = 256 << 20;
const READY_STEP_BYTES: u64 = 2 << 20;
/// Number of failed searches for a victim before the cache exceeds its capacity.
const SEARCHES: u32 = 64;
/// Number of searches before an allocation fails: about a quarter of a second. A checkpoint of
/// another thread may make pages evictable meanwhile.
const SEARCHES_MAX: u32 = 4096;
/// The cache exceeds its capacity at once if at most this many frames have an evictable page: those
/// are probably pinned or latched.
const EVICTABLE_FEW: u64 = 16;

/// How frames are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// Only within capacity and budget.
    May,
    /// Also beyond capacity and budget.
    Must,
    /// Only within capacity and budget; touches the memory.
    Ready,
}

impl PageCache {
    /// Allocates the frames of [`super::CacheOptions::frames_min`].
    pub(super) fn allocate_frames_min(&self) {
        self.grow(self.options.frames_min, Growth::Must);
    }

    /// Returns a latched frame without a page: free, newly allocated or evicted. Fails with
    /// `OutOfMemory` if the address space is used up and every page is dirty, pinned or latched.
    pub(super) fn allocate_frame(&self) -> Result<u32> {
        let mut backoff = Backoff::default();
        for search in 0..SEARCHES_MAX {
            if let Some(frame) = self.free.pop(|frame| self.word(frame, NEXT)) {
                self.free_count.fetch_sub(1, Ordering::Relaxed);
                if let Some(word) = self.word(frame, LATCH) {
                    latch::lock(word);
                }
                return Ok(frame);
            }
            if self.grow(GROWTH_FRAMES, Growth::May) {
                continue;
            }
            if let Some(frame) = self.evict() {
                return Ok(frame);
            }
            let is_full = self.unevictable_count() + EVICTABLE_FEW >= self.frames();
            if !(is_full || search > SEARCHES) || !self.grow(GROWTH_FRAMES, Growth::Must) {
                backoff.wait();
            }
        }
        Err(self.no_frame())
    }

    /// Returns the error for an access that gets no frame.
    #[cold]
    pub(super) fn no_frame(&self) -> Error {
        let needed = self.memory_bytes() + GROWTH_FRAMES * self.frame_cost();
        Error::OutOfMemory { budget: self.budget.limit(), needed }
    }

    /// Frees a latched frame that is in no chain.
    pub(super) fn release(&self, frame: u32) {
        self.set(frame, MASK, 0);
        self.set_page_state(frame, 0, 0);
        if let Some(word) = self.word(frame, LATCH) {
            latch::unlock(word);
        }
        self.push_free(frame);
    }

    fn push_free(&self, frame: u32) {
        self.free_count.fetch_add(1, Ordering::Relaxed);
        self.free.push(frame, |frame| self.word(frame, NEXT));
    }

    /// Allocates as many frames as were filled since the last call, less the free ones, and touches
    /// their memory. Otherwise a writer would wait milliseconds for each huge page.
    pub fn prepare_frames(&self) {
        let free = || self.free_count.load(Ordering::Relaxed);
        let filled = self.frames().saturating_sub(free());
        let before = self.filled_before.swap(filled, Ordering::Relaxed);
        let page_bytes = to_u64(self.options.page_bytes);
        let wanted = filled.saturating_sub(before).min(READY_BYTES_MAX / page_bytes);
        while free() < wanted && self.grow(READY_STEP_BYTES / page_bytes, Growth::Ready) {}
    }

    /// Allocates frames. Exceeds capacity and budget only for [`Growth::Must`], and the address
    /// space never. Returns whether it allocated some.
    fn grow(&self, count: u64, growth: Growth) -> bool {
        let must = growth == Growth::Must;
        if !must && self.frames() >= self.options.frames_max {
            return false;
        }
        let _growing = lock(&self.growing);
        let made = self.frames();
        let count = if must {
            let has_addresses = made + count <= self.frames_possible();
            if !mutant!(CacheExceedsAddresses: true, else has_addresses) {
                return false;
            }
            self.budget.reserve_unchecked(count * self.frame_cost());
            self.overflows.fetch_add(if made > 0 { count } else { 0 }, Ordering::Relaxed);
            count
        } else {
            let count = count.min(self.options.frames_max.saturating_sub(made));
            if count == 0 || !self.reserve_memory(count * self.frame_cost()) {
                return false;
            }
            count
        };
        if growth == Growth::Ready {
            let page_bytes = to_u64(self.options.page_bytes);
            self.frames.populate(made * page_bytes..(made + count) * page_bytes);
        }
        for number in made..made + count {
            self.set(low_u32(number), PAGE, NO_PAGE);
            self.push_free(low_u32(number));
        }
        self.made.store(made + count, Ordering::Release);
        true
    }

    /// Reserves memory for frames. Returns whether the budget had it.
    fn reserve_memory(&self, cost: u64) -> bool {
        if self.options.may_reclaim_others {
            return self.budget.reserve(cost).is_ok();
        }
        self.budget.used() + cost + self.left_to_others() <= self.budget.limit()
            && self.budget.try_reserve(cost).is_ok()
    }

    /// Returns the bytes of the budget that are left to other tables.
    pub(super) fn left_to_others(&self) -> u64 {
        if self.options.may_reclaim_others { 0 } else { self.budget.limit() / 8 }
    }
}
