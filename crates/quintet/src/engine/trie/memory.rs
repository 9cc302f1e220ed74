//! Memory: reserved before a write is logged, and evicted when the budget is exceeded.
//!
//! Records are evicted before regions of the trie, because a miss of a record costs a read of a
//! block. What is in no file cannot be evicted: a writer then writes it, or makes a checkpoint.

use super::{
    record::{HEAD_BYTES, LARGE_PART},
    table::Trie,
};
use crate::{
    Result,
    contract::{LOGGED_SLACK_BYTES, Op},
    engine::trie::store::regions::UNIT_BYTES,
    util::{codec::to_u64, sync::Ordering},
};

/// Memory may exceed the budget by this part of it before a writer makes a checkpoint itself.
pub(super) const OVERSHOOT_PART: u64 = 16;

impl Trie {
    /// Loads the region of a word of the trie, and evicts others if the budget requires it. The
    /// caller has no subtree locked.
    pub(super) fn load_index(&self, at: u64) -> Result<()> {
        self.index.space().load(at)?;
        self.enforce_budget(at);
        Ok(())
    }

    /// Evicts until the budget is kept or nothing can be evicted.
    ///
    /// Evicts records first, then regions of the trie except that of the word at `keep`. Requests a
    /// checkpoint if changes without one hold the memory. The caller has no subtree locked.
    pub(super) fn enforce_budget(&self, keep: u64) {
        // Only changes that are in no checkpoint remain.
        if !self.evict_to_budget(keep) && self.index.space().unsaved_bytes() > 0 {
            self.checkpoint_wanted.store(true, Ordering::Relaxed);
            self.context.host.wake();
        }
    }

    /// As [`Self::enforce_budget`], but requests no checkpoint. Returns whether the budget is kept.
    pub(super) fn evict_to_budget(&self, keep: u64) -> bool {
        self.charge_index();
        while self.context.budget.used() > self.context.budget.limit() {
            if !self.evict_one() && !self.evict_index(keep) {
                return false;
            }
        }
        true
    }

    /// Before a write: makes a checkpoint if memory exceeds the budget by more than
    /// [`OVERSHOOT_PART`], because changes then come faster than checkpoints release them.
    pub(super) fn bound_changes(&self) -> Result<()> {
        let budget = &self.context.budget;
        if budget.used() <= budget.limit() + budget.limit() / OVERSHOOT_PART {
            return Ok(());
        }
        self.enforce_budget(0);
        if budget.used() > budget.limit() + budget.limit() / OVERSHOOT_PART {
            self.checkpoint_for_memory()?;
            self.enforce_budget(0);
        }
        Ok(())
    }

    /// Evicts regions of the trie; `false` if none can be evicted.
    pub(super) fn evict_index(&self, keep: u64) -> bool {
        let evicted = self.index.evict(keep);
        if evicted {
            self.is_cold.store(true, Ordering::Relaxed);
            self.charge_index();
        }
        evicted
    }

    /// Returns whether the budget has room to load whole regions.
    pub(super) fn has_room_to_load(&self) -> bool {
        let budget = &self.context.budget;
        budget.used() + 4 * self.regions.segment_bytes() <= budget.limit() / 10 * 9
    }

    /// Evicts one region; `false` if none can be evicted.
    pub(super) fn evict_one(&self) -> bool {
        let evicted = self.regions.evict_one();
        self.is_cold.store(true, Ordering::Relaxed);
        self.counters.evicted_total.fetch_add(u64::from(evicted), Ordering::Relaxed);
        evicted
    }

    /// Before a write is logged: makes sure that there is memory for it. Evicts what is in files,
    /// or writes what is not yet. The writer waits for the write of a few regions at most. Fails
    /// with [`Error::OutOfMemory`].
    pub(super) fn ensure_room(&self, op: &Op<'_>) -> Result<()> {
        self.ensure_room_for(op, self.bytes_needed(op))
    }

    /// As [`Self::ensure_room`], for the bytes that [`Self::bytes_needed`] returned.
    pub(super) fn ensure_room_for(&self, op: &Op<'_>, needed: u64) -> Result<()> {
        let budget = &self.context.budget;
        if needed == 0 || budget.used() + needed <= budget.limit() {
            return Ok(());
        }
        let is_delete = matches!(op, Op::Delete { .. });
        let mut flushed = 0;
        while budget.used() + needed > budget.limit() {
            if self.evict_one() || self.evict_index(0) {
                continue;
            }
            if is_delete {
                return Ok(());
            }
            match flushed {
                0 => self.flush_appended()?,
                // Changes of the trie can be evicted once a checkpoint has them.
                1 => self.checkpoint_for_memory()?,
                _ => break,
            }
            flushed += 1;
        }
        // A table needs two regions to work.
        let in_memory = self.regions.frames.memory_bytes() / self.regions.segment_bytes();
        let is_large = !needed.is_multiple_of(self.regions.segment_bytes());
        budget.reclaim(needed);
        if budget.used() + needed > budget.limit() && (in_memory >= 2 || is_large) {
            return Err(self.out_of_memory(needed));
        }
        Ok(())
    }

    /// As [`Self::ensure_room`] and [`Self::bound_changes`], for an operation that the log already
    /// has. Does nothing during replay, for which [`Self::ensure_room_in_replay`] is.
    pub(super) fn make_room_for_logged(&self, op: &Op<'_>) {
        let budget = &self.context.budget;
        let needed = self.bytes_needed(op);
        let is_short = budget.used() + needed > budget.limit() + LOGGED_SLACK_BYTES;
        if is_short && needed > 0 && self.context.host.can_sync_log() {
            // If it fails, the write exceeds the budget.
            let _ = self.ensure_room_for(op, needed).and_then(|()| self.bound_changes());
        }
    }

    /// As [`Self::ensure_room`], for an operation that the log already has. During replay no
    /// checkpoint can be made, but appended records can be written and evicted without one.
    pub(super) fn ensure_room_in_replay(&self, op: &Op<'_>) {
        let needed = self.bytes_needed(op);
        let budget = &self.context.budget;
        if needed == 0 || budget.used() + needed <= budget.limit() + LOGGED_SLACK_BYTES {
            return;
        }
        while budget.used() + needed > budget.limit() {
            if !self.evict_one() && !self.evict_index(0) {
                // If the disk fails, the budget is exceeded.
                let flushed = self.flush_appended();
                if flushed.is_err() || !self.evict_one() {
                    break;
                }
            }
        }
    }

    /// Bytes that an operation will reserve: a region if it does not fit in the hot one, and the
    /// bytes of a large value.
    pub(super) fn bytes_needed(&self, op: &Op<'_>) -> u64 {
        let (key, value_bytes) = match op {
            Op::Put { key, head, body } => (key, head.len() + body.len()),
            Op::Delete { key } => (key, 0),
            Op::DeleteRange { .. } => return 0,
        };
        let record = to_u64(HEAD_BYTES + key.len() + value_bytes);
        let large = record > self.regions.segment_bytes() / LARGE_PART;
        let in_region = if large { to_u64(key.len() + 64) } else { record };
        let fits = self.hot.load(Ordering::Acquire).checked_sub(1).is_some_and(|region| {
            let (used, sealed) = self.regions.used(region);
            !sealed && used + in_region.div_ceil(UNIT_BYTES) <= self.regions.segment_units()
        });
        let region = if fits { 0 } else { self.regions.segment_bytes() };
        region + if large { record } else { 0 }
    }

    /// Returns a frame: from the budget, or from an evicted region, or beyond the limit, because
    /// the write is acknowledged.
    pub(super) fn reserve_frame_unchecked(&self) -> Result<u64> {
        let frame = self.regions.reserve_frame_or_evict(|| self.evict_one());
        frame.ok_or_else(|| self.out_of_memory(self.regions.segment_bytes()))
    }
}
