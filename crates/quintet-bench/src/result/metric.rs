//! Metrics: the figures that tables compare and that papers print.

use serde::{Deserialize, Serialize};

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
