//! Raw results: what one run of one store under one workload found, one JSON object a line.
//!
//! What: [`Line`], a line of a results file; [`RunResult`], a run; [`Figures`], its figures;
//! [`Metric`], the figures that papers print and tables compare. A file is appended to and never
//! rewritten: a run that was interrupted goes on where its file ends.
//!
//! Invariants: one line is one run (a repetition is a line of its own: medians and spreads are
//! the reader's work); a run that failed is a line as well, with `error` instead of `figures`;
//! figures are raw (bytes, seconds, nanoseconds, counts), and whatever is a ratio of two of them is
//! a function here, so that a file can never contradict itself. What could not be measured is
//! absent, not zero.
//!
//! The schema version goes up when a field changes its meaning or goes away; added fields have
//! defaults and do not change it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer as _, V2Serializer},
};
use serde::{Deserialize, Serialize};

use quintet_bench::{
    failure::{Failure, Outcome},
    machine::Machine,
    numbers::to_f64,
    store::Durability,
};

/// Version of the format of lines.
pub const SCHEMA: u32 = 1;

/// One line of a results file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Line {
    /// One run of one store under one workload.
    Run(Box<RunResult>),
    /// Limits of the machine (`limits`), in that module's own form.
    Limits(serde_json::Value),
}

/// One run of one store under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// [`SCHEMA`] when it was written.
    pub schema: u32,
    /// Names the whole comparison that the run belongs to; the same after a resume.
    pub run_id: String,
    /// When the run started, milliseconds since 1970, UTC.
    pub started_unix_ms: u64,
    /// What the whole run took: loading, operations, closing, reopening.
    pub elapsed_seconds: f64,
    /// Version of Quintet that was built in, with the commit where it is known.
    pub built: String,
    /// The machine.
    pub machine: Machine,
    /// What the machine was doing when the run began.
    pub conditions: Conditions,
    /// The store.
    pub store: StoreInfo,
    /// The preset that asked for the run, by name (`smoke`, `cedrusdb-fig10`); none for a run by
    /// hand.
    pub preset: Option<String>,
    /// The point of the preset's figure or table that this run is (`L`, `value 1 KiB`); none where
    /// the workload's name says it all.
    pub point: Option<String>,
    /// What was run.
    pub workload: WorkloadInfo,
    /// What a returned write promised.
    pub durability: Durability,
    /// What memory the run had.
    pub memory: Memory,
    /// Which repetition it is, from 0. Repetitions of all stores take turns.
    pub repetition: u64,
    /// The figures; none where the run failed.
    pub figures: Option<Figures>,
    /// Why the run failed, in one line; none where it did not.
    pub error: Option<String>,
}

/// What the machine was doing when a run began: another program's work shows here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Load average of the last minute before the run.
    pub load_average_before: Option<f64>,
    /// The same after it.
    pub load_average_after: Option<f64>,
    /// Median time of an `fdatasync` of a 4 KiB overwrite in the run's directory, just before.
    pub fsync_p50_ns: Option<u64>,
    /// 99 of 100 of these syncs took at most this.
    pub fsync_p99_ns: Option<u64>,
    /// 4 KiB random direct reads a second of the directory's disk at depth 1, just before.
    pub raw_read_iops: Option<f64>,
}

/// A store as it was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoreInfo {
    /// Name, as on the command line: `hashlog`, `rocksdb`. Variants of one store have different
    /// names (`lmdb`, `lmdb-readahead`).
    pub name: String,
    /// Version of the library.
    pub version: String,
    /// Who made it: ours, a reference, or a peer.
    pub family: Family,
    /// Whether it keeps key order.
    pub is_ordered: bool,
    /// Whether it keeps files.
    pub is_persistent: bool,
    /// What a returned write promises in this durability, where it is not exactly what ours does;
    /// empty where it is.
    pub promise: String,
    /// Its settings, each with the reason.
    pub settings: Vec<Setting>,
}

/// Who made a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// An engine of Quintet.
    Ours,
    /// `floor`, `hashbrown`, `null`: what the machine and the harness allow.
    Reference,
    /// Another project's store.
    Peer,
}

/// One setting of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name, as the store calls it.
    pub name: String,
    /// Value.
    pub value: String,
    /// Why this value.
    pub reason: String,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadInfo {
    /// Family: `ycsb`, `micro`, `dbbench`, `logkv`, `custom`.
    pub suite: String,
    /// Name within the family.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Records loaded first.
    pub records: u64,
    /// Operations measured. Where loading is the workload these are the records.
    pub operations: u64,
    /// Threads.
    pub threads: u64,
    /// Bytes of each key.
    pub key_bytes: u64,
    /// Bytes of values: one size, or a mix in equal parts.
    pub value_bytes: Vec<u64>,
    /// Keys of one `multi_get`, else 1.
    pub batch: u64,
    /// Records that one atomic write loads; 1 for single puts.
    pub load_batch: u64,
    /// Whether the store had come to rest after loading before anything was measured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_settled: bool,
    /// Operations a second that were asked for; none: as fast as possible.
    pub rate: Option<f64>,
    /// One operation in so many was timed.
    pub timed_one_in: u32,
    /// The operations were run again, drawn from other seeds, until they had taken so many seconds
    /// together; 0: once. Only where they leave the number of records as it is.
    #[serde(default)]
    pub seconds_min: f64,
    /// Seed of everything random.
    pub seed: u64,
}

/// What memory a run had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum Memory {
    /// All of it fits: each store's caches are as large as the data.
    Fits {
        /// What each store was told that it may use.
        budget_bytes: u64,
    },
    /// A control group limits the whole process, page cache included.
    Limited {
        /// The limit.
        limit_bytes: u64,
        /// What each store was told that it may use; `None`: half of the limit, because the page
        /// cache and the process itself need the rest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        budget_bytes: Option<u64>,
    },
    /// Reads bypass the page cache where the store can; the store's own cache has this size.
    Direct {
        /// Size of the cache.
        cache_bytes: u64,
    },
}

impl Memory {
    /// What each store is told that it may use.
    pub fn budget_bytes(self) -> u64 {
        match self {
            Self::Fits { budget_bytes } => budget_bytes,
            Self::Limited { limit_bytes, budget_bytes } => budget_bytes.unwrap_or(limit_bytes / 2),
            Self::Direct { cache_bytes } => cache_bytes,
        }
    }
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

/// Bytes and requests of a phase, by three counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Io {
    /// Read by the process from the disk (`read_bytes` of `/proc/self/io`).
    pub process_bytes_read: Option<u64>,
    /// Written by the process (`write_bytes` of `/proc/self/io`): pages made dirty and direct
    /// writes; more than reaches the disk where files are mapped.
    pub process_bytes_written: Option<u64>,
    /// Read from the block device below the directory, by anybody.
    pub device_bytes_read: Option<u64>,
    /// Written to it, by anybody.
    pub device_bytes_written: Option<u64>,
    /// Read requests that the device completed.
    pub device_reads: Option<u64>,
    /// Write requests that the device completed.
    pub device_writes: Option<u64>,
}

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
    pub load_io: Io,
    /// Input and output of the operations, synced; zeros where loading is the workload.
    pub io: Io,
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

/// A figure that tables compare and papers print. The unit is part of the meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Operations a second. More is better, as for no other figure.
    OpsPerSecond,
    /// Loading, operations a second. More is better.
    LoadOpsPerSecond,
    /// Mean time of a read, microseconds.
    ReadMeanUs,
    /// 99th percentile of reads, microseconds.
    ReadP99Us,
    /// Mean time of a write, microseconds.
    WriteMeanUs,
    /// 99th percentile of writes, microseconds.
    WriteP99Us,
    /// Device bytes written per user byte, loading and operations together.
    WriteAmplification,
    /// Device bytes read per byte of values read.
    ReadAmplification,
    /// Read requests of the device per read.
    IosPerRead,
    /// Bytes of files per live byte.
    SpaceAmplification,
    /// Bytes of index a key.
    IndexBytesPerKey,
    /// Resident memory at the end, bytes.
    ResidentBytes,
    /// Peak resident memory, bytes.
    PeakResidentBytes,
    /// Recovery after `kill -9`, seconds.
    RecoverySeconds,
    /// Share of the records that is wrong after `kill -9`.
    RecoveryErrorRate,
    /// Duration of the operations, seconds.
    Seconds,
    /// Device bytes written, loading and operations together.
    DeviceBytesWritten,
}

impl Metric {
    /// Whether a greater figure is the better one.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::OpsPerSecond | Self::LoadOpsPerSecond)
    }

    /// Unit for people to read; empty for a ratio.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::OpsPerSecond | Self::LoadOpsPerSecond => "ops/s",
            Self::ReadMeanUs | Self::ReadP99Us | Self::WriteMeanUs | Self::WriteP99Us => "us",
            Self::IndexBytesPerKey => "B/key",
            Self::ResidentBytes | Self::PeakResidentBytes | Self::DeviceBytesWritten => "B",
            Self::RecoverySeconds | Self::Seconds => "s",
            Self::IosPerRead => "I/Os",
            Self::WriteAmplification
            | Self::ReadAmplification
            | Self::SpaceAmplification
            | Self::RecoveryErrorRate => "",
        }
    }

    /// Name for people to read.
    pub const fn title(self) -> &'static str {
        match self {
            Self::OpsPerSecond => "throughput",
            Self::LoadOpsPerSecond => "load throughput",
            Self::ReadMeanUs => "mean read latency",
            Self::ReadP99Us => "p99 read latency",
            Self::WriteMeanUs => "mean write latency",
            Self::WriteP99Us => "p99 write latency",
            Self::WriteAmplification => "write amplification",
            Self::ReadAmplification => "read amplification",
            Self::IosPerRead => "I/Os a read",
            Self::SpaceAmplification => "space amplification",
            Self::IndexBytesPerKey => "index memory",
            Self::ResidentBytes => "resident memory",
            Self::PeakResidentBytes => "peak memory",
            Self::RecoverySeconds => "recovery time",
            Self::RecoveryErrorRate => "recovery error",
            Self::Seconds => "duration",
            Self::DeviceBytesWritten => "device bytes written",
        }
    }
}

/// A figure that a paper prints, beside which ours stand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperFigure {
    /// Point of the preset, as in [`RunResult::point`]; empty for all points.
    pub point: &'static str,
    /// The store as the paper names it: `CedrusDB`, `RocksDB 6.1.2`.
    pub store: &'static str,
    /// The name of our counterpart or of the same peer here: `trie`, `rocksdb`.
    pub stands_for: &'static str,
    /// The store that the figure is a ratio to (`stands_for` over this one); empty for a figure of
    /// its own.
    pub relative_to: &'static str,
    /// What it is a figure of.
    pub metric: Metric,
    /// The figure. Figures that were read off a plot say so in `note`.
    pub value: f64,
    /// Hardware, size, doubts; empty where the preset's own description says it all.
    pub note: &'static str,
}

impl Io {
    /// The sum of two phases; a counter that is missing in one is missing in the sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        Self {
            process_bytes_read: sum(self.process_bytes_read, other.process_bytes_read),
            process_bytes_written: sum(self.process_bytes_written, other.process_bytes_written),
            device_bytes_read: sum(self.device_bytes_read, other.device_bytes_read),
            device_bytes_written: sum(self.device_bytes_written, other.device_bytes_written),
            device_reads: sum(self.device_reads, other.device_reads),
            device_writes: sum(self.device_writes, other.device_writes),
        }
    }
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
            mean_ns: quintet_bench::numbers::truncate(histogram.mean() + 0.5),
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

impl RunResult {
    /// Whether `other` is a repetition of the same run: same comparison, store, workload and
    /// settings.
    pub fn repeats(&self, other: &Self) -> bool {
        self.run_id == other.run_id
            && self.store == other.store
            && (&self.preset, &self.point) == (&other.preset, &other.point)
            && self.workload == other.workload
            && self.durability == other.durability
            && self.memory == other.memory
    }

    /// A figure; `None` where the run failed or the figure has no meaning for it.
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
            Metric::Seconds => figures.seconds,
            Metric::DeviceBytesWritten => to_f64(self.bytes_written()?),
        };
        value.is_finite().then_some(value)
    }

    /// Bytes that reached the device in all, or the process's where the device does not tell.
    fn bytes_written(&self) -> Option<u64> {
        let io = self.figures.as_ref()?.load_io.plus(self.figures.as_ref()?.io);
        self.persistent(io.device_bytes_written.or(io.process_bytes_written))
    }

    /// Only stores with files have input and output.
    fn persistent(&self, value: Option<u64>) -> Option<u64> {
        value.filter(|_| self.store.is_persistent)
    }
}

impl WorkloadInfo {
    /// Mean bytes of a key and its value.
    pub fn record_bytes(&self) -> u64 {
        let count = u64::try_from(self.value_bytes.len()).unwrap_or(1).max(1);
        self.key_bytes + self.value_bytes.iter().sum::<u64>() / count
    }
}

/// `part / whole`; `None` where there is no whole.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| to_f64(part) / to_f64(whole))
}
