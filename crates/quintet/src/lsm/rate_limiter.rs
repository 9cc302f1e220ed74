//! Pace: the moments from which on work may go on, so that it keeps to a rate.
//!
//! Invariants: time is looked at only by whoever has a rate to keep to. Waits that are shorter
//! than what the system can do exactly are saved up.

use std::time::Duration;

use crate::{
    io::Env,
    util::{
        codec::low_u64,
        sync::{AtomicU64, Ordering},
    },
};

/// A step of a merge waits no longer than this.
pub(crate) const MERGE_DELAY_MAX: Duration = Duration::from_secs(1);
/// Shorter waits are saved up: the system wakes nobody more exactly.
const DELAY_MIN: Duration = Duration::from_micros(500);
/// After so long without a write, what is in memory is flushed.
const REST: Duration = Duration::from_millis(900);
/// Bytes a second that are assumed before any were measured.
const RATE_FIRST: u64 = 64 << 20;
/// The slowest that writers are made.
pub(crate) const RATE_MIN: u64 = 1 << 20;

/// Microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A moment from which on the next piece of work may start.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    next_micros: AtomicU64,
}

impl RateLimiter {
    /// How long work of so many bytes has to wait at this rate.
    fn wait(&self, bytes: u64, rate: u64, now: Duration) -> Duration {
        let now = micros(now);
        let takes = bytes.saturating_mul(1_000_000) / rate.max(1);
        let next = self.next_micros.load(Ordering::Relaxed).max(now);
        // Two at once may wait for the same moment: the rate is no promise to the byte.
        self.next_micros.store(next.saturating_add(takes), Ordering::Relaxed);
        Duration::from_micros(next - now)
    }

    /// Has work of so many bytes wait, at most so long; returns how long it did.
    pub(crate) fn keep_to(&self, env: &dyn Env, bytes: u64, rate: u64, most: Duration) -> Duration {
        let wait = self.wait(bytes, rate, env.monotonic());
        if wait < DELAY_MIN {
            return Duration::ZERO;
        }
        let wait = wait.min(most);
        env.pause(wait);
        wait
    }
}

/// A rate that is measured again and again.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    /// Bytes a second; 0: not measured yet.
    rate: AtomicU64,
}

impl Throughput {
    /// Notes that so many bytes took so long.
    pub(crate) fn note(&self, bytes: u64, time: Duration) {
        let rate = low_u64(u128::from(bytes) * 1_000_000 / u128::from(micros(time).max(1)));
        self.rate.store(rate.max(RATE_MIN), Ordering::Relaxed);
    }

    /// Bytes a second.
    pub(crate) fn rate(&self) -> u64 {
        match self.rate.load(Ordering::Relaxed) {
            0 => RATE_FIRST,
            rate => rate,
        }
    }
}

/// Whether nothing happens.
#[derive(Debug)]
pub(crate) struct IdleDetector {
    /// What a number was that changes with whatever happens, at the last look, and since when.
    mark: AtomicU64,
    since_micros: AtomicU64,
}

impl Default for IdleDetector {
    /// Nobody has looked yet.
    fn default() -> Self {
        Self { mark: AtomicU64::new(u64::MAX), since_micros: AtomicU64::new(0) }
    }
}

impl IdleDetector {
    /// Whether the number has been the same for a while.
    pub(crate) fn has_come(&self, env: &dyn Env, mark: u64) -> bool {
        let now = env.monotonic();
        if self.mark.swap(mark, Ordering::Relaxed) != mark {
            self.since_micros.store(micros(now), Ordering::Relaxed);
            return false;
        }
        let since = Duration::from_micros(self.since_micros.load(Ordering::Relaxed));
        now.saturating_sub(since) >= REST
    }
}
