//! The last sample of the store, and the recent past: what readers of metrics share.
//!
//! The statistics of a table take locks of its engine, which a checkpoint may hold. So a task
//! (`sampler.rs`) reads them each second, and readers get its last result.
//!
//! Locks: `current` and `history` are held for a copy only, and never together.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use quintet::{DatabaseStats, LogStats, Lsn};

use super::{clients::ClientTotals, histogram::HistogramCounts};

/// Tables whose figures are shown. The server has 33 tables at most; a directory can have others.
pub(crate) const TABLES_MAX: usize = 100;
/// Intervals that are kept for charts: five minutes.
const HISTORY_MAX: usize = 300;

/// The last sample, and the recent past.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    current: RwLock<Option<Arc<Sample>>>,
    history: Mutex<VecDeque<Arc<ActivityInterval>>>,
}

/// The state of the store and of the clients at one moment.
#[derive(Debug)]
pub(crate) struct Sample {
    /// When it was taken.
    pub(crate) taken: Instant,
    /// Statistics of the store, with at most [`TABLES_MAX`] open tables.
    pub(crate) store: DatabaseStats,
    /// Number of tables of the database.
    pub(crate) table_count: usize,
    /// When the log was synced.
    pub(crate) sync: SyncState,
    /// Clients and their buffers.
    pub(crate) clients: ClientTotals,
}

/// What happened between two samples.
#[derive(Debug)]
pub(crate) struct ActivityInterval {
    /// Its end in milliseconds since 1970.
    pub(crate) time: u64,
    /// Its length.
    pub(crate) length: Duration,
    /// Commands that ran, by row in the table of commands.
    pub(crate) commands: Vec<(usize, HistogramSummary)>,
    /// All commands.
    pub(crate) all: HistogramSummary,
    /// Bytes read from and written to clients.
    pub(crate) network: (u64, u64),
}

/// Durations in one interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HistogramSummary {
    /// Number of durations.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) sum: Duration,
    /// Upper bounds of the median, the 99th percentile and the 99.9th.
    pub(crate) quantiles: [Duration; 3],
}

impl HistogramSummary {
    /// The summary of counts.
    pub(crate) fn of(counts: &HistogramCounts) -> Self {
        let quantiles = [500, 990, 999].map(|part| counts.quantile(part).unwrap_or_default());
        Self { count: counts.count(), sum: counts.sum, quantiles }
    }
}

/// Syncs of the log as samples see them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncState {
    syncs: u64,
    /// When a new successful sync was seen; at first, when the server started.
    pub(crate) last: Instant,
    /// An end of the log that is not durable, and when it was seen.
    unsynced: Option<(Lsn, Instant)>,
}

impl SyncState {
    /// The state of a server that starts.
    pub(crate) fn new(now: Instant) -> Self {
        Self { syncs: 0, last: now, unsynced: None }
    }

    /// Takes notice of the log.
    pub(crate) fn note(&mut self, now: Instant, log: &LogStats) {
        if log.syncs_total > self.syncs {
            self.syncs = log.syncs_total;
            self.last = now;
        }
        if self.unsynced.is_some_and(|(end, _)| log.durable >= end) {
            self.unsynced = None;
        }
        if self.unsynced.is_none() && log.durable < log.end {
            self.unsynced = Some((log.end, now));
        }
    }

    /// How long the log has had bytes that are not durable.
    pub(crate) fn unsynced_for(&self, now: Instant) -> Duration {
        self.unsynced.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since))
    }
}

impl Observed {
    /// The last sample, or `None` in the first moments of a server.
    pub(crate) fn sample(&self) -> Option<Arc<Sample>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The intervals that ended after `time`, in milliseconds since 1970.
    pub(crate) fn history(&self, time: u64) -> Vec<Arc<ActivityInterval>> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().filter(|interval| interval.time > time).cloned().collect()
    }

    /// Replaces the sample and adds an interval.
    pub(crate) fn install(&self, sample: Sample, interval: ActivityInterval) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(sample));
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.push_back(Arc::new(interval));
        if history.len() > HISTORY_MAX {
            history.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_unsynced_bytes_begins_when_they_are_seen_and_ends_with_a_sync() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let log = |end: u64, durable: u64, syncs_total: u64| LogStats {
            end: Lsn(end),
            durable: Lsn(durable),
            syncs_total,
            ..LogStats::default()
        };
        let mut state = SyncState::new(start);
        state.note(at(1), &log(10, 10, 0));
        assert_eq!((state.last, state.unsynced_for(at(1))), (start, Duration::ZERO));
        state.note(at(2), &log(20, 10, 0));
        state.note(at(5), &log(30, 10, 0));
        assert_eq!(state.unsynced_for(at(5)), Duration::from_secs(3));
        // The sync covers what was seen first. What came later waits since now.
        state.note(at(6), &log(40, 25, 1));
        assert_eq!((state.last, state.unsynced_for(at(6))), (at(6), Duration::ZERO));
        assert_eq!(state.unsynced_for(at(8)), Duration::from_secs(2));
        state.note(at(9), &log(40, 40, 2));
        assert_eq!((state.last, state.unsynced_for(at(20))), (at(9), Duration::ZERO));
    }
}
