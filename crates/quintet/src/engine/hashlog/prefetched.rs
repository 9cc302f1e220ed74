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

use super::{
    cold::{ColdEntry, ColdRead},
    read::BATCH,
    table::HashLog,
};
use crate::{
    record_store::segments::frame_in,
    util::{
        budget::Budget,
        codec::{to_u64, to_usize},
        mutant::mutant,
        sync::{AtomicU64, Mutex, Ordering, lock},
    },
};

/// The copies take at most one part in this many of the budget, and at most this many bytes.
const BUDGET_PART: u64 = 32;
const BYTES_MAX: u64 = 4 << 20;
/// Most copies. A get compares its entry with each.
const COPIES_MAX: usize = 512;
/// An entry that needs a longer read is left to its get.
const READ_BYTES_MAX: usize = 32 << 10;

/// An entry, and where it is in its table: its address, and the state of its chunk.
#[derive(Debug)]
struct Copied {
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
    queue: VecDeque<Copied>,
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

    fn add(&self, (address, state): (u64, u64), entry: ColdEntry) {
        let mut copies = lock(&self.copies);
        let before = copies.bytes;
        copies.bytes += entry.memory_bytes();
        copies.queue.push_back(Copied { address, state, entry });
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
        let is_it = |copied: &Copied| {
            let is_same = mutant!(HashlogTakesOldCopies: true, else copied.state == state);
            copied.address == address && is_same
        };
        let place = copies.queue.iter().position(is_it)?;
        let entry = copies.remove(place);
        self.note_change(before, &copies);
        entry
    }

    /// Removes from `places` those of which there are copies.
    fn retain_missing(&self, places: &mut Vec<(u64, u64)>) {
        let copies = lock(&self.copies);
        let is_copied = |place: &(u64, u64)| {
            copies.queue.iter().any(|copied| (copied.address, copied.state) == *place)
        };
        places.retain(|place| !is_copied(place));
    }

    /// Returns how many copies of this many bytes have room at once.
    fn room(&self, bytes: usize) -> usize {
        to_usize(self.bytes_max) / bytes.max(1)
    }
}

impl Drop for PrefetchedEntries {
    fn drop(&mut self) {
        self.budget.release(lock(&self.copies).bytes);
    }
}

impl HashLog {
    /// Prefetches for gets of `keys`: index lines and entries into the processor's caches, and what
    /// is not in memory from the disk, with concurrent requests. Leaves errors to the gets.
    pub(super) fn prefetch_gets(&self, keys: &[&[u8]]) {
        for keys in keys.chunks(BATCH) {
            let mut seen = [None; BATCH];
            self.prefetch_entries(keys, &mut [0; BATCH], &mut seen);
            if self.counters.cold_chunks.load(Ordering::Relaxed) > 0 {
                self.prefetch_cold(&seen);
            }
        }
    }

    fn prefetch_cold(&self, seen: &[Option<(u64, u64)>]) {
        // If the entry has moved since, a chunk in memory may count as one that is not. Its state
        // differs then, so no read is planned.
        let is_cold = |(_, state): &(u64, u64)| frame_in(*state).is_none();
        let mut cold: Vec<(u64, u64)> = seen.iter().copied().flatten().filter(is_cold).collect();
        cold.sort_unstable();
        cold.dedup();
        self.prefetched.retain_missing(&mut cold);
        let planned = cold.into_iter().filter_map(|place| {
            let read = self.cold_read(place.0, place.1)?;
            (read.bytes <= READ_BYTES_MAX).then_some((place, read))
        });
        let mut planned: Vec<((u64, u64), ColdRead)> = planned.collect();
        let longest = planned.iter().map(|(_, read)| read.span().2).max().unwrap_or_default();
        planned.truncate(self.prefetched.room(longest));
        // One alone is read as soon by its get.
        if planned.len() < 2 {
            return;
        }
        self.ask_for_warming();
        let Ok(completions) = self.transfer_cold(planned.iter().map(|(_, read)| read)) else {
            return;
        };
        for ((place, read), completion) in planned.iter().zip(completions) {
            let (_, skip, span) = read.span();
            if completion.result.is_ok_and(|count| count >= span)
                && let Ok(Some(entry)) =
                    self.finish_cold(place.0, place.1, read, completion.buffer, skip)
            {
                self.prefetched.add(*place, entry);
            }
        }
    }
}
