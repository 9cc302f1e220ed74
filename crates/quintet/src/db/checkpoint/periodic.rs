//! The times of periodic checkpoint rounds (LogKV's `WriteBackInterval`).
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
    /// When the last interval began, in microseconds of the monotonic clock.
    begun_micros: AtomicU64,
}

impl PeriodicRounds {
    /// Begins the first interval at `now`.
    pub(super) fn new(interval: Duration, now: Duration) -> Self {
        Self { interval, begun_micros: AtomicU64::new(micros(now)) }
    }

    /// Returns the time between two rounds. Zero: no periodic rounds.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Begins the next interval at `now`.
    pub(super) fn begin(&self, now: Duration) {
        self.begun_micros.store(micros(now), Ordering::Relaxed);
    }

    /// Returns the time until the next round is due. `None`: there are no periodic rounds.
    pub(super) fn remaining(&self, now: Duration) -> Option<Duration> {
        if self.interval.is_zero() {
            return None;
        }
        let begun = Duration::from_micros(self.begun_micros.load(Ordering::Relaxed));
        Some(self.interval.saturating_sub(now.saturating_sub(begun)))
    }

    /// Returns whether a round is due.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.remaining(now).is_some_and(|remaining| remaining.is_zero())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
