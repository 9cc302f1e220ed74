//! Writers between reservation and completion.
//!
//! What: a fixed array of places. A writer claims one before it reserves log space, says "copied"
//! after its record is in the mapping, and frees it after the record is applied.
//! Why: reservation is one atomic add and copies run in parallel, so the end of the log says
//! nothing about what lies before it. The lowest bound over all places does: everything below is
//! copied (may be synced and acknowledged) or applied (may be persisted by engines).
//!
//! Invariants: a place's bound is at most the LSN that its writer reserves, because it is read
//! from the log's end before the reservation. Whoever reads an end that includes a reservation
//! sees that writer's bound, or its completion: the writer stores the bound, then adds to the tail
//! (release); the reader loads the tail (acquire), then the places.
//!
//! Thread rules: any number of threads; more than [`PLACES`] at once wait for a place.

use crate::util::{
    codec::Lsn,
    sync::{AtomicU64, Ordering, yield_now},
};

/// Writers that may be under way at once. A place is a cache line; a sync reads all of them (8
/// KiB).
#[cfg(not(any(loom, shuttle)))]
const PLACES: usize = 128;
#[cfg(any(loom, shuttle))]
const PLACES: usize = 3;

const FREE: u64 = u64::MAX;

/// One cache line, so that writers do not share one.
#[derive(Debug)]
#[repr(align(64))]
struct Place {
    copying: AtomicU64,
    applying: AtomicU64,
}

/// The array.
#[derive(Debug)]
pub(super) struct Inflight {
    places: Vec<Place>,
}

/// A claimed place. Freed by [`Inflight::applied`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim(usize);

impl Inflight {
    pub(super) fn new() -> Self {
        let free = |_| Place { copying: AtomicU64::new(FREE), applying: AtomicU64::new(FREE) };
        Self { places: (0..PLACES).map(free).collect() }
    }

    /// Claims a place with `bound`, the log's end read before the call.
    pub(super) fn claim(&self, bound: Lsn) -> Claim {
        let hint = place_hint();
        loop {
            for step in 0..self.places.len() {
                let index = (hint + step) % self.places.len();
                let Some(place) = self.places.get(index) else { continue };
                let claimed = place.applying.compare_exchange(
                    FREE,
                    bound.0,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if claimed.is_ok() {
                    place.copying.store(bound.0, Ordering::Relaxed);
                    return Claim(index);
                }
            }
            yield_now();
        }
    }

    /// The claim's record is in the mapping (or nothing was reserved).
    pub(super) fn copied(&self, claim: Claim) {
        if let Some(place) = self.places.get(claim.0) {
            place.copying.store(FREE, Ordering::Release);
        }
    }

    /// The claim's record is applied: the place is free.
    pub(super) fn applied(&self, claim: Claim) {
        self.copied(claim);
        if let Some(place) = self.places.get(claim.0) {
            place.applying.store(FREE, Ordering::Release);
        }
    }

    /// Everything below is copied, given an `end` loaded before the call.
    pub(super) fn copied_to(&self, end: Lsn) -> Lsn {
        self.lowest(end, |place| &place.copying)
    }

    /// Everything below is applied, given an `end` loaded before the call.
    pub(super) fn applied_to(&self, end: Lsn) -> Lsn {
        self.lowest(end, |place| &place.applying)
    }

    fn lowest(&self, end: Lsn, word: impl Fn(&Place) -> &AtomicU64) -> Lsn {
        let bounds = self.places.iter().map(|place| word(place).load(Ordering::Acquire));
        Lsn(bounds.fold(end.0, u64::min))
    }
}

/// Where a thread starts to look: its own place, mostly, so that claiming one is an uncontended
/// exchange.
#[cfg(not(any(loom, shuttle)))]
fn place_hint() -> usize {
    use std::{cell::Cell, sync::atomic::AtomicUsize};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HINT: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    HINT.get()
}

#[cfg(any(loom, shuttle))]
fn place_hint() -> usize {
    0
}
