//! The lines of a results file.

use serde::{Deserialize, Serialize};

use super::{
    figures::{Figures, Latency},
    metric::Metric,
};
use crate::{
    machine::{Conditions, Machine},
    numbers::{to_f64, to_u64},
    store::{Durability, MemoryMode, StoreInfo},
};

/// Version of the format of lines.
pub const SCHEMA: u32 = 1;

/// One line of a results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ResultLine {
    /// One run of one store under one workload.
    Run(Box<RunResult>),
    /// Limits of the machine, in the format of [`crate::limits`].
    Limits(serde_json::Value),
}

/// One run of one store under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`SCHEMA`] of the program that wrote the line.
    pub schema: u32,
    /// Comparison that the run belongs to; the same after a resume.
    pub run_id: String,
    /// Start of the run, milliseconds since 1970, UTC.
    pub started_unix_ms: u64,
    /// Duration of the whole run: loading, operations, closing, reopening.
    pub elapsed_seconds: f64,
    /// Version of this build, with the commit if the build knows it.
    pub built: String,
    /// Machine.
    pub machine: Machine,
    /// Conditions of the machine at the start of the run.
    pub conditions: Conditions,
    /// Store.
    pub store: StoreInfo,
    /// Name of the preset (`smoke`, `cedrusdb-fig10`); `None` without a preset.
    pub preset: Option<String>,
    /// Point of the preset's figure or table (`L`, `value 1 KiB`); `None` if the name of the
    /// workload identifies it.
    pub point: Option<String>,
    /// Workload.
    pub workload: WorkloadInfo,
    /// Durability of a returned write.
    pub durability: Durability,
    /// Memory of the run.
    pub memory: MemoryMode,
    /// Number of the repetition, from 0. Stores run in turn.
    pub repetition: u64,
    /// Figures; `None` if the run failed.
    pub figures: Option<Figures>,
    /// Reason of a failure, in one line.
    pub error: Option<String>,
}

/// Workload of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadInfo {
    /// Suite: `ycsb`, `micro`, `dbbench`, `logkv`, `txn`, `custom`.
    pub suite: String,
    /// Name within the suite.
    pub name: String,
    /// Short description.
    pub about: String,
    /// Records loaded first.
    pub records: u64,
    /// Measured operations; the records if loading is the workload.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of each key.
    pub key_bytes: u64,
    /// Whether all bytes of keys are random.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub random_keys: bool,
    /// Bytes of values: one size, or a mix in equal parts.
    pub value_bytes: Vec<u64>,
    /// Keys of one `multi_get`, else 1.
    pub batch: u64,
    /// Records in one atomic write while loading; 1 for single puts.
    pub load_batch: u64,
    /// Whether background work had ended after loading before the measurement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_settled: bool,
    /// Requested operations per second; `None` is as fast as possible.
    pub rate: Option<f64>,
    /// Mean number of operations for each operation that was timed.
    pub timed_one_in: u32,
    /// Minimum duration of the operations in seconds, reached by repeating them with other seeds; 0
    /// for one round. Only workloads that keep the number of records repeat.
    #[serde(default)]
    pub seconds_min: f64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl RunResult {
    /// Returns whether `other` is a repetition of the same run: same comparison, store, workload
    /// and settings.
    pub fn repeats(&self, other: &Self) -> bool {
        self.run_id == other.run_id
            && self.store == other.store
            && (&self.preset, &self.point) == (&other.preset, &other.point)
            && self.workload == other.workload
            && self.durability == other.durability
            && self.memory == other.memory
    }

    /// Returns a figure; `None` if the run failed or the metric does not apply.
    pub fn figure(&self, metric: Metric) -> Option<f64> {
        let figures = self.figures.as_ref()?;
        let latency = |latency: &Latency, ns: fn(&Latency) -> u64| {
            (latency.samples > 0).then(|| to_f64(ns(latency)) / 1e3)
        };
        let value = match metric {
            Metric::OpsPerSecond => figures.ops_per_second,
            Metric::LoadOpsPerSecond => figures.load_ops_per_second,
            Metric::ReadMeanUs => latency(&figures.reads, |reads| reads.mean_ns)?,
            Metric::ReadP99Us => latency(&figures.reads, |reads| reads.p99_ns)?,
            Metric::WriteMeanUs => latency(&figures.writes, |writes| writes.mean_ns)?,
            Metric::WriteP99Us => latency(&figures.writes, |writes| writes.p99_ns)?,
            Metric::WriteAmplification => {
                ratio(self.bytes_written()?, figures.load_user_bytes + figures.user_bytes)?
            }
            Metric::ReadAmplification => ratio(
                self.persistent(figures.io.device_bytes_read)?,
                figures.found.checked_mul(self.workload.record_bytes())?,
            )?,
            Metric::IosPerRead => ratio(
                self.persistent(figures.io.device_reads)?,
                figures.found.checked_add(figures.absent)?,
            )?,
            Metric::SpaceAmplification => ratio(figures.disk_bytes?, figures.live_bytes)?,
            Metric::IndexBytesPerKey => ratio(figures.index_bytes?, figures.keys)?,
            Metric::ResidentBytes => to_f64(figures.resident_bytes),
            Metric::PeakResidentBytes => to_f64(figures.peak_resident_bytes),
            Metric::RecoverySeconds => figures.recovery?.seconds,
            Metric::RecoveryErrorRate => {
                let recovery = figures.recovery?;
                ratio(recovery.missing + recovery.mismatching, recovery.checked)?
            }
            Metric::AbortRate => figures.transactions?.abort_rate(),
            Metric::Seconds => figures.seconds,
            Metric::DeviceBytesWritten => to_f64(self.bytes_written()?),
        };
        value.is_finite().then_some(value)
    }

    /// Returns the bytes written to the device in total, or by the process if the device does not
    /// report them.
    fn bytes_written(&self) -> Option<u64> {
        let io = self.figures.as_ref()?.load_io.plus(self.figures.as_ref()?.io);
        self.persistent(io.device_bytes_written.or(io.process_bytes_written))
    }

    /// Returns `value` for stores with files only.
    fn persistent(&self, value: Option<u64>) -> Option<u64> {
        value.filter(|_| self.store.is_persistent)
    }
}

impl WorkloadInfo {
    /// Returns the mean size of a record, key and value.
    pub fn record_bytes(&self) -> u64 {
        let count = to_u64(self.value_bytes.len()).max(1);
        self.key_bytes + self.value_bytes.iter().sum::<u64>() / count
    }
}

/// Returns `part / whole`; `None` if `whole` is 0.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| to_f64(part) / to_f64(whole))
}
