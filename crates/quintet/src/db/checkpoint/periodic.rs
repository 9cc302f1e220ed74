//! The times of periodic checkpoint rounds: those after an interval (LogKV's `WriteBackInterval`),
//! and those for lack of space.
//!
//! The persist job asks after each of its runs, and sleeps until the next round at the latest. So
//! writers pay nothing for it. A round without unpersisted updates is skipped.

use std::time::Duration;

use crate::util::sync::{AtomicU64, Ordering};

/// When the next periodic round is due.
#[derive(Debug)]
pub(super) struct PeriodicRounds {
    /// Time between two rounds. Zero: no periodic rounds.
    interval: Duration,
    /// When the next round is due, in microseconds of the monotonic clock.
    due_micros: AtomicU64,
}

impl PeriodicRounds {
    /// Creates rounds of which the first is due at `first`.
    pub(super) fn new(interval: Duration, first: Duration) -> Self {
        Self { interval, due_micros: AtomicU64::new(micros(first)) }
    }

    /// Returns the time between two rounds. Zero: no periodic rounds.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Begins the next interval at `now`.
    pub(super) fn begin(&self, now: Duration) {
        self.due_micros.store(micros(now + self.interval), Ordering::Relaxed);
    }

    /// Returns the time until the next round is due. `None`: there are no periodic rounds.
    pub(super) fn remaining(&self, now: Duration) -> Option<Duration> {
        if self.interval.is_zero() {
            return None;
        }
        let due = Duration::from_micros(self.due_micros.load(Ordering::Relaxed));
        Some(due.saturating_sub(now))
    }

    /// Returns whether a round is due.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.remaining(now).is_some_and(|remaining| remaining.is_zero())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
