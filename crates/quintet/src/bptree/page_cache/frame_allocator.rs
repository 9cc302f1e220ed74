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
    contract::MemoryUse,
    util::{
        budget::USES_OF_A_READ,
        codec::{low_u32, to_u64},
        mutant::mutant,
        sync::{Backoff, Ordering, fence, lock},
    },
};

/// Number of frames that the cache grows by.
const GROWTH_FRAMES: u64 = 16;
/// Number of frames of a new cache, and by which it grows to its minimum.
const FRAMES_FIRST: u64 = 8;
/// Maximum size of the frames prepared in advance, and of one preparation step, in bytes.
const READY_BYTES_MAX: u64 = 256 << 20;
const READY_STEP_BYTES: u64 = 2 << 20;
/// Number of allocations after a refused request for memory of other tables until the next one.
const REQUEST_PERIOD: u64 = 64;
/// The part of the budget that is left to others, for memory that they cannot take from the cache.
const LEFT_PART: u64 = 32;
/// Number of failed searches for a victim before the cache exceeds its capacity.
const SEARCHES: u32 = 64;
/// Number of searches before an allocation fails: about a quarter of a second. A checkpoint of
/// another thread may make pages evictable meanwhile.
const SEARCHES_MAX: u32 = 4096;
/// The cache exceeds its capacity at once if at most this many frames have an evictable page: those
/// are probably pinned or latched.
const EVICTABLE_FEW: u64 = 16;
/// Number of evictable pages at which the cache grows rather than evicts one: those of a descent.
const EVICTABLE_MIN: u64 = 8;

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
    /// Allocates the first frames of a new cache.
    pub(super) fn allocate_first_frames(&self) {
        self.grow(FRAMES_FIRST.min(self.options.frames_min), Growth::Must);
    }

    /// Allocates more frames. The first [`super::CacheOptions::frames_min`] need no room in the
    /// budget: a small table takes only those that it uses.
    fn grow_on_demand(&self) -> bool {
        let missing = self.options.frames_min.saturating_sub(self.frames());
        match missing.min(FRAMES_FIRST) {
            0 => self.grow(GROWTH_FRAMES, Growth::May),
            count => self.grow(count, Growth::Must),
        }
    }

    /// Returns a latched frame without a page: free, newly allocated or evicted. Fails with
    /// `OutOfMemory` if the address space is used up and every page is dirty, pinned or latched.
    pub(super) fn allocate_frame(&self) -> Result<u32> {
        self.allocations.fetch_add(1, Ordering::Relaxed);
        let mut backoff = Backoff::default();
        for search in 0..SEARCHES_MAX {
            if let Some(frame) = self.pop_free() {
                return Ok(frame);
            }
            if self.grow_on_demand() {
                continue;
            }
            // With fewer evictable pages than a descent reads, its pages would evict one another.
            let has_too_few = self.unevictable_count() + EVICTABLE_MIN >= self.frames();
            if has_too_few && self.grow(GROWTH_FRAMES, Growth::Must) {
                continue;
            }
            // An eviction visits every frame: without an evictable page it takes milliseconds.
            let may_evict = self.unevictable_count() < self.frames() || search % SEARCHES == 0;
            if let Some(frame) = may_evict.then(|| self.evict()).flatten() {
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
        self.clear(frame);
        self.push_free(frame);
    }

    /// Clears the state of a latched frame that is in no chain, and unlocks it.
    fn clear(&self, frame: u32) {
        self.set(frame, MASK, 0);
        self.set_page_state(frame, 0, 0);
        if let Some(word) = self.word(frame, LATCH) {
            latch::unlock(word);
        }
    }

    /// Pops and latches a free frame.
    fn pop_free(&self) -> Option<u32> {
        let frame = self.free.pop(|frame| self.word(frame, NEXT))?;
        self.free_count.fetch_sub(1, Ordering::Relaxed);
        if let Some(word) = self.word(frame, LATCH) {
            latch::lock(word);
        }
        Some(frame)
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
        let frames = self.frames();
        let count = if must {
            let has_addresses = frames + count <= self.frames_possible();
            if !mutant!(CacheExceedsAddresses: true, else has_addresses) {
                return false;
            }
            self.budget.reserve_unchecked(count * self.frame_cost());
            let is_overflow = frames >= self.options.frames_min;
            self.overflows.fetch_add(if is_overflow { count } else { 0 }, Ordering::Relaxed);
            count
        } else {
            let count = count.min(self.options.frames_max.saturating_sub(frames));
            if count == 0 || !self.reserve_memory(count * self.frame_cost()) {
                return false;
            }
            count
        };
        let restored = self.restore_discarded(count);
        let (made, new) = (self.made.load(Ordering::Relaxed), count - restored);
        if growth == Growth::Ready {
            let page_bytes = to_u64(self.options.page_bytes);
            self.frames.populate(made * page_bytes..(made + new) * page_bytes);
        }
        for number in made..made + new {
            self.set(low_u32(number), PAGE, NO_PAGE);
            self.push_free(low_u32(number));
        }
        self.made.store(made + new, Ordering::Release);
        true
    }

    /// Makes up to `count` discarded frames free again. Returns how many. The caller holds
    /// `growing` and has reserved their memory.
    fn restore_discarded(&self, count: u64) -> u64 {
        for restored in 0..count {
            let Some(frame) = self.discarded.pop(|frame| self.word(frame, NEXT)) else {
                return restored;
            };
            self.discarded_count.fetch_sub(1, Ordering::Relaxed);
            self.push_free(frame);
        }
        count
    }

    /// Reserves memory for frames. Returns whether the budget had it.
    fn reserve_memory(&self, cost: u64) -> bool {
        if self.options.may_reclaim_others {
            return self.budget.reserve(cost).is_ok();
        }
        let reserve = || {
            self.budget.used() + cost + self.left_to_others() <= self.budget.limit()
                && self.budget.try_reserve(cost).is_ok()
        };
        reserve() || self.take_from_others(cost) && self.budget.try_reserve(cost).is_ok()
    }

    /// Takes about `bytes` from tables that use their memory less, if there are any. A refusal
    /// holds for [`REQUEST_PERIOD`] allocations, because a request asks every table of the
    /// database.
    pub(crate) fn take_from_others(&self, bytes: u64) -> bool {
        let allocations = self.allocations.load(Ordering::Relaxed);
        if allocations < self.refused_until.load(Ordering::Relaxed)
            || self.frames() >= self.options.frames_max
        {
            return false;
        }
        let taken = self.budget.reclaim_from_others(self.options.table_id, bytes);
        if !taken {
            self.refused_until.store(allocations + REQUEST_PERIOD, Ordering::Relaxed);
        }
        taken
    }

    /// Returns what [`Self::reclaim`] could release: clean pages and free frames, beyond the floor
    /// and as many frames as are dirty.
    pub(crate) fn memory_use(&self) -> MemoryUse {
        let floor = self.options.frames_min.max(self.budget.table_floor() / self.frame_cost());
        let allocations = self.allocations.load(Ordering::Relaxed);
        let (frames, unevictable) = (self.frames(), self.unevictable_count());
        // As many others are left for changes of other pages.
        let reclaimable = frames.saturating_sub(floor.max(2 * unevictable));
        let unwritten = frames.saturating_sub(floor + reclaimable);
        MemoryUse {
            reclaimable_bytes: reclaimable * self.frame_cost(),
            unwritten_bytes: unwritten * self.frame_cost(),
            uses_total: allocations * USES_OF_A_READ,
        }
    }

    /// Releases about `bytes` for another table: free frames, then pages that eviction chooses.
    /// Takes latches only if they are free.
    pub(crate) fn reclaim(&self, bytes: u64) -> u64 {
        let cost = self.frame_cost();
        let count = bytes.min(self.memory_use().reclaimable_bytes).div_ceil(cost);
        for discarded in 0..count {
            let Some(frame) = self.pop_free().or_else(|| self.evict()) else {
                return discarded * cost;
            };
            self.discard_frame(frame);
        }
        count * cost
    }

    /// Returns the memory of a latched frame without a page to the system.
    fn discard_frame(&self, frame: u32) {
        self.clear(frame);
        // A reader that sees zeros from here on must see the new version as well.
        fence(Ordering::SeqCst);
        let page_bytes = to_u64(self.options.page_bytes);
        let start = u64::from(frame) * page_bytes;
        self.frames.discard(start..start + page_bytes);
        self.discarded.push(frame, |frame| self.word(frame, NEXT));
        self.discarded_count.fetch_add(1, Ordering::Relaxed);
        self.budget.release(self.frame_cost());
    }

    /// Returns the bytes of the budget that are left to other tables.
    pub(super) fn left_to_others(&self) -> u64 {
        if self.options.may_reclaim_others { 0 } else { self.budget.limit() / LEFT_PART }
    }
}
