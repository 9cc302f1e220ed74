//! Pace: writers slow down before they would have to stop, and merges leave the disk to others.
//!
//! Memtables fill faster than flushes empty them, or level 0 grows faster than merges take it away:
//! then `admit` spreads a delay over all writes, so that they come in as fast as the work goes, and
//! nobody waits for a whole flush. Merges keep to `merge_rate`, if it is set.
//!
//! Invariants: one delay is bounded; nothing is logged yet when it happens.

use std::time::Duration;

use super::{Inner, SuperVersion};
use crate::{
    lsm::rate_limiter::{MERGE_DELAY_MAX, RATE_MIN, RateLimiter, Throughput, micros},
    util::{
        codec::to_u64,
        sync::{AtomicU64, Ordering},
    },
};

/// Level 0 grows to so many times what starts a merge before writers are delayed.
const LEVEL0_TIMES: usize = 3;

/// What was measured of merges.
#[derive(Debug, Default)]
pub(super) struct Rates {
    merge_pace: RateLimiter,
    /// Bytes a second that merges take out of level 0; and when they last did.
    merged: Throughput,
    merged_at_micros: AtomicU64,
}

impl Inner {
    /// Holds a merge to its rate.
    pub(super) fn pace_merge(&self, bytes: u64) {
        let rate = self.settings.merge_rate;
        if rate > 0 {
            self.rates.merge_pace.throttle(&*self.context.env, bytes, rate, MERGE_DELAY_MAX);
        }
    }

    /// Notes that so many bytes have left level 0.
    pub(super) fn note_merge(&self, bytes: u64) {
        let now = self.context.env.monotonic();
        let rates = &self.rates;
        let last = rates.merged_at_micros.swap(micros(now), Ordering::Relaxed);
        if last > 0 {
            rates.merged.note(bytes, now.saturating_sub(Duration::from_micros(last)));
        }
    }

    /// Finds the rate for writers, from what waits for a flush and for a merge.
    pub(super) fn find_write_rate(&self, view: &SuperVersion) {
        let mut rate = u64::MAX;
        if self.front.is_nearly_full(view) {
            rate = self.front.flushed.rate() / 10 * 9;
        }
        let (level0, most) =
            (view.version.level0.len(), self.settings.level0_tables * LEVEL0_TIMES);
        if level0 > most && !self.settings.is_flat() {
            // Half as fast when there is twice as much.
            let share = to_u64(most * 100 / level0);
            rate = rate.min(self.rates.merged.rate() / 100 * share);
        }
        let rate = if rate == u64::MAX { 0 } else { rate.max(RATE_MIN) };
        self.front.set_write_rate(rate);
    }
}
