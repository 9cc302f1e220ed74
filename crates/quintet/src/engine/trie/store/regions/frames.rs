//! Frames: memory for regions, reserved from the budget.
//!
//! A frame is in use, spare (its memory is kept for the next region) or free (its memory was
//! returned to the system). Frames in use and spare frames are charged to the budget.

use std::mem::take;

use super::{Regions, UNIT_WORDS};
use crate::{
    io::BLOCK_BYTES,
    util::{
        codec::{to_u64, to_usize},
        sync::{AtomicU64, Ordering, lock},
    },
};

/// Frames that are kept for the next region instead of being returned to the system.
const SPARE_FRAMES: usize = 2;
/// The most frames that are prepared at once.
const READY_FRAMES: u64 = 16;
/// The first frames are in ordinary pages: a small table should not take whole huge pages.
const SMALL_FRAMES: u64 = 2;
/// Bytes of a huge page.
const HUGE_BYTES: u64 = 2 << 20;

/// The allocator of frames.
#[derive(Debug, Default)]
pub(super) struct FrameAllocator {
    /// The first frame that was never used.
    next: u64,
    /// Frames that are reserved from the budget and not in use.
    spare: Vec<u64>,
    /// Frames whose memory was returned to the system.
    free: Vec<u64>,
    pub(super) in_use: u64,
    /// Frames taken since frames were last prepared.
    taken: u64,
}

impl Regions {
    /// Reserves a frame from the budget; with `anyway` also beyond its limit. Returns `None` if the
    /// budget or the address space is exhausted.
    pub(crate) fn reserve_frame(&self, anyway: bool) -> Option<u64> {
        let mut frames = lock(&self.allocator);
        frames.taken += 1;
        if let Some(frame) = frames.spare.pop() {
            frames.in_use += 1;
            return Some(frame);
        }
        self.reserve_new_frame(&mut frames, anyway)
    }

    /// As [`Self::reserve_frame`], but not a spare one.
    fn reserve_new_frame(&self, frames: &mut FrameAllocator, anyway: bool) -> Option<u64> {
        if frames.free.is_empty() && frames.next >= self.frames_max {
            return None;
        }
        if anyway {
            self.budget.reserve_unchecked(self.region_bytes());
        } else {
            self.budget.try_reserve(self.region_bytes()).ok()?;
        }
        frames.in_use += 1;
        let frame = frames.free.pop().unwrap_or_else(|| {
            frames.next += 1;
            frames.next - 1
        });
        if frame >= SMALL_FRAMES && self.region_bytes() >= HUGE_BYTES {
            let start = frame * self.region_bytes();
            self.frames.advise_huge(start..start + self.region_bytes());
        }
        Some(frame)
    }

    /// Frees a frame: keeps it as a spare if there is room, or returns its memory to the system.
    pub(crate) fn release_frame(&self, frame: u64) {
        let mut frames = lock(&self.allocator);
        frames.in_use -= 1;
        if frames.spare.len() < SPARE_FRAMES && self.has_room_to_spare() {
            frames.spare.push(frame);
            return;
        }
        self.discard(&mut frames, frame);
    }

    /// Prepares as many frames as were taken since the last call: touches their memory. A writer
    /// would wait a quarter of a millisecond for each huge page. Does so only while memory is not
    /// scarce; an idle table returns them.
    pub(crate) fn prepare_frames(&self) {
        let wanted = take(&mut lock(&self.allocator).taken).min(READY_FRAMES);
        let mut ready = Vec::new();
        while to_u64(lock(&self.allocator).spare.len() + ready.len()) < wanted
            && self.has_room_to_spare()
        {
            let Some(frame) = self.reserve_unused_frame() else { break };
            let words = self.frame(frame);
            for word in words.iter().step_by(to_usize(BLOCK_BYTES / 8)) {
                word.store(0, Ordering::Relaxed);
            }
            ready.push(frame);
        }
        let mut frames = lock(&self.allocator);
        frames.in_use -= to_u64(ready.len());
        frames.spare.extend(ready);
        let keep = to_usize(wanted).max(SPARE_FRAMES);
        while frames.spare.len() > keep {
            let Some(frame) = frames.spare.pop() else { break };
            self.discard(&mut frames, frame);
        }
    }

    /// Returns whether the budget has room for spare frames.
    fn has_room_to_spare(&self) -> bool {
        self.budget.used() + 8 * self.region_bytes() <= self.budget.limit() / 4 * 3
    }

    /// Reserves a frame that is not a spare.
    fn reserve_unused_frame(&self) -> Option<u64> {
        let mut frames = lock(&self.allocator);
        self.reserve_new_frame(&mut frames, false)
    }

    /// Returns the memory of an unused frame to the system.
    fn discard(&self, frames: &mut FrameAllocator, frame: u64) {
        let start = frame * self.region_bytes();
        self.frames.discard(start..start + self.region_bytes());
        frames.free.push(frame);
        self.budget.release(self.region_bytes());
    }

    /// Bytes reserved from the budget.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let frames = lock(&self.allocator);
        (frames.in_use + to_u64(frames.spare.len())) * self.region_bytes()
    }

    /// The words of a frame.
    #[inline]
    pub(crate) fn frame(&self, frame: u64) -> &[AtomicU64] {
        let words = self.region_units() * UNIT_WORDS;
        let first = to_usize(frame * words);
        self.frames.words().get(first..first + to_usize(words)).unwrap_or(&[])
    }
}
