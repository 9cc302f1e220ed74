//! Comparisons of Quintet with other stores.

use quintet_bench::{session::plan::MemoryPlan, store::Durability, workload::Suite};

use super::definition::{PointWorkload, Preset, PresetPoint, point};

const ENGINES: &[&str] = &["hashlog", "naive", "trie", "btree", "slm", "tph"];
const PEERS: &[&str] = &["floor", "rocksdb", "leveldb", "lmdb", "mdbx", "redb", "fjall", "sled"];

const fn ycsb(name: &'static str, workload: &'static str, operations: u64) -> PresetPoint {
    point(name, PointWorkload::Named(Suite::Ycsb, workload), 10_000_000, operations)
}

const fn micro(name: &'static str, operations: u64) -> PresetPoint {
    point(name, PointWorkload::Named(Suite::Micro, name), 10_000_000, operations)
}

const fn txn(name: &'static str, workload: &'static str, records: u64) -> PresetPoint {
    point(name, PointWorkload::Named(Suite::Txn, workload), records, OPS / 5)
}

const OPS: u64 = 10_000_000;
/// Records of the points with conflicts: all that their operations use.
const HOT_RECORDS: u64 = 1000;

pub(super) const PRESETS: &[Preset] = &[
    Preset {
        name: "smoke",
        origin: "Quintet",
        about: "Every store in under a minute: load, then reads, absent keys, updates. Small, in \
                memory; to see that all works and roughly where each stands.",
        engines: ENGINES,
        peers: PEERS,
        points: &[
            ycsb("load", "load", OPS),
            ycsb("c", "c", OPS),
            micro("read-absent", OPS),
            ycsb("a", "a", OPS),
        ],
        // The records fit into the private caches of the processor. Larger data is in the
        // last-level cache, which other tenants of the host share: the figures of a store of 10 MB
        // then varied by a factor of two from second to second.
        scale: 0.001,
        // Many short runs instead of few long ones: pages and the state of the host differ more
        // between runs than within one.
        runs: 11,
        seconds_min: 0.05,
        ..Preset::DEFAULT
    },
    Preset {
        name: "point",
        origin: "Quintet",
        about: "PresetPoint access to ten million records of 128 bytes, one thread, buffered: what \
                hashlog is held to.",
        engines: &["hashlog", "naive", "trie", "btree", "slm", "tph"],
        peers: &["floor", "rocksdb", "leveldb", "lmdb", "lmdb-readahead", "mdbx", "redb", "fjall"],
        points: &[
            ycsb("load", "load", OPS),
            ycsb("c", "c", OPS),
            micro("read-uniform", OPS),
            micro("read-absent", OPS),
            micro("multi-get-32", OPS),
            ycsb("a", "a", OPS),
        ],
        scale: 1.0,
        ..Preset::DEFAULT
    },
    Preset {
        name: "ycsb",
        origin: "Quintet",
        about: "YCSB in its order: load, a, b, c, f, d; then loaded again, e.",
        engines: ENGINES,
        peers: &["rocksdb", "leveldb", "lmdb", "mdbx", "redb", "fjall", "sled"],
        points: &[
            ycsb("load", "load", OPS),
            ycsb("a", "a", OPS),
            ycsb("b", "b", OPS),
            ycsb("c", "c", OPS),
            ycsb("f", "f", OPS),
            ycsb("d", "d", OPS),
            ycsb("e", "e", OPS / 10),
        ],
        scale: 0.1,
        ..Preset::DEFAULT
    },
    Preset {
        name: "sync",
        origin: "Quintet",
        about: "Inserts with every write synced, by one to sixteen threads: the group commit.",
        engines: ENGINES,
        peers: &["rocksdb", "leveldb", "lmdb", "mdbx", "redb", "fjall", "sled"],
        points: &[
            point("1 thread", PointWorkload::Named(Suite::Micro, "insert"), 1_000_000, 1_000_000),
            point("4 threads", PointWorkload::Named(Suite::Micro, "insert"), 1_000_000, 4_000_000)
                .threads(4),
            point(
                "16 threads",
                PointWorkload::Named(Suite::Micro, "insert"),
                1_000_000,
                16_000_000,
            )
            .threads(16),
        ],
        scale: 0.01,
        durability: Durability::Sync,
        ..Preset::DEFAULT
    },
    Preset {
        name: "transactions",
        origin: "Quintet",
        about: "Transactions and atomic updates, buffered: read-modify-writes of one key with one \
                and two threads, transfers between two tables, and eight threads on a thousand \
                keys. Transfers of hashlog are to a table of btree, and the reverse.",
        engines: &["hashlog", "btree"],
        peers: &["rocksdb-optimistic", "rocksdb-pessimistic", "lmdb", "redb"],
        points: &[
            txn("txn-rmw", "txn-rmw", OPS),
            txn("txn-rmw-snapshot", "txn-rmw-snapshot", OPS),
            txn("atomic-update", "atomic-update", OPS),
            txn("txn-transfer", "txn-transfer", OPS),
            txn("txn-rmw, 2 threads", "txn-rmw", OPS).threads(2),
            txn("txn-hot", "txn-hot", HOT_RECORDS).threads(8),
            txn("txn-hot-snapshot", "txn-hot-snapshot", HOT_RECORDS).threads(8),
            txn("txn-hot-locked", "txn-hot-locked", HOT_RECORDS).threads(8),
        ],
        scale: 1.0,
        ..Preset::DEFAULT
    },
    Preset {
        name: "larger-than-memory",
        origin: "Quintet",
        about: "Uniform and absent reads with an eighth of the data's size as memory, page cache \
                included.",
        engines: ENGINES,
        peers: &["rocksdb", "leveldb", "lmdb", "mdbx", "redb", "fjall"],
        points: &[
            micro("read-uniform", OPS / 100),
            micro("read-absent", OPS / 100),
            micro("update", OPS / 100),
        ],
        scale: 1.0,
        runs: 1,
        memory: MemoryPlan::Share(0.125),
        ..Preset::DEFAULT
    },
    Preset {
        name: "recovery",
        origin: "Quintet",
        about: "Killed in the middle of updates, opened again, every record compared.",
        engines: ENGINES,
        peers: &["rocksdb", "leveldb", "lmdb", "mdbx", "redb", "fjall", "sled"],
        points: &[ycsb("a", "a", OPS)],
        scale: 0.1,
        recovers: true,
        ..Preset::DEFAULT
    },
];
