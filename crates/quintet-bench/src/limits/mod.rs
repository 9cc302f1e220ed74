//! Limits of the machine: what memory and disk give when no store stands between.
//!
//! What: each limit is measured in about a second, by a bare loop, into one [`Limits`].
//! [`binding`] says what an operation needs of each of them, and so which one binds it.
//! Why: a store's throughput alone does not tell whether there is anything left to win. As a
//! multiple of the limit that binds it, it does, and it can be compared between machines.
//!
//! | limit | how it is measured |
//! |-------|--------------------|
//! | DRAM latency, 4-KiB and 2-MiB pages | one chain of dependent loads over up to 1 GiB, in an order that no prefetcher follows |
//! | DRAM latency, overlapped | 16 such chains at once, 2-MiB pages: nanoseconds a load |
//! | copying | `memcpy` of 64 MiB, bytes copied a second (each is read once and written once) |
//! | random reads | 4 KiB at random places of a file of up to 1 GiB, direct I/O, 1 and 32 threads |
//! | sequential writes | the same file, 1 MiB at a time, direct I/O, the sync at the end included |
//! | fdatasync | after each overwrite of 4 KiB of a file of its full size; p50 and p99 |
//!
//! Which limit binds which operation (*r* is the bytes of a record, key and value). An operation
//! needs something of several; the one that takes longest binds:
//!
//! | operation | needs | because |
//! |-----------|-------|---------|
//! | point read of a key that is there | 2 dependent loads; *r* bytes copied | a slot of an index leads to the record, and the value is handed out |
//! | point read of an absent key | 1 load | a tag in the slot can rule the key out |
//! | `multi_get` | as point reads, with overlapped loads | the keys are known beforehand, so misses overlap |
//! | read whose record memory cannot hold | 1 random read of the device, at a depth of keys in flight | with an index in memory one block holds the record |
//! | overwrite, delete, read-modify-write | 2 dependent loads; *r* bytes to the device in sequence | the key is compared; the record goes to the log, once |
//! | insert | 1 load; *r* bytes to the device in sequence | an empty slot; the log again |
//! | the same, each synced | one `fdatasync` a group of all threads | a group commit can take all writers along, and no more |
//! | range of *n* entries | 2 dependent loads; *n* x *r* bytes copied | records may lie in key order |
//! | visit of all entries | *r* bytes copied | as above |
//!
//! Several threads share the copying, the device and the sync; each has its own loads.
//!
//! Not a law: a loop of independent reads lets the processor overlap their loads by itself, so a
//! multiple below 1 of the DRAM latency is possible (the chained loads of `read-dependent` rule it
//! out); zipfian keys hit the processor's caches; writes that are not synced yet reach the device
//! after the measurement.
//!
//! Thread rules: measuring uses up to 32 threads of its own and expects an otherwise idle machine;
//! the load average before and after stands beside the figures.

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

/// Threads of the random reads at depth.
pub const READ_DEPTH: u32 = 32;

/// What the machine allows. Every figure is `None` where it could not be measured; `errors` says
/// why. All times are for one thread unless said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Nanoseconds of a dependent load that misses all caches, 4-KiB pages.
    pub dram_4k_ns: Option<f64>,
    /// The same with 2-MiB pages; `None` also where the kernel gives none.
    pub dram_2m_ns: Option<f64>,
    /// Nanoseconds a load with 16 in flight, 2-MiB pages (else 4-KiB pages).
    pub dram_overlapped_ns: Option<f64>,
    /// Bytes that the loads were spread over.
    pub dram_bytes: u64,
    /// Bytes copied a second.
    pub memcpy_bytes_per_second: Option<f64>,
    /// Direct random reads of 4 KiB a second, one at a time.
    pub read_iops_1: Option<f64>,
    /// The same, 32 at a time.
    pub read_iops_32: Option<f64>,
    /// Bytes of the file that was read and written.
    pub disk_bytes: u64,
    /// Bytes written in sequence a second, durable at the end.
    pub write_bytes_per_second: Option<f64>,
    /// Median nanoseconds of an `fdatasync` after an overwrite of 4 KiB.
    pub fdatasync_p50_ns: Option<u64>,
    /// 99 of 100 were not slower.
    pub fdatasync_p99_ns: Option<u64>,
    /// Load average of the last minute before measuring.
    pub load_average_before: Option<f64>,
    /// And after it. Measuring itself adds up to 1, the reads at depth more.
    pub load_average_after: Option<f64>,
    /// One line for each limit that could not be measured.
    pub errors: Vec<String>,
}

/// Limits as they stand in a results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitsRecord {
    /// [`SCHEMA`] when it was written.
    pub schema: u32,
    /// The comparison that they belong to, as in its runs.
    pub run_id: String,
    /// When they were measured, milliseconds since 1970, UTC.
    pub measured_unix_ms: u64,
    /// The limits.
    pub limits: Limits,
}

impl LimitsRecord {
    /// Limits for a results file.
    pub const fn new(run_id: String, measured_unix_ms: u64, limits: Limits) -> Self {
        Self { schema: SCHEMA, run_id, measured_unix_ms, limits }
    }

    /// Measures the limits now; see [`measure`].
    pub fn measure(run_id: String, dir: &Path, scope: MeasurementScope) -> Self {
        Self::new(run_id, machine::unix_ms(), measure(dir, scope))
    }

    /// As a line of a results file.
    pub fn line(&self) -> Outcome<ResultLine> {
        serde_json::to_value(self).map(ResultLine::Limits).map_err(unwritable)
    }

    /// The line's text, without its end.
    pub fn text(&self) -> Outcome<String> {
        serde_json::to_string(&self.line()?).map_err(unwritable)
    }
}

fn unwritable(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("limits: {error}"))
}

/// How much memory and disk measuring may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasurementScope {
    /// Bytes that the loads are spread over, rounded down to a power of two; far more than the
    /// processor's caches, else what is measured is them.
    pub memory_bytes: u64,
    /// Bytes of the file.
    pub disk_bytes: u64,
    /// Milliseconds for each limit, roughly.
    pub time_ms: u64,
}

impl MeasurementScope {
    /// A GiB of each, a second for each limit: about 15 seconds in all.
    pub const FULL: Self = Self { memory_bytes: 1 << 30, disk_bytes: 1 << 30, time_ms: 1000 };
    /// Half of that, a fifth of a second for each: about 4 seconds, for the start of a run.
    pub const SHORT: Self = Self { memory_bytes: 1 << 29, disk_bytes: 1 << 29, time_ms: 200 };
}

/// Measures every limit; files go to `dir` and are removed. What fails is a line in `errors`.
pub fn measure(dir: &Path, scope: MeasurementScope) -> Limits {
    let mut limits = Limits { load_average_before: machine::load_average(), ..Limits::default() };
    memory::measure(scope, &mut limits);
    disk::measure(dir, scope, &mut limits);
    limits.load_average_after = machine::load_average();
    limits
}

impl Limits {
    /// Keeps `result`, or the reason why there is none.
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
