//! Changes since the last checkpoint, from the lists of stores to a durable group of the journal.

use std::mem::take;

use super::{
    space_file::{CHANGE_BYTES, PendingChanges, RegionChange},
    word_space::{SPACE, WordSpace},
};
use crate::{
    journal::redo::{GroupWriter, Patch},
    util::{
        codec::{low_u32, to_u64},
        sync::{Ordering, lock},
    },
};

/// Bytes that a checkpoint takes for each change until it is durable: for sorting, and for the
/// group that it builds.
const WORK_BYTES: u64 = 32;

impl WordSpace {
    /// Takes the changes since the last checkpoint. The caller keeps writers out, and calls
    /// [`Self::coalesce`] once it no longer does.
    pub(crate) fn begin_checkpoint(&self) {
        let mut disk = lock(&self.disk);
        let lists = self.lists.iter().map(|list| take(&mut *lock(list)));
        disk.taken.extend(lists.filter(|list| !list.is_empty()));
        drop(disk);
        let count = self.unsaved.swap(0, Ordering::Relaxed);
        self.in_flight.fetch_add(count, Ordering::Relaxed);
    }

    /// Merges the changes that [`Self::begin_checkpoint`] took with those of earlier checkpoints
    /// that failed. Keeps the latest value of each word.
    pub(crate) fn coalesce(&self) {
        let mut disk = lock(&self.disk);
        let (taken, mut all) = (take(&mut disk.taken), take(&mut disk.in_flight));
        all.reserve(taken.iter().map(Vec::len).sum());
        for list in taken {
            all.extend(list);
        }
        // Stable: of one word's changes the last stays last.
        all.sort_by_key(|(index, _)| *index);
        all.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = next.1;
            }
            same
        });
        self.in_flight.store(to_u64(all.len()), Ordering::Relaxed);
        disk.in_flight = all;
    }

    /// Bytes of memory that a checkpoint of all unsaved changes will take.
    pub(crate) fn work_bytes(&self) -> u64 {
        let changes = self.unsaved.load(Ordering::Relaxed) + self.in_flight.load(Ordering::Relaxed);
        changes * WORK_BYTES
    }

    /// Adds the changes of a checkpoint to a group, one patch for each run of adjacent words.
    pub(crate) fn journal(&self, group: &mut GroupWriter) {
        let disk = lock(&self.disk);
        let mut bytes = Vec::new();
        for run in disk.in_flight.chunk_by(|one, next| one.0 + 1 == next.0) {
            bytes.clear();
            bytes.extend(run.iter().flat_map(|(_, value)| value.to_le_bytes()));
            let Some((first, _)) = run.first() else { continue };
            group.patch(Patch { space: SPACE, offset: first * 8, bytes: &bytes });
        }
    }

    /// Records that the group with the changes is durable, by its number in the journal.
    pub(crate) fn commit(&self, group: u64) {
        let mut disk = lock(&self.disk);
        let in_flight = take(&mut disk.in_flight);
        for run in
            in_flight.chunk_by(|one, next| one.0 >> self.region_bits == next.0 >> self.region_bits)
        {
            let Some((first, _)) = run.first() else { continue };
            let new = || PendingChanges { since: group, changes: Vec::new() };
            let pending = disk.pending.entry(first >> self.region_bits).or_insert_with(new);
            let mask = self.region_words() - 1;
            pending.changes.extend(
                run.iter().map(|(index, value)| RegionChange::new(low_u32(index & mask), *value)),
            );
        }
        self.pending.fetch_add(to_u64(in_flight.len()), Ordering::Relaxed);
        self.in_flight.store(0, Ordering::Relaxed);
    }

    /// Bytes of memory of the changes that no image has.
    pub(crate) fn change_bytes(&self) -> u64 {
        let counts = [&*self.unsaved, &self.in_flight, &self.pending];
        counts.map(|count| count.load(Ordering::Relaxed)).iter().sum::<u64>() * CHANGE_BYTES
    }

    /// Bytes of memory of the changes since the last checkpoint.
    pub(crate) fn unsaved_bytes(&self) -> u64 {
        self.unsaved.load(Ordering::Relaxed) * CHANGE_BYTES
    }
}
