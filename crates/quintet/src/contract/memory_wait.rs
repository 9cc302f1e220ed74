//! The time that one commit may wait for memory that other threads release.
//!
//! Problem: a batch is admitted operation by operation. If each of them may wait, a batch of
//! sixteen waits sixteen times as long as a put.
//! How: a commit has one [`MemoryWait`]. Each wait adds its time, and a commit that has waited for
//! [`TRANSIENT_WAIT_MAX`] waits no more: what has no memory then is refused. A flush by the caller
//! is work for the commit. The work of other writers that flush or find memory for all is counted
//! instead of timed, because a flush takes as long as the disk needs.
//!
//! An update that loses its round against another commit has a new allowance for the next round.
//!
//! Threads: that of the commit.

use std::{cell::Cell, time::Duration};

use crate::{io::Env, util::mutant::mutant};

/// A commit waits no longer than this for memory that running work or other tables hold.
pub(crate) const TRANSIENT_WAIT_MAX: Duration = Duration::from_millis(200);

/// A commit waits no more than this many times for the work of other writers.
const TURNS_MAX: u32 = 32;

/// How long a commit has waited for memory.
#[derive(Debug, Default)]
pub struct MemoryWait {
    waited: Cell<Duration>,
    /// Number of waits for the work of another writer.
    turns: Cell<u32>,
}

impl MemoryWait {
    /// Runs `wait`, and adds the time that it takes.
    pub(crate) fn measure<T>(&self, env: &dyn Env, wait: impl FnOnce() -> T) -> T {
        let began = env.monotonic();
        let outcome = wait();
        let took = env.monotonic().saturating_sub(began);
        mutant!(WaitsAreApart => return outcome);
        self.waited.set(self.waited.get().saturating_add(took));
        outcome
    }

    /// Returns whether the commit must wait no more.
    pub(crate) fn is_over(&self) -> bool {
        self.waited.get() >= TRANSIENT_WAIT_MAX
    }

    /// The commit has waited for the work of another writer. Returns whether it may wait again.
    pub(crate) fn count_turn(&self) -> bool {
        self.turns.set(self.turns.get().saturating_add(1));
        self.turns.get() < TURNS_MAX
    }
}
