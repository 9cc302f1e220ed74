//! Background work that a table needs: a checkpoint, compaction, or chunks to load.
//!
//! Waste is what dead entries and tombstones take. Under writes, compaction keeps it at half of
//! what `live_ratio` allows. An idle table is compacted further.

use super::table::HashLog;
use crate::{
    Result,
    util::sync::{AtomicU64, Ordering},
};

/// Per cent of waste down to which an idle table is compacted.
pub(super) const IDLE_WASTE_PER_CENT: u64 = 4;
/// Milliseconds without a write after which a table is idle.
const IDLE_MILLIS: u64 = 500;
/// Milliseconds without a write after which compaction goes below [`IDLE_WASTE_PER_CENT`].
const LONG_IDLE_MILLIS: u64 = 4000;
/// Per cent of waste from which it does. The distance to the target below keeps a few updates
/// between two idle times from causing much rewriting.
const LONG_IDLE_WASTE_PER_CENT_MAX: u64 = 2;
/// Per cent of waste down to which it compacts. Heads and hints take most of the fifth that an idle
/// table may take beyond its live bytes.
pub(super) const LONG_IDLE_WASTE_PER_CENT: u64 = 1;

/// Background work that the table needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedWork {
    None,
    Checkpoint,
    /// Compaction until waste is at most this many per cent, or loading of chunks into memory.
    Compact(u64),
    /// None as long as writes continue.
    Later,
}

impl HashLog {
    pub(super) fn wanted_work(&self) -> WantedWork {
        let counters = &self.counters;
        let unflushed = counters.unflushed_units.load(Ordering::Relaxed);
        if unflushed >= self.settings.mutable_chunks * self.arena.segment_units()
            || self.checkpoint_wanted.load(Ordering::Relaxed)
        {
            return WantedWork::Checkpoint;
        }
        let applied = counters.applied.load(Ordering::Relaxed);
        let most = self.waste_per_cent_max();
        let stuck = counters.exhausted_at.load(Ordering::Relaxed) == applied + 1;
        let is_due = self.waste_exceeds(most) || self.has_many_small();
        if !stuck && is_due || self.wants_frames() {
            return WantedWork::Compact(most);
        }
        let idle_millis = self.idle_millis(applied);
        // A checkpoint of an idle table lets the log be pruned.
        let persisted = counters.applied_persisted.load(Ordering::Relaxed);
        let lacking = (unflushed > 0 || applied != persisted) && !self.context.read_only;
        if lacking && idle_millis >= IDLE_MILLIS {
            return WantedWork::Checkpoint;
        }
        let tidying = self.tidying(applied);
        if let Some((_, target)) = tidying.filter(|(millis, _)| idle_millis >= *millis) {
            return WantedWork::Compact(target);
        }
        let ready = self.arena.has_populated();
        let warm = self.warm_wanted.load(Ordering::Relaxed) && self.has_room_to_warm();
        if warm || ready && idle_millis >= IDLE_MILLIS {
            return WantedWork::Compact(most);
        }
        if lacking || ready || tidying.is_some() { WantedWork::Later } else { WantedWork::None }
    }

    /// Runs one step of the work that [`HashLog::wanted_work`] returns.
    pub(super) fn maintain_step(&self) -> Result<()> {
        let target = match self.wanted_work() {
            WantedWork::Compact(target) => target,
            _ => self.waste_per_cent_max(),
        };
        if target == LONG_IDLE_WASTE_PER_CENT {
            let applied = self.counters.applied.load(Ordering::Relaxed);
            self.counters.tidying_at.store(applied + 1, Ordering::Relaxed);
        }
        self.compact_step(target).map(drop)
    }

    /// Returns the units of waste, and of all entries.
    pub(super) fn waste(&self) -> (u64, u64) {
        let counters = &self.counters;
        let units = counters.units.load(Ordering::Relaxed);
        (counters.waste_units.load(Ordering::Relaxed).min(units), units)
    }

    /// Returns whether waste exceeds `per_cent` of all units, and half a chunk.
    pub(super) fn waste_exceeds(&self, per_cent: u64) -> bool {
        let (waste, units) = self.waste();
        waste * 100 > units * per_cent && waste * 2 > self.arena.segment_units()
    }

    /// Per cent of waste at which compaction starts. It is half of what `live_ratio` allows,
    /// because heads, hints, the log, copies and data that awaits a checkpoint take space as well.
    pub(super) fn waste_per_cent_max(&self) -> u64 {
        (100 - self.settings.live_per_cent) / 2
    }

    /// Per cent of waste at which writers compact as well.
    pub(super) fn waste_per_cent_of_writers(&self) -> u64 {
        (100 - self.settings.live_per_cent) * 6 / 10
    }

    /// Per cent of waste at which writers wait for a running step of compaction.
    pub(super) fn waste_per_cent_waited_for(&self) -> u64 {
        (100 - self.settings.live_per_cent) * 7 / 10
    }

    /// Returns the milliseconds since the count of operations was first observed at `applied`.
    fn idle_millis(&self, applied: u64) -> u64 {
        let counters = &self.counters;
        let now = u64::try_from(self.context.env.monotonic().as_millis()).unwrap_or(u64::MAX);
        if counters.applied_seen.swap(applied, Ordering::Relaxed) != applied {
            counters.applied_seen_millis.store(now, Ordering::Relaxed);
        }
        now.saturating_sub(counters.applied_seen_millis.load(Ordering::Relaxed))
    }

    pub(super) fn is_idle(&self, applied: u64) -> bool {
        self.idle_millis(applied) >= IDLE_MILLIS
    }

    /// Returns what compaction has to do once the table is idle: the milliseconds without a write
    /// after which it starts, and the per cent of waste to reach. `None`: nothing.
    fn tidying(&self, applied: u64) -> Option<(u64, u64)> {
        let counters = &self.counters;
        let is_now = |mark: &AtomicU64| mark.load(Ordering::Relaxed) == applied + 1;
        let stuck = is_now(&counters.exhausted_at);
        let most = self.waste_per_cent_max();
        let idle_target = IDLE_WASTE_PER_CENT.min(most);
        if !stuck && self.waste_exceeds(idle_target) {
            return Some((IDLE_MILLIS, idle_target));
        }
        if self.context.read_only {
            return None;
        }
        let begun = is_now(&counters.tidying_at);
        let bound = if begun { LONG_IDLE_WASTE_PER_CENT } else { LONG_IDLE_WASTE_PER_CENT_MAX };
        let wasteful = !stuck && self.waste_exceeds(bound);
        let untidy = wasteful || !is_now(&counters.tidied_at) && self.is_manifest_untidy();
        untidy.then_some((LONG_IDLE_MILLIS, LONG_IDLE_WASTE_PER_CENT))
    }

    pub(super) fn has_room_to_warm(&self) -> bool {
        let budget = &self.context.budget;
        budget.used() + self.arena.segment_bytes() <= budget.limit() / 10 * 9
    }
}
