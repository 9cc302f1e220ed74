//! Memory: reserved before a write is logged, and evicted when the budget is exceeded.
//!
//! Records are evicted before regions of the trie, because a miss of a record costs a read of a
//! block. What is in no file cannot be evicted: a writer then writes it, or makes a checkpoint.

use super::{
    record::{HEAD_BYTES, LARGE_PART},
    table::Trie,
};
#[cfg(doc)]
use crate::contract::RoomAttempts;
use crate::{
    Result,
    contract::{LOGGED_SLACK_BYTES, MemoryUse, Op},
    engine::trie::store::regions::UNIT_BYTES,
    util::{budget::USES_OF_A_READ, codec::to_u64, sync::Ordering},
};

/// Memory may exceed the budget by this part of it before a writer makes a checkpoint itself.
pub(super) const OVERSHOOT_PART: u64 = 16;
/// Bytes of the trie that a table keeps in memory, however idle it is.
const INDEX_BYTES_MIN: u64 = 256 << 10;
/// At least this part of the trie is evicted at once for another table.
const INDEX_PART: u64 = 8;
/// Disk reads between two requests for memory of other tables.
const REQUEST_PERIOD: u64 = 16;
/// Bytes. The most by which it may exceed the budget.
const OVERSHOOT_MAX: u64 = 8 << 20;
/// Regions that a table keeps in memory, however idle it is.
const REGIONS_MIN: u64 = 2;

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
            if self.release_some(0) {
                continue;
            }
            // Words of the trie would soon be read again. Their changes need not stay in memory.
            if self.request_images() && self.context.budget.used() <= self.most_bytes() {
                return true;
            }
            if !self.evict_index(keep) {
                return false;
            }
        }
        true
    }

    /// Requests a checkpoint that writes all changed words of the trie, if their changes take more
    /// memory than half of the trie. Returns whether they do. Of a larger trie each change would
    /// write a region.
    fn request_images(&self) -> bool {
        let changes = self.index.space().change_bytes();
        if changes < self.index.space_bytes() / 2 || self.context.read_only {
            return false;
        }
        self.wanted_bytes.fetch_max(1, Ordering::Relaxed);
        if !self.checkpoint_wanted.swap(true, Ordering::Relaxed) {
            self.context.host.wake();
        }
        true
    }

    /// Returns the bytes up to which changes may exceed the budget until a checkpoint releases
    /// them.
    fn most_bytes(&self) -> u64 {
        let limit = self.context.budget.limit();
        limit + (limit / OVERSHOOT_PART).min(OVERSHOOT_MAX)
    }

    /// Before a write: makes a checkpoint if memory exceeds the budget by more than
    /// [`OVERSHOOT_PART`], because changes then come faster than checkpoints release them.
    pub(super) fn bound_changes(&self) -> Result<()> {
        self.bound_changes_by(|| self.checkpoint_for_memory())
    }

    /// As [`Self::bound_changes`], for a change that frees space. It is accepted if the disk is
    /// full. Fails as [`RoomAttempts::run`] does.
    pub(super) fn bound_changes_to_free(&self) -> Result<()> {
        self.bound_changes_by(|| {
            self.context.try_room(&self.room_attempts, || self.checkpoint_for_memory())
        })
    }

    fn bound_changes_by(&self, checkpoint: impl FnOnce() -> Result<()>) -> Result<()> {
        let budget = &self.context.budget;
        if budget.used() <= self.most_bytes() {
            return Ok(());
        }
        self.enforce_budget(0);
        if budget.used() > self.most_bytes() {
            checkpoint()?;
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

    /// As [`Self::has_room_to_load`]. Takes memory from tables that use theirs less if there is
    /// none.
    pub(super) fn make_room_to_load(&self) -> bool {
        let reads = self.counters.cold_reads_total.load(Ordering::Relaxed);
        if reads.is_multiple_of(REQUEST_PERIOD) && !self.has_room_to_load() {
            let bytes = self.regions.segment_bytes();
            self.context.budget.reclaim_from_others(self.context.table_id, bytes);
        }
        self.has_room_to_load()
    }

    /// Returns whether the budget has room to load whole regions.
    pub(super) fn has_room_to_load(&self) -> bool {
        let budget = &self.context.budget;
        budget.used() + self.regions.segment_bytes() <= budget.limit() / 10 * 9
    }

    /// Makes another table release memory, or evicts a region of records. Returns `false` if
    /// nothing was released.
    fn release_some(&self, needed: u64) -> bool {
        let budget = &self.context.budget;
        budget.reclaim_from_others(self.context.table_id, needed) || self.evict_one()
    }

    /// Returns what [`Self::reclaim`] could release: the regions of records in memory that the file
    /// has, beyond the floor. Appended records, the trie and its changes count as unwritten: a
    /// checkpoint releases them, because the eviction of words of the trie waits for all writers.
    pub(super) fn memory_use(&self) -> MemoryUse {
        let counters = &self.counters;
        let appended = counters.appended_units.load(Ordering::Relaxed) * UNIT_BYTES;
        let floor = REGIONS_MIN * self.regions.segment_bytes();
        let floor = floor.max(self.context.budget.table_floor());
        let releasable = self.regions.frames.memory_bytes().saturating_sub(floor);
        let in_regions = appended.min(releasable);
        let index = counters.index_charged.load(Ordering::Relaxed);
        let unwritten_bytes = in_regions + index.saturating_sub(INDEX_BYTES_MIN.max(floor / 4));
        let reads = counters.cold_reads_total.load(Ordering::Relaxed);
        MemoryUse {
            reclaimable_bytes: releasable - in_regions,
            unwritten_bytes,
            uses_total: counters.applied.load(Ordering::Relaxed) + reads * USES_OF_A_READ,
        }
    }

    /// Releases about `wanted` bytes that another table wants, after a checkpoint. Evicts words of
    /// the trie if records do not suffice. The caller has no subtree locked.
    pub(super) fn release_wanted(&self, wanted: u64) {
        self.charge_index();
        if wanted == 0 {
            return;
        }
        let index = || self.counters.index_charged.load(Ordering::Relaxed);
        let step = wanted.max(index() / INDEX_PART);
        let records = self.reclaim_records(step);
        let until = index().saturating_sub(step.saturating_sub(records)).max(INDEX_BYTES_MIN);
        while index() > until && self.evict_index(0) {}
    }

    /// Releases about `bytes` for another table: spare frames, then regions of records.
    pub(super) fn reclaim(&self, bytes: u64) -> u64 {
        let memory = self.memory_use();
        let wanted = bytes.min(memory.reclaimable_bytes);
        if bytes > wanted && memory.unwritten_bytes > 0 && !self.context.read_only {
            self.wanted_bytes.fetch_max(bytes - wanted, Ordering::Relaxed);
            if !self.checkpoint_wanted.swap(true, Ordering::Relaxed) {
                self.context.host.wake();
            }
        }
        self.reclaim_records(wanted)
    }

    /// Releases `wanted` bytes of records and spare frames, as far as the file has them.
    fn reclaim_records(&self, wanted: u64) -> u64 {
        let frames = &self.regions.frames;
        let wanted = wanted.min(self.memory_use().reclaimable_bytes);
        let before = frames.memory_bytes();
        let released = || before.saturating_sub(frames.memory_bytes());
        frames.discard_spares(0);
        while released() < wanted && self.evict_one() {
            frames.discard_spares(0);
        }
        released()
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
            if self.release_some(needed) || self.evict_index(0) {
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
    /// has. Does nothing during replay, for which [`Self::ensure_room_in_replay`] is. Fails as
    /// [`RoomAttempts::run`] does.
    pub(super) fn make_room_for_logged(&self, op: &Op<'_>) -> Result<()> {
        let budget = &self.context.budget;
        let needed = self.bytes_needed(op);
        let is_short = budget.used() + needed > budget.limit() + LOGGED_SLACK_BYTES;
        if is_short && needed > 0 && self.context.host.can_sync_log() {
            let make_room = || self.ensure_room_for(op, needed).and_then(|()| self.bound_changes());
            self.context.try_room(&self.room_attempts, make_room)?;
        }
        Ok(())
    }

    /// As [`Self::ensure_room`], for an operation that the log already has. During replay no
    /// checkpoint can be made, but appended records can be written and evicted without one. If the
    /// disk fails, the budget is exceeded; fails as [`RoomAttempts::run`] does.
    pub(super) fn ensure_room_in_replay(&self, op: &Op<'_>) -> Result<()> {
        let needed = self.bytes_needed(op);
        let budget = &self.context.budget;
        if needed == 0 || budget.used() + needed <= budget.limit() + LOGGED_SLACK_BYTES {
            return Ok(());
        }
        while budget.used() + needed > budget.limit() {
            if !self.release_some(needed) && !self.evict_index(0) {
                self.context.try_room(&self.room_attempts, || self.flush_appended())?;
                if !self.evict_one() {
                    break;
                }
            }
        }
        Ok(())
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
        let frame =
            self.regions.reserve_frame_or_evict(|| self.release_some(self.regions.segment_bytes()));
        frame.ok_or_else(|| self.out_of_memory(self.regions.segment_bytes()))
    }
}
