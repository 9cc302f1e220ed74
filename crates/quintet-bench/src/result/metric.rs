//! Metrics: the figures that tables compare and that papers print.

use serde::{Deserialize, Serialize};

/// A figure that tables compare and papers print. Each metric has one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Operations per second; more is better, unlike for all other metrics but the next.
    OpsPerSecond,
    /// Records per second of loading; more is better.
    LoadOpsPerSecond,
    /// Mean latency of reads in microseconds.
    ReadMeanUs,
    /// 99th percentile of reads in microseconds.
    ReadP99Us,
    /// Mean latency of writes in microseconds.
    WriteMeanUs,
    /// 99th percentile of writes in microseconds.
    WriteP99Us,
    /// Bytes written to the device per user byte, of loading and operations together.
    WriteAmplification,
    /// Bytes read from the device per byte of the records read.
    ReadAmplification,
    /// Read requests of the device per read.
    IosPerRead,
    /// Bytes of files per live byte.
    SpaceAmplification,
    /// Index bytes per key.
    IndexBytesPerKey,
    /// Resident memory at the end in bytes.
    ResidentBytes,
    /// Maximum resident memory in bytes.
    PeakResidentBytes,
    /// Recovery after `kill -9` in seconds.
    RecoverySeconds,
    /// Share of the records that are wrong after `kill -9`.
    RecoveryErrorRate,
    /// Share of the transactions that ended with a conflict and were run again.
    AbortRate,
    /// Duration of the operations in seconds.
    Seconds,
    /// Bytes written to the device, of loading and operations together.
    DeviceBytesWritten,
}

impl Metric {
    /// Returns whether a greater figure is better.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::OpsPerSecond | Self::LoadOpsPerSecond)
    }

    /// Returns the unit; empty for a ratio.
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
            | Self::RecoveryErrorRate
            | Self::AbortRate => "",
        }
    }

    /// Returns the name in reports.
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
            Self::AbortRate => "abort rate",
            Self::Seconds => "duration",
            Self::DeviceBytesWritten => "device bytes written",
        }
    }
}

impl PaperFigure {
    /// Point of a figure that is the mean of all points.
    pub const MEAN: &str = "";
    /// Point of a figure that is the best of all points.
    pub const BEST: &str = "best";
}

/// A figure that a paper prints, for comparison with ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperFigure {
    /// Point of the preset, as in [`super::RunResult::point`], [`Self::MEAN`] or [`Self::BEST`].
    pub point: &'static str,
    /// Name of the store in the paper: `CedrusDB`, `RocksDB 6.1.2`.
    pub store: &'static str,
    /// Name of our counterpart, or of the same peer here: `trie`, `rocksdb`.
    pub stands_for: &'static str,
    /// If the figure is a ratio, the other store (`stands_for` over this one); otherwise empty.
    pub relative_to: &'static str,
    /// Metric.
    pub metric: Metric,
    /// Value. `note` says if it was read off a plot.
    pub value: f64,
    /// Hardware, size, doubts; empty if the description of the preset covers them.
    pub note: &'static str,
}
