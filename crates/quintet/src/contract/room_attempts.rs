//! Attempts of a table to make room in memory that may fail, for instance on a full disk.
//!
//! Problem: some changes are made although no memory can be written to files: those that the log
//! already has, and deletes, which free space. If each of them tried to write, each would take as
//! long as a failing write.
//! How: after a failed write the next attempt waits for [`RETRY_MILLIS`], and the changes go beyond
//! the budget meanwhile, by [`BEYOND_BUDGET_BYTES`] at most. Memory that other tables or running
//! work hold is no failed write: it is released without this table's changes, so these go on.
//!
//! Threads: any. Two threads may try at the same time.

use crate::{
    Error, Result,
    io::Env,
    util::{
        budget::Budget,
        mutant::mutant,
        sync::{AtomicU64, Ordering},
    },
};

/// Milliseconds after a failed attempt before the next one.
const RETRY_MILLIS: u64 = 1_000;
/// Memory beyond the budget that changes may take after a failed attempt.
const BEYOND_BUDGET_BYTES: u64 = 8 << 20;

/// When a table last failed to make room.
#[derive(Debug, Default)]
pub(crate) struct RoomAttempts {
    /// Milliseconds of the monotonic clock, at least 1; 0: the last attempt succeeded.
    failed_at: AtomicU64,
}

impl RoomAttempts {
    /// Calls `make_room`, unless a write of a call has failed within the last second. A failure to
    /// write is returned only if the memory of the database exceeds its budget by more than
    /// [`BEYOND_BUDGET_BYTES`]. `OutOfMemory` is not returned.
    pub(crate) fn run(
        &self,
        (budget, env): (&Budget, &dyn Env),
        make_room: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let most = budget.limit().saturating_add(BEYOND_BUDGET_BYTES);
        let is_beyond = mutant!(RoomIsUnbounded: false, else budget.used() > most);
        let failed = self.failed_at.load(Ordering::Relaxed);
        let failed = mutant!(RoomTriesEachTime: 0, else failed);
        // Few ask for the time: those after a failure.
        if failed > 0 && !is_beyond && millis(env).saturating_sub(failed) < RETRY_MILLIS {
            return Ok(());
        }
        match make_room() {
            Ok(()) if failed > 0 => self.failed_at.store(0, Ordering::Relaxed),
            Ok(()) => {}
            Err(Error::OutOfMemory { .. }) if mutant!(RoomNeedsMemory: false, else true) => {}
            Err(error) => {
                self.failed_at.store(millis(env), Ordering::Relaxed);
                return if is_beyond { Err(error) } else { Ok(()) };
            }
        }
        Ok(())
    }
}

fn millis(env: &dyn Env) -> u64 {
    u64::try_from(env.monotonic().as_millis()).unwrap_or(u64::MAX).max(1)
}
