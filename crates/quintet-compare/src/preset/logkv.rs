//! Experiments of the LogKV paper (sections 4 and 5), with peers.
//!
//! Their machine: i7-9700; keys of 100 and values of 500 characters; one thread. `quintet bench
//! logkv` runs the whole product of the parameters on our engines. The presets here run the corners
//! and the middle of each product, so that peers can run as well.

use quintet_bench::result::{Metric, PaperFigure};

use super::definition::{PointWorkload, Preset, PresetPoint, paper, point, ratio};

const ENGINES: &[&str] = &["hashlog", "naive"];
const PEERS: &[&str] = &["rocksdb", "lmdb"];
const BOTH: [&str; 2] = ["hashlog", "naive"];

/// A point of the generator: hit rate, read fraction, hot fraction, hot rate.
const fn logkv(name: &'static str, operations: u64, parameters: [f64; 4]) -> PresetPoint {
    point(name, PointWorkload::LogKv(parameters), operations, operations).sizes(100, &[500])
}

const SNAPSHOT_2M: &[(&str, &str, &str)] = &[("naive", "snapshot_bytes", "2097152")];
/// A threshold that no run reaches: no snapshots.
const NEVER: &[(&str, &str, &str)] = &[("naive", "snapshot_bytes", "1099511627776")];

const fn grid(
    operations: u64,
    settings: &'static [(&'static str, &'static str, &'static str)],
) -> [PresetPoint; 9] {
    [
        logkv("hits 0.2, reads 0.2", operations, [0.2, 0.2, 0.1, 0.9]).with(settings),
        logkv("hits 0.2, reads 0.6", operations, [0.2, 0.6, 0.1, 0.9]).with(settings),
        logkv("hits 0.2, reads 0.99", operations, [0.2, 0.99, 0.1, 0.9]).with(settings),
        logkv("hits 0.8, reads 0.2", operations, [0.8, 0.2, 0.1, 0.9]).with(settings),
        logkv("hits 0.8, reads 0.6", operations, [0.8, 0.6, 0.1, 0.9]).with(settings),
        logkv("hits 0.8, reads 0.99", operations, [0.8, 0.99, 0.1, 0.9]).with(settings),
        logkv("hits 0.99, reads 0.2", operations, [0.99, 0.2, 0.1, 0.9]).with(settings),
        logkv("hits 0.99, reads 0.6", operations, [0.99, 0.6, 0.1, 0.9]).with(settings),
        logkv("hits 0.99, reads 0.99", operations, [0.99, 0.99, 0.1, 0.9]).with(settings),
    ]
}

const FIG3: [PresetPoint; 9] = grid(100_000, NEVER);
const FIG4: [PresetPoint; 9] = grid(400_000, SNAPSHOT_2M);

const fn recovery(
    name: &'static str,
    settings: &'static [(&'static str, &'static str, &'static str)],
) -> PresetPoint {
    logkv(name, 100_000, [0.8, 0.2, 0.2, 0.6]).with(settings)
}

const TABLE3: &[PaperFigure] = &[
    paper("2 MiB", "LogKV, 2 MB", "hashlog", Metric::OpsPerSecond, 50_000.0),
    paper("2 MiB", "LogKV, 2 MB", "hashlog", Metric::RecoveryErrorRate, 0.0355),
    paper("64 KiB", "NaiveKV, 64 KB", "naive", Metric::OpsPerSecond, 1_000.0),
    paper("64 KiB", "NaiveKV, 64 KB", "naive", Metric::RecoveryErrorRate, 0.0017),
    paper("2 MiB", "NaiveKV, 2 MB", "naive", Metric::OpsPerSecond, 17_000.0),
    paper("2 MiB", "NaiveKV, 2 MB", "naive", Metric::RecoveryErrorRate, 0.0453),
    paper("64 MiB", "NaiveKV, 64 MB", "naive", Metric::RecoveryErrorRate, 0.9918),
];

const LOGKV: Preset = Preset { engines: ENGINES, peers: PEERS, scale: 1.0, ..Preset::DEFAULT };

pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "logkv-table1",
        origin: "LogKV, table 1",
        about: "The product of the generator's parameters at its corners and its middle, 100,000 \
                commands each.",
        points: &[
            logkv("least", 100_000, [0.2, 0.2, 0.01, 0.7]).with(SNAPSHOT_2M),
            logkv("writes", 100_000, [0.99, 0.2, 0.05, 0.8]).with(SNAPSHOT_2M),
            logkv("middle", 100_000, [0.6, 0.6, 0.1, 0.8]).with(SNAPSHOT_2M),
            logkv("reads", 100_000, [0.99, 0.99, 0.05, 0.8]).with(SNAPSHOT_2M),
            logkv("most", 100_000, [0.99, 0.99, 0.2, 0.9]).with(SNAPSHOT_2M),
        ],
        ..LOGKV
    },
    Preset {
        name: "logkv-table2",
        origin: "LogKV, table 2",
        about: "Four scenarios of a million commands: heavy on reads or writes, with hot keys and \
                without. The paper prints no results.",
        points: &[
            logkv("reads, hot keys", 1_000_000, [0.95, 0.8, 0.2, 0.6]).with(SNAPSHOT_2M),
            logkv("reads", 1_000_000, [0.95, 0.8, 0.0, 0.0]).with(SNAPSHOT_2M),
            logkv("writes, hot keys", 1_000_000, [0.95, 0.2, 0.2, 0.6]).with(SNAPSHOT_2M),
            logkv("writes", 1_000_000, [0.95, 0.2, 0.0, 0.0]).with(SNAPSHOT_2M),
        ],
        scale: 0.1,
        ..LOGKV
    },
    Preset {
        name: "logkv-fig3",
        origin: "LogKV, figure 3",
        about: "100,000 commands at a hot rate of 0.9, the naive store without snapshots: naive \
                is ahead throughout.",
        points: &FIG3,
        ..LOGKV
    },
    Preset {
        name: "logkv-fig4",
        origin: "LogKV, figure 4",
        about: "400,000 commands with snapshots: the curves of LogKV and NaiveKV overlap.",
        points: &FIG4,
        scale: 0.25,
        figures: &[ratio("", "LogKV", BOTH, Metric::OpsPerSecond, 1.0, "the curves overlap")],
        ..LOGKV
    },
    Preset {
        name: "logkv-fig5",
        origin: "LogKV, figure 5",
        about: "Memory in the runs of figure 4; its authors doubt their own figures.",
        points: &FIG4,
        scale: 0.25,
        metrics: &[Metric::ResidentBytes],
        ..LOGKV
    },
    Preset {
        name: "logkv-table3",
        origin: "LogKV, table 3",
        about: "Killed, then opened again: throughput and lost records for three snapshot \
                thresholds. The paper's recovery times are printed as 0.",
        points: &[
            recovery("64 KiB", &[("naive", "snapshot_bytes", "65536")]),
            recovery("2 MiB", SNAPSHOT_2M),
            recovery("64 MiB", &[("naive", "snapshot_bytes", "67108864")]),
        ],
        recovers: true,
        figures: TABLE3,
        metrics: &[Metric::OpsPerSecond, Metric::RecoverySeconds],
        ..LOGKV
    },
];
