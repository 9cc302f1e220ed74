//! Rates: a limiter that delays work, a measured throughput, and an idle detector.
//!
//! The limiter is a virtual schedule: each piece of work moves the time at which the next may
//! start by `bytes / rate`. Idle time earns no credit.
//!
//! Invariants:
//! - Only work that has a rate to keep to reads the clock.
//! - Waits below [`DELAY_MIN`] accumulate until the system can time them.
//!
//! Threads: any; all state is atomic.

use std::time::Duration;

use crate::{
    io::Env,
    util::{
        codec::low_u64,
        sync::{AtomicU64, Ordering},
    },
};

/// Longest wait of one step of a merge.
pub(crate) const MERGE_DELAY_MAX: Duration = Duration::from_secs(1);
/// Shorter waits accumulate: the system does not time them exactly.
const DELAY_MIN: Duration = Duration::from_micros(500);
/// Time without a write after which the memtables are flushed.
const IDLE_AFTER: Duration = Duration::from_millis(900);
/// Throughput in bytes a second that is assumed before one was measured.
const RATE_ASSUMED: u64 = 64 << 20;
/// Lowest rate in bytes a second that writers are limited to.
pub(crate) const RATE_MIN: u64 = 1 << 20;

/// Converts a duration to microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Delays work so that it keeps to a rate. See the module head.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    /// Monotonic time in microseconds at which the next piece of work may start.
    next_micros: AtomicU64,
}

impl RateLimiter {
    /// Returns how long work of `bytes` must wait at this rate, and moves the schedule on.
    fn wait(&self, bytes: u64, rate: u64, now: Duration) -> Duration {
        let now = micros(now);
        let takes = bytes.saturating_mul(1_000_000) / rate.max(1);
        let next = self.next_micros.load(Ordering::Relaxed).max(now);
        // Two threads may read the same time: the rate is not exact to the byte.
        self.next_micros.store(next.saturating_add(takes), Ordering::Relaxed);
        Duration::from_micros(next - now)
    }

    /// Pauses work of `bytes` until its time in the schedule, at most for `most`. Returns how long
    /// it paused.
    pub(crate) fn throttle(
        &self,
        env: &dyn Env,
        bytes: u64,
        rate: u64,
        most: Duration,
    ) -> Duration {
        let wait = self.wait(bytes, rate, env.monotonic());
        if wait < DELAY_MIN {
            return Duration::ZERO;
        }
        let wait = wait.min(most);
        env.pause(wait);
        wait
    }
}

/// The throughput of the last measured piece of work.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    /// Bytes a second; 0: not measured yet.
    rate: AtomicU64,
}

impl Throughput {
    /// Records that `bytes` took `time`.
    pub(crate) fn note(&self, bytes: u64, time: Duration) {
        let rate = low_u64(u128::from(bytes) * 1_000_000 / u128::from(micros(time).max(1)));
        self.rate.store(rate.max(RATE_MIN), Ordering::Relaxed);
    }

    /// Returns the throughput in bytes a second: the last one measured, at least [`RATE_MIN`].
    pub(crate) fn rate(&self) -> u64 {
        match self.rate.load(Ordering::Relaxed) {
            0 => RATE_ASSUMED,
            rate => rate,
        }
    }
}

/// Detects that a number has not changed for 0.9 seconds.
#[derive(Debug)]
pub(crate) struct IdleDetector {
    /// The number at the last query, and since when it has had this value.
    value: AtomicU64,
    unchanged_since_micros: AtomicU64,
}

impl Default for IdleDetector {
    /// Before the first query.
    fn default() -> Self {
        Self { value: AtomicU64::new(u64::MAX), unchanged_since_micros: AtomicU64::new(0) }
    }
}

impl IdleDetector {
    /// Returns whether `value` has had the same value since at least 0.9 seconds, as far as queries
    /// saw.
    pub(crate) fn is_idle(&self, env: &dyn Env, value: u64) -> bool {
        let now = env.monotonic();
        if self.value.swap(value, Ordering::Relaxed) != value {
            self.unchanged_since_micros.store(micros(now), Ordering::Relaxed);
            return false;
        }
        let since = Duration::from_micros(self.unchanged_since_micros.load(Ordering::Relaxed));
        now.saturating_sub(since) >= IDLE_AFTER
    }
}
