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
    numbers::truncate,
};

/// The figures of a run. Where loading is the workload, `load` is what is measured and the
/// figures of the operations are those of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Throughput, all threads together. An operation is one call; each key of a `multi_get`
    /// counts as one.
    pub ops_per_second: f64,
    /// Duration of the operations.
    pub seconds: f64,
    /// Processor time of the operations, the store's own threads included.
    pub cpu_seconds: f64,
    /// Throughput of loading the records; the same as `ops_per_second` where that is the workload.
    pub load_ops_per_second: f64,
    /// Reads alone. A `multi_get` is one call here.
    pub reads: Latency,
    /// Writes alone.
    pub writes: Latency,
    /// Reads that found their key.
    pub found: u64,
    /// Reads that did not.
    pub absent: u64,
    /// Memory of the process at the end, without the harness's operations.
    pub resident_bytes: u64,
    /// The most memory of the process, the harness's operations included.
    pub peak_resident_bytes: u64,
    /// Of that, the drawn operations of the harness.
    pub harness_bytes: u64,
    /// Memory that the store accounts for; none where it does not tell.
    pub store_memory_bytes: Option<u64>,
    /// Memory that finds keys rather than holds them; none where the store does not tell.
    pub index_bytes: Option<u64>,
    /// Live keys at the end; 0 where the store does not tell and records were deleted.
    pub keys: u64,
    /// Bytes of keys and values handed to the store while loading.
    pub load_user_bytes: u64,
    /// The same while the operations ran; 0 where loading is the workload.
    pub user_bytes: u64,
    /// Input and output of loading, synced.
    pub load_io: IoCounters,
    /// Input and output of the operations, synced; zeros where loading is the workload.
    pub io: IoCounters,
    /// Live bytes of keys and values at the end; 0 where the store does not tell and records were
    /// deleted.
    pub live_bytes: u64,
    /// Bytes of files on the disk at the end; none for stores without files.
    pub disk_bytes: Option<u64>,
    /// Time to close the store in order.
    pub close_seconds: Option<f64>,
    /// After `kill -9`, where asked for.
    pub recovery: Option<Recovery>,
}

/// Latencies of one kind of operations, the whole histogram kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How many operations were timed.
    pub samples: u64,
    /// Half are not slower.
    pub p50_ns: u64,
    /// 99 of 100 are not slower.
    pub p99_ns: u64,
    /// 999 of 1000 are not slower.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
    /// The mean, rounded.
    pub mean_ns: u64,
    /// The histogram of nanoseconds: `HdrHistogram` V2, base64. Empty where nothing was timed.
    pub histogram: String,
}

impl Latency {
    /// Summary and whole histogram.
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

    /// The whole histogram; `None` where nothing was timed.
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

/// What was found after `kill -9`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// From the start of opening until the first get was answered.
    pub seconds: f64,
    /// Of these, opening.
    pub open_seconds: f64,
    /// Records that were looked at: all that had been acknowledged.
    pub checked: u64,
    /// Records that should be there and are not, or the reverse.
    pub missing: u64,
    /// Records whose value is not the last one acknowledged.
    pub mismatching: u64,
}
