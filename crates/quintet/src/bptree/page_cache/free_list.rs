//! The lock-free stack of free frames.
//!
//! What: Treiber's stack; the links are in the frames' descriptors, and a count in the head's upper
//! half keeps a slow thread from taking a head that went and came back.
//! Invariants: a frame is in the stack at most once; only who popped it may use it.

use crate::util::{
    codec::low_u32,
    sync::{AtomicU64, Ordering},
};

/// Top of the stack: number of the frame plus one, and the count of changes above it.
#[derive(Debug, Default)]
pub struct FreeList(AtomicU64);

impl FreeList {
    /// Puts a frame in. `link` is the word of a frame that the stack may use while it is in.
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

    /// Takes a frame out.
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
