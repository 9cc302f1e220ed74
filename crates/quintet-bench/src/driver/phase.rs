//! The measurement of a phase of a run.

use std::time::Duration;

use crate::{failure::Outcome, latency::LatencyHistograms, numbers::to_f64};

/// Measurement of a phase of a run.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Number of operations.
    pub operations: u64,
    /// Duration.
    pub time: Duration,
    /// Processor time of the whole process.
    pub cpu: Duration,
    /// Latencies of the operations that were timed.
    pub times: LatencyHistograms,
    /// Bytes of keys and values written.
    pub bytes_written: u64,
    /// Reads that found their key.
    pub found: u64,
    /// Reads that did not find their key.
    pub absent: u64,
    /// Transactions that ended with a conflict and were run again.
    pub conflicts: u64,
    /// Bytes of the drawn operations.
    pub harness_bytes: u64,
}

impl Phase {
    /// Returns the operations per second.
    pub fn rate(&self) -> f64 {
        let seconds = self.time.as_secs_f64();
        if seconds > 0.0 { to_f64(self.operations) / seconds } else { 0.0 }
    }

    /// Adds the measurement of a further round.
    pub fn add(&mut self, round: &Self) -> Outcome {
        self.operations += round.operations;
        self.time += round.time;
        self.cpu += round.cpu;
        self.times.merge(&round.times)?;
        self.bytes_written += round.bytes_written;
        self.found += round.found;
        self.absent += round.absent;
        self.conflicts += round.conflicts;
        Ok(())
    }
}
