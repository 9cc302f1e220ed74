//! Named workloads of the suites.

use super::definition::{Body, OperationKind, RecordChoice, Suite, Workload};
use crate::{
    data::KeyOrder,
    failure::{Failure, Outcome},
    store::TransactionMode,
};

/// Workloads of YCSB, with the proportions in its `workloads/` directory.
pub const YCSB: [&str; 7] = ["load", "a", "b", "c", "d", "e", "f"];
/// Workloads of one kind of operation.
pub const MICRO: [&str; 14] = [
    "read-uniform",
    "read-zipfian",
    "read-absent",
    "read-dependent",
    "insert",
    "update",
    "delete",
    "multi-get-16",
    "multi-get-32",
    "multi-get-256",
    "range-5",
    "range-10",
    "range-50",
    "range-100",
];
/// Workloads of `db_bench`, by their names, and a load of sorted runs.
pub const DB_BENCH: [&str; 10] = [
    "fillseq",
    "fillsorted",
    "fillrandom",
    "overwrite",
    "readrandom",
    "readseq",
    "readmissing",
    "seekrandom",
    "readwhilewriting",
    "deleterandom",
];

/// Workloads of transactions and of the atomic update of a key.
pub const TXN: [&str; 7] = [
    "txn-rmw",
    "txn-rmw-snapshot",
    "txn-transfer",
    "txn-hot",
    "txn-hot-snapshot",
    "txn-hot-locked",
    "atomic-update",
];
/// Number of records of the workloads `txn-hot`.
const HOT_RECORDS: u64 = 1000;
/// Number of threads of the workloads `txn-hot`: enough that transactions overlap on few
/// processors.
const HOT_THREADS: u64 = 8;

/// Returns the names of the workloads of a suite. LogKV has parameters instead of names.
pub const fn names(suite: Suite) -> &'static [&'static str] {
    match suite {
        Suite::Ycsb => &YCSB,
        Suite::Micro => &MICRO,
        Suite::DbBench => &DB_BENCH,
        Suite::LogKv => &[],
        Suite::Txn => &TXN,
    }
}

/// Returns the workload of this name. An unknown name is a usage failure.
pub fn find(suite: Suite, name: &str) -> Outcome<Workload> {
    let found = match suite {
        Suite::Ycsb => ycsb(name),
        Suite::Micro => micro(name),
        Suite::DbBench => db_bench(name),
        Suite::LogKv => None,
        Suite::Txn => txn(name),
    };
    let (about, order, body) = found.ok_or_else(|| {
        let names = names(suite).join(", ");
        Failure::Usage(format!("there is no workload {name:?} here; there are: {names}"))
    })?;
    let batch = match name {
        "multi-get-16" => 16,
        "multi-get-32" => 32,
        "multi-get-256" => 256,
        _ => 1,
    };
    Ok(Workload {
        suite,
        name: name.to_owned(),
        about: about.to_owned(),
        order,
        body,
        batch,
        range_entries: name.strip_prefix("range-").and_then(|count| count.parse().ok()),
        sorted: name == "fillsorted",
        background_writer: name == "readwhilewriting",
        threads: if name.starts_with("txn-hot") { HOT_THREADS } else { 1 },
        mode: match name {
            "txn-rmw-snapshot" | "txn-hot-snapshot" => TransactionMode::Snapshot,
            "txn-hot-locked" => TransactionMode::Locked,
            _ => TransactionMode::Serializable,
        },
    })
}

type WorkloadDescription = (&'static str, KeyOrder, Body);

fn mix(shares: &[(OperationKind, f64)], choice: RecordChoice) -> Body {
    Body::Mix { shares: shares.to_vec(), choice }
}

fn ycsb(name: &str) -> Option<WorkloadDescription> {
    use OperationKind::{Insert, Range, Read, ReadLatest, ReadModifyWrite, Update};
    let (about, body) = match name {
        "load" => ("inserts in random order", Body::Load),
        "a" => {
            ("half reads, half updates", mix(&[(Read, 0.5), (Update, 0.5)], RecordChoice::Zipfian))
        }
        "b" => {
            ("95 % reads, 5 % updates", mix(&[(Read, 0.95), (Update, 0.05)], RecordChoice::Zipfian))
        }
        "c" => ("reads", mix(&[(Read, 1.0)], RecordChoice::Zipfian)),
        "d" => (
            "95 % reads of the latest, 5 % inserts",
            mix(&[(ReadLatest, 0.95), (Insert, 0.05)], RecordChoice::Latest),
        ),
        "e" => (
            "95 % ranges of up to 100, 5 % inserts",
            mix(&[(Range, 0.95), (Insert, 0.05)], RecordChoice::Zipfian),
        ),
        "f" => (
            "half reads, half read-modify-writes",
            mix(&[(Read, 0.5), (ReadModifyWrite, 0.5)], RecordChoice::Zipfian),
        ),
        _ => return None,
    };
    Some((about, KeyOrder::Hashed, body))
}

fn micro(name: &str) -> Option<WorkloadDescription> {
    let one = |kind, choice| mix(&[(kind, 1.0)], choice);
    let (about, body) = match name {
        "read-uniform" => ("reads, uniform", one(OperationKind::Read, RecordChoice::Uniform)),
        "read-zipfian" => ("reads, zipfian", one(OperationKind::Read, RecordChoice::Zipfian)),
        "read-absent" => {
            ("reads of absent keys", one(OperationKind::ReadAbsent, RecordChoice::Uniform))
        }
        "read-dependent" => (
            "reads, each key from the last value",
            one(OperationKind::ReadDependent, RecordChoice::Uniform),
        ),
        "insert" => ("inserts of new keys", one(OperationKind::Insert, RecordChoice::Uniform)),
        "update" => {
            ("updates of the same size, uniform", one(OperationKind::Update, RecordChoice::Uniform))
        }
        "delete" => ("deletes of each record", one(OperationKind::Delete, RecordChoice::InTurn)),
        "multi-get-16" => {
            ("reads, uniform, 16 at once", one(OperationKind::Read, RecordChoice::Uniform))
        }
        "multi-get-32" => {
            ("reads, uniform, 32 at once", one(OperationKind::Read, RecordChoice::Uniform))
        }
        "multi-get-256" => {
            ("reads, uniform, 256 at once", one(OperationKind::Read, RecordChoice::Uniform))
        }
        "range-5" => ("ranges of 5, uniform", one(OperationKind::Range, RecordChoice::Uniform)),
        "range-10" => ("ranges of 10, uniform", one(OperationKind::Range, RecordChoice::Uniform)),
        "range-50" => ("ranges of 50, uniform", one(OperationKind::Range, RecordChoice::Uniform)),
        "range-100" => ("ranges of 100, uniform", one(OperationKind::Range, RecordChoice::Uniform)),
        _ => return None,
    };
    Some((about, KeyOrder::Hashed, body))
}

fn db_bench(name: &str) -> Option<WorkloadDescription> {
    let one = |kind| mix(&[(kind, 1.0)], RecordChoice::Uniform);
    let (about, order, body) = match name {
        "fillseq" => ("inserts in key order", KeyOrder::Ordered, Body::Load),
        "fillsorted" => ("sorted loads, each of up to 4 Mi records", KeyOrder::Ordered, Body::Load),
        "fillrandom" => ("inserts in random order", KeyOrder::Hashed, Body::Load),
        "overwrite" => ("updates, uniform", KeyOrder::Hashed, one(OperationKind::Update)),
        "readrandom" => ("reads, uniform", KeyOrder::Hashed, one(OperationKind::Read)),
        "readseq" => ("all entries, in key order if any", KeyOrder::Ordered, Body::ReadAll),
        "readmissing" => ("reads of absent keys", KeyOrder::Hashed, one(OperationKind::ReadAbsent)),
        "seekrandom" => {
            ("ranges of up to 100, uniform", KeyOrder::Hashed, one(OperationKind::Range))
        }
        "readwhilewriting" => {
            ("reads, while another thread updates", KeyOrder::Hashed, one(OperationKind::Read))
        }
        "deleterandom" => ("deletes, uniform", KeyOrder::Hashed, one(OperationKind::Delete)),
        _ => return None,
    };
    Some((about, order, body))
}

fn txn(name: &str) -> Option<WorkloadDescription> {
    use OperationKind::{AtomicUpdate, TransactionalUpdate, Transfer};
    let one = |kind, choice| mix(&[(kind, 1.0)], choice);
    let hot = RecordChoice::Hot(HOT_RECORDS);
    let (about, body) = match name {
        "txn-rmw" => (
            "transactions that read and overwrite a record, uniform",
            one(TransactionalUpdate, RecordChoice::Uniform),
        ),
        "txn-rmw-snapshot" => {
            ("the same with snapshot isolation", one(TransactionalUpdate, RecordChoice::Uniform))
        }
        "txn-transfer" => (
            "transactions that read and overwrite a record in each of two tables, uniform",
            one(Transfer, RecordChoice::Uniform),
        ),
        "txn-hot" => (
            "transactions that read and overwrite one of 1000 records, zipfian",
            one(TransactionalUpdate, hot),
        ),
        "txn-hot-snapshot" => ("the same with snapshot isolation", one(TransactionalUpdate, hot)),
        "txn-hot-locked" => {
            ("the same with reads that lock their key", one(TransactionalUpdate, hot))
        }
        "atomic-update" => {
            ("atomic updates by a function, uniform", one(AtomicUpdate, RecordChoice::Uniform))
        }
        _ => return None,
    };
    Some((about, KeyOrder::Hashed, body))
}
