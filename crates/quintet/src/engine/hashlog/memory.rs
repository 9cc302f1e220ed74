//! Memory for new entries: reserved before a write is logged, and frames for new chunks.
//!
//! A write is refused only in [`HashLog::admit_memory`], before it is logged. Later steps exceed
//! the budget if they must.

use super::{entry::HEAD_BYTES_MAX, table::HashLog, write::LARGE_PART};
#[cfg(doc)]
use crate::contract::RoomAttempts;
use crate::{
    Result,
    contract::{LOGGED_SLACK_BYTES, MemoryWait, Op},
    util::{budget::Reservation, codec::to_u64, sync::Ordering},
};

/// The memory that an entry needs.
struct EntryRoom {
    /// A chunk if the active one has no room, and the large value.
    bytes: u64,
    /// The active chunk has room for the entry.
    fits: bool,
    /// The entry has a large value.
    large: bool,
}

impl HashLog {
    /// Makes memory available for a write before it is logged: compacts if compaction is behind,
    /// evicts chunks that are in files, or flushes chunks. The write may wait for the flush of a
    /// few chunks.
    ///
    /// Fails with `OutOfMemory` if the budget has no memory for the write.
    pub(super) fn admit_memory(&self, op: &Op<'_>, wait: &MemoryWait) -> Result<()> {
        self.compact_if_behind();
        match self.missing_room(op, 0) {
            None => Ok(()),
            Some(room) => self.admit_room(op, &room, wait),
        }
    }

    #[cold]
    #[inline(never)]
    fn admit_room(&self, op: &Op<'_>, room: &EntryRoom, wait: &MemoryWait) -> Result<()> {
        let reserve = || self.context.reserve_with_retry(wait, room.bytes, || self.find_room(room));
        match op {
            // It goes on without room, since the disk may be full.
            Op::Delete { .. } => self.context.try_room(&self.room_attempts, reserve),
            _ => reserve(),
        }
    }

    /// As [`Self::admit_memory`], for an operation that is in the log. Waits for no other work than
    /// its own flush, because the caller may hold stripes. Fails as [`RoomAttempts::run`] does.
    pub(super) fn make_room_for_logged(&self, op: &Op<'_>) -> Result<()> {
        if let Some(room) = self.missing_room(op, LOGGED_SLACK_BYTES)
            && self.context.host.can_sync_log()
        {
            self.context.try_room(&self.room_attempts, || self.find_room(&room))?;
        }
        Ok(())
    }

    /// Returns the memory that an operation needs, if that exceeds the budget by more than `slack`
    /// bytes.
    fn missing_room(&self, op: &Op<'_>, slack: u64) -> Option<EntryRoom> {
        let (key, value_bytes) = match op {
            Op::Put { key, head, body } => (key, head.len() + body.len()),
            Op::Delete { key } => (key, 0),
            Op::DeleteRange { .. } => return None,
        };
        let entry = to_u64(HEAD_BYTES_MAX + key.len() + value_bytes);
        let large = entry > self.arena.segment_bytes() / LARGE_PART;
        let in_chunk = if large { to_u64(key.len()) + 48 } else { entry };
        let fits = self.active.load(Ordering::Acquire).checked_sub(1).is_some_and(|chunk| {
            let (used, sealed) = self.arena.used(chunk);
            !sealed && used + in_chunk.div_ceil(8) <= self.arena.segment_units()
        });
        let chunk = if fits { 0 } else { self.arena.segment_bytes() };
        let bytes = chunk + if large { entry } else { 0 };
        let budget = &self.context.budget;
        let is_missing = bytes > 0 && budget.used() + bytes > budget.limit() + slack;
        is_missing.then_some(EntryRoom { bytes, fits, large })
    }

    /// Evicts and flushes chunks until the budget has the memory.
    fn find_room(&self, room: &EntryRoom) -> Result<()> {
        let EntryRoom { bytes: needed, fits, large } = *room;
        let budget = &self.context.budget;
        while budget.used() + needed > budget.limit() {
            if self.release_some(needed) {
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

    /// Makes another table release memory, or evicts a chunk or large value of this table. Returns
    /// `false` if nothing was released.
    fn release_some(&self, needed: u64) -> bool {
        let budget = &self.context.budget;
        budget.reclaim_from_others(self.context.table_id, needed) || self.evict_one()
    }

    /// Returns a frame: from the budget, by eviction, or beyond the limit. The write is
    /// acknowledged, so it cannot be refused.
    ///
    /// Fails with `OutOfMemory` only if the arena's address space is used up.
    pub(super) fn frame_beyond_limit(&self) -> Result<u64> {
        let frame =
            self.arena.frames.reserve_or_evict(|| self.release_some(self.arena.segment_bytes()));
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
        while budget.used() + bytes > budget.limit() && self.release_some(bytes) {}
        budget.reserve_transient(bytes)
    }
}
