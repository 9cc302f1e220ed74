//! The table of writers between reservation and completion.
//!
//! Why: a reservation is one atomic add and copies run in parallel, so the end of the log says
//! nothing about the records before it. The lowest bound over all slots does: every record below
//! it is copied (a sync may cover and acknowledge it) or applied (a checkpoint may contain it).
//!
//! How: a fixed array of slots. A writer claims a slot before it reserves log space, marks it
//! copied when its record is in the mapping, and releases it when the record is applied.
//!
//! Invariants: a slot's bound is at most the LSN that its writer reserves, because the writer
//! reads it from the log's end before the reservation. A reader whose end includes a reservation
//! sees that writer's bound, or its completion. For this, the writer stores the bound, then adds to
//! the tail (release). The reader loads the tail (acquire), then the slots. The number of used
//! slots is raised and read in the same places.
//!
//! Threads: any number. With more than [`SLOTS`] writers at once, the others wait for a slot.

use crate::util::{
    codec::{Lsn, to_u64, to_usize},
    sync::{AtomicU64, Ordering, yield_now},
};

/// Maximum number of concurrent writers. A slot is a cache line. A sync and a snapshot read those
/// that were ever claimed, at most 8 KiB.
const SLOTS: usize = if cfg!(model) { 3 } else { 128 };

/// A word of a slot that bounds nothing.
const FREE: u64 = u64::MAX;

/// One writer's slot. Aligned to a cache line, so that two writers do not share one.
#[derive(Debug)]
#[repr(align(64))]
struct InflightSlot {
    /// Bound of a record that is not copied, or [`FREE`].
    copying: AtomicU64,
    /// Bound of a record that is not applied, or [`FREE`]: the slot is free.
    applying: AtomicU64,
}

/// The slots of all writers.
#[derive(Debug)]
pub(super) struct Inflight {
    slots: Vec<InflightSlot>,
    /// No slot from this index on was ever claimed. Raised before the claim's reservation.
    used: AtomicU64,
}

/// Index of a claimed slot. [`Inflight::release`] frees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotClaim(usize);

impl Inflight {
    pub(super) fn new() -> Self {
        let free =
            |_| InflightSlot { copying: AtomicU64::new(FREE), applying: AtomicU64::new(FREE) };
        Self { slots: (0..SLOTS).map(free).collect(), used: AtomicU64::new(0) }
    }

    /// Claims a slot with `bound`, the log's end as read before the call. Waits while no slot is
    /// free.
    pub(super) fn claim(&self, bound: Lsn) -> SlotClaim {
        let hint = slot_hint();
        loop {
            for step in 0..self.slots.len() {
                let index = (hint + step) % self.slots.len();
                let Some(slot) = self.slots.get(index) else { continue };
                let claimed = slot.applying.compare_exchange(
                    FREE,
                    bound.0,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                if claimed.is_ok() {
                    if to_u64(index) >= self.used.load(Ordering::Relaxed) {
                        self.used.fetch_max(to_u64(index) + 1, Ordering::Relaxed);
                    }
                    slot.copying.store(bound.0, Ordering::Relaxed);
                    return SlotClaim(index);
                }
            }
            yield_now();
        }
    }

    /// Marks the claim's record as copied into the mapping. Also if no space was reserved.
    pub(super) fn mark_copied(&self, claim: SlotClaim) {
        if let Some(slot) = self.slots.get(claim.0) {
            slot.copying.store(FREE, Ordering::Release);
        }
    }

    /// Marks the claim's record as applied and frees the slot.
    pub(super) fn release(&self, claim: SlotClaim) {
        self.mark_copied(claim);
        if let Some(slot) = self.slots.get(claim.0) {
            slot.applying.store(FREE, Ordering::Release);
        }
    }

    /// Returns the LSN below which every record is copied; at most `end`, which the caller loaded
    /// before the call.
    pub(super) fn copied_to(&self, end: Lsn) -> Lsn {
        self.lowest(end, |slot| &slot.copying)
    }

    /// Returns the LSN below which every record is applied; at most `end`, which the caller loaded
    /// before the call.
    pub(super) fn applied_to(&self, end: Lsn) -> Lsn {
        self.lowest(end, |slot| &slot.applying)
    }

    fn lowest(&self, end: Lsn, word: impl Fn(&InflightSlot) -> &AtomicU64) -> Lsn {
        let used = self.slots.iter().take(to_usize(self.used.load(Ordering::Acquire)));
        let bounds = used.map(|slot| word(slot).load(Ordering::Acquire));
        Lsn(bounds.fold(end.0, u64::min))
    }
}

/// Returns the slot that the calling thread tries first. Threads have different ones while there
/// are at most [`SLOTS`], so that a claim is an uncontended compare-exchange.
#[cfg(not(model))]
fn slot_hint() -> usize {
    use std::{cell::Cell, sync::atomic::AtomicUsize};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HINT: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    HINT.get()
}

#[cfg(model)]
fn slot_hint() -> usize {
    0
}
