//! Recovery of the space: collects changes from the journal while a table is opened.

use std::mem::take;

use super::{
    space_file::{PendingChanges, RegionChange, SpaceFile},
    word_space::WordSpace,
};
use crate::{
    journal::redo::Patch,
    util::{
        codec::{low_u32, to_u64},
        sync::{MutexGuard, Ordering, lock},
    },
};

impl WordSpace {
    /// Begins to collect the patches of a needed group, by its number, while the journal is opened.
    pub(crate) fn recover(&self, group: u64) -> ChangeRecovery<'_> {
        let disk = lock(&self.disk);
        let changes = PendingChanges::default();
        ChangeRecovery { space: self, disk, group, region: u64::MAX, changes, count: 0 }
    }
}

/// Collects the patches of one group. Patches of the same region follow one another.
#[derive(Debug)]
pub(crate) struct ChangeRecovery<'a> {
    space: &'a WordSpace,
    disk: MutexGuard<'a, SpaceFile>,
    group: u64,
    /// The region of the last patch (`u64::MAX`: none yet), and its changes.
    region: u64,
    changes: PendingChanges,
    count: u64,
}

impl ChangeRecovery<'_> {
    /// Adds a patch; `false` if no checkpoint can have made it.
    pub(crate) fn add_patch(&mut self, patch: &Patch<'_>) -> bool {
        let (chunks, rest) = patch.bytes.as_chunks::<8>();
        let first = patch.offset / 8;
        let end = first.checked_add(to_u64(chunks.len()));
        if !rest.is_empty()
            || !patch.offset.is_multiple_of(8)
            || end.is_none_or(|end| end > self.space.words_max())
        {
            return false;
        }
        for (index, chunk) in (first..).zip(chunks) {
            let region = index >> self.space.region_bits;
            if region != self.region {
                self.flush_region();
                self.region = region;
                let new = || PendingChanges { since: self.group, changes: Vec::new() };
                self.changes = self.disk.pending.remove(&region).unwrap_or_else(new);
            }
            let place = low_u32(index & (self.space.region_words() - 1));
            self.changes.changes.push(RegionChange::new(place, u64::from_le_bytes(*chunk)));
        }
        self.count += to_u64(chunks.len());
        true
    }

    /// Stores the changes of the current region.
    fn flush_region(&mut self) {
        let mut changes = take(&mut self.changes);
        // All changes of a journal that a larger budget allowed are in memory at once.
        changes.changes.shrink_to_fit();
        if !changes.changes.is_empty() {
            self.disk.pending.insert(self.region, changes);
        }
    }
}

impl Drop for ChangeRecovery<'_> {
    fn drop(&mut self) {
        self.flush_region();
        self.space.pending.fetch_add(self.count, Ordering::Relaxed);
    }
}
