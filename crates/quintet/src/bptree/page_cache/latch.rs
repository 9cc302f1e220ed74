//! Latches of pages: a version that is odd while its holder changes the page.
//!
//! What: optimistic readers remember an even version, read, and look again; one writer at a time
//! makes it odd. Why: a reader stores nothing, so readers of one page do not slow each other.
//!
//! Invariants: a version only grows; what is read between two equal even versions is one state.
//! Thread rules: any thread. A holder may wait for another latch only as `index::bptree` orders
//! them; who searches a victim takes latches by [`try_lock`] alone.

use crate::util::{
    mutant::{self, Bug},
    sync::{AtomicU64, Backoff, Ordering, fence},
};

/// The version at which the page can be read, once nobody changes it.
#[inline]
pub fn begin(latch: &AtomicU64) -> u64 {
    let version = latch.load(Ordering::Acquire);
    if version & 1 == 0 { version } else { begin_slowly(latch) }
}

#[cold]
fn begin_slowly(latch: &AtomicU64) -> u64 {
    let mut patience = Backoff::default();
    loop {
        let version = latch.load(Ordering::Acquire);
        if version & 1 == 0 {
            return version;
        }
        patience.wait();
    }
}

/// Whether what was read since [`begin`] gave `version` is one state.
#[inline]
pub fn is_unchanged(latch: &AtomicU64, version: u64) -> bool {
    if mutant::active(Bug::PageReadNotValidated) {
        return true;
    }
    fence(Ordering::Acquire);
    latch.load(Ordering::Relaxed) == version
}

/// Takes the latch if the page is still as it was at `version`.
pub fn try_upgrade(latch: &AtomicU64, version: u64) -> bool {
    let taken =
        latch.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if taken {
        // Whoever sees a store of the holder sees the odd version too.
        fence(Ordering::Release);
    }
    taken
}

/// Takes the latch if it is free.
pub fn try_lock(latch: &AtomicU64) -> bool {
    let version = latch.load(Ordering::Relaxed);
    version & 1 == 0 && try_upgrade(latch, version)
}

/// Takes the latch.
pub fn lock(latch: &AtomicU64) {
    let mut patience = Backoff::default();
    while !try_lock(latch) {
        patience.wait();
    }
}

/// Gives the latch back.
pub fn unlock(latch: &AtomicU64) {
    let version = latch.load(Ordering::Relaxed);
    debug_assert!(version & 1 == 1, "unlocked a latch that was not held");
    latch.store(version + 1, Ordering::Release);
}
