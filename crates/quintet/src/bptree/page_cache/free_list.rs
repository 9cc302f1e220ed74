//! The lock-free list of free frames: Treiber's stack.
//!
//! How: the links are in the frames' descriptors. A counter in the upper half of the head prevents
//! the ABA problem.
//!
//! Invariants: a frame is in the list at most once; only the thread that popped it uses it.

use crate::util::{
    codec::low_u32,
    sync::{AtomicU64, Ordering},
};

/// Head of the list: number of the first frame plus one, and in the upper half the counter.
#[derive(Debug, Default)]
pub struct FreeList(AtomicU64);

impl FreeList {
    /// Pushes a frame. `link` returns the descriptor word that stores a frame's link while it is
    /// free.
    pub fn push<'a>(&self, frame: u32, link: impl Fn(u32) -> Option<&'a AtomicU64>) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            if let Some(link) = link(frame) {
                link.store(head & 0xffff_ffff, Ordering::Relaxed);
            }
            let new = next_count(head) | (u64::from(frame) + 1);
            match self.0.compare_exchange(head, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Pops a frame.
    pub fn pop<'a>(&self, link: impl Fn(u32) -> Option<&'a AtomicU64>) -> Option<u32> {
        let mut head = self.0.load(Ordering::Acquire);
        loop {
            let frame = low_u32(head).checked_sub(1)?;
            let below = link(frame)?.load(Ordering::Relaxed) & 0xffff_ffff;
            let new = next_count(head) | below;
            match self.0.compare_exchange(head, new, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(frame),
                Err(now) => head = now,
            }
        }
    }
}

fn next_count(head: u64) -> u64 {
    ((head >> 32) + 1) << 32
}
