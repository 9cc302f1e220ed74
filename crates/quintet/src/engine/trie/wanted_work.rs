//! Background work that a table needs: a checkpoint, or compaction.

use super::{checkpoint_state::CHANGES_PART, options::CUT_BYTES_MIN, table::Trie};
use crate::{
    contract::PendingWork, engine::trie::store::regions::UNIT_BYTES, util::sync::Ordering,
};

/// Operations after which a checkpoint is wanted: about as many as replay may have to apply again.
const CHECKPOINT_OPERATIONS: u64 = 100_000;
/// Percentage of waste in the data file down to which an idle table is compacted.
const IDLE_WASTE_PER_CENT: u64 = 4;
/// Milliseconds without a write after which a table counts as idle.
const IDLE_MILLIS: u64 = 500;

impl Trie {
    /// Returns the background work that the table needs.
    pub(super) fn wanted_work(&self) -> PendingWork {
        let counters = &self.counters;
        let applied = counters.applied.load(Ordering::Relaxed);
        if self.wants_checkpoint() || !self.replay_buffer.is_empty() {
            // One compaction step between two checkpoints, however fast they follow one another.
            let cuts = counters.cuts_total.load(Ordering::Relaxed);
            let is_step_due = counters.compacted_at.load(Ordering::Relaxed) <= cuts;
            let wants =
                self.replay_buffer.is_empty() && self.waste_exceeds(self.waste_per_cent_max());
            return if is_step_due && wants {
                PendingWork::Maintain
            } else {
                PendingWork::Checkpoint
            };
        }
        if counters.idle_compaction_at.load(Ordering::Relaxed) == applied + 1 {
            return PendingWork::None;
        }
        if self.waste_exceeds(self.waste_per_cent_max()) {
            return PendingWork::Maintain;
        }
        let idle_waste = IDLE_WASTE_PER_CENT.min(self.waste_per_cent_max());
        if !self.waste_exceeds(idle_waste) && !self.index.wants_gathering() {
            return PendingWork::None;
        }
        if self.is_idle(applied) { PendingWork::Maintain } else { PendingWork::Later }
    }

    /// Returns whether a checkpoint is due: enough bytes or operations since the last, or a
    /// request.
    pub(super) fn wants_checkpoint(&self) -> bool {
        let appended_bytes = self.counters.appended_units.load(Ordering::Relaxed) * UNIT_BYTES;
        // Changes that are in no checkpoint stay in memory, whatever the budget.
        let part = self.context.budget.limit() / CHANGES_PART;
        let wanted = self.settings.cut_bytes.min(part.max(CUT_BYTES_MIN));
        let counters = &self.counters;
        let since = counters
            .applied
            .load(Ordering::Relaxed)
            .wrapping_sub(counters.applied_at_checkpoint.load(Ordering::Relaxed));
        appended_bytes + self.index.space().unsaved_bytes() >= wanted
            || since >= CHECKPOINT_OPERATIONS
            || self.checkpoint_wanted.load(Ordering::Relaxed)
    }

    /// Returns whether waste exceeds `per_cent` of the data and two regions.
    pub(super) fn waste_exceeds(&self, per_cent: u64) -> bool {
        let units = self.counters.units.load(Ordering::Relaxed);
        let waste = self.counters.waste_units.load(Ordering::Relaxed);
        waste * 100 > units * per_cent && waste > self.regions.segment_units() * 2
    }

    /// The percentage of waste that the option `live_ratio` permits.
    pub(super) fn waste_per_cent_max(&self) -> u64 {
        100 - self.settings.live_per_cent
    }

    /// Counts units and waste anew, and updates `is_cold`.
    pub(super) fn count_waste(&self) {
        // A thread that evicts sets the flag after it: whatever happens between these two, the flag
        // is right.
        self.is_cold.store(false, Ordering::SeqCst);
        if !self.is_all_in_memory() {
            self.is_cold.store(true, Ordering::Relaxed);
        }
        let (units, waste) = self.regions.units();
        self.counters.units.store(units, Ordering::Relaxed);
        self.counters.waste_units.store(waste, Ordering::Relaxed);
    }

    /// Returns whether every record and every word of the trie is in memory.
    pub(super) fn is_all_in_memory(&self) -> bool {
        let mut regions = self.regions.in_use().into_iter();
        let is_buffering = self.replay_buffer.is_replaying() || !self.replay_buffer.is_empty();
        !is_buffering
            && self.index.is_all_loaded()
            && regions.all(|region| self.regions.is_resident(region))
    }

    /// Returns whether the table was idle and has had no write since the last [`Self::is_resting`].
    pub(super) fn was_idle(&self) -> bool {
        let applied = self.counters.applied.load(Ordering::Relaxed);
        applied == self.counters.applied_seen.load(Ordering::Relaxed) && self.is_idle(applied)
    }

    /// Returns whether `applied` has not changed for [`IDLE_MILLIS`].
    pub(super) fn is_idle(&self, applied: u64) -> bool {
        let counters = &self.counters;
        let now = u64::try_from(self.context.env.monotonic().as_millis()).unwrap_or(u64::MAX);
        if counters.applied_seen.swap(applied, Ordering::Relaxed) != applied {
            counters.applied_seen_millis.store(now, Ordering::Relaxed);
        }
        let since = counters.applied_seen_millis.load(Ordering::Relaxed);
        now.saturating_sub(since) >= IDLE_MILLIS
    }
}
