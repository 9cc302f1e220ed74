//! The rates of merges and of writers.
//!
//! Merges keep to the option `merge_rate`. Writers are limited when memtables fill faster than
//! flushes write them, or when level 0 grows faster than merges empty it. A small delay of each
//! write then lets writes arrive at the rate of that work. No writer has to wait for a whole flush.
//!
//! Invariants: a delay is bounded and happens before the write is logged.

use std::time::Duration;

use super::{
    options::TphSettings,
    version::{SuperVersion, Version},
};
use crate::{
    io::Env,
    lsm::{
        rate_limiter::{MERGE_DELAY_MAX, RATE_MIN, RateLimiter, Throughput, micros},
        write_buffer::WriteBuffer,
    },
    util::{
        codec::to_u64,
        sync::{AtomicU64, Ordering},
    },
};

/// Writers are delayed when level 0 has more than this many times the tables that start a merge.
const LEVEL0_TIMES: usize = 3;

/// The limit of merges, and their measured throughput.
#[derive(Debug, Default)]
pub(super) struct MergeRates {
    limiter: RateLimiter,
    /// Bytes a second that merges remove from level 0.
    level0: Throughput,
    /// Monotonic time in microseconds of the last merge of level 0; 0: none yet.
    level0_merged_at: AtomicU64,
}

impl MergeRates {
    /// Delays a merge that has processed `bytes`, to keep to the rate in bytes a second; 0: no
    /// limit.
    pub(super) fn throttle(&self, env: &dyn Env, bytes: u64, rate: u64) {
        if rate > 0 {
            self.limiter.throttle(env, bytes, rate, MERGE_DELAY_MAX);
        }
    }

    /// Records that a merge has removed `bytes` from level 0.
    pub(super) fn record_level0(&self, env: &dyn Env, bytes: u64) {
        let now = env.monotonic();
        let last = self.level0_merged_at.swap(micros(now), Ordering::Relaxed);
        if last > 0 {
            self.level0.note(bytes, now.saturating_sub(Duration::from_micros(last)));
        }
    }

    /// Returns the rate limit of writers in bytes a second; 0: no limit. It depends on the
    /// memtables that wait for a flush and the tables of level 0 that wait for a merge.
    pub(super) fn write_rate(
        &self,
        settings: &TphSettings,
        write_buffer: &WriteBuffer<Version>,
        super_version: &SuperVersion,
    ) -> u64 {
        let mut rate = u64::MAX;
        if write_buffer.is_nearly_full(super_version) {
            rate = write_buffer.flushed.rate() / 10 * 9;
        }
        let (level0, most) =
            (super_version.version.level0.len(), settings.level0_tables * LEVEL0_TIMES);
        if level0 > most && !settings.is_flat() {
            // Twice the tables halve the rate.
            let share = to_u64(most * 100 / level0);
            rate = rate.min(self.level0.rate() / 100 * share);
        }
        if rate == u64::MAX { 0 } else { rate.max(RATE_MIN) }
    }
}
