//! Limits of the machine: the performance of memory and disk without a store.
//!
//! A simple loop measures each limit in about a second; the results are one [`Limits`]. Reports
//! determine the limit that binds an operation, and show throughput as a multiple of it. The
//! multiple shows how much a store can still gain, and it can be compared between machines.
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
//! Thread rules: a measurement uses up to 32 threads and expects an otherwise idle machine. The
//! results contain the load average before and after.

mod disk;
mod figures;
mod memory;

pub use figures::{Limits, MeasurementScope, READ_DEPTH};

use std::path::Path;

use crate::{
    failure::{Failure, Outcome},
    machine,
};
use serde::{Deserialize, Serialize};

use crate::result::{ResultLine, SCHEMA};

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

/// Measures every limit with files in `dir`, which it removes. A failure adds a line to `errors`.
pub fn measure(dir: &Path, scope: MeasurementScope) -> Limits {
    let mut limits = Limits { load_average_before: machine::load_average(), ..Limits::default() };
    memory::measure(scope, &mut limits);
    disk::measure(dir, scope, &mut limits);
    limits.load_average_after = machine::load_average();
    limits
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
