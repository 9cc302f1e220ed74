//! A counter of events and of the time that they took, for statistics.
//!
//! For events of at least some ten microseconds, off the paths of gets and puts: an event costs two
//! reads of the clock and two atomic additions.

use std::time::Duration;

use super::sync::{AtomicU64, Ordering};

/// Counts events and adds up their durations.
#[derive(Debug, Default)]
pub(crate) struct TimedCounter {
    count: AtomicU64,
    micros: AtomicU64,
}

impl TimedCounter {
    /// Counts an event that took `time`.
    pub(crate) fn add(&self, time: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Returns the number of events.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns the sum of their durations in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }
}
