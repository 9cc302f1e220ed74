//! What a run found: one record, printed as one JSON object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    latency::Percentiles,
    machine::{Machine, spread},
    store::Durability,
    workload::{Suite, logkv::Point},
};

/// What was found after `kill -9`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// From the start of opening until the first get was answered.
    pub seconds: f64,
    /// Of these, opening.
    pub open_seconds: f64,
    /// Of these, the first get.
    pub first_get_seconds: f64,
    /// Records that were looked at: all that had been acknowledged.
    pub checked: u64,
    /// Records that should be there and are not (or the reverse).
    pub missing: u64,
    /// Records whose value is not the last one acknowledged.
    pub mismatching: u64,
    /// Share of those looked at that is missing or mismatching.
    pub error_rate: f64,
}

/// The result of one store under one workload. Bytes, seconds and counts; see each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The store.
    pub engine: String,
    /// Its options, `name=value`.
    pub options: Vec<String>,
    /// Family of the workload.
    pub suite: Suite,
    /// The workload.
    pub workload: String,
    /// Parameters of LogKV's generator.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub logkv: Option<Point>,
    /// Records loaded first.
    pub records: u64,
    /// Operations measured.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of each key.
    pub key_bytes: usize,
    /// Bytes of values: one size, or a mix in equal parts.
    pub value_bytes: Vec<usize>,
    /// Per cent of the values that repeats what stands before it in the same value.
    #[serde(default)]
    pub value_repeated_percent: u32,
    /// What a returned write promised.
    pub durability: Durability,
    /// Seed of everything random.
    pub seed: u64,
    /// Keys of one `multi_get`, else 1.
    pub batch: usize,
    /// Operations a second that were asked for; none: as fast as possible.
    pub rate: Option<f64>,
    /// Whether every read was checked. Such a run is slower.
    pub verified: bool,
    /// How often it was run; the figures are those of the run with the median throughput.
    pub runs: usize,
    /// Throughput, all threads together.
    pub ops_per_second: f64,
    /// The slowest run's.
    pub ops_per_second_min: f64,
    /// The fastest run's.
    pub ops_per_second_max: f64,
    /// Duration.
    pub seconds: f64,
    /// Half of the operations took at most this (a whole `multi_get` counts as one).
    pub p50_ns: u64,
    /// 99 of 100 operations took at most this.
    pub p99_ns: u64,
    /// 999 of 1000 operations took at most this.
    pub p999_ns: u64,
    /// The slowest that was timed.
    pub max_ns: u64,
    /// Reads alone.
    pub reads: Percentiles,
    /// Writes alone.
    pub writes: Percentiles,
    /// One operation in so many was timed.
    pub timed_one_in: u32,
    /// Processor time of all threads, the store's own included.
    pub cpu_seconds: f64,
    /// Throughput of loading the records, where that is not what is measured.
    pub load_ops_per_second: f64,
    /// Memory of the process at the end, without the harness's own operations.
    pub resident_bytes: u64,
    /// The most memory of the process, the harness's own operations included.
    pub peak_resident_bytes: u64,
    /// Of that, the drawn operations of the harness.
    pub harness_bytes: u64,
    /// Memory that the store accounts for; 0 where it does not tell.
    pub memory_bytes: u64,
    /// Bytes of live keys and values per byte that the store accounts for.
    pub memory_utilisation: f64,
    /// Memory that finds keys rather than holds them; 0 where the store does not tell.
    pub index_bytes_per_key: f64,
    /// What else the store counts at the end, by its own names.
    #[serde(default)]
    pub details: BTreeMap<String, u64>,
    /// Keys and values handed to the store, loading included.
    pub user_bytes_written: u64,
    /// Written by the process, as `/proc/self/io` counts (more than reaches the disk where maps
    /// are used).
    pub process_bytes_written: Option<u64>,
    /// Written to the block device meanwhile, by anybody: quiet machines only.
    pub device_bytes_written: Option<u64>,
    /// Device bytes (the process's where the device does not tell) per user byte, loading included
    /// and everything synced; 0 for stores without files.
    pub write_amplification: f64,
    /// Live bytes of keys and values.
    pub live_bytes: u64,
    /// Bytes of files on the disk.
    pub disk_bytes: u64,
    /// Bytes of files per live byte; 0 for stores without files.
    pub space_amplification: f64,
    /// Reads that found their key.
    pub found: u64,
    /// Reads that did not.
    pub absent: u64,
    /// After `kill -9`, where asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery: Option<Recovery>,
    /// Load average when it ended.
    pub load_average: Option<f64>,
    /// The machine.
    #[serde(default)]
    pub machine: Machine,
}

impl Measurement {
    /// Names the combination: results of the same one are runs of the same thing.
    pub fn name(&self) -> String {
        if self.options.is_empty() {
            self.engine.clone()
        } else {
            format!("{} {}", self.engine, self.options.join(" "))
        }
    }

    /// Nanoseconds between operations, all threads together.
    pub fn ns_per_operation(&self) -> f64 {
        if self.ops_per_second > 0.0 { 1e9 / self.ops_per_second } else { 0.0 }
    }

    /// The run with the median throughput, with the spread of all; `None` of none. Recovery
    /// figures are the median run's, except that the error rate is the worst.
    pub fn median(mut runs: Vec<Self>) -> Option<Self> {
        runs.sort_by(|a, b| a.ops_per_second.total_cmp(&b.ops_per_second));
        let rates: Vec<f64> = runs.iter().map(|run| run.ops_per_second).collect();
        let (_, least, greatest) = spread(&rates);
        let worst = runs
            .iter()
            .filter_map(|run| run.recovery)
            .max_by(|a, b| a.error_rate.total_cmp(&b.error_rate));
        let count = runs.len();
        let mut median = runs.into_iter().nth(count.saturating_sub(1) / 2)?;
        median.runs = count;
        (median.ops_per_second_min, median.ops_per_second_max) = (least, greatest);
        if let (Some(recovery), Some(worst)) = (&mut median.recovery, worst) {
            recovery.missing = worst.missing;
            recovery.mismatching = worst.mismatching;
            recovery.error_rate = worst.error_rate;
        }
        Some(median)
    }
}
