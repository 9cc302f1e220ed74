//! The measured limits, and the effort of measuring them.

use serde::{Deserialize, Serialize};

/// Number of threads of the random reads at depth.
pub const READ_DEPTH: u32 = 32;

/// Performance of memory and disk. A value is `None` if it could not be measured; `errors` contains
/// the reason. Times are for one thread unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Nanoseconds per dependent load that misses all caches, 4-KiB pages.
    pub dram_4k_ns: Option<f64>,
    /// The same with 2-MiB pages; also `None` if the kernel gives none.
    pub dram_2m_ns: Option<f64>,
    /// Nanoseconds per load with 16 in flight, 2-MiB pages (4-KiB pages if there are none).
    pub dram_overlapped_ns: Option<f64>,
    /// Bytes over which the loads were spread.
    pub dram_bytes: u64,
    /// Bytes copied per second.
    pub memcpy_bytes_per_second: Option<f64>,
    /// Direct random reads of 4 KiB per second, one at a time.
    pub read_iops_1: Option<f64>,
    /// The same, 32 at a time.
    pub read_iops_32: Option<f64>,
    /// Size of the file in bytes.
    pub disk_bytes: u64,
    /// Bytes written in sequence per second, durable at the end.
    pub write_bytes_per_second: Option<f64>,
    /// Median nanoseconds of an `fdatasync` after an overwrite of 4 KiB.
    pub fdatasync_p50_ns: Option<u64>,
    /// 99th percentile of the same.
    pub fdatasync_p99_ns: Option<u64>,
    /// Load average over one minute before measuring.
    pub load_average_before: Option<f64>,
    /// Load average after measuring. Measuring itself adds up to 1, the reads at depth more.
    pub load_average_after: Option<f64>,
    /// Reason for each limit that could not be measured.
    pub errors: Vec<String>,
}

impl Limits {
    /// Returns the result, or adds the reason of its failure to `errors`.
    pub(super) fn keep<T>(&mut self, what: &str, result: std::io::Result<T>) -> Option<T> {
        result.map_err(|error| self.errors.push(format!("{what}: {error}"))).ok()
    }
}

/// Memory, disk space and time of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasurementScope {
    /// Bytes over which the loads are spread, rounded down to a power of two. They must exceed the
    /// caches by far.
    pub memory_bytes: u64,
    /// Size of the file in bytes.
    pub disk_bytes: u64,
    /// Approximate milliseconds for each limit.
    pub time_ms: u64,
}

impl MeasurementScope {
    /// 1 GiB of each, a second for each limit: about 15 seconds in total.
    pub const FULL: Self = Self { memory_bytes: 1 << 30, disk_bytes: 1 << 30, time_ms: 1000 };
    /// Half of that, a fifth of a second for each limit: about 4 seconds, for the start of a
    /// comparison.
    pub const SHORT: Self = Self { memory_bytes: 1 << 29, disk_bytes: 1 << 29, time_ms: 200 };
}
