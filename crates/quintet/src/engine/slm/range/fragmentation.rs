//! Scan fragmentation: how many runs a range query reads.
//!
//! A query that reads many runs for few entries makes these runs candidates for compaction
//! ([`crate::engine::slm::compaction_picker`], selection by ranges).

use crate::engine::slm::{run_list::RANGES, table::SlmTable};

/// Counts the runs that a range query reads, and remembers the worst part of the query.
#[derive(Debug)]
pub(super) struct ScanFragmentation {
    /// Entries of a part.
    keys: usize,
    /// Entries of the current part so far.
    count: usize,
    /// Runs of the current part.
    runs: Vec<u32>,
    /// Runs of the part with the most runs.
    worst: Vec<u32>,
}

impl ScanFragmentation {
    /// Returns `None` if range queries select no runs (`range_threshold` is 0).
    pub(super) fn new(table: &SlmTable) -> Option<Self> {
        let keys = table.settings.range_keys;
        let (count, runs, worst) = Default::default();
        (table.settings.range_threshold > 0).then_some(Self { keys, count, runs, worst })
    }

    /// Records that the query has returned an entry of this run.
    pub(super) fn record(&mut self, run: u32) {
        if self.runs.last() != Some(&run) && !self.runs.contains(&run) {
            self.runs.push(run);
        }
        self.count += 1;
        if self.count >= self.keys {
            self.end_part();
        }
    }

    /// Ends the current part, and keeps it if it is the worst.
    fn end_part(&mut self) {
        if self.runs.len() > self.worst.len() {
            std::mem::swap(&mut self.runs, &mut self.worst);
        }
        self.runs.clear();
        self.count = 0;
    }

    /// Ends the query, and makes the runs of its worst part candidates if they are too many.
    pub(super) fn end(mut self, table: &SlmTable) {
        self.end_part();
        if self.worst.len() > table.settings.range_threshold {
            table.mark_candidate(&self.worst, RANGES);
        }
    }
}
