//! Raw figures of a run: rates, latencies, bytes, and the check after a kill.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer as _, V2Serializer},
};
use serde::{Deserialize, Serialize};

use crate::{
    failure::{Failure, Outcome},
    machine::IoCounters,
    numbers::{to_f64, truncate},
};

/// Figures of a run. If loading is the workload, the figures of the operations are those of
/// loading.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Operations per second of all threads together. An operation is one call; each key of a
    /// `multi_get` counts as one.
    pub ops_per_second: f64,
    /// Duration of the operations.
    pub seconds: f64,
    /// Processor time of the operations, including threads of the store.
    pub cpu_seconds: f64,
    /// Records per second of loading; equal to `ops_per_second` if loading is the workload.
    pub load_ops_per_second: f64,
    /// Latency of reads. A `multi_get` counts as one call.
    pub reads: Latency,
    /// Latency of writes.
    pub writes: Latency,
    /// Reads that found their key.
    pub found: u64,
    /// Reads that did not find their key.
    pub absent: u64,
    /// Resident memory of the process at the end, without the drawn operations of the harness.
    pub resident_bytes: u64,
    /// Maximum resident memory of the process, including the drawn operations.
    pub peak_resident_bytes: u64,
    /// Bytes of the drawn operations.
    pub harness_bytes: u64,
    /// Memory that the store accounts for; `None` if it does not.
    pub store_memory_bytes: Option<u64>,
    /// Memory that locates keys instead of holding records; `None` if the store does not report it.
    pub index_bytes: Option<u64>,
    /// Live keys at the end; 0 if the store does not report them and records were deleted.
    pub keys: u64,
    /// Bytes of keys and values written while loading.
    pub load_user_bytes: u64,
    /// Bytes of keys and values written by the operations; 0 if loading is the workload.
    pub user_bytes: u64,
    /// Input and output of loading, including a sync.
    pub load_io: IoCounters,
    /// Input and output of the operations, including a sync; zeros if loading is the workload.
    pub io: IoCounters,
    /// Bytes of live keys and values at the end; 0 if the store does not report them and records
    /// were deleted.
    pub live_bytes: u64,
    /// Bytes of files on the disk at the end; `None` for stores without files.
    pub disk_bytes: Option<u64>,
    /// Duration of an orderly close.
    pub close_seconds: Option<f64>,
    /// Check after `kill -9`, if requested.
    pub recovery: Option<Recovery>,
    /// Transactions, if the workload consists of them or of atomic updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactions: Option<TransactionFigures>,
}

/// Transactions of a run, and the check of their outcome. Each transaction adds one to the version
/// of a record, or moves one from a record to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionFigures {
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that ended with a conflict and were run again.
    pub conflicts: u64,
    /// Sum of the versions of all records of all tables before the run, modulo 2^64.
    pub sum_before: u64,
    /// The same sum after the run, read from the store. The run fails unless it is as expected.
    pub sum_after: u64,
}

impl TransactionFigures {
    /// Returns the share of the started transactions that ended with a conflict.
    pub fn abort_rate(&self) -> f64 {
        let started = self.commits + self.conflicts;
        if started == 0 { 0.0 } else { to_f64(self.conflicts) / to_f64(started) }
    }
}

/// Latency of reads or of writes, with the whole histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of timed operations.
    pub samples: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Mean, rounded.
    pub mean_ns: u64,
    /// Histogram of nanoseconds: `HdrHistogram` V2 in base64. Empty if no operation was timed.
    pub histogram: String,
}

impl Latency {
    /// Returns the summary and the encoded histogram.
    pub fn of(histogram: &Histogram<u64>) -> Outcome<Self> {
        if histogram.is_empty() {
            return Ok(Self::default());
        }
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(histogram, &mut bytes)
            .map_err(|error| Failure::Failed(format!("latency histogram: {error}")))?;
        Ok(Self {
            samples: histogram.len(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
            mean_ns: truncate(histogram.mean() + 0.5),
            histogram: STANDARD.encode(bytes),
        })
    }

    /// Returns the histogram; `None` if no operation was timed.
    pub fn histogram(&self) -> Outcome<Option<Histogram<u64>>> {
        let garbled = |what: String| Failure::Failed(format!("latency histogram: {what}"));
        if self.histogram.is_empty() {
            return Ok(None);
        }
        let bytes = STANDARD.decode(&self.histogram).map_err(|error| garbled(error.to_string()))?;
        let histogram = Deserializer::new().deserialize(&mut bytes.as_slice());
        histogram.map(Some).map_err(|error| garbled(error.to_string()))
    }
}

/// Check of a store after `kill -9`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Seconds from the start of opening to the reply of the first get.
    pub seconds: f64,
    /// Part of `seconds` that opening took.
    pub open_seconds: f64,
    /// Records that were checked: all acknowledged ones.
    pub checked: u64,
    /// Records that are absent but should be present, or the reverse.
    pub missing: u64,
    /// Records whose value is not the last acknowledged one.
    pub mismatching: u64,
}
