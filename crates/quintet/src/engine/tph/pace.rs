//! Pace: writers slow down before they would have to stop, and merges leave the disk to others.
//!
//! Memtables fill faster than flushes empty them, or level 0 grows faster than merges take it away:
//! then `admit` spreads a delay over all writes, so that they come in as fast as the work goes, and
//! nobody waits for a whole flush. Merges keep to `merge_rate`, if it is set.
//!
//! Invariants: one delay is at most [`DELAY_MAX`]; nothing is logged yet when it happens. Time is
//! looked at only while there is a rate to keep to.

use std::{sync::Arc, time::Duration};

use super::{Inner, View, memtable::Memtable};
use crate::{
    codec::{low_u64, to_u64},
    sync::{AtomicU64, Ordering},
};

/// A write waits no longer than this.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// Nor a step of a merge than this.
const MERGE_DELAY_MAX: Duration = Duration::from_secs(1);
/// Shorter waits are saved up: the system wakes nobody more exactly.
const DELAY_MIN: Duration = Duration::from_micros(500);
/// After so long without a write, what is in memory is flushed.
const REST: Duration = Duration::from_millis(900);
/// Bytes a second that are assumed before any were measured.
const RATE_FIRST: u64 = 64 << 20;
/// The slowest that writers are made.
const RATE_MIN: u64 = 1 << 20;
/// Level 0 grows to so many times what starts a merge before writers are delayed.
const LEVEL0_TIMES: usize = 3;

/// A moment from which on the next piece of work may start.
#[derive(Debug, Default)]
pub(super) struct Pace {
    next_micros: AtomicU64,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn per_second(bytes: u64, time: Duration) -> u64 {
    low_u64(u128::from(bytes) * 1_000_000 / u128::from(micros(time).max(1)))
}

impl Pace {
    /// How long work of so many bytes has to wait at this rate.
    fn wait(&self, bytes: u64, rate: u64, now: Duration) -> Duration {
        let now = micros(now);
        let takes = bytes.saturating_mul(1_000_000) / rate.max(1);
        let next = self.next_micros.load(Ordering::Relaxed).max(now);
        // Two at once may wait for the same moment: the rate is no promise to the byte.
        self.next_micros.store(next.saturating_add(takes), Ordering::Relaxed);
        Duration::from_micros(next - now)
    }
}

/// What was measured, and what follows from it.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Bytes a second that writers may bring; 0: as many as they like.
    writes: AtomicU64,
    write_pace: Pace,
    merge_pace: Pace,
    /// Bytes of memtables a second that flushes take away; 0: not measured yet.
    flushed: AtomicU64,
    /// Bytes a second that merges take out of level 0; and when they last did.
    merged: AtomicU64,
    merged_at_micros: AtomicU64,
    /// What the active memtable had when it was looked at last, and since when.
    rest_bytes: AtomicU64,
    rest_since_micros: AtomicU64,
}

impl Inner {
    /// Delays a write where it has to be.
    #[inline]
    pub(super) fn delay(&self, bytes: u64) {
        let rate = self.rates.writes.load(Ordering::Relaxed);
        if rate > 0 {
            self.delay_to(bytes, rate);
        }
    }

    #[cold]
    fn delay_to(&self, bytes: u64, rate: u64) {
        let wait = self.rates.write_pace.wait(bytes, rate, self.context.env.monotonic());
        if wait < DELAY_MIN {
            return;
        }
        let wait = wait.min(DELAY_MAX);
        self.context.env.pause(wait);
        let counters = &self.counters;
        counters.delays_total.fetch_add(1, Ordering::Relaxed);
        counters.delay_micros_total.fetch_add(micros(wait), Ordering::Relaxed);
    }

    /// Holds a merge to its rate.
    pub(super) fn pace_merge(&self, bytes: u64) {
        let rate = self.settings.merge_rate;
        if rate == 0 {
            return;
        }
        let wait = self.rates.merge_pace.wait(bytes, rate, self.context.env.monotonic());
        if wait >= DELAY_MIN {
            self.context.env.pause(wait.min(MERGE_DELAY_MAX));
        }
    }

    /// Notes how fast a flush was.
    pub(super) fn note_flush(&self, memtables: &[Arc<Memtable>], began: Duration) {
        let bytes = memtables.iter().map(|memtable| memtable.charged()).sum();
        let took = self.context.env.monotonic().saturating_sub(began);
        // What is tiny says nothing of the disk.
        if bytes >= self.settings.memtable_bytes / 4 {
            self.rates.flushed.store(per_second(bytes, took).max(RATE_MIN), Ordering::Relaxed);
        }
    }

    /// Notes that so many bytes have left level 0.
    pub(super) fn note_merge(&self, bytes: u64) {
        let now = self.context.env.monotonic();
        let rates = &self.rates;
        let last = rates.merged_at_micros.swap(micros(now), Ordering::Relaxed);
        if last > 0 {
            let took = now.saturating_sub(Duration::from_micros(last));
            rates.merged.store(per_second(bytes, took).max(RATE_MIN), Ordering::Relaxed);
        }
    }

    /// Finds the rate for writers, from what waits for a flush and for a merge.
    pub(super) fn set_write_rate(&self, view: &View) {
        let measured = |rate: &AtomicU64| match rate.load(Ordering::Relaxed) {
            0 => RATE_FIRST,
            rate => rate,
        };
        let mut rate = u64::MAX;
        // The last memtable but one is full.
        if to_u64(view.frozen.len()) + 2 >= self.settings.memtables.max(3) {
            rate = measured(&self.rates.flushed) / 10 * 9;
        }
        let (level0, most) =
            (view.version.level0.len(), self.settings.level0_tables * LEVEL0_TIMES);
        if level0 > most && !self.settings.is_flat() {
            // Half as fast when there is twice as much.
            let share = to_u64(most * 100 / level0);
            rate = rate.min(measured(&self.rates.merged) / 100 * share);
        }
        let rate = if rate == u64::MAX { 0 } else { rate.max(RATE_MIN) };
        self.rates.writes.store(rate, Ordering::Relaxed);
    }

    /// Whether nobody has written to the active memtable for a while.
    pub(super) fn is_at_rest(&self, active: &Memtable) -> bool {
        let (rates, bytes) = (&self.rates, active.charged());
        let now = self.context.env.monotonic();
        if rates.rest_bytes.swap(bytes, Ordering::Relaxed) != bytes {
            rates.rest_since_micros.store(micros(now), Ordering::Relaxed);
            return false;
        }
        let since = Duration::from_micros(rates.rest_since_micros.load(Ordering::Relaxed));
        now.saturating_sub(since) >= REST
    }

    /// The rate that writers are held to, in bytes a second; 0: none.
    pub(super) fn write_rate(&self) -> u64 {
        self.rates.writes.load(Ordering::Relaxed)
    }
}
