//! A shared library with RocksDB's C interface (`rocksdb/c.h`, version 7.8) on Quintet.
//!
//! Why: a program that is linked with `librocksdb` runs on Quintet without a change.
//!
//! How: each function is written inside `quintet_compat::export`, which gives it the C calling
//! convention and a guard that no panic passes. An object of the interface is a box. A column
//! family is a table. `functions.txt` lists the functions, and whether each has an effect; a
//! function that is not there is not exported, so linking tells. `docs/rocksdb.md` has what differs
//! from RocksDB.
//!
//! Start at `core`.
#![deny(unsafe_code)]

mod backup;
mod batch;
mod callbacks;
mod changes;
mod checkpoint;
mod core;
mod database;
mod environment;
mod families;
mod files;
mod filters;
mod indexed;
mod iterator;
mod kept;
mod latest;
mod memory;
mod objects;
mod open;
mod options;
mod perf;
mod properties;
mod reads;
mod sst;
mod timestamps;
mod transactions;
mod wal;

/// The objects that the interface lets threads share, and those that it lets them pass on.
const _: () = {
    use quintet_compat::{
        boundary::{assert_sent, assert_shared},
        comparator::Comparator,
        operations::Operations,
        snapshot::SnapshotObject,
    };

    assert_shared::<core::Db>();
    assert_shared::<families::FamilyHandle>();
    assert_shared::<SnapshotObject>();
    assert_shared::<Comparator>();
    assert_shared::<callbacks::MergeOperator>();
    assert_shared::<callbacks::PrefixExtractor>();
    assert_shared::<filters::CompactionFilter>();
    assert_shared::<filters::FilterFactory>();
    assert_shared::<options::database::DatabaseOptions>();
    assert_shared::<options::reads::ReadOptions>();
    assert_shared::<options::writes::WriteOptions>();
    assert_shared::<objects::Cache>();
    assert_shared::<objects::Env>();
    assert_shared::<reads::PinnedValue>();
    assert_shared::<files::LiveFiles>();
    assert_shared::<backup::BackupEngine>();
    assert_shared::<checkpoint::Checkpoint>();
    assert_shared::<indexed::IndexedObject>();
    assert_shared::<Operations>();
    assert_shared::<perf::PerfContext>();
    assert_sent::<iterator::IteratorObject>();
    assert_sent::<wal::WalIterator>();
};
