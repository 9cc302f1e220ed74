//! Frames: memory for segments, in one reserved range of huge pages.
//!
//! A frame is in use, spare (its memory is kept for the next segment) or free (its memory was
//! returned to the system). Frames in use and spare frames are charged to the budget.
//!
//! Locks: `allocator` guards the lists. Any thread may call any method.

use std::{io, sync::Arc};

use crate::{
    io::{Region, reservation},
    util::{
        budget::Budget,
        codec::to_u64,
        sync::{AtomicU64, Mutex, lock},
    },
};

/// The frames take one part in this many of a limited address space.
const ADDRESS_PARTS: u64 = 16;
/// Fewest bytes and frames beyond the budget that have addresses: replay exceeds it by less.
const BYTES_BESIDE_MIN: u64 = 64 << 20;
const FRAMES_BESIDE_MIN: u64 = 16;
/// Number of spare frames that are kept when a frame is released.
pub(crate) const SPARE_FRAMES: usize = 2;
/// Number of frames in ordinary pages: a small table should not take whole huge pages.
const SMALL_FRAMES: u64 = 2;
/// Bytes of a huge page. Smaller frames are in ordinary pages.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The frames of a table. See the module documentation.
#[derive(Debug)]
pub(crate) struct Frames {
    memory: Region,
    frame_bytes: u64,
    count_max: u64,
    allocator: Mutex<FrameAllocator>,
    budget: Arc<Budget>,
}

#[derive(Debug, Default)]
struct FrameAllocator {
    /// The first frame that was never used.
    next: u64,
    /// Frames that are reserved from the budget and not in use.
    spare: Vec<u64>,
    /// Frames whose memory was returned to the system.
    free: Vec<u64>,
    in_use: u64,
}

impl Frames {
    /// Reserves address space for frames of `frame_bytes`. Fails if the system grants none.
    pub(crate) fn new(frame_bytes: u64, budget: Arc<Budget>) -> io::Result<Self> {
        // Replay of acknowledged writes may exceed the limit: reserve addresses for twice as much.
        let within = budget.limit() / frame_bytes;
        let count_max = (within * 2 + 256).min(1 << 31);
        let beside = (BYTES_BESIDE_MIN / frame_bytes).max(FRAMES_BESIDE_MIN);
        let least = (within + beside).min(count_max);
        let count_max =
            reservation(ADDRESS_PARTS, count_max * frame_bytes, least * frame_bytes) / frame_bytes;
        Ok(Self {
            memory: Region::reserve(count_max * frame_bytes)?,
            frame_bytes,
            count_max,
            allocator: Mutex::default(),
            budget,
        })
    }

    /// Returns the words of all frames.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    /// Prefetches the cache line of a word.
    #[inline]
    pub(crate) fn prefetch(&self, index: usize) {
        self.memory.prefetch(index);
    }

    /// Returns a frame, reserved from the budget. With `beyond_limit` it may exceed the limit.
    /// `None`: the budget or the address space has none.
    pub(crate) fn reserve(&self, beyond_limit: bool) -> Option<u64> {
        let mut allocator = lock(&self.allocator);
        if let Some(frame) = allocator.spare.pop() {
            allocator.in_use += 1;
            return Some(frame);
        }
        self.reserve_unused(&mut allocator, beyond_limit)
    }

    /// Returns a frame: from the budget, or after an eviction, or beyond the limit. `evict` frees
    /// memory, and returns `false` if there is nothing to evict. `None`: the address space has no
    /// frame.
    pub(crate) fn reserve_or_evict(&self, evict: impl Fn() -> bool) -> Option<u64> {
        loop {
            if let Some(frame) = self.reserve(false) {
                return Some(frame);
            }
            if !evict() {
                return self.reserve(true);
            }
        }
    }

    /// As [`Self::reserve`], for a frame that is not spare. The first stores commit its memory.
    fn reserve_unused(&self, allocator: &mut FrameAllocator, beyond_limit: bool) -> Option<u64> {
        if allocator.free.is_empty() && allocator.next >= self.count_max {
            return None;
        }
        if beyond_limit {
            self.budget.reserve_unchecked(self.frame_bytes);
        } else {
            self.budget.try_reserve(self.frame_bytes).ok()?;
        }
        allocator.in_use += 1;
        let frame = allocator.free.pop().unwrap_or_else(|| {
            allocator.next += 1;
            allocator.next - 1
        });
        if frame >= SMALL_FRAMES && self.frame_bytes >= HUGE_PAGE_BYTES {
            let start = frame * self.frame_bytes;
            self.memory.advise_huge(start..start + self.frame_bytes);
        }
        Some(frame)
    }

    /// Releases a frame. With `may_keep` it stays spare if there are few spare frames. Its memory
    /// is returned to the system otherwise.
    pub(crate) fn release(&self, frame: u64, may_keep: bool) {
        let mut allocator = lock(&self.allocator);
        allocator.in_use -= 1;
        if may_keep && allocator.spare.len() < SPARE_FRAMES {
            allocator.spare.push(frame);
            return;
        }
        self.discard(&mut allocator, frame);
    }

    /// Commits the memory of one more spare frame, so that the next writer does not wait for the
    /// system to clear it. Returns `false` without one if there are `spares_max` spare frames, and
    /// `None` if there is no memory for it.
    pub(crate) fn populate_spare(&self, spares_max: usize) -> Option<bool> {
        let mut allocator = lock(&self.allocator);
        if allocator.spare.len() >= spares_max {
            return Some(false);
        }
        let frame = self.reserve_unused(&mut allocator, false)?;
        drop(allocator);
        let start = frame * self.frame_bytes;
        self.memory.populate(start..start + self.frame_bytes);
        let mut allocator = lock(&self.allocator);
        allocator.in_use -= 1;
        allocator.spare.push(frame);
        Some(true)
    }

    /// Returns the number of spare frames.
    pub(crate) fn spare_count(&self) -> usize {
        lock(&self.allocator).spare.len()
    }

    /// Returns the memory of spare frames to the system until `spares_max` are left.
    pub(crate) fn discard_spares(&self, spares_max: usize) {
        let mut allocator = lock(&self.allocator);
        while allocator.spare.len() > spares_max
            && let Some(frame) = allocator.spare.pop()
        {
            self.discard(&mut allocator, frame);
        }
    }

    fn discard(&self, allocator: &mut FrameAllocator, frame: u64) {
        let start = frame * self.frame_bytes;
        self.memory.discard(start..start + self.frame_bytes);
        allocator.free.push(frame);
        self.budget.release(self.frame_bytes);
    }

    /// Returns the number of frames in use.
    pub(crate) fn used_count(&self) -> u64 {
        lock(&self.allocator).in_use
    }

    /// Returns the bytes reserved from the budget.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let allocator = lock(&self.allocator);
        (allocator.in_use + to_u64(allocator.spare.len())) * self.frame_bytes
    }

    /// Returns the budget that frames are reserved from.
    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }
}
