//! Pins: frames that a caller reads in place, without a copy.
//!
//! A range over values of a page or more spends most of its time copying them. So a reader may pin
//! a block: it stores the block's cell in one of a few slots, and the frame is not freed until the
//! slot is released. These are hazard pointers (Michael, 2004) for frames.
//!
//! Invariants:
//! - To free a frame, a thread clears its version, fences, and then searches the slots. To pin a
//!   frame, a thread stores its cell, fences, and then reads the version. So one of the two sees
//!   the other.
//! - A frame that turns out to be pinned gets its version back and stays. Nothing else is ever
//!   stored to a frame that has a version.
//!
//! Threads: any. No thread waits. If all slots are taken, the caller copies the block. If a frame
//! is pinned, another one is evicted.

#![cfg_attr(
    not(model),
    expect(unsafe_code, reason = "words that stay as they are, as bytes: see UNSAFE.md")
)]

use std::ops::Range;

use crate::util::{
    codec::to_usize,
    sync::{AtomicU32, AtomicU64, Ordering, fence},
};

/// Maximum number of pins at a time.
#[cfg(not(model))]
const SLOTS: usize = 32;
#[cfg(model)]
const SLOTS: usize = 1;

/// A cell number plus one, or 0; alone on its cache line.
#[derive(Debug)]
#[repr(align(64))]
struct PinSlot(AtomicU32);

/// The slots of a cache. See the module head.
#[derive(Debug)]
pub(super) struct Pins([PinSlot; SLOTS]);

impl Pins {
    /// Creates free slots.
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| PinSlot(AtomicU32::new(0))))
    }

    /// Stores a cell in a free slot; `None` if there is none. What the caller reads of the frame
    /// after this call does not change, unless the thread that frees the frame sees the slot.
    #[inline]
    pub(super) fn acquire(&self, cell: u32) -> Option<Pin<'_>> {
        // Threads begin at different slots, mostly.
        let (before, from) = self.0.split_at(to_usize(u64::from(cell)) % SLOTS);
        let is_free = |slot: &&PinSlot| {
            slot.0.compare_exchange(0, cell + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let slot = from.iter().chain(before).find(is_free)?;
        fence(Ordering::SeqCst);
        Some(Pin(&slot.0))
    }

    /// Returns whether a cell is pinned. If not, all reads of earlier pins have ended.
    pub(super) fn has(&self, cell: u32) -> bool {
        self.0.iter().any(|slot| slot.0.load(Ordering::Acquire) == cell + 1)
    }
}

/// A taken slot; released on drop.
#[derive(Debug)]
pub(super) struct Pin<'a>(&'a AtomicU32);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A pinned block. Its frame does not change while this value exists.
#[derive(Debug)]
pub(crate) struct PinnedBlock<'a> {
    words: &'a [AtomicU64],
    _pin: Pin<'a>,
}

impl<'a> PinnedBlock<'a> {
    /// Wraps a block. The caller has checked the frame's version and identity after it took the
    /// pin.
    pub(super) fn new(words: &'a [AtomicU64], pin: Pin<'a>) -> Self {
        Self { words, _pin: pin }
    }

    /// Returns the words of the block.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.words
    }

    /// Returns bytes of the block in place; `None` beyond its end.
    #[cfg(all(target_endian = "little", not(model)))]
    pub(crate) fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        let (start, count) = (self.words.as_ptr().cast::<u8>(), size_of_val(self.words));
        // SAFETY: these are words of a region, which are initialised and live as long as `words`.
        // No thread stores to them while the frame is pinned (module head), and the stores of the
        // thread that filled it happened before its version was seen.
        let all = unsafe { std::slice::from_raw_parts(start, count) };
        all.get(range)
    }

    /// As above. Not available on this target.
    #[cfg(not(all(target_endian = "little", not(model))))]
    pub(crate) fn bytes(&self, _range: Range<usize>) -> Option<&[u8]> {
        None
    }
}
