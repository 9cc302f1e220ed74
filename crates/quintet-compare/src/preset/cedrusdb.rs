//! Experiments of the CedrusDB paper (section 4).
//!
//! Their machine: six cores of 3.7 GHz, 64 GB, Optane 905P; FASTER 1.8.4, LMDB 0.9.23, RocksDB
//! 6.1.2. All data is in memory (40 GB of cache), writes are asynchronous, and stores are reopened
//! before the test. Figures 10 to 19 are plots without numbers; `about` contains the statements of
//! the text.

use quintet_bench::{
    result::{Metric, PaperFigure},
    session::plan::MemoryPlan,
    workload::{OperationMix, Suite},
};

use super::definition::{PointWorkload, Preset, PresetPoint, paper, point, ratio, remark};

const ENGINES: &[&str] = &["trie", "hashlog"];
const PEERS: &[&str] = &["rocksdb", "lmdb"];
const RECORDS: u64 = 100_000_000;
const OPS: u64 = 50_000_000;

const fn mix(
    reads: f64,
    updates: f64,
    inserts: f64,
    deletes: f64,
    is_zipfian: bool,
) -> PointWorkload {
    PointWorkload::Mix(OperationMix {
        reads,
        updates,
        inserts,
        deletes,
        is_zipfian,
        ..OperationMix::NONE
    })
}

const fn micro(name: &'static str, what: PointWorkload, threads: u64) -> PresetPoint {
    point(name, what, RECORDS, OPS).sizes(32, &[128]).threads(threads)
}

const fn microbenchmark(threads: u64) -> [PresetPoint; 9] {
    [
        micro("L", mix(1.0, 0.0, 0.0, 0.0, false), threads),
        micro("L-z", mix(1.0, 0.0, 0.0, 0.0, true), threads),
        micro("U1*", mix(0.9, 0.1, 0.0, 0.0, false), threads),
        micro("U2*", mix(0.8, 0.2, 0.0, 0.0, false), threads),
        micro("U", mix(0.0, 1.0, 0.0, 0.0, false), threads),
        micro("I1", mix(0.9, 0.0, 0.1, 0.0, false), threads),
        micro("I2", mix(0.8, 0.0, 0.2, 0.0, false), threads),
        micro("I", mix(0.0, 0.0, 1.0, 0.0, false), threads),
        micro("D", mix(0.0, 0.0, 0.0, 1.0, false), threads),
    ]
}

const FIG10: [PresetPoint; 9] = microbenchmark(1);
const FIG11: [PresetPoint; 9] = microbenchmark(4);

const fn ycsb(
    records: u64,
    operations: u64,
    threads: u64,
    value_bytes: &'static [usize],
) -> [PresetPoint; 6] {
    const fn one(
        name: &'static str,
        what: PointWorkload,
        records: u64,
        operations: u64,
        threads: u64,
        value_bytes: &'static [usize],
    ) -> PresetPoint {
        point(name, what, records, operations).threads(threads).sizes(23, value_bytes)
    }
    [
        one(
            "100 % reads",
            mix(1.0, 0.0, 0.0, 0.0, true),
            records,
            operations,
            threads,
            value_bytes,
        ),
        one(
            "10 % updates",
            mix(0.9, 0.1, 0.0, 0.0, true),
            records,
            operations,
            threads,
            value_bytes,
        ),
        one(
            "50 % updates",
            mix(0.5, 0.5, 0.0, 0.0, true),
            records,
            operations,
            threads,
            value_bytes,
        ),
        one(
            "100 % updates",
            mix(0.0, 1.0, 0.0, 0.0, true),
            records,
            operations,
            threads,
            value_bytes,
        ),
        one(
            "10 % inserts",
            mix(0.9, 0.0, 0.1, 0.0, true),
            records,
            operations,
            threads,
            value_bytes,
        ),
        one(
            "50 % inserts",
            mix(0.5, 0.0, 0.5, 0.0, true),
            records,
            operations,
            threads,
            value_bytes,
        ),
    ]
}

const FIG15: [PresetPoint; 6] = ycsb(RECORDS, OPS, 1, &[128]);
const FIG16: [PresetPoint; 6] = ycsb(10_000_000, 10_000_000, 1, &[1024]);
const FIG17: [PresetPoint; 6] = ycsb(RECORDS, OPS, 4, &[128]);
/// Sizes of 128, 256 and 1024 bytes in equal parts.
const FIG18A: [PresetPoint; 6] = ycsb(10_000_000, RECORDS, 1, &[128, 256, 1024]);
/// Sizes of 128 to 256 bytes: zipfian in the paper, eight sizes in equal parts here.
const FIG18B: [PresetPoint; 6] =
    ycsb(10_000_000, RECORDS, 1, &[128, 144, 160, 176, 192, 208, 224, 256]);

const fn sluggish(
    name: &'static str,
    settings: &'static [(&'static str, &'static str, &'static str)],
) -> PresetPoint {
    point(name, mix(0.5, 0.0, 0.5, 0.0, false), RECORDS, 10_000_000).with(settings)
}

const fn region(
    name: &'static str,
    settings: &'static [(&'static str, &'static str, &'static str)],
    writes: f64,
) -> PresetPoint {
    let what = mix(1.0 - writes, writes, 0.0, 0.0, false);
    point(name, what, RECORDS, 10_000_000).with(settings)
}

const fn regions(writes: f64) -> [PresetPoint; 3] {
    [
        region("64 KiB", &[("trie", "region_bytes", "65536")], writes),
        region("1 MiB", &[("trie", "region_bytes", "1048576")], writes),
        region("16 MiB", &[("trie", "region_bytes", "16777216")], writes),
    ]
}

const FIG12: [PresetPoint; 3] = regions(0.0);
const FIG13: [PresetPoint; 3] = regions(1.0);

const TABLE1: &[PaperFigure] = &[
    paper("A", "CedrusDB", "trie", Metric::OpsPerSecond, 391_000.0),
    paper("A", "CedrusDB", "trie", Metric::RecoverySeconds, 0.645),
    paper("A", "FASTER, disk", "", Metric::OpsPerSecond, 446_000.0),
    paper("A", "FASTER, disk", "", Metric::RecoverySeconds, 28.16),
    paper("A", "FASTER, volatile", "", Metric::OpsPerSecond, 1_125_000.0),
    paper("A", "LMDB 0.9.23", "lmdb", Metric::OpsPerSecond, 198_000.0),
    paper("A", "LMDB 0.9.23", "lmdb", Metric::RecoverySeconds, 0.003),
    paper("A", "RocksDB 6.1.2", "rocksdb", Metric::OpsPerSecond, 186_000.0),
    paper("A", "RocksDB 6.1.2", "rocksdb", Metric::RecoverySeconds, 0.267),
    paper("A", "Masstree", "", Metric::OpsPerSecond, 1_123_000.0),
    paper("A", "Masstree", "", Metric::RecoverySeconds, 31.8),
    paper("A", "KVell", "", Metric::OpsPerSecond, 410_000.0),
    paper("A", "KVell", "", Metric::RecoverySeconds, 91.9),
    ratio(
        "A",
        "CedrusDB",
        ["trie", "rocksdb"],
        Metric::OpsPerSecond,
        391.0 / 186.0,
        "from the two figures above",
    ),
    ratio(
        "A",
        "CedrusDB",
        ["trie", "lmdb"],
        Metric::OpsPerSecond,
        391.0 / 198.0,
        "from the two figures above",
    ),
];

/// Upper ends of the ranges over thread counts and mixes of a plot.
const FIG19: &[PaperFigure] = &[
    ratio(
        PaperFigure::BEST,
        "CedrusDB",
        ["trie", "rocksdb"],
        Metric::OpsPerSecond,
        3.07,
        "the best of 1.05 to 3.07 at 90 % reads",
    ),
    ratio(
        PaperFigure::BEST,
        "CedrusDB",
        ["trie", "lmdb"],
        Metric::OpsPerSecond,
        5.74,
        "the best of 1.07 to 5.74 at 90 % reads",
    ),
];

const CEDRUSDB: Preset = Preset { engines: ENGINES, peers: PEERS, ..Preset::DEFAULT };

pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "cedrusdb-fig4",
        origin: "CedrusDB, figure 4",
        about: "Path length, use of child tables and memory of the index against the number of \
                keys, for several degrees of sluggishness: look at the index bytes a key.",
        engines: &["trie"],
        peers: &[],
        points: &[
            sluggish("s 1", &[("trie", "sluggishness", "1")]),
            sluggish("s 4", &[("trie", "sluggishness", "4")]),
            sluggish("s 16", &[("trie", "sluggishness", "16")]),
        ],
        metrics: &[Metric::IndexBytesPerKey],
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig9",
        origin: "CedrusDB, figure 9",
        about: "Lookups and insertions, and the memory of the index, against sluggishness. In the \
                paper, from 4 to 16 cuts it from over 23 GB to 144 MB at 256 children a node.",
        engines: &["trie"],
        peers: &[],
        points: &[
            sluggish("s 1", &[("trie", "sluggishness", "1")]),
            sluggish("s 2", &[("trie", "sluggishness", "2")]),
            sluggish("s 4", &[("trie", "sluggishness", "4")]),
            sluggish("s 8", &[("trie", "sluggishness", "8")]),
            sluggish("s 16", &[("trie", "sluggishness", "16")]),
            sluggish("s 32", &[("trie", "sluggishness", "32")]),
            sluggish("s 128", &[("trie", "sluggishness", "128")]),
        ],
        figures: &[PaperFigure {
            point: "s 16",
            store: "CedrusDB",
            stands_for: "trie",
            relative_to: "",
            metric: Metric::IndexBytesPerKey,
            value: 1.44,
            note: "144 MB for 100 million keys, 256 children a node",
        }],
        remarks: &[remark(
            "s 16",
            "",
            None,
            "Ours counts the lists too, at least 8 bytes a record; the paper's 144 MB can only be \
             the nodes. Tried: longer lists and wider nodes (the other points).",
        )],
        metrics: &[Metric::OpsPerSecond, Metric::IndexBytesPerKey],
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig10",
        origin: "CedrusDB, figure 10",
        about: "Lookups (L, zipfian L-z), insertions, deletions, updates, and mixes with 10 % and \
                20 % of writes, one thread. LMDB is noticeably faster in pure lookups; insertion \
                is held back by the write buffer.",
        points: &FIG10,
        reopens: true,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig11",
        origin: "CedrusDB, figure 11",
        about: "The same with four threads; deletions, which lock whole paths, are slowest.",
        points: &FIG11,
        reopens: true,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig12",
        origin: "CedrusDB, figure 12",
        about: "Lookups with regions of 64 KiB to 16 MiB and four fifths of the memory that the \
                store takes where all is in memory (1.25 times the data, index included).",
        engines: &["trie"],
        peers: &[],
        points: &FIG12,
        memory: MemoryPlan::DirectShare(1.0),
        runs: 1,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig12-base",
        origin: "CedrusDB, figure 12, all in memory",
        about: "The same with memory for everything.",
        engines: &["trie"],
        peers: &[],
        points: &FIG12,
        memory: MemoryPlan::DirectShare(2.0),
        runs: 1,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig13",
        origin: "CedrusDB, figure 13",
        about: "Writes with regions of 64 KiB to 16 MiB and four fifths of the memory that the \
                store takes where all is in memory (1.25 times the data, index included).",
        engines: &["trie"],
        peers: &[],
        points: &FIG13,
        memory: MemoryPlan::DirectShare(1.0),
        runs: 1,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig13-base",
        origin: "CedrusDB, figure 13, all in memory",
        about: "The same with memory for everything.",
        engines: &["trie"],
        peers: &[],
        points: &FIG13,
        memory: MemoryPlan::DirectShare(2.0),
        runs: 1,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig14",
        origin: "CedrusDB, figure 14",
        about: "Updates of values of 128, 256 and 1024 bytes, ten times as many as there are \
                records: what the allocator wastes shows in the space amplification.",
        points: &[point("M", mix(0.0, 1.0, 0.0, 0.0, false), 10_000_000, RECORDS)
            .sizes(23, &[128, 256, 1024])],
        metrics: &[Metric::SpaceAmplification, Metric::OpsPerSecond],
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig15",
        origin: "CedrusDB, figure 15",
        about: "YCSB, zipfian, 128 bytes, one thread: shares of updates and of insertions.",
        points: &FIG15,
        reopens: true,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig16",
        origin: "CedrusDB, figure 16",
        about: "The same with values of 1 KiB.",
        points: &FIG16,
        reopens: true,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig17",
        origin: "CedrusDB, figure 17",
        about: "YCSB, zipfian, 128 bytes, four threads.",
        points: &FIG17,
        reopens: true,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig18a",
        origin: "CedrusDB, figure 18 (a)",
        about: "YCSB with values of 128, 256 and 1024 bytes in equal parts.",
        points: &FIG18A,
        reopens: true,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig18b",
        origin: "CedrusDB, figure 18 (b)",
        about: "YCSB with values of 128 to 256 bytes.",
        points: &FIG18B,
        reopens: true,
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-fig19",
        origin: "CedrusDB, figure 19",
        about: "90 % reads by 1 to 32 threads on 16 cores in the paper: it scales to about eight, \
                then the shared lock binds. Beyond the processors of this machine nothing is \
                shown.",
        points: &[
            micro("1 thread", mix(0.9, 0.1, 0.0, 0.0, true), 1).sizes(23, &[128]),
            micro("2 threads", mix(0.9, 0.1, 0.0, 0.0, true), 2).sizes(23, &[128]),
            micro("4 threads", mix(0.9, 0.1, 0.0, 0.0, true), 4).sizes(23, &[128]),
            micro("8 threads", mix(0.9, 0.1, 0.0, 0.0, true), 8).sizes(23, &[128]),
        ],
        figures: FIG19,
        remarks: &[remark(
            "",
            "lmdb",
            None,
            "The paper's best is that of 8 threads on 16 cores; here are two. Against the design \
             counts its hash of 256 bits: our default takes 64.",
        )],
        ..CEDRUSDB
    },
    Preset {
        name: "cedrusdb-table1",
        origin: "CedrusDB, table 1",
        about: "YCSB with half updates on 100 million records of 128 bytes, killed, then opened \
                again. FASTER, Masstree and KVell cannot be had here.",
        points: &[point("A", PointWorkload::Named(Suite::Ycsb, "a"), RECORDS, RECORDS)],
        recovers: true,
        figures: TABLE1,
        remarks: &[
            remark(
                "A",
                "lmdb",
                Some(Metric::RecoverySeconds),
                "LMDB replays nothing: its pages are its log. It opens in 0.2 ms, ours in 0.2 to \
                 0.3 s at any size. Tried: checkpoints while idle (decisions 45 and 108).",
            ),
            remark(
                "A",
                "rocksdb",
                Some(Metric::RecoverySeconds),
                "The design and the default replay the same log; the design's lists are linked, so \
                 each insert of the replay follows a chain.",
            ),
            remark(
                "A",
                "lmdb",
                None,
                "LMDB syncs nothing here (NOSYNC, WRITEMAP) and may lose its file at a power loss. \
                 With 2 million records the ratio was 2.2 (docs/lab/trie.md).",
            ),
        ],
        metrics: &[Metric::OpsPerSecond, Metric::RecoverySeconds],
        ..CEDRUSDB
    },
];
