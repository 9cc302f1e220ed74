//! Page latches: seqlocks, whose version is odd while the holder changes the page.
//!
//! How: an optimistic reader remembers an even version, reads, and verifies the version; one writer
//! at a time makes it odd. A reader stores nothing, so readers of one page do not contend.
//!
//! Invariants: a version only grows; what is read between two equal even versions is one state.
//!
//! Threads: any thread. A holder may wait for another latch only in the order of [`crate::bptree`].
//! Eviction takes latches only with [`try_lock`].

use crate::util::{
    mutant::mutant,
    sync::{AtomicU64, Backoff, Ordering, fence},
};

/// Returns the page's even version; waits while a writer holds the latch.
#[inline]
pub fn begin(latch: &AtomicU64) -> u64 {
    let version = latch.load(Ordering::Acquire);
    if version & 1 == 0 { version } else { begin_slowly(latch) }
}

#[cold]
fn begin_slowly(latch: &AtomicU64) -> u64 {
    let mut backoff = Backoff::default();
    loop {
        let version = latch.load(Ordering::Acquire);
        if version & 1 == 0 {
            return version;
        }
        backoff.wait();
    }
}

/// Whether everything read since [`begin`] returned `version` is one state.
#[inline]
pub fn is_unchanged(latch: &AtomicU64, version: u64) -> bool {
    mutant!(PageReadNotValidated => return true);
    fence(Ordering::Acquire);
    latch.load(Ordering::Relaxed) == version
}

/// Takes the latch if the version is still `version`.
pub fn try_upgrade(latch: &AtomicU64, version: u64) -> bool {
    let is_latched =
        latch.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if is_latched {
        // A reader that sees a store of the holder also sees the odd version.
        fence(Ordering::Release);
    }
    is_latched
}

/// Takes the latch if it is free.
pub fn try_lock(latch: &AtomicU64) -> bool {
    let version = latch.load(Ordering::Relaxed);
    version & 1 == 0 && try_upgrade(latch, version)
}

/// Takes the latch; waits for it.
pub fn lock(latch: &AtomicU64) {
    let mut backoff = Backoff::default();
    while !try_lock(latch) {
        backoff.wait();
    }
}

/// Releases the latch.
pub fn unlock(latch: &AtomicU64) {
    let version = latch.load(Ordering::Relaxed);
    debug_assert!(version & 1 == 1, "unlocked a latch that was not held");
    latch.store(version + 1, Ordering::Release);
}
