//! Experiments of the `CompassDB` paper (sections 3.4, 4 and 5).
//!
//! Their machine: 2.4 GHz, 128 GB, PM9A3. Direct reads, no compression, a block cache of 32 MB
//! (none for `CompassDB`), at most four memtables of 128 MB; 16 threads for YCSB. `PebblesDB` is
//! not available here.

use quintet_bench::{
    report::Remark,
    result::{Metric, PaperFigure},
    session::plan::MemoryPlan,
    workload::{OperationMix, Suite},
};

use super::definition::{PointWorkload, Preset, PresetPoint, paper, point, ratio, remark};

const ENGINES: &[&str] = &["tph"];
const PEERS: &[&str] = &["rocksdb"];
const RECORDS: u64 = 200_000_000;
const CACHE: MemoryPlan = MemoryPlan::Direct(32 << 20);
const OURS: [&str; 2] = ["tph", "rocksdb"];

const fn ycsb(name: &'static str, workload: &'static str) -> PresetPoint {
    point(name, PointWorkload::Named(Suite::Ycsb, workload), RECORDS, 100_000_000)
        .threads(16)
        .sizes(20, &[1024])
}

/// A tenth of the operations: each is 50 reads in a store without key order on the disk.
const fn ycsb_e(name: &'static str) -> PresetPoint {
    let point = ycsb(name, "e");
    PresetPoint { operations: point.operations / 10, ..point }
}

const fn reads(name: &'static str, value_bytes: &'static [usize], records: u64) -> PresetPoint {
    point(name, PointWorkload::Named(Suite::Ycsb, "c"), records, 10_000_000)
        .threads(16)
        .sizes(20, value_bytes)
}

const fn bench(
    name: &'static str,
    workload: &'static str,
    records: u64,
    operations: u64,
) -> PresetPoint {
    point(name, PointWorkload::Named(Suite::DbBench, workload), records, operations)
        .sizes(20, &[128])
}

const fn mode(
    name: &'static str,
    what: PointWorkload,
    records: u64,
    operations: u64,
    settings: &'static [(&'static str, &'static str, &'static str)],
) -> PresetPoint {
    point(name, what, records, operations).sizes(20, &[1024]).with(settings)
}

/// Table 2, in microseconds.
const TABLE2: &[PaperFigure] = &[
    paper("A", "CompassDB", "tph", Metric::ReadMeanUs, 105.0),
    paper("A", "CompassDB", "tph", Metric::ReadP99Us, 862.0),
    paper("A", "CompassDB", "tph", Metric::WriteMeanUs, 146.0),
    paper("A", "CompassDB", "tph", Metric::WriteP99Us, 1_000.0),
    paper("A", "RocksDB 7.9.2", "rocksdb", Metric::ReadMeanUs, 442.0),
    paper("A", "RocksDB 7.9.2", "rocksdb", Metric::ReadP99Us, 1_617.0),
    paper("A", "RocksDB 7.9.2", "rocksdb", Metric::WriteMeanUs, 493.0),
    paper("A", "RocksDB 7.9.2", "rocksdb", Metric::WriteP99Us, 1_673.0),
    paper("A", "PebblesDB", "", Metric::ReadMeanUs, 1_302.0),
    paper("A", "PebblesDB", "", Metric::ReadP99Us, 9_279.0),
    paper("A", "PebblesDB", "", Metric::WriteMeanUs, 1_383.0),
    paper("A", "PebblesDB", "", Metric::WriteP99Us, 9_503.0),
    paper("B", "CompassDB", "tph", Metric::ReadMeanUs, 81.0),
    paper("B", "CompassDB", "tph", Metric::ReadP99Us, 289.0),
    paper("B", "CompassDB", "tph", Metric::WriteMeanUs, 196.0),
    paper("B", "CompassDB", "tph", Metric::WriteP99Us, 348.0),
    paper("B", "RocksDB 7.9.2", "rocksdb", Metric::ReadMeanUs, 373.0),
    paper("B", "RocksDB 7.9.2", "rocksdb", Metric::ReadP99Us, 1_623.0),
    paper("B", "RocksDB 7.9.2", "rocksdb", Metric::WriteMeanUs, 432.0),
    paper("B", "RocksDB 7.9.2", "rocksdb", Metric::WriteP99Us, 1_690.0),
    paper("B", "PebblesDB", "", Metric::ReadMeanUs, 1_297.0),
    paper("B", "PebblesDB", "", Metric::ReadP99Us, 18_239.0),
    paper("B", "PebblesDB", "", Metric::WriteMeanUs, 1_401.0),
    paper("B", "PebblesDB", "", Metric::WriteP99Us, 18_623.0),
    paper("C", "CompassDB", "tph", Metric::ReadMeanUs, 113.0),
    paper("C", "CompassDB", "tph", Metric::ReadP99Us, 231.0),
    paper("C", "RocksDB 7.9.2", "rocksdb", Metric::ReadMeanUs, 289.0),
    paper("C", "RocksDB 7.9.2", "rocksdb", Metric::ReadP99Us, 613.0),
    paper("C", "PebblesDB", "", Metric::ReadMeanUs, 637.0),
    paper("C", "PebblesDB", "", Metric::ReadP99Us, 18_207.0),
    paper("D", "CompassDB", "tph", Metric::ReadMeanUs, 59.0),
    paper("D", "CompassDB", "tph", Metric::ReadP99Us, 375.0),
    paper("D", "CompassDB", "tph", Metric::WriteMeanUs, 35.0),
    paper("D", "CompassDB", "tph", Metric::WriteP99Us, 52.0),
    paper("D", "RocksDB 7.9.2", "rocksdb", Metric::ReadMeanUs, 219.0),
    paper("D", "RocksDB 7.9.2", "rocksdb", Metric::ReadP99Us, 1_052.0),
    paper("D", "RocksDB 7.9.2", "rocksdb", Metric::WriteMeanUs, 53.0),
    paper("D", "RocksDB 7.9.2", "rocksdb", Metric::WriteP99Us, 100.0),
    paper("D", "PebblesDB", "", Metric::ReadMeanUs, 835.0),
    paper("D", "PebblesDB", "", Metric::ReadP99Us, 17_935.0),
    paper("D", "PebblesDB", "", Metric::WriteMeanUs, 110.0),
    paper("D", "PebblesDB", "", Metric::WriteP99Us, 346.0),
    paper("E", "CompassDB", "tph", Metric::ReadMeanUs, 8_027.0),
    paper("E", "CompassDB", "tph", Metric::ReadP99Us, 15_071.0),
    paper("E", "CompassDB", "tph", Metric::WriteMeanUs, 51.0),
    paper("E", "CompassDB", "tph", Metric::WriteP99Us, 98.0),
    paper("E", "RocksDB 7.9.2", "rocksdb", Metric::ReadMeanUs, 1_513.0),
    paper("E", "RocksDB 7.9.2", "rocksdb", Metric::ReadP99Us, 2_549.0),
    paper("E", "RocksDB 7.9.2", "rocksdb", Metric::WriteMeanUs, 62.0),
    paper("E", "RocksDB 7.9.2", "rocksdb", Metric::WriteP99Us, 142.0),
    paper("E", "PebblesDB", "", Metric::ReadMeanUs, 3_355.0),
    paper("E", "PebblesDB", "", Metric::ReadP99Us, 8_015.0),
    paper("E", "PebblesDB", "", Metric::WriteMeanUs, 70.0),
    paper("E", "PebblesDB", "", Metric::WriteP99Us, 185.0),
    paper("F", "CompassDB", "tph", Metric::ReadMeanUs, 97.0),
    paper("F", "CompassDB", "tph", Metric::ReadP99Us, 665.0),
    paper("F", "CompassDB", "tph", Metric::WriteMeanUs, 120.0),
    paper("F", "CompassDB", "tph", Metric::WriteP99Us, 672.0),
    paper("F", "RocksDB 7.9.2", "rocksdb", Metric::ReadMeanUs, 423.0),
    paper("F", "RocksDB 7.9.2", "rocksdb", Metric::ReadP99Us, 1_528.0),
    paper("F", "RocksDB 7.9.2", "rocksdb", Metric::WriteMeanUs, 463.0),
    paper("F", "RocksDB 7.9.2", "rocksdb", Metric::WriteP99Us, 1_568.0),
    paper("F", "PebblesDB", "", Metric::ReadMeanUs, 3_227.0),
    paper("F", "PebblesDB", "", Metric::ReadP99Us, 34_495.0),
    paper("F", "PebblesDB", "", Metric::WriteMeanUs, 752.0),
    paper("F", "PebblesDB", "", Metric::WriteP99Us, 16_735.0),
    ratio("A", "CompassDB", ["tph", "rocksdb"], Metric::OpsPerSecond, 3.0, ""),
    ratio("C", "CompassDB", ["tph", "rocksdb"], Metric::OpsPerSecond, 2.52, ""),
    ratio("D", "CompassDB", ["tph", "rocksdb"], Metric::OpsPerSecond, 5.5, ""),
];

const COMPASSDB: Preset = Preset {
    engines: ENGINES,
    peers: PEERS,
    memory: CACHE,
    scale: 0.01,
    runs: 1,
    ..Preset::DEFAULT
};

/// Reads and all that contain reads.
const ONE_READ: Remark = remark(
    PaperFigure::MEAN,
    "",
    None,
    "RocksDB 10.4 keeps its index and filters of 2 million keys in memory and reads the disk as \
     often as ours (0.68 times a get in C), so the disk binds both. In the paper both exceeded its \
     cache of 32 MB. Tried: smaller blocks, sections of keys, slots beside entries \
     (docs/lab/tph.md).",
);

/// Bytes written.
const TWO_LEVELS: Remark = remark(
    PaperFigure::MEAN,
    "",
    None,
    "At a hundredth of the size RocksDB has three levels and rewrites each byte three to five \
     times; the paper's data had six. Tried: larger tables and fan-outs (docs/lab/tph.md).",
);

pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "compassdb-table2",
        origin: "CompassDB, table 2 and figure 12 (a)",
        about: "YCSB A to F by 16 threads on values of 1 KiB, direct reads, 32 MiB of cache: mean \
                and 99th percentile. Throughput is 2.5 to 4 times RocksDB's in all but E, where \
                it is a fifth.",
        points: &[
            ycsb("A", "a"),
            ycsb("B", "b"),
            ycsb("C", "c"),
            ycsb("F", "f"),
            ycsb("D", "d"),
            ycsb_e("E"),
        ],
        metrics: &[Metric::OpsPerSecond, Metric::IosPerRead, Metric::IndexBytesPerKey],
        figures: TABLE2,
        remarks: &[
            Remark { point: "A", ..ONE_READ },
            Remark { point: "B", ..ONE_READ },
            Remark { point: "C", ..ONE_READ },
            Remark { point: "D", ..ONE_READ },
            Remark { point: "E", ..ONE_READ },
            Remark { point: "F", ..ONE_READ },
        ],
        ..COMPASSDB
    },
    Preset {
        name: "compassdb-ycsb-c",
        origin: "CompassDB, figure 12 (b)",
        about: "YCSB C with values of 50 bytes to 50 KiB: the lead grows with the size of values.",
        points: &[
            reads("50 B", &[50], 100_000_000),
            reads("1 KiB", &[1024], 20_000_000),
            reads("10 KiB", &[10_240], 2_000_000),
            reads("50 KiB", &[51_200], 400_000),
        ],
        ..COMPASSDB
    },
    Preset {
        name: "compassdb-dbbench",
        origin: "CompassDB, section 5.3",
        about: "Loading 500 million small records at random: write amplification 2.52 times lower \
                than RocksDB's; then random reads: read amplification about 10, a third of \
                RocksDB's.",
        points: &[
            bench("fillrandom", "fillrandom", 500_000_000, 0),
            bench("readrandom", "readrandom", 500_000_000, 10_000_000),
        ],
        figures: &[
            ratio("fillrandom", "CompassDB", OURS, Metric::WriteAmplification, 1.0 / 2.52, ""),
            paper("readrandom", "CompassDB", "tph", Metric::ReadAmplification, 10.0),
            ratio("readrandom", "CompassDB", OURS, Metric::ReadAmplification, 1.0 / 3.0, ""),
        ],
        metrics: &[Metric::WriteAmplification, Metric::ReadAmplification, Metric::OpsPerSecond],
        remarks: &[
            Remark { point: "fillrandom", ..TWO_LEVELS },
            Remark { point: "readrandom", ..ONE_READ },
        ],
        ..COMPASSDB
    },
    Preset {
        name: "compassdb-fig13",
        origin: "CompassDB, figure 13",
        about: "db_bench on 200 million records of 20 + 128 bytes: FillRandom about as RocksDB, \
                ReadRandom 8 times, ReadWhileWriting 5.8 times.",
        points: &[
            bench("FillRandom", "fillrandom", RECORDS, 0),
            bench("ReadRandom", "readrandom", RECORDS, 10_000_000),
            bench("ReadWhileWriting", "readwhilewriting", RECORDS, 10_000_000),
        ],
        metrics: &[Metric::OpsPerSecond, Metric::IosPerRead],
        figures: &[
            ratio("FillRandom", "CompassDB", OURS, Metric::OpsPerSecond, 1.0, ""),
            ratio("ReadRandom", "CompassDB", OURS, Metric::OpsPerSecond, 8.0, ""),
            ratio("ReadWhileWriting", "CompassDB", OURS, Metric::OpsPerSecond, 5.8, ""),
        ],
        remarks: &[
            Remark { point: "FillRandom", ..TWO_LEVELS },
            Remark { point: "ReadRandom", ..ONE_READ },
            Remark { point: "ReadWhileWriting", ..ONE_READ },
        ],
        ..COMPASSDB
    },
    Preset {
        name: "compassdb-fig14",
        origin: "CompassDB, figure 14",
        about: "Building perfect hash functions: 40 % quicker than CHD, 14 % than PTHash at 100 \
                million keys. No workload of a store: `cargo bench -p quintet-bench --bench \
                perfect_hash` measures our functions.",
        ..COMPASSDB
    },
    Preset {
        name: "compassdb-memory",
        origin: "CompassDB, section 4.3",
        about: "Memory for 50 and 100 million records of 300 bytes: 1.7 and 2.9 GB in all, 6.51 \
                bytes a key of index.",
        points: &[
            point(
                "50 M",
                PointWorkload::Named(Suite::DbBench, "readrandom"),
                50_000_000,
                1_000_000,
            )
            .sizes(20, &[300]),
            point(
                "100 M",
                PointWorkload::Named(Suite::DbBench, "readrandom"),
                100_000_000,
                1_000_000,
            )
            .sizes(20, &[300]),
        ],
        scale: 0.1,
        figures: &[
            paper("50 M", "CompassDB", "tph", Metric::ResidentBytes, 1.7e9),
            paper("100 M", "CompassDB", "tph", Metric::ResidentBytes, 2.9e9),
            paper("", "CompassDB", "tph", Metric::IndexBytesPerKey, 6.51),
        ],
        metrics: &[Metric::ResidentBytes, Metric::IndexBytesPerKey],
        ..COMPASSDB
    },
    Preset {
        name: "compassdb-one-level",
        origin: "CompassDB, section 4.5",
        about: "One level, up to 16 pieces: 100 million values of 1 KiB with a fifteenth of \
                RocksDB's write amplification and 40 % fewer bytes read.",
        points: &[mode(
            "load",
            PointWorkload::Named(Suite::DbBench, "fillrandom"),
            100_000_000,
            0,
            &[("tph", "mode", "one_level")],
        )],
        figures: &[ratio("load", "CompassDB", OURS, Metric::WriteAmplification, 1.0 / 15.0, "")],
        remarks: &[Remark { point: "load", ..TWO_LEVELS }],
        ..COMPASSDB
    },
    Preset {
        name: "compassdb-single-tier",
        origin: "CompassDB, section 4.5",
        about: "One tier, one or two pieces: six times the reads of RocksDB on 200 million values \
                of 1 KiB.",
        points: &[mode(
            "read",
            PointWorkload::Mix(OperationMix { reads: 1.0, ..OperationMix::NONE }),
            RECORDS,
            10_000_000,
            &[("tph", "mode", "single_tier")],
        )],
        metrics: &[Metric::OpsPerSecond, Metric::IosPerRead],
        figures: &[ratio("read", "CompassDB", OURS, Metric::OpsPerSecond, 6.0, "")],
        remarks: &[Remark { point: "read", ..ONE_READ }],
        // A flush into one piece merges the whole table: loading costs the square of the size.
        scale: 0.002,
        ..COMPASSDB
    },
    Preset {
        name: "compassdb-hash-range",
        origin: "CompassDB, section 3.4",
        about: "Loading 400 million values of 1 KiB with and without hash ranges: compaction \
                reads 57 % less, takes 49 % less, the whole 55 % less (the table is not in the \
                text).",
        points: &[
            mode(
                "hash range",
                PointWorkload::Named(Suite::DbBench, "fillrandom"),
                400_000_000,
                0,
                &[("tph", "mode", "hash_range")],
            ),
            mode(
                "sorted keys",
                PointWorkload::Named(Suite::DbBench, "fillrandom"),
                400_000_000,
                0,
                &[("tph", "mode", "sorted")],
            ),
        ],
        metrics: &[Metric::Seconds, Metric::WriteAmplification],
        scale: 0.005,
        ..COMPASSDB
    },
];
