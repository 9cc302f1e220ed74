//! Measurements in the README of ckvs: numbers of eight bytes, pages of 16 KiB, a RAM disk, eight
//! threads on four cores.
//!
//! The README prints durations, for example of 5 million operations. The figures here are
//! operations per second, which apply to any scale.

use quintet_bench::{
    result::{Metric, PaperFigure},
    workload::OperationMix,
};

use super::definition::{PointWorkload, Preset, PresetPoint, paper, point};

const THREADS: u64 = 8;

const fn numbers(
    name: &'static str,
    mix: OperationMix,
    records: u64,
    operations: u64,
) -> PresetPoint {
    point(name, PointWorkload::Mix(mix), records, operations).threads(THREADS).sizes(8, &[8])
}

const INSERTS: OperationMix = OperationMix { inserts: 1.0, ..OperationMix::NONE };
const DELETES: OperationMix = OperationMix { deletes: 1.0, ..OperationMix::NONE };
const READS: OperationMix = OperationMix { reads: 1.0, ..OperationMix::NONE };

const FIGURES: &[PaperFigure] = &[
    paper("query 1 M", "ckvs, cache 8192", "btree", Metric::OpsPerSecond, 1e6 / 0.78),
    paper("query 5 M", "ckvs", "btree", Metric::OpsPerSecond, 5e6 / 4.951),
    paper("query 10 M", "ckvs", "btree", Metric::OpsPerSecond, 1e7 / 9.953),
    paper("query 20 M", "ckvs, cache 32768", "btree", Metric::OpsPerSecond, 2e7 / 80.643),
    paper("query 20 M", "ckvs, cache 8192", "btree", Metric::OpsPerSecond, 2e7 / 658.798),
    paper("remove 5 M", "ckvs, hot", "btree", Metric::OpsPerSecond, 5e6 / 6.925),
];

pub(super) const PRESETS: &[Preset] = &[Preset {
    name: "ckvs-perf",
    origin: "ckvs, README",
    about: "Numbers of eight bytes: inserts into 1 million, removal of 5 of 10 million, queries \
            of cold stores of 1 to 20 million. The original has no log and loses everything when \
            it is killed; its 20 million with a cache of 8192 pages take 658.8 s.",
    engines: &["btree"],
    peers: &["lmdb", "redb", "rocksdb"],
    points: &[
        numbers("insert", INSERTS, 1_000_000, 9_000_000),
        numbers("remove 5 M", DELETES, 10_000_000, 5_000_000),
        numbers("query 1 M", READS, 1_000_000, 1_000_000),
        numbers("query 5 M", READS, 5_000_000, 5_000_000),
        numbers("query 10 M", READS, 10_000_000, 10_000_000),
        numbers("query 20 M", READS, 20_000_000, 20_000_000),
    ],
    scale: 0.1,
    reopens: true,
    figures: FIGURES,
    ..Preset::DEFAULT
}];
