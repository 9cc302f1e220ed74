//! Frames whose bytes are shown where they lie.
//!
//! What: a few slots. Who shows a block names its cell in one of them, and nobody empties that
//! frame until the slot is free again.
//! Why: a range over values of a page or more spends most of its time on copies of them.
//!
//! Invariants: who empties a frame clears its version and then looks through the slots; who pins
//! it names its cell and then looks at the version; between the two, on either side, is a fence:
//! so one of them sees the other. A frame that was found pinned gets its version back and stays as
//! it is, and nothing is ever stored to the words of a frame with a version but that version.
//!
//! Thread rules: any thread. Nobody waits: where all slots are taken, a block is copied; where a
//! frame is pinned, another one is emptied.

#![cfg_attr(
    not(model),
    expect(unsafe_code, reason = "words that stay as they are, as bytes: see UNSAFE.md")
)]

use std::ops::Range;

use crate::util::{
    codec::to_usize,
    sync::{AtomicU32, AtomicU64, Ordering, fence},
};

/// Blocks that are shown at once, at most.
#[cfg(not(model))]
const SLOTS: usize = 32;
#[cfg(model)]
const SLOTS: usize = 1;

/// A cell and one, or 0; alone on its cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Slot(AtomicU32);

/// See the module head.
#[derive(Debug)]
pub(super) struct Pins([Slot; SLOTS]);

impl Pins {
    /// Nothing is pinned.
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Slot(AtomicU32::new(0))))
    }

    /// Names a cell in a slot; `None` where none is free. What the caller looks at after this it
    /// sees as it is from now on, unless who empties the frame sees the slot.
    #[inline]
    pub(super) fn take(&self, cell: u32) -> Option<Pin<'_>> {
        // Threads begin at different slots, mostly.
        let (before, from) = self.0.split_at(to_usize(u64::from(cell)) % SLOTS);
        let is_free = |slot: &&Slot| {
            slot.0.compare_exchange(0, cell + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let slot = from.iter().chain(before).find(is_free)?;
        fence(Ordering::SeqCst);
        Some(Pin(&slot.0))
    }

    /// Whether a cell is named. What its readers did is done, where it is not.
    pub(super) fn has(&self, cell: u32) -> bool {
        self.0.iter().any(|slot| slot.0.load(Ordering::Acquire) == cell + 1)
    }
}

/// A slot that is taken.
#[derive(Debug)]
pub(super) struct Pin<'a>(&'a AtomicU32);

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A block in its frame, which stays as it is while this lives.
#[derive(Debug)]
pub(crate) struct Pinned<'a> {
    words: &'a [AtomicU64],
    _pin: Pin<'a>,
}

impl<'a> Pinned<'a> {
    /// The caller found the frame's version and identity after the pin was taken.
    pub(super) fn new(words: &'a [AtomicU64], pin: Pin<'a>) -> Self {
        Self { words, _pin: pin }
    }

    /// What was put into the frame.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.words
    }

    /// Some of it, in place; `None` where that is beyond its end, or cannot be had.
    #[cfg(all(target_endian = "little", not(model)))]
    pub(crate) fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        let (start, count) = (self.words.as_ptr().cast::<u8>(), size_of_val(self.words));
        // SAFETY: these are words of a region, which are initialised and live as long as `words`;
        // nobody stores to them while the frame is pinned (module head), and the stores of whoever
        // filled it happened before its version was seen.
        let all = unsafe { std::slice::from_raw_parts(start, count) };
        all.get(range)
    }

    /// As above: here nothing can be had.
    #[cfg(not(all(target_endian = "little", not(model))))]
    pub(crate) fn bytes(&self, _range: Range<usize>) -> Option<&[u8]> {
        None
    }
}
