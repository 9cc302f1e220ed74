//! Appends to the hot region, and the start of new ones.
//!
//! Locks: the caller of [`Trie::append`] holds the key's subtree. `roll` guards the start of a
//! region.

use super::{record::TrieRecordHead, table::Trie};
use crate::{
    Error, Result,
    util::{
        mutant::mutant,
        sync::{Ordering, lock},
    },
};

impl Trie {
    /// Appends a record to the hot region and returns its address. The caller holds the key's
    /// subtree.
    pub(super) fn append(
        &self,
        head: &TrieRecordHead,
        key: &[u8],
        value: [&[u8]; 2],
    ) -> Result<u64> {
        let units = head.units();
        loop {
            let hot = self.hot.load(Ordering::Acquire);
            if let Some(region) = hot.checked_sub(1)
                && let Some(unit) = self.regions.reserve(region, units)
            {
                let words = self.regions.words(region, unit).unwrap_or(&[]);
                head.store(words, key, value);
                self.regions.add_live(region, units);
                self.counters.appended_units.fetch_add(units, Ordering::Relaxed);
                return Ok(self.regions.address(region, unit));
            }
            self.begin_hot_region(hot)?;
        }
    }

    /// Begins a new hot region, unless another thread has done so since `seen` was read.
    pub(super) fn begin_hot_region(&self, seen: u64) -> Result<()> {
        let _roll = lock(&self.roll);
        if self.hot.load(Ordering::Acquire) != seen {
            return Ok(());
        }
        let frame = self.reserve_frame_unchecked()?;
        let Some(region) = self.regions.begin_life(frame) else {
            self.regions.release_frame(frame);
            let what = "the table has the maximum number of regions: use several tables".to_owned();
            return Err(Error::Limit { what });
        };
        self.hot.store(region + 1, Ordering::Release);
        if let Some(old) = seen.checked_sub(1) {
            self.regions.seal(old);
        }
        self.charge_index();
        self.count_waste();
        if self.wants_checkpoint() || self.waste_exceeds(self.waste_per_cent_max()) {
            self.context.host.wake();
        }
        Ok(())
    }

    /// Seals the hot region if none of its records is live, so that a checkpoint frees it and need
    /// not write it. The next append begins another one.
    pub(super) fn seal_dead_hot_region(&self) {
        mutant!(TrieMovesWithoutSpace => return);
        let _roll = lock(&self.roll);
        let Some(hot) = self.hot.load(Ordering::Acquire).checked_sub(1) else { return };
        let (used, _) = self.regions.used(hot);
        // The first unit of the table is never in use.
        if used > 1 && self.regions.live(hot) == 0 {
            // An append that has seen it before may still add a live record.
            self.hot.store(0, Ordering::Release);
            self.regions.seal(hot);
        }
    }
}
