//! Bounds the memory that one input may allocate.

#![expect(unsafe_code, reason = "a global allocator that counts and passes everything on")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Memory in bytes that any input may use. It covers the simulated disk and the memory budget of
/// the database.
const FREE_BYTES: usize = 64 << 20;
/// Additional memory in bytes for each byte of input.
const PER_BYTE: usize = 4;

static USED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged; the counters touch no memory
// that it owns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(used, Ordering::Relaxed);
        // SAFETY: our caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: our caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work` for `input` and panics if its peak memory exceeds the bound.
pub(crate) fn bounded(input: &[u8], work: impl FnOnce()) {
    let before = USED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    let peak = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let allowed = FREE_BYTES + PER_BYTE * input.len();
    assert!(peak <= allowed, "{peak} bytes of memory for {} bytes of input", input.len());
}
