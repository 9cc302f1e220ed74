//! Eviction: a clock, or a random search, over the frames.
//!
//! Invariants: a page that is dirty, pending write-back or pinned is not evicted. Pages of the
//! evict-last kind are evicted only if no other page can be.

use super::{
    cache::{PageCache, Replacement},
    descriptor::{EPOCH, LATCH, NO_PAGE, PAGE, PENDING, USED},
    latch,
    page_id::PageId,
};
use crate::util::{
    codec::{low_u8, low_u32},
    mutant::mutant,
    sync::Ordering,
};

impl PageCache {
    /// Evicts a page and returns its latched frame.
    pub(super) fn evict(&self) -> Option<u32> {
        self.evict_if(|frame| !self.is_evict_last(frame)).or_else(|| self.evict_if(|_| true))
    }

    fn evict_if(&self, may_go: impl Fn(u32) -> bool) -> Option<u32> {
        let made = self.made.load(Ordering::Acquire);
        for _ in 0..made * 2 + 8 {
            let turn = self.hand.fetch_add(1, Ordering::Relaxed);
            let turn = match self.options.replacement {
                Replacement::Clock => turn,
                Replacement::Random => mixed(turn),
            };
            let frame = low_u32(turn % made.max(1));
            if self.is_unevictable(frame) {
                continue;
            }
            if self.get(frame, USED) != 0 {
                self.set(frame, USED, 0);
                continue;
            }
            if !may_go(frame) {
                continue;
            }
            let latched = self.word(frame, LATCH).is_some_and(latch::try_lock);
            if !latched {
                continue;
            }
            if self.is_unevictable(frame) || self.is_pinned(frame) {
                self.word(frame, LATCH).into_iter().for_each(latch::unlock);
                continue;
            }
            self.unlink(PageId(low_u32(self.get(frame, PAGE))), frame);
            self.evictions.fetch_add(1, Ordering::Relaxed);
            return Some(frame);
        }
        None
    }

    /// Whether a frame has a page of the evict-last kind. A guess if the frame is not latched.
    fn is_evict_last(&self, frame: u32) -> bool {
        let kind = self.words(frame).get(1).map(|word| word.load(Ordering::Relaxed));
        kind.is_some_and(|kind| low_u8(kind) == self.options.evict_last_kind)
    }

    /// Whether a frame has no page, or one that is dirty or pending write-back.
    fn is_unevictable(&self, frame: u32) -> bool {
        let dirty = self.get(frame, EPOCH) != 0 || self.get(frame, PENDING) != 0;
        let dirty = mutant!(PageEvictsDirty: false, else dirty);
        self.get(frame, PAGE) == NO_PAGE || dirty
    }
}

/// Spreads consecutive numbers (`SplitMix64`).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}
