//! Limits of the machine: the performance of memory and disk without a store.
//!
//! A simple loop measures each limit in about a second; the results are one [`Limits`]. [`binding`]
//! determines the cost of an operation in each resource and the limit that binds it. Throughput as
//! a multiple of this limit shows how much a store can still gain, and it can be compared between
//! machines.
//!
//! | limit | measurement |
//! |-------|-------------|
//! | DRAM latency, 4-KiB and 2-MiB pages | one chain of dependent loads over up to 1 GiB, in an order that no prefetcher follows |
//! | DRAM latency, overlapped | 16 such chains at a time, 2-MiB pages: nanoseconds per load |
//! | copying | `memcpy` of 64 MiB, bytes copied per second (each is read once and written once) |
//! | random reads | 4 KiB at random positions of a file of up to 1 GiB, direct I/O, 1 and 32 threads |
//! | sequential writes | the same file, 1 MiB at a time, direct I/O, including the sync at the end |
//! | fdatasync | after each overwrite of 4 KiB of a file of its final size; p50 and p99 |
//!
//! The limits that bind an operation are below (*r* is the bytes of a record, key and value). An
//! operation needs several resources; the slowest one binds it:
//!
//! | operation | cost | reason |
//! |-----------|------|--------|
//! | point read of a present key | 2 dependent loads; *r* bytes copied | an index slot leads to the record, and the caller gets a copy of the value |
//! | point read of an absent key | 1 load | a tag in the slot can exclude the key |
//! | `multi_get` | as point reads, with overlapped loads | the keys are known in advance, so misses overlap |
//! | read of a record that is not in memory | 1 random read of the device, at a depth of keys in flight | with an index in memory one block contains the record |
//! | overwrite, delete, read-modify-write | 2 dependent loads; *r* bytes to the device in sequence | the key is compared; the record goes to the log once |
//! | insert | 1 load; *r* bytes to the device in sequence | an empty slot; the log again |
//! | the same, each synced | one `fdatasync` per group of all threads | a group commit includes at most all writers |
//! | range of *n* entries | 2 dependent loads; *n* x *r* bytes copied | records may be stored in key order |
//! | visit of all entries | *r* bytes copied | as above |
//!
//! All threads share copying, the device and the sync; each thread has its own loads.
//!
//! A multiple below 1 of the DRAM latency is possible: the processor overlaps the loads of
//! independent reads (`read-dependent` excludes that), zipfian keys hit the processor's caches, and
//! writes that are not synced may reach the device after the measurement.
//!
//! Thread rules: a measurement uses up to 32 threads and expects an otherwise idle machine. The
//! results contain the load average before and after.

pub mod binding;
mod disk;
mod memory;

use std::path::Path;

use crate::{
    failure::{Failure, Outcome},
    machine,
};
use serde::{Deserialize, Serialize};

use crate::result::{ResultLine, SCHEMA};

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
    /// Load average of the last minute before measuring.
    pub load_average_before: Option<f64>,
    /// Load average after measuring. Measuring itself adds up to 1, the reads at depth more.
    pub load_average_after: Option<f64>,
    /// Reason for each limit that could not be measured.
    pub errors: Vec<String>,
}

/// Limits in a results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitsRecord {
    /// [`SCHEMA`] of the program that wrote the line.
    pub schema: u32,
    /// Comparison that the limits belong to, as in its runs.
    pub run_id: String,
    /// Time of the measurement, milliseconds since 1970, UTC.
    pub measured_unix_ms: u64,
    /// The limits.
    pub limits: Limits,
}

impl LimitsRecord {
    /// Returns limits for a results file.
    pub const fn new(run_id: String, measured_unix_ms: u64, limits: Limits) -> Self {
        Self { schema: SCHEMA, run_id, measured_unix_ms, limits }
    }

    /// Measures the limits now; see [`measure`].
    pub fn measure(run_id: String, dir: &Path, scope: MeasurementScope) -> Self {
        Self::new(run_id, machine::unix_ms(), measure(dir, scope))
    }

    /// Returns a line of a results file.
    pub fn line(&self) -> Outcome<ResultLine> {
        serde_json::to_value(self).map(ResultLine::Limits).map_err(unwritable)
    }

    /// Returns the text of the line without its end.
    pub fn text(&self) -> Outcome<String> {
        serde_json::to_string(&self.line()?).map_err(unwritable)
    }
}

fn unwritable(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("limits: {error}"))
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

/// Measures every limit with files in `dir`, which it removes. A failure adds a line to `errors`.
pub fn measure(dir: &Path, scope: MeasurementScope) -> Limits {
    let mut limits = Limits { load_average_before: machine::load_average(), ..Limits::default() };
    memory::measure(scope, &mut limits);
    disk::measure(dir, scope, &mut limits);
    limits.load_average_after = machine::load_average();
    limits
}

impl Limits {
    /// Returns the result, or adds the reason of its failure to `errors`.
    fn keep<T>(&mut self, what: &str, result: std::io::Result<T>) -> Option<T> {
        result.map_err(|error| self.errors.push(format!("{what}: {error}"))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_measured_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let scope = MeasurementScope { memory_bytes: 1 << 22, disk_bytes: 1 << 21, time_ms: 20 };
        let limits = measure(dir.path(), scope);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(limits.dram_4k_ns.unwrap() > 0.1, "{limits:?}");
        assert!(limits.dram_overlapped_ns.unwrap() <= limits.dram_4k_ns.unwrap() * 3.0);
        assert!(limits.memcpy_bytes_per_second.unwrap() > 1e8, "{limits:?}");
        // A file system without direct I/O says so instead.
        let direct = limits.errors.iter().all(|error| !error.contains("direct"));
        if direct {
            assert!(limits.read_iops_1.unwrap() > 1.0, "{limits:?}");
            assert!(limits.read_iops_32.unwrap() > 1.0, "{limits:?}");
            assert!(limits.write_bytes_per_second.unwrap() > 1e4, "{limits:?}");
        }
        assert!(limits.fdatasync_p50_ns.unwrap() <= limits.fdatasync_p99_ns.unwrap());
    }

    #[test]
    fn limits_are_a_line_of_a_results_file() {
        let limits = Limits {
            dram_4k_ns: Some(329.5),
            fdatasync_p50_ns: Some(93_819),
            errors: vec!["one \"quoted\" line".to_owned()],
            ..Limits::default()
        };
        let record = LimitsRecord::new("r".to_owned(), 1, limits);
        let text = serde_json::to_string(&record.line().unwrap()).unwrap();
        assert!(text.contains("\"kind\":\"limits\""), "{text}");
        let ResultLine::Limits(value) = serde_json::from_str(&text).unwrap() else {
            panic!("{text}")
        };
        assert_eq!(serde_json::from_value::<LimitsRecord>(value).unwrap(), record);
    }

    #[test]
    fn a_missing_directory_costs_the_disk_figures_only() {
        let dir = tempfile::tempdir().unwrap();
        let scope = MeasurementScope { memory_bytes: 1 << 20, disk_bytes: 1 << 20, time_ms: 1 };
        let limits = measure(&dir.path().join("none"), scope);
        assert!(limits.dram_4k_ns.is_some() && limits.memcpy_bytes_per_second.is_some());
        assert_eq!((limits.read_iops_1, limits.fdatasync_p50_ns), (None, None));
        assert!(limits.errors.iter().any(|error| error.contains("none")), "{limits:?}");
    }
}
