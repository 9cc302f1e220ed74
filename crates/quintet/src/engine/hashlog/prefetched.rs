//! Entries that a prefetch has read from the disk, until the gets that follow take them.
//!
//! Problem: a caller that gets one key after the other waits for one read after the other, although
//! it knows the next keys.
//!
//! How: a prefetch of several keys reads those of their entries that are not in memory with
//! concurrent requests. A get looks its key up as ever. If its entry is on disk, it takes the copy
//! instead of reading it.
//!
//! Invariants:
//! - A copy is of an address and a state of its chunk. What a chunk has at an address changes only
//!   together with its state: a chunk that is not in memory is never written to. So a copy is out
//!   of date only for a get that has found another address or state, and does not match.
//! - The copies have a bounded size, which is in the memory budget. The oldest ones leave first.
//!
//! Locks: `copies` is a leaf. A table without copies only loads a counter.

use std::{collections::VecDeque, sync::Arc};

use super::cold_entry::ColdEntry;
use crate::util::{
    budget::Budget,
    codec::{to_u64, to_usize},
    mutant::mutant,
    sync::{AtomicU64, Mutex, Ordering, lock},
};

/// The copies take at most one part in this many of the budget, and at most this many bytes.
const BUDGET_PART: u64 = 32;
const BYTES_MAX: u64 = 4 << 20;
/// Most copies. A get compares its entry with each.
const COPIES_MAX: usize = 512;

/// An entry, and where it is in its table: its address, and the state of its chunk.
#[derive(Debug)]
struct EntryCopy {
    address: u64,
    state: u64,
    entry: ColdEntry,
}

/// The entries that prefetches of a table have read.
#[derive(Debug)]
pub(super) struct PrefetchedEntries {
    budget: Arc<Budget>,
    bytes_max: u64,
    count: AtomicU64,
    copies: Mutex<Copies>,
}

#[derive(Debug, Default)]
struct Copies {
    /// The oldest first.
    queue: VecDeque<EntryCopy>,
    bytes: u64,
}

impl Copies {
    fn remove(&mut self, place: usize) -> Option<ColdEntry> {
        let copied = self.queue.remove(place)?;
        self.bytes -= copied.entry.memory_bytes();
        Some(copied.entry)
    }
}

impl PrefetchedEntries {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        let bytes_max = (budget.limit() / BUDGET_PART).min(BYTES_MAX);
        Self { budget, bytes_max, count: AtomicU64::new(0), copies: Mutex::default() }
    }

    pub(super) fn add(&self, (address, state): (u64, u64), entry: ColdEntry) {
        let mut copies = lock(&self.copies);
        let before = copies.bytes;
        copies.bytes += entry.memory_bytes();
        copies.queue.push_back(EntryCopy { address, state, entry });
        while copies.bytes > self.bytes_max || copies.queue.len() > COPIES_MAX {
            copies.remove(0);
        }
        self.note_change(before, &copies);
    }

    /// Adjusts the budget and the number of copies.
    fn note_change(&self, bytes_before: u64, copies: &Copies) {
        self.budget.reserve_unchecked(copies.bytes.saturating_sub(bytes_before));
        self.budget.release(bytes_before.saturating_sub(copies.bytes));
        self.count.store(to_u64(copies.queue.len()), Ordering::Release);
    }

    /// Removes and returns the entry at `address` in a chunk with this state, if it was prefetched.
    #[inline]
    pub(super) fn take(&self, address: u64, state: u64) -> Option<ColdEntry> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.take_locked(address, state)
    }

    fn take_locked(&self, address: u64, state: u64) -> Option<ColdEntry> {
        let mut copies = lock(&self.copies);
        let before = copies.bytes;
        let is_it = |copied: &EntryCopy| {
            let is_same = mutant!(HashlogTakesOldCopies: true, else copied.state == state);
            copied.address == address && is_same
        };
        let place = copies.queue.iter().position(is_it)?;
        let entry = copies.remove(place);
        self.note_change(before, &copies);
        entry
    }

    /// Removes from `places` those of which there are copies.
    pub(super) fn retain_missing(&self, places: &mut Vec<(u64, u64)>) {
        let copies = lock(&self.copies);
        let is_copied = |place: &(u64, u64)| {
            copies.queue.iter().any(|copied| (copied.address, copied.state) == *place)
        };
        places.retain(|place| !is_copied(place));
    }

    /// Returns how many copies of this many bytes have room at once.
    pub(super) fn room(&self, bytes: usize) -> usize {
        to_usize(self.bytes_max) / bytes.max(1)
    }
}

impl Drop for PrefetchedEntries {
    fn drop(&mut self) {
        self.budget.release(lock(&self.copies).bytes);
    }
}
