//! Memory for new entries: reserved before a write is logged, and frames for new chunks.
//!
//! A write is refused only in [`HashLog::make_room`], before it is logged. Later steps exceed the
//! budget if they must.

use super::{entry::HEAD_BYTES_MAX, table::HashLog, write::LARGE_PART};
use crate::{
    Result,
    contract::Op,
    util::{budget::Reservation, codec::to_u64, sync::Ordering},
};

impl HashLog {
    /// Makes memory available for a write before it is logged: compacts if compaction is behind,
    /// evicts chunks that are in files, or flushes chunks. The write may wait for the flush of a
    /// few chunks.
    ///
    /// Fails with `OutOfMemory` if the budget has no memory for the write.
    pub(super) fn make_room(&self, op: &Op<'_>) -> Result<()> {
        self.compact_if_behind();
        let (key, value_bytes) = match op {
            Op::Put { key, head, body } => (key, head.len() + body.len()),
            Op::Delete { key } => (key, 0),
            Op::DeleteRange { .. } => return Ok(()),
        };
        let entry = to_u64(HEAD_BYTES_MAX + key.len() + value_bytes);
        let large = entry > self.arena.segment_bytes() / LARGE_PART;
        let in_chunk = if large { to_u64(key.len()) + 48 } else { entry };
        let fits = self.active.load(Ordering::Acquire).checked_sub(1).is_some_and(|chunk| {
            let (used, sealed) = self.arena.used(chunk);
            !sealed && used + in_chunk.div_ceil(8) <= self.arena.segment_units()
        });
        let chunk = if fits { 0 } else { self.arena.segment_bytes() };
        let needed = chunk + if large { entry } else { 0 };
        let budget = &self.context.budget;
        if budget.used() + needed <= budget.limit() || needed == 0 {
            return Ok(());
        }
        self.context.reserve_with_retry(needed, || self.find_room(needed, fits, large))
    }

    /// As [`Self::make_room`], for `needed` bytes. `fits`: the active chunk has room for the entry.
    /// `large`: the entry has a large value.
    fn find_room(&self, needed: u64, fits: bool, large: bool) -> Result<()> {
        let budget = &self.context.budget;
        while budget.used() + needed > budget.limit() {
            if self.evict_one() {
                continue;
            }
            // The active chunk stays open if the entry fits: a chunk sealed after a few entries
            // takes as much memory as a full one.
            self.flush_for_room(!fits)?;
            if !self.evict_one() {
                if fits {
                    self.flush_for_room(true)?;
                }
                if !fits || !self.evict_one() {
                    break;
                }
            }
        }
        // A table needs at least two chunks.
        let in_memory = self.arena.frames.memory_bytes() / self.arena.segment_bytes();
        budget.reclaim(needed);
        if budget.used() + needed > budget.limit() && (in_memory >= 2 || large) {
            return Err(self.out_of_memory(needed));
        }
        Ok(())
    }

    /// Returns a frame: from the budget, by eviction, or beyond the limit. The write is
    /// acknowledged, so it cannot be refused.
    ///
    /// Fails with `OutOfMemory` only if the arena's address space is used up.
    pub(super) fn frame_beyond_limit(&self) -> Result<u64> {
        let frame = self.arena.frames.reserve_or_evict(|| self.evict_one());
        frame.ok_or_else(|| self.out_of_memory(self.arena.segment_bytes()))
    }

    /// Returns whether frames are to be populated ahead, and there is memory for them.
    pub(super) fn wants_frames(&self) -> bool {
        self.arena.wants_frames() && self.has_room_to_warm()
    }

    /// Populates frames ahead of fast writers, and releases them if the table is idle.
    pub(super) fn populate_frames(&self) {
        if self.arena.has_populated() && self.is_idle(self.counters.applied.load(Ordering::Relaxed))
        {
            self.arena.release_populated();
        }
        while self.has_room_to_warm() && self.arena.populate_ahead() {}
    }

    /// Reserves memory for a buffer of maintenance or recovery. Evicts chunks for it, and exceeds
    /// the limit if that does not suffice: the work that needs the buffer releases memory.
    pub(super) fn working_memory(&self, bytes: u64) -> Reservation {
        let budget = &self.context.budget;
        while budget.used() + bytes > budget.limit() && self.evict_one() {}
        budget.reserve_transient(bytes)
    }
}
