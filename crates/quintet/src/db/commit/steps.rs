//! The steps that commits of one operation and of batches share.

use crate::{
    Error, Result,
    contract::{Engine as _, Hint, MemoryWait, Op, TRANSIENT_WAIT_MAX},
    db::{
        core::{Core, condition::Condition, durability::Durability},
        encoding::envelope::NEVER,
        tables::state::TableState,
    },
    io::Stopwatch,
    util::{
        mutant::mutant,
        sync::{Ordering, fence},
    },
    wal::Appended,
};

/// Number of times that a write closes tables for memory: other writers may take it first.
const ROOM_RETRIES_MAX: u32 = 8;

/// Returns the hint that an operation is in progress. `hash` is that of [`hash_of`].
#[inline]
pub(super) fn write_hint<'a, 'k>(op: &Op<'k>, hash: u64, step: u32) -> Hint<'a, 'k> {
    let key = match op {
        Op::Put { key, .. } | Op::Delete { key } => *key,
        Op::DeleteRange { .. } => &[],
    };
    Hint::Write { key, hash, step }
}

/// Returns the hash of an operation's key; 0 for a range.
#[inline]
pub(super) fn hash_of(table: &TableState, op: &Op<'_>) -> u64 {
    match op {
        Op::Put { key, .. } | Op::Delete { key } => table.hash.hash(key),
        Op::DeleteRange { .. } => 0,
    }
}

/// Returns whether the operation releases space.
pub(super) fn frees(op: &Op<'_>) -> bool {
    !matches!(op, Op::Put { .. })
}

impl Core {
    /// Admits a record of `body_bytes` to the log. Waits while recovery would take too long.
    #[inline]
    pub(super) fn admit_to_log(&self, body_bytes: u64, frees: bool) -> Result<()> {
        if frees {
            self.make_room_to_free();
        } else {
            self.checkpoints.space.admit(|| self.checkpoints.reserve_needed())?;
        }
        let end = match self.log.admit(body_bytes, frees) {
            Err(error @ Error::DiskFull { .. }) => {
                self.checkpoints.request_space_round();
                return Err(error);
            }
            outcome => outcome?,
        };
        self.checkpoints.bound_recovery(&*self.env, &self.tables, end, frees)
    }

    /// Makes a log file for writes that free space, if the disk is full and the log has none ahead.
    #[inline]
    fn make_room_to_free(&self) {
        if self.log.lacks_space() {
            self.checkpoints.free_space();
            // The write fails itself if its record has no room.
            let _ = self.log.prepare_to_free();
        }
    }

    /// Admits the operation of a commit that has admitted no other. Closes tables without a handle
    /// if there is no memory for it. A delete that meets a full disk releases the space that is
    /// kept for it.
    #[inline]
    pub(super) fn admit_first(
        &self,
        table: &TableState,
        op: &Op<'_>,
        wait: &MemoryWait,
    ) -> Result<()> {
        match table.engine.admit(op, wait) {
            // Nothing is admitted: this thread may wait for a checkpoint round.
            Err(Error::OutOfMemory { .. }) => {
                self.after_closing_tables(|| table.engine.admit(op, wait))
            }
            Err(Error::DiskFull { .. }) if frees(op) && self.checkpoints.free_space() => {
                table.engine.admit(op, wait)
            }
            outcome => outcome,
        }
    }

    /// Runs `admit` after closing tables without a handle, and again while it lacks memory and
    /// there were some. After a refusal that took as long as a write may wait, it tries no more.
    /// The caller has admitted nothing and holds no lock.
    #[cold]
    pub(super) fn after_closing_tables(&self, mut admit: impl FnMut() -> Result<()>) -> Result<()> {
        let began = self.env.monotonic();
        for _ in 0..ROOM_RETRIES_MAX {
            let may_have_more = self.close_for_writers();
            match admit() {
                Err(Error::OutOfMemory { .. }) if may_have_more => {}
                outcome => return outcome,
            }
            if self.env.monotonic().saturating_sub(began) > TRANSIENT_WAIT_MAX {
                break;
            }
        }
        admit()
    }

    /// Closes tables without a handle, or waits for another writer that does. Returns whether there
    /// may be more memory than before.
    fn close_for_writers(&self) -> bool {
        let Some(_closing) = self.checkpoints.closing.begin_or_wait() else { return true };
        // Another thread may be closing them in its round.
        drop(self.checkpoints.round.lock());
        self.close_unused(usize::MAX) > 0
    }

    /// Cancels an admitted operation, in the table and in the expiry index.
    pub(super) fn cancel(&self, table: &TableState, op: &Op<'_>) {
        table.engine.cancel(op);
        self.expiry.cancel(table, op);
    }

    /// Returns until which time the condition of an operation holds, in milliseconds since 1970;
    /// `None` if it does not hold now.
    #[inline]
    pub(super) fn holds_until(
        &self,
        table: &TableState,
        op: &Op<'_>,
        condition: Condition,
    ) -> Result<Option<u64>> {
        match condition {
            Condition::Always => Ok(Some(NEVER)),
            _ => self.holds_now_until(table, op, condition),
        }
    }

    fn holds_now_until(
        &self,
        table: &TableState,
        op: &Op<'_>,
        condition: Condition,
    ) -> Result<Option<u64>> {
        let (Op::Put { key, .. } | Op::Delete { key }) = op else { return Ok(Some(NEVER)) };
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => !self.tables.contains(table, key)?,
            Condition::Present => return self.tables.present_until(table, key),
            Condition::Unchanged { stripe, version } => {
                self.tables.stripes.is_unchanged(stripe, version)
            }
            // The clock is read once, when the write has begun.
            Condition::Before(time) => return Ok(Some(time)),
            Condition::Expired { .. } => {
                mutant!(SweepDoesNotLookAgain => return Ok(Some(NEVER)));
                let expires_at = table.stored_expiry(key)?;
                expires_at.is_some_and(|time| time <= self.host.clock.now())
            }
        };
        Ok(holds.then_some(NEVER))
    }

    /// Returns whether the time until which a condition holds has passed since. The write has begun
    /// under its stripe, so a reader that reads a later clock waits for it.
    #[inline]
    pub(super) fn has_ended(&self, end: u64) -> bool {
        if end == NEVER {
            return false;
        }
        mutant!(ConditionForgetsTheClock => return false);
        fence(Ordering::SeqCst);
        self.host.clock.now() >= end
    }

    /// Applies a logged operation. A failure stops the table, because the log holds the write and
    /// the table does not.
    pub(super) fn apply(&self, table: &TableState, appended: Appended, op: &Op<'_>) -> Result<()> {
        table.record_applied(appended.end);
        table.engine.apply(appended.lsn, op).map_err(|error| {
            table.fail(&error);
            Error::TableFailed { table: self.tables.name_of(table), reason: error.to_string() }
        })
    }

    /// Runs after the stripes are released: wakes the jobs that the write made due, and waits for
    /// the sync if asked.
    pub(super) fn finish(&self, appended: Appended, durability: Durability) -> Result<()> {
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        if appended.wants_preparation {
            self.log_jobs.request_prepare(&self.host);
        }
        self.checkpoints.request_round_if_due(appended.end);
        if durability == Durability::Sync {
            let watch = Stopwatch::start();
            let outcome = self.log.wait_durable(appended.end);
            watch.stop(|counters, time| counters.log_time += time);
            return outcome;
        }
        self.log_jobs.request_sync(&self.host);
        Ok(())
    }
}
