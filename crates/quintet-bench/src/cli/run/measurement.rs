//! The result of a run of `quintet bench`: one record, printed as one JSON object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    failure::{Failure, Outcome},
    latency::Percentiles,
    machine::{Machine, spread},
    numbers::to_f64,
    result::{Figures, Latency, Recovery, TransactionFigures},
    session::{Job, StepReport},
    store::Durability,
    workload::{Suite, WorkloadSpec, logkv::LogKvPoint},
};

/// Check of the store after `kill -9`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecoverySummary {
    /// Seconds from the start of opening to the reply of the first get.
    pub seconds: f64,
    /// Part of `seconds` that opening took.
    pub open_seconds: f64,
    /// Part of `seconds` that the first get took.
    pub first_get_seconds: f64,
    /// Records that were checked: all acknowledged ones.
    pub checked: u64,
    /// Records that are absent but should be present, or the reverse.
    pub missing: u64,
    /// Records whose value is not the last acknowledged one.
    pub mismatching: u64,
    /// Share of the checked records that are missing or mismatching.
    pub error_rate: f64,
}

impl From<Recovery> for RecoverySummary {
    fn from(recovery: Recovery) -> Self {
        let Recovery { seconds, open_seconds, checked, missing, mismatching } = recovery;
        let first_get_seconds = (seconds - open_seconds).max(0.0);
        let error_rate = ratio(missing + mismatching, checked);
        Self { seconds, open_seconds, first_get_seconds, checked, missing, mismatching, error_rate }
    }
}

/// Transactions of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransactionSummary {
    /// Counts, and the sums of the check.
    #[serde(flatten)]
    pub figures: TransactionFigures,
    /// Share of the started transactions that ended with a conflict.
    pub abort_rate: f64,
}

impl From<TransactionFigures> for TransactionSummary {
    fn from(figures: TransactionFigures) -> Self {
        Self { figures, abort_rate: figures.abort_rate() }
    }
}

/// Result of one store under one workload, in bytes, seconds and counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Store.
    pub engine: String,
    /// Options of the store, `name=value`.
    pub options: Vec<String>,
    /// Suite of the workload.
    pub suite: Suite,
    /// Workload.
    pub workload: String,
    /// Parameters of the LogKV generator.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub logkv: Option<LogKvPoint>,
    /// Records loaded first.
    pub records: u64,
    /// Measured operations.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of each key.
    pub key_bytes: usize,
    /// Bytes of values: one size, or a mix in equal parts.
    pub value_bytes: Vec<usize>,
    /// Whether all bytes of keys are random.
    #[serde(default)]
    pub random_keys: bool,
    /// Percentage of each value that repeats earlier bytes of the same value.
    #[serde(default)]
    pub value_repeated_percent: u32,
    /// Durability of a returned write.
    pub durability: Durability,
    /// Seed of all random choices.
    pub seed: u64,
    /// Keys of one `multi_get`, else 1.
    pub batch: usize,
    /// Requested operations per second; `None` is as fast as possible.
    pub rate: Option<f64>,
    /// Whether every read was checked. Such a run is slower.
    pub verified: bool,
    /// Number of runs. The figures are those of the run with the median throughput.
    pub runs: usize,
    /// Operations per second of all threads together.
    pub ops_per_second: f64,
    /// Operations per second of the slowest run.
    pub ops_per_second_min: f64,
    /// Operations per second of the fastest run.
    pub ops_per_second_max: f64,
    /// Duration.
    pub seconds: f64,
    /// Median of the timed operations; a `multi_get` counts as one.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Latency of reads.
    pub reads: Percentiles,
    /// Latency of writes.
    pub writes: Percentiles,
    /// Mean number of operations for each operation that was timed.
    pub timed_one_in: u32,
    /// Processor time of all threads, including threads of the store.
    pub cpu_seconds: f64,
    /// Records per second of loading.
    pub load_ops_per_second: f64,
    /// Resident memory of the process at the end, without the drawn operations of the harness.
    pub resident_bytes: u64,
    /// Maximum resident memory of the process, including the drawn operations.
    pub peak_resident_bytes: u64,
    /// Bytes of the drawn operations.
    pub harness_bytes: u64,
    /// Memory that the store accounts for; 0 if it does not.
    pub memory_bytes: u64,
    /// Bytes of live keys and values per byte that the store accounts for.
    pub memory_utilisation: f64,
    /// Index bytes per key; 0 if the store does not report them.
    pub index_bytes_per_key: f64,
    /// Further counters of the store at the end, by its own names.
    #[serde(default)]
    pub details: BTreeMap<String, u64>,
    /// Bytes of keys and values written, including loading.
    pub user_bytes_written: u64,
    /// Bytes that the process wrote, by `/proc/self/io`. They exceed the bytes that reach the disk
    /// if files are mapped.
    pub process_bytes_written: Option<u64>,
    /// Bytes that all processes wrote to the block device; meaningful on a quiet machine only.
    pub device_bytes_written: Option<u64>,
    /// Bytes written to the device (by the process if the device does not report them) per user
    /// byte, including loading and a sync; 0 for stores without files.
    pub write_amplification: f64,
    /// Bytes of live keys and values.
    pub live_bytes: u64,
    /// Bytes of files on the disk.
    pub disk_bytes: u64,
    /// Bytes of files per live byte; 0 for stores without files.
    pub space_amplification: f64,
    /// Reads that found their key.
    pub found: u64,
    /// Reads that did not find their key.
    pub absent: u64,
    /// Transactions, if the workload consists of them or of atomic updates.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub transactions: Option<TransactionSummary>,
    /// Check after `kill -9`, if requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recovery: Option<RecoverySummary>,
    /// Load average at the end.
    pub load_average: Option<f64>,
    /// Machine.
    #[serde(default)]
    pub machine: Machine,
}

impl Measurement {
    /// Returns the measurement of the only step of `job`.
    pub(super) fn new(job: &Job, report: StepReport, machine: Machine) -> Outcome<Self> {
        let StepReport { figures, operations, details, load_average } = report;
        let step = job.steps.first();
        let step = step.ok_or_else(|| Failure::Failed("the job has no step".to_owned()))?;
        let workload = step.spec.workload()?;
        let all = percentiles_of_all(&figures)?;
        let io = figures.load_io.plus(figures.io);
        let disk_bytes = figures.disk_bytes.unwrap_or(0);
        let user_bytes_written = figures.load_user_bytes + figures.user_bytes;
        let bytes_written = io.device_bytes_written.or(io.process_bytes_written);
        let bytes_written = bytes_written.filter(|_| job.is_persistent).unwrap_or(0);
        let memory_bytes = figures.store_memory_bytes.unwrap_or(0);
        Ok(Self {
            engine: job.store.clone(),
            options: job.settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            suite: workload.suite,
            workload: workload.name.clone(),
            logkv: match &step.spec {
                WorkloadSpec::LogKv { point, .. } => Some(*point),
                _ => None,
            },
            records: job.records,
            operations,
            threads: job.threads,
            key_bytes: job.key_bytes,
            value_bytes: job.value_bytes.clone(),
            random_keys: job.random_keys,
            value_repeated_percent: job.value_repeated_percent,
            durability: job.durability,
            seed: job.seed,
            batch: workload.batch,
            rate: job.rate,
            verified: job.verify,
            runs: 1,
            ops_per_second: figures.ops_per_second,
            ops_per_second_min: figures.ops_per_second,
            ops_per_second_max: figures.ops_per_second,
            seconds: figures.seconds,
            p50_ns: all.p50_ns,
            p99_ns: all.p99_ns,
            p999_ns: all.p999_ns,
            max_ns: all.max_ns,
            reads: percentiles(&figures.reads),
            writes: percentiles(&figures.writes),
            timed_one_in: job.timed_one_in,
            cpu_seconds: figures.cpu_seconds,
            load_ops_per_second: figures.load_ops_per_second,
            resident_bytes: figures.resident_bytes,
            peak_resident_bytes: figures.peak_resident_bytes,
            harness_bytes: figures.harness_bytes,
            memory_bytes,
            memory_utilisation: ratio(figures.live_bytes, memory_bytes),
            index_bytes_per_key: ratio(figures.index_bytes.unwrap_or(0), figures.keys),
            details,
            user_bytes_written,
            process_bytes_written: io.process_bytes_written,
            device_bytes_written: io.device_bytes_written,
            write_amplification: ratio(bytes_written, user_bytes_written),
            live_bytes: figures.live_bytes,
            disk_bytes,
            space_amplification: ratio(disk_bytes, figures.live_bytes),
            found: figures.found,
            absent: figures.absent,
            transactions: figures.transactions.map(TransactionSummary::from),
            recovery: figures.recovery.map(RecoverySummary::from),
            load_average,
            machine,
        })
    }

    /// Returns the store with its options: results of the same name are runs of the same thing.
    pub fn name(&self) -> String {
        if self.options.is_empty() {
            self.engine.clone()
        } else {
            format!("{} {}", self.engine, self.options.join(" "))
        }
    }

    /// Returns nanoseconds between operations, all threads together.
    pub fn ns_per_operation(&self) -> f64 {
        if self.ops_per_second > 0.0 { 1e9 / self.ops_per_second } else { 0.0 }
    }

    /// Returns the run with the median throughput, with the spread of all runs; `None` without
    /// runs. Recovery figures are those of the median run, except that the error rate is the worst.
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

fn percentiles(latency: &Latency) -> Percentiles {
    let Latency { samples, p50_ns, p99_ns, p999_ns, max_ns, .. } = *latency;
    Percentiles { samples, p50_ns, p99_ns, p999_ns, max_ns }
}

/// Returns the percentiles of reads and writes together.
fn percentiles_of_all(figures: &Figures) -> Outcome<Percentiles> {
    match (figures.reads.histogram()?, figures.writes.histogram()?) {
        (Some(mut all), Some(writes)) => {
            all.add(&writes)
                .map_err(|error| Failure::Failed(format!("latency histogram: {error}")))?;
            Ok(Percentiles::of(&all))
        }
        (None, _) => Ok(percentiles(&figures.writes)),
        (_, None) => Ok(percentiles(&figures.reads)),
    }
}

/// Returns `part / whole`; 0 if `whole` is 0.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { to_f64(part) / to_f64(whole) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_rate_counts_missing_and_mismatching_records() {
        let recovery =
            Recovery { seconds: 3.0, open_seconds: 1.0, checked: 8, missing: 1, mismatching: 1 };
        let summary = RecoverySummary::from(recovery);
        assert!((summary.error_rate - 0.25).abs() < 1e-12);
        assert!((summary.first_get_seconds - 2.0).abs() < 1e-12);
        assert!(RecoverySummary::from(Recovery::default()).error_rate.abs() < 1e-12);
    }
}
