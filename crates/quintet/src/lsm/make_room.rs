//! Room for logged operations: of a batch that fills several memtables, and of the log.
//!
//! Admission reserves the memory of a batch before the batch is logged, but flushes before its
//! first operation only. Replay admits nothing. In both cases the thread that applies the
//! operations flushes between two of them.

use super::{
    memtable::cost,
    write_buffer::{FlushTarget, WriteBuffer},
};
#[cfg(doc)]
use crate::contract::RoomAttempts;
use crate::{
    Result,
    contract::{LOGGED_SLACK_BYTES, MemoryWait, Op},
    util::sync::Ordering,
};

impl<V> WriteBuffer<V> {
    /// Returns the bytes that [`WriteBuffer::admit`] reserves for a put. Deletes are never refused.
    #[expect(clippy::unused_self, reason = "the answer of this table")]
    pub(crate) fn admitted_bytes(&self, op: &Op<'_>) -> u64 {
        if matches!(op, Op::Put { .. }) { cost(op) } else { 0 }
    }

    /// Flushes if too many memtables wait for it, or if the budget lacks the memory of an operation
    /// that was not admitted. Does nothing if little would be flushed: each flush costs a file. If
    /// a flush fails, the memtables stay. Fails as [`RoomAttempts::run`] does.
    pub(crate) fn make_room(&self, op: &Op<'_>, target: &impl FlushTarget<V>) -> Result<()> {
        let bytes = cost(op);
        let budget = &self.context.budget;
        let (is_backed_up, is_small) = {
            let view = self.view.load();
            let is_small = view.frozen.is_empty() && view.active.charged() < self.list_bytes() / 2;
            (self.is_backed_up(&view), is_small)
        };
        let is_admitted = self.reserved.load(Ordering::Relaxed) >= bytes;
        let is_short = !is_admitted
            && !is_small
            && budget.used() + bytes > budget.limit() + LOGGED_SLACK_BYTES;
        if (is_backed_up || is_short) && self.context.host.can_sync_log() {
            return self.context.try_room(&self.room_attempts, || self.flush_in_writer(target));
        }
        Ok(())
    }

    /// Admits a delete. Deletes free space: they are admitted even if a flush fails, for instance
    /// on a full disk. Fails as [`RoomAttempts::run`] does.
    pub(super) fn admit_delete(
        &self,
        op: &Op<'_>,
        wait: &MemoryWait,
        target: &impl FlushTarget<V>,
    ) -> Result<()> {
        let bytes = cost(op);
        let mut is_reserved = false;
        self.context.try_room(&self.room_attempts, || {
            self.rotate_if_full(target)?;
            self.reserve(bytes, wait, target)?;
            is_reserved = true;
            Ok(())
        })?;
        if !is_reserved {
            self.context.budget.reserve_unchecked(bytes);
            self.reserved.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}
